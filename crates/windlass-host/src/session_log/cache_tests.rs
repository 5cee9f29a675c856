//! With any cache, and without one, lists and searches return the content of the logs.

use super::*;

/// Texts in events, which are also searched for.
const TEXTS: [&str; 6] = ["grün", "GRÜNE Wiese", "ab", "needle", "NeedleWork", "語彙"];

/// An operation on the sessions.
#[derive(Debug, Clone)]
enum SessionOp {
    Append { session: u8, text: usize },
    Resume { session: u8 },
    Release,
    Delete { session: u8 },
    RemoveByHand { session: u8 },
    Replace { session: u8, text: usize },
    Tear { session: u8 },
    DamageCache { file: usize, at: usize },
    RemoveCache,
    ListSome { count: usize },
}

fn op() -> impl Strategy<Value = SessionOp> {
    let session = 0..4_u8;
    let text = 0..TEXTS.len();
    prop_oneof![
        6 => (session.clone(), text.clone()).prop_map(|(session, text)| SessionOp::Append { session, text }),
        2 => session.clone().prop_map(|session| SessionOp::Resume { session }),
        1 => Just(SessionOp::Release),
        1 => session.clone().prop_map(|session| SessionOp::Delete { session }),
        1 => session.clone().prop_map(|session| SessionOp::RemoveByHand { session }),
        1 => (session.clone(), text).prop_map(|(session, text)| SessionOp::Replace { session, text }),
        1 => session.prop_map(|session| SessionOp::Tear { session }),
        2 => (0..200_usize, 0..400_usize).prop_map(|(file, at)| SessionOp::DamageCache { file, at }),
        1 => Just(SessionOp::RemoveCache),
        1 => (0..3_usize).prop_map(|count| SessionOp::ListSome { count }),
    ]
}

struct CacheFixture {
    log: SessionLog,
    /// A session that is open for writing.
    writer: Option<Box<dyn LogWriter>>,
    /// Grows, so that no log has the same size twice.
    count: usize,
}

impl CacheFixture {
    fn id(session: u8) -> SessionId {
        format!("s{session}").parse().unwrap()
    }

    fn events(&self, id: &SessionId) -> u64 {
        self.log.head(id).map_or(0, |head| head.events)
    }

    fn event(&mut self, id: &SessionId, seq: u64, text: usize) -> Event {
        let mut event = event(id, seq);
        self.count += 1;
        if seq > 1 {
            let text = format!("{} {}", TEXTS[text], "x".repeat(self.count));
            event.kind = EventKind::RunStarted {
                prompt: Message::user(&text),
                queued: None,
                flags: SavedFlags::default(),
            };
        }
        event
    }

