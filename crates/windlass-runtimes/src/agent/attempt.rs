//! One attempt of a foreign agent at a job: its enclosure, the access to its model, and the connections to the log, the
//! gate and the user. The attempt tracks the calls of the agent, so that each call has a result when the attempt ends.

use parking_lot::Mutex;
use std::any::Any;
use std::collections::HashMap;

use windlass_core::CancellationToken;
use windlass_core::budget::{Price, Usage};
use windlass_core::clock::Clock;
use windlass_core::enclosure::Enclosure;
use windlass_core::event::{DeltaOf, EventKind};
use windlass_core::id::CallId;
use windlass_core::message::{ErrorCategory, Message, ToolCall, ToolResult};
use windlass_core::runtime::{Job, RuntimeError};
use windlass_core::tool::{Admitted, Effect, ForeignCall, Like, ObservedChange};
use windlass_core::turn::Planned;

use super::file_changes::FileBeforeCall;
use super::{AgentAnswer, ForeignRuntime, TurnEndReason, WantedOutput};
use crate::contract::CONTRACT;
use crate::equivalent_calls::effect_of;
use crate::turn_volume::part_size;

/// Calls of one message that are tracked. Calls above this number are not logged individually.
const MAX_OPEN: usize = 1_024;
/// Bytes that an agent may produce in one iteration, including calls and results. All of it is in memory and in the
/// log.
const MAX_OUTPUT: usize = 128 << 20;
/// Bytes that a message or a result needs besides its text.
const MESSAGE_OVERHEAD: usize = 200;
/// Bytes of the longest session id that an agent may use.
const MAX_SESSION: usize = 200;

/// The agent's access to its model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelAccess {
    /// Through the meter at `url` (`http://127.0.0.1:PORT`, without a path). The meter accepts `key`, which is valid
    /// nowhere else. Anthropic and Gemini clients use the address as it is, OpenAI clients append `/v1`.
    Metered { url: String, key: String },
    /// Directly, with the agent's own login. Windlass does not see the traffic.
    Own,
}

impl ModelAccess {
    pub(crate) fn is_metered(&self) -> bool {
        matches!(self, Self::Metered { .. })
    }
}

/// The spending that an agent reports, summed up over the iteration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReportedUsage {
    pub usage: Usage,
    /// Micro-USD; `None` if the agent reports no cost.
    pub cost_micros: Option<u64>,
    /// The model that was used; `None` if the agent does not report it.
    pub model: Option<String>,
}

impl ReportedUsage {
    pub(crate) fn add(&mut self, more: &Self) {
        self.usage.add(more.usage);
        if let Some(cost) = more.cost_micros {
            self.cost_micros = Some(self.cost_micros.unwrap_or_default().saturating_add(cost));
        }
        if more.model.is_some() {
            self.model.clone_from(&more.model);
        }
    }

    /// The tokens to book, and a price at which they cost as much as the agent reports. A cost without tokens is booked
    /// on one token. If the agent reports no cost, the given price applies. `None` if there is nothing to book.
    pub(super) fn booked(&self, price: Option<Price>) -> Option<(Usage, Option<Price>)> {
        let Some(cost) = self.cost_micros.filter(|cost| *cost > 0) else {
            return (self.usage != Usage::default()).then_some((self.usage, price));
        };
        let tokens = |usage: &Usage| usage.total_input().saturating_add(usage.output);
        let mut usage = self.usage;
        usage.output = usage.output.max(u64::from(tokens(&usage) == 0));
        let each = u128::from(cost) * 1_000_000 / u128::from(tokens(&usage));
        let each = u64::try_from(each).unwrap_or(u64::MAX);
        Some((
            usage,
            Some(Price {
                input: each,
                cache_read: each,
                cache_write: each,
                output: each,
            }),
        ))
    }
}

/// One attempt of a foreign agent at a job.
pub struct AgentAttempt<'a> {
    pub job: &'a Job<'a>,
    pub enclosure: &'a dyn Enclosure,
    pub model: ModelAccess,
    /// The agent's own id of the conversation to resume.
    pub resume: Option<String>,
    /// The schema that the answer has to match. The prompt contains it already; an adapter whose protocol has a field
    /// for it should use that, too.
    pub output: Option<&'a WantedOutput>,
    pub cancel: CancellationToken,
    pub clock: &'a dyn Clock,
    /// Instructions that follow the contract.
    pub(super) instructions: &'a str,
    pub(super) name: &'a str,
    state: Mutex<AttemptState>,
    kept: Mutex<Option<Box<dyn Any + Send>>>,
}

