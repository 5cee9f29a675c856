//! Operations on runs: prompts, findings, the queue, cancel, pause and resume.

use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use windlass::core::flags::SavedFlags;
use windlass::core::id::{RunId, SessionId};
use windlass::core::message::{Message, Origin, Part, Role};
use windlass::core::pause::PauseReason;
use windlass::core::queue::QueuedPrompt;
use windlass::engine::{Delivery, QueueRequest};
use windlass::flags::RunFlags;

use super::sessions::SessionParams;
use super::{Call, Done, Json, Method, NoParams, Operation, refuse_if_interrupted};
use crate::access::Scope;
use crate::drive::{CONTINUE_PROMPT, SessionWork};
use crate::host::SessionHost;
use crate::problem::{Problem, ProblemCode};
use crate::run_request::RunRequest;
use crate::schema::{BASE64, NOT_BLANK, object, objects, require_text_or_images};
use crate::spending::micros;

/// Maximum length of a prompt in bytes.
const MAX_PROMPT: usize = 4 << 20;
/// Maximum number of images of a prompt.
pub(super) const MAX_IMAGES: usize = 20;
/// Maximum number of comments of one request.
const MAX_COMMENTS: usize = 500;

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation::new(
            "runs.create",
            (Method::Post, "/v1/sessions/{session}/runs", 202),
            Scope::Run,
            "Queue a prompt; its run starts when it is the session's turn",
            create,
        ),
        Operation::new(
            "runs.steer",
            (Method::Post, "/v1/sessions/{session}/steer", 202),
            Scope::Run,
            "Send a message to the run in progress; it arrives between two steps",
            steer,
        ),
        Operation::new(
            "runs.findings",
            (Method::Post, "/v1/sessions/{session}/findings", 202),
            Scope::Run,
            "Send comments on changed lines as findings for the next attempt",
            findings,
        ),
        Operation::new(
            "runs.cancel",
            (Method::Post, "/v1/sessions/{session}/cancel", 202),
            Scope::Run,
            "Cancel the run of a session and clear its queue",
            cancel,
        ),
        Operation::new(
            "runs.pause",
            (Method::Post, "/v1/sessions/{session}/pause", 202),
            Scope::Run,
            "Pause the run in progress at its next safe point",
            pause,
        ),
        Operation::new(
            "runs.resume",
            (Method::Post, "/v1/sessions/{session}/resume", 202),
            Scope::Run,
            "Resume a paused run, or continue the kept run of a session",
            resume,
        ),
        Operation::new(
            "runs.stop_all",
            (Method::Post, "/v1/stop", 202),
            Scope::Admin,
            "Cancel all runs in progress and clear all queues",
            stop_all,
        ),
        Operation::new(
            "queue.get",
            (Method::Get, "/v1/sessions/{session}/queue", 200),
            Scope::Read,
            "List the queued prompts of a session in their order",
            queue,
        ),
        Operation::new(
            "queue.set",
            (Method::Put, "/v1/sessions/{session}/queue", 200),
            Scope::Run,
            "Change the order of the queued prompts; prompts that are not listed are removed",
            set_queue,
        ),
    ]
}

/// An image of a prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ImagePart {
    /// The MIME type, such as `image/png`.
    #[schemars(regex(pattern = "^image/"))]
    pub media_type: String,
    /// The bytes in base64.
    #[schemars(regex(pattern = BASE64))]
    pub data: String,
}

/// A prompt in the queue of a session.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct QueuedItem {
    /// The number of its event, which identifies it.
    pub seq: u64,
    pub prompt: String,
    /// True if it is meant for the run in progress.
    pub steer: bool,
    /// The options of its run.
    #[serde(default, skip_serializing_if = "SavedFlags::is_empty")]
    pub options: SavedFlags,
    /// The name of the token that sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

