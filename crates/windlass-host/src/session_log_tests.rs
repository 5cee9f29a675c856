//! Tests of the session log: normal, incomplete, damaged and newer logs.

#![allow(clippy::unwrap_used)]

use std::os::unix::fs::PermissionsExt;

use futures_util::StreamExt;
use proptest::prelude::*;
use windlass_core::clock::Timestamp;
use windlass_core::event::{EventKind, Order};
use windlass_core::flags::SavedFlags;
use windlass_core::id::TraceId;
use windlass_core::message::Message;
use windlass_core::search_text::{fold_case, visit_texts};
use windlass_core::session_state::SessionState;
use windlass_core::store::LogWriter;

use super::events::Events;
use super::lines::LogLines;
use super::listing::TITLE_CHARS;
use super::*;

#[path = "session_log/cache_tests.rs"]
mod cache;
#[path = "session_log/fault_tests.rs"]
mod faults;
#[path = "session_log/index_tests.rs"]
mod index;
#[path = "session_log/salvage_tests.rs"]
mod salvage;
#[path = "session_log/snapshot_tests.rs"]
mod snapshot;

struct LogFixture {
    dir: tempfile::TempDir,
    log: SessionLog,
    id: SessionId,
}

fn fixture() -> LogFixture {
    let dir = tempfile::tempdir().unwrap();
    let log = SessionLog::new(dir.path().join("data/sessions"));
    LogFixture {
        dir,
        log,
        id: "s1".parse().unwrap(),
    }
}

fn event(session: &SessionId, seq: u64) -> Event {
    let kind = match seq {
        1 => EventKind::SessionOpened {
            workspace: "/w".into(),
            runtime: "native".into(),
            model: None,
            program: "0.1.0".into(),
        },
        2 => EventKind::RunStarted {
            prompt: Message::user("  make it pass\nplease"),
            queued: None,
            flags: SavedFlags::default(),
        },
        _ => EventKind::Noted {
            text: format!("note {seq} é"),
        },
    };
    Event {
        v: VERSION,
        order: Order::Durable { seq },
        at: Timestamp::from_millis(1_794_711_285_000 + i64::try_from(seq).unwrap()),
        session: session.clone(),
        run: None,
        trace: TraceId::fresh(1, 2),
        kind,
    }
}

fn line(session: &SessionId, seq: u64) -> String {
    serde_json::to_string(&event(session, seq)).unwrap()
}

impl LogFixture {
    fn path(&self) -> PathBuf {
        self.log.log_path(&self.id)
    }

    /// Opens the session for writing. Also returns the notices.
    async fn open(&self, how: OpenLog) -> Result<(Box<dyn LogWriter>, Vec<String>), StoreError> {
        let opened = self.log.open_writer(&self.id, how).await?;
        Ok((opened.writer, opened.notices))
    }

    async fn append(&self, writer: &mut Box<dyn LogWriter>, seqs: std::ops::RangeInclusive<u64>) {
        for seq in seqs {
            writer
                .append(&event(&self.id, seq), &line(&self.id, seq))
                .await
                .unwrap();
        }
    }

    /// Returns a closed session of that many events.
    async fn written(count: u64) -> Self {
        let f = fixture();
        let (mut writer, _) = f.open(OpenLog::New).await.unwrap();
        f.append(&mut writer, 1..=count).await;
        writer.sync().await.unwrap();
        f
    }

    async fn read_from(&self, from: u64) -> Vec<Result<Event, StoreError>> {
        self.log.read(&self.id, from).collect().await
    }

    /// Returns the sequence numbers that can be read.
    async fn seqs(&self) -> Vec<u64> {
        self.read_from(0)
            .await
            .into_iter()
            .map(|event| event.unwrap().order.seq().unwrap())
            .collect()
    }

    fn add(&self, bytes: &[u8]) {
        let mut log = std::fs::read(self.path()).unwrap();
        log.extend_from_slice(bytes);
        std::fs::write(self.path(), log).unwrap();
    }
}

