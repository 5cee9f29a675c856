//! Snapshots: in place there is no copy to discard, so the contents before each change are stored for undo.
//! The executor reports the start and the end of a call; all changes in between belong to it, reported or not.
//! The contents are stored under their hashes. The log has the hashes, which is enough to restore everything.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::json;
use windlass_core::BoxFuture;
use windlass_core::event::EventKind;
use windlass_core::id::CallId;
use windlass_core::image::{Image, Swap};
use windlass_core::outcome::{Outcome, RunSummary};
use windlass_core::terms::Isolation;
use windlass_core::workspace::{CallChanges, Change, FileChange, Snapshots, WorkspaceError};
use windlass_engine::{Request, RunOptions};
use windlass_testing::{call, says};

use super::ExampleResult;
use super::fakes::Fakes;
use super::files::{MapTree, write_file};
use super::workspaces::Copies;

/// The tree, and its contents at the start of the current call.
pub(crate) struct SnapshotStore {
    tree: Arc<MapTree>,
    before: Mutex<BTreeMap<String, Vec<u8>>>,
}

impl SnapshotStore {
    pub(crate) fn of(tree: &Arc<MapTree>) -> Self {
        Self {
            tree: tree.clone(),
            before: Mutex::default(),
        }
    }
}

fn image(bytes: Option<&Vec<u8>>) -> Image {
    bytes.map_or(Image::Absent, |bytes| Image::File {
        hash: blake3::hash(bytes).to_hex().to_string(),
        size: bytes.len() as u64,
        mode: 0o644,
    })
}

impl Snapshots for SnapshotStore {
    fn begin(&self, _call: &CallId) {
        self.before.lock().clone_from(&self.tree.all());
    }

    fn end<'a>(&'a self, _call: &'a CallId) -> BoxFuture<'a, Result<CallChanges, WorkspaceError>> {
        let before = self.before.lock();
        let now = self.tree.all();
        let paths: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
        let swap = |path: &String| Swap {
            path: path.clone(),
            before: image(before.get(path)),
            after: image(now.get(path)),
        };
        let changed = |swap: Swap| {
            let change = FileChange {
                path: swap.path.clone(),
                change: match (swap.before.is_there(), swap.after.is_there()) {
                    (false, _) => Change::Created,
                    (true, true) => Change::Modified,
                    (true, false) => Change::Deleted,
                },
                added: Some(0),
                removed: Some(0),
                diff: None,
            };
            (change, swap)
        };
        let files = paths
            .into_iter()
            .map(swap)
            .filter(|swap| swap.before != swap.after)
            .map(changed)
            .collect();
        Box::pin(std::future::ready(Ok(CallChanges {
            files,
            ..CallChanges::default()
        })))
    }
}

pub(crate) async fn run_example() -> ExampleResult {
    let tree = MapTree::of(&[("a.txt", "old")]);
    let fakes = Fakes::new([
        call("1", "write_file", &json!({"path": "a.txt", "text": "new"})),
        says("done"),
    ]);
    let engine = fakes
        .builder()
        .workspaces(Arc::new(Copies::of(&tree)))
        .tools([write_file()])
        .build()?;
    let options = RunOptions {
        isolation: Isolation::InPlace,
        yes: true,
        ..RunOptions::default()
    };
    let mut run = engine
        .stream(Request {
            options,
            ..Request::new("make it new")
        })
        .await?;
    let (mut swaps, mut outcome) = (Vec::new(), None);
    while let Some(event) = run.next().await {
        match event.kind {
            EventKind::FileChanged { swap, .. } => swaps.extend(swap),
            EventKind::RunFinished(RunSummary { outcome: how, .. }) => outcome = Some(how),
            _ => {}
        }
    }
    assert_eq!(outcome, Some(Outcome::Completed));
    let (old, new) = (b"old".to_vec(), b"new".to_vec());
    let (before, after) = (image(Some(&old)), image(Some(&new)));
    assert_eq!(
        swaps,
        [Swap {
            path: "a.txt".into(),
            before,
            after
        }],
        "the log knows the way back"
    );
    Ok(())
}
