//! Operations that read the log: events, the conversation, recorded files and artifacts, now or at an earlier event.

use std::collections::BTreeMap;

use futures_util::StreamExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use windlass::core::event::{Event, EventKind};
use windlass::core::gate::Verdict;
use windlass::core::history::History;
use windlass::core::id::{ArtifactId, CallId, RunId, SessionId};
use windlass::core::image::Image;
use windlass::core::message::Part;
use windlass::core::store::{SessionStore, Skimmed};
use windlass::core::workspace::Artifacts;
use windlass::recorded_files::{RecordedFiles, read_recorded};

use super::sessions::{SessionAtParams, no_such_event, page_limit};
use super::{Bytes, Call, Json, Method, Operation};
use crate::access::Scope;
use crate::problem::{Problem, ProblemCode};

/// The default and maximum number of events of a page.
const PAGE: usize = 200;
const MAX_PAGE: usize = 1_000;
/// Maximum size of a page in bytes: a page ends early rather than being larger.
const MAX_PAGE_BYTES: usize = 8 << 20;
/// Maximum number of bytes of one reply with content.
const MAX_BYTES: u64 = 8 << 20;
/// Maximum number of decisions in a list.
const MAX_DECISIONS: usize = 10_000;
/// The most message bytes in memory while a conversation is folded.
const MAX_HELD: usize = 64 << 20;

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation::new(
            "events.list",
            (Method::Get, "/v1/sessions/{session}/events", 200),
            Scope::Read,
            "Read events of a session in pages; with `Accept: text/event-stream`, follow them",
            events,
        ),
        Operation::new(
            "conversation.get",
            (Method::Get, "/v1/sessions/{session}/conversation", 200),
            Scope::Read,
            "Show the conversation as the model sees it, now or at an earlier event",
            conversation,
        ),
        Operation::new(
            "decisions.list",
            (Method::Get, "/v1/sessions/{session}/decisions", 200),
            Scope::Read,
            "List the decisions of the permission gate, now or until an earlier event",
            decisions,
        ),
        Operation::new(
            "files.list",
            (Method::Get, "/v1/sessions/{session}/files", 200),
            Scope::Read,
            "List the files that the session changed, with their content by hash, now or at an earlier event",
            files,
        ),
        Operation::new(
            "files.read",
            (Method::Get, "/v1/sessions/{session}/file", 200),
            Scope::Read,
            "Read a file as it was recorded at an event",
            file,
        ),
        Operation::new(
            "artifacts.read",
            (
                Method::Get,
                "/v1/sessions/{session}/artifacts/{artifact}",
                200,
            ),
            Scope::Read,
            "Read a part of a result that was too large for the conversation",
            artifact,
        ),
    ]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EventsParams {
    session: SessionId,
    /// The number of the event before the first one of the page; the default is 0.
    #[serde(default)]
    after: Option<u64>,
    /// Reads backwards: the page ends before this event.
    #[serde(default)]
    before: Option<u64>,
    /// Only events of this run.
    #[serde(default)]
    run: Option<RunId>,
    /// The number of events, up to 1000; the default is 200.
    #[serde(default)]
    #[schemars(range(min = 1, max = MAX_PAGE))]
    limit: Option<usize>,
}

/// A page of events.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct EventPage {
    #[schemars(with = "Vec<Event>")]
    pub events: Vec<Box<RawValue>>,
    /// Pass it as `after` to read on; absent at the end of the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
    /// The number of the last event that was read.
    pub last_seq: u64,
}

async fn events(call: Call, params: EventsParams) -> Result<Json<EventPage>, Problem> {
    let host = call.service.host(&call.caller, &params.session).await?;
    let limit = page_limit(params.limit, PAGE, MAX_PAGE)?;
    let after = match (params.after, params.before) {
        (Some(_), Some(_)) => return Err(Problem::unprocessable("use either `after` or `before`")),
        (after, None) => after.unwrap_or(0),
        (None, Some(before)) => before.saturating_sub(1).saturating_sub(limit as u64),
    };
    let end = params.before;
    let mut page = EventPage {
        events: Vec::new(),
        next: None,
        last_seq: after,
    };
    let mut bytes = 0;
    let mut events = call.service.0.store.read(&host.id, after.saturating_add(1));
    while let Some(event) = events.next().await {
        let event = event?;
        let seq = event.order.seq().unwrap_or_default();
        if end.is_some_and(|end| seq >= end) {
            break;
        }
        if page.events.len() >= limit || bytes > MAX_PAGE_BYTES {
            page.next = Some(page.last_seq);
            break;
        }
        page.last_seq = seq;
        if params.run.is_some() && event.run != params.run {
            continue;
        }
        let json = serde_json::value::to_raw_value(&event)
            .map_err(|err| Problem::new(ProblemCode::Internal, err.to_string()))?;
        bytes += json.get().len();
        page.events.push(json);
    }
    Ok(Json(page))
}

