//! A workspace without files or processes; artifacts are in memory.

use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use windlass_core::id::ArtifactId;
use windlass_core::message::ArtifactRef;
use windlass_core::terms::{Strategy, Terms};
use windlass_core::validator::BaseTree;
use windlass_core::workspace::*;
use windlass_core::{BoxFuture, CancellationToken};

/// Opens empty workspaces under the given terms. A test adds the changes of a run to [`MemoryTree`] itself.
#[derive(Clone)]
pub struct MemoryWorkspaces {
    /// The terms that every opened workspace reports.
    pub terms: Terms,
    /// The state of the tree, shared with the test.
    pub tree: Arc<Mutex<MemoryTree>>,
}

/// A tree that consists only of its recorded changes.
#[derive(Default)]
pub struct MemoryTree {
    /// Changes relative to the state before the run.
    pub changes: Vec<FileChange>,
    /// Counts the states of the tree; the tree hash is derived from it.
    pub version: u64,
    /// Paths that the user changed meanwhile. Each question returns and removes the first entry.
    pub moved: VecDeque<Vec<String>>,
    /// The number of times that the tree was caught up with the user's changes.
    pub caught_up: u32,
    /// The number of times that a turn to land was asked for.
    pub turns: u32,
    /// Whether another run is landing when a turn is asked for.
    pub turn_waits: bool,
    /// The error of catching up, if it is to fail.
    pub conflict: Option<WorkspaceError>,
    /// The state that the checks currently see.
    pub shown: CheckedTree,
    /// Ignored files that the run changed.
    pub left: Vec<String>,
    /// All landings so far.
    pub landed: Vec<Landing>,
    /// Called when a landing begins.
    pub on_land: Option<Box<dyn Fn() + Send>>,
    /// The error of landing, if it is to fail.
    pub refuses: Option<WorkspaceError>,
    /// A step that a landing reports as unfinished although the files have landed.
    pub unfinished: Option<String>,
    /// Notes that a landing reports.
    pub notes: Vec<String>,
    /// The name of the kept run that it was opened with.
    pub kept: Option<String>,
}

/// The state of a tree that checks see.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum CheckedTree {
    /// No checks run at the moment.
    #[default]
    Nothing,
    /// The state before the run.
    Base,
    /// The state that would land, without these paths.
    Landing(Vec<String>),
    /// The same with ignored files.
    WithIgnored(Vec<String>),
}

struct MemoryChecks {
    workspaces: MemoryWorkspaces,
    /// The version of the tree that the checks are supposed to see.
    seen: Mutex<u64>,
}

impl CheckTree for MemoryChecks {
    fn files(&self) -> Arc<dyn Files> {
        Arc::new(EmptyWorkspace)
    }
    fn processes(&self) -> Arc<dyn Processes> {
        Arc::new(EmptyWorkspace)
    }
    fn freeze(&self) -> BoxFuture<'_, Result<(), WorkspaceError>> {
        Box::pin(async { Ok(()) })
    }
    fn disturbed(&self) -> BoxFuture<'_, Result<Vec<String>, WorkspaceError>> {
        let tree = self.workspaces.tree();
        let paths = match *self.seen.lock() == tree.version {
            true => Vec::new(),
            false => tree
                .changes
                .iter()
                .map(|change| change.path.clone())
                .collect(),
        };
        Box::pin(std::future::ready(Ok(paths)))
    }
    fn take_over(&self) -> BoxFuture<'_, Result<(), WorkspaceError>> {
        *self.seen.lock() = self.workspaces.tree().version;
        Box::pin(async { Ok(()) })
    }
}

impl Drop for MemoryChecks {
    fn drop(&mut self) {
        self.workspaces.tree().shown = CheckedTree::Nothing;
    }
}

impl MemoryTree {
    /// Records a changed path.
    pub fn change(&mut self, path: &str) {
        self.version += 1;
        let known = self.changes.iter().any(|change| change.path == path);
        if !known {
            let path = path.to_owned();
            self.changes.push(FileChange {
                path,
                change: Change::Modified,
                added: Some(1),
                removed: Some(0),
                diff: None,
            });
        }
    }
}

impl MemoryWorkspaces {
    /// Locks the tree for reading or changing it.
    pub fn tree(&self) -> MutexGuard<'_, MemoryTree> {
        self.tree.lock()
    }
}

impl Default for MemoryWorkspaces {
    fn default() -> Self {
        Self {
            terms: Terms::unconfined(Strategy::InPlace),
            tree: Arc::default(),
        }
    }
}

