//! A protocol of foreign agents as a pure state machine: lines of the program and decisions about its requests go in,
//! lines to the program and events for the log come out. A dialogue does no I/O and has no clock. The driver
//! (`driver.rs`) does both for every protocol, so that recorded transcripts suffice to test a dialogue.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::Value;
use windlass_core::event::DeltaOf;
use windlass_core::id::CallId;
use windlass_core::message::{ErrorCategory, Message, Part, ToolCall, ToolResult};
use windlass_core::tool::{Admitted, Effect, ForeignCall};
use windlass_core::workspace::{ProcessEnd, ProcessError};

use crate::agent::{AgentAnswer, ReportedUsage, TurnEndReason};
use crate::equivalent_calls::{EquivalentCalls, no_equivalent};
use crate::services::{Grant, ServiceReply};

/// A protocol, for as long as its program runs. The trait has many methods, because each difference between protocols
/// that the driver must know is a method with a default; a dialogue implements three to seven of them.
pub trait Dialogue: Send {
    /// The program's name for warnings.
    fn program(&self) -> &str;

    /// Handles an event and appends its consequences to `out`.
    fn input(&mut self, input: DialogueInput, out: &mut OutputQueue);

    /// The Windlass calls that a call of the agent corresponds to, so that the same rules judge it.
    fn equivalent_calls(&self, _call: &ToolCall) -> EquivalentCalls {
        no_equivalent(Effect::Execute)
    }

    fn framing(&self) -> OutputFraming {
        OutputFraming::Json
    }

    /// Whether the program saves its conversation and exits at the end of its input. Other programs are killed.
    fn exits_at_eof(&self) -> bool {
        false
    }

    /// Whether the program takes another prompt now and can be kept.
    fn accepts_prompt(&self) -> bool {
        false
    }

    /// The warning about a conversation that the program has lost.
    fn lost_session_warning(&self) -> String {
        format!(
            "{} no longer has the conversation that it was to resume; it starts a new one with a shortened copy of the \
             log",
            self.program()
        )
    }

    /// Called at the end of the turn, for outputs that are still pending.
    fn finish(&mut self, _out: &mut OutputQueue) {}

    /// The warning about lines that are too long or not JSON (`unread`) and about messages of unknown kinds
    /// (`unknown`).
    fn skipped_lines_warning(&self, unread: u64, unknown: u64) -> (&'static str, String) {
        let text = format!(
            "{unread} lines of {} could not be parsed and {unknown} were of an unknown kind; they were ignored",
            self.program()
        );
        ("unread_lines", text)
    }

    /// Requests that may be processed concurrently. Above this number the driver stops reading from the program.
    fn max_concurrent_requests(&self) -> usize {
        usize::MAX
    }

    /// Whether the agent may reuse a call id within the session. The log then has a unique id.
    fn reuses_call_ids(&self) -> bool {
        false
    }

    /// Bytes that may wait for the program to read them. Above this number the driver stops reading from the program.
    fn max_unsent(&self) -> usize {
        usize::MAX
    }
}

/// The format of a program's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputFraming {
    /// Each line is JSON. Other lines are counted and ignored.
    Json,
    /// Plain lines until the program exits.
    Text,
}

/// A request of the agent that waits for its answer.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestTicket {
    /// The agent's id of the request.
    pub id: String,
    /// The data with which the dialogue builds the answer. The driver does not use it.
    pub data: Value,
}

impl RequestTicket {
    /// A request with the data for its answer.
    pub fn new(id: impl Into<String>, data: Value) -> Self {
        let id = id.into();
        Self { id, data }
    }
}

/// An event that a dialogue handles.
#[derive(Debug)]
pub enum DialogueInput {
    /// The program runs and has to receive this prompt.
    Prompt(String),
    Line(Value),
    /// The program wrote a line; only with [`OutputFraming::Text`].
    Text(Vec<u8>),
    /// The program exited; only with [`OutputFraming::Text`]. Contains the end of its standard error.
    ProcessEnded(Result<ProcessEnd, ProcessError>, String),
    /// The contents of the files that [`DialogueOutput::ReadHome`] named; empty for a missing file.
    HomeFiles(Vec<String>),
    /// The verdict for [`DialogueOutput::Judge`].
    Judged(RequestTicket, Admitted),
    /// The result for [`DialogueOutput::Run`].
    ToolRan(RequestTicket, ToolResult),
    /// The reply for [`DialogueOutput::Serve`].
    Served(RequestTicket, ServiceReply),
    /// The run was cancelled before this request was decided. The program still needs an answer.
    Withdrawn(RequestTicket),
    /// The run was cancelled. The program has [`crate::agent::CANCEL_GRACE`] to end its turn.
    Interrupt,
    /// The timeout of [`DialogueOutput::SetTimeout`] expired. Contains the end of the program's standard error.
    TimedOut(String),
    /// The program closed its output without an answer. Describes its exit and contains the end of its standard error.
    Exited(String),
}

