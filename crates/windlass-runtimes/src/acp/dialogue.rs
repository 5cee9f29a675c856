//! The client side of the Agent Client Protocol, version 1. The conversation is set up step by step; then each prompt
//! is one request that stays open for the whole turn. The gate judges a call when the agent asks for permission, the
//! driver serves files and terminals, and the transcript collects the agent's messages.

mod setup;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent_client_protocol::v1::schema::{
    ContentBlock, InitializeResponse, Meta, PermissionOption, PromptRequest,
    RequestPermissionRequest, SessionConfigOption, StopReason, TextContent, ToolKind,
};
use serde_json::{Value, json};
use windlass_core::budget::Usage;
use windlass_core::message::ToolCall;
use windlass_core::provider::{ProviderError, ProviderErrorKind};
use windlass_core::tool::{Admitted, Effect};

use super::call::AcpCall;
use super::options::AcpOptions;
use super::profile::{AcpProfile, TurnUsage};
use super::session::initialize_request;
use super::text::{clean, clip};
use super::transcript::AcpTranscript;
use super::{permission, usage};
use crate::agent::{ReportedUsage, TurnEndReason};
use crate::dialogue::{
    Dialogue, DialogueInput, DialogueOutput, OutputQueue, RequestTicket, TurnResult,
};
use crate::equivalent_calls::{EquivalentCalls, no_equivalent};
use crate::rpc::{MAX_UNSENT, RpcBuilder, RpcError, RpcMessage, parse_message};
use crate::services::{Grant, ServiceReply};

/// Timeout for each request before the first turn.
const SETUP_TIMEOUT: Duration = Duration::from_secs(120);
/// The error code with which an agent requests a login.
const AUTH_REQUIRED: i64 = -32000;
/// Requests of the agent that are processed concurrently. Above this number the driver stops reading from the agent.
const MAX_CONCURRENT_REQUESTS: usize = 32;

/// The services that the client offers to the agent.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClientFeatures {
    pub fs: bool,
    pub terminal: bool,
}

/// The parameters of a conversation over ACP.
pub(super) struct AcpSetup {
    pub(super) name: String,
    pub(super) options: AcpOptions,
    pub(super) profile: AcpProfile,
    pub(super) client_features: ClientFeatures,
    /// The agent's model, and whether its command or environment names it.
    pub(super) model: Option<String>,
    pub(super) names_model: bool,
    /// Whether the model requests pass through the meter.
    pub(super) metered: bool,
    pub(super) kinds: Arc<HashMap<String, ToolKind>>,
    pub(super) root: PathBuf,
    pub(super) meta: Option<Meta>,
    pub(super) resume: Option<String>,
}

/// The open request to the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AcpRequest {
    Initialize,
    Authenticate,
    List,
    Resume,
    New,
    /// The setting with this index in the options.
    Config(usize),
    Model,
    Mode,
    Prompt,
}

