//! A protocol of foreign agents as a pure state machine: lines of the program and decisions about its requests go in,
//! lines to the program and facts for the log come out. A dialogue opens nothing, waits for nothing and knows no clock;
//! The driver (`driver.rs`) does all of that for every protocol, so that a dialogue is tested by recorded transcripts alone.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::Value;
use windlass_core::event::DeltaOf;
use windlass_core::id::CallId;
use windlass_core::message::{ErrorCategory, Message, Part, ToolCall, ToolResult};
use windlass_core::tool::{Admitted, Effect, ForeignCall};
use windlass_core::workspace::{ProcessEnd, ProcessError};

use crate::agent::{Answer, End, Reported};
use crate::likeness::{Likeness, unlike};
use crate::services::{Grant, Reply};

/// A protocol, for as long as its program runs. It has more than eight methods, because every difference between
/// protocols that the driver must know is one with a default: a dialogue writes three to seven of them.
pub trait Dialogue: Send {
    /// What people call the program, in warnings.
    fn program(&self) -> &str;

    /// Takes what happened; says what follows from it.
    fn input(&mut self, input: Input, out: &mut Outputs);

    /// Which of our calls a call of the agent is like, so that the same rules judge it.
    fn liken(&self, _call: &ToolCall) -> Likeness {
        unlike(Effect::Execute)
    }

    /// How its output is read.
    fn framing(&self) -> Framing {
        Framing::Json
    }

    /// Whether the program ends when its input does, and writes down what it remembers before. Others are killed.
    fn ends_with_input(&self) -> bool {
        false
    }

    /// Whether the program can be kept, because it takes another prompt now.
    fn takes_another(&self) -> bool {
        false
    }

    /// The warning about a conversation that the program forgot.
    fn forgot_warning(&self) -> String {
        format!(
            "{} does not know the conversation any more that it was to go on with; it begins a new one and is told what \
             was said before, shortened",
            self.program()
        )
    }

    /// The turn is over, however it ended: what was not said yet.
    fn finish(&mut self, _out: &mut Outputs) {}

    /// The warning about lines that could not be read, and such that are not understood.
    fn unread_warning(&self, unread: u64, unknown: u64) -> (&'static str, String) {
        let text = format!(
            "{unread} lines of {} could not be read, and {unknown} were of a kind that is not known here; they were \
             passed over",
            self.program()
        );
        ("unread_lines", text)
    }

    /// Requests that may be under way at a time before the program is not read from.
    fn max_work(&self) -> usize {
        usize::MAX
    }

    /// Whether the agent may use the name of a call again in the same session. The log then has another name for it.
    fn repeats_names(&self) -> bool {
        false
    }

    /// Bytes that may wait for the program to read before it is not read from either.
    fn max_unread(&self) -> usize {
        usize::MAX
    }
}

/// How the output of a program is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// Each line is JSON; others are counted and passed over.
    Json,
    /// Lines as they are, up to the exit of the program.
    Text,
}

/// A request of the agent that waits for its answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Ticket {
    /// The agent's name of the request.
    pub id: String,
    /// What the dialogue needs to answer it. The driver does not look at it.
    pub data: Value,
}

impl Ticket {
    /// A request, with what is needed to answer it.
    pub fn new(id: impl Into<String>, data: Value) -> Self {
        let id = id.into();
        Self { id, data }
    }
}

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// The program runs and is to be told this prompt.
    Prompt(String),
    /// The program wrote a line of JSON.
    Line(Value),
    /// The program wrote a line, with [`Framing::Text`].
    Text(Vec<u8>),
    /// The program of [`Framing::Text`] ended, with what it wrote to standard error last.
    Ended(Result<ProcessEnd, ProcessError>, String),
    /// What the files say that [`Output::ReadHome`] named; empty where one is not there.
    HomeFiles(Vec<String>),
    /// A call was judged; see [`Output::Judge`].
    Judged(Ticket, Admitted),
    /// A tool of ours ran; see [`Output::Run`].
    Ran(Ticket, ToolResult),
    /// A file or a terminal was served; see [`Output::Serve`].
    Served(Ticket, Reply),
    /// The run was cancelled before this request was decided. It still needs an answer.
    Withdrawn(Ticket),
    /// The run was cancelled. The program has [`crate::agent::CANCEL_GRACE`] to end its turn.
    Interrupt,
    /// The time is over that [`Output::Within`] set. With what the program wrote to standard error last.
    Late(String),
    /// The program closed its output without an answer. In words: how it ended, and what it wrote to standard error last.
    Exited(String),
}

