//! Operations that report: search, exports, context, statistics, settings, models, agents and the permission gate.

use std::path::PathBuf;

use futures_util::StreamExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use windlass::agents::{RegistryRow, RuntimeReport, registry_rows, runtime_statuses};
use windlass::context::{ContextReport, context_report};
use windlass::core::gate::Mode;
use windlass::core::id::SessionId;
use windlass::core::store::SessionStore;
use windlass::core::workspace::Files;
use windlass::doctor::{DoctorReport, diagnose};
use windlass::export::{SessionExporter, TranscriptFormat};
use windlass::flags::AgentFlags;
use windlass::machine::{Credentials, Root, Secret};
use windlass::model::{KnownModel, VendorRow, known_models, vendor_rows};
use windlass::policy::{ExplainOptions, PolicyEval, PolicyExplanation};
use windlass::sessions::{ImportRequest, ImportRow, SearchMatch, SessionSearch, import_session};
use windlass::settings::{KeyRow, SettingRow, Settings, key_rows, setting_rows};
use windlass::setup::{
    SetupAction, SetupChange, SetupReport, SetupSelection, apply_setup, gather_setup,
};
use windlass::stats::{StatRow, Stats, StatsBy, StatsScope, gather_stats};

use super::sessions::{SessionAtParams, page_limit};
use super::{Bytes, Call, Json, Method, NoParams, Operation, refuse_if_interrupted};
use crate::access::Scope;
use crate::problem::{Problem, ProblemCode};
use crate::schema::ABSOLUTE_PATH;

/// The default and maximum number of matches of a search.
const MATCHES: usize = 50;
const MAX_MATCHES: usize = 1_000;
/// Maximum size of an exported session, in bytes.
const MAX_EXPORT: usize = 256 << 20;

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation::new(
            "sessions.search",
            (Method::Get, "/v1/search", 200),
            Scope::Read,
            "Find a text in prompts, answers, calls and results of all sessions",
            search,
        ),
        Operation::new(
            "sessions.export",
            (Method::Get, "/v1/sessions/{session}/export", 200),
            Scope::Read,
            "Download a session as events, Markdown, a page, or an audit",
            export,
        ),
        Operation::new(
            "sessions.import",
            (Method::Post, "/v1/sessions/import", 201),
            Scope::Run,
            "Create a session from an export, or from the session file of another agent",
            import,
        ),
        Operation::new(
            "context.get",
            (Method::Get, "/v1/sessions/{session}/context", 200),
            Scope::Read,
            "Show what the next request of a session contains, by layer, now or after an earlier event",
            context,
        ),
        Operation::new(
            "stats.get",
            (Method::Get, "/v1/stats", 200),
            Scope::Read,
            "Report steps, tokens, cost, time, calls and checks of a session, a workspace, or all sessions",
            stats,
        ),
        Operation::new(
            "settings.list",
            (Method::Get, "/v1/settings", 200),
            Scope::Read,
            "List the settings of a workspace with their origin",
            settings,
        ),
        Operation::new(
            "settings.keys",
            (Method::Get, "/v1/settings/keys", 200),
            Scope::Read,
            "List all settings that exist",
            keys,
        ),
        Operation::new(
            "models.list",
            (Method::Get, "/v1/models", 200),
            Scope::Read,
            "List vendors, whether they are set up, and models with their prices",
            models,
        ),
        Operation::new(
            "runtimes.list",
            (Method::Get, "/v1/runtimes", 200),
            Scope::Read,
            "List agents, whether they are installed and usable, and their capabilities",
            runtimes,
        ),
        Operation::new(
            "runtimes.registry",
            (Method::Get, "/v1/runtimes/registry", 200),
            Scope::Read,
            "List the agents of the ACP registry",
            registry,
        ),
        Operation::new(
            "doctor.get",
            (Method::Get, "/v1/doctor", 200),
            Scope::Read,
            "Check the setup of the machine of the server",
            doctor,
        ),
        Operation::new(
            "setup.get",
            (Method::Get, "/v1/setup", 200),
            Scope::Read,
            "List the agents, keys, local servers and checks that are found, and the choices of a new user",
            setup,
        ),
        Operation::new(
            "setup.apply",
            (Method::Post, "/v1/setup", 200),
            Scope::Admin,
            "Apply a choice of the set-up to the settings of the user of the server",
            apply_choice,
        ),
        Operation::new(
            "policy.explain",
            (Method::Post, "/v1/policy/explain", 200),
            Scope::Read,
            "Explain the decision of the permission gate about a call, stage by stage",
            explain,
        ),
        Operation::new(
            "workspaces.list",
            (Method::Get, "/v1/workspaces", 200),
            Scope::Read,
            "List the roots of the server and the workspaces that have sessions",
            workspaces,
        ),
    ]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SearchParams {
    #[schemars(length(min = 1))]
    text: String,
    /// Distinguishes upper and lower case.
    #[serde(default)]
    case: bool,
    /// The number of matches, up to 1000; the default is 50.
    #[serde(default)]
    #[schemars(range(min = 1, max = MAX_MATCHES))]
    limit: Option<usize>,
}

