//! The events of a session as styled lines. All display modes show the same lines: finished blocks that do not change any
//! more, and the parts that are still open (the streamed answer, running calls, checks in progress).

mod answer;
mod calls;
mod checks;
mod run_end;

use std::collections::VecDeque;

use windlass::core::ask::Ask;
use windlass::core::budget::{Budget, Spent};
use windlass::core::event::{DeltaOf, Event, EventKind};
use windlass::core::flags::SavedFlags;
use windlass::core::id::{RunId, SessionId};
use windlass::core::message::{Message, Origin, Role};
use windlass::core::terms::{MeteringKind, Terms};
use windlass::transcript::{LineBlock, Severity, Transcript, Visibility, first_line};
use windlass_text::{StyledLine, TextStyle, Tone, sanitize};

use crate::app::SessionFacts;

use self::answer::AnswerStream;
use self::calls::OpenCalls;
pub use self::checks::{CheckState, ChecksBoard};
use self::run_end::LandedFiles;
pub(crate) use self::run_end::money;

/// Lines of finished blocks that are kept for the full screen. Older ones are read from the log again.
const MAX_LINES: usize = 20_000;
/// Lines of a prompt that are shown.
const PROMPT_LINES: usize = 40;
/// Characters of reasoning that the live part shows.
const REASONING_CHARS: usize = 300;

/// Lines of one event or of events that belong together.
#[derive(Debug, Clone, PartialEq)]
pub struct EventBlock {
    /// The number of the event; absent for remarks of the interface.
    pub seq: Option<u64>,
    pub kind: BlockKind,
    pub lines: Vec<StyledLine>,
}

/// The kind of a block. Blocks of the same kind follow each other without an empty line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockKind {
    Prompt,
    Answer,
    Call,
    Check,
    Landing,
    Note,
}

/// A prompt that waits for its run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingPrompt {
    /// The number of its event.
    pub seq: u64,
    pub text: String,
    /// The prompt goes to the run in progress.
    pub steer: bool,
}

/// The activity of the run in progress.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Activity {
    #[default]
    Starting,
    /// The model was asked and has not answered yet.
    Thinking,
    /// The model answers.
    Answering,
    /// The newest call that has not ended.
    Calling(String),
    Checking(String),
    /// The run waits before it asks the model again.
    Retrying(String),
    Landing,
}

/// The run in progress.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OpenRun {
    pub id: Option<RunId>,
    /// The time of its first event, in milliseconds since the epoch.
    pub started_ms: i64,
    /// The time at which the activity began.
    pub since_ms: i64,
    pub activity: Activity,
    pub iteration: u32,
    pub spent: Spent,
    /// The run stopped at a safe point and can be resumed.
    pub paused: bool,
}

/// The fold of a session's events. See the [module](self).
pub struct Conversation {
    transcript: Transcript,
    /// The columns for which blocks are made.
    columns: usize,
    finished: Vec<EventBlock>,
    blocks: VecDeque<EventBlock>,
    kept_lines: usize,
    /// Whether older blocks were dropped or never read.
    pub starts_late: bool,
    last_kind: Option<BlockKind>,
    answer: AnswerStream,
    calls: OpenCalls,
    landed: Option<LandedFiles>,
    reasoning: String,
    pub session: Option<SessionId>,
    pub workspace: String,
    pub runtime: String,
    pub model: Option<String>,
    pub run: Option<OpenRun>,
    pub asks: Vec<Ask>,
    pub queue: Vec<WaitingPrompt>,
    pub checks: ChecksBoard,
    pub terms: Option<Terms>,
    /// The cost of all runs whose events were read, in micro-USD.
    pub cost_micros: u64,
    /// The tokens of the last request and its answer, which is about the size of the next request.
    pub context_tokens: u64,
    pub limits: Option<Budget>,
    pub notes: String,
    pub last_seq: u64,
    /// The name of the kept run that the last run left.
    pub kept: Option<String>,
    /// The flags of the last run.
    pub last_flags: SavedFlags,
}