impl QueuedItem {
    pub(super) fn of(waiting: &QueuedPrompt) -> Self {
        Self {
            seq: waiting.seq,
            prompt: waiting.prompt.text(),
            steer: waiting.steer,
            options: waiting.flags.clone(),
            by: waiting.by.clone(),
        }
    }
}

/// A prompt that was accepted. Its run begins with a `run_started` event that has this number in `queued`; a prompt for the
/// run in progress arrives with a `said` event that has it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PromptQueued {
    pub session: SessionId,
    /// The number of the `queued` event.
    pub queued: u64,
    /// The position in the order in which sessions will run, counted from 1; absent if it runs now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<usize>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = require_text_or_images)]
struct PromptParams {
    session: SessionId,
    prompt: String,
    #[serde(default, deserialize_with = "objects")]
    #[schemars(length(max = MAX_IMAGES))]
    images: Vec<ImagePart>,
    #[serde(default, deserialize_with = "object")]
    options: RunRequest,
}

async fn create(call: Call, params: PromptParams) -> Result<Json<PromptQueued>, Problem> {
    let host = call.service.host(&call.caller, &params.session).await?;
    let PromptParams {
        prompt,
        images,
        options,
        ..
    } = params;
    let message = message(prompt, images)?;
    queue_prompt(&call, &host, message, options, false)
        .await
        .map(Json)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = require_text_or_images)]
struct SteerParams {
    session: SessionId,
    prompt: String,
    #[serde(default, deserialize_with = "objects")]
    #[schemars(length(max = MAX_IMAGES))]
    images: Vec<ImagePart>,
}

async fn steer(call: Call, params: SteerParams) -> Result<Json<PromptQueued>, Problem> {
    let host = call.service.host(&call.caller, &params.session).await?;
    let options = RunRequest::default();
    let message = message(params.prompt, params.images)?;
    queue_prompt(&call, &host, message, options, true)
        .await
        .map(Json)
}

/// Queues a prompt durably and lets the session run. A repeated request finds its prompt in the log.
pub(super) async fn queue_prompt(
    call: &Call,
    host: &std::sync::Arc<SessionHost>,
    message: Message,
    mut options: RunRequest,
    steer: bool,
) -> Result<PromptQueued, Problem> {
    let service = &call.service;
    service.accept_work()?;
    let settings = service.settings(Some(&host.workspace))?;
    call.caller.apply_ceiling(&mut options, &settings)?;
    let budget = service
        .token_of(&call.caller)
        .and_then(|token| token.budget_usd);
    let token = call.caller.token.as_deref();
    service
        .0
        .spending
        .check(token.map(|name| (name, budget.map(micros))))?;
    if !steer && !call.interrupted {
        let flags = service.with_own_flags(&options.flags(host.workspace.clone()))?;
        check_flags(&flags, &settings)?;
    }
    let done = |queued| PromptQueued {
        session: host.id.clone(),
        queued,
        position: service.0.scheduler.position(&host.id),
    };
    if call.interrupted
        && let Some(key) = &call.key
        && let Some(queued) = service.prompt_with_key(&host.id, key, token).await?
    {
        service.schedule(host, call.caller.token.clone())?;
        return Ok(done(queued));
    }
    let request = QueueRequest {
        flags: options.save(),
        by: call.caller.token.clone(),
        key: call.key.clone(),
        ..QueueRequest::new(
            message,
            match steer {
                true => Delivery::Steer,
                false => Delivery::FollowUp,
            },
        )
    };
    // The mark is written first: after a crash, the next server looks whether the prompt was queued.
    service.mark_work(&host.id, token)?;
    let queued = host.queue(service, request).await?;
    if !host.is_held_elsewhere(service) {
        service.schedule(host, call.caller.token.clone())?;
    }
    Ok(done(queued))
}

