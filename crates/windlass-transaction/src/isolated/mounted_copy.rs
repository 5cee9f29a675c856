//! The files and processes of a run's copy. The mount behind them can be replaced while the run continues, because an
//! overlay has to be mounted again after the tree below it changed. Before the file tools change a file, they save its
//! bytes, so that it can be merged with the user's changes later.

use parking_lot::RwLock;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_core::enclosure::Enclosure;
use windlass_core::validator::BaseTree;
use windlass_core::workspace::*;
use windlass_core::{BoxFuture, CancellationToken};

use windlass_host::exec::HostProcesses;
use windlass_host::workspace::Root;

/// Largest file whose original bytes are saved.
pub(super) const MAX_REMEMBERED: u64 = 4 << 20;

/// The current mount of a copy.
#[derive(Clone)]
pub(super) struct CopyMount {
    pub(super) root: Arc<Root>,
    pub(super) processes: Arc<HostProcesses>,
}

/// The files and processes of a copy, through its current mount.
pub(super) struct MountedCopy {
    path: PathBuf,
    mount_handle: RwLock<Option<CopyMount>>,
    /// The user's own tree.
    base: Arc<Root>,
    /// The directory of the saved bytes; files are named by the hash of their path.
    remembered: PathBuf,
}

impl MountedCopy {
    /// `path` is the path at which commands see the tree.
    pub(super) fn new(path: PathBuf, base: Arc<Root>, remembered: PathBuf) -> Self {
        Self {
            path,
            mount_handle: RwLock::new(None),
            base,
            remembered,
        }
    }

    pub(super) fn set(&self, mount_handle: Option<CopyMount>) {
        *self.mount_handle.write() = mount_handle;
    }

    pub(super) fn mount_handle(&self) -> Result<CopyMount, FileError> {
        let mount_handle = self.mount_handle.read().clone();
        mount_handle.ok_or_else(|| FileError {
            kind: FileErrorKind::Io,
            message: "the run's copy of the workspace is closed".to_owned(),
        })
    }

    fn root(&self) -> Result<Arc<Root>, FileError> {
        Ok(self.mount_handle()?.root)
    }

    fn processes(&self) -> Result<Arc<HostProcesses>, ProcessError> {
        Ok(self
            .mount_handle()
            .map_err(|err| ProcessError(err.message))?
            .processes)
    }

    fn remembered_at(&self, path: &str) -> PathBuf {
        self.remembered
            .join(blake3::hash(path.as_bytes()).to_hex().as_str())
    }

    /// The original bytes of a file, if they were saved.
    pub(super) fn remembered(&self, path: &str) -> Option<Vec<u8>> {
        windlass_host::workspace::read_file(&self.remembered_at(path), MAX_REMEMBERED).ok()
    }

    /// Deletes the saved bytes, because the file below is a new one.
    pub(super) fn forget(&self, path: &str) {
        let _ = std::fs::remove_file(self.remembered_at(path));
    }

    fn remember(&self, path: &str) {
        // A path that cannot be resolved cannot be changed either; the operation itself returns the error.
        let Ok(Resolved {
            path, inside: true, ..
        }) = self.resolve(path)
        else {
            return;
        };
        let place = self.remembered_at(&path);
        if place.exists() {
            return;
        }
        // If both differ, one side has changed the file already, and neither is the common base. Without a base,
        // changes on both sides are a conflict, never a guess.
        let shown = self
            .root()
            .and_then(|root| root.read(&path, MAX_REMEMBERED));
        if let (Ok(bytes), Ok(shown)) = (self.base.read(&path, MAX_REMEMBERED), shown)
            && bytes == shown
        {
            let _ = windlass_host::private::create_dir(&self.remembered);
            let _ = std::fs::write(place, bytes);
        }
    }
}

impl Files for MountedCopy {
    fn root(&self) -> &Path {
        &self.path
    }
    fn resolve(&self, path: &str) -> Result<Resolved, FileError> {
        self.root()?.resolve(path)
    }
    fn read(&self, path: &str, max: u64) -> Result<Vec<u8>, FileError> {
        self.root()?.read(path, max)
    }
    fn read_range(&self, path: &str, offset: u64, len: u64) -> Result<Vec<u8>, FileError> {
        self.root()?.read_range(path, offset, len)
    }
    fn stat(&self, path: &str) -> Result<FileStat, FileError> {
        self.root()?.stat(path)
    }
    fn write(&self, path: &str, bytes: &[u8]) -> Result<(), FileError> {
        self.remember(path);
        self.root()?.write(path, bytes)
    }
    fn remove(&self, path: &str) -> Result<(), FileError> {
        self.remember(path);
        self.root()?.remove(path)
    }
    fn rename(&self, from: &str, to: &str, replace: bool) -> Result<(), FileError> {
        self.remember(from);
        self.remember(to);
        self.root()?.rename(from, to, replace)
    }
    fn list(&self, path: &str, max: usize) -> Result<Listing, FileError> {
        self.root()?.list(path, max)
    }
    fn find(&self, query: &FindQuery, cancel: &CancellationToken) -> Result<FoundPaths, FileError> {
        self.root()?.find(query, cancel)
    }
    fn grep(&self, query: &GrepQuery, cancel: &CancellationToken) -> Result<Grepped, FileError> {
        self.root()?.grep(query, cancel)
    }
}

impl BaseTree for MountedCopy {
    fn read(&self, path: &str, max: u64) -> Result<Option<Vec<u8>>, FileError> {
        match self.base.read(path, max) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(err) if err.kind == FileErrorKind::NotFound => Ok(None),
            Err(err) => Err(err),
        }
    }
}

impl Processes for MountedCopy {
    fn run<'a>(
        &'a self,
        command: Command,
        watch: Watch<'a>,
    ) -> BoxFuture<'a, Result<Finished, ProcessError>> {
        Box::pin(async move { self.processes()?.run(command, watch).await })
    }
    fn start(&self, command: Command) -> Result<JobId, ProcessError> {
        self.processes()?.start(command)
    }
    fn poll(&self, job: &JobId, offset: u64, max: usize) -> Result<JobOutput, ProcessError> {
        self.processes()?.poll(job, offset, max)
    }
    fn has_jobs(&self) -> bool {
        self.processes().is_ok_and(|processes| processes.has_jobs())
    }
    fn stop<'a>(&'a self, job: &'a JobId) -> BoxFuture<'a, Result<(), ProcessError>> {
        Box::pin(async move { self.processes()?.stop(job).await })
    }
    fn stop_all(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if let Ok(processes) = self.processes() {
                processes.stop_all().await;
            }
        })
    }
    fn pause_agents(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if let Ok(processes) = self.processes() {
                processes.pause_agents().await;
            }
        })
    }
    fn enclose(&self) -> BoxFuture<'_, Result<Arc<dyn Enclosure>, ProcessError>> {
        Box::pin(async move { self.processes()?.enclose().await })
    }
}