async fn search(call: Call, params: SearchParams) -> Result<Json<Vec<SearchMatch>>, Problem> {
    let limit = page_limit(params.limit, MATCHES, MAX_MATCHES)?;
    let (service, caller) = (call.service.clone(), call.caller.clone());
    // A search reads many logs, which must not delay the events of runs.
    let found = tokio::task::spawn_blocking(move || {
        let store = service.0.store.clone();
        let handle = tokio::runtime::Handle::current();
        let mut found = Vec::new();
        let mut visible = std::collections::HashMap::new();
        for item in SessionSearch::new(&store, &params.text, params.case)? {
            // A damaged session does not hide the others.
            let Ok(item) = item else { continue };
            let shown = *visible.entry(item.session.clone()).or_insert_with(|| {
                handle
                    .block_on(service.host(&caller, &item.session))
                    .is_ok()
            });
            if shown {
                found.push(item);
            }
            if found.len() >= limit {
                break;
            }
        }
        Ok::<_, Problem>(found)
    });
    let found = found
        .await
        .map_err(|_| Problem::new(ProblemCode::Internal, "the search failed"))??;
    Ok(Json(found))
}

/// The format of an export.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ExportFormat {
    /// The events as JSON, one per line; it can be imported again.
    #[default]
    Jsonl,
    Markdown,
    Html,
    Audit,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ExportParams {
    session: SessionId,
    #[serde(default)]
    format: ExportFormat,
}

