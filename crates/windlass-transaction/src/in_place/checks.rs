//! Checks of an in-place run. The validators see the user's tree with its ignored files, because everything has landed
//! already. Their commands run in a sandbox session of their own, and land like any command. If a validator must see
//! files as they were before the run, it gets a separate tree.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use windlass_core::BoxFuture;
use windlass_core::image::Image;
use windlass_core::validator::BaseTree;
use windlass_core::workspace::{
    CheckState, CheckTree, FileChange, Files, Processes, WorkspaceError, WorkspaceErrorKind,
};

use super::call_landings::CallLandings;
use super::commands::InPlaceCommands;
use super::stat_baseline::StatBaseline;
use super::{InPlaceRun, changes};
use crate::isolated::check_tree::{CheckBase, FreshTree, OpenedTree, TreeContext};
use crate::isolated::copy_tree;
use windlass_host::sandbox::{Sandbox, Tier};

/// Largest file that is restored to its state before the run.
const MAX_BEFORE: u64 = 64 << 20;

/// Opens a tree for the validators of a run.
pub(super) async fn open(
    run: &InPlaceRun,
    state: CheckState<'_>,
) -> Result<Box<dyn CheckTree>, WorkspaceError> {
    let as_before = match state {
        CheckState::Base => run.landings.paths(),
        CheckState::Landing { without } | CheckState::WithIgnored { without } => without.to_vec(),
    };
    if state == CheckState::Base || !as_before.is_empty() {
        let tree = open_before_run(run, as_before).await?;
        return Ok(Box::new(OpenedTree(Arc::new(tree))));
    }
    let sandbox = run.sandbox.as_ref();
    let sandbox = sandbox.map(|sandbox| Arc::new(sandbox.fresh_session().for_checks()));
    let processes = run
        .parts
        .commands(&run.landings, &run.baseline, sandbox.clone());
    let checks = InPlaceChecks {
        files: Arc::clone(&run.files) as Arc<dyn Files>,
        processes,
        landings: Arc::clone(&run.landings),
        baseline: Arc::clone(&run.baseline),
        sandbox,
        changes_before: Mutex::default(),
    };
    *checks.changes_before.lock() = checks.changes().await?;
    Ok(Box::new(checks))
}

/// Creates a copy of the user's tree with these paths as they were before the run.
async fn open_before_run(
    run: &InPlaceRun,
    paths: Vec<String>,
) -> Result<FreshTree, WorkspaceError> {
    let refuse = |why: &str| WorkspaceError {
        kind: WorkspaceErrorKind::Isolation,
        message: format!("cannot create the tree before the run for a check: {why}"),
    };
    let Some(plan) = run.sandbox.clone() else {
        return Err(refuse("that needs the kernel sandbox"));
    };
    if run.baseline.is_taken() {
        return Err(refuse("commands wrote to the workspace directly"));
    }
    let (landings, files) = (Arc::clone(&run.landings), Arc::clone(&run.files));
    let context = TreeContext {
        root: Arc::clone(&run.parts.root),
        env: run.parts.env.clone(),
        guard: Arc::clone(&run.parts.guard),
        plan,
    };
    crate::isolated::blocking(move || {
        let parent = context.plan.command_layers();
        let tier = context
            .plan
            .tier()
            .map_err(|err| WorkspaceError::other(err.to_string()))?;
        let root = Arc::clone(&context.root);
        let hidden: Vec<PathBuf>;
        let below = if tier == Tier::Namespaces {
            CheckBase::Overlay
        } else {
            let too_large = copy_tree::measure(&root).map_err(WorkspaceError::other)?;
            hidden = [context.plan.hidden_in_workspace(), too_large].concat();
            CheckBase::Copy {
                of: &root,
                hidden: &hidden,
            }
        };
        let tree = FreshTree::make(context, &parent, &below)?;
        let mut images = Vec::new();
        for path in paths {
            let Some(image) = landings.before(&path) else {
                continue;
            };
            let bytes = match &image {
                Image::File { .. } => BaseTree::read(&*files, &path, MAX_BEFORE)
                    .map_err(|err| WorkspaceError::other(err.message))?
                    .unwrap_or_default(),
                _ => Vec::new(),
            };
            images.push((path, image, bytes));
        }
        // Paths that did not exist come first, so that a directory can replace a file.
        images.sort_by_key(|(_, image, _)| image.is_there());
        for (path, image, bytes) in &images {
            tree.put_image(path, image, bytes)?;
        }
        tree.expect(images.iter().map(|(path, image, _)| (path.as_str(), image)));
        Ok(tree)
    })
    .await
}

struct InPlaceChecks {
    files: Arc<dyn Files>,
    processes: Arc<InPlaceCommands>,
    landings: Arc<CallLandings>,
    baseline: Arc<StatBaseline>,
    sandbox: Option<Arc<Sandbox>>,
    /// The changes of the run when the checks began.
    changes_before: Mutex<Vec<FileChange>>,
}

impl InPlaceChecks {
    async fn changes(&self) -> Result<Vec<FileChange>, WorkspaceError> {
        let (landings, baseline) = (Arc::clone(&self.landings), Arc::clone(&self.baseline));
        crate::isolated::blocking(move || Ok(changes(&landings, &baseline))).await
    }
}

impl CheckTree for InPlaceChecks {
    fn files(&self) -> Arc<dyn Files> {
        Arc::clone(&self.files)
    }
    fn processes(&self) -> Arc<dyn Processes> {
        Arc::clone(&self.processes) as Arc<dyn Processes>
    }
    fn freeze(&self) -> BoxFuture<'_, Result<(), WorkspaceError>> {
        Box::pin(async move {
            self.processes.stop_all().await;
            Ok(())
        })
    }
    fn end_setup(&self) {
        if let Some(sandbox) = &self.sandbox {
            sandbox.end_setup();
        }
    }
    fn disturbed(&self) -> BoxFuture<'_, Result<Vec<String>, WorkspaceError>> {
        Box::pin(async move {
            let now = self.changes().await?;
            let changes_before = self.changes_before.lock();
            let new = now.iter().filter(|change| !changes_before.contains(change));
            let gone = changes_before
                .iter()
                .filter(|change| !now.iter().any(|one| one.path == change.path));
            Ok(new.chain(gone).map(|change| change.path.clone()).collect())
        })
    }
    fn take_over(&self) -> BoxFuture<'_, Result<(), WorkspaceError>> {
        // A fix has landed already.
        Box::pin(async move {
            *self.changes_before.lock() = self.changes().await?;
            Ok(())
        })
    }
}