impl Conversation {
    /// A conversation without events, for a terminal of this width.
    #[must_use]
    pub fn new(columns: usize) -> Self {
        Self {
            transcript: Transcript::default(),
            columns,
            finished: Vec::new(),
            blocks: VecDeque::new(),
            kept_lines: 0,
            starts_late: false,
            last_kind: None,
            answer: AnswerStream::new(),
            calls: OpenCalls::default(),
            landed: None,
            reasoning: String::new(),
            session: None,
            workspace: String::new(),
            runtime: String::new(),
            model: None,
            run: None,
            asks: Vec::new(),
            queue: Vec::new(),
            checks: ChecksBoard::default(),
            terms: None,
            cost_micros: 0,
            context_tokens: 0,
            limits: None,
            notes: String::new(),
            last_seq: 0,
            kept: None,
            last_flags: SavedFlags::default(),
        }
    }

    /// Blocks that are made from now on fit this width.
    pub fn set_columns(&mut self, columns: usize) {
        self.columns = columns;
    }

    /// Takes the blocks that were finished since the last call.
    pub fn take_finished(&mut self) -> Vec<EventBlock> {
        std::mem::take(&mut self.finished)
    }

    /// All blocks that are kept, the oldest first.
    pub fn blocks(&self) -> impl DoubleEndedIterator<Item = &EventBlock> {
        self.blocks.iter()
    }

    /// The lines of the parts that are still open: the end of the streamed answer and the running calls.
    #[must_use]
    pub fn open_lines(&self, now_ms: i64) -> Vec<StyledLine> {
        let mut lines = self.answer.tail();
        if lines.is_empty() && !self.reasoning.is_empty() {
            let from = self
                .reasoning
                .chars()
                .count()
                .saturating_sub(REASONING_CHARS);
            let end: String = self.reasoning.chars().skip(from).collect();
            let last = end.trim_end().lines().next_back().unwrap_or_default();
            let style = TextStyle {
                italic: true,
                ..Tone::Muted.into()
            };
            lines.push(StyledLine::of(format!(" {last}"), style));
        }
        lines.extend(self.calls.lines(now_ms, self.columns));
        lines
    }

    /// Adds a remark of the interface that is no event.
    pub fn remark(&mut self, lines: Vec<StyledLine>) {
        self.finish(None, BlockKind::Note, lines);
    }

    /// Live events were lost: the rest of the answer is shown when it is complete.
    pub fn lost_live_events(&mut self) {
        self.answer.pause();
    }

    /// Takes over the remarks of the interface from another conversation.
    pub(crate) fn take_over_remarks(&mut self, other: &mut Self) {
        let finished = other.take_finished();
        for block in finished {
            self.finish(block.seq, block.kind, block.lines);
        }
        self.last_kind = other.last_kind;
    }

    /// Begins with the state of a session whose earlier events are not read.
    pub(crate) fn begin(&mut self, facts: SessionFacts) {
        let waiting = facts.waiting();
        self.workspace = facts.workspace;
        self.asks = facts.asks;
        self.queue = waiting;
        self.kept = facts.kept;
        self.cost_micros = facts.spent.cost_micros;
        self.last_seq = facts.last_seq;
        self.run = facts.run.map(|run| OpenRun {
            iteration: run.iteration,
            paused: run.paused,
            ..OpenRun::default()
        });
    }

    /// Applies the next event.
    pub fn apply(&mut self, event: &Event) {
        if let Some(seq) = event.order.seq() {
            self.last_seq = seq;
        }
        match &event.kind {
            EventKind::Delta { of, text } => return self.delta(event, of, text),
            EventKind::CallProgress { id, text } => return self.calls.progress(id, text),
            _ => {}
        }
        self.update(event);
        self.show(event);
    }