impl Workspaces for MemoryWorkspaces {
    fn open<'a>(
        &'a self,
        opening: Opening<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn Transaction>, WorkspaceError>> {
        self.tree().kept = opening.kept.map(str::to_owned);
        let transaction = MemoryTransaction(self.clone());
        Box::pin(async move { Ok(Box::new(transaction) as Box<dyn Transaction>) })
    }
}

struct MemoryTransaction(MemoryWorkspaces);

impl Transaction for MemoryTransaction {
    fn terms(&self) -> Terms {
        self.0.terms.clone()
    }
    fn name(&self) -> Option<&str> {
        self.0.terms.isolation.is_isolated().then_some("kept")
    }
    fn notes(&self) -> Vec<String> {
        let mut tree = self.0.tree();
        if tree.landed.is_empty() {
            Vec::new()
        } else {
            std::mem::take(&mut tree.notes)
        }
    }
    fn files(&self) -> Arc<dyn Files> {
        Arc::new(EmptyWorkspace)
    }
    fn before(&self) -> Arc<dyn BaseTree> {
        Arc::new(EmptyWorkspace)
    }
    fn processes(&self) -> Arc<dyn Processes> {
        Arc::new(EmptyWorkspace)
    }
    fn changes(&self) -> BoxFuture<'_, Result<Changes, WorkspaceError>> {
        let tree = self.0.tree();
        let tree_hash = self.name().map(|_| format!("tree {}", tree.version));
        let changes = Changes {
            files: tree.changes.clone(),
            tree_hash,
            left: tree.left.clone(),
            ..Changes::default()
        };
        Box::pin(std::future::ready(Ok(changes)))
    }
    fn freeze(&self) -> BoxFuture<'_, Result<(), WorkspaceError>> {
        Box::pin(async { Ok(()) })
    }
    fn moved(&self) -> BoxFuture<'_, Result<Vec<String>, WorkspaceError>> {
        Box::pin(std::future::ready(Ok(self
            .0
            .tree()
            .moved
            .pop_front()
            .unwrap_or_default())))
    }
    fn catch_up(&self) -> BoxFuture<'_, Result<(), WorkspaceError>> {
        let mut tree = self.0.tree();
        tree.caught_up += 1;
        Box::pin(std::future::ready(
            tree.conflict.clone().map_or(Ok(()), Err),
        ))
    }
    fn take_turn(&self) -> BoxFuture<'_, Result<bool, WorkspaceError>> {
        let mut tree = self.0.tree();
        tree.turns += 1;
        let waited = std::mem::take(&mut tree.turn_waits);
        Box::pin(std::future::ready(Ok(waited)))
    }
    fn check_tree<'a>(
        &'a self,
        state: CheckState<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn CheckTree>, WorkspaceError>> {
        let mut tree = self.0.tree();
        tree.shown = match state {
            CheckState::Base => CheckedTree::Base,
            CheckState::Landing { without } => CheckedTree::Landing(without.to_vec()),
            CheckState::WithIgnored { without } => CheckedTree::WithIgnored(without.to_vec()),
        };
        let checks = MemoryChecks {
            seen: Mutex::new(tree.version),
            workspaces: self.0.clone(),
        };
        Box::pin(std::future::ready(Ok(
            Box::new(checks) as Box<dyn CheckTree>
        )))
    }
    fn land<'a>(&'a self, landing: &'a Landing) -> BoxFuture<'a, Result<Landed, WorkspaceError>> {
        let mut tree = self.0.tree();
        if let Some(called) = &tree.on_land {
            called();
        }
        let files = tree
            .changes
            .iter()
            .map(|change| change.path.clone())
            .collect();
        let landed = match tree.refuses.clone() {
            Some(err) => Err(err),
            None => {
                tree.landed.push(landing.clone());
                Ok(Landed {
                    files,
                    unfinished: tree.unfinished.clone(),
                    ..Landed::default()
                })
            }
        };
        Box::pin(std::future::ready(landed))
    }
    fn keep(self: Box<Self>) -> BoxFuture<'static, Result<Option<String>, WorkspaceError>> {
        Box::pin(std::future::ready(Ok(self.name().map(str::to_owned))))
    }
    fn discard(self: Box<Self>) -> BoxFuture<'static, Result<(), WorkspaceError>> {
        Box::pin(async { Ok(()) })
    }
}

struct EmptyWorkspace;

