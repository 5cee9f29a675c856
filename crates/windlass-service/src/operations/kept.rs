//! Operations on kept runs and their changes: list, diff, patch, commit message, land and discard.

use std::path::Path;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use windlass::core::id::{RunId, SessionId};
use windlass::flags::{ContractFlags, RunFlags};
use windlass::kept::{self, DiffReport, KeptRow, KeptRunMeta};

use super::sessions::SessionParams;
use super::{Bytes, Call, Done, Json, Method, Operation};
use crate::access::Scope;
use crate::drive::SessionWork;
use crate::problem::{Problem, ProblemCode};
use crate::service::open_root;

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation::new(
            "kept.list",
            (Method::Get, "/v1/kept", 200),
            Scope::Read,
            "List the kept runs: isolated runs whose changes did not land",
            list,
        ),
        Operation::new(
            "kept.diff",
            (Method::Get, "/v1/kept/{name}/diff", 200),
            Scope::Read,
            "Show the changes of a kept run, compared with the current tree",
            diff,
        ),
        Operation::new(
            "kept.patch",
            (Method::Get, "/v1/kept/{name}/patch", 200),
            Scope::Read,
            "Download the changes of a kept run as a patch",
            patch,
        ),
        Operation::new(
            "kept.land",
            (Method::Post, "/v1/kept/{name}/land", 202),
            Scope::Run,
            "Check a kept run again and land it",
            land,
        ),
        Operation::new(
            "kept.discard",
            (Method::Post, "/v1/kept/{name}/discard", 200),
            Scope::Run,
            "Delete a kept run",
            discard,
        ),
        Operation::new(
            "sessions.diff",
            (Method::Get, "/v1/sessions/{session}/diff", 200),
            Scope::Read,
            "Show the changes of the kept run of a session, or else those that it landed last",
            session_diff,
        ),
    ]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct KeptListParams {
    /// Only kept runs of this workspace.
    #[serde(default)]
    workspace: Option<String>,
}

async fn list(call: Call, params: KeptListParams) -> Result<Json<Vec<KeptRow>>, Problem> {
    let root = params.workspace.as_deref().map(Path::new);
    let mut kept = kept::status(&call.service.0.places, root).kept;
    kept.retain(|row| {
        call.service
            .shows(&call.caller, &row.root.display().to_string())
    });
    Ok(Json(kept))
}

/// Parameters that name a kept run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct KeptParams {
    name: String,
}

/// Finds a kept run that the caller can see.
fn find(call: &Call, name: &str) -> Result<KeptRunMeta, Problem> {
    let missing = || {
        Problem::new(ProblemCode::NotFound, "there is no such kept run")
            .hint("`GET /v1/kept` lists the kept runs")
    };
    let shelf = kept::shelf(&call.service.0.places);
    let meta = shelf.meta(name).map_err(|_| missing())?;
    match call
        .service
        .shows(&call.caller, &meta.root.display().to_string())
    {
        true => Ok(meta),
        false => Err(missing()),
    }
}

/// The changes of a kept run.
async fn kept_diff(call: &Call, meta: &KeptRunMeta) -> Result<DiffReport, Problem> {
    let settings = call.service.settings(Some(&meta.root))?;
    let root = Arc::new(open_root(&meta.root)?);
    match kept::diff(&settings, &root, Some(&meta.name)).await {
        Ok(report) => Ok(report),
        Err(err) => {
            // A run may have landed it meanwhile, or another client may have discarded it.
            find(call, &meta.name)?;
            Err(err.into())
        }
    }
}

async fn diff(call: Call, params: KeptParams) -> Result<Json<DiffReport>, Problem> {
    let meta = find(&call, &params.name)?;
    Ok(Json(kept_diff(&call, &meta).await?))
}

async fn patch(call: Call, params: KeptParams) -> Result<Bytes, Problem> {
    let meta = find(&call, &params.name)?;
    let report = kept_diff(&call, &meta).await?;
    let text: String = report
        .files()
        .iter()
        .filter_map(|file| file.diff.as_deref())
        .collect();
    Ok(Bytes {
        name: Some(format!("{}.patch", meta.name)),
        ..Bytes::text("text/x-diff; charset=utf-8", text)
    })
}

async fn session_diff(call: Call, params: SessionParams) -> Result<Json<DiffReport>, Problem> {
    let host = call.service.host(&call.caller, &params.session).await?;
    let overview = call.service.overview(&host.id, None).await?;
    if let Some(name) = &overview.kept
        && let Ok(meta) = find(&call, name)
    {
        return Ok(Json(kept_diff(&call, &meta).await?));
    }
    let settings = call.service.settings(Some(&host.workspace))?;
    let root = open_root(&host.workspace)?;
    let files = windlass::undo::changes_of_session(&settings, &root, &host.id).await?;
    Ok(Json(DiffReport::Landed {
        session: host.id.clone(),
        files,
    }))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LandParams {
    name: String,
    /// Commits the changes with this message.
    #[serde(default)]
    commit: Option<String>,
    /// Checks that must pass; the default is those of the settings.
    #[serde(default)]
    validate: Vec<String>,
    #[serde(default)]
    keep_ignored: bool,
    #[serde(default)]
    accept_preexisting: bool,
    #[serde(default)]
    land_anyway: bool,
}

/// A run that was started.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RunStarted {
    pub session: SessionId,
    pub run: RunId,
}

async fn land(call: Call, params: LandParams) -> Result<Json<RunStarted>, Problem> {
    call.service.accept_work()?;
    let meta = find(&call, &params.name)?;
    let session: SessionId = meta.session.parse()?;
    let host = call.service.host(&call.caller, &session).await?;
    let flags = RunFlags {
        contract: ContractFlags {
            commit: params.commit,
            validate: params.validate,
            keep_ignored: params.keep_ignored,
            accept_preexisting: params.accept_preexisting,
            land_anyway: params.land_anyway,
            ..ContractFlags::default()
        },
        ..RunFlags::default()
    };
    let work = SessionWork::Land {
        name: meta.name,
        flags: Box::new(flags),
    };
    let run = call.service.start_work(host, work, &call.caller).await?;
    Ok(Json(RunStarted { session, run }))
}

async fn discard(call: Call, params: KeptParams) -> Result<Json<Done>, Problem> {
    let meta = match find(&call, &params.name) {
        Err(problem) if call.interrupted && problem.is(ProblemCode::NotFound) => {
            return Ok(Json(Done {}));
        }
        meta => meta?,
    };
    let settings = call.service.settings(Some(&meta.root))?;
    let session: SessionId = meta.session.parse()?;
    let host = call.service.any_host(&session).await.ok();
    // The deletion is logged in the session, so no run may have it open.
    let _opening = match &host {
        Some(host) => Some(host.opening.lock().await),
        None => None,
    };
    kept::discard(&settings, &meta.name).await?;
    if let Some(host) = &host {
        host.events.ring.touch();
    }
    Ok(Json(Done {}))
}