    /// The terms of a run in one line; the status line has them, too.
    fn terms(&mut self, event: &Event, terms: &Terms, name: Option<&str>) {
        let line = self.transcript.line(event);
        if line.visibility < Visibility::Live {
            return;
        }
        let mut words = vec![
            format!("sandbox {}", terms.tier.word()),
            format!("network {}", terms.network),
        ];
        match terms.metering {
            MeteringKind::Wire => {}
            MeteringKind::Reported => words.push("spending as the agent reports it".to_owned()),
            MeteringKind::None => words.push("spending not metered".to_owned()),
        }
        words.push(match name {
            Some(name) => format!("on the copy {name}"),
            None => "in place".to_owned(),
        });
        if !terms.not_held.is_empty() {
            words.push(format!("not held: {}", terms.not_held.join("; ")));
        }
        let text = sanitize::one_line(&words.join(" · ")).into_owned();
        let line = StyledLine::of(format!(" · {text}"), Tone::Muted).with_indent(3);
        self.finish(event.order.seq(), BlockKind::Note, vec![line]);
    }

    fn delta(&mut self, event: &Event, of: &DeltaOf, text: &str) {
        match of {
            DeltaOf::Text => {
                self.reasoning.clear();
                let lines = self.answer.push(text);
                self.set_activity(event, Activity::Answering);
                if !lines.is_empty() {
                    self.finish(None, BlockKind::Answer, lines);
                }
            }
            DeltaOf::Reasoning => {
                self.reasoning.push_str(text);
                if self.reasoning.len() > 16 * REASONING_CHARS {
                    let from = self.reasoning.ceil_char_boundary(8 * REASONING_CHARS);
                    self.reasoning.drain(..from);
                }
                self.set_activity(event, Activity::Thinking);
            }
            DeltaOf::Arguments(_) => self.set_activity(event, Activity::Answering),
        }
    }

    fn set_activity(&mut self, event: &Event, activity: Activity) {
        if let Some(run) = &mut self.run
            && run.activity != activity
        {
            run.activity = activity;
            run.since_ms = event.at.as_millis();
        }
    }

    /// Updates the facts of the session.
    fn update(&mut self, event: &Event) {
        match &event.kind {
            EventKind::SessionOpened {
                workspace,
                runtime,
                model,
                ..
            } => {
                self.session = Some(event.session.clone());
                self.workspace.clone_from(workspace);
                self.runtime.clone_from(runtime);
                self.model.clone_from(model);
            }
            EventKind::Queued { prompt, steer, .. } => self.queue.push(WaitingPrompt {
                seq: self.last_seq,
                text: prompt.text(),
                steer: *steer,
            }),
            EventKind::QueueChanged { order } => {
                let position = |seq: &u64| order.iter().position(|one| one == seq);
                self.queue.retain(|one| position(&one.seq).is_some());
                self.queue.sort_by_key(|one| position(&one.seq));
            }
            EventKind::Said {
                queued: Some(queued),
                ..
            } => self.queue.retain(|one| one.seq != *queued),
            EventKind::RunStarted { queued, flags, .. } => {
                self.last_flags.clone_from(flags);
                self.queue.retain(|one| Some(one.seq) != *queued);
                self.asks.clear();
                self.kept = None;
                self.run = Some(OpenRun {
                    id: event.run.clone(),
                    started_ms: event.at.as_millis(),
                    since_ms: event.at.as_millis(),
                    activity: Activity::Starting,
                    iteration: 1,
                    spent: Spent::default(),
                    paused: false,
                });
            }
            EventKind::TransactionOpened { terms, .. } => self.terms = Some(terms.clone()),
            EventKind::IterationStarted { iteration, .. } => {
                if let Some(run) = &mut self.run {
                    run.iteration = *iteration;
                    run.paused = false;
                }
                self.checks.restart(*iteration);
                self.set_activity(event, Activity::Thinking);
            }
            EventKind::Asked { ask } => self.asks.push(ask.clone()),
            EventKind::Answered { ask, .. } => self.asks.retain(|open| open.id != *ask),
            EventKind::Spent {
                call,
                cost_micros,
                total,
                model,
                ..
            } => {
                self.cost_micros = self.cost_micros.saturating_add(cost_micros.unwrap_or(0));
                self.context_tokens = call.total_input().saturating_add(call.output);
                self.model = Some(model.clone());
                if let Some(run) = &mut self.run {
                    run.spent = *total;
                }
            }
            EventKind::Noted { text } => self.notes.clone_from(text),
            EventKind::Kept { name } => self.kept = Some(name.clone()),
            EventKind::Discarded { name } if self.kept.as_ref() == Some(name) => self.kept = None,
            EventKind::Paused { .. } => {
                if let Some(run) = &mut self.run {
                    run.paused = true;
                }
            }
            EventKind::RunFinished(summary) => {
                self.limits = summary.limits.or(self.limits.take());
                self.run = None;
                self.asks.clear();
                self.calls.clear();
                self.reasoning.clear();
            }
            EventKind::ModelSwitched { to, .. } => self.model = Some(to.clone()),
            _ => {}
        }
        self.update_activity(event);
    }

