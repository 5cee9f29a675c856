//! Operations on sessions: create, list, show, clear, delete, fork, export and import.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::StreamExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use windlass::core::ask::Ask;
use windlass::core::budget::Spent;
use windlass::core::clock::Clock;
use windlass::core::event::EventKind;
use windlass::core::id::{RunId, SessionId};
use windlass::core::runtime::RunMode;
use windlass::core::store::SessionStore;
use windlass::core::terms::Isolation;
use windlass::core::workspace::Files;
use windlass::machine::SystemClock;
use windlass::sessions::SessionRow;
use windlass::{OpenRequest, SessionSelector, prepare, wire};

use super::runs::{ImagePart, MAX_IMAGES, PromptQueued, QueuedItem, message, queue_prompt};
use super::{Call, Done, Json, Method, Operation, Page, refuse_if_interrupted};
use crate::access::Scope;
use crate::problem::{Problem, ProblemCode};
use crate::run_request::RunRequest;
use crate::schema::{ABSOLUTE_PATH, NOT_BLANK, object, objects, require_text_or_images};

/// Maximum length of a note in bytes.
const MAX_NOTE: usize = 16 << 10;
/// The default and maximum number of sessions of a page.
const PAGE: usize = 50;
const MAX_PAGE: usize = 500;
/// Maximum number of processes that may die while they create the same session.
const MAX_ATTEMPTS: u32 = 16;

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation::new(
            "sessions.create",
            (Method::Post, "/v1/sessions", 201),
            Scope::Run,
            "Create a session, and start a run if there is a prompt",
            create,
        ),
        Operation::new(
            "sessions.list",
            (Method::Get, "/v1/sessions", 200),
            Scope::Read,
            "List the sessions, the newest first",
            list,
        ),
        Operation::new(
            "sessions.get",
            (Method::Get, "/v1/sessions/{session}", 200),
            Scope::Read,
            "Show a session, now or at an earlier event: its open run, asks, queue and cost",
            get,
        ),
        Operation::new(
            "sessions.delete",
            (Method::Delete, "/v1/sessions/{session}", 200),
            Scope::Run,
            "Delete a session with everything that belongs to it",
            delete,
        ),
        Operation::new(
            "sessions.clear",
            (Method::Post, "/v1/sessions/{session}/clear", 200),
            Scope::Run,
            "Start the conversation anew; earlier events stay in the log",
            clear,
        ),
        Operation::new(
            "sessions.compact",
            (Method::Post, "/v1/sessions/{session}/compact", 200),
            Scope::Run,
            "Replace the older messages of the conversation with a summary; the log keeps them",
            compact,
        ),
        Operation::new(
            "notes.add",
            (Method::Post, "/v1/sessions/{session}/notes", 200),
            Scope::Run,
            "Add a line to the notes of the session, which the model reads",
            add_note,
        ),
        Operation::new(
            "sessions.fork",
            (Method::Post, "/v1/sessions/{session}/fork", 201),
            Scope::Run,
            "Copy a session up to an event into a new session",
            fork,
        ),
    ]
}

/// A session in detail.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SessionDetail {
    pub id: SessionId,
    pub workspace: String,
    /// `idle`, `queued` (it waits for its turn), `running`, `waiting` (for an answer), `paused` or `interrupted`.
    pub state: String,
    /// The number of the last event of this view.
    pub last_seq: u64,
    /// The position in the order in which queued sessions will run, counted from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<usize>,
    /// The run that has not finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<OpenRunItem>,
    pub asks: Vec<Ask>,
    pub queue: Vec<QueuedItem>,
    /// The name of the kept run that the last run left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
    pub isolation: Isolation,
    /// The amounts that all runs spent.
    pub spent: Spent,
}

/// The open run of a session.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct OpenRunItem {
    pub id: RunId,
    pub prompt: String,
    pub iteration: u32,
    pub isolation: Isolation,
    /// The name of its copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy: Option<String>,
    /// True if it can be resumed.
    pub paused: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = require_text_or_images)]