fn not_found<T>() -> Result<T, FileError> {
    Err(FileError {
        kind: FileErrorKind::NotFound,
        message: "this workspace holds nothing".into(),
    })
}

fn no_process<T>() -> Result<T, ProcessError> {
    Err(ProcessError("this workspace runs nothing".into()))
}

impl Files for EmptyWorkspace {
    fn root(&self) -> &Path {
        Path::new("/workspace")
    }
    fn resolve(&self, path: &str) -> Result<Resolved, FileError> {
        Ok(Resolved {
            path: path.to_owned(),
            inside: !path.starts_with('/'),
            kind: None,
        })
    }
    fn read(&self, _: &str, _: u64) -> Result<Vec<u8>, FileError> {
        not_found()
    }
    fn read_range(&self, _: &str, _: u64, _: u64) -> Result<Vec<u8>, FileError> {
        not_found()
    }
    fn stat(&self, _: &str) -> Result<FileStat, FileError> {
        not_found()
    }
    fn write(&self, _: &str, _: &[u8]) -> Result<(), FileError> {
        not_found()
    }
    fn remove(&self, _: &str) -> Result<(), FileError> {
        not_found()
    }
    fn rename(&self, _: &str, _: &str, _: bool) -> Result<(), FileError> {
        not_found()
    }
    fn list(&self, _: &str, _: usize) -> Result<Listing, FileError> {
        not_found()
    }
    fn find(&self, _: &FindQuery, _: &CancellationToken) -> Result<FoundPaths, FileError> {
        not_found()
    }
    fn grep(&self, _: &GrepQuery, _: &CancellationToken) -> Result<Grepped, FileError> {
        not_found()
    }
}

impl BaseTree for EmptyWorkspace {
    fn read(&self, _: &str, _: u64) -> Result<Option<Vec<u8>>, FileError> {
        Ok(None)
    }
}

impl Processes for EmptyWorkspace {
    fn run<'a>(
        &'a self,
        _: Command,
        _: Watch<'a>,
    ) -> BoxFuture<'a, Result<Finished, ProcessError>> {
        Box::pin(async { no_process() })
    }
    fn start(&self, _: Command) -> Result<JobId, ProcessError> {
        no_process()
    }
    fn poll(&self, _: &JobId, _: u64, _: usize) -> Result<JobOutput, ProcessError> {
        no_process()
    }
    fn stop<'a>(&'a self, _: &'a JobId) -> BoxFuture<'a, Result<(), ProcessError>> {
        Box::pin(async { no_process() })
    }
    fn stop_all(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

/// Keeps artifacts in memory. Clones share them.
#[derive(Clone, Default)]
pub struct MemoryArtifacts(Arc<Mutex<Vec<Vec<u8>>>>);

impl MemoryArtifacts {
    fn store(&self, bytes: Vec<u8>) -> ArtifactRef {
        let mut all = self.0.lock();
        let stored = ArtifactRef {
            id: ArtifactId::nth(all.len() as u64, 0),
            bytes: bytes.len() as u64,
        };
        all.push(bytes);
        stored
    }
}

impl Artifacts for MemoryArtifacts {
    fn put(&self, bytes: &[u8]) -> Result<ArtifactRef, ArtifactError> {
        Ok(self.store(bytes.to_vec()))
    }

    fn create(&self) -> Result<Box<dyn ArtifactWriter>, ArtifactError> {
        Ok(Box::new(OpenArtifact {
            to: self.clone(),
            bytes: Vec::new(),
        }))
    }

    fn read(&self, id: &ArtifactId, offset: u64, len: u64) -> Result<Vec<u8>, ArtifactError> {
        let all = self.0.lock();
        let known = all
            .iter()
            .enumerate()
            .find(|(n, _)| ArtifactId::nth(*n as u64, 0) == *id);
        let (_, bytes) =
            known.ok_or_else(|| ArtifactError(format!("there is no artifact `{id}`")))?;
        let range = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
        Ok(bytes[range(offset)..range(offset.saturating_add(len))].to_vec())
    }
}

struct OpenArtifact {
    to: MemoryArtifacts,
    bytes: Vec<u8>,
}

impl ArtifactWriter for OpenArtifact {
    fn write(&mut self, bytes: &[u8]) -> Result<(), ArtifactError> {
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }
    fn finish(self: Box<Self>) -> Result<ArtifactRef, ArtifactError> {
        Ok(self.to.store(self.bytes))
    }
}
