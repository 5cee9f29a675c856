//! Events in words. [`Transcript::line`] turns an event into one [`TranscriptLine`]; each surface (terminal, page,
//! Markdown, audit, editor) only renders lines, so that all of them say the same about an event.
//!
//! Text of agents and files is passed on as it is. A surface removes or escapes what its medium would interpret.
//!
//! ```
//! use windlass::core::clock::Timestamp;
//! use windlass::core::event::{Event, EventKind, Order, VERSION};
//! use windlass::core::id::TraceId;
//! use windlass::transcript::{Actor, LineBlock, Severity, Transcript, TranscriptLine, Visibility};
//!
//! let event = Event {
//!     v: VERSION,
//!     order: Order::Durable { seq: 7 },
//!     at: Timestamp::from_millis(0),
//!     session: "s1".parse()?,
//!     run: None,
//!     trace: TraceId::fresh(0, 1),
//!     kind: EventKind::Warned { code: "disk".into(), text: "the disk is almost full".into() },
//! };
//! let line: TranscriptLine = Transcript::of_agent(None).line(&event);
//! assert_eq!(line.summary(), "warning: the disk is almost full");
//! assert_eq!((line.severity, line.visibility), (Severity::Warning, Visibility::Live));
//! assert_eq!((line.actor, line.actor.word()), (Actor::Engine, "engine"));
//! assert_eq!(line.words(), None);
//! for block in &line.body {
//!     if let LineBlock::Text(text) = block {
//!         println!("{text}");
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod call_title;
mod words;

pub use call_title::CallTitle;
pub use words::{counted, describe_call, dollars, explain_outcome, first_line, seconds, thousands};

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::{Value, json};
use windlass_core::ask::{About, AnsweredBy, Ask};
use windlass_core::clock::Timestamp;
use windlass_core::event::{Event, EventKind};
use windlass_core::host_name;
use windlass_core::id::CallId;
use windlass_core::message::{Message, Origin, Part, Role, ToolCall, ToolResult};
use windlass_core::pause::PauseReason;
use windlass_core::run::paths_in_words;
use windlass_core::terms::Terms;
use windlass_core::validator::{Judgement, Report};
use windlass_core::workspace::FileChange;

/// Characters of a command line that the facts include. The digest identifies the whole command.
const FACT_CHARS: usize = 200;

/// An event in words.
#[derive(Debug, Clone, PartialEq)]
pub struct TranscriptLine<'e> {
    pub at: Timestamp,
    /// The event's number in the log; absent for live events.
    pub seq: Option<u64>,
    pub actor: Actor,
    /// The action in the past tense, without content, for audits. Absent if the event is not a decision or an action.
    pub action: Option<&'static str>,
    pub visibility: Visibility,
    pub severity: Severity,
    /// The call to which the line belongs. The line that starts a call has none.
    pub call: Option<&'e CallId>,
    /// A description in one line. It has more lines only if it quotes a message of a program.
    pub title: String,
    /// Content below the title.
    pub body: Vec<LineBlock<'e>>,
    /// A JSON object with details for programs, without text of users, models and files.
    pub facts: Value,
}

/// The originator of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Actor {
    Person,
    /// The model, or the foreign agent that uses it.
    Model,
    Engine,
    /// Rules, modes and the sandbox.
    Policy,
    Validator,
}

impl Actor {
    /// The actor as one lower-case word, for example `engine`.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// The amount of detail at which a line is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Visibility {
    /// Shown only in the most verbose output.
    Detail,
    /// Shown in a record of the session, but not during a run.
    Record,
    /// Shown during a run, and in a record.
    Live,
}

/// The importance of a line for the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    Info,
    Success,
    Warning,
    Failure,
}