/// What follows from it.
#[derive(Debug, PartialEq)]
pub enum Output {
    /// Write this line to the program.
    Send(Value),
    /// Write this to the program, and then the end of its input.
    SendLast(String),
    /// Ask the program and everything that it started to end, by a signal.
    Terminate,
    /// Read these files of the agent's home.
    ReadHome(&'static [&'static str]),
    /// The agent has this conversation; `None` where it has none to resume.
    Began(Option<String>),
    /// Show a piece of an answer.
    Delta(DeltaOf, String),
    /// Show the newest output of a call.
    Progress(CallId, String),
    /// A part of the message of this name. Parts of one message are logged together.
    Part(String, Part),
    /// Log the parts that were gathered.
    Flush,
    /// Log a message that no model wrote.
    Note(Message),
    /// Log a call, unless it is known.
    Announce(ToolCall),
    /// Have a call judged. It is judged once, however often it is asked about; a call that differs from the announced one
    /// is refused, unless `may_differ` says that the first question may correct the arguments.
    Judge {
        /// Comes back with [`Input::Judged`].
        ticket: Ticket,
        /// The call.
        call: ToolCall,
        /// Whether its arguments may differ from the announced ones.
        may_differ: bool,
    },
    /// Run a tool of ours. Tools that only read run in parallel, all others one by one.
    Run {
        /// Comes back with [`Input::Ran`].
        ticket: Ticket,
        /// The call.
        call: ToolCall,
    },
    /// Serve a request for a file or a terminal. It is judged like a call of ours, unless a grant covers it.
    Serve {
        /// Comes back with [`Input::Served`].
        ticket: Ticket,
        /// What is wanted, as the Agent Client Protocol names it.
        method: String,
        /// With what.
        params: Value,
    },
    /// A call was allowed that may have these things served without a further question.
    Grant(CallId, Vec<Grant>),
    /// A call is over: its grants are, too.
    Revoke(CallId),
    /// The program takes back a request: it gets no answer.
    Forget(String),
    /// Log that the agent runs this call without having asked, or that more is known of such a call.
    Observed(ForeignCall),
    /// What came of a call that worked in a terminal of ours and says nothing itself.
    TerminalResult {
        /// The call.
        call: CallId,
        /// The terminal.
        terminal: String,
        /// How it failed, where it did.
        failed: Option<ErrorCategory>,
    },
    /// What came of a call; `ran` says that the agent ran it.
    Result {
        /// Its result. The driver fills in the name of the call.
        result: ToolResult,
        /// Whether the agent ran it, asked or not.
        ran: bool,
    },
    /// What the agent says it spent.
    Spent(Reported),
    /// Warn the user.
    Warn(&'static str, String),
    /// A line that is not understood.
    Unknown,
    /// The next line has to come within this time; `None` ends the wait.
    Within(Option<Duration>),
    /// End the program, and say how it ended with [`Input::Exited`].
    Abandon,
    /// The turn is over.
    End(Ended),
}

/// How a turn ended.
#[derive(Debug, PartialEq)]
pub enum Ended {
    /// With an answer.
    Answered(Answer),
    /// The program does not know the conversation that it was to resume.
    Forgotten,
}

impl Ended {
    /// Without an answer, and why.
    pub(crate) fn broken(why: impl Into<String>) -> Self {
        Self::with("", End::Broken(why.into()))
    }

    /// With these last words.
    pub(crate) fn with(text: impl Into<String>, end: End) -> Self {
        let (text, output) = (text.into(), None);
        Self::Answered(Answer { text, output, end })
    }
}

/// What follows, in order.
#[derive(Debug, Default)]
pub struct Outputs(VecDeque<Output>);

impl Outputs {
    /// One more.
    pub fn push(&mut self, output: Output) {
        self.0.push_back(output);
    }

    /// The first of them.
    pub fn pop(&mut self) -> Option<Output> {
        self.0.pop_front()
    }

    pub(crate) fn send(&mut self, line: Value) {
        self.push(Output::Send(line));
    }

    pub(crate) fn end(&mut self, ended: Ended) {
        self.push(Output::End(ended));
    }

    pub(crate) fn delta(&mut self, of: DeltaOf, text: &str) {
        if !text.is_empty() {
            self.push(Output::Delta(of, text.to_owned()));
        }
    }