struct CreateParams {
    /// The absolute path of a directory in the workspace; the default is the first root of the server.
    #[serde(default)]
    #[schemars(regex(pattern = ABSOLUTE_PATH))]
    workspace: Option<PathBuf>,
    /// The first prompt.
    #[serde(default)]
    prompt: Option<String>,
    /// Images of the first prompt.
    #[serde(default, deserialize_with = "objects")]
    #[schemars(length(max = MAX_IMAGES))]
    images: Vec<ImagePart>,
    /// Options of the first run.
    #[serde(default, deserialize_with = "object")]
    options: RunRequest,
}

/// A new session.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SessionCreated {
    pub id: SessionId,
    pub workspace: String,
    /// The queued prompt, if the request had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued: Option<PromptQueued>,
}

async fn create(call: Call, params: CreateParams) -> Result<Json<SessionCreated>, Problem> {
    call.service.accept_work()?;
    let dir = match &params.workspace {
        Some(dir) => dir.clone(),
        None => match call.service.default_workspace() {
            Some(root) => root.to_owned(),
            None => return Err(Problem::invalid("name a workspace")),
        },
    };
    let first = match (params.prompt, params.images) {
        (None, images) if images.is_empty() => None,
        (prompt, images) => Some(message(prompt.unwrap_or_default(), images)?),
    };
    let root = call.service.open_workspace(&call.caller, &dir)?;
    let workspace = root.root().to_owned();
    let (id, exists) = new_session_id(&call).await?;
    if !exists {
        let settings = call.service.settings(Some(&workspace))?;
        let mut options = params.options.clone();
        call.caller.apply_ceiling(&mut options, &settings)?;
        let flags = call
            .service
            .with_own_flags(&options.flags(workspace.clone()))?;
        let prepared = prepare(root, settings, &flags)?;
        let opened = prepared
            .open(OpenRequest {
                which: SessionSelector::Create(id.clone()),
                ..OpenRequest::new(flags)
            })
            .await?;
        drop(opened);
    }
    let host = call.service.add_host(&id, workspace.clone());
    let queued = match first {
        Some(message) => Some(queue_prompt(&call, &host, message, params.options, false).await?),
        None => None,
    };
    Ok(Json(SessionCreated {
        id,
        workspace: workspace.display().to_string(),
        queued,
    }))
}

/// The id of the session that a request creates, and whether an earlier attempt of the request created it.
async fn new_session_id(call: &Call) -> Result<(SessionId, bool), Problem> {
    let mut attempt = 0;
    loop {
        let id = session_id(call, attempt)?;
        if !call.interrupted {
            return Ok((id, false));
        }
        if call.service.any_host(&id).await.is_ok() {
            return Ok((id, true));
        }
        // A process that died before the first event leaves a directory that is no session.
        let dir = call.service.0.places.sessions_dir().join(id.as_str());
        if attempt == MAX_ATTEMPTS || !dir.exists() {
            return Ok((id, false));
        }
        attempt += 1;
    }
}