#[tokio::test]
async fn appended_events_are_read_back_and_files_are_private() {
    let f = LogFixture::written(3).await;
    let events: Vec<_> = f
        .read_from(0)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    assert_eq!(events, [event(&f.id, 1), event(&f.id, 2), event(&f.id, 3)]);
    assert_eq!(f.read_from(3).await, [Ok(event(&f.id, 3))]);
    assert_eq!(f.read_from(9).await, []);
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&f.path()), 0o600);
    assert_eq!(mode(f.path().parent().unwrap()), 0o700);
    assert_eq!(mode(&f.dir.path().join("data/sessions")), 0o700);
    let (mut writer, notices) = f.open(OpenLog::Existing).await.unwrap();
    assert_eq!(notices, Vec::<String>::new());
    f.append(&mut writer, 4..=5).await;
    assert_eq!(f.seqs().await, [1, 2, 3, 4, 5]);
}

#[tokio::test]
async fn opening_fails_for_an_existing_new_or_a_missing_old_session() {
    let f = LogFixture::written(1).await;
    assert_eq!(
        f.open(OpenLog::New).await.err().unwrap().kind,
        StoreErrorKind::Exists
    );
    let other: SessionId = "other".parse().unwrap();
    let err = f
        .log
        .open_writer(&other, OpenLog::Existing)
        .await
        .err()
        .unwrap();
    assert_eq!(err.kind, StoreErrorKind::NotFound);
    assert!(!f.log.home(&other).exists());
    let read: Vec<_> = f.log.read(&other, 0).collect().await;
    assert_eq!(read.len(), 1);
    assert_eq!(read[0].as_ref().unwrap_err().kind, StoreErrorKind::NotFound);
    assert_eq!(
        f.log.delete(&other).await.unwrap_err().kind,
        StoreErrorKind::NotFound
    );
}

#[tokio::test]
async fn a_second_writer_gets_an_error_that_names_the_first() {
    let f = LogFixture::written(1).await;
    let (first, _) = f.open(OpenLog::Existing).await.unwrap();
    let err = f.open(OpenLog::Existing).await.err().unwrap();
    assert_eq!(err.kind, StoreErrorKind::Locked);
    assert!(
        err.message
            .contains(&format!("process {}", std::process::id())),
        "{err}"
    );
    assert_eq!(
        f.log.delete(&f.id).await.unwrap_err().kind,
        StoreErrorKind::Locked
    );
    assert_eq!(f.seqs().await, [1], "reading needs no lock");
    drop(first);
    assert!(f.open(OpenLog::Existing).await.is_ok());
    // The id of a dead process in the lock file does not lock the session.
    std::fs::write(f.log.home(&f.id).join(lease::LOCK), "1\n").unwrap();
    assert!(f.open(OpenLog::Existing).await.is_ok());
    f.log.delete(&f.id).await.unwrap();
    assert!(!f.log.home(&f.id).exists());
}

/// Opens a session whose last writer left this text in the lock file.
#[track_caller]
fn check_power_cut(words: &str, expect: bool) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let f = LogFixture::written(1).await;
        let lock = f.log.home(&f.id).join(lease::LOCK);
        let own = std::fs::read_to_string(&lock).unwrap();
        std::fs::write(&lock, words.replace("OWN", own.trim())).unwrap();
        let opened = f.log.open_writer(&f.id, OpenLog::Existing).await.unwrap();
        assert_eq!(opened.after_power_cut, expect, "{words:?}");
        drop(opened);
        assert!(
            !f.log
                .open_writer(&f.id, OpenLog::Existing)
                .await
                .unwrap()
                .after_power_cut
        );
        assert_eq!(std::fs::read_to_string(&lock).unwrap(), own);
    });
}

#[cfg(target_os = "linux")]
#[test]
fn the_lock_file_tells_whether_the_machine_was_restarted() {
    check_power_cut("OWN", false);
    check_power_cut("OWN\n and more", false);
    check_power_cut("", true);
    check_power_cut("1\n", true);
    check_power_cut("1 -\n", true);
    check_power_cut("1 6e2f1c0a-0000-4000-8000-000000000000\n", true);
    check_power_cut("\u{0}\u{0}\u{0}", true);
    check_power_cut(&"9".repeat(5000), true);
}