/// Finds errors in the options before the prompt is accepted.
fn check_flags(flags: &RunFlags, settings: &windlass::settings::Settings) -> Result<(), Problem> {
    let mut settings = settings.clone();
    settings.add_flags(&flags.agent, &flags.limits)?;
    settings.add_contract_flags(&flags.contract)?;
    windlass::runtime_plan::RuntimePlan::of(&flags.agent, &settings)?;
    Ok(())
}

/// The message of a prompt with images.
pub(super) fn message(prompt: String, images: Vec<ImagePart>) -> Result<Message, Problem> {
    if prompt.trim().is_empty() && images.is_empty() {
        return Err(Problem::invalid("the prompt is empty"));
    }
    if prompt.len() > MAX_PROMPT || images.len() > MAX_IMAGES {
        return Err(Problem::new(
            ProblemCode::TooLarge,
            format!(
                "a prompt has at most {} MB of text and {MAX_IMAGES} images",
                MAX_PROMPT >> 20
            ),
        ));
    }
    let mut parts = vec![Part::Text { text: prompt }];
    for image in images {
        use base64::Engine as _;
        let decoded = base64::engine::general_purpose::STANDARD.decode(&image.data);
        if decoded.is_err() || !image.media_type.starts_with("image/") {
            return Err(Problem::invalid(
                "an image needs a media type such as `image/png`, and its bytes in base64",
            ));
        }
        parts.push(Part::Image {
            media_type: image.media_type,
            data: image.data,
        });
    }
    Ok(Message {
        role: Role::User,
        origin: Origin::Person,
        parts,
    })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FindingsParams {
    session: SessionId,
    #[serde(deserialize_with = "objects")]
    #[schemars(length(min = 1, max = MAX_COMMENTS))]
    comments: Vec<Comment>,
    /// A text before the comments.
    #[serde(default)]
    note: Option<String>,
    #[serde(default, deserialize_with = "object")]
    options: RunRequest,
}

/// A comment on lines of a changed file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Comment {
    path: String,
    /// The first line, counted from 1; absent for a comment on the file.
    #[serde(default)]
    line: Option<NonZeroU32>,
    text: String,
}

async fn findings(call: Call, params: FindingsParams) -> Result<Json<PromptQueued>, Problem> {
    let host = call.service.host(&call.caller, &params.session).await?;
    if params.comments.is_empty() || params.comments.len() > MAX_COMMENTS {
        return Err(Problem::invalid(format!(
            "send between 1 and {MAX_COMMENTS} comments"
        )));
    }
    let prompt = findings_prompt(params.note.as_deref(), &params.comments);
    let mut options = params.options;
    // The comments are about the kept copy, so the next attempt continues on it.
    let overview = call.service.overview(&host.id, None).await?;
    if options.kept.is_none() {
        options.kept = overview.kept;
    }
    let running = overview.open.is_some() && overview.asks.is_empty();
    let message = message(prompt, Vec::new())?;
    queue_prompt(&call, &host, message, options, running)
        .await
        .map(Json)
}

/// The comments in the form in which findings of checks are sent to the model.
fn findings_prompt(note: Option<&str>, comments: &[Comment]) -> String {
    let mut text =
        String::from(note.unwrap_or("A reviewer has read your changes. Address these findings:"));
    text.push('\n');
    for comment in comments {
        let path = comment.path.replace(['\n', '\r'], " ");
        let place = match comment.line {
            Some(line) => format!("{path}:{line}"),
            None => path,
        };
        let words = comment.text.trim().replace('\n', "\n  ");
        text.push_str(&format!("\n{place}: {words}"));
    }
    text
}

async fn cancel(call: Call, params: SessionParams) -> Result<Json<Done>, Problem> {
    let host = call.service.host(&call.caller, &params.session).await?;
    call.service.0.scheduler.remove(&host.id);
    host.cancel(&call.service).await?;
    Ok(Json(Done {}))
}

