//! Undo and redo of the changes of a session.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use windlass::core::id::{CallId, RunId, SessionId};
use windlass::core::workspace::FileChange;
use windlass::undo::{UndoRequest, UndoTarget, plan_undo};

use super::{Call, Json, Method, Operation, refuse_if_interrupted};
use crate::access::Scope;
use crate::problem::{Problem, ProblemCode};
use crate::service::open_root;

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation::new(
            "undo",
            (Method::Post, "/v1/sessions/{session}/undo", 200),
            Scope::Run,
            "Undo the changes of the last run, of a run, of a call, or since an event; later edits are kept",
            undo,
        ),
        Operation::new(
            "redo",
            (Method::Post, "/v1/sessions/{session}/redo", 200),
            Scope::Run,
            "Redo the changes that were undone last",
            redo,
        ),
    ]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct UndoParams {
    session: SessionId,
    /// Undo this run.
    #[serde(default)]
    run: Option<RunId>,
    /// Undo this call.
    #[serde(default)]
    call: Option<CallId>,
    /// Undo everything after this event.
    #[serde(default)]
    to: Option<u64>,
    /// Only report what would change.
    #[serde(default)]
    dry_run: bool,
}

/// The result of an undo or a redo.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct UndoReport {
    pub session: SessionId,
    /// The run that was undone, if it was exactly one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    pub files: Vec<FileChange>,
    /// Commits that were made of the changes; they stay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commits: Vec<String>,
    /// False for a dry run.
    pub applied: bool,
}

async fn undo(call: Call, params: UndoParams) -> Result<Json<UndoReport>, Problem> {
    let target = match (params.run, params.call, params.to) {
        (None, None, None) => UndoTarget::LastRun,
        (Some(run), None, None) => UndoTarget::Run(run),
        (None, Some(call), None) => UndoTarget::Call(call),
        (None, None, Some(to)) => UndoTarget::To(to),
        _ => return Err(Problem::invalid("use one of `run`, `call` and `to`")),
    };
    apply(call, &params.session, &UndoRequest::Undo(target), params.dry_run).await
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RedoParams {
    session: SessionId,
    /// Only report what would change.
    #[serde(default)]
    dry_run: bool,
}

async fn redo(call: Call, params: RedoParams) -> Result<Json<UndoReport>, Problem> {
    apply(call, &params.session, &UndoRequest::Redo, params.dry_run).await
}

async fn apply(
    call: Call,
    session: &SessionId,
    request: &UndoRequest,
    dry_run: bool,
) -> Result<Json<UndoReport>, Problem> {
    let host = call.service.host(&call.caller, session).await?;
    refuse_if_interrupted(&call, "read the last events of the session")?;
    let _opening = host.opening.lock().await;
    if host.live().is_some() {
        return Err(Problem::new(ProblemCode::Conflict, "a run is in progress in this session")
            .hint("wait for its end, or cancel it"));
    }
    let settings = call.service.settings(Some(&host.workspace))?;
    let root = Arc::new(open_root(&host.workspace)?);
    let planned = plan_undo(&settings, &root, Some(session), request).await?;
    if let Some((path, why)) = planned.plan.conflicts.first() {
        return Err(Problem::new(
            ProblemCode::Conflict,
            format!("nothing was changed, because of a conflict in `{path}`: {why}"),
        )
        .hint("resolve the conflict in the workspace, or undo single calls"));
    }
    let report = UndoReport {
        session: session.clone(),
        run: planned.run.clone(),
        files: planned.files.clone(),
        commits: planned.commits.clone(),
        applied: !dry_run,
    };
    if !dry_run {
        planned.apply(&settings, &root).await?;
        host.events.ring.touch();
    }
    Ok(Json(report))
}