/// The id of the session that a request creates. Sessions of clients have ids that nobody can guess. A request with an
/// idempotency key has the same id when it is repeated.
fn session_id(call: &Call, attempt: u32) -> Result<SessionId, Problem> {
    let clock = SystemClock::new();
    let random = match &call.key {
        Some(key) => {
            let token = call.caller.token.as_deref().unwrap_or_default();
            let text = match attempt {
                0 => format!("session\n{token}\n{key}"),
                _ => format!("session\n{token}\n{key}\n{attempt}"),
            };
            let hash = blake3::keyed_hash(&call.service.0.id_secret, text.as_bytes());
            hash.as_bytes()[..16].to_vec()
        }
        None => {
            let halves = [clock.entropy(), clock.entropy()];
            halves.iter().flat_map(|half| half.to_be_bytes()).collect()
        }
    };
    let hex: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let text = match &call.key {
        // Without the time, so that the repetition has the same id.
        Some(_) => format!("k-{hex}"),
        None => format!("{}-{hex}", clock.now().compact()),
    };
    Ok(text.parse()?)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListParams {
    /// Only sessions of this workspace.
    #[serde(default)]
    workspace: Option<String>,
    /// Only sessions in this state.
    #[serde(default)]
    state: Option<String>,
    /// The number of sessions, up to 500; the default is 50.
    #[serde(default)]
    #[schemars(range(min = 1, max = MAX_PAGE))]
    limit: Option<usize>,
    /// The cursor of the page before.
    #[serde(default)]
    cursor: Option<String>,
}

async fn list(call: Call, params: ListParams) -> Result<Json<Page<SessionRow>>, Problem> {
    let limit = page_limit(params.limit, PAGE, MAX_PAGE)?;
    let after = params.cursor.as_deref().map(read_cursor).transpose()?;
    let mut items = Vec::new();
    let mut heads = call.service.0.store.list();
    while let Some(head) = heads.next().await {
        // Damaged sessions are in the list of the command line, with their problem.
        let Ok(head) = head else { continue };
        let fits = call.service.shows(&call.caller, &head.workspace)
            && params
                .workspace
                .as_ref()
                .is_none_or(|wanted| *wanted == head.workspace)
            && params
                .state
                .as_ref()
                .is_none_or(|wanted| wanted == head.state.word())
            && after.as_ref().is_none_or(|(last, id)| {
                (head.last.as_millis(), head.id.as_str()) < (*last, id.as_str())
            });
        if !fits {
            continue;
        }
        items.push(SessionRow::from(head));
        if items.len() > limit {
            break;
        }
    }
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(|last| {
        let text = format!("{}:{}", last.last.as_millis(), last.id);
        URL_SAFE_NO_PAD.encode(text)
    });
    Ok(Json(Page { items, next }))
}

/// The number of items of a page.
pub(super) fn page_limit(
    given: Option<usize>,
    default: usize,
    most: usize,
) -> Result<usize, Problem> {
    match given {
        None => Ok(default),
        Some(limit) if (1..=most).contains(&limit) => Ok(limit),
        Some(_) => Err(Problem::invalid(format!(
            "`limit` must be between 1 and {most}"
        ))),
    }
}

fn read_cursor(cursor: &str) -> Result<(i64, String), Problem> {
    let read = || {
        let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
        let text = String::from_utf8(bytes).ok()?;
        let (last, id) = text.split_once(':')?;
        Some((last.parse().ok()?, id.to_owned()))
    };
    read().ok_or_else(|| {
        Problem::unprocessable("`cursor` is not a cursor of this list")
            .hint("begin without a cursor, and pass `next` of the page before")
    })
}

/// Parameters that name a session.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SessionParams {
    pub(super) session: SessionId,
}

/// Parameters that name a session and an event of it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SessionAtParams {
    pub(super) session: SessionId,
    /// The number of an event: the reply describes the session after it. The default is the last event.
    #[serde(default)]
    pub(super) at: Option<u64>,
}

async fn get(call: Call, params: SessionAtParams) -> Result<Json<SessionDetail>, Problem> {
    let host = call.service.host(&call.caller, &params.session).await?;
    let overview = call.service.overview(&host.id, params.at).await?;
    if params
        .at
        .is_some_and(|at| at > overview.last_seq || at == 0)
    {
        return Err(no_such_event(params.at.unwrap_or(0), overview.last_seq));
    }
    let spent = spent(&call, &host.id, params.at).await?;
    let now = params.at.is_none();
    let running = now && call.service.0.scheduler.is_running(&host.id);
    let position = match now {
        true => call.service.0.scheduler.position(&host.id),
        false => None,
    };
    let paused = overview
        .open
        .as_ref()
        .is_some_and(|run| run.pause().is_some());
    let state = match &overview.open {
        _ if !overview.asks.is_empty() => "waiting",
        Some(_) if paused => "paused",
        Some(_) if running || !now || host.is_held_elsewhere(&call.service) => "running",
        _ if position.is_some() => "queued",
        Some(_) => "interrupted",
        None => "idle",
    };
    let run = overview.open.as_ref().map(|run| OpenRunItem {
        id: run.id.clone(),
        prompt: run.prompt.text(),
        iteration: run.iteration,
        isolation: run.isolation,
        copy: run.copy.clone(),
        paused: paused || !overview.asks.is_empty(),
    });
    Ok(Json(SessionDetail {
        id: host.id.clone(),
        workspace: overview.workspace,
        state: state.to_owned(),
        last_seq: overview.last_seq,
        position,
        run,
        asks: overview.asks,
        queue: overview.queue.all().iter().map(QueuedItem::of).collect(),
        kept: overview.kept,
        isolation: overview.isolation,
        spent,
    }))
}