async fn export(call: Call, params: ExportParams) -> Result<Bytes, Problem> {
    let host = call.service.host(&call.caller, &params.session).await?;
    let (format, kind, ending) = match params.format {
        ExportFormat::Jsonl => (TranscriptFormat::Jsonl, "application/jsonl", "jsonl"),
        ExportFormat::Markdown => (
            TranscriptFormat::Markdown,
            "text/markdown; charset=utf-8",
            "md",
        ),
        ExportFormat::Html => (TranscriptFormat::Html, "text/html; charset=utf-8", "html"),
        ExportFormat::Audit => (TranscriptFormat::Audit, "application/jsonl", "audit.jsonl"),
    };
    let mut text = Vec::new();
    let mut exporter = SessionExporter::new(format, &host.id);
    exporter.begin(&mut text)?;
    let mut events = call.service.0.store.read(&host.id, 1);
    while let Some(event) = events.next().await {
        exporter.event(&event?, &mut text)?;
        if text.len() > MAX_EXPORT {
            return Err(Problem::new(
                ProblemCode::TooLarge,
                format!("the export is larger than {} MB", MAX_EXPORT >> 20),
            )
            .hint("export it with `windlass sessions export`, or read its events in pages"));
        }
    }
    exporter.end(&mut text)?;
    Ok(Bytes {
        content_type: kind,
        total: text.len() as u64,
        bytes: text,
        offset: 0,
        name: Some(format!("{}.{ending}", host.id)),
    })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ImportParams {
    /// The content of the file.
    content: String,
    /// The absolute path of the workspace; the default is the one that the file names.
    #[serde(default)]
    #[schemars(regex(pattern = ABSOLUTE_PATH))]
    workspace: Option<PathBuf>,
}

async fn import(call: Call, params: ImportParams) -> Result<Json<ImportRow>, Problem> {
    call.service.accept_work()?;
    refuse_if_interrupted(&call, "list the sessions")?;
    let root = match &params.workspace {
        Some(dir) => Some(call.service.open_workspace(&call.caller, dir)?),
        None => None,
    };
    let settings = call.service.settings(None)?;
    let file = call.service.0.upload(params.content.as_bytes())?;
    let request = ImportRequest {
        file: file.path(),
        kind: None,
        workspace: root.as_ref().map(Files::root),
        name: Some("`content`"),
    };
    let imported = import_session(&call.service.0.store, &settings, request)
        .await
        .map_err(|err| {
            let problem = Problem::from(err);
            match problem.is(ProblemCode::Unprocessable) {
                true => problem
                    .hint("send an export of windlass, or a session file of Claude Code or Codex"),
                false => problem,
            }
        })?;
    // Without a workspace in the request, the file chose one, which the caller may not be allowed to use.
    if let Err(problem) = call
        .service
        .check_workspace(&call.caller, imported.workspace.as_ref())
    {
        call.service.0.store.delete(&imported.id).await?;
        return Err(problem.hint("name the workspace of the session"));
    }
    Ok(Json(imported.into()))
}

async fn context(call: Call, params: SessionAtParams) -> Result<Json<ContextReport>, Problem> {
    let host = call.service.host(&call.caller, &params.session).await?;
    let settings = call.service.settings(Some(&host.workspace))?;
    let store = &call.service.0.store;
    Ok(Json(
        context_report(&settings, store, &host.id, None, params.at).await?,
    ))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct StatsParams {
    #[serde(default)]
    session: Option<SessionId>,
    #[serde(default)]
    #[schemars(regex(pattern = ABSOLUTE_PATH))]
    workspace: Option<PathBuf>,
    /// Groups the statistics in rows.
    #[serde(default)]
    by: Option<StatsBy>,
}

/// Statistics.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct StatsReport {
    #[serde(flatten)]
    pub stats: Stats,
    /// The rows, if a grouping was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<Vec<StatRow>>,
}

async fn stats(call: Call, params: StatsParams) -> Result<Json<StatsReport>, Problem> {
    let service = &call.service;
    let scope = match (params.session, params.workspace) {
        (Some(_), Some(_)) => {
            return Err(Problem::unprocessable(
                "use either `session` or `workspace`",
            ));
        }
        (Some(session), None) => {
            service.host(&call.caller, &session).await?;
            StatsScope::Session(session)
        }
        (None, Some(workspace)) => {
            let root = service.open_workspace(&call.caller, &workspace)?;
            StatsScope::Workspace(root.root().to_owned())
        }
        (None, None) => {
            // All sessions of the user may be more than the caller can see.
            let Some(root) = service.default_workspace() else {
                return Err(Problem::invalid("name a session or a workspace"));
            };
            let root = service.open_workspace(&call.caller, root)?;
            StatsScope::Workspace(root.root().to_owned())
        }
    };
    let notices = &service.0.options.notices;
    let stats = gather_stats(&service.0.store, &scope, notices).await?;
    let rows = params.by.map(|by| stats.rows(by));
    Ok(Json(StatsReport { stats, rows }))
}

/// Parameters that may name a workspace; the default is the first root of the server.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WorkspaceParams {
    /// The absolute path of a directory in the workspace.
    #[serde(default)]
    #[schemars(regex(pattern = ABSOLUTE_PATH))]
    workspace: Option<PathBuf>,
}

fn open_workspace(call: &Call, named: Option<&PathBuf>) -> Result<(Root, Settings), Problem> {
    let default = call.service.default_workspace().map(PathBuf::from);
    let dir = named.cloned().or(default);
    let dir = dir.ok_or_else(|| Problem::invalid("name a workspace"))?;
    let root = call.service.open_workspace(&call.caller, &dir)?;
    let settings = call.service.settings(Some(root.root()))?;
    Ok((root, settings))
}

async fn settings(call: Call, params: WorkspaceParams) -> Result<Json<Vec<SettingRow>>, Problem> {
    let (_, settings) = open_workspace(&call, params.workspace.as_ref())?;
    Ok(Json(setting_rows(&settings)))
}

async fn keys(_: Call, _: NoParams) -> Result<Json<Vec<KeyRow>>, Problem> {
    Ok(Json(key_rows()))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ModelsParams {
    #[serde(default)]
    #[schemars(regex(pattern = ABSOLUTE_PATH))]
    workspace: Option<PathBuf>,
    /// Asks all vendors that are set up for their models, and not only local servers.
    #[serde(default)]
    ask: bool,
}

/// Vendors and models.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ModelList {
    pub vendors: Vec<VendorRow>,
    pub models: Vec<KnownModel>,
}

