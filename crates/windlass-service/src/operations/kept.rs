//! Operations on kept runs and their changes: list, diff, patch, commit message, land and discard.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use windlass::core::event::EventKind;
use windlass::core::id::{RunId, SessionId};
use windlass::core::workspace::{Changes, FileChange, Files};
use windlass::flags::{ContractFlags, RunFlags};
use windlass::kept::{self, KeptRunMeta};

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

/// A kept run.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct KeptItem {
    pub name: String,
    /// `running`, `kept` or `interrupted`.
    pub state: String,
    pub workspace: String,
    pub session: String,
    pub run: String,
    /// The number of changed files.
    pub files: usize,
    /// The size of the copy in bytes.
    pub bytes: u64,
}

impl KeptItem {
    fn of(meta: &KeptRunMeta, busy: bool) -> Self {
        let state = match (busy, meta.kept) {
            (true, _) => "running",
            (false, Some(_)) => "kept",
            (false, None) => "interrupted",
        };
        Self {
            name: meta.name.clone(),
            state: state.to_owned(),
            workspace: meta.root.display().to_string(),
            session: meta.session.clone(),
            run: meta.run.clone(),
            files: meta.files,
            bytes: meta.bytes,
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct KeptListParams {
    /// Only kept runs of this workspace.
    #[serde(default)]
    workspace: Option<String>,
}

async fn list(call: Call, params: KeptListParams) -> Result<Json<Vec<KeptItem>>, Problem> {
    let all = kept::shelf(&call.service.0.places).list();
    let shown = all.iter().filter(|(meta, busy)| {
        let root = meta.root.display().to_string();
        (*busy || meta.was_made())
            && call.service.shows(&call.caller, &root)
            && params.workspace.as_ref().is_none_or(|wanted| *wanted == root)
    });
    Ok(Json(shown.map(|(meta, busy)| KeptItem::of(meta, *busy)).collect()))
}

/// Parameters that name a kept run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct KeptParams {
    name: String,
}

/// Changes of files.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct DiffReport {
    pub session: SessionId,
    /// The name of the kept run; absent if the changes have landed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
    pub files: Vec<FileChange>,
    /// Changes that cannot land, with the reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cannot_land: Vec<(String, String)>,
    /// The number of ignored or generated paths that will not land.
    #[serde(default)]
    pub left_out: usize,
}

impl DiffReport {
    fn of_kept(session: SessionId, name: String, changes: Changes) -> Self {
        Self {
            session,
            kept: Some(name),
            files: changes.files,
            cannot_land: changes.cannot,
            left_out: changes.left.len(),
        }
    }
}

/// Finds a kept run that the caller can see.
fn find(call: &Call, name: &str) -> Result<KeptRunMeta, Problem> {
    let missing = || {
        Problem::new(ProblemCode::NotFound, "there is no such kept run")
            .hint("`GET /v1/kept` lists the kept runs")
    };
    let shelf = kept::shelf(&call.service.0.places);
    let meta = shelf.meta(name).map_err(|_| missing())?;
    match call.service.shows(&call.caller, &meta.root.display().to_string()) {
        true => Ok(meta),
        false => Err(missing()),
    }
}

async fn changes(call: &Call, meta: &KeptRunMeta) -> Result<Changes, Problem> {
    let settings = call.service.settings(Some(&meta.root))?;
    let root = Arc::new(open_root(&meta.root)?);
    Ok(kept::changes_of(&settings, &root, meta).await?)
}

async fn diff(call: Call, params: KeptParams) -> Result<Json<DiffReport>, Problem> {
    let meta = find(&call, &params.name)?;
    let changes = changes(&call, &meta).await?;
    let session = meta.session.parse()?;
    Ok(Json(DiffReport::of_kept(session, meta.name, changes)))
}

async fn patch(call: Call, params: KeptParams) -> Result<Bytes, Problem> {
    let meta = find(&call, &params.name)?;
    let changes = changes(&call, &meta).await?;
    let text: String = changes.files.iter().filter_map(|file| file.diff.as_deref()).collect();
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
        let changes = changes(&call, &meta).await?;
        return Ok(Json(DiffReport::of_kept(host.id.clone(), meta.name, changes)));
    }
    let settings = call.service.settings(Some(&host.workspace))?;
    let root = open_root(&host.workspace)?;
    let files = windlass::undo::changes_of_session(&settings, &root, &host.id).await?;
    Ok(Json(DiffReport {
        session: host.id.clone(),
        kept: None,
        files,
        cannot_land: Vec::new(),
        left_out: 0,
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
pub struct RunStarted {
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
    let slot = kept::shelf(&call.service.0.places)
        .open(&meta.name)
        .map_err(|err| Problem::new(ProblemCode::Conflict, err.to_string()))?;
    if slot.has_pending_landing() {
        return Err(Problem::new(
            ProblemCode::Conflict,
            format!("{} has landed, but its landing is not in the log yet", meta.name),
        )
        .hint("free some disk space, then try again"));
    }
    slot.discard()
        .map_err(|err| Problem::new(ProblemCode::Internal, err.to_string()))?;
    let session: SessionId = meta.session.parse()?;
    if let Ok(host) = call.service.any_host(&session).await {
        let discarded = EventKind::Discarded { name: meta.name };
        host.note(&call.service, discarded).await?;
    }
    Ok(Json(Done {}))
}