/// A part of the body of a line.
#[derive(Debug, Clone, PartialEq)]
pub enum LineBlock<'e> {
    /// Text of a user, the model or the engine.
    Text(Cow<'e, str>),
    Reasoning(&'e str),
    Preformatted(&'e str),
    Image {
        /// The MIME type, for example `image/png`.
        media_type: &'e str,
        /// The content in Base64.
        data: &'e str,
    },
    Call(&'e ToolCall),
    Result(&'e ToolResult),
    /// A changed file, with its diff if the diff is known.
    File(&'e FileChange),
    /// Data of an event that this version does not know.
    Data(&'e Value),
    /// A further line of the engine.
    Note(Severity, String),
    /// A further line of the engine that only the most verbose output shows.
    Detail(String),
    /// The next command that the user can type.
    Hint(String),
}

impl<'e> TranscriptLine<'e> {
    fn new(event: &Event, actor: Actor, title: impl Into<String>) -> Self {
        Self {
            at: event.at,
            seq: event.order.seq(),
            actor,
            action: None,
            visibility: Visibility::Detail,
            severity: Severity::Info,
            call: None,
            title: title.into(),
            body: Vec::new(),
            facts: json!({}),
        }
    }

    fn did(mut self, action: &'static str, facts: Value) -> Self {
        (self.action, self.facts) = (Some(action), facts);
        self
    }

    fn level(mut self, visibility: Visibility, severity: Severity) -> Self {
        (self.visibility, self.severity) = (visibility, severity);
        self
    }

    fn of(mut self, call: &'e CallId) -> Self {
        self.call = Some(call);
        self
    }

    fn with(mut self, body: impl IntoIterator<Item = LineBlock<'e>>) -> Self {
        self.body.extend(body);
        self
    }

    /// The first line of the text in the body, if it has text.
    #[must_use]
    pub fn words(&self) -> Option<String> {
        let text = self.body.iter().find_map(|block| match block {
            LineBlock::Text(text) if !text.trim().is_empty() => Some(first_line(text, 200)),
            LineBlock::Data(data) => Some(first_line(&data.to_string(), 160)),
            _ => None,
        });
        text.filter(|text| !text.is_empty())
    }

    /// The whole line as one line of text: the title, the first line of the body, and the rule that decided.
    #[must_use]
    pub fn summary(&self) -> String {
        let failed = self.body.iter().find_map(|block| match block {
            LineBlock::Result(result) if result.error.is_some() => {
                Some(first_line(&result.text, 160))
            }
            LineBlock::Note(_, note) => Some(first_line(note, 160)),
            _ => None,
        });
        let mut line = self.title.clone();
        if let Some(words) = self.words().or(failed) {
            line.push_str(&format!(": {words}"));
        }
        if let Some(rule) = self.facts["rule"].as_str() {
            line.push_str(&format!(" ({rule})"));
        }
        line
    }
}

/// Turns the events of a session into lines. It must see the events in order, because it remembers the open calls and
/// the terms that were stated last.
#[derive(Debug, Clone, Default)]
pub struct Transcript {
    agent: Option<String>,
    /// The title of the terms that were stated last.
    stated: Option<String>,
    calls: HashMap<CallId, ShownCall>,
    /// The workspace directory. Foreign agents report absolute paths, which are shown relative to it.
    workspace: String,
}

#[derive(Debug, Clone)]
struct ShownCall {
    shown: String,
    started: bool,
    denied: bool,
}

impl Transcript {
    /// A transcript for a session with this foreign agent; `None` for the built-in agent.
    #[must_use]
    pub fn of_agent(agent: Option<&str>) -> Self {
        Self {
            agent: agent.map(str::to_owned),
            ..Self::default()
        }
    }

    /// Describes the next event.
    pub fn line<'e>(&mut self, event: &'e Event) -> TranscriptLine<'e> {
        use Severity::{Failure, Info, Success, Warning};
        use Visibility::{Detail, Live, Record};
        let line = |actor, title: String| TranscriptLine::new(event, actor, title);
        let engine = |title: String| line(Actor::Engine, title);
        match &event.kind {
            EventKind::SessionOpened {
                workspace,
                runtime,
                model,
                program,
            } => {
                self.workspace.clone_from(workspace);
                engine(format!(
                "session in {workspace} with {runtime}, model {}",
                model.as_deref().unwrap_or("unknown")
            ))
            .level(Record, Info)
            .did(
                "opened the session",
                json!({ "workspace": workspace, "runtime": runtime, "model": model, "program": program }),
            )
            }
            EventKind::Queued { prompt, steer, by, key, .. } => {
                let title = match steer {
                    true => "will be sent at the next step",
                    false => "queued for after this run",
                };
                let from = by.as_ref().map_or_else(String::new, |by| format!(", from {by}"));
                line(Actor::Person, format!("{title}{from}"))
                    .level(Live, Info)
                    .did("queued a prompt", json!({ "who": by, "key": key }))
                    .with(parts(prompt))
            }
            EventKind::QueueChanged { order } => {
                let title = match order.as_slice() {
                    [] => "cleared the queue".to_owned(),
                    order => format!("changed the queue: {} prompts wait", order.len()),
                };
                line(Actor::Person, title)
                    .level(Live, Info)
                    .did("changed the queue", json!({ "order": order }))
            }
            EventKind::RunStarted { prompt, .. } => line(Actor::Person, "prompt".to_owned())
                .level(Record, Info)
                .did("asked", json!({}))
                .with(parts(prompt)),
            EventKind::TransactionOpened { terms, name } => {
                self.transaction_opened(event, terms, name.as_deref())
            }
            EventKind::IterationStarted { iteration, .. } => {
                let visibility = if *iteration > 1 { Live } else { Detail };
                engine(format!("Attempt {iteration}: sending the failures back")).level(visibility, Info)
            }
            EventKind::Said { message, .. } => self.said(event, message),
            EventKind::Delta { text, .. } => {
                line(Actor::Model, "says".to_owned()).with([LineBlock::Text(text.into())])
            }
            EventKind::CallStarted {
                call,
                verdict,
                rule,
            } => {
                let shown = words::within(&describe_call(call), &self.workspace);
                let title = format!("› {shown}");
                self.calls.insert(
                    call.id.clone(),
                    ShownCall {
                        shown,
                        started: true,
                        denied: false,
                    },
                );
                let (actor, did) = match verdict {
                    Some(_) => (Actor::Policy, "let a call run"),
                    None => (Actor::Model, "ran a call that was not judged"),
                };
                line(actor, title)
                    .level(Live, Info)
                    .did(did, json!({ "verdict": verdict, "rule": rule }))
                    .with([LineBlock::Call(call)])
            }
            EventKind::RuleBroken { call, rule } => {
                let title = format!("not allowed by {rule}, and the agent did not ask: the run will not land");
                line(Actor::Policy, title)
                    .level(Live, Warning)
                    .did("found a broken rule", json!({ "call": call, "rule": rule }))
                    .of(call)
            }
            EventKind::NotWritten { call, paths } => {
                let title = format!("the disk is full; not written: {}", paths_in_words(paths));
                line(Actor::Engine, title)
                    .level(Live, Warning)
                    .did("could not write", json!({ "call": call, "paths": paths }))
                    .of(call)
            }
            EventKind::CallProgress { id, text } => line(Actor::Model, "works".to_owned())
                .of(id)
                .with([LineBlock::Preformatted(text)]),
            EventKind::CallFinished { result, ms } => self.call_finished(event, result, *ms),
            EventKind::FileChanged { call, change, swap } => {
                let images = swap
                    .as_ref()
                    .map(|swap| json!({ "before": swap.before, "after": swap.after }));
                let line = line(Actor::Model, words::file_change(change))
                    .level(Live, Info)
                    .did(
                        "changed a file",
                        json!({ "call": call, "path": change.path, "change": change.change,
                            "added": change.added, "removed": change.removed, "images": images }),
                    )
                    .with([LineBlock::File(change)]);
                match call {
                    Some(call) => line.of(call),
                    None => line,
                }
            }
            EventKind::CommandStarted { call, command } => line(Actor::Model, "command".to_owned())
                .did(
                    "ran a command",
                    json!({ "call": call, "command": words::fact(command, FACT_CHARS) }),
                )
                .of(call)
                .with([LineBlock::Preformatted(command)]),
            EventKind::CommandFinished {
                call,
                end,
                bytes,
                ms,
            } => engine(format!("the command ended after {}", seconds(*ms)))
                .did(
                    "saw a command end",
                    json!({ "call": call, "end": end, "bytes": bytes, "ms": ms }),
                )
                .of(call),
            EventKind::ConnectionRefused { host, rule } => {
                line(Actor::Policy, format!("no connection to {}", host_name::in_words(host)))
                    .level(Record, Failure)
                    .did("refused a connection", json!({ "host": host, "rule": rule }))
            }
            EventKind::Asked { ask } => asked(event, ask),
            EventKind::Answered { ask, answer, by, who } => {
                let (word, shown, text) = words::answer(answer);
                let actor = match by {
                    AnsweredBy::Person => Actor::Person,
                    AnsweredBy::Policy => Actor::Policy,
                    AnsweredBy::Engine => Actor::Engine,
                };
                let name = who.as_ref().map_or_else(String::new, |who| format!(" {who}"));
                line(actor, format!("answered {ask} by {by}{name}{shown}"))
                    .level(Record, Info)
                    .did("answered", json!({ "ask": ask, "answer": word, "by": by, "who": who }))
                    .with(text.map(|text| LineBlock::Text(text.into())))
            }
            EventKind::Paused { reason, .. } => {
                let why = match reason {
                    PauseReason::Shutdown => "its process shuts down",
                    PauseReason::Requested => "it was asked to",
                };
                engine(format!("the run is paused, because {why}"))
                    .level(Record, Info)
                    .did("paused the run", json!({ "reason": reason }))
            }
            EventKind::Denied { call, rule, reason } => {
                let not_run = format!("not run: {reason}");
                let denied = self.calls.get_mut(call);
                let never_started = denied.and_then(|open| {
                    open.denied = true;
                    (!open.started).then(|| format!("› {}", open.shown))
                });
                let facts = json!({ "call": call, "rule": rule });
                match never_started {
                    Some(title) => line(Actor::Policy, title)
                        .with([LineBlock::Note(Warning, not_run)]),
                    None => line(Actor::Policy, not_run).of(call),
                }
                .level(Live, Warning)
                .did("denied a call", facts)
            }
            EventKind::Noted { text } => line(Actor::Model, "notes".to_owned())
                .with([LineBlock::Text(text.into())]),
            EventKind::Waited {
                reason,
                ms,
                attempt,
                ..
            } => engine(format!("{reason}; attempt {attempt} in {}", seconds(*ms))).level(Live, Warning),
            EventKind::Spent { model, call, cost_micros, .. } => engine(format!(
                "{model} took {} tokens for {}",
                thousands(call.counted()),
                cost_micros.map_or_else(|| "an unknown price".to_owned(), dollars)
            )),
            EventKind::BudgetWarned { limit } => {
                engine(format!("80 % of the {limit} limit used"))
                    .level(Live, Warning)
                    .did("warned of a limit", json!({ "limit": limit }))
            }
            EventKind::ValidationStarted { validator } => {
                line(Actor::Validator, format!("checking: {}", first_line(validator, 80)))
            }
            EventKind::Validated {
                validator,
                blocking,
                report,
                ..
            } => validated(event, validator, *blocking, report),
            EventKind::IterationFinished { iteration, stop, .. } => {
                engine(format!("attempt {iteration} ended: {}", stop.word()))
            }
            EventKind::Judged { result, tree_hash, judge_changed } => {
                engine(format!("judged: {}", words::judged(result))).did(
                    "judged",
                    json!({ "result": result.word(), "tree_hash": tree_hash, "judge_changed": judge_changed }),
                )
            }
            EventKind::RunEnding { outcome } => {
                engine(format!("the run ends: {}", outcome.word()))
            }
            EventKind::PatchProposed { summary, files } => {
                line(Actor::Model, format!("proposed a patch of {}", words::paths(files)))
                    .level(Record, Info)
                    .with([LineBlock::Text(summary.into())])
            }
            EventKind::PatchChecked { problems } => {
                let severity = if problems.is_empty() { Success } else { Failure };
                engine(format!("checked the patch: {}", counted(problems.len(), "problem")))
                    .level(Record, severity)
                    .with(problems.iter().map(|one| LineBlock::Note(Failure, one.clone())))
            }
            EventKind::PatchApplied { files } => {
                engine(format!("applied the patch to {}", words::paths(files)))
                    .level(Record, Info)
                    .did("applied a patch", json!({ "files": files }))
            }
            EventKind::Landed { landed, tree_hash } => {
                let (title, notes) = words::landed(landed);
                engine(title)
                    .level(Live, Success)
                    .did(
                        "landed",
                        json!({ "files": landed.files, "tree_hash": tree_hash, "commit": landed.commit,
                            "ref": landed.refname, "executes": landed.executes }),
                    )
                    .with(notes)
            }
            EventKind::Kept { name } => engine(format!(
                "Not applied. Kept as {name} → windlass diff | land | resume | discard {name}"
            ))
            .level(Live, Warning)
            .did("kept the copy", json!({ "copy": name })),
            EventKind::Discarded { name } => {
                // Within a run, the engine discards a copy that holds nothing when the run stops to ask.
                let actor = if event.run.is_some() { Actor::Engine } else { Actor::Person };
                line(actor, format!("deleted {name}"))
                    .level(Record, Info)
                    .did("deleted the copy", json!({ "copy": name }))
            }
            EventKind::Undone {
                of, also, files, ..
            } => {
                let of: Vec<u64> = std::iter::once(*of).chain(also.iter().copied()).collect();
                line(Actor::Person, format!("undone: {}", words::paths(files)))
                    .level(Record, Info)
                    .did("took back", json!({ "of": of, "files": files }))
            }
            EventKind::Redone { of, files, .. } => {
                line(Actor::Person, format!("redone: {}", words::paths(files)))
                    .level(Record, Info)
                    .did("did again", json!({ "of": of, "files": files }))
            }
            EventKind::Compacted { compaction } => engine(words::compaction(compaction))
                .level(Live, Info)
                .did("compacted", json!({}))
                .with([LineBlock::Preformatted(&compaction.summary)]),
            EventKind::Instructed { files, .. } => {
                let paths: Vec<String> = files.iter().map(|file| file.path.clone()).collect();
                let visibility = if files.is_empty() { Detail } else { Record };
                engine(format!("instructed by {}", words::paths(&paths)))
                    .level(visibility, Info)
                    .did("read instructions", json!({ "files": files }))
            }
            EventKind::ModelSwitched { from, to } => {
                line(Actor::Person, format!("the model is now {to} (was {from})"))
                    .level(Record, Info)
                    .did("switched the model", json!({ "from": from, "to": to }))
            }
            EventKind::FailedOver { from, to, reason } => {
                engine(format!("{to} took over from {from}: {reason}"))
                    .level(Record, Warning)
                    .did("failed over", json!({ "from": from, "to": to }))
            }
            EventKind::Forked { from, at_seq } => {
                line(Actor::Person, format!("forked from {from} at event {at_seq}"))
                    .level(Record, Info)
                    .did("forked", json!({ "from": from, "at_seq": at_seq }))
            }
            EventKind::Warned { code, text } => engine(format!("warning: {text}"))
                .level(Live, Warning)
                .did("warned", json!({ "code": code })),
            EventKind::RunFinished(summary) => words::run_finished(event, summary),
            EventKind::Cleared {} => line(
                Actor::Person,
                "cleared the conversation: the next run starts without it; the log still has it".to_owned(),
            )
            .level(Record, Info)
            .did("cleared the conversation", json!({})),
            EventKind::SessionClosed {} => {
                engine("the session was closed".to_owned()).did("closed the session", json!({}))
            }
            EventKind::Unknown(unknown) => engine(unknown.kind.clone())
                .level(Live, Info)
                .did("logged an event of a later version", json!({ "kind": unknown.kind }))
                .with([LineBlock::Data(&unknown.data)]),
        }
    }

    fn said<'e>(&mut self, event: &'e Event, message: &'e Message) -> TranscriptLine<'e> {
        let actor = match (message.role, message.origin) {
            (_, Origin::Engine) => Actor::Engine,
            (Role::Assistant, _) => Actor::Model,
            _ => Actor::Person,
        };
        for call in message.calls() {
            self.calls
                .entry(call.id.clone())
                .or_insert_with(|| ShownCall {
                    shown: describe_call(call),
                    started: false,
                    denied: false,
                });
        }
        let mut line = TranscriptLine::new(event, actor, actor.word())
            .did("said", json!({}))
            .with(parts(message));
        if line.words().is_some() {
            line.visibility = Visibility::Record;
        }
        line
    }

    fn call_finished<'e>(
        &mut self,
        event: &'e Event,
        result: &'e ToolResult,
        ms: u64,
    ) -> TranscriptLine<'e> {
        let open = self.calls.remove(&result.id);
        let (denied, started) = open.map_or((false, false), |open| (open.denied, open.started));
        let took = seconds(ms);
        let title = match result.error {
            Some(_) if started => format!("failed after {took}"),
            Some(_) => format!("{} failed", words::flat(&result.name)),
            None => format!("done in {took}, {} characters", result.text.chars().count()),
        };
        let (visibility, severity) = match result.error {
            // The line of the denial has the reason already.
            Some(_) if denied => (Visibility::Detail, Severity::Failure),
            Some(_) => (Visibility::Live, Severity::Failure),
            None if ms >= 1_000 => (Visibility::Live, Severity::Info),
            None => (Visibility::Record, Severity::Info),
        };
        TranscriptLine::new(event, Actor::Engine, title)
            .level(visibility, severity)
            .did(
                "ended a call",
                json!({ "call": result.id, "tool": result.name, "error": result.error, "ms": ms }),
            )
            .of(&result.id)
            .with([LineBlock::Result(result)])
    }

    fn transaction_opened<'e>(
        &mut self,
        event: &'e Event,
        terms: &'e Terms,
        name: Option<&str>,
    ) -> TranscriptLine<'e> {
        let (title, notes) = match &self.agent {
            Some(agent) => words::agent_terms(agent, terms),
            None => (words::terms(terms, name), Vec::new()),
        };
        // In a chat, each prompt opens a transaction again, usually under the same terms.
        let again = self.stated.replace(title.clone()).as_ref() == Some(&title);
        let visibility = if again && self.agent.is_none() {
            Visibility::Record
        } else {
            Visibility::Live
        };
        TranscriptLine::new(event, Actor::Engine, title)
            .level(visibility, Severity::Info)
            .did("stated the terms", json!({ "terms": terms, "copy": name }))
            .with(notes)
    }
}