/// A message of the conversation.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ConversationMessage {
    /// The number of the event of the message; absent for a summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    pub role: windlass::core::message::Role,
    pub origin: windlass::core::message::Origin,
    pub parts: Vec<Part>,
}

/// The conversation as the model sees it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Conversation {
    pub messages: Vec<ConversationMessage>,
    /// The notes of the session.
    pub notes: String,
    /// The number of the last event that the conversation contains.
    pub last_seq: u64,
}

async fn conversation(call: Call, params: SessionAtParams) -> Result<Json<Conversation>, Problem> {
    let host = call.service.host(&call.caller, &params.session).await?;
    let mut history = History::default();
    let mut events = call.service.0.store.skim(&host.id, 1, History::needs);
    while params.at.is_none_or(|at| history.last_seq() < at)
        && let Some(event) = events.next().await
    {
        match event? {
            Skimmed::Event(event) => history.apply(&event),
            Skimmed::Passed { seq } => history.pass(seq),
        }
        history.bound(MAX_HELD);
    }
    check_at(params.at, history.last_seq())?;
    let entries = history.entries();
    let messages = entries.iter().map(|entry| ConversationMessage {
        seq: Some(entry.seq()).filter(|seq| *seq > 0),
        role: entry.role,
        origin: entry.origin,
        parts: entry.parts.to_vec(),
    });
    Ok(Json(Conversation {
        messages: messages.collect(),
        notes: history.notes().to_owned(),
        last_seq: history.last_seq(),
    }))
}

fn check_at(at: Option<u64>, last: u64) -> Result<(), Problem> {
    match at {
        Some(at) if at == 0 || at > last => Err(no_such_event(at, last)),
        _ => Ok(()),
    }
}

/// A decision of the permission gate.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct GateDecision {
    pub seq: u64,
    pub call: CallId,
    /// The name of the tool, if the call started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    pub verdict: Verdict,
    pub rule: String,
    /// The reason of a denial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

async fn decisions(
    call: Call,
    params: SessionAtParams,
) -> Result<Json<Vec<GateDecision>>, Problem> {
    let host = call.service.host(&call.caller, &params.session).await?;
    let mut found = Vec::new();
    let mut events = call.service.0.store.skim(&host.id, 1, |kind| {
        matches!(kind, "call_started" | "denied")
    });
    let mut last = 0;
    while params.at.is_none_or(|at| last < at)
        && let Some(event) = events.next().await
    {
        let event = match event? {
            Skimmed::Event(event) => event,
            Skimmed::Passed { seq } => {
                last = seq;
                continue;
            }
        };
        last = event.order.seq().unwrap_or(last);
        let decision = match event.kind {
            EventKind::CallStarted {
                call,
                verdict: Some(verdict),
                rule,
            } => GateDecision {
                seq: last,
                call: call.id,
                tool: Some(call.name),
                verdict,
                rule,
                reason: None,
            },
            EventKind::Denied { call, rule, reason } => GateDecision {
                seq: last,
                call,
                tool: None,
                verdict: Verdict::Deny,
                rule,
                reason: Some(reason),
            },
            _ => continue,
        };
        found.push(decision);
        if found.len() >= MAX_DECISIONS {
            break;
        }
    }
    if found.len() < MAX_DECISIONS {
        check_at(params.at, last)?;
    }
    Ok(Json(found))
}

/// A file that a session changed.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RecordedFile {
    pub path: String,
    pub image: Image,
    /// The number of the event that recorded it.
    pub seq: u64,
    /// Whether its bytes are stored; content that is too old is deleted.
    pub stored: bool,
}