#[derive(Default)]
struct AttemptState {
    /// The values of `output_bytes` and `worked` when the program was kept for the next prompt.
    progress_at_keep: Option<(usize, bool)>,
    began: bool,
    output_bytes: usize,
    session: Option<String>,
    worked: bool,
    /// The agent's last action was a call that was refused.
    refused: bool,
    /// The model produced text after the refused call.
    text_since_refusal: bool,
    open: HashMap<CallId, ToolCall>,
    /// Uses of each call id in the session. Computed at the first use.
    id_uses: Option<HashMap<String, u32>>,
    /// Contents of files before the calls that write them.
    before: HashMap<CallId, Vec<FileBeforeCall>>,
    reported: Option<ReportedUsage>,
    unbooked: ReportedUsage,
}

impl<'a> AgentAttempt<'a> {
    pub(super) fn new(
        job: &'a Job<'a>,
        enclosure: &'a dyn Enclosure,
        runtime: &'a ForeignRuntime,
        model: ModelAccess,
        cancel: CancellationToken,
    ) -> Self {
        let name = runtime.adapter.name();
        // The log contains the name of the agent that owned the session. Only that agent can resume it.
        let own = job
            .foreign_session
            .as_deref()
            .and_then(|text| text.split_once(':'));
        let resume = own
            .filter(|(whose, id)| *whose == name && is_session(id))
            .map(|(_, id)| id.to_owned());
        Self {
            job,
            enclosure,
            model,
            resume,
            output: runtime.output.as_ref(),
            cancel,
            clock: runtime.clock.as_ref(),
            instructions: &runtime.instructions,
            name,
            state: Mutex::default(),
            kept: Mutex::default(),
        }
    }

    /// Keeps a value between two turns of the attempt, for example the running program. It is dropped with the attempt.
    pub fn keep(&self, what: impl Any + Send) {
        *self.kept.lock() = Some(Box::new(what));
    }

    /// Keeps a running program for the next prompt.
    pub(crate) fn keep_running(&self, conversation: impl Any + Send) {
        self.keep(conversation);
        self.mark_kept();
    }

    /// Records the progress before the next prompt to a program that was kept.
    fn mark_kept(&self) {
        let mut state = self.state.lock();
        state.progress_at_keep = Some((state.output_bytes, state.worked));
    }

    /// Takes the kept value, if it has this type.
    pub fn take_kept<T: Any + Send>(&self) -> Option<T> {
        let kept = self.kept.lock().take()?;
        kept.downcast().ok().map(|kept| *kept)
    }

    /// Continues with the program and the conversation of the previous iteration.
    pub(super) async fn continue_with(
        &self,
        conversation: Box<dyn Any + Send>,
        session: Option<String>,
    ) -> Result<(), RuntimeError> {
        *self.kept.lock() = Some(conversation);
        self.mark_kept();
        self.log_start(session.as_deref()).await
    }

    /// Whether a kept program exited without any reaction to this prompt. True at most once per kept program.
    pub(super) fn exited_at_once(&self, answer: &AgentAnswer) -> bool {
        let mut state = self.state.lock();
        let now = (state.output_bytes, state.worked);
        let broken = matches!(answer.end, TurnEndReason::Broken(_)) && !self.cancel.is_cancelled();
        broken && state.progress_at_keep.take() == Some(now)
    }

    /// Takes the program and its conversation for the next iteration.
    pub(super) fn take_conversation(&self) -> Option<Box<dyn Any + Send>> {
        self.kept.lock().take()
    }

    /// The absolute path of a file in the agent's home.
    pub(crate) fn in_home(&self, path: &str) -> String {
        let path = self.enclosure.home().join(path);
        path.to_string_lossy().into_owned()
    }

