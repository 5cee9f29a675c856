//! How far a log is safe from a power cut, and the one sync at a time that makes it so.
//! A failed sync is never tried again: the kernel may have dropped the pages, and a second one would lie.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Mutex;
use windlass_core::BoxFuture;
use windlass_core::store::StoreError;

/// What is written and what is safe, by the numbers of events.
pub(super) struct Durable {
    written: AtomicU64,
    synced: AtomicU64,
    /// Held by the one who syncs; the others wait here for what he covers.
    one: Mutex<()>,
    failed: OnceLock<StoreError>,
}

impl Durable {
    /// A log up to that event. Whether an earlier writer synced it is not known.
    pub(super) fn new(written: u64) -> Self {
        Self {
            written: AtomicU64::new(written),
            synced: AtomicU64::new(0),
            one: Mutex::default(),
            failed: OnceLock::new(),
        }
    }

    /// The last event that was written.
    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    pub(super) fn wrote(&self, seq: u64) {
        self.written.store(seq, Ordering::Release);
    }

    /// Whether everything up to that event is safe.
    pub(super) fn covers(&self, seq: u64) -> bool {
        self.synced.load(Ordering::Acquire) >= seq
    }

    /// The error of a sync that failed.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        self.failed.get().cloned().map_or(Ok(()), Err)
    }

    /// Waits until everything up to an event is safe: by the sync that runs, by that of another who waited before, or by
    /// the one that was brought along.
    pub(super) async fn settle(
        &self,
        upto: u64,
        sync: BoxFuture<'static, Result<(), StoreError>>,
    ) -> Result<(), StoreError> {
        let _one = self.one.lock().await;
        self.check()?;
        if self.covers(upto) {
            return Ok(());
        }
        // Everything that is written before the sync begins is covered, whoever wrote it.
        let covered = self.written();
        if let Err(err) = sync.await {
            return Err(self.failed.get_or_init(|| err).clone());
        }
        self.synced.store(covered, Ordering::Release);
        Ok(())
    }
}