#[tokio::test]
async fn a_fork_reads_the_artifacts_of_its_source() {
    use windlass_core::workspace::Artifacts;
    let f = LogFixture::written(1).await;
    let other: SessionId = "s2".parse().unwrap();
    f.log.share_artifacts(&f.id, &other).await.unwrap_err();
    drop(f.log.open_writer(&other, OpenLog::New).await.unwrap());
    f.log.share_artifacts(&f.id, &other).await.unwrap();
    let (one, two) = (f.log.artifacts(&f.id), f.log.artifacts(&other));
    let stored = one.put(b"long output").unwrap();
    std::os::unix::fs::symlink("/etc/hostname", f.log.home(&f.id).join("artifacts/link")).unwrap();
    for _ in 0..2 {
        f.log.share_artifacts(&f.id, &other).await.unwrap();
    }
    f.log.delete(&f.id).await.unwrap();
    assert_eq!(two.read(&stored.id, 0, 99).unwrap(), b"long output");
    assert_eq!(
        std::fs::read_dir(f.log.home(&other).join("artifacts"))
            .unwrap()
            .count(),
        1
    );
}

#[tokio::test]
async fn a_session_is_deleted_with_closed_directories_of_an_agent() {
    let f = LogFixture::written(1).await;
    let closed = f.log.home(&f.id).join("agents/robot/closed");
    std::fs::create_dir_all(closed.join("deep")).unwrap();
    std::fs::set_permissions(&closed, std::os::unix::fs::PermissionsExt::from_mode(0o0)).unwrap();
    f.log.delete(&f.id).await.unwrap();
    assert!(!f.log.home(&f.id).exists());
}

/// Opens a log of three events with bytes after it: the events stay, and the bytes are moved to another file
/// completely.
#[track_caller]
fn check_torn(rest: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let f = LogFixture::written(3).await;
        let whole = std::fs::read(f.path()).unwrap();
        f.add(rest);
        let (mut writer, notices) = f.open(OpenLog::Existing).await.unwrap();
        assert_eq!(notices.len(), 1);
        assert!(notices[0].contains("events.torn-1"), "{notices:?}");
        assert_eq!(std::fs::read(f.path()).unwrap(), whole);
        assert_eq!(
            std::fs::read(f.path().with_extension("torn-1")).unwrap(),
            rest
        );
        f.append(&mut writer, 4..=4).await;
        assert_eq!(f.seqs().await, [1, 2, 3, 4]);
    });
}

#[test]
fn an_incomplete_end_is_moved_to_another_file_with_a_notice() {
    let next = line(&"s1".parse().unwrap(), 4);
    check_torn(b"{");
    check_torn(line(&"s1".parse().unwrap(), 5).as_bytes());
    check_torn(&next.as_bytes()[..next.len() / 2]);
    check_torn(&[0; 5]);
    check_torn(&vec![0; 200_000]);
    check_torn(b"\n");
    check_torn(b"not json\n");
    check_torn(b"not json\nnor this\n\0\0\0");
    let mut half_zero = next.into_bytes();
    half_zero[20..].fill(0);
    half_zero.push(b'\n');
    check_torn(&half_zero);
    check_torn(&vec![b'x'; 100_000]);
}

#[tokio::test]
async fn a_last_line_without_line_end_is_kept() {
    for zeros in [0, 5000] {
        let f = LogFixture::written(2).await;
        f.add(line(&f.id, 3).as_bytes());
        f.add(&vec![0; zeros]);
        let (mut writer, notices) = f.open(OpenLog::Existing).await.unwrap();
        assert!(
            notices.len() == 1 && notices[0].contains("had no line end"),
            "{notices:?}"
        );
        f.append(&mut writer, 4..=4).await;
        assert_eq!(f.seqs().await, [1, 2, 3, 4]);
    }
    let f = fixture();
    drop(f.open(OpenLog::New).await.unwrap());
    f.add(line(&f.id, 1).as_bytes());
    f.open(OpenLog::Existing).await.unwrap();
    assert_eq!(f.seqs().await, [1]);
}