fn parts(message: &Message) -> impl Iterator<Item = LineBlock<'_>> {
    message.parts.iter().filter_map(|part| match part {
        Part::Text { text } => Some(LineBlock::Text(text.into())),
        Part::Reasoning { text, .. } => Some(LineBlock::Reasoning(text)),
        Part::Image { media_type, data } => Some(LineBlock::Image { media_type, data }),
        Part::Call(call) => Some(LineBlock::Call(call)),
        Part::Result(_) => None,
    })
}

fn asked<'e>(event: &'e Event, ask: &'e Ask) -> TranscriptLine<'e> {
    let facts = |about: &str| json!({ "about": about, "ask": ask.id, "person_only": ask.person, "expires": ask.expires });
    let line = |what: String| {
        TranscriptLine::new(event, Actor::Engine, format!("asked {}{what}", ask.id))
            .level(Visibility::Record, Severity::Info)
    };
    match &ask.about {
        About::Approval(approval) => {
            let mut facts = facts("approval");
            facts["rule"] = json!(approval.rule);
            line(format!(": approve {}?", describe_call(&approval.call)))
                .did("asked a person", facts)
                .with([LineBlock::Call(&approval.call)])
        }
        About::Landing(landing) => {
            let mut facts = facts("landing");
            let paths = landing.paths.iter().map(|(path, _)| path.as_str());
            facts["paths"] = paths.collect();
            facts["failing"] = json!(landing.failing);
            let question = match landing.paths.len() {
                0 => format!(
                    ": land although these checks failed before the run and still fail: {}?",
                    landing.failing.join(", ")
                ),
                count => format!(": may {} land?", counted(count, "path")),
            };
            line(question).did("asked a person", facts)
        }
        About::Question(question) => line(String::new())
            .did("asked a person", facts("question"))
            .with([LineBlock::Text((&question.text).into())]),
    }
}

fn validated<'e>(
    event: &'e Event,
    validator: &str,
    blocking: bool,
    report: &'e Report,
) -> TranscriptLine<'e> {
    let name = words::flat(validator);
    let (severity, title) = match report.judgement {
        Judgement::Pass => (Severity::Success, format!("✓ {name}")),
        Judgement::Fail if blocking => (Severity::Failure, format!("✗ {name}")),
        Judgement::Fail => (
            Severity::Warning,
            format!("! {name} (does not block the landing)"),
        ),
        Judgement::Unverifiable => (Severity::Warning, format!("? {name} could not be checked")),
    };
    let findings = report.findings.iter();
    TranscriptLine::new(event, Actor::Validator, title)
        .level(Visibility::Live, severity)
        .did(
            "judged",
            json!({ "validator": words::fact(validator, FACT_CHARS), "judgement": report.judgement,
                "blocking": blocking, "findings": report.findings.len(), "exit": report.proof.exit,
                "digest": report.proof.digest }),
        )
        .with(findings.map(|finding| LineBlock::Note(Severity::Info, finding.to_string())))
}

#[cfg(test)]
#[path = "transcript_tests.rs"]
mod tests;