    /// What came of a call; with an error where it failed. `ran` says that the agent ran it.
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
        self.push(Output::Result { result, ran });
    }

    /// A part of the message that is being gathered.
    pub(crate) fn part(&mut self, part: Part) {
        self.push(Output::Part(String::new(), part));
    }

    /// A text that is a whole message, with what was gathered before it.
    pub(crate) fn say(&mut self, text: String) {
        self.part(Part::Text { text });
        self.push(Output::Flush);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(crate) mod testing {
    //! Recorded transcripts played through a dialogue alone: no program, no clock, no waiting.

    use super::*;

    /// Plays a recording (`{"dir": "<" | ">", "msg": …}` a line) and says what came of it. Every line that the recording
    /// has the client say must be sent, in order; calls are decided as the recording goes on.
    pub(crate) fn play(dialogue: &mut dyn Dialogue, prompt: &str, recording: &str) -> Vec<String> {
        let mut player = Player {
            dialogue,
            sent: VecDeque::new(),
            facts: Vec::new(),
        };
        let lines: Vec<Value> = recording
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        player.input(Input::Prompt(prompt.to_owned()), &lines);
        for (at, line) in lines.iter().enumerate() {
            match line["dir"].as_str() {
                Some("<") => player.input(Input::Line(line["msg"].clone()), &lines[at..]),
                Some(">") => {
                    if player.sent.is_empty() {
                        // Only a cancelled run makes the client say something by itself.
                        player.input(Input::Interrupt, &lines[at..]);
                    }
                    let sent = player.sent.pop_front();
                    let sent = sent.unwrap_or_else(|| panic!("not sent: {}", line["msg"]));
                    assert!(holds(&sent, &line["msg"]), "{sent}\n{}", line["msg"]);
                }
                _ => {}
            }
        }
        player.facts
    }

    struct Player<'a> {
        dialogue: &'a mut dyn Dialogue,
        sent: VecDeque<Value>,
        facts: Vec<String>,
    }

    impl Player<'_> {
        fn input(&mut self, input: Input, rest: &[Value]) {
            let mut out = Outputs::default();
            self.dialogue.input(input, &mut out);
            while let Some(output) = out.pop() {
                match output {
                    Output::Send(line) => self.sent.push_back(line),
                    Output::Judge { ticket, call, .. } => {
                        let verdict = verdict(rest);
                        let yes = matches!(verdict, Admitted::Yes { .. });
                        self.facts.push(format!("judge {}: {yes}", call.name));
                        self.dialogue
                            .input(Input::Judged(ticket, verdict), &mut out);
                    }
                    Output::Run { ticket, call } => {
                        self.facts.push(format!("run {}", call.name));
                        let result = ToolResult::done(&call, "done");
                        self.dialogue.input(Input::Ran(ticket, result), &mut out);
                    }
                    Output::Serve { ticket, method, .. } => {
                        self.facts.push(format!("serve {method}"));
                        let reply = Ok(serde_json::json!({}));
                        self.dialogue.input(Input::Served(ticket, reply), &mut out);
                    }
                    Output::Began(session) => self.facts.push(format!("began {session:?}")),
                    Output::End(Ended::Answered(answer)) => {
                        self.facts
                            .push(format!("end {:?}: {}", answer.end, answer.text));
                    }
                    Output::End(Ended::Forgotten) => self.facts.push("forgotten".to_owned()),
                    _ => {}
                }
            }
        }
    }

    /// What the client decided in the recording: a no where the next thing it says is one.
    fn verdict(rest: &[Value]) -> Admitted {
        let next = rest.iter().find(|line| line["dir"] == ">");
        let said = next.map(|line| line["msg"].to_string()).unwrap_or_default();
        match ["\"deny\"", "\"decline\""]
            .iter()
            .any(|no| said.contains(no))
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

    /// Whether a value has everything that another has, with the same constants.
    fn holds(value: &Value, wanted: &Value) -> bool {
        match (value, wanted) {
            (Value::Object(value), Value::Object(wanted)) => wanted.iter().all(|(key, wanted)| {
                let constant = wanted.is_string() && CONSTANTS.contains(&key.as_str());
                value
                    .get(key)
                    .is_some_and(|value| value == wanted || !constant && holds(value, wanted))
            }),
            (Value::Array(value), Value::Array(wanted)) => {
                value.len() == wanted.len()
                    && value
                        .iter()
                        .zip(wanted)
                        .all(|(value, wanted)| holds(value, wanted))
            }
            (Value::String(_), Value::String(_)) => true,
            (value, wanted) => value == wanted,
        }
    }
}