/// An action that a dialogue requests from the driver.
#[derive(Debug, PartialEq)]
pub enum DialogueOutput {
    Send(Value),
    /// Write this to the program, then close its stdin.
    SendLast(String),
    /// Send a termination signal to the program and all its descendants.
    Terminate,
    /// Read these files from the agent's home.
    ReadHome(&'static [&'static str]),
    /// The agent's own id of the conversation; `None` if it cannot be resumed.
    SessionStarted(Option<String>),
    /// Display a piece of an answer.
    Delta(DeltaOf, String),
    /// Display the newest output of a call.
    Progress(CallId, String),
    /// A part of the message with this id. Parts of one message are logged together.
    Part(String, Part),
    /// Log the collected parts.
    Flush,
    /// Log a message that no model wrote.
    Note(Message),
    /// Log a call, unless it is known.
    Announce(ToolCall),
    /// Have a call judged. Repeated questions get the first verdict. A call that differs from the announced one is
    /// refused, unless `may_differ` allows the first question to correct the arguments.
    Judge {
        /// The driver returns it with [`DialogueInput::Judged`].
        ticket: RequestTicket,
        call: ToolCall,
        may_differ: bool,
    },
    /// Run a Windlass tool. Read-only tools run in parallel, all others one by one.
    Run {
        /// The driver returns it with [`DialogueInput::ToolRan`].
        ticket: RequestTicket,
        call: ToolCall,
    },
    /// Serve a request for a file or a terminal. The gate judges it like a Windlass call, unless a grant covers it.
    Serve {
        /// The driver returns it with [`DialogueInput::Served`].
        ticket: RequestTicket,
        /// A method of the Agent Client Protocol.
        method: String,
        params: Value,
    },
    /// A call was allowed, so that these requests need no further decision.
    Grant(CallId, Vec<Grant>),
    /// A call has ended, and its grants with it.
    Revoke(CallId),
    /// The program withdrew the request with this id. It gets no answer.
    Forget(String),
    /// Log that the agent runs this call without asking, or an update of such a call.
    Observed(ForeignCall),
    /// The result of a call that ran in a terminal of the client. The output of the terminal is the text of the result.
    TerminalResult {
        call: CallId,
        terminal: String,
        failed: Option<ErrorCategory>,
    },
    /// The result of a call.
    Result {
        /// The driver sets the name of the call.
        result: ToolResult,
        /// Whether the agent executed the call, with or without asking.
        ran: bool,
    },
    /// Spending that the agent reports.
    Spent(ReportedUsage),
    /// Warn the user, with a code and a text.
    Warn(&'static str, String),
    /// A line of an unknown kind.
    Unknown,
    /// Set the timeout for the next line; `None` removes it.
    SetTimeout(Option<Duration>),
    /// End the program, and report its exit with [`DialogueInput::Exited`].
    Abandon,
    End(TurnResult),
}

/// The end of a turn.
#[derive(Debug, PartialEq)]
pub enum TurnResult {
    Answered(AgentAnswer),
    /// The program does not have the conversation that it was to resume.
    SessionLost,
}

impl TurnResult {
    /// A turn that failed without an answer.
    pub(crate) fn broken(why: impl Into<String>) -> Self {
        Self::with("", TurnEndReason::Broken(why.into()))
    }

    /// A turn that ended with this last message.
    pub(crate) fn with(text: impl Into<String>, end: TurnEndReason) -> Self {
        let (text, output) = (text.into(), None);
        Self::Answered(AgentAnswer { text, output, end })
    }
}

/// A queue of outputs.
#[derive(Debug, Default)]
pub struct OutputQueue(VecDeque<DialogueOutput>);

impl OutputQueue {
    /// Appends an output to the queue.
    pub fn push(&mut self, output: DialogueOutput) {
        self.0.push_back(output);
    }

    /// Removes the oldest output from the queue.
    pub fn pop(&mut self) -> Option<DialogueOutput> {
        self.0.pop_front()
    }

    pub(crate) fn send(&mut self, line: Value) {
        self.push(DialogueOutput::Send(line));
    }

    pub(crate) fn end(&mut self, ended: TurnResult) {
        self.push(DialogueOutput::End(ended));
    }

    pub(crate) fn delta(&mut self, of: DeltaOf, text: &str) {
        if !text.is_empty() {
            self.push(DialogueOutput::Delta(of, text.to_owned()));
        }
    }

    /// Pushes the result of a call. `ran` tells whether the agent executed the call.
    pub(crate) fn result(
        &mut self,
        call: &str,
        text: String,
        failed: Option<ErrorCategory>,
        ran: bool,
    ) {
        let call = ToolCall::new(call, String::new(), Value::Null);
        let result = match failed {
            Some(category) => ToolResult::failed(&call, category, &text),
            None => ToolResult::done(&call, text),
        };
        self.push(DialogueOutput::Result { result, ran });
    }

    /// Pushes a part of the current message.
    pub(crate) fn part(&mut self, part: Part) {
        self.push(DialogueOutput::Part(String::new(), part));
    }

