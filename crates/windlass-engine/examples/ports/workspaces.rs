//! Workspaces: give a run its view of the tree. In place it works on the tree itself; isolated, on a copy.
//! A transaction reports its terms and its changes, and lands exactly the judged changes, atomically.
//! Changes that do not land are kept under a name, so that nothing is lost; a later run can resume them.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use windlass_core::BoxFuture;
use windlass_core::outcome::{FailReason, Outcome};
use windlass_core::terms::{Isolation, Strategy, Terms};
use windlass_core::tool::{Effect, ToolOutput};
use windlass_core::validator::BaseTree;
use windlass_core::workspace::*;
use windlass_engine::{Request, RunOptions};
use windlass_testing::{FnTool, call, says};

use super::ExampleResult;
use super::fakes::Fakes;
use super::files::{MapTree, write_file};
use super::processes::NoProcesses;
use super::snapshots::SnapshotStore;

/// The kept copies by name, which all runs share, each with its base tree.
type KeptCopies = Arc<Mutex<BTreeMap<String, (Arc<MapTree>, Arc<MapTree>)>>>;

/// Opens transactions on one tree.
#[derive(Clone)]
pub(crate) struct Copies {
    pub(crate) tree: Arc<MapTree>,
    pub(crate) shelf: KeptCopies,
    pub(crate) processes: Arc<dyn Processes>,
}

impl Copies {
    pub(crate) fn of(tree: &Arc<MapTree>) -> Self {
        Self {
            tree: tree.clone(),
            shelf: KeptCopies::default(),
            processes: Arc::new(NoProcesses),
        }
    }
}

impl Workspaces for Copies {
    fn open<'a>(
        &'a self,
        opening: Opening<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn Transaction>, WorkspaceError>> {
        let name = format!("{}-{}", opening.session, opening.run);
        Box::pin(async move {
            let (own, before, name) = match (opening.isolation, opening.kept) {
                (Isolation::InPlace, _) => (self.tree.clone(), self.tree.copied(), None),
                (Isolation::Isolated, None) => (self.tree.copied(), self.tree.copied(), Some(name)),
                (Isolation::Isolated, Some(kept)) => {
                    let found = self.shelf.lock().remove(kept);
                    let missing =
                        || WorkspaceError::other(format!("there is no kept copy `{kept}`"));
                    let (own, before) = found.ok_or_else(missing)?;
                    (own, before, Some(kept.to_owned()))
                }
            };
            let undo = name.is_none().then(|| Arc::new(SnapshotStore::of(&own)));
            Ok(Box::new(CopyTransaction {
                of: self.clone(),
                own,
                before,
                name,
                undo,
            }) as Box<dyn Transaction>)
        })
    }
}

/// The transaction of one run.
struct CopyTransaction {
    of: Copies,
    own: Arc<MapTree>,
    before: Arc<MapTree>,
    name: Option<String>,
    undo: Option<Arc<SnapshotStore>>,
}

impl CopyTransaction {
    fn differing(&self) -> Vec<FileChange> {
        let (before, now) = (self.before.all().clone(), self.own.all().clone());
        let changed = now
            .iter()
            .filter(|(path, bytes)| before.get(*path) != Some(bytes))
            .map(|(path, _)| {
                (
                    path.clone(),
                    if before.contains_key(path) {
                        Change::Modified
                    } else {
                        Change::Created
                    },
                )
            });
        let gone = before
            .keys()
            .filter(|path| !now.contains_key(*path))
            .map(|path| (path.clone(), Change::Deleted));
        let mut all: Vec<_> = changed.chain(gone).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all.into_iter()
            .map(|(path, change)| FileChange {
                path,
                change,
                added: Some(0),
                removed: Some(0),
                diff: None,
            })
            .collect()
    }

    /// The hash of the changes that would land; `None` in place, where nothing has to land.
    fn hash(&self) -> Option<String> {
        self.name.as_ref()?;
        let changed = self.differing();
        let text = format!("{:?} {changed:?}", self.own.all());
        Some(blake3::hash(text.as_bytes()).to_hex().to_string())
    }
}

