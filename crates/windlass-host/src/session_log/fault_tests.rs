//! A disk that fails: at every call that changes something, once or from then on, nothing earlier is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::disk::Disk;
use super::*;

/// How the system refuses, and what is said then.
const REFUSALS: [(Errno, &str); 5] = [
    (Errno::NOSPC, "free some space"),
    (Errno::DQUOT, "free some space"),
    (Errno::IO, "see that the disk is well"),
    (Errno::ROFS, "make it writable"),
    (Errno::ACCESS, "make it writable"),
];

/// One call that fails, and perhaps all after it.
#[derive(Debug, Clone, Copy)]
struct Fault {
    at: u64,
    errno: Errno,
    for_good: bool,
}

/// The system with one fault; it counts how often it refused.
fn faulty(fault: Fault) -> (Disk, Arc<AtomicU64>) {
    let (calls, refused) = (AtomicU64::new(0), Arc::new(AtomicU64::new(0)));
    let count = Arc::clone(&refused);
    let disk = Disk::watched(Arc::new(move |_| {
        let call = calls.fetch_add(1, Ordering::Relaxed) + 1;
        if call == fault.at || fault.for_good && call > fault.at {
            count.fetch_add(1, Ordering::Relaxed);
            return Err(fault.errno.into());
        }
        Ok(())
    }));
    (disk, refused)
}

/// What somebody who writes a session was told.
#[derive(Default)]
struct Told {
    /// The last event that was taken.
    taken: u64,
    errors: Vec<StoreError>,
}

impl Told {
    fn hear<T>(&mut self, said: Result<T, StoreError>) -> Option<T> {
        said.map_err(|err| self.errors.push(err)).ok()
    }
}

/// The seventh is long enough for an index.
fn sized(session: &SessionId, seq: u64) -> Event {
    let mut event = event(session, seq);
    if seq == 7 {
        event.kind = EventKind::Noted {
            text: "x".repeat(1 << 14),
        };
    }
    event
}

/// Writes up to the ninth event, with a sync after the sixth. What is refused is tried once more, as when there is space
/// again.
async fn life(f: &Fixture, disk: Disk, how: OpenLog, before: u64) -> Told {
    let log = SessionLog {
        disk,
        ..f.log.clone()
    };
    let mut told = Told {
        taken: before,
        errors: Vec::new(),
    };
    let Some(opened) = told.hear(log.open_writer(&f.id, how).await) else {
        return told;
    };
    let mut writer = opened.writer;
    for seq in before + 1..=9 {
        let event = sized(&f.id, seq);
        let line = serde_json::to_string(&event).unwrap();
        let mut taken = told.hear(writer.append(&event, &line).await);
        if taken.is_none() {
            assert_eq!(
                f.seqs().await.len() as u64,
                told.taken,
                "reading goes on, and shows what was taken"
            );
            taken = told.hear(writer.append(&event, &line).await);
        }
        if taken.is_none() {
            break;
        }
        told.taken = seq;
        if seq == 6 && told.hear(writer.sync().await).is_none() {
            assert!(
                writer.sync().await.is_err(),
                "a failed sync is not tried again"
            );
            assert!(
                writer.append(&event, &line).await.is_err(),
                "nothing follows it"
            );
            break;
        }
    }
    told
}

/// A session of three events whose end was not written whole.
async fn torn() -> Fixture {
    let f = Fixture::written(3).await;
    f.add(b"{\"v\":2,\"seq\":4");
    f
}

/// Lives with one fault; what was taken is there afterwards, and the session goes on. True when the fault was met.
async fn check_fault(how: OpenLog, fault: Fault, said: &str) -> bool {
    let (f, before) = match how {
        OpenLog::New => (fixture(), 0),
        OpenLog::Existing => (torn().await, 3),
    };
    let (disk, refused) = faulty(fault);
    let told = life(&f, disk, how, before).await;
    if refused.load(Ordering::Relaxed) == 0 {
        assert_eq!((told.taken, told.errors), (9, Vec::new()), "{fault:?}");
        return false;
    }
    for err in &told.errors {
        assert!(
            err.message.contains(f.dir.path().to_str().unwrap()),
            "{fault:?}: {err}"
        );
        let synced =
            err.message.contains("cannot sync") && err.message.contains("resume the session");
        assert!(synced || err.message.contains(said), "{fault:?}: {err}");
    }
    if told.taken == 9 {
        // One that was only in the way of a convenience, or was over when it was tried again.
        assert!(told.errors.len() <= 1, "{fault:?}: {:?}", told.errors);
    } else if told.taken > before {
        assert!(!told.errors.is_empty(), "{fault:?}");
    }
    let listed: Vec<_> = f.log.list().collect().await;
    assert!(listed.iter().all(Result::is_ok), "{fault:?}: {listed:?}");
    if !f.path().exists() {
        assert_eq!(told.taken, 0, "{fault:?}");
        return true;
    }
    let (mut writer, _) = f.open(OpenLog::Existing).await.unwrap();
    let kept = f.seqs().await.len() as u64;
    assert!(
        kept == told.taken || kept == told.taken + 1,
        "{fault:?}: {kept} of {}",
        told.taken
    );
    f.append(&mut writer, kept + 1..=kept + 1).await;
    writer.sync().await.unwrap();
    assert_eq!(
        f.seqs().await,
        (1..=kept + 1).collect::<Vec<_>>(),
        "{fault:?}"
    );
    true
}

#[test]
fn whatever_call_fails_nothing_that_was_taken_is_lost() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    for how in [OpenLog::New, OpenLog::Existing] {
        let once = REFUSALS.map(|(errno, said)| (errno, said, false));
        // From one call on, as when the process dies there.
        let died = (Errno::IO, "see that the disk is well", true);
        for (errno, said, for_good) in once.into_iter().chain([died]) {
            let met = |at| {
                runtime.block_on(check_fault(
                    how,
                    Fault {
                        at,
                        errno,
                        for_good,
                    },
                    said,
                ))
            };
            let calls = (1..).take_while(|at| met(*at)).count();
            assert!(calls > 12, "only {calls} calls were met");
        }
    }
}

/// A log with garbage in its third line is salvaged on a failing disk: it is the damaged one or the good one, and every
/// byte of the damaged one is still there.
#[test]
fn a_salvage_that_fails_loses_nothing_either() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut met = 0;
    for for_good in [false, true] {
        for at in 1.. {
            let f = runtime.block_on(Fixture::written(2));
            let good = std::fs::read(f.path()).unwrap();
            f.add(format!("garbage\n{}\n", line(&f.id, 4)).as_bytes());
            let whole = std::fs::read(f.path()).unwrap();
            let (disk, refused) = faulty(Fault {
                at,
                errno: Errno::NOSPC,
                for_good,
            });
            let said = SessionLog {
                disk,
                ..f.log.clone()
            }
            .salvage(&f.id);
            let log = std::fs::read(f.path()).unwrap();
            let damaged =
                std::fs::read(f.path().with_extension("jsonl.damaged-1")).unwrap_or_default();
            assert!(
                log == whole || log == good && damaged == whole,
                "{at}: {said:?}"
            );
            assert!(said.is_err() || log == good, "{at}");
            let again = f.log.salvage(&f.id).unwrap();
            assert_eq!(
                (again.kept, std::fs::read(f.path()).unwrap() == good),
                (2, true),
                "{at}"
            );
            if refused.load(Ordering::Relaxed) == 0 {
                break;
            }
            met += 1;
        }
    }
    assert!(met > 12, "{met}");
}