    /// Removes files and directories from the agent's home with which an earlier attempt could influence this one.
    pub(crate) fn clear_home(&self, paths: &[impl AsRef<str>]) -> Result<(), String> {
        for path in paths.iter().map(AsRef::as_ref) {
            let cleared = self.enclosure.clear(path);
            cleared
                .map_err(|err| format!("cannot remove {path} from the home of the agent: {err}"))?;
        }
        Ok(())
    }

    pub(crate) fn put_home(&self, path: &str, text: &str) -> Result<(), String> {
        let put = self.enclosure.put(path, text.as_bytes());
        put.map_err(|err| format!("cannot write {path} in the home of the agent: {err}"))
    }

    /// Logs the start of the iteration, with the agent's own session id. Must precede everything else; later calls do
    /// nothing. An id that could be mistaken for an option on a command line is not used for resuming.
    pub async fn log_start(&self, session: Option<&str>) -> Result<(), RuntimeError> {
        let session = session.filter(|id| is_session(id));
        {
            let mut state = self.state.lock();
            state.session = session.map(str::to_owned).or_else(|| state.session.take());
            if std::mem::replace(&mut state.began, true) {
                return Ok(());
            }
        }
        // An iteration that paused has logged its start already. Only a new session of the agent is logged again.
        if self.job.resumed && session.is_none_or(|id| self.resume.as_deref() == Some(id)) {
            return Ok(());
        }
        let foreign_session = session.map(|id| format!("{}:{id}", self.name));
        self.emit(EventKind::IterationStarted {
            iteration: self.job.iteration,
            foreign_session,
        })
        .await
    }

    pub(crate) async fn emit(&self, kind: EventKind) -> Result<(), RuntimeError> {
        self.job.sink.emit(kind).await?;
        Ok(())
    }

    /// Instructions for an agent that accepts standing instructions: those of the runtime, and the contract.
    #[must_use]
    pub fn standing_instructions(&self) -> String {
        format!("{}\n\n{CONTRACT}", self.instructions)
            .trim_start()
            .to_owned()
    }

    /// The agent's own session id to resume: of this attempt, else of an earlier one.
    #[must_use]
    pub fn session(&self) -> Option<String> {
        self.state
            .lock()
            .session
            .clone()
            .or_else(|| self.resume.clone())
    }

    /// Logs a complete message of the agent's model. A message must contain a call before the call is admitted,
    /// observed or reported.
    pub async fn log_message(&self, message: Message) -> Result<(), RuntimeError> {
        self.log_start(None).await?;
        self.count_output(message.parts.iter().map(part_size).sum())?;
        {
            let mut state = self.state.lock();
            state.text_since_refusal |= !message.text().trim().is_empty();
            for call in message.calls() {
                if state.open.len() < MAX_OPEN {
                    state.open.insert(call.id.clone(), call.clone());
                }
            }
        }
        self.emit(EventKind::said(message)).await
    }

    /// A call id that is unique in the session. Some programs and servers number their calls from one in every answer.
    pub fn call_id(&self, agent_id: &str) -> CallId {
        let mut state = self.state.lock();
        let id_uses = state.id_uses.get_or_insert_with(|| {
            let mut id_uses: HashMap<String, u32> = HashMap::new();
            for entry in self.job.sink.history().iter() {
                entry.calls().for_each(|call| {
                    *id_uses
                        .entry(agent_call_id(&call.id.0).to_owned())
                        .or_default() += 1
                });
            }
            id_uses
        });
        let count = id_uses
            .entry(agent_call_id(agent_id).to_owned())
            .or_default();
        *count += 1;
        CallId(if *count > 1 {
            format!("{agent_id}~{count}")
        } else {
            agent_id.to_owned()
        })
    }

    /// Displays a piece of an answer, if a client watches the run.
    pub fn delta(&self, of: DeltaOf, text: &str) {
        if self.job.sink.watched() && !text.is_empty() {
            let text = text.to_owned();
            self.job.sink.show(EventKind::Delta { of, text });
        }
    }

    /// Displays the newest output of a call, if a client watches the run.
    pub fn progress(&self, call: &CallId, text: &str) {
        if self.job.sink.watched() && !text.is_empty() {
            let (id, text) = (call.clone(), text.to_owned());
            self.job.sink.show(EventKind::CallProgress { id, text });
        }
    }