/// An agent that speaks ACP, over all its turns.
pub(super) struct AcpDialogue {
    setup: AcpSetup,
    rpc: RpcBuilder,
    /// The open request, its number and its method.
    open_request: AcpRequest,
    request_info: (u64, &'static str),
    open: bool,
    handshake: Option<InitializeResponse>,
    /// The agent's id of the conversation, its response with modes and models, and its settings.
    session: String,
    session_info: Value,
    settings: Vec<SessionConfigOption>,
    /// The agent does not have the conversation that it was to resume.
    session_lost: bool,
    prompt: String,
    /// The prompt with a digest of the conversation, for an agent that has lost it.
    pub(super) prompt_with_digest: String,
    warnings: Vec<(&'static str, String)>,
    transcript: AcpTranscript,
    /// The name that the agent reports.
    agent: String,
    /// Micro-USD that the agent had reported for the session at the end of the last turn.
    reported_cost: u64,
    warned_last_call: bool,
    cancelled: bool,
}

impl AcpDialogue {
    pub(super) fn new(setup: AcpSetup) -> Self {
        Self {
            transcript: AcpTranscript::new(Arc::clone(&setup.kinds), setup.root.clone()),
            setup,
            rpc: RpcBuilder::versioned(),
            open_request: AcpRequest::Initialize,
            request_info: (0, ""),
            open: false,
            handshake: None,
            session: String::new(),
            session_info: Value::Null,
            settings: Vec::new(),
            session_lost: false,
            prompt: String::new(),
            prompt_with_digest: String::new(),
            warnings: Vec::new(),
            agent: String::new(),
            reported_cost: 0,
            warned_last_call: false,
            cancelled: false,
        }
    }

    fn ask(
        &mut self,
        open_request: AcpRequest,
        method: &'static str,
        params: &impl serde::Serialize,
        out: &mut OutputQueue,
    ) {
        let (id, line) = self.rpc.request(method, params);
        (self.open_request, self.request_info) = (open_request, (id, method));
        out.push(DialogueOutput::SetTimeout(
            (open_request != AcpRequest::Prompt).then_some(SETUP_TIMEOUT),
        ));
        out.send(line);
    }

    fn reply(&self, id: &Value, reply: &ServiceReply, out: &mut OutputQueue) {
        out.send(self.rpc.answer(id, reply));
    }

    /// Ends the turn without an answer of the agent.
    fn end_turn(&mut self, end: TurnEndReason, out: &mut OutputQueue) {
        if !self.open {
            out.push(DialogueOutput::SessionStarted(None));
        }
        let text = self.transcript.end(out);
        out.end(TurnResult::with(text, end));
    }

    /// Sends the prompt, which starts a turn.
    fn send_prompt(&mut self, out: &mut OutputQueue) {
        for (code, text) in std::mem::take(&mut self.warnings) {
            out.push(DialogueOutput::Warn(code, text));
        }
        let prompt_with_digest = std::mem::take(&mut self.prompt_with_digest);
        if std::mem::take(&mut self.session_lost) {
            self.prompt = prompt_with_digest;
        }
        self.transcript.begin();
        let text = TextContent::new(std::mem::take(&mut self.prompt));
        let params = PromptRequest::new(self.session.clone(), vec![ContentBlock::Text(text)]);
        self.ask(AcpRequest::Prompt, "session/prompt", &params, out);
    }

    /// Handles the response to the prompt, which ends the turn.
    fn on_prompt_response(&mut self, result: ServiceReply, out: &mut OutputQueue) {
        let text = self.transcript.end(out);
        let end = match result {
            Ok(answer) => {
                self.count(&answer, out);
                ended(&answer, &text)
            }
            Err(err) => failed(&self.setup.name, err),
        };
        out.end(TurnResult::with(text, end));
    }

    /// Reports the usage of the turn.
    fn count(&mut self, answer: &Value, out: &mut OutputQueue) {
        let mut usage = usage::of_turn(answer).unwrap_or_default();
        let means = self.setup.options.turn_usage;
        let means = means.unwrap_or_else(|| self.setup.profile.turn_usage(&self.agent));
        if means == TurnUsage::LastCall {
            if self.setup.metered {
                // The meter counted all calls, so that a comparison would be wrong.
                usage = Usage::default();
            } else if !std::mem::replace(&mut self.warned_last_call, true) {
                let text = format!(
                    "{} reports only the tokens of the last model call of each turn",
                    self.setup.name
                );
                out.push(DialogueOutput::Warn("usage_incomplete", text));
            }
        }
        let cost = self.transcript.cost_micros.unwrap_or(self.reported_cost);
        let cost_micros = cost
            .checked_sub(self.reported_cost)
            .filter(|more| *more > 0);
        self.reported_cost = cost.max(self.reported_cost);
        if usage != Usage::default() || cost_micros.is_some() {
            out.push(DialogueOutput::Spent(ReportedUsage {
                usage,
                cost_micros,
                model: usage::model_of_turn(answer),
            }));
        }
    }

    fn on_notification(&mut self, method: &str, mut params: Value, out: &mut OutputQueue) {
        // Other methods that do not look like those of the protocol are extensions of the agent.
        if method != "session/update" {
            if method.starts_with("session/") || !method.contains(['/', '_', '$']) {
                out.push(DialogueOutput::Unknown);
            }
            return;
        }
        let ours = params["sessionId"].as_str() == Some(self.session.as_str());
        if self.open_request != AcpRequest::Prompt || !ours {
            return;
        }
        let update = params.get_mut("update").map(Value::take);
        self.transcript.take(out, update.unwrap_or_default());
    }

    fn on_request(&mut self, id: Value, method: String, params: Value, out: &mut OutputQueue) {
        let permission = method == "session/request_permission";
        let served = match method.as_str() {
            "session/request_permission" => true,
            "fs/read_text_file" | "fs/write_text_file" => self.setup.client_features.fs,
            "terminal/create"
            | "terminal/output"
            | "terminal/wait_for_exit"
            | "terminal/kill"
            | "terminal/release" => self.setup.client_features.terminal,
            _ => false,
        };
        let wrong = |code, why: &str| Err(RpcError::new(code, why));
        if !served {
            let why = format!("the method `{}` is not supported", clip(&method, 200));
            return self.reply(&id, &wrong(RpcError::NO_METHOD, &why), out);
        }
        if self.cancelled || self.open_request != AcpRequest::Prompt {
            return self.reply(&id, &cancelled_reply(permission), out);
        }
        if params["sessionId"].as_str() != Some(self.session.as_str()) {
            let why = "the session id is not the current one";
            return self.reply(&id, &wrong(RpcError::BAD_PARAMS, why), out);
        }
        if !permission {
            // Earlier messages must precede the request in the log.
            self.transcript.flush(out);
            let ticket = RequestTicket::new(id.to_string(), json!({ "id": id }));
            return out.push(DialogueOutput::Serve {
                ticket,
                method,
                params,
            });
        }
        let request = match serde_json::from_value::<RequestPermissionRequest>(params) {
            Ok(request) => request,
            Err(err) => {
                return self.reply(&id, &wrong(RpcError::BAD_PARAMS, &err.to_string()), out);
            }
        };
        let call = &request.tool_call.tool_call_id.0;
        if self.transcript.is_being_judged(call) {
            let why = "a decision about this call is already pending";
            return self.reply(&id, &wrong(RpcError::BAD_PARAMS, why), out);
        }
        let acp_call = self.transcript.asked(out, request.tool_call);
        let data = json!({ "id": id, "options": request.options, "call": acp_call.id.0 });
        out.push(DialogueOutput::Judge {
            ticket: RequestTicket::new(id.to_string(), data),
            call: acp_call.call(),
            may_differ: false,
        });
    }

    /// Sends the verdict about a call to the agent.
    fn on_verdict(&mut self, mut ticket: RequestTicket, verdict: &Admitted, out: &mut OutputQueue) {
        let options: Vec<PermissionOption> =
            serde_json::from_value(ticket.data["options"].take()).unwrap_or_default();
        let call = ticket.data["call"].as_str().unwrap_or_default().into();
        let admitted = matches!(verdict, Admitted::Yes { .. });
        let (reply, allows) = permission::outcome(&options, admitted);
        self.transcript.judged(&call, admitted);
        // Without an option that allows the call, the agent receives no permission, and so no grant.
        if let Some(acp_call) = self.transcript.open_call(&call).filter(|_| allows) {
            out.push(DialogueOutput::Grant(
                call,
                grants(acp_call, &self.setup.root),
            ));
        }
        self.reply(&ticket.data["id"], &Ok(reply), out);
    }
}

impl Dialogue for AcpDialogue {
    fn program(&self) -> &str {
        &self.setup.name
    }

    fn input(&mut self, input: DialogueInput, out: &mut OutputQueue) {
        match input {
            DialogueInput::Prompt(prompt) => {
                self.prompt = prompt;
                if self.open {
                    self.send_prompt(out);
                } else {
                    let params = initialize_request(&self.setup);
                    self.ask(AcpRequest::Initialize, "initialize", &params, out);
                }
            }
            DialogueInput::Line(line) => match parse_message(line) {
                RpcMessage::Response {
                    id: Some(id),
                    result,
                } if id == self.request_info.0 => self.on_response(result, out),
                // A response without a request, or a second one.
                RpcMessage::Response { .. } | RpcMessage::Invalid => {
                    out.push(DialogueOutput::Unknown)
                }
                RpcMessage::Notification { method, params } => {
                    self.on_notification(&method, params, out)
                }
                RpcMessage::Request { id, method, params } => {
                    self.on_request(id, method, params, out)
                }
            },
            DialogueInput::Judged(ticket, verdict) => self.on_verdict(ticket, &verdict, out),
            DialogueInput::Served(ticket, reply) => self.reply(&ticket.data["id"], &reply, out),
            DialogueInput::Withdrawn(ticket) => {
                let permission = ticket.data.get("options").is_some();
                self.reply(&ticket.data["id"], &cancelled_reply(permission), out);
            }
            DialogueInput::Interrupt => {
                self.cancelled = true;
                if !self.session.is_empty() {
                    let params = json!({ "sessionId": self.session });
                    out.send(self.rpc.notification("session/cancel", &params));
                }
                if self.open_request != AcpRequest::Prompt {
                    self.end_turn(TurnEndReason::Cancelled, out);
                }
            }
            DialogueInput::TimedOut(_) => {
                let (name, method) = (&self.setup.name, self.request_info.1);
                let why = format!("{name} did not answer `{method}` in time");
                self.end_turn(TurnEndReason::Broken(why), out);
            }
            DialogueInput::Exited(exit) => {
                let (name, method) = (&self.setup.name, self.request_info.1);
                let why = format!("{name} exited before it answered `{method}`, {exit}");
                self.end_turn(TurnEndReason::Broken(why), out);
            }
            _ => {}
        }
    }

    fn equivalent_calls(&self, call: &ToolCall) -> EquivalentCalls {
        match self.transcript.open_call(&call.id) {
            Some(acp_call) => acp_call.equivalent_calls(&self.setup.root),
            None => no_equivalent(Effect::Execute),
        }
    }

    fn finish(&mut self, out: &mut OutputQueue) {
        self.transcript.end(out);
        let dropped = std::mem::take(&mut self.transcript.dropped);
        if dropped > 0 {
            let text = format!(
                "{} produced {dropped} bytes above the limit of one turn; they were not logged",
                self.setup.name
            );
            out.push(DialogueOutput::Warn("too_much_said", text));
        }
    }

    fn skipped_lines_warning(&self, unread: u64, unknown: u64) -> (&'static str, String) {
        let text = format!(
            "{} messages of {} were not understood and were ignored",
            unread.saturating_add(unknown),
            self.setup.name
        );
        ("not_understood", text)
    }

    fn max_unsent(&self) -> usize {
        MAX_UNSENT
    }

    fn max_concurrent_requests(&self) -> usize {
        MAX_CONCURRENT_REQUESTS
    }
}

/// The grants that follow from an allowed call.
fn grants(acp_call: &AcpCall, root: &Path) -> Vec<Grant> {
    // A text that was too long to be kept cannot be compared, and gives no grant.
    let shown = acp_call.diffs.iter().filter_map(|(path, text)| {
        Some(Grant::Write {
            path: path.clone(),
            text: Some(text.clone()?),
        })
    });
    let mut all: Vec<Grant> = shown.collect();
    if acp_call.diffs.is_empty() {
        let like = acp_call.equivalent_calls(root).0.into_iter();
        let written = like.filter(|like| like.tool == "write_file" || like.tool == "edit_file");
        all.extend(written.filter_map(|like| {
            Some(Grant::Write {
                path: like.args["path"].as_str()?.to_owned(),
                text: None,
            })
        }));
    }
    all.extend(acp_call.command().map(Grant::Run));
    all
}

fn cancelled_reply(permission: bool) -> ServiceReply {
    if permission {
        return Ok(json!({ "outcome": { "outcome": "cancelled" } }));
    }
    Err(RpcError::new(RpcError::CANCELLED, "the turn was cancelled"))
}

/// The end of a turn, by the agent's stop reason.
fn ended(answer: &Value, text: &str) -> TurnEndReason {
    let reason = serde_json::from_value::<StopReason>(answer["stopReason"].clone());
    match reason {
        Ok(StopReason::EndTurn) => TurnEndReason::Done,
        Ok(StopReason::MaxTokens) => {
            TurnEndReason::OwnLimit("the answer reached the token limit of its model".to_owned())
        }
        Ok(StopReason::MaxTurnRequests) => {
            TurnEndReason::OwnLimit("the turn reached the maximum number of model calls".to_owned())
        }
        Ok(StopReason::Refusal) => {
            let reason = if text.trim().is_empty() {
                "the agent's model refused the task"
            } else {
                text.trim()
            };
            TurnEndReason::Refused(clip(reason, 2_000).into_owned())
        }
        Ok(StopReason::Cancelled) => TurnEndReason::Cancelled,
        _ => TurnEndReason::Broken(format!(
            "the turn ended with an unknown stop reason: {}",
            clip(&answer["stopReason"].to_string(), 80)
        )),
    }
}

/// The end of a turn that failed: an error of the model if the message is clear about it, else of the agent.
fn failed(name: &str, err: RpcError) -> TurnEndReason {
    let reported = clip(&clean(&err.in_words()), 2_000).into_owned();
    let message = format!("{name} reports: {reported}");
    let reported = reported.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| reported.contains(word));
    let (kind, status) = if has(&["rate limit", "rate_limit", "too many requests", "quota"]) {
        (
            ProviderErrorKind::RateLimited { retry_after: None },
            Some(429),
        )
    } else if has(&[
        "invalid api key",
        "unauthorized",
        "invalid x-api-key",
        "authentication_error",
    ]) {
        (ProviderErrorKind::Authentication, Some(401))
    } else if has(&[
        "overloaded",
        "service unavailable",
        "internal server error",
        "bad gateway",
        "status code 5",
    ]) {
        (ProviderErrorKind::Unavailable { retry_after: None }, None)
    } else if has(&[
        "context length",
        "context window",
        "prompt is too long",
        "context_length",
    ]) {
        (ProviderErrorKind::ContextLength, None)
    } else if has(&[
        "econnrefused",
        "econnreset",
        "fetch failed",
        "connection refused",
        "cannot connect to api",
    ]) {
        (
            ProviderErrorKind::Network {
                transient: true,
                sent: false,
            },
            None,
        )
    } else {
        return TurnEndReason::Broken(format!("{message} ({})", err.code));
    };
    TurnEndReason::Provider(ProviderError {
        kind,
        message,
        status,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acp::profile::GENERIC;
    use crate::dialogue::testing::play;

    #[test]
    fn a_recorded_turn_is_reproduced() {
        let recording = include_str!("../../tests/fixtures/acp/opencode.jsonl");
        let mut dialogue = AcpDialogue::new(AcpSetup {
            name: "opencode".to_owned(),
            options: AcpOptions::default(),
            profile: GENERIC,
            client_features: ClientFeatures {
                fs: true,
                terminal: true,
            },
            model: None,
            names_model: true,
            metered: true,
            kinds: Arc::default(),
            root: PathBuf::from("/workspace"),
            meta: None,
            resume: None,
        });
        let facts = play(&mut dialogue, "work", recording);
        let expect = [
            "began Some(\"ses_e233328fcffeqgvG7iP3tUbSbT\")",
            "judge bash: true",
            "judge write: true",
            "serve fs/write_text_file",
            "judge bash: true",
            "end Done: ",
        ];
        assert_eq!(facts, expect);
    }
}