    fn update_activity(&mut self, event: &Event) {
        let activity = match &event.kind {
            EventKind::CallFinished { .. } => match self.calls.newest() {
                Some(title) => Activity::Calling(title),
                None => Activity::Thinking,
            },
            EventKind::ValidationStarted { validator } => {
                Activity::Checking(first_line(validator, 80))
            }
            EventKind::Judged { .. } => Activity::Landing,
            EventKind::Waited { reason, .. } => Activity::Retrying(first_line(reason, 120)),
            _ => return,
        };
        self.set_activity(event, activity);
    }

    /// Turns the event into lines.
    fn show(&mut self, event: &Event) {
        match &event.kind {
            EventKind::RunStarted { prompt, .. } => self.prompt(event, prompt),
            EventKind::Said { message, .. } => self.said(event, message),
            EventKind::TransactionOpened { terms, name } => {
                self.terms(event, terms, name.as_deref());
            }
            EventKind::CallStarted { call, .. } => {
                let title = self
                    .calls
                    .start(call, event.at.as_millis(), &self.workspace);
                self.set_activity(event, Activity::Calling(title));
                // The transcript pairs the call with its denial and its end.
                let _ = self.transcript.line(event);
            }
            EventKind::CommandFinished { call, end, .. } => self.calls.command_ended(call, end),
            EventKind::FileChanged { call, change, .. } => {
                let lines = calls::change_lines(change, self.columns);
                match call.as_ref().and_then(|call| self.calls.get_mut(call)) {
                    Some(open) => open.add_change(change, lines),
                    None => self.finish(event.order.seq(), BlockKind::Call, lines),
                }
            }
            EventKind::CallFinished { result, ms } => {
                let _ = self.transcript.line(event);
                let lines = self.calls.finish(result, *ms, self.columns);
                self.finish(event.order.seq(), BlockKind::Call, lines);
            }
            EventKind::ValidationStarted { validator } => self.checks.start(validator),
            EventKind::Validated {
                validator,
                blocking,
                report,
                ..
            } => self.checks.end(validator, *blocking, report),
            EventKind::Judged { result, .. } => {
                let lines = self.checks.lines(result);
                self.finish(event.order.seq(), BlockKind::Check, lines);
            }
            EventKind::Landed { landed, .. } => self.landed = Some(LandedFiles::of(landed)),
            EventKind::RunFinished(summary) => {
                let rest = self.answer.finish(None);
                self.finish(None, BlockKind::Answer, rest);
                let landed = self.landed.take();
                let lines = run_end::lines(event, summary, landed, self.columns);
                self.finish(event.order.seq(), BlockKind::Landing, lines);
            }
            // The status line and the panels show these.
            EventKind::Queued { .. }
            | EventKind::QueueChanged { .. }
            | EventKind::Asked { .. }
            | EventKind::IterationStarted { .. } => {
                let _ = self.transcript.line(event);
            }
            _ => self.other(event),
        }
    }

