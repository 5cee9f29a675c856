//! The client side of the Agent Client Protocol, version 1. The conversation is set up step by step; then each prompt
//! is one request that stays open for the whole turn. The gate judges a call when the agent asks for permission, the
//! driver serves files and terminals, and the transcript collects the agent's messages.

mod opening;

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

use super::call::Told;
use super::options::AcpOptions;
use super::profile::{Profile, TurnUsage};
use super::session::greeting;
use super::transcript::Transcript;
use super::words::{clean, clip};
use super::{permission, usage};
use crate::agent::{End, Reported};
use crate::dialogue::{Dialogue, Ended, Input, Output, Outputs, Ticket};
use crate::likeness::{Likeness, unlike};
use crate::rpc::{Frames, Heard, MAX_UNREAD, RpcError, understood};
use crate::services::{Grant, Reply};

/// Timeout for each request before the first turn.
const PATIENCE: Duration = Duration::from_secs(120);
/// The error code with which an agent requests a login.
const NOT_SIGNED_IN: i64 = -32000;
/// Requests of the agent that are processed concurrently. Above this number the driver stops reading from the agent.
const MAX_WORK: usize = 32;

/// The services that the client offers to the agent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Serves {
    pub fs: bool,
    pub terminal: bool,
}

/// The parameters of a conversation over ACP.
pub(super) struct AcpSetup {
    pub(super) name: String,
    pub(super) options: AcpOptions,
    pub(super) profile: Profile,
    pub(super) serves: Serves,
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
enum Step {
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
    frames: Frames,
    /// The open request, its number and its method.
    step: Step,
    asked: (u64, &'static str),
    open: bool,
    hello: Option<InitializeResponse>,
    /// The agent's id of the conversation, its response with modes and models, and its settings.
    session: String,
    told: Value,
    settings: Vec<SessionConfigOption>,
    /// The agent does not have the conversation that it was to resume.
    forgot: bool,
    prompt: String,
    /// The prompt with a digest of the conversation, for an agent that has lost it.
    pub(super) retold: String,
    warnings: Vec<(&'static str, String)>,
    transcript: Transcript,
    /// The name that the agent reports.
    agent: String,
    /// Micro-USD that the agent had reported for the session at the end of the last turn.
    cost_told: u64,
    told_last_call: bool,
    cancelled: bool,
}

impl AcpDialogue {
    pub(super) fn new(setup: AcpSetup) -> Self {
        Self {
            transcript: Transcript::new(Arc::clone(&setup.kinds), setup.root.clone()),
            setup,
            frames: Frames::versioned(),
            step: Step::Initialize,
            asked: (0, ""),
            open: false,
            hello: None,
            session: String::new(),
            told: Value::Null,
            settings: Vec::new(),
            forgot: false,
            prompt: String::new(),
            retold: String::new(),
            warnings: Vec::new(),
            agent: String::new(),
            cost_told: 0,
            told_last_call: false,
            cancelled: false,
        }
    }

    fn ask(
        &mut self,
        step: Step,
        method: &'static str,
        params: &impl serde::Serialize,
        out: &mut Outputs,
    ) {
        let (id, line) = self.frames.request(method, params);
        (self.step, self.asked) = (step, (id, method));
        out.push(Output::Within((step != Step::Prompt).then_some(PATIENCE)));
        out.send(line);
    }

    fn reply(&self, id: &Value, reply: &Reply, out: &mut Outputs) {
        out.send(self.frames.answer(id, reply));
    }

    /// Ends the turn without an answer of the agent.
    fn over(&mut self, end: End, out: &mut Outputs) {
        if !self.open {
            out.push(Output::Began(None));
        }
        let text = self.transcript.end(out);
        out.end(Ended::with(text, end));
    }

    /// Sends the prompt, which starts a turn.
    fn say(&mut self, out: &mut Outputs) {
        for (code, text) in std::mem::take(&mut self.warnings) {
            out.push(Output::Warn(code, text));
        }
        let retold = std::mem::take(&mut self.retold);
        if std::mem::take(&mut self.forgot) {
            self.prompt = retold;
        }
        self.transcript.begin();
        let text = TextContent::new(std::mem::take(&mut self.prompt));
        let params = PromptRequest::new(self.session.clone(), vec![ContentBlock::Text(text)]);
        self.ask(Step::Prompt, "session/prompt", &params, out);
    }

    /// Handles the response to the prompt, which ends the turn.
    fn prompted(&mut self, result: Reply, out: &mut Outputs) {
        let text = self.transcript.end(out);
        let end = match result {
            Ok(answer) => {
                self.count(&answer, out);
                ended(&answer, &text)
            }
            Err(err) => failed(&self.setup.name, err),
        };
        out.end(Ended::with(text, end));
    }

    /// Reports the usage of the turn.
    fn count(&mut self, answer: &Value, out: &mut Outputs) {
        let mut usage = usage::of_turn(answer).unwrap_or_default();
        let means = self.setup.options.turn_usage;
        let means = means.unwrap_or_else(|| self.setup.profile.turn_usage(&self.agent));
        if means == TurnUsage::LastCall {
            if self.setup.metered {
                // The meter counted all calls, so that a comparison would be wrong.
                usage = Usage::default();
            } else if !std::mem::replace(&mut self.told_last_call, true) {
                let text = format!(
                    "{} reports only the tokens of the last model call of each turn",
                    self.setup.name
                );
                out.push(Output::Warn("usage_incomplete", text));
            }
        }
        let cost = self.transcript.cost_micros.unwrap_or(self.cost_told);
        let cost_micros = cost.checked_sub(self.cost_told).filter(|more| *more > 0);
        self.cost_told = cost.max(self.cost_told);
        if usage != Usage::default() || cost_micros.is_some() {
            out.push(Output::Spent(Reported {
                usage,
                cost_micros,
                model: usage::model_of_turn(answer),
            }));
        }
    }

    fn notice(&mut self, method: &str, mut params: Value, out: &mut Outputs) {
        // Other methods that do not look like those of the protocol are extensions of the agent.
        if method != "session/update" {
            if method.starts_with("session/") || !method.contains(['/', '_', '$']) {
                out.push(Output::Unknown);
            }
            return;
        }
        let ours = params["sessionId"].as_str() == Some(self.session.as_str());
        if self.step != Step::Prompt || !ours {
            return;
        }
        let update = params.get_mut("update").map(Value::take);
        self.transcript.take(out, update.unwrap_or_default());
    }

    fn request(&mut self, id: Value, method: String, params: Value, out: &mut Outputs) {
        let permission = method == "session/request_permission";
        let served = match method.as_str() {
            "session/request_permission" => true,
            "fs/read_text_file" | "fs/write_text_file" => self.setup.serves.fs,
            "terminal/create"
            | "terminal/output"
            | "terminal/wait_for_exit"
            | "terminal/kill"
            | "terminal/release" => self.setup.serves.terminal,
            _ => false,
        };
        let wrong = |code, why: &str| Err(RpcError::new(code, why));
        if !served {
            let why = format!("the method `{}` is not supported", clip(&method, 200));
            return self.reply(&id, &wrong(RpcError::NO_METHOD, &why), out);
        }
        if self.cancelled || self.step != Step::Prompt {
            return self.reply(&id, &called_off(permission), out);
        }
        if params["sessionId"].as_str() != Some(self.session.as_str()) {
            let why = "the session id is not the current one";
            return self.reply(&id, &wrong(RpcError::BAD_PARAMS, why), out);
        }
        if !permission {
            // Earlier messages must precede the request in the log.
            self.transcript.flush(out);
            let ticket = Ticket::new(id.to_string(), json!({ "id": id }));
            return out.push(Output::Serve {
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
        let told = self.transcript.asked(out, request.tool_call);
        let data = json!({ "id": id, "options": request.options, "call": told.id.0 });
        out.push(Output::Judge {
            ticket: Ticket::new(id.to_string(), data),
            call: told.call(),
            may_differ: false,
        });
    }

    /// Sends the verdict about a call to the agent.
    fn judged(&mut self, mut ticket: Ticket, verdict: &Admitted, out: &mut Outputs) {
        let options: Vec<PermissionOption> =
            serde_json::from_value(ticket.data["options"].take()).unwrap_or_default();
        let call = ticket.data["call"].as_str().unwrap_or_default().into();
        let admitted = matches!(verdict, Admitted::Yes { .. });
        let (reply, allows) = permission::outcome(&options, admitted);
        self.transcript.judged(&call, admitted);
        // Without an option that allows the call, the agent receives no permission, and so no grant.
        if let Some(told) = self.transcript.open_call(&call).filter(|_| allows) {
            out.push(Output::Grant(call, grants(told, &self.setup.root)));
        }
        self.reply(&ticket.data["id"], &Ok(reply), out);
    }
}

impl Dialogue for AcpDialogue {
    fn program(&self) -> &str {
        &self.setup.name
    }

    fn input(&mut self, input: Input, out: &mut Outputs) {
        match input {
            Input::Prompt(prompt) => {
                self.prompt = prompt;
                if self.open {
                    self.say(out);
                } else {
                    let params = greeting(&self.setup);
                    self.ask(Step::Initialize, "initialize", &params, out);
                }
            }
            Input::Line(line) => match understood(line) {
                Heard::Response {
                    id: Some(id),
                    result,
                } if id == self.asked.0 => self.answered(result, out),
                // A response without a request, or a second one.
                Heard::Response { .. } | Heard::Odd => out.push(Output::Unknown),
                Heard::Told { method, params } => self.notice(&method, params, out),
                Heard::Request { id, method, params } => self.request(id, method, params, out),
            },
            Input::Judged(ticket, verdict) => self.judged(ticket, &verdict, out),
            Input::Served(ticket, reply) => self.reply(&ticket.data["id"], &reply, out),
            Input::Withdrawn(ticket) => {
                let permission = ticket.data.get("options").is_some();
                self.reply(&ticket.data["id"], &called_off(permission), out);
            }
            Input::Interrupt => {
                self.cancelled = true;
                if !self.session.is_empty() {
                    let params = json!({ "sessionId": self.session });
                    out.send(self.frames.notice("session/cancel", &params));
                }
                if self.step != Step::Prompt {
                    self.over(End::Cancelled, out);
                }
            }
            Input::Late(_) => {
                let (name, method) = (&self.setup.name, self.asked.1);
                let why = format!("{name} did not answer `{method}` in time");
                self.over(End::Broken(why), out);
            }
            Input::Exited(how) => {
                let (name, method) = (&self.setup.name, self.asked.1);
                let why = format!("{name} exited before it answered `{method}`, {how}");
                self.over(End::Broken(why), out);
            }
            _ => {}
        }
    }

    fn liken(&self, call: &ToolCall) -> Likeness {
        match self.transcript.open_call(&call.id) {
            Some(told) => told.likeness(&self.setup.root),
            None => unlike(Effect::Execute),
        }
    }

    fn finish(&mut self, out: &mut Outputs) {
        self.transcript.end(out);
        let dropped = std::mem::take(&mut self.transcript.dropped);
        if dropped > 0 {
            let text = format!(
                "{} produced {dropped} bytes above the limit of one turn; they were not logged",
                self.setup.name
            );
            out.push(Output::Warn("too_much_said", text));
        }
    }

    fn unread_warning(&self, unread: u64, unknown: u64) -> (&'static str, String) {
        let text = format!(
            "{} messages of {} were not understood and were ignored",
            unread.saturating_add(unknown),
            self.setup.name
        );
        ("not_understood", text)
    }

    fn max_unread(&self) -> usize {
        MAX_UNREAD
    }

    fn max_work(&self) -> usize {
        MAX_WORK
    }
}

/// The grants that follow from an allowed call.
fn grants(told: &Told, root: &Path) -> Vec<Grant> {
    // A text that was too long to be kept cannot be compared, and gives no grant.
    let shown = told.diffs.iter().filter_map(|(path, text)| {
        Some(Grant::Write {
            path: path.clone(),
            text: Some(text.clone()?),
        })
    });
    let mut all: Vec<Grant> = shown.collect();
    if told.diffs.is_empty() {
        let like = told.likeness(root).0.into_iter();
        let written = like.filter(|like| like.tool == "write_file" || like.tool == "edit_file");
        all.extend(written.filter_map(|like| {
            Some(Grant::Write {
                path: like.args["path"].as_str()?.to_owned(),
                text: None,
            })
        }));
    }
    all.extend(told.command().map(Grant::Run));
    all
}

fn called_off(permission: bool) -> Reply {
    if permission {
        return Ok(json!({ "outcome": { "outcome": "cancelled" } }));
    }
    Err(RpcError::new(RpcError::CANCELLED, "the turn was cancelled"))
}

/// The end of a turn, by the agent's stop reason.
fn ended(answer: &Value, text: &str) -> End {
    let reason = serde_json::from_value::<StopReason>(answer["stopReason"].clone());
    match reason {
        Ok(StopReason::EndTurn) => End::Done,
        Ok(StopReason::MaxTokens) => {
            End::OwnLimit("the answer reached the token limit of its model".to_owned())
        }
        Ok(StopReason::MaxTurnRequests) => {
            End::OwnLimit("the turn reached the maximum number of model calls".to_owned())
        }
        Ok(StopReason::Refusal) => {
            let said = if text.trim().is_empty() {
                "the agent's model refused the task"
            } else {
                text.trim()
            };
            End::Refused(clip(said, 2_000).into_owned())
        }
        Ok(StopReason::Cancelled) => End::Cancelled,
        _ => End::Broken(format!(
            "the turn ended with an unknown stop reason: {}",
            clip(&answer["stopReason"].to_string(), 80)
        )),
    }
}

/// The end of a turn that failed: an error of the model if the message is clear about it, else of the agent.
fn failed(name: &str, err: RpcError) -> End {
    let said = clip(&clean(&err.in_words()), 2_000).into_owned();
    let message = format!("{name} reports: {said}");
    let said = said.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
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
        return End::Broken(format!("{message} ({})", err.code));
    };
    End::Provider(ProviderError {
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
            serves: Serves {
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
