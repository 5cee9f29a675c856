//! Tracks which events of a log survive a power cut, and runs one sync at a time.
//! A failed sync is never retried: the kernel may have dropped the pages, and a second sync would report success.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Mutex;
use windlass_core::BoxFuture;
use windlass_core::store::StoreError;

/// The numbers of the last written event and of the last synced event.
pub(super) struct Durable {
    written: AtomicU64,
    synced: AtomicU64,
    /// Held during a sync. Other callers wait here, because that sync may cover their events.
    sync_lock: Mutex<()>,
    failed: OnceLock<StoreError>,
}

impl Durable {
    /// Starts with a log whose last event is `written`. It is unknown whether an earlier process synced that event.
    pub(super) fn new(written: u64) -> Self {
        Self {
            written: AtomicU64::new(written),
            synced: AtomicU64::new(0),
            sync_lock: Mutex::default(),
            failed: OnceLock::new(),
        }
    }

    /// The number of the last written event.
    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    pub(super) fn wrote(&self, seq: u64) {
        self.written.store(seq, Ordering::Release);
    }

    /// True if the event and all events before it are synced.
    pub(super) fn covers(&self, seq: u64) -> bool {
        self.synced.load(Ordering::Acquire) >= seq
    }

    /// Fails if an earlier sync failed.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        self.failed.get().cloned().map_or(Ok(()), Err)
    }

    /// Waits until the event `upto` is synced: by the sync in progress, by that of an earlier waiter, or by `sync`.
    pub(super) async fn settle(
        &self,
        upto: u64,
        sync: BoxFuture<'static, Result<(), StoreError>>,
    ) -> Result<(), StoreError> {
        let _syncing = self.sync_lock.lock().await;
        self.check()?;
        if self.covers(upto) {
            return Ok(());
        }
        // The sync covers every event that was written before it starts.
        let covered = self.written();
        if let Err(err) = sync.await {
            return Err(self.failed.get_or_init(|| err).clone());
        }
        self.synced.store(covered, Ordering::Release);
        Ok(())
    }
}