    /// Asks the gate about a call of the agent. The agent receives the verdict unchanged.
    pub async fn admit(&self, call: ForeignCall) -> Result<Admitted, RuntimeError> {
        let (id, effect) = (call.call.id.clone(), effect_of_call(&call));
        let admitted = self.job.toolbox.admit(call).await?;
        // The user may have taken long to answer. The comparison starts with the files as they are now.
        let before = match &admitted {
            Admitted::Yes { writes, .. } => FileBeforeCall::of_all(self.job.files.as_ref(), writes),
            Admitted::No { .. } => Vec::new(),
        };
        let mut state = self.state.lock();
        match &admitted {
            Admitted::Yes { .. } => {
                if !before.is_empty() && state.before.len() < MAX_OPEN {
                    state.before.insert(id, before);
                }
                state.refused = false;
                state.worked |= effect > Effect::Read;
            }
            // The gate logged a result for the refused call.
            Admitted::No { .. } => {
                (state.refused, state.text_since_refusal) = (true, false);
                state.open.remove(&id);
            }
        }
        drop(state);
        Ok(admitted)
    }

    /// Runs a Windlass tool for the agent. The gate judges and the engine logs the call like any other.
    pub async fn call(&self, call: ToolCall) -> Result<ToolResult, RuntimeError> {
        let planned = Planned {
            call: call.clone(),
            refuse: None,
        };
        let settled = self
            .job
            .toolbox
            .call(vec![planned])
            .await?
            .into_iter()
            .next();
        let mut state = self.state.lock();
        // The call has its result. A call that is dropped before this line stays open, and gets a result at the end.
        state.open.remove(&call.id);
        let Some(settled) = settled else {
            return Ok(ToolResult::not_run(&call, "the engine did not run it"));
        };
        state.worked |= settled.effect.is_some_and(|effect| effect > Effect::Read);
        Ok(settled.result)
    }

    /// Logs a call that the agent executes without asking.
    pub async fn observed(&self, call: ForeignCall) -> Result<(), RuntimeError> {
        self.state.lock().worked |= call.effect > Effect::Read;
        self.job.toolbox.observed(call).await?;
        Ok(())
    }

    /// Logs the result that the agent reports for a call. Results of unknown or completed calls are ignored.
    pub async fn reported_result(&self, result: ToolResult) -> Result<(), RuntimeError> {
        if self.state.lock().open.remove(&result.id).is_none() {
            return Ok(());
        }
        self.count_output(result.text.len())?;
        let changes = self.compare_files(&result.id);
        self.job.toolbox.reported(result, changes).await?;
        Ok(())
    }

    /// Compares the files that a call was to write with their contents before the call.
    fn compare_files(&self, call: &CallId) -> Vec<ObservedChange> {
        let before = self.state.lock().before.remove(call).unwrap_or_default();
        before
            .into_iter()
            .filter_map(|before| before.compare(self.job.files.as_ref()))
            .collect()
    }

    fn count_output(&self, bytes: usize) -> Result<(), RuntimeError> {
        let bytes_so_far = &mut self.state.lock().output_bytes;
        *bytes_so_far = bytes_so_far
            .saturating_add(bytes)
            .saturating_add(MESSAGE_OVERHEAD);
        if *bytes_so_far <= MAX_OUTPUT {
            return Ok(());
        }
        Err(RuntimeError::Other(format!(
            "{} produced more than {} MiB of output in one iteration",
            self.name,
            MAX_OUTPUT >> 20
        )))
    }

    /// Adds the spending that the agent reports since its last report.
    pub fn spent(&self, more: &ReportedUsage) {
        let mut state = self.state.lock();
        state.reported.get_or_insert_default().add(more);
        state.unbooked.add(more);
    }

    /// Logs a warning for the user.
    pub async fn warn(&self, code: &str, text: String) -> Result<(), RuntimeError> {
        let code = code.to_owned();
        self.emit(EventKind::Warned { code, text }).await
    }

    /// Whether the agent did more than read.
    pub(super) fn did_work(&self) -> bool {
        self.state.lock().worked
    }

    /// Whether the last call was refused and the model neither acted nor produced text since. Text before the call is
    /// no answer to the refusal.
    pub(crate) fn is_silent_after_refusal(&self) -> bool {
        let state = self.state.lock();
        state.refused && !state.text_since_refusal
    }