impl Transaction for CopyTransaction {
    fn terms(&self) -> Terms {
        Terms::unconfined(if self.name.is_some() {
            Strategy::Copy
        } else {
            Strategy::InPlace
        })
    }
    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }
    fn files(&self) -> Arc<dyn Files> {
        self.own.clone()
    }
    fn before(&self) -> Arc<dyn BaseTree> {
        self.before.clone()
    }
    fn processes(&self) -> Arc<dyn Processes> {
        self.of.processes.clone()
    }
    fn snapshots(&self) -> Option<Arc<dyn Snapshots>> {
        self.undo.clone().map(|undo| undo as Arc<dyn Snapshots>)
    }
    fn changes(&self) -> BoxFuture<'_, Result<Changes, WorkspaceError>> {
        let changes = Changes {
            files: self.differing(),
            tree_hash: self.hash(),
            ..Changes::default()
        };
        Box::pin(std::future::ready(Ok(changes)))
    }
    fn freeze(&self) -> BoxFuture<'_, Result<(), WorkspaceError>> {
        Box::pin(async {
            self.of.processes.stop_all().await;
            Ok(())
        })
    }
    fn check_tree<'a>(
        &'a self,
        state: CheckState<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn CheckTree>, WorkspaceError>> {
        let tree = match state {
            CheckState::Base => self.before.copied(),
            CheckState::Landing { without } | CheckState::WithIgnored { without } => {
                let tree = self.own.copied();
                for path in without {
                    match self.before.all().get(path).cloned() {
                        Some(bytes) => drop(tree.all().insert(path.clone(), bytes)),
                        None => drop(tree.all().remove(path)),
                    }
                }
                tree
            }
        };
        let checks = CheckCopy {
            expected: tree.copied(),
            tree,
            own: self.own.clone(),
            processes: self.of.processes.clone(),
        };
        Box::pin(std::future::ready(Ok(
            Box::new(checks) as Box<dyn CheckTree>
        )))
    }
    fn land<'a>(&'a self, landing: &'a Landing) -> BoxFuture<'a, Result<Landed, WorkspaceError>> {
        Box::pin(async move {
            if landing.tree_hash != self.hash() {
                let message = "what would land is not what was judged".to_owned();
                return Err(WorkspaceError {
                    kind: WorkspaceErrorKind::Stale,
                    message,
                });
            }
            let mut tree = self.of.tree.all();
            if *tree != *self.before.all() {
                let message =
                    "you changed the tree meanwhile; land the kept copy when you are done"
                        .to_owned();
                return Err(WorkspaceError {
                    kind: WorkspaceErrorKind::Conflict,
                    message,
                });
            }
            tree.clone_from(&self.own.all());
            drop(tree);
            let files = self
                .differing()
                .into_iter()
                .map(|change| change.path)
                .collect();
            Ok(Landed {
                files,
                ..Landed::default()
            })
        })
    }
    fn keep(self: Box<Self>) -> BoxFuture<'static, Result<Option<String>, WorkspaceError>> {
        if let Some(name) = self.name.clone() {
            let mut shelf = self.of.shelf.lock();
            shelf.insert(name, (self.own.clone(), self.before.clone()));
        }
        Box::pin(std::future::ready(Ok(self.name)))
    }
    fn discard(self: Box<Self>) -> BoxFuture<'static, Result<(), WorkspaceError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// A copy for checks, so that they cannot change the tree of the run.
struct CheckCopy {
    tree: Arc<MapTree>,
    expected: Arc<MapTree>,
    own: Arc<MapTree>,
    processes: Arc<dyn Processes>,
}

impl CheckCopy {
    fn differing(&self) -> Vec<String> {
        let (now, expected) = (self.tree.all(), self.expected.all());
        let paths = now.keys().chain(expected.keys());
        let mut paths: Vec<String> = paths
            .filter(|path| now.get(*path) != expected.get(*path))
            .cloned()
            .collect();
        paths.sort();
        paths.dedup();
        paths
    }
}

impl CheckTree for CheckCopy {
    fn files(&self) -> Arc<dyn Files> {
        self.tree.clone()
    }
    fn processes(&self) -> Arc<dyn Processes> {
        self.processes.clone()
    }
    fn freeze(&self) -> BoxFuture<'_, Result<(), WorkspaceError>> {
        Box::pin(async {
            self.processes.stop_all().await;
            Ok(())
        })
    }
    fn disturbed(&self) -> BoxFuture<'_, Result<Vec<String>, WorkspaceError>> {
        Box::pin(std::future::ready(Ok(self.differing())))
    }
    fn take_over(&self) -> BoxFuture<'_, Result<(), WorkspaceError>> {
        for path in self.differing() {
            match self.tree.all().get(&path).cloned() {
                Some(bytes) => drop(self.own.all().insert(path, bytes)),
                None => drop(self.own.all().remove(&path)),
            }
        }
        self.expected.all().clone_from(&self.tree.all());
        Box::pin(std::future::ready(Ok(())))
    }
}

pub(crate) async fn run_example() -> ExampleResult {
    let tree = MapTree::of(&[("lib.rs", "old")]);
    let write = |text: &str| call("1", "write_file", &json!({"path": "lib.rs", "text": text}));
    let wait = call("2", "wait", &json!({}));
    let fakes = Fakes::new([
        write("new"),
        says("done"),
        write("newer"),
        wait,
        says("done"),
        says("as it was"),
    ]);
    // While the agent works, the user writes in their own tree.
    let theirs = tree.clone();
    let wait = FnTool::new("wait", Effect::Read, move |_, _| {
        theirs.all().insert("mine.txt".into(), b"by hand".to_vec());
        Box::pin(async { Ok(ToolOutput::text("waited")) })
    });
    let copies = Copies::of(&tree);
    let tools = [write_file(), wait.boxed()];
    let engine = fakes
        .builder()
        .workspaces(Arc::new(copies.clone()))
        .tools(tools)
        .build()?;
    let mut request = Request::new("renew lib.rs");
    request.options = RunOptions {
        yes: true,
        ..RunOptions::default()
    };
    let result = engine.execute(request.clone()).await?;
    assert_eq!(result.outcome(), Some(&Outcome::Completed));
    assert_eq!(
        result.landed.map(|landed| landed.files),
        Some(vec!["lib.rs".to_owned()])
    );
    assert_eq!(tree.all()["lib.rs"], b"new");

    // The file of the user is not overwritten, and the changes of the run are not lost.
    let result = engine.execute(request.clone()).await?;
    let outcome = result.outcome().cloned();
    assert!(
        matches!(
            outcome,
            Some(Outcome::Failed {
                reason: FailReason::LandingConflict,
                ..
            })
        ),
        "{outcome:?}"
    );
    assert_eq!(tree.all()["lib.rs"], b"new");
    assert_eq!(tree.all()["mine.txt"], b"by hand");

    // The user removes the file again, and a later run resumes the kept copy.
    tree.all().remove("mine.txt");
    request.options.contract.kept = result.summary.and_then(|summary| summary.transaction);
    let result = engine.execute(request).await?;
    assert_eq!(
        (result.outcome(), tree.all()["lib.rs"].as_slice()),
        (Some(&Outcome::Completed), &b"newer"[..])
    );
    assert!(copies.shelf.lock().is_empty());
    Ok(())
}