async fn models(call: Call, params: ModelsParams) -> Result<Json<ModelList>, Problem> {
    let (_, settings) = open_workspace(&call, params.workspace.as_ref())?;
    let credentials =
        Credentials::read(&settings.places.credentials_file()).map_err(windlass::Error::from)?;
    Ok(Json(ModelList {
        vendors: vendor_rows(&settings, &credentials, params.ask).await,
        models: known_models(),
    }))
}

async fn runtimes(
    call: Call,
    params: WorkspaceParams,
) -> Result<Json<Vec<RuntimeReport>>, Problem> {
    let (_, settings) = open_workspace(&call, params.workspace.as_ref())?;
    let statuses = runtime_statuses(&AgentFlags::default(), &settings).await?;
    Ok(Json(statuses.iter().map(RuntimeReport::from).collect()))
}

async fn registry(call: Call, params: WorkspaceParams) -> Result<Json<Vec<RegistryRow>>, Problem> {
    let (_, settings) = open_workspace(&call, params.workspace.as_ref())?;
    Ok(Json(registry_rows(&settings)?))
}

async fn doctor(call: Call, params: WorkspaceParams) -> Result<Json<DoctorReport>, Problem> {
    let (root, settings) = open_workspace(&call, params.workspace.as_ref())?;
    let notices = &call.service.0.options.notices;
    let report = diagnose(Some(root.root()), settings.environment, None, notices).await?;
    Ok(Json(report))
}

async fn setup(call: Call, params: WorkspaceParams) -> Result<Json<SetupReport>, Problem> {
    let (root, settings) = open_workspace(&call, params.workspace.as_ref())?;
    Ok(Json(gather_setup(Some(&root), &settings).await?))
}

/// It has no `Debug`, because it may contain a key.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SetupParams {
    action: SetupAction,
    /// The agent or the vendor.
    #[serde(default)]
    name: Option<String>,
    /// The model; the default is the default model of the vendor.
    #[serde(default)]
    model: Option<String>,
    /// The key that the user entered, for `enter_key`.
    #[serde(default)]
    key: Option<String>,
}

async fn apply_choice(call: Call, params: SetupParams) -> Result<Json<SetupChange>, Problem> {
    let settings = call.service.settings(None)?;
    let selection = SetupSelection {
        action: params.action,
        name: params.name,
        model: params.model,
        key: params.key.map(|key| Secret::new(key.trim())),
    };
    Ok(Json(apply_setup(&selection, &settings)?))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ExplainParams {
    #[serde(default)]
    #[schemars(regex(pattern = ABSOLUTE_PATH))]
    workspace: Option<PathBuf>,
    /// The name of the tool, for example `bash`.
    tool: String,
    /// The arguments of the call as an object, or as a text the command, the path or the pattern.
    #[schemars(extend("type" = ["object", "string"]))]
    arguments: Value,
    #[serde(default)]
    in_place: bool,
    #[serde(default)]
    approval: Option<Mode>,
}

async fn explain(call: Call, params: ExplainParams) -> Result<Json<PolicyExplanation>, Problem> {
    let (root, settings) = open_workspace(&call, params.workspace.as_ref())?;
    let options = ExplainOptions {
        in_place: params.in_place,
        approval: params.approval,
    };
    let arguments = match params.arguments {
        Value::String(text) => text,
        object @ Value::Object(_) => object.to_string(),
        _ => {
            return Err(Problem::invalid("`arguments` must be an object or a text"));
        }
    };
    let eval = PolicyEval::new(root, settings)?;
    Ok(Json(eval.explain(&params.tool, &arguments, &options)?))
}

/// The workspaces of a server.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct WorkspaceList {
    /// The directories in which workspaces may be.
    pub roots: Vec<PathBuf>,
    /// The workspaces that have sessions.
    pub used: Vec<String>,
}

async fn workspaces(call: Call, _: NoParams) -> Result<Json<WorkspaceList>, Problem> {
    let mut used = std::collections::BTreeSet::new();
    let mut heads = call.service.0.store.list();
    while let Some(head) = heads.next().await {
        if let Ok(head) = head
            && call.service.shows(&call.caller, &head.workspace)
        {
            used.insert(head.workspace);
        }
    }
    let roots = call.service.0.options.roots.iter();
    Ok(Json(WorkspaceList {
        roots: roots
            .filter(|root| call.caller.sees(root))
            .cloned()
            .collect(),
        used: used.into_iter().collect(),
    }))
}