    /// Whether the last call was refused and no call was allowed since.
    pub(crate) fn ended_at_refusal(&self) -> bool {
        self.state.lock().refused
    }

    pub(super) fn reported(&self) -> Option<ReportedUsage> {
        self.state.lock().reported.clone()
    }

    pub(super) fn take_unbooked(&self) -> ReportedUsage {
        std::mem::take(&mut self.state.lock().unbooked)
    }

    /// Logs a failed result for every open call.
    pub(super) async fn close_open_calls(&self, why: &str) -> Result<(), RuntimeError> {
        let open = std::mem::take(&mut self.state.lock().open);
        for call in open.into_values() {
            let result = ToolResult::failed(&call, ErrorCategory::Interrupted, why);
            let changes = self.compare_files(&call.id);
            self.job.toolbox.reported(result, changes).await?;
        }
        Ok(())
    }
}

/// Whether the agent can be told to resume this id, and the id cannot be mistaken for an option on a command line.
fn is_session(id: &str) -> bool {
    let plain = |c: char| !c.is_whitespace() && !c.is_control();
    !id.is_empty() && id.len() <= MAX_SESSION && !id.starts_with('-') && id.chars().all(plain)
}

/// The agent's own id of a call, without the number that [`AgentAttempt::call_id`] appended.
fn agent_call_id(id: &str) -> &str {
    let numbered = |(_, number): &(&str, &str)| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    id.rsplit_once('~')
        .filter(numbered)
        .map_or(id, |(name, _)| name)
}

fn effect_of_call(call: &ForeignCall) -> Effect {
    // The toolbox judges the call by the tools that it resembles. This function only tells reading from work.
    let is_read = |like: &Like| effect_of(&like.tool) == Effect::Read;
    if !call.like.is_empty() && call.like.iter().all(is_read) {
        Effect::Read
    } else {
        call.effect
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_id_cannot_be_a_command_line_option() {
        for id in [
            "3e581522-b2f8-4804-8e8e-b2bb2ffc70c8",
            "ses_e233328fcffeqgvG7iP3tUbSbT",
            "a/b:c",
        ] {
            assert!(is_session(id), "{id}");
        }
        let long = "x".repeat(MAX_SESSION + 1);
        for id in [
            "",
            "--dangerously-skip-permissions",
            "-c",
            "a b",
            "a\nb",
            "\u{1b}[31m",
            &long,
        ] {
            assert!(!is_session(id), "{id}");
        }
    }

    #[test]
    fn the_appended_number_is_removed_from_a_call_id() {
        for (id, name) in [
            ("call-1", "call-1"),
            ("call-1~2", "call-1"),
            ("a~b", "a~b"),
            ("a~", "a~"),
            ("a~2~13", "a~2"),
        ] {
            assert_eq!(agent_call_id(id), name);
        }
    }

    #[track_caller]
    fn check_booked(
        tokens: [u64; 2],
        cost_micros: Option<u64>,
        price: Option<Price>,
        expect: Option<(u64, u64)>,
    ) {
        let usage = Usage {
            input: tokens[0],
            output: tokens[1],
            ..Usage::default()
        };
        let booked = ReportedUsage {
            usage,
            cost_micros,
            model: None,
        }
        .booked(price);
        let booked = booked
            .map(|(usage, price)| (usage.counted(), price.map_or(0, |price| price.cost(usage))));
        assert_eq!(booked, expect);
    }

    #[test]
    fn a_reported_cost_overrides_the_price() {
        let price = Price {
            input: 3_000_000,
            output: 15_000_000,
            ..Price::FREE
        };
        check_booked([1_000, 100], None, Some(price), Some((1_100, 4_500)));
        check_booked(
            [1_000, 100],
            Some(17_400),
            Some(price),
            Some((1_100, 17_400)),
        );
        check_booked([1_000, 100], Some(17_400), None, Some((1_100, 17_400)));
        check_booked([1_000, 100], None, None, Some((1_100, 0)));
        check_booked([0, 0], Some(17_400), None, Some((1, 17_400)));
        check_booked([0, 0], Some(0), None, None);
        check_booked([u64::MAX, 1], Some(5), None, Some((u64::MAX, 0)));
    }
}
