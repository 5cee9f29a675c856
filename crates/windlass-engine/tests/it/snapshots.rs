//! The changes of each call in place: they are logged with counts before their record is removed, and a run whose undo
//! store has no space ends with the call.

use parking_lot::Mutex;
use std::sync::Arc;

use serde_json::json;
use windlass_core::BoxFuture;
use windlass_core::event::EventKind;
use windlass_core::id::{CallId, SessionId};
use windlass_core::image::{Image, Swap};
use windlass_core::outcome::{FailReason, Outcome};
use windlass_core::terms::Terms;
use windlass_core::validator::BaseTree;
use windlass_core::workspace::*;
use windlass_testing::{MemoryStore, MemoryWorkspaces, call, says};

use crate::fixture::EngineFixture;

/// Reports one changed file for every call.
struct OneFilePerCall {
    store: MemoryStore,
    full: Option<String>,
    not_written: Vec<String>,
    session: Mutex<Option<SessionId>>,
    /// The number of changes in the log when each call was reported as logged.
    logged: Mutex<Vec<usize>>,
}

impl OneFilePerCall {
    fn lines_of_changes(&self) -> usize {
        let session = self.session.lock();
        let lines = session
            .as_ref()
            .map_or_else(Vec::new, |session| self.store.lines(session));
        lines
            .iter()
            .filter(|line| line.contains("\"file_changed\""))
            .count()
    }
}

impl Snapshots for OneFilePerCall {
    fn begin(&self, _: &CallId) {}

    fn end<'a>(&'a self, call: &'a CallId) -> BoxFuture<'a, Result<CallChanges, WorkspaceError>> {
        let change = FileChange {
            path: format!("{}.txt", call.0),
            change: Change::Created,
            added: Some(2),
            removed: Some(1),
            diff: None,
        };
        let swap = Swap {
            path: change.path.clone(),
            before: Image::Absent,
            after: Image::Link {
                target: "x".to_owned(),
            },
        };
        Box::pin(std::future::ready(Ok(CallChanges {
            files: vec![(change, swap)],
            lost: Vec::new(),
            warnings: vec![("not_merged", format!("{} was not merged", call.0))],
            not_written: self.not_written.clone(),
            full: self.full.clone(),
        })))
    }

    fn logged(&self, _: &CallId) {
        let changes = self.lines_of_changes();
        let mut logged = self.logged.lock();
        logged.push(changes);
    }
}

struct InPlaceTree {
    inner: MemoryWorkspaces,
    calls: Arc<OneFilePerCall>,
}

impl Workspaces for InPlaceTree {
    fn open<'a>(
        &'a self,
        opening: Opening<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn Transaction>, WorkspaceError>> {
        *self.calls.session.lock() = Some(opening.session.clone());
        Box::pin(async move {
            let (inner, calls) = (self.inner.open(opening).await?, Arc::clone(&self.calls));
            Ok(Box::new(InPlaceView { inner, calls }) as Box<dyn Transaction>)
        })
    }
}

struct InPlaceView {
    inner: Box<dyn Transaction>,
    calls: Arc<OneFilePerCall>,
}

impl Transaction for InPlaceView {
    fn terms(&self) -> Terms {
        self.inner.terms()
    }
    fn files(&self) -> Arc<dyn Files> {
        self.inner.files()
    }
    fn before(&self) -> Arc<dyn BaseTree> {
        self.inner.before()
    }
    fn processes(&self) -> Arc<dyn Processes> {
        self.inner.processes()
    }
    fn snapshots(&self) -> Option<Arc<dyn Snapshots>> {
        Some(Arc::clone(&self.calls) as Arc<dyn Snapshots>)
    }
    fn changes(&self) -> BoxFuture<'_, Result<Changes, WorkspaceError>> {
        self.inner.changes()
    }
    fn freeze(&self) -> BoxFuture<'_, Result<(), WorkspaceError>> {
        self.inner.freeze()
    }
    fn check_tree<'a>(
        &'a self,
        state: CheckState<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn CheckTree>, WorkspaceError>> {
        self.inner.check_tree(state)
    }
    fn land<'a>(&'a self, landing: &'a Landing) -> BoxFuture<'a, Result<Landed, WorkspaceError>> {
        self.inner.land(landing)
    }
    fn keep(self: Box<Self>) -> BoxFuture<'static, Result<Option<String>, WorkspaceError>> {
        self.inner.keep()
    }
    fn discard(self: Box<Self>) -> BoxFuture<'static, Result<(), WorkspaceError>> {
        self.inner.discard()
    }
}

async fn ran(
    full: Option<&str>,
    not_written: &[&str],
) -> (crate::fixture::RunEvents, Arc<OneFilePerCall>) {
    let fixture = EngineFixture::new(vec![
        call("1", "write", &json!({"path": "a"})),
        call("2", "write", &json!({"path": "b"})),
        says("done"),
    ]);
    let calls = Arc::new(OneFilePerCall {
        store: fixture.store.clone(),
        full: full.map(str::to_owned),
        not_written: not_written.iter().map(ToString::to_string).collect(),
        session: Mutex::default(),
        logged: Mutex::default(),
    });
    let workspaces = InPlaceTree {
        inner: fixture.workspaces.clone(),
        calls: Arc::clone(&calls),
    };
    let engine = fixture
        .builder()
        .workspaces(Arc::new(workspaces))
        .build()
        .unwrap();
    let session = engine
        .open(
            windlass_engine::OpenSession::New,
            windlass_core::runtime::RunMode::Full,
        )
        .await
        .unwrap();
    (fixture.run_in(&session).await, calls)
}

#[tokio::test]
async fn changes_are_logged_before_their_record_is_removed() {
    let (ran, calls) = ran(None, &[]).await;
    assert_eq!(*ran.outcome(), Outcome::Completed);
    let counted = ran.events.iter().filter_map(|event| match &event.kind {
        EventKind::FileChanged { change, swap, .. } if swap.is_some() => {
            Some(format!("{} {}", change.path, change.line_counts()))
        }
        _ => None,
    });
    let counted: Vec<_> = counted.collect();
    assert_eq!(counted, ["1.txt +2 -1", "2.txt +2 -1"]);
    assert_eq!(*calls.logged.lock(), [1, 2]);
    let warned = ran.events.iter().filter_map(|event| match &event.kind {
        EventKind::Warned { code, text } => Some((code.as_str(), text.as_str())),
        _ => None,
    });
    let warned: Vec<_> = warned.collect();
    assert_eq!(
        warned,
        [
            ("not_merged", "1 was not merged"),
            ("not_merged", "2 was not merged")
        ]
    );
}

#[tokio::test]
async fn a_store_without_space_ends_the_run_after_the_call_is_logged() {
    let (ran, calls) = ran(Some("no space is left"), &[]).await;
    let Outcome::Failed { reason, detail, .. } = ran.outcome() else {
        panic!("{:?}", ran.outcome());
    };
    assert_eq!(*reason, FailReason::Store);
    assert!(detail.contains("no space is left"), "{detail}");
    assert_eq!(ran.results().len(), 1, "the second call is not run");
    assert_eq!(*calls.logged.lock(), [1]);
}

#[tokio::test]
async fn a_workspace_without_room_fails_the_run_after_its_last_step() {
    let (ran, _) = ran(None, &["large.bin"]).await;
    let Outcome::Failed { reason, detail, .. } = ran.outcome() else {
        panic!("{:?}", ran.outcome());
    };
    assert_eq!(*reason, FailReason::Store);
    assert!(detail.contains("large.bin"), "{detail}");
    assert_eq!(ran.results().len(), 2, "the model may continue");
}