    async fn apply(&mut self, op: SessionOp) {
        match op {
            SessionOp::Append { session, text } => {
                let id = Self::id(session);
                let how = match self.log.home(&id).exists() {
                    true => OpenLog::Existing,
                    false => OpenLog::New,
                };
                let Ok(mut opened) = self.log.open_writer(&id, how).await else {
                    return;
                };
                for _ in 0..2 {
                    let seq = self.events(&id) + 1;
                    let event = self.event(&id, seq, text);
                    let line = serde_json::to_string(&event).unwrap();
                    opened.writer.append(&event, &line).await.unwrap();
                }
            }
            SessionOp::Resume { session } => {
                self.writer = None;
                let id = Self::id(session);
                let opened = self.log.open_writer(&id, OpenLog::Existing).await;
                self.writer = opened.ok().map(|opened| opened.writer);
            }
            SessionOp::Release => self.writer = None,
            SessionOp::Delete { session } => {
                let id = Self::id(session);
                if self.log.delete(&id).await.is_ok() {
                    for entry in std::fs::read_dir(self.log.dir.join(".cache"))
                        .into_iter()
                        .flatten()
                    {
                        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
                        let gone = memchr::memmem::find(&bytes, id.as_str().as_bytes()).is_none();
                        assert!(gone, "a deleted session is in a cache");
                    }
                }
            }
            SessionOp::RemoveByHand { session } => {
                let _ = std::fs::remove_dir_all(self.log.home(&Self::id(session)));
            }
            SessionOp::Replace { session, text } => {
                let path = self.log.log_path(&Self::id(session));
                if let Ok(old) = std::fs::read_to_string(&path) {
                    self.count += 1;
                    let other = format!("{}{}", TEXTS[text], "y".repeat(self.count));
                    let new = TEXTS
                        .iter()
                        .fold(old, |text, word| text.replace(word, &other));
                    std::fs::write(&path, new).unwrap();
                }
            }
            SessionOp::Tear { session } => {
                let path = self.log.log_path(&Self::id(session));
                if let Ok(mut file) = File::options().append(true).open(path) {
                    std::io::Write::write_all(&mut file, b"{\"v\":").unwrap();
                }
            }
            SessionOp::DamageCache { file, at } => {
                let files = std::fs::read_dir(self.log.dir.join(".cache"));
                let files: Vec<_> = files.into_iter().flatten().flatten().collect();
                if let Some(entry) = files.get(file % files.len().max(1)) {
                    let mut bytes = std::fs::read(entry.path()).unwrap();
                    let at = at % bytes.len();
                    bytes[at] ^= 0x10;
                    std::fs::write(entry.path(), &bytes[..bytes.len() - at % 2]).unwrap();
                }
            }
            SessionOp::RemoveCache => {
                let _ = std::fs::remove_dir_all(self.log.dir.join(".cache"));
            }
            SessionOp::ListSome { count } => {
                let _: Vec<_> = self.log.list().take(count).collect().await;
            }
        }
    }

    /// Returns the list from the logs alone.
    fn scanned(&self) -> Vec<Result<SessionHead, String>> {
        let found = self.log.find("").unwrap().into_iter();
        let head = |id: &SessionId| {
            let mut head = self.log.head(id).map_err(|err| err.message)?;
            if self.log.is_written(id) && head.state != SessionState::Damaged {
                head.state = SessionState::Running;
            }
            Ok(head)
        };
        found.map(|session| head(&session.id)).collect()
    }

