//! Faults of the disk: each call that changes something fails, once or permanently, and nothing earlier is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::disk::LogDisk;
use super::*;

/// System errors, and the advice in the message for each.
const REFUSALS: [(Errno, &str); 5] = [
    (Errno::NOSPC, "free some space"),
    (Errno::DQUOT, "free some space"),
    (Errno::IO, "check the disk"),
    (Errno::ROFS, "make it writable"),
    (Errno::ACCESS, "make it writable"),
];

/// A call that fails, and optionally all calls after it.
#[derive(Debug, Clone, Copy)]
struct Fault {
    at: u64,
    errno: Errno,
    for_good: bool,
}

/// Returns a disk with one fault, and the counter of failed calls.
fn faulty(fault: Fault) -> (LogDisk, Arc<AtomicU64>) {
    let (calls, refused) = (AtomicU64::new(0), Arc::new(AtomicU64::new(0)));
    let count = Arc::clone(&refused);
    let disk = LogDisk::watched(Arc::new(move |_| {
        let call = calls.fetch_add(1, Ordering::Relaxed) + 1;
        if call == fault.at || fault.for_good && call > fault.at {
            count.fetch_add(1, Ordering::Relaxed);
            return Err(fault.errno.into());
        }
        Ok(())
    }));
    (disk, refused)
}

/// The results that the writer of a session received.
#[derive(Default)]
struct WriteResults {
    /// The sequence number of the last event that was accepted.
    accepted: u64,
    errors: Vec<StoreError>,
}

impl WriteResults {
    fn record<T>(&mut self, advice: Result<T, StoreError>) -> Option<T> {
        advice.map_err(|err| self.errors.push(err)).ok()
    }
}

/// The seventh event is long enough for an index.
fn sized(session: &SessionId, seq: u64) -> Event {
    let mut event = event(session, seq);
    if seq == 7 {
        event.kind = EventKind::Noted {
            text: "x".repeat(1 << 14),
        };
    }
    event
}

/// Writes up to the ninth event, with a sync after the sixth. A failed append is retried once, as if space became
/// available.
async fn write_session(f: &LogFixture, disk: LogDisk, how: OpenLog, before: u64) -> WriteResults {
    let log = SessionLog {
        disk,
        ..f.log.clone()
    };
    let mut results = WriteResults {
        accepted: before,
        errors: Vec::new(),
    };
    let Some(opened) = results.record(log.open_writer(&f.id, how).await) else {
        return results;
    };
    let mut writer = opened.writer;
    for seq in before + 1..=9 {
        let event = sized(&f.id, seq);
        let line = serde_json::to_string(&event).unwrap();
        let mut accepted = results.record(writer.append(&event, &line).await);
        if accepted.is_none() {
            assert_eq!(
                f.seqs().await.len() as u64,
                results.accepted,
                "a reader sees exactly the accepted events"
            );
            accepted = results.record(writer.append(&event, &line).await);
        }
        if accepted.is_none() {
            break;
        }
        results.accepted = seq;
        if seq == 6 && results.record(writer.sync().await).is_none() {
            assert!(writer.sync().await.is_err(), "a failed sync is not retried");
            assert!(
                writer.append(&event, &line).await.is_err(),
                "nothing is written after it"
            );
            break;
        }
    }
    results
}

/// Returns a session of three events with an incomplete fourth line.
async fn torn() -> LogFixture {
    let f = LogFixture::written(3).await;
    f.add(b"{\"v\":2,\"seq\":4");
    f
}

/// Writes a session with one fault. Accepted events are still in the log afterwards, and the session can continue.
/// Returns true if the fault occurred.
async fn check_fault(how: OpenLog, fault: Fault, advice: &str) -> bool {
    let (f, before) = match how {
        OpenLog::New => (fixture(), 0),
        OpenLog::Existing => (torn().await, 3),
    };
    let (disk, refused) = faulty(fault);
    let results = write_session(&f, disk, how, before).await;
    if refused.load(Ordering::Relaxed) == 0 {
        assert_eq!(
            (results.accepted, results.errors),
            (9, Vec::new()),
            "{fault:?}"
        );
        return false;
    }
    for err in &results.errors {
        assert!(
            err.message.contains(f.dir.path().to_str().unwrap()),
            "{fault:?}: {err}"
        );
        let synced =
            err.message.contains("cannot sync") && err.message.contains("resume the session");
        assert!(synced || err.message.contains(advice), "{fault:?}: {err}");
    }
    if results.accepted == 9 {
        // The fault hit an optional step, or was over at the retry.
        assert!(results.errors.len() <= 1, "{fault:?}: {:?}", results.errors);
    } else if results.accepted > before {
        assert!(!results.errors.is_empty(), "{fault:?}");
    }
    let listed: Vec<_> = f.log.list().collect().await;
    assert!(listed.iter().all(Result::is_ok), "{fault:?}: {listed:?}");
    if !f.path().exists() {
        assert_eq!(results.accepted, 0, "{fault:?}");
        return true;
    }
    let (mut writer, _) = f.open(OpenLog::Existing).await.unwrap();
    let kept = f.seqs().await.len() as u64;
    assert!(
        kept == results.accepted || kept == results.accepted + 1,
        "{fault:?}: {kept} of {}",
        results.accepted
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
fn no_accepted_event_is_lost_if_any_call_fails() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    for how in [OpenLog::New, OpenLog::Existing] {
        let once = REFUSALS.map(|(errno, advice)| (errno, advice, false));
        // All calls from one on fail, as if the process died there.
        let died = (Errno::IO, "check the disk", true);
        for (errno, advice, for_good) in once.into_iter().chain([died]) {
            let occurred = |at| {
                runtime.block_on(check_fault(
                    how,
                    Fault {
                        at,
                        errno,
                        for_good,
                    },
                    advice,
                ))
            };
            let calls = (1..).take_while(|at| occurred(*at)).count();
            assert!(calls > 12, "only {calls} calls were occurred");
        }
    }
}

/// Salvages a log with garbage in its third line on a failing disk. Afterwards the log is either the damaged one or the
/// good one, and each byte of the damaged one is still there.
#[test]
fn a_failed_salvage_loses_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut occurred = 0;
    for for_good in [false, true] {
        for at in 1.. {
            let f = runtime.block_on(LogFixture::written(2));
            let good = std::fs::read(f.path()).unwrap();
            f.add(format!("garbage\n{}\n", line(&f.id, 4)).as_bytes());
            let whole = std::fs::read(f.path()).unwrap();
            let (disk, refused) = faulty(Fault {
                at,
                errno: Errno::NOSPC,
                for_good,
            });
            let advice = SessionLog {
                disk,
                ..f.log.clone()
            }
            .salvage(&f.id);
            let log = std::fs::read(f.path()).unwrap();
            let damaged =
                std::fs::read(f.path().with_extension("jsonl.damaged-1")).unwrap_or_default();
            assert!(
                log == whole || log == good && damaged == whole,
                "{at}: {advice:?}"
            );
            assert!(advice.is_err() || log == good, "{at}");
            let again = f.log.salvage(&f.id).unwrap();
            assert_eq!(
                (again.kept, std::fs::read(f.path()).unwrap() == good),
                (2, true),
                "{at}"
            );
            if refused.load(Ordering::Relaxed) == 0 {
                break;
            }
            occurred += 1;
        }
    }
    assert!(occurred > 12, "{occurred}");
}
