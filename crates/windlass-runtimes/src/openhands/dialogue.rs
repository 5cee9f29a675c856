//! The agent server of OpenHands over the bridge of ours: requests by their numbers, events as they come. A conversation is
//! begun or resumed, then each prompt is one run of it. The server waits with all actions of a step for one answer, so that
//! one refused call refuses the step.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use windlass_core::event::DeltaOf;
use windlass_core::message::{Part, ToolCall, ToolResult};
use windlass_core::tool::Admitted;

use super::calls::{call, cwd, kind, likeness, result};
use super::ended::{Meter, end};
use crate::agent::End;
use crate::dialogue::{Dialogue, Ended, Input, Output, Outputs, Ticket};
use crate::json::{self, text};
use crate::likeness::Likeness;

/// How long the server may take to start: it reads some hundred megabytes of Python, from a disk that may be cold.
const START: Duration = Duration::from_secs(180);
/// How long everything up to the first prompt may take then.
const BEGIN: Duration = Duration::from_secs(60);
/// The longest name of a conversation.
const MAX_ID: usize = 64;
/// Calls of one turn that are kept track of.
const MAX_CALLS: usize = 10_000;
/// Requests of one turn that wait for their answer.
const MAX_ASKED: usize = 100;
/// Events that are known, and from which nothing follows here.
const PASSED: &[&str] = &[
    "SystemPromptEvent",
    "PauseEvent",
    "InterruptEvent",
    "TokenEvent",
    "Condensation",
    "CondensationRequest",
    "CondensationSummaryEvent",
    "LLMCompletionLogEvent",
    "HookExecutionEvent",
];
const FORGOT: &str = "OpenHands does not know the conversation any more that it was to go on with, or it was begun with \
                      other tools or in another directory; it begins a new one and is told what was said before, shortened";

/// What a conversation with OpenHands is made from.
#[derive(Default)]
pub(super) struct OpenHandsSetup {
    /// The conversation to resume.
    pub(super) resume: Option<String>,
    /// What a new conversation is begun with, and the terms by which an earlier one is known to be alike.
    pub(super) conversation: Value,
    pub(super) terms: String,
    /// The model.
    pub(super) llm: Value,
    /// Where the workspace is.
    pub(super) root: PathBuf,
    /// The most steps of one prompt.
    pub(super) max_iterations: Option<u32>,
}

