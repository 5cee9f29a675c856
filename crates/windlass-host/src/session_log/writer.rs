//! The only writer of a log. It writes complete lines with one system call each, and syncs in another thread on
//! request. If a line does not fit on the disk, the partial line is removed, so that the log always ends with a
//! complete line.

use parking_lot::Mutex;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use windlass_core::BoxFuture;
use windlass_core::event::Event;
use windlass_core::store::{LogWriter, StoreError, StoreErrorKind};

use super::disk::LogDisk;
use super::index::NewMarks;
use super::lease::Lease;
use super::{MAX_LINE, failed, snapshot};

pub(super) struct LogFileWriter {
    log: Arc<SyncState>,
    /// The offset at which the last complete line ends.
    len: u64,
    /// Whether a sync of the directory entries was started.
    names_begun: bool,
    marks: NewMarks,
    /// The length of the log at the last snapshot.
    snapshot_at: u64,
    _lease: Lease,
}

/// The state that a sync needs. It lives until the last sync has ended, which may be after the writer was dropped; the
/// lease does not.
struct SyncState {
    disk: LogDisk,
    file: File,
    path: PathBuf,
    /// Held during a sync. The kernel reports a write error only once, to the sync that runs.
    syncing: Mutex<()>,
    /// Whether the names of the file and its directory are on disk.
    named: Mutex<bool>,
    /// The error of a failed sync or repair. After it the state on disk is unknown, so nothing more is written.
    broken: Mutex<Option<StoreError>>,
}

impl LogFileWriter {
    /// Takes a log that is open for appending and whose last complete line ends at `len`. The name of a `fresh` log is
    /// not on disk yet.
    pub(super) fn new(
        disk: LogDisk,
        (file, path): (File, PathBuf),
        len: u64,
        fresh: bool,
        lease: Lease,
    ) -> Self {
        let snapshot_at = match len {
            0 => 0,
            _ => snapshot::saved_at(&path),
        };
        let log = SyncState {
            disk,
            file,
            path,
            syncing: Mutex::default(),
            named: Mutex::new(!fresh),
            broken: Mutex::default(),
        };
        Self {
            log: Arc::new(log),
            len,
            names_begun: !fresh,
            marks: NewMarks::new(len),
            snapshot_at,
            _lease: lease,
        }
    }

    fn write_line(&mut self, seq: Option<u64>, line: &str) -> Result<(), StoreError> {
        self.log.check()?;
        if line.len() > MAX_LINE || line.contains('\n') {
            let message = format!(
                "{}: an event must be one line of at most {MAX_LINE} bytes",
                self.log.path.display()
            );
            return Err(StoreError::new(StoreErrorKind::Io, message));
        }
        match self.log.disk.write_line(&self.log.file, line.as_bytes()) {
            Ok(()) => {
                self.marks.see(seq, self.len);
                self.len += line.len() as u64 + 1;
                Ok(())
            }
            Err(err) => Err(self.rollback_line(&err)),
        }
    }

    /// Removes the part of a line that was written, so that the next line starts at a line boundary.
    fn rollback_line(&mut self, err: &io::Error) -> StoreError {
        let error = failed("write to", &self.log.path, err);
        if let Err(err) = self.log.disk.truncate(&self.log.file, self.len) {
            self.log.give_up(failed("repair", &self.log.path, &err));
        }
        error
    }

    /// A new log survives a crash only if its directory entry is on disk. Syncing it takes longer than writing a line,
    /// so it starts early.
    fn begin_names(&mut self) {
        if !std::mem::replace(&mut self.names_begun, true) {
            let log = Arc::clone(&self.log);
            drop(tokio::task::spawn_blocking(move || log.sync_names()));
        }
    }
}

impl Drop for LogFileWriter {
    fn drop(&mut self) {
        self.marks.save(&self.log.disk, &self.log.path);
    }
}

impl SyncState {
    fn check(&self) -> Result<(), StoreError> {
        self.broken.lock().clone().map_or(Ok(()), Err)
    }

    /// Records the reason to stop writing; the first reason is kept.
    fn give_up(&self, why: StoreError) -> StoreError {
        self.broken.lock().get_or_insert(why).clone()
    }

    fn sync(&self) -> Result<(), StoreError> {
        let _one = self.syncing.lock();
        self.check()?;
        self.disk
            .sync(&self.file)
            .map_err(|err| self.unsynced(&err))?;
        // Waits if another thread is syncing the names already.
        self.sync_names()
    }

    /// Syncs the directory with the file's name, and its parent.
    fn sync_names(&self) -> Result<(), StoreError> {
        let mut named = self.named.lock();
        if !*named {
            self.check()?;
            let mut dirs = self.path.ancestors().skip(1).take(2);
            dirs.try_for_each(|dir| self.disk.sync_dir(dir))
                .map_err(|err| self.unsynced(&err))?;
            *named = true;
        }
        Ok(())
    }

    /// After a failed sync the kernel may have dropped the pages: a second sync would succeed without writing them.
    fn unsynced(&self, err: &io::Error) -> StoreError {
        let message = format!(
            "cannot sync {}: {err}; the session accepts no more writes. Check that the disk works and has free space, \
             then resume the session",
            self.path.display()
        );
        self.give_up(StoreError::new(StoreErrorKind::Io, message))
    }
}

impl LogWriter for LogFileWriter {
    fn append<'a>(
        &'a mut self,
        event: &'a Event,
        line: &'a str,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        // The write is a copy into the page cache, which is cheaper than handing it to another thread.
        Box::pin(async move {
            self.write_line(event.order.seq(), line)?;
            self.begin_names();
            Ok(())
        })
    }

    fn sync(&mut self) -> BoxFuture<'static, Result<(), StoreError>> {
        let log = Arc::clone(&self.log);
        Box::pin(async move {
            let (path, synced) = (
                log.path.clone(),
                tokio::task::spawn_blocking(move || log.sync()).await,
            );
            synced.unwrap_or_else(|err| Err(failed("sync", &path, &io::Error::other(err))))
        })
    }

    fn snapshot_due(&self) -> bool {
        snapshot::is_due(self.len, self.snapshot_at)
    }

    fn save_snapshot(&mut self, save: &dyn Fn(&mut dyn io::Write) -> io::Result<()>) {
        // After a failure, the next attempt waits until the log has grown as much again.
        self.snapshot_at = self.len;
        let _ = snapshot::save(&self.log.disk, &self.log.path, self.len, save);
    }
}
