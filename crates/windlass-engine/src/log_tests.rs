//! The cases of syncing: a writer whose sync waits at a gate that the test opens.

#![allow(clippy::unwrap_used)]

use std::task::Poll;

use tokio::sync::Semaphore;
use windlass_core::workspace::NoSecrets;

use super::*;
use windlass_testing::ManualClock;

/// What a disk would hold.
#[derive(Default)]
struct Disk {
    written: u64,
    safe: u64,
    syncs: u64,
    fail: bool,
}

#[derive(Clone)]
struct Gated {
    disk: Arc<Mutex<Disk>>,
    gate: Arc<Semaphore>,
}

impl Gated {
    fn with<T>(&self, look: impl FnOnce(&mut Disk) -> T) -> T {
        look(&mut self.disk.lock())
    }

    /// What is written, what of it is safe, and by how many syncs.
    fn state(&self) -> (u64, u64, u64) {
        self.with(|disk| (disk.written, disk.safe, disk.syncs))
    }
}

impl LogWriter for Gated {
    fn append<'a>(
        &'a mut self,
        event: &'a Event,
        _: &'a str,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.with(|disk| disk.written = event.order.seq().unwrap());
        Box::pin(std::future::ready(Ok(())))
    }

    fn sync(&mut self) -> BoxFuture<'static, Result<(), StoreError>> {
        let this = self.clone();
        Box::pin(async move {
            // A sync covers what is there when it begins, and not a line more.
            let covers = this.with(|disk| {
                disk.syncs += 1;
                disk.written
            });
            this.gate.acquire().await.unwrap().forget();
            this.with(|disk| {
                if disk.fail {
                    return Err(StoreError::new(StoreErrorKind::Io, "the disk is gone"));
                }
                disk.safe = covers;
                Ok(())
            })
        })
    }
}

fn log() -> (Arc<Log>, Gated) {
    let gated = Gated {
        disk: Arc::default(),
        gate: Arc::new(Semaphore::new(0)),
    };
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let port = Box::new(gated.clone());
    let log = Log::new(
        "s1".parse().unwrap(),
        clock,
        port,
        History::default(),
        Arc::new(NoSecrets),
    );
    (Arc::new(log), gated)
}

async fn emit(log: &Log) -> Result<u64, StoreError> {
    let scope = Scope {
        run: None,
        trace: TraceId::fresh(1, 2),
        view: None,
    };
    log.emit(&scope, EventKind::Noted { text: "x".into() })
        .await
}

/// Polls once: true when it has ended.
fn ended<T>(future: &mut std::pin::Pin<Box<impl Future<Output = T>>>) -> bool {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    matches!(future.as_mut().poll(&mut context), Poll::Ready(_))
}

#[tokio::test]
async fn events_are_written_while_a_sync_runs_and_are_not_covered_by_it() {
    let (log, gated) = log();
    emit(&log).await.unwrap();
    let mut first = Box::pin(log.sync());
    assert!(!ended(&mut first));
    emit(&log).await.unwrap();
    assert_eq!(gated.state(), (2, 0, 1));
    gated.gate.add_permits(1);
    first.await.unwrap();
    assert_eq!(gated.state(), (2, 1, 1));
    let mut second = Box::pin(log.sync());
    assert!(!ended(&mut second), "the second event is not safe yet");
    gated.gate.add_permits(1);
    second.await.unwrap();
    assert_eq!(gated.state(), (2, 2, 2));
    log.sync().await.unwrap();
    assert_eq!(gated.state(), (2, 2, 2), "nothing is new");
}

#[tokio::test]
async fn all_who_wait_share_one_sync() {
    let (log, gated) = log();
    emit(&log).await.unwrap();
    let mut first = Box::pin(log.sync());
    assert!(!ended(&mut first));
    let mut waiting = Vec::new();
    for _ in 0..5 {
        emit(&log).await.unwrap();
        let mut sync = Box::pin(log.sync());
        assert!(!ended(&mut sync));
        waiting.push(sync);
    }
    gated.gate.add_permits(2);
    first.await.unwrap();
    for sync in waiting {
        sync.await.unwrap();
    }
    assert_eq!(gated.state(), (6, 6, 2));
}

#[tokio::test]
async fn a_sync_behind_is_waited_for_by_the_next_one_only() {
    let (log, gated) = log();
    emit(&log).await.unwrap();
    log.sync_behind().await.unwrap();
    tokio::task::yield_now().await;
    emit(&log).await.unwrap();
    assert_eq!(gated.state(), (2, 0, 1));
    let mut sync = Box::pin(log.sync());
    assert!(!ended(&mut sync));
    gated.gate.add_permits(2);
    sync.await.unwrap();
    assert_eq!(gated.state(), (2, 2, 2));
    // It keeps neither the log nor its lease alive.
    emit(&log).await.unwrap();
    log.sync_behind().await.unwrap();
    assert!(Arc::into_inner(log).is_some());
}

#[tokio::test]
async fn a_failed_sync_is_final_however_it_was_begun() {
    for behind in [false, true] {
        let (log, gated) = log();
        emit(&log).await.unwrap();
        gated.with(|disk| disk.fail = true);
        gated.gate.add_permits(1);
        if behind {
            log.sync_behind().await.unwrap();
            tokio::task::yield_now().await;
        } else {
            log.sync().await.unwrap_err();
        }
        gated.with(|disk| disk.fail = false);
        gated.gate.add_permits(9);
        assert!(
            emit(&log)
                .await
                .unwrap_err()
                .message
                .contains("the disk is gone")
        );
        assert!(
            log.sync()
                .await
                .unwrap_err()
                .message
                .contains("the disk is gone")
        );
        assert!(log.sync_behind().await.is_err());
        assert_eq!(gated.state(), (1, 0, 1), "it is never tried again");
    }
}

#[tokio::test]
async fn one_who_gives_up_waiting_leaves_the_others_as_they_were() {
    let (log, gated) = log();
    emit(&log).await.unwrap();
    let mut first = Box::pin(log.sync());
    assert!(!ended(&mut first));
    let mut second = Box::pin(log.sync());
    assert!(!ended(&mut second));
    drop(first);
    gated.gate.add_permits(1);
    second.await.unwrap();
    assert_eq!(gated.state(), (1, 1, 2));
}

#[tokio::test]
async fn whoever_synced_finds_everything_safe_that_he_emitted() {
    let (log, gated) = log();
    gated.gate.add_permits(10_000);
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..20 {
        let (log, gated) = (log.clone(), gated.clone());
        tasks.spawn(async move {
            for turn in 0..20 {
                let seq = emit(&log).await.unwrap();
                if (task + turn) % 3 == 0 {
                    log.sync_behind().await.unwrap();
                }
                tokio::task::yield_now().await;
                log.sync().await.unwrap();
                assert!(gated.with(|disk| disk.safe) >= seq);
            }
        });
    }
    tasks.join_all().await;
    let (written, safe, _) = gated.state();
    assert_eq!((written, safe), (400, 400));
}