/// How far the conversation is.
#[derive(Default)]
enum Phase {
    /// The server starts.
    #[default]
    Starting,
    /// It is asked about the conversation to resume.
    Looking(String),
    /// Steps that resume it, each with what it is asked.
    Resuming(VecDeque<(&'static str, Value)>),
    /// It begins a new one.
    Creating,
    /// It is asked for the events.
    Following,
    /// It takes prompts.
    Open,
}

/// A server with one conversation, over all its turns.
#[derive(Default)]
pub(super) struct OpenHandsDialogue {
    setup: OpenHandsSetup,
    phase: Phase,
    /// Requests without an answer, and what they were for.
    asked: HashMap<u64, &'static str>,
    count: u64,
    /// The conversation.
    id: String,
    forgot: bool,
    /// Why it could not begin, once that is known.
    failed: Option<String>,
    /// The prompt, and the same with what was said before.
    prompt: String,
    pub(super) retold: String,
    meter: Meter,
    /// Where its terminal is, where that is not the workspace.
    cwd: Option<String>,
    /// The server was told to run, and did not stop yet.
    runs: bool,
    /// Calls that it waits with, and those of the step that is being judged.
    pending: Vec<ToolCall>,
    judging: VecDeque<ToolCall>,
    others: usize,
    seen: HashSet<String>,
    /// Its last words.
    text: String,
    error: Option<Value>,
    steps: u32,
    cancelled: bool,
}

impl OpenHandsDialogue {
    pub(super) fn new(setup: OpenHandsSetup) -> Self {
        Self {
            setup,
            ..Self::default()
        }
    }

    fn ask(&mut self, what: &'static str, mut request: Value, out: &mut Outputs) {
        self.count += 1;
        request["id"] = json!(self.count);
        self.asked.insert(self.count, what);
        out.send(request);
    }

    /// Asks for something of the conversation.
    fn post(&mut self, what: &'static str, body: &Value, out: &mut Outputs) {
        let path = format!("/api/conversations/{}/{what}", self.id);
        let request = json!({ "id": 0, "method": "POST", "path": path, "body": body });
        self.ask(what, request, out);
    }

    fn over(&mut self, end: End, out: &mut Outputs) {
        out.end(Ended::with(std::mem::take(&mut self.text), end));
    }

    /// The conversation could not begin: the program is ended, and how it ended is a part of why.
    fn fail(&mut self, why: String, out: &mut Outputs) {
        self.failed.get_or_insert(why);
        out.push(Output::Abandon);
    }

    /// The server answers; the next step of beginning.
    fn ready(&mut self, out: &mut Outputs) {
        out.push(Output::Within(Some(BEGIN)));
        match self.setup.resume.take() {
            Some(id) if is_id(&id) => {
                let path = format!("/api/conversations/{id}");
                let request = json!({ "id": 0, "method": "GET", "path": path, "body": null });
                self.ask("resume", request, out);
                self.phase = Phase::Looking(id);
            }
            resume => self.create(resume.is_some(), out),
        }
    }

    fn create(&mut self, forgot: bool, out: &mut Outputs) {
        self.forgot = forgot;
        let body = self.setup.conversation.take();
        let request =
            json!({ "id": 0, "method": "POST", "path": "/api/conversations", "body": body });
        self.ask("begin", request, out);
        self.phase = Phase::Creating;
    }

    /// An answer while the conversation is begun.
    fn begun(&mut self, reply: &Reply, out: &mut Outputs) {
        match std::mem::replace(&mut self.phase, Phase::Starting) {
            Phase::Looking(id) => {
                let terms = reply
                    .body
                    .get("tags")
                    .and_then(|tags| tags.get("windlass")?.as_str());
                if !reply.is_good() || terms != Some(&self.setup.terms) {
                    return self.create(true, out);
                }
                self.id = id;
                // What it took earlier was told when it was spent.
                if let Some(stats) = reply.body.get("stats") {
                    self.meter.more(stats);
                }
                // Actions that an earlier process left waiting are refused first: the server would take the next run
                // for a yes.
                let refused = json!({ "accept": false, "reason": "stopped before it was run" });
                let policy = json!({ "policy": { "kind": "AlwaysConfirm" } });
                self.resume_on(
                    VecDeque::from([
                        ("events/respond_to_confirmation", refused),
                        ("confirmation_policy", policy),
                        ("switch_llm", json!({ "llm": self.setup.llm })),
                    ]),
                    out,
                );
            }
            Phase::Resuming(steps) if reply.is_good() => self.resume_on(steps, out),
            Phase::Resuming(_) => {
                self.fail(
                    reply.complaint("it does not go on with its conversation"),
                    out,
                );
            }
            Phase::Creating => {
                let id = json::some_text(&reply.body, "id");
                match id.filter(|id| reply.is_good() && is_id(id)) {
                    Some(id) => {
                        id.clone_into(&mut self.id);
                        self.follow(out);
                    }
                    None => self.fail(reply.complaint("it began no conversation"), out),
                }
            }
            Phase::Following if reply.is_good() => {
                self.phase = Phase::Open;
                out.push(Output::Within(None));
                out.push(Output::Began(Some(self.id.clone())));
                if std::mem::take(&mut self.forgot) {
                    out.push(Output::Warn("session_lost", FORGOT.to_owned()));
                    self.prompt = std::mem::take(&mut self.retold);
                }
                self.say(out);
            }
            Phase::Following => {
                self.fail(reply.complaint("its events cannot be followed"), out);
            }
            Phase::Starting | Phase::Open => out.push(Output::Unknown),
        }
    }

    fn resume_on(&mut self, mut steps: VecDeque<(&'static str, Value)>, out: &mut Outputs) {
        match steps.pop_front() {
            Some((what, body)) => {
                self.post(what, &body, out);
                self.phase = Phase::Resuming(steps);
            }
            None => self.follow(out),
        }
    }

    fn follow(&mut self, out: &mut Outputs) {
        self.phase = Phase::Following;
        self.ask("follow", json!({ "id": 0, "follow": self.id }), out);
    }

    /// Says the prompt. A turn begins.
    fn say(&mut self, out: &mut Outputs) {
        let text = std::mem::take(&mut self.prompt);
        let content = json!([{ "type": "text", "text": text }]);
        let body = json!({ "role": "user", "content": content, "run": true });
        self.post("events", &body, out);
        self.runs = true;
    }

    fn line(&mut self, mut line: Value, out: &mut Outputs) {
        let open = matches!(self.phase, Phase::Open);
        if line.get("ready").is_some() {
            match self.phase {
                Phase::Starting => self.ready(out),
                _ => out.push(Output::Unknown),
            }
        } else if let Some(why) = json::some_text(&line, "failed") {
            let why = why.to_owned();
            match open {
                true => self.over(End::Broken(why), out),
                false => self.fail(why, out),
            }
        } else if let Some(event) = line.get_mut("event") {
            // How things stood before the first prompt is no news.
            let event = event.take();
            if open {
                self.event(&event, out);
            }
        } else {
            let number = |key: &str| line.get(key).and_then(Value::as_u64);
            let (Some(id), Some(status)) = (number("id"), number("status")) else {
                return out.push(Output::Unknown);
            };
            let part = if status == 0 { "error" } else { "body" };
            let body = line.get_mut(part).map(Value::take).unwrap_or_default();
            let what = self.asked.remove(&id);
            let reply = Reply { status, body };
            match (open, what) {
                (true, what) => self.replied(what, &reply, out),
                (false, Some(_)) => self.begun(&reply, out),
                (false, None) => out.push(Output::Unknown),
            }
        }
        if open && self.asked.len() > MAX_ASKED {
            let why = "it goes on and answers nothing that it is asked".to_owned();
            self.over(End::Broken(why), out);
        }
    }

    /// An answer to a request of a turn.
    fn replied(&mut self, what: Option<&str>, reply: &Reply, out: &mut Outputs) {
        match what {
            Some("interrupt") => self.over(End::Cancelled, out),
            _ if self.cancelled => {}
            Some("events/respond_to_confirmation") if reply.is_good() => self.run(out),
            Some(_) if reply.is_good() => {}
            Some(what) => {
                let why = reply.complaint(&format!("it refused `{what}`"));
                self.over(End::Broken(why), out);
            }
            // The way of its events is one request that ends when it is lost.
            None if reply.status == 0 => {
                let why = reply.complaint("its events were lost");
                self.over(End::Broken(why), out);
            }
            None => out.push(Output::Unknown),
        }
    }

    /// Lets it go on; what it waits with is run.
    fn run(&mut self, out: &mut Outputs) {
        self.runs = true;
        self.post("run", &Value::Null, out);
    }

    fn event(&mut self, event: &Value, out: &mut Outputs) {
        match kind(event) {
            "StreamingDeltaEvent" => {
                out.delta(DeltaOf::Text, text(event, "content"));
                out.delta(DeltaOf::Reasoning, text(event, "reasoning_content"));
            }
            "ActionEvent" => self.acts(event, out),
            "MessageEvent" if text(event, "source") == "agent" => self.speaks(event, out),
            "MessageEvent" => {}
            "ObservationEvent" | "UserRejectObservation" | "AgentErrorEvent" => {
                self.came_of(event, out);
            }
            "ConversationErrorEvent" => self.error = Some(event.clone()),
            "ConversationStateUpdateEvent" => self.stands(event, out),
            "ServerErrorEvent" => {
                let why = format!("its server failed: {}", text(event, "detail"));
                self.over(End::Broken(why), out);
            }
            known if PASSED.contains(&known) => {}
            _ => out.push(Output::Unknown),
        }
    }

    /// An action of the agent. It is judged when the whole step is known.
    fn acts(&mut self, event: &Value, out: &mut Outputs) {
        let of = text(event, "llm_response_id").to_owned();
        let mut part = |part: Part| out.push(Output::Part(of.clone(), part));
        let thought = |text: &str| Part::reasoning(text.to_owned());
        if !text(event, "reasoning_content").is_empty() {
            part(thought(text(event, "reasoning_content")));
        }
        let said = json::texts(event, "thought");
        if !said.trim().is_empty() {
            part(Part::Text { text: said });
        }
        let action = event.get("action").unwrap_or(&Value::Null);
        match kind(action) {
            // Words, in the form of a call.
            "FinishAction" => {
                text(action, "message").clone_into(&mut self.text);
                let text = self.text.clone();
                part(Part::Text { text });
            }
            "ThinkAction" => part(thought(text(action, "thought"))),
            _ => {
                let call = call(event).filter(|call| {
                    self.seen.len() < MAX_CALLS && self.seen.insert(call.id.0.clone())
                });
                let Some(call) = call else {
                    return out.push(Output::Unknown);
                };
                if action.is_object() {
                    self.pending.push(call.clone());
                }
                part(Part::Call(call));
            }
        }
    }

    fn speaks(&mut self, event: &Value, out: &mut Outputs) {
        out.push(Output::Flush);
        let message = event.get("llm_message").unwrap_or(&Value::Null);
        let thought = text(message, "reasoning_content");
        if !thought.is_empty() {
            out.part(Part::reasoning(thought.to_owned()));
        }
        self.text = json::texts(message, "content");
        if !self.text.is_empty() {
            let text = self.text.clone();
            out.part(Part::Text { text });
        }
        out.push(Output::Flush);
    }

    /// What came of a call.
    fn came_of(&mut self, event: &Value, out: &mut Outputs) {
        let id = text(event, "tool_call_id");
        if let Some(path) = cwd(event) {
            self.cwd = Some(path.to_owned()).filter(|path| self.setup.root != *path);
        }
        self.pending.retain(|pending| pending.id.0 != id);
        let call = ToolCall::new(id, String::new(), Value::Null);
        let result = match kind(event) {
            // The one that was refused has its result.
            "UserRejectObservation" => ToolResult::not_run(
                &call,
                "another call of the same step was refused, and OpenHands takes one answer for a whole step",
            ),
            _ => result(event, &call),
        };
        let ran = kind(event) == "ObservationEvent";
        out.push(Output::Result { result, ran });
    }

    /// How the conversation stands. Only the whole state is told after everything before it was.
    fn stands(&mut self, event: &Value, out: &mut Outputs) {
        let value = event.get("value").unwrap_or(&Value::Null);
        let key = text(event, "key");
        let stats = match key {
            "stats" => Some(value),
            "full_state" => value.get("stats"),
            _ => None,
        };
        if let Some(more) = stats.and_then(|stats| self.meter.more(stats)) {
            out.push(Output::Spent(more));
        }
        let status = text(value, "execution_status");
        if key != "full_state" || !self.runs || status == "running" {
            return;
        }
        self.runs = false;
        out.push(Output::Flush);
        if let Some(end) = end(status, self.error.as_ref(), self.cancelled) {
            return self.over(end, out);
        }
        if self.cancelled {
            return self.over(End::Cancelled, out);
        }
        self.steps += 1;
        if let Some(most) = self.setup.max_iterations.filter(|most| self.steps > *most) {
            let why = format!("it took the {most} steps of `max_iterations`");
            return self.over(End::OwnLimit(why), out);
        }
        self.judging = std::mem::take(&mut self.pending).into();
        self.others = self.judging.len().saturating_sub(1);
        self.judge_next(out);
    }

    /// Has the next call judged that the server waits with; once all are allowed, it may run them.
    fn judge_next(&mut self, out: &mut Outputs) {
        let Some(call) = self.judging.pop_front() else {
            // A run is the yes. The other way to say it says nothing when it was not heard.
            return self.run(out);
        };
        let ticket = Ticket::new(call.id.0.clone(), json!(call.name));
        out.push(Output::Judge {
            ticket,
            call,
            may_differ: false,
        });
    }

    fn judged(&mut self, ticket: &Ticket, verdict: Admitted, out: &mut Outputs) {
        let Admitted::No { category, text } = verdict else {
            return self.judge_next(out);
        };
        self.judging.clear();
        let mut reason = format!("[{}] {text}", category.word());
        if self.others > 0 {
            reason.push_str(&format!(
                " This was about the call of `{}`. None of the calls of this step was run; make those again that you \
                 still need, without it.",
                ticket.data.as_str().unwrap_or_default()
            ));
        }
        let body = json!({ "accept": false, "reason": reason });
        self.post("events/respond_to_confirmation", &body, out);
    }
}

impl Dialogue for OpenHandsDialogue {
    fn program(&self) -> &str {
        "OpenHands"
    }

    fn input(&mut self, input: Input, out: &mut Outputs) {
        let open = matches!(self.phase, Phase::Open);
        match input {
            Input::Prompt(prompt) => {
                self.prompt = prompt;
                self.asked.clear();
                self.pending.clear();
                self.seen.clear();
                self.text.clear();
                (self.error, self.steps) = (None, 0);
                if open {
                    return self.say(out);
                }
                out.push(Output::Within(Some(START)));
                let text = "OpenHands starts its server, which may take a minute.\n";
                out.delta(DeltaOf::Reasoning, text);
            }
            Input::Line(line) => self.line(line, out),
            Input::Judged(ticket, verdict) => self.judged(&ticket, verdict, out),
            Input::Interrupt if open => {
                self.cancelled = true;
                self.judging.clear();
                self.post("interrupt", &Value::Null, out);
            }
            Input::Interrupt => {
                out.push(Output::Began(None));
                self.over(End::Cancelled, out);
            }
            Input::Late(_) => {
                let (what, time) = match self.phase {
                    Phase::Starting => ("start", START),
                    _ => ("begin", BEGIN),
                };
                let why = format!("it did not {what} within {} seconds", time.as_secs());
                self.fail(why, out);
            }
            Input::Exited(how) if open => {
                let why = format!("its server ended without an answer, {how}");
                self.over(End::Broken(why), out);
            }
            Input::Exited(how) => {
                let failed = self.failed.take();
                let why = failed.unwrap_or_else(|| "it ended before it answered".to_owned());
                let why = format!("its server could not be used: {why}; it ended {how}");
                out.push(Output::Began(None));
                self.over(End::Broken(why), out);
            }
            _ => {}
        }
    }

    fn liken(&self, call: &ToolCall) -> Likeness {
        likeness(&call.name, &call.args, self.cwd.as_deref())
    }
}

/// An answer of the server.
#[derive(Debug)]
struct Reply {
    /// The status; 0 where the server could not be asked.
    status: u64,
    body: Value,
}

impl Reply {
    fn is_good(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// What is wrong, for a person.
    fn complaint(&self, what: &str) -> String {
        let text = match &self.body {
            Value::String(text) => text.clone(),
            body => body.get("detail").unwrap_or(body).to_string(),
        };
        let text = &text[..text.floor_char_boundary(500)];
        format!("{what}: {text} ({})", self.status)
    }
}

/// Whether it can be a part of a path.
fn is_id(id: &str) -> bool {
    !id.is_empty()
        && id.len() <= MAX_ID
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialogue::testing::play;

    #[test]
    fn a_recorded_turn_is_played_without_a_program() {
        let recording = include_str!("../../tests/fixtures/openhands.jsonl");
        let begun = recording.lines().find_map(|line| {
            let mut line: Value = serde_json::from_str(line).ok()?;
            line["msg"]["body"].get("agent")?;
            Some(line["msg"]["body"].take())
        });
        let mut dialogue = OpenHandsDialogue::new(OpenHandsSetup {
            resume: None,
            conversation: begun.unwrap_or_default(),
            terms: String::new(),
            llm: Value::Null,
            root: PathBuf::from("/workspace"),
            max_iterations: None,
        });
        let facts = play(&mut dialogue, "work", recording);
        let expect = [
            "began Some(\"3f9d6f54-7fe9-4c87-92ec-2cf46fc55827\")",
            "judge terminal: true",
            "judge file_editor: true",
            "end Done: Done. The fake model says hello.",
        ];
        assert_eq!(facts, expect);
    }
}