    fn prompt(&mut self, event: &Event, prompt: &Message) {
        let _ = self.transcript.line(event);
        let text = prompt.text();
        let mut lines = Vec::new();
        let mut rest = 0;
        for (at, line) in text.trim_end().lines().enumerate() {
            if at >= PROMPT_LINES {
                rest += 1;
                continue;
            }
            let mark = if at == 0 { " > " } else { "   " };
            lines.push(
                StyledLine::of(mark, Tone::Accent)
                    .with(line, TextStyle::from(Tone::Text).bold())
                    .with_indent(3),
            );
        }
        if rest > 0 {
            lines.push(StyledLine::of(
                format!("   … {rest} more lines"),
                Tone::Muted,
            ));
        }
        self.finish(event.order.seq(), BlockKind::Prompt, lines);
    }

    fn said(&mut self, event: &Event, message: &Message) {
        let _ = self.transcript.line(event);
        if message.role == Role::Assistant && message.origin != Origin::Engine {
            self.reasoning.clear();
            let text = message.text();
            let lines = self.answer.finish(Some(&text));
            self.finish(event.order.seq(), BlockKind::Answer, lines);
            return;
        }
        if message.origin == Origin::Person {
            // A prompt that steers the run.
            self.prompt(event, message);
        }
    }

    /// Any other event: one line, if people see it during a run.
    fn other(&mut self, event: &Event) {
        let line = self.transcript.line(event);
        if line.visibility < Visibility::Live && !is_shown(&event.kind) {
            return;
        }
        let (mark, tone) = match line.severity {
            Severity::Info => ("·", Tone::Muted),
            Severity::Success => ("✓", Tone::Ok),
            Severity::Warning => ("⚠", Tone::Warn),
            Severity::Failure => ("✗", Tone::Bad),
        };
        let title = sanitize::one_line(&line.title).into_owned();
        let text = match line.severity {
            Severity::Info => Tone::Muted,
            _ => Tone::Text,
        };
        let mut lines = vec![
            StyledLine::of(format!(" {mark} "), tone)
                .with(title, text)
                .with_indent(3),
        ];
        for block in &line.body {
            if let LineBlock::Note(_, note) | LineBlock::Hint(note) = block {
                let note = sanitize::one_line(note).into_owned();
                lines.push(StyledLine::of(format!("   {note}"), Tone::Muted).with_indent(3));
            }
        }
        let seq = event.order.seq();
        self.finish(seq, BlockKind::Note, lines);
    }

    /// Adds a finished block, with an empty line before it if another kind of block came before.
    fn finish(&mut self, seq: Option<u64>, kind: BlockKind, mut lines: Vec<StyledLine>) {
        if lines.is_empty() {
            return;
        }
        let separates = match (self.last_kind, kind) {
            (None, _) => false,
            (Some(BlockKind::Answer), BlockKind::Answer) => false,
            (Some(last), _) => {
                last != kind || kind == BlockKind::Prompt || kind == BlockKind::Landing
            }
        };
        if separates {
            lines.insert(0, StyledLine::default());
        }
        self.last_kind = Some(kind);
        let block = EventBlock { seq, kind, lines };
        self.kept_lines += block.lines.len();
        self.blocks.push_back(block.clone());
        while self.kept_lines > MAX_LINES
            && let Some(oldest) = self.blocks.pop_front()
        {
            self.kept_lines -= oldest.lines.len();
            self.starts_late = true;
        }
        self.finished.push(block);
    }
}

/// Events that are shown although a run's text view leaves them out: a person at this terminal caused them.
fn is_shown(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::Undone { .. }
            | EventKind::Redone { .. }
            | EventKind::Cleared {}
            | EventKind::Forked { .. }
            | EventKind::ModelSwitched { .. }
            | EventKind::Paused { .. }
            | EventKind::Discarded { .. }
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
