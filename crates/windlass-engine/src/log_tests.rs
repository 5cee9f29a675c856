//! Tests of syncing, with a writer whose sync waits until the test lets it complete.

#![allow(clippy::unwrap_used)]

use std::task::Poll;

use tokio::sync::Semaphore;
use windlass_core::workspace::NoSecrets;

use super::*;
use windlass_testing::ManualClock;

/// The state of a simulated disk.
#[derive(Default)]
struct FakeDisk {
    written: u64,
    synced: u64,
    syncs: u64,
    fail: bool,
}

#[derive(Clone)]
struct GatedWriter {
    disk: Arc<Mutex<FakeDisk>>,
    gate: Arc<Semaphore>,
}

impl GatedWriter {
    fn with<T>(&self, access: impl FnOnce(&mut FakeDisk) -> T) -> T {
        access(&mut self.disk.lock())
    }

    /// The last written event, the last synced event, and the number of syncs.
    fn state(&self) -> (u64, u64, u64) {
        self.with(|disk| (disk.written, disk.synced, disk.syncs))
    }
}

impl LogWriter for GatedWriter {
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
            // A sync covers exactly the events that were written before it started.
            let covers = this.with(|disk| {
                disk.syncs += 1;
                disk.written
            });
            this.gate.acquire().await.unwrap().forget();
            this.with(|disk| {
                if disk.fail {
                    return Err(StoreError::new(StoreErrorKind::Io, "the disk is gone"));
                }
                disk.synced = covers;
                Ok(())
            })
        })
    }
}

fn log() -> (Arc<EventLog>, GatedWriter) {
    let gated = GatedWriter {
        disk: Arc::default(),
        gate: Arc::new(Semaphore::new(0)),
    };
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let port = Box::new(gated.clone());
    let log = EventLog::new(
        "s1".parse().unwrap(),
        clock,
        port,
        History::default(),
        Arc::new(NoSecrets),
    );
    (Arc::new(log), gated)
}

async fn emit(log: &EventLog) -> Result<u64, StoreError> {
    let scope = Scope {
        run: None,
        trace: TraceId::fresh(1, 2),
        view: None,
    };
    log.emit(&scope, EventKind::Noted { text: "x".into() })
        .await
}

/// Polls the future once. Returns true if it has completed.
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
    assert!(!ended(&mut second), "the second event is not synced yet");
    gated.gate.add_permits(1);
    second.await.unwrap();
    assert_eq!(gated.state(), (2, 2, 2));
    log.sync().await.unwrap();
    assert_eq!(gated.state(), (2, 2, 2), "nothing is new");
}

#[tokio::test]
async fn concurrent_callers_share_one_sync() {
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
async fn only_the_next_sync_waits_for_a_background_sync() {
    let (log, gated) = log();
    emit(&log).await.unwrap();
    log.sync_in_background().await.unwrap();
    tokio::task::yield_now().await;
    emit(&log).await.unwrap();
    assert_eq!(gated.state(), (2, 0, 1));
    let mut sync = Box::pin(log.sync());
    assert!(!ended(&mut sync));
    gated.gate.add_permits(2);
    sync.await.unwrap();
    assert_eq!(gated.state(), (2, 2, 2));
    // The background task keeps neither the log nor its lease alive.
    emit(&log).await.unwrap();
    log.sync_in_background().await.unwrap();
    assert!(Arc::into_inner(log).is_some());
}

#[tokio::test]
async fn a_failed_sync_is_final_also_in_the_background() {
    for in_background in [false, true] {
        let (log, gated) = log();
        emit(&log).await.unwrap();
        gated.with(|disk| disk.fail = true);
        gated.gate.add_permits(1);
        if in_background {
            log.sync_in_background().await.unwrap();
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
        assert!(log.sync_in_background().await.is_err());
        assert_eq!(gated.state(), (1, 0, 1), "the sync is not retried");
    }
}

#[tokio::test]
async fn a_dropped_sync_does_not_affect_the_other_callers() {
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
async fn a_sync_covers_everything_that_its_caller_emitted() {
    let (log, gated) = log();
    gated.gate.add_permits(10_000);
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..20 {
        let (log, gated) = (log.clone(), gated.clone());
        tasks.spawn(async move {
            for turn in 0..20 {
                let seq = emit(&log).await.unwrap();
                if (task + turn) % 3 == 0 {
                    log.sync_in_background().await.unwrap();
                }
                tokio::task::yield_now().await;
                log.sync().await.unwrap();
                assert!(gated.with(|disk| disk.synced) >= seq);
            }
        });
    }
    tasks.join_all().await;
    let (written, synced, _) = gated.state();
    assert_eq!((written, synced), (400, 400));
}
