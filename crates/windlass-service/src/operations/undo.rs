//! Undo and redo of the changes of a session.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use windlass::core::id::{CallId, RunId, SessionId};
use windlass::undo::{UndoOptions, UndoReport, UndoRequest, UndoTarget, plan_undo};

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
#[schemars(extend("anyOf" = [
    { "properties": { "call": { "type": "null" }, "to": { "type": "null" } } },
    { "properties": { "run": { "type": "null" }, "to": { "type": "null" } } },
    { "properties": { "run": { "type": "null" }, "call": { "type": "null" } } },
]))]
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
    /// Skip files with conflicts.
    #[serde(default)]
    partly: bool,
    /// Commit the undone changes, as a revert of the commits that the landings made.
    #[serde(default)]
    revert_commit: bool,
}

/// The options of an undo or a redo.
#[derive(Debug, Clone, Copy)]
struct ApplyOptions {
    dry_run: bool,
    partly: bool,
    revert_commit: bool,
}

/// The result of an undo or a redo.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct UndoResult {
    #[serde(flatten)]
    pub report: UndoReport,
    /// The run that was undone, if it was exactly one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// The commit that reverts the commits of the landings, if it was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revert: Option<String>,
}

async fn undo(call: Call, params: UndoParams) -> Result<Json<UndoResult>, Problem> {
    let target = match (params.run, params.call, params.to) {
        (None, None, None) => UndoTarget::LastRun,
        (Some(run), None, None) => UndoTarget::Run(run),
        (None, Some(call), None) => UndoTarget::Call(call),
        (None, None, Some(to)) => UndoTarget::To(to),
        _ => return Err(Problem::invalid("use one of `run`, `call` and `to`")),
    };
    let options = ApplyOptions {
        dry_run: params.dry_run,
        partly: params.partly,
        revert_commit: params.revert_commit,
    };
    apply(call, &params.session, &UndoRequest::Undo(target), options).await
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RedoParams {
    session: SessionId,
    /// Only report what would change.
    #[serde(default)]
    dry_run: bool,
    /// Skip files with conflicts.
    #[serde(default)]
    partly: bool,
}

async fn redo(call: Call, params: RedoParams) -> Result<Json<UndoResult>, Problem> {
    let options = ApplyOptions {
        dry_run: params.dry_run,
        partly: params.partly,
        revert_commit: false,
    };
    apply(call, &params.session, &UndoRequest::Redo, options).await
}

async fn apply(
    call: Call,
    session: &SessionId,
    request: &UndoRequest,
    options: ApplyOptions,
) -> Result<Json<UndoResult>, Problem> {
    let host = call.service.host(&call.caller, session).await?;
    refuse_if_interrupted(&call, "read the last events of the session")?;
    host.settled().await;
    let _opening = host.opening.lock().await;
    if host.live().is_some() {
        return Err(Problem::new(
            ProblemCode::Conflict,
            "a run is in progress in this session",
        )
        .hint("wait for its end, or cancel it"));
    }
    let settings = call.service.settings(Some(&host.workspace))?;
    let root = Arc::new(open_root(&host.workspace)?);
    let planned = plan_undo(&settings, &root, Some(session), request).await?;
    let report = planned.report(options.dry_run);
    let run = planned.run.clone();
    let wanted = UndoOptions {
        partly: options.partly,
        revert_commit: options.revert_commit,
    };
    let revert = match options.dry_run {
        true => None,
        false => {
            let conflicts = !report.conflicts.is_empty();
            planned.check(&wanted).map_err(|err| match conflicts {
                true => Problem::new(ProblemCode::Conflict, err.message())
                    .hint("`dry_run` lists all conflicts; `partly` skips them"),
                false => err.into(),
            })?;
            let applied = planned.apply(&settings, &root, &wanted).await?;
            host.events.ring.touch();
            applied.revert
        }
    };
    Ok(Json(UndoResult {
        report,
        run,
        revert,
    }))
}