/// The files that a session changed. All other files of the workspace are not recorded.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RecordedFileList {
    pub files: Vec<RecordedFile>,
    pub last_seq: u64,
}

async fn files(call: Call, params: SessionAtParams) -> Result<Json<RecordedFileList>, Problem> {
    let recorded = recorded(&call, &params.session, params.at).await?;
    let files: BTreeMap<_, _> = recorded.files().collect();
    let files = files.into_iter().map(|(path, (image, seq))| RecordedFile {
        path: path.to_owned(),
        stored: recorded.is_stored(&call.service.0.places, image),
        image: image.clone(),
        seq,
    });
    Ok(Json(RecordedFileList {
        files: files.collect(),
        last_seq: recorded.last_seq,
    }))
}

async fn recorded(
    call: &Call,
    session: &SessionId,
    at: Option<u64>,
) -> Result<RecordedFiles, Problem> {
    let host = call.service.host(&call.caller, session).await?;
    let recorded = RecordedFiles::of(&call.service.0.store, &host.id, at).await?;
    check_at(at, recorded.last_seq)?;
    Ok(recorded)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FileParams {
    session: SessionId,
    /// The path relative to the workspace.
    path: String,
    #[serde(default)]
    at: Option<u64>,
    /// The position of the first byte.
    #[serde(default)]
    offset: Option<u64>,
    /// The number of bytes, up to 8 MiB.
    #[serde(default)]
    length: Option<u64>,
}

async fn file(call: Call, params: FileParams) -> Result<Bytes, Problem> {
    let recorded = recorded(&call, &params.session, params.at).await?;
    let not_recorded = || {
        Problem::new(
            ProblemCode::NotFound,
            "the file is not recorded at this event: the session did not change it before",
        )
        .hint("`GET /v1/sessions/ID/files` lists the recorded files")
    };
    let image = recorded.image(&params.path).ok_or_else(not_recorded)?;
    let offset = params.offset.unwrap_or(0);
    let length = params.length.unwrap_or(MAX_BYTES).min(MAX_BYTES);
    let (bytes, total) = match image {
        Image::Absent => {
            return Err(Problem::new(
                ProblemCode::NotFound,
                "the file did not exist at this event",
            ));
        }
        Image::Link { target } => (target.clone().into_bytes(), target.len() as u64),
        Image::File { size, .. } => {
            let bytes = read_recorded(&call.service.0.places, image, offset, length)?;
            let bytes = bytes.ok_or_else(|| {
                Problem::new(
                    ProblemCode::NotFound,
                    "the content of the file is no longer stored",
                )
                .hint("the store for undo keeps the newest 200 MB")
            })?;
            (bytes, *size)
        }
    };
    check_range(offset, total)?;
    Ok(Bytes {
        content_type: "application/octet-stream",
        bytes,
        offset,
        total,
        name: None,
    })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ArtifactParams {
    session: SessionId,
    artifact: ArtifactId,
    #[serde(default)]
    offset: Option<u64>,
    #[serde(default)]
    length: Option<u64>,
}

async fn artifact(call: Call, params: ArtifactParams) -> Result<Bytes, Problem> {
    let host = call.service.host(&call.caller, &params.session).await?;
    let artifacts = call.service.0.store.artifacts(&host.id);
    let offset = params.offset.unwrap_or(0);
    let length = params.length.unwrap_or(MAX_BYTES).min(MAX_BYTES);
    let missing = |err: windlass::core::workspace::ArtifactError| {
        Problem::new(ProblemCode::NotFound, err.to_string())
    };
    let total = artifacts.size(&params.artifact).map_err(missing)?;
    check_range(offset, total)?;
    let bytes = artifacts
        .read(&params.artifact, offset, length)
        .map_err(missing)?;
    Ok(Bytes {
        content_type: "application/octet-stream",
        bytes,
        offset,
        total,
        name: None,
    })
}

fn check_range(offset: u64, total: u64) -> Result<(), Problem> {
    if offset > total || (offset == total && total > 0) {
        return Err(Problem::new(
            ProblemCode::RangeNotSatisfiable,
            format!("the content has {total} bytes"),
        )
        .fact("total", total));
    }
    Ok(())
}
