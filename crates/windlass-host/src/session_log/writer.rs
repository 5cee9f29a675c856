//! The one writer of a log: whole lines in one write each, and a sync when it is asked for.
//! A line that does not fit on the disk is taken back, so that the log always ends with a whole line.

use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::task::JoinHandle;
use windlass_core::BoxFuture;
use windlass_core::event::Event;
use windlass_core::store::{LogWriter, StoreError, StoreErrorKind};

use super::{MAX_LINE, failed};

pub(super) struct Writer {
    log: Arc<File>,
    path: PathBuf,
    /// Where the last whole line ends.
    len: u64,
    /// Something was written since the last sync.
    dirty: bool,
    /// The names of the file and its directory are not on disk yet.
    fresh: bool,
    /// They are on their way there, beside whatever else is done before the first sync.
    names: Option<JoinHandle<io::Result<()>>>,
    /// After a failed sync or repair nobody knows what is on disk: nothing more is written.
    broken: Option<StoreError>,
    /// Held for the lock on it.
    _lease: File,
}

impl Writer {
    pub(super) fn new(log: File, path: PathBuf, len: u64, lease: File, fresh: bool) -> Self {
        Self { log: Arc::new(log), path, len, dirty: fresh, fresh, names: None, broken: None, _lease: lease }
    }

    fn write_line(&mut self, line: &str) -> Result<(), StoreError> {
        if let Some(err) = &self.broken {
            return Err(err.clone());
        }
        if line.len() > MAX_LINE || line.contains('\n') {
            let message = format!("{}: an event must be one line of at most {MAX_LINE} bytes", self.path.display());
            return Err(StoreError::new(StoreErrorKind::Io, message));
        }
        match write_both(&self.log, line.as_bytes(), b"\n") {
            Ok(()) => {
                self.len += line.len() as u64 + 1;
                self.dirty = true;
                Ok(())
            }
            Err(err) => Err(self.take_back(&err)),
        }
    }

    /// Cuts off the part of a line that was written, so that the next one starts afresh.
    fn take_back(&mut self, err: &io::Error) -> StoreError {
        let error = failed("write to", &self.path, err);
        if let Err(err) = self.log.set_len(self.len) {
            self.broken = Some(failed("repair", &self.path, &err));
        }
        error
    }

    /// A new log survives only if its name does; writing names down takes longer than a line, so it begins early.
    fn start_names(&mut self) {
        if std::mem::take(&mut self.fresh) {
            let path = self.path.clone();
            self.names = Some(tokio::task::spawn_blocking(move || sync_names(&path)));
        }
    }

    async fn sync_all(&mut self) -> Result<(), StoreError> {
        if let Some(err) = &self.broken {
            return Err(err.clone());
        }
        if !self.dirty {
            return Ok(());
        }
        self.start_names();
        let log = Arc::clone(&self.log);
        let mut synced = tokio::task::spawn_blocking(move || log.sync_data()).await.map_err(io::Error::other);
        if let Some(names) = self.names.take() {
            let named = names.await.map_err(io::Error::other).and_then(|named| named);
            synced = synced.and_then(|synced| named.map(|()| synced));
        }
        match synced.and_then(|synced| synced) {
            Ok(()) => {
                self.dirty = false;
                Ok(())
            }
            Err(err) => {
                // After a failed sync the kernel may have dropped the pages: trying again would lie.
                let error = failed("sync", &self.path, &err);
                self.broken = Some(error.clone());
                Err(error)
            }
        }
    }
}

impl LogWriter for Writer {
    fn append<'a>(&'a mut self, _: &'a Event, line: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        // A copy into the page cache: cheaper than handing it to another thread.
        Box::pin(async move {
            self.write_line(line)?;
            self.start_names();
            Ok(())
        })
    }

    fn sync(&mut self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(self.sync_all())
    }
}

/// The file's name is in its directory, whose name is in the next one up.
fn sync_names(path: &Path) -> io::Result<()> {
    path.ancestors().skip(1).take(2).try_for_each(|dir| File::open(dir)?.sync_all())
}

/// Writes a line and its end, in one call unless the system takes less.
fn write_both(mut log: &File, line: &[u8], end: &[u8]) -> io::Result<()> {
    let total = line.len() + end.len();
    let mut written = 0;
    while written < total {
        let result = if written < line.len() {
            log.write_vectored(&[IoSlice::new(&line[written..]), IoSlice::new(end)])
        } else {
            log.write(&end[written - line.len()..])
        };
        match result {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => written += n,
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            Err(err) => return Err(err),
        }
    }
    Ok(())
}