/// The amounts that all runs of a session spent until an event.
async fn spent(call: &Call, session: &SessionId, at: Option<u64>) -> Result<Spent, Problem> {
    let mut sum = Spent::default();
    let mut last = Spent::default();
    let mut events = call.service.0.store.skim(session, 1, |kind| {
        matches!(kind, "spent" | "run_finished" | "forked")
    });
    while let Some(event) = events.next().await {
        let windlass::core::store::Skimmed::Event(event) = event? else {
            continue;
        };
        if at.is_some_and(|at| event.order.seq().is_some_and(|seq| seq > at)) {
            break;
        }
        match event.kind {
            EventKind::Spent { total, .. } => last = total,
            EventKind::RunFinished(summary) => {
                sum.add(&summary.totals);
                last = Spent::default();
            }
            EventKind::Forked { .. } => (sum, last) = (Spent::default(), Spent::default()),
            _ => {}
        }
    }
    sum.add(&last);
    Ok(sum)
}

pub(super) fn no_such_event(at: u64, last: u64) -> Problem {
    Problem::new(
        ProblemCode::NotFound,
        format!("the session has no event {at}; its last event is {last}"),
    )
    .hint("use a number between 1 and the last event")
}

async fn delete(call: Call, params: SessionParams) -> Result<Json<Done>, Problem> {
    let host = match call.service.host(&call.caller, &params.session).await {
        Err(problem) if call.interrupted && problem.is(ProblemCode::NotFound) => {
            return Ok(Json(Done {}));
        }
        host => host?,
    };
    call.service.delete_session(&host).await?;
    Ok(Json(Done {}))
}

async fn clear(call: Call, params: SessionParams) -> Result<Json<Done>, Problem> {
    let host = call.service.host(&call.caller, &params.session).await?;
    refuse_if_interrupted(&call, "read the last events of the session")?;
    host.clear_conversation(&call.service).await?;
    Ok(Json(Done {}))
}

/// The result of a compaction.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Compacted {
    /// False if the conversation is too short to compact.
    pub compacted: bool,
    /// The size of the conversation in bytes.
    pub before: usize,
    pub after: usize,
}

async fn compact(call: Call, params: SessionParams) -> Result<Json<Compacted>, Problem> {
    let host = call.service.host(&call.caller, &params.session).await?;
    refuse_if_interrupted(&call, "read the last events of the session")?;
    call.service.accept_work()?;
    let token = call.caller.token.clone();
    let (before, after) = call.service.compact(&host, token).await?;
    Ok(Json(Compacted {
        compacted: after < before,
        before,
        after,
    }))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NoteParams {
    session: SessionId,
    /// The line.
    #[schemars(regex(pattern = NOT_BLANK))]
    text: String,
}

async fn add_note(call: Call, params: NoteParams) -> Result<Json<Done>, Problem> {
    let host = call.service.host(&call.caller, &params.session).await?;
    refuse_if_interrupted(&call, "read the last events of the session")?;
    let text = params.text.trim();
    if text.is_empty() {
        return Err(Problem::invalid("the note is empty"));
    }
    if text.len() > MAX_NOTE {
        return Err(Problem::new(
            ProblemCode::TooLarge,
            format!("a note has at most {MAX_NOTE} bytes"),
        ));
    }
    host.add_note(&call.service, text).await?;
    Ok(Json(Done {}))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ForkParams {
    session: SessionId,
    /// The number of the last event to copy; the default is the last one.
    #[serde(default)]
    at: Option<u64>,
}

async fn fork(call: Call, params: ForkParams) -> Result<Json<SessionCreated>, Problem> {
    let host = call.service.host(&call.caller, &params.session).await?;
    call.service.accept_work()?;
    refuse_if_interrupted(&call, "list the sessions")?;
    let settings = call.service.settings(None)?;
    let engine = wire::session_engine(&settings)?;
    let forked = engine.fork(&host.id, params.at, RunMode::Analysis).await?;
    Ok(Json(SessionCreated {
        id: forked.id().clone(),
        workspace: host.workspace.display().to_string(),
        queued: None,
    }))
}