    /// Pushes a text that completes the current message.
    pub(crate) fn say(&mut self, text: String) {
        self.part(Part::Text { text });
        self.push(DialogueOutput::Flush);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(crate) mod testing {
    //! Plays recorded transcripts through a dialogue, without a program, a clock or waiting.

    use super::*;

    /// Plays a recording (`{"dir": "<" | ">", "msg": …}` per line) and returns the outputs. The dialogue must send each
    /// line of the client in the recording, in order. Calls get the decisions of the recording.
    pub(crate) fn play(dialogue: &mut dyn Dialogue, prompt: &str, recording: &str) -> Vec<String> {
        let mut player = TranscriptPlayer {
            dialogue,
            sent: VecDeque::new(),
            facts: Vec::new(),
        };
        let lines: Vec<Value> = recording
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        player.input(DialogueInput::Prompt(prompt.to_owned()), &lines);
        for (at, line) in lines.iter().enumerate() {
            match line["dir"].as_str() {
                Some("<") => player.input(DialogueInput::Line(line["msg"].clone()), &lines[at..]),
                Some(">") => {
                    if player.sent.is_empty() {
                        // Only a cancelled run makes the client send a line without a request.
                        player.input(DialogueInput::Interrupt, &lines[at..]);
                    }
                    let sent = player.sent.pop_front();
                    let sent = sent.unwrap_or_else(|| panic!("not sent: {}", line["msg"]));
                    assert!(contains(&sent, &line["msg"]), "{sent}\n{}", line["msg"]);
                }
                _ => {}
            }
        }
        player.facts
    }

    struct TranscriptPlayer<'a> {
        dialogue: &'a mut dyn Dialogue,
        sent: VecDeque<Value>,
        facts: Vec<String>,
    }

    impl TranscriptPlayer<'_> {
        fn input(&mut self, input: DialogueInput, rest: &[Value]) {
            let mut out = OutputQueue::default();
            self.dialogue.input(input, &mut out);
            while let Some(output) = out.pop() {
                match output {
                    DialogueOutput::Send(line) => self.sent.push_back(line),
                    DialogueOutput::Judge { ticket, call, .. } => {
                        let verdict = verdict(rest);
                        let yes = matches!(verdict, Admitted::Yes { .. });
                        self.facts.push(format!("judge {}: {yes}", call.name));
                        self.dialogue
                            .input(DialogueInput::Judged(ticket, verdict), &mut out);
                    }
                    DialogueOutput::Run { ticket, call } => {
                        self.facts.push(format!("run {}", call.name));
                        let result = ToolResult::done(&call, "done");
                        self.dialogue
                            .input(DialogueInput::ToolRan(ticket, result), &mut out);
                    }
                    DialogueOutput::Serve { ticket, method, .. } => {
                        self.facts.push(format!("serve {method}"));
                        let reply = Ok(serde_json::json!({}));
                        self.dialogue
                            .input(DialogueInput::Served(ticket, reply), &mut out);
                    }
                    DialogueOutput::SessionStarted(session) => {
                        self.facts.push(format!("began {session:?}"))
                    }
                    DialogueOutput::End(TurnResult::Answered(answer)) => {
                        self.facts
                            .push(format!("end {:?}: {}", answer.end, answer.text));
                    }
                    DialogueOutput::End(TurnResult::SessionLost) => {
                        self.facts.push("forgotten".to_owned())
                    }
                    _ => {}
                }
            }
        }
    }

    /// The client's decision in the recording: a refusal if the next line that the client sends is one.
    fn verdict(rest: &[Value]) -> Admitted {
        let next = rest.iter().find(|line| line["dir"] == ">");
        let message = next.map(|line| line["msg"].to_string()).unwrap_or_default();
        match ["\"deny\"", "\"decline\""]
            .iter()
            .any(|no| message.contains(no))
        {
            true => Admitted::No {
                category: ErrorCategory::Blocked,
                text: "no".to_owned(),
            },
            false => Admitted::Yes {
                writes: Vec::new(),
                rule: "yes".to_owned(),
            },
        }
    }

    /// Fields whose text is a constant of a protocol. Other texts may differ.
    const CONSTANTS: [&str; 12] = [
        "method",
        "type",
        "subtype",
        "kind",
        "jsonrpc",
        "role",
        "status",
        "decision",
        "behavior",
        "outcome",
        "stopReason",
        "action",
    ];

    /// Whether a value contains everything in another value, with the same constants.
    fn contains(value: &Value, wanted: &Value) -> bool {
        match (value, wanted) {
            (Value::Object(value), Value::Object(wanted)) => wanted.iter().all(|(key, wanted)| {
                let constant = wanted.is_string() && CONSTANTS.contains(&key.as_str());
                value
                    .get(key)
                    .is_some_and(|value| value == wanted || !constant && contains(value, wanted))
            }),
            (Value::Array(value), Value::Array(wanted)) => {
                value.len() == wanted.len()
                    && value
                        .iter()
                        .zip(wanted)
                        .all(|(value, wanted)| contains(value, wanted))
            }
            (Value::String(_), Value::String(_)) => true,
            (value, wanted) => value == wanted,
        }
    }
}