    /// Returns the sessions that contain a text, with or without the cache.
    fn with_text(&self, text: &str, cached: bool) -> Vec<(SessionId, bool)> {
        let mut ids = Vec::new();
        if cached {
            let mut search = self.log.search(text).unwrap();
            while let Some(id) = search.next_session() {
                while search.next_event().is_some() {}
                ids.push(id);
            }
        } else {
            let everything = self.log.find("").unwrap().into_iter();
            ids.extend(everything.map(|session| session.id));
        }
        let fold = |text: &str| -> String { text.chars().map(fold_case).collect() };
        let mut found = Vec::new();
        for id in ids {
            let (mut hit, mut failed) = (false, false);
            let path = self.log.log_path(&id);
            let file = open_log(&path, &id).unwrap().0;
            let mut events = Events::new(file, path, id.clone(), |_| true);
            while let Some(event) = events.next() {
                match event {
                    Ok(Skimmed::Event(event)) => visit_texts(&event.kind, &mut |_, line| {
                        hit |= fold(line).contains(&fold(text));
                    }),
                    Ok(Skimmed::Passed { .. }) => {}
                    Err(_) => failed = true,
                }
            }
            if hit || failed {
                found.push((id, failed));
            }
        }
        found
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn the_caches_never_differ_from_the_logs(ops in proptest::collection::vec(op(), 1..14)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let mut fixture = CacheFixture { log: SessionLog::new(dir.path().join("sessions")), writer: None, count: 0 };
        let texts = TEXTS.iter().chain(&["a", "nowhere", "Wiese x"]).cycle();
        for (op, text) in ops.into_iter().zip(texts.step_by(2)) {
            runtime.block_on(fixture.apply(op));
            for _ in 0..2 {
                let listed: Vec<_> = runtime.block_on(fixture.log.list().collect());
                let listed: Vec<_> = listed.into_iter().map(|head| head.map_err(|err| err.message)).collect();
                prop_assert_eq!(listed, fixture.scanned());
                prop_assert_eq!(fixture.with_text(text, true), fixture.with_text(text, false), "{}", text);
            }
        }
    }
}

#[tokio::test]
async fn a_second_list_and_a_second_search_read_no_log() {
    let f = LogFixture::written(5).await;
    let all = |log: SessionLog| async move { log.list().collect::<Vec<_>>().await };
    let first = all(f.log.clone()).await;
    let searched = |text: &str| {
        let mut search = f.log.search(text).unwrap();
        let mut read = Vec::new();
        while let Some(id) = search.next_session() {
            while search.next_event().is_some() {}
            read.push(id);
        }
        read
    };
    assert_eq!(
        searched("cathedral"),
        vec![f.id.clone()],
        "the session has no filter yet"
    );
    assert_eq!(searched("cathedral"), []);
    assert_eq!(searched("Make it P"), vec![f.id.clone()]);
    // The cache is valid while the log has the same stamp; only a test can make its content differ.
    let stamp = f.log.stamp(&f.id).unwrap();
    let head = SessionHead {
        title: "from the cache".into(),
        ..first[0].clone().unwrap()
    };
    let mut cache = SessionCache::open(&f.log.disk, &f.log.dir, listing::CACHE);
    cache.set(&f.id, stamp, listing::encode(&head, true));
    drop(cache);
    assert_eq!(all(f.log.clone()).await, [Ok(head)]);
    let (writer, _) = f.open(OpenLog::Existing).await.unwrap();
    let running = all(f.log.clone()).await[0].clone().unwrap();
    assert_eq!(
        (running.title.as_str(), running.state),
        ("make it pass", SessionState::Running)
    );
    drop(writer);
    assert_eq!(all(f.log.clone()).await, first);
}

#[test]
fn many_sessions_are_processed_in_threads_and_none_is_lost() {
    for count in [0, 1, 999, 1_000, 1_001, 5_003] {
        let names: Vec<usize> = (0..count).collect();
        assert_eq!(listing::in_threads(&names, |part| part.to_vec()), names);
    }
}

#[tokio::test]
async fn two_processes_may_save_at_once() {
    let f = LogFixture::written(3).await;
    let stamp = f.log.stamp(&f.id).unwrap();
    let open = || SessionCache::open(&f.log.disk, &f.log.dir, "test");
    let ids: Vec<SessionId> = (0..300).map(|n| format!("s{n}").parse().unwrap()).collect();
    std::thread::scope(|scope| {
        for half in ids.chunks(150) {
            scope.spawn(move || {
                for id in half {
                    open().set(id, stamp, id.as_str().into());
                }
            });
        }
    });
    let mut cache = open();
    let known = ids.iter().filter(|id| {
        cache
            .get(id, &stamp)
            .is_some_and(|value| value == id.as_str().as_bytes())
    });
    // The later rename wins; values that it lacks are read from the log again.
    assert!(known.count() >= 64);
    let names = std::fs::read_dir(f.log.dir.join(".cache"))
        .unwrap()
        .flatten();
    assert!(
        names
            .into_iter()
            .all(|entry| !entry.file_name().to_string_lossy().contains("new"))
    );
}

#[test]
fn a_cache_file_of_arbitrary_bytes_never_panics() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(".cache/test-00");
    std::fs::create_dir(dir.path().join(".cache")).unwrap();
    proptest!(|(bytes in proptest::collection::vec(any::<u8>(), 0..200), prefix: bool)| {
        let mut all = if prefix { crate::session_log::cache::MAGIC.to_vec() } else { Vec::new() };
        all.extend(bytes);
        let sum = crc32fast::hash(&all);
        all.extend_from_slice(&sum.to_le_bytes());
        std::fs::write(&path, &all).unwrap();
        let mut cache = SessionCache::open(&LogDisk::default(), dir.path(), "test");
        cache.visit(&[], |_, _| {});
    });
}
