//! The one writer of a log: whole lines in one write each, and a sync beside them when it is asked for.
//! A line that does not fit on the disk is taken back, so that the log always ends with a whole line.

use parking_lot::Mutex;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use windlass_core::BoxFuture;
use windlass_core::event::Event;
use windlass_core::store::{LogWriter, StoreError, StoreErrorKind};

use super::disk::Disk;
use super::index::NewMarks;
use super::lease::Lease;
use super::{MAX_LINE, failed, snapshot};

pub(super) struct Writer {
    log: Arc<Log>,
    /// Where the last whole line ends.
    len: u64,
    /// Whether the names of the file and its directory are on their way to the disk.
    names_begun: bool,
    marks: NewMarks,
    /// Where the log ended when the last snapshot was saved.
    snapshot_at: u64,
    /// Held for the lock in it.
    _lease: Lease,
}

/// What a sync needs. It lives until the last sync has ended, which may be after the writer's end; the lease does not.
struct Log {
    disk: Disk,
    file: File,
    path: PathBuf,
    /// Held by the sync that runs. The system tells a failure once, and then to the right one.
    syncing: Mutex<()>,
    /// The names of the file and its directory are on disk.
    named: Mutex<bool>,
    /// After a failed sync or repair nobody knows what is on disk: nothing more is written.
    broken: Mutex<Option<StoreError>>,
}

impl Writer {
    /// For a log that was opened for appending and whose last whole line ends at `len`. Of a fresh one the name is not on
    /// disk yet.
    pub(super) fn new(
        disk: Disk,
        (file, path): (File, PathBuf),
        len: u64,
        fresh: bool,
        lease: Lease,
    ) -> Self {
        let snapshot_at = match len {
            0 => 0,
            _ => snapshot::saved_at(&path),
        };
        let log = Log {
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
            Err(err) => Err(self.take_back(&err)),
        }
    }

    /// Cuts off the part of a line that was written, so that the next one starts afresh.
    fn take_back(&mut self, err: &io::Error) -> StoreError {
        let error = failed("write to", &self.log.path, err);
        if let Err(err) = self.log.disk.truncate(&self.log.file, self.len) {
            self.log.give_up(failed("repair", &self.log.path, &err));
        }
        error
    }

    /// A new log survives only if its name does; writing names down takes longer than a line, so it begins early.
    fn begin_names(&mut self) {
        if !std::mem::replace(&mut self.names_begun, true) {
            let log = Arc::clone(&self.log);
            drop(tokio::task::spawn_blocking(move || log.sync_names()));
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.marks.save(&self.log.disk, &self.log.path);
    }
}

impl Log {
    fn check(&self) -> Result<(), StoreError> {
        self.broken.lock().clone().map_or(Ok(()), Err)
    }

    /// The first reason stays.
    fn give_up(&self, why: StoreError) -> StoreError {
        self.broken.lock().get_or_insert(why).clone()
    }

    fn sync(&self) -> Result<(), StoreError> {
        let _one = self.syncing.lock();
        self.check()?;
        self.disk
            .sync(&self.file)
            .map_err(|err| self.unsynced(&err))?;
        // The names may be on their way in another thread, and are waited for.
        self.sync_names()
    }

    /// The file's name is in its directory, whose name is in the next one up.
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

    /// After a failed sync the kernel may have dropped the pages: trying again would lie, even when space is free again.
    fn unsynced(&self, err: &io::Error) -> StoreError {
        let message = format!(
            "cannot sync {}: {err}; nothing more is written to this session now. See that the disk is well and has room, \
             then resume the session",
            self.path.display()
        );
        self.give_up(StoreError::new(StoreErrorKind::Io, message))
    }
}

impl LogWriter for Writer {
    fn append<'a>(
        &'a mut self,
        event: &'a Event,
        line: &'a str,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        // A copy into the page cache: cheaper than handing it to another thread.
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
        // A failed attempt is repeated only once the log has grown as much again.
        self.snapshot_at = self.len;
        let _ = snapshot::save(&self.log.disk, &self.log.path, self.len, save);
    }
}