/// Puts something else in the place of the log or its directory: all operations fail, and the victim is not changed.
#[tokio::test]
async fn a_log_that_is_not_a_regular_file_is_refused() {
    let plant: [fn(&Path, &Path); 4] = [
        |log, victim| std::os::unix::fs::symlink(victim, log).unwrap(),
        |log, _| std::fs::create_dir(log).unwrap(),
        |log, _| {
            rustix::fs::mknodat(rustix::fs::CWD, log, FileType::Fifo, 0o600.into(), 0).unwrap()
        },
        |log, victim| {
            std::fs::remove_dir_all(log.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(victim.parent().unwrap(), log.parent().unwrap()).unwrap();
        },
    ];
    for plant in plant {
        let f = LogFixture::written(1).await;
        let elsewhere = f.dir.path().join("elsewhere");
        std::fs::create_dir(&elsewhere).unwrap();
        let victim = elsewhere.join(LOG);
        std::fs::rename(f.path(), &victim).unwrap();
        let whole = std::fs::read(&victim).unwrap();
        plant(&f.path(), &victim);
        assert!(f.open(OpenLog::Existing).await.is_err());
        assert!(matches!(&f.read_from(0).await[..], [Err(_)]));
        let listed: Vec<_> = f.log.list().collect().await;
        assert!(listed.iter().all(Result::is_err), "{listed:?}");
        let _ = f.log.delete(&f.id).await;
        assert_eq!(std::fs::read(&victim).unwrap(), whole);
        assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 1);
    }
}

#[tokio::test]
async fn a_huge_line_without_line_end_needs_bounded_memory() {
    let f = LogFixture::written(1).await;
    let log = std::fs::OpenOptions::new()
        .append(true)
        .open(f.path())
        .unwrap();
    // CacheReader at both ends of a hole: longer than any valid line, and almost no space on disk.
    std::io::Write::write_all(&mut &log, b"x").unwrap();
    log.set_len(3 << 30).unwrap();
    std::io::Write::write_all(&mut &log, b"x").unwrap();
    let err = f.open(OpenLog::Existing).await.err().unwrap();
    assert_eq!(err.kind, StoreErrorKind::Damaged, "{err}");
    let read = f.read_from(0).await;
    assert!(matches!(&read[..], [Ok(_), Err(err)] if err.kind == StoreErrorKind::Damaged));
    log.set_len(5 << 40).unwrap();
    assert_eq!(
        f.open(OpenLog::Existing).await.err().unwrap().kind,
        StoreErrorKind::Damaged
    );
}

#[tokio::test]
async fn a_reader_omits_an_incomplete_last_line() {
    let f = LogFixture::written(2).await;
    f.add(&line(&f.id, 3).as_bytes()[..30]);
    assert_eq!(f.seqs().await, [1, 2]);
}

/// Checks that each operation refuses a damaged log with an error that names its path, and does not change it.
#[track_caller]
fn check_refused(content: &str, read: StoreErrorKind, opened: Option<StoreErrorKind>, part: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let f = LogFixture::written(1).await;
        std::fs::write(f.path(), content).unwrap();
        let err = f.read_from(0).await.pop().unwrap().unwrap_err();
        assert_eq!(err.kind, read, "{err}");
        assert!(err.message.contains(part), "{err}");
        assert!(err.message.contains(f.path().to_str().unwrap()), "{err}");
        // Skimming without wanted events finds the same error.
        let skimmed: Vec<_> = f.log.skim(&f.id, 0, |_| false).collect().await;
        assert_eq!(skimmed.last().unwrap().as_ref().unwrap_err(), &err);
        assert_eq!(
            f.open(OpenLog::Existing).await.err().map(|err| err.kind),
            opened
        );
        assert_eq!(std::fs::read_to_string(f.path()).unwrap(), content);
        assert!(!f.path().with_extension("torn-1").exists());
    });
}