async fn pause(call: Call, params: SessionParams) -> Result<Json<Done>, Problem> {
    let host = call.service.host(&call.caller, &params.session).await?;
    host.pause(&call.service, PauseReason::Requested).await?;
    Ok(Json(Done {}))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ResumeParams {
    session: SessionId,
    /// The prompt for a kept run; the default asks the agent to continue.
    #[serde(default)]
    #[schemars(regex(pattern = NOT_BLANK))]
    prompt: Option<String>,
    #[serde(default, deserialize_with = "object")]
    options: RunRequest,
}

/// A run that was resumed, or the prompt that continues a kept run.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RunResumed {
    pub session: SessionId,
    /// The run that goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// The number of the queued prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued: Option<u64>,
}

async fn resume(call: Call, params: ResumeParams) -> Result<Json<RunResumed>, Problem> {
    call.service.accept_work()?;
    let host = call.service.host(&call.caller, &params.session).await?;
    let overview = call.service.overview(&host.id, None).await?;
    let resumed = |run, queued| {
        Json(RunResumed {
            session: host.id.clone(),
            run,
            queued,
        })
    };
    if let Some(run) = &overview.open
        && run.pause().is_some()
        && params.prompt.is_none()
    {
        let run = call
            .service
            .start_work(host.clone(), SessionWork::ResumePaused, &call.caller)
            .await?;
        return Ok(resumed(Some(run), None));
    }
    if let Some(ask) = overview.asks.first()
        && params.prompt.is_none()
    {
        return Err(
            Problem::new(ProblemCode::Conflict, "the run waits for an answer")
                .hint(format!(
                    "answer it with `POST /v1/sessions/{}/asks/{}`",
                    host.id, ask.id
                ))
                .fact("ask", ask.id.as_str()),
        );
    }
    let mut options = params.options;
    if options.kept.is_none() {
        options.kept = overview.kept.clone();
    }
    let prompt = match (params.prompt, &options.kept) {
        (Some(prompt), _) => prompt,
        (None, Some(_)) => CONTINUE_PROMPT.to_owned(),
        (None, None) if overview.queue.first().is_some() => {
            call.service.schedule(&host, call.caller.token.clone())?;
            return Ok(resumed(None, overview.queue.first().map(|first| first.seq)));
        }
        (None, None) => {
            return Err(Problem::new(
                ProblemCode::Conflict,
                "the session has no paused run, no kept run and no queued prompt",
            )
            .hint("send a prompt with `POST /v1/sessions/ID/runs`"));
        }
    };
    let message = message(prompt, Vec::new())?;
    let queued = queue_prompt(&call, &host, message, options, false).await?;
    Ok(resumed(None, Some(queued.queued)))
}

/// The number of runs that were cancelled.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Stopped {
    pub runs: usize,
}

async fn stop_all(call: Call, _: NoParams) -> Result<Json<Stopped>, Problem> {
    let mut runs = 0;
    for host in call.service.used_hosts() {
        call.service.0.scheduler.remove(&host.id);
        if let Some(live) = host.live() {
            runs += usize::from(live.cancel());
        }
    }
    Ok(Json(Stopped { runs }))
}

async fn queue(call: Call, params: SessionParams) -> Result<Json<Vec<QueuedItem>>, Problem> {
    let host = call.service.host(&call.caller, &params.session).await?;
    let overview = call.service.overview(&host.id, None).await?;
    Ok(Json(
        overview.queue.all().iter().map(QueuedItem::of).collect(),
    ))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SetQueueParams {
    session: SessionId,
    /// The numbers of the prompts that remain, in their new order.
    order: Vec<u64>,
}

async fn set_queue(call: Call, params: SetQueueParams) -> Result<Json<Vec<QueuedItem>>, Problem> {
    let host = call.service.host(&call.caller, &params.session).await?;
    refuse_if_interrupted(&call, "read the queue")?;
    host.reorder_queue(&call.service, params.order).await?;
    let overview = call.service.overview(&host.id, None).await?;
    Ok(Json(
        overview.queue.all().iter().map(QueuedItem::of).collect(),
    ))
}