#[test]
fn damage_and_other_versions_are_refused_and_left_untouched() {
    let id = "s1".parse().unwrap();
    let [one, two, three] = [1, 2, 3].map(|seq| line(&id, seq));
    let damaged = StoreErrorKind::Damaged;
    check_refused(
        &format!("{one}\ngarbage\n{three}\n"),
        damaged,
        None,
        "events.jsonl:2",
    );
    check_refused(
        &format!("{one}\ngarbage\n{three}\n"),
        damaged,
        None,
        "`windlass sessions salvage s1`",
    );
    check_refused(
        &format!("{one}\n{three}\n"),
        damaged,
        None,
        "event 2 is missing",
    );
    check_refused(
        &format!("{one}\n\n{two}\n"),
        damaged,
        None,
        "events.jsonl:2",
    );
    check_refused("garbage\n", damaged, Some(damaged), "events.jsonl:1");
    let noise = "noise\n".repeat(20);
    check_refused(
        &format!("{one}\n{noise}"),
        damaged,
        Some(damaged),
        "events.jsonl:2",
    );
    let newer = Some(StoreErrorKind::OtherVersion);
    let future = two.replacen("\"v\":2", "\"v\":3", 1);
    check_refused(
        &format!("{one}\n{future}\n"),
        StoreErrorKind::OtherVersion,
        newer,
        "format 3",
    );
    check_refused(
        &format!("{one}\n{{\"v\":9,\"all\":\"new\"}}\n"),
        StoreErrorKind::OtherVersion,
        newer,
        "format 9",
    );
    let old = r#"{"v":1,"seq":1,"at":"2026-11-15T00:00:00.000Z","session":"s1","trace":"t","kind":"noted","text":"x"}"#;
    check_refused(
        &format!("{old}\n"),
        StoreErrorKind::OtherVersion,
        newer,
        "written by an older version (format 1",
    );
    let live = one.replacen("\"seq\":1", "\"after\":1,\"n\":1", 1);
    check_refused(&format!("{live}\n"), damaged, Some(damaged), "live event");
}

#[tokio::test]
async fn a_list_is_in_descending_order_of_the_last_write() {
    let f = LogFixture::written(5).await;
    let other: SessionId = "s0".parse().unwrap();
    let mut opened = f.log.open_writer(&other, OpenLog::New).await.unwrap();
    opened
        .writer
        .append(&event(&other, 1), &line(&other, 1))
        .await
        .unwrap();
    for (id, ago) in [(&f.id, 100), (&other, 5)] {
        let when = std::time::SystemTime::now() - std::time::Duration::from_secs(ago);
        File::options()
            .append(true)
            .open(f.log.log_path(id))
            .unwrap()
            .set_modified(when)
            .unwrap();
    }
    std::fs::create_dir(f.log.dir.join("empty")).unwrap();
    std::fs::create_dir(f.log.dir.join(".not-an-id")).unwrap();
    let heads: Vec<_> = f.log.list().collect().await;
    let heads: Vec<_> = heads.into_iter().map(Result::unwrap).collect();
    assert_eq!(heads.len(), 2);
    assert_eq!(
        (
            heads[0].id.as_str(),
            heads[0].title.as_str(),
            heads[0].events
        ),
        ("s0", "", 1)
    );
    let expect = SessionHead {
        id: f.id.clone(),
        opened: event(&f.id, 1).at,
        last: event(&f.id, 5).at,
        workspace: "/w".into(),
        title: "make it pass".into(),
        events: 5,
        state: SessionState::Interrupted,
    };
    assert_eq!(heads[1], expect);
    let long = format!("make it pass {}", "x".repeat(300_000));
    let text = std::fs::read_to_string(f.path()).unwrap();
    std::fs::write(f.path(), text.replace("make it pass", &long)).unwrap();
    let title = f.log.head(&f.id).unwrap().title;
    assert!(
        title.starts_with("make it pass xxx") && title.len() == TITLE_CHARS,
        "a long prompt has a title: {title}"
    );
    std::fs::write(f.path(), "broken\n").unwrap();
    let heads: Vec<_> = f.log.list().collect().await;
    assert_eq!(heads.iter().filter(|head| head.is_err()).count(), 1);
    let nothing = SessionLog::new(f.dir.path().join("nowhere"));
    assert_eq!(nothing.list().count().await, 0);
}

#[tokio::test]
async fn an_unusable_directory_is_named() {
    let f = fixture();
    std::fs::write(f.dir.path().join("data"), "a file").unwrap();
    let err = f.open(OpenLog::New).await.err().unwrap();
    assert!(err.message.contains("data/sessions"), "{err}");
}

#[tokio::test]
async fn a_failed_sync_is_final_for_the_session() {
    let f = fixture();
    crate::private::create_dir(&f.log.home(&f.id)).unwrap();
    let disk = LogDisk::default();
    let lease = lease::acquire(&disk, &f.log.home(&f.id), &f.id).unwrap();
    // On a full device, writing fails as on a full disk, and so does the rollback of the line.
    let full = File::options().append(true).open("/dev/full").unwrap();
    let mut writer = LogFileWriter::new(disk, (full, f.path()), 0, false, lease);
    let err = writer
        .append(&event(&f.id, 1), &line(&f.id, 1))
        .await
        .unwrap_err();
    assert_eq!(err.kind, StoreErrorKind::Full);
    assert!(err.message.contains("free some space"), "{err}");
    assert!(
        writer
            .append(&event(&f.id, 1), &line(&f.id, 1))
            .await
            .unwrap_err()
            .message
            .contains("repair")
    );
    assert!(writer.sync().await.unwrap_err().message.contains("repair"));
}

/// Runs this test again in a process with a limit on the size of files, which interrupts a write as a full disk would.
#[test]
fn a_line_that_does_not_fit_is_rolled_back() {
    const CHILD: &str = "WINDLASS_TEST_SMALL_FILES";
    if std::env::var_os(CHILD).is_none() {
        let exe = std::env::current_exe().unwrap();
        let name = "session_log::tests::a_line_that_does_not_fit_is_rolled_back";
        let script = format!("trap '' XFSZ; ulimit -f 1; exec \"$0\" --exact {name} --nocapture");
        let child = std::process::Command::new("bash")
            .arg("-c")
            .arg(script)
            .arg(exe)
            .env(CHILD, "1")
            .output()
            .unwrap();
        assert!(
            child.status.success(),
            "{}",
            String::from_utf8_lossy(&child.stderr)
        );
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let f = fixture();
        let (mut writer, _) = f.open(OpenLog::New).await.unwrap();
        let mut big = event(&f.id, 3);
        big.kind = EventKind::Noted {
            text: "x".repeat(900),
        };
        f.append(&mut writer, 1..=2).await;
        assert!(
            writer
                .append(&big, &serde_json::to_string(&big).unwrap())
                .await
                .is_err()
        );
        assert_eq!(f.seqs().await, [1, 2]);
        assert_eq!(std::fs::read(f.path()).unwrap().last(), Some(&b'\n'));
        f.append(&mut writer, 3..=3).await;
        assert_eq!(f.seqs().await, [1, 2, 3]);
    });
}

#[tokio::test]
async fn an_event_of_several_lines_is_refused() {
    let f = fixture();
    let (mut writer, _) = f.open(OpenLog::New).await.unwrap();
    assert!(writer.append(&event(&f.id, 1), "{\n}").await.is_err());
    assert_eq!(f.seqs().await, [] as [u64; 0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_log_cut_anywhere_keeps_a_prefix_and_can_be_continued(cut in 0_usize..1200, zeros in 0_usize..40) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let f = fixture();
            crate::private::create_dir(&f.log.home(&f.id)).unwrap();
            let whole: String = (1..=5).map(|seq| line(&f.id, seq) + "\n").collect();
            let kept = &whole.as_bytes()[..cut.min(whole.len())];
            // A line that lacks only its line end is complete.
            let lacks_end = whole.as_bytes().get(kept.len()) == Some(&b'\n');
            let full_lines = kept.iter().filter(|byte| **byte == b'\n').count() as u64 + u64::from(lacks_end);
            std::fs::write(f.path(), [kept, &vec![0; zeros]].concat()).unwrap();
            let (mut writer, _) = f.open(OpenLog::Existing).await.unwrap();
            f.append(&mut writer, full_lines + 1..=full_lines + 1).await;
            assert_eq!(f.seqs().await, (1..=full_lines + 1).collect::<Vec<_>>());
        });
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), good in 0_u64..3) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let f = LogFixture::written(good).await;
            f.add(&bytes);
            let read = f.read_from(0).await.iter().filter(|event| event.is_ok()).count() as u64;
            assert!(read >= good);
            let _ = f.log.list().count().await;
            let _ = f.open(OpenLog::Existing).await;
            assert!(f.read_from(0).await.iter().filter(|event| event.is_ok()).count() as u64 >= good);
        });
    }
}
