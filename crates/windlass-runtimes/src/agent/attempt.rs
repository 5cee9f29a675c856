//! One attempt of a foreign agent at a job: its enclosure, the way to its model, and the doors to log, gate and user. It
//! keeps count of calls, so that every one has its result when the attempt ends.

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

use super::looked::Before;
use super::{Answer, End, ForeignRuntime, WantedOutput};
use crate::contract::CONTRACT;
use crate::likeness::effect_of;
use crate::said::weigh;

/// The most calls of one message that are open at a time; what is over is not logged one by one.
const MAX_OPEN: usize = 1_024;
/// Bytes that an agent may say in one try, calls and results included: all of it is in memory and in the log.
const MAX_SAID: usize = 128 << 20;
/// What a message or a result takes beside its words.
const FRAME: usize = 200;
/// The longest name of an agent's session.
const MAX_SESSION: usize = 200;

/// How the agent reaches its model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelAccess {
    /// At this address of ours (`http://127.0.0.1:PORT`, with no path), showing this key, which opens nothing else.
    /// Anthropic clients take the address as it is, OpenAI clients with `/v1`, Gemini clients as it is.
    Metered {
        /// The address.
        url: String,
        /// The key.
        key: String,
    },
    /// By a login of its own; nobody of ours is in between.
    Own,
}

impl ModelAccess {
    /// Whether its model calls go through us.
    pub(crate) fn is_metered(&self) -> bool {
        matches!(self, Self::Metered { .. })
    }
}

/// What an agent says it spent, added up over the try.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reported {
    /// Tokens.
    pub usage: Usage,
    /// Micro-USD, where it says so.
    pub cost_micros: Option<u64>,
    /// Of which model, where it says so.
    pub model: Option<String>,
}

impl Reported {
    /// Adds what was reported further.
    pub(crate) fn add(&mut self, more: &Self) {
        self.usage.add(more.usage);
        if let Some(cost) = more.cost_micros {
            self.cost_micros = Some(self.cost_micros.unwrap_or_default().saturating_add(cost));
        }
        if more.model.is_some() {
            self.model.clone_from(&more.model);
        }
    }

    /// The tokens to book, and the price at which they cost what the agent says they did; a cost without tokens is put
    /// on one. Where it names no cost the given price counts. `None` when there is nothing.
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

/// One attempt of a foreign agent.
pub struct AgentAttempt<'a> {
    /// Everything the run gives.
    pub job: &'a Job<'a>,
    /// Where the agent runs.
    pub enclosure: &'a dyn Enclosure,
    /// How it reaches its model.
    pub model: ModelAccess,
    /// Its conversation to go on with, in its own words.
    pub resume: Option<String>,
    /// An answer that has to fit a schema. The prompt says so already; a protocol that has a place for it is better.
    pub output: Option<&'a WantedOutput>,
    /// Ends it.
    pub cancel: CancellationToken,
    /// Time.
    pub clock: &'a dyn Clock,
    /// Words behind the contract.
    pub(super) instructions: &'a str,
    /// The runtime's name.
    pub(super) name: &'a str,
    state: Mutex<State>,
    kept: Mutex<Option<Box<dyn Any + Send>>>,
}

#[derive(Default)]
struct State {
    /// The values of `said` and `worked` when the program was kept for the next prompt.
    at_keeping: Option<(usize, bool)>,
    began: bool,
    said: usize,
    session: Option<String>,
    worked: bool,
    /// The last thing of note was a call that was refused.
    refused: bool,
    /// The model said something after that.
    spoke_since: bool,
    open: HashMap<CallId, ToolCall>,
    /// How often each name of a call was used in the session, once somebody has to know.
    used: Option<HashMap<String, u32>>,
    /// Files as they were before calls that write them.
    before: HashMap<CallId, Vec<Before>>,
    reported: Option<Reported>,
    unbooked: Reported,
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
        // The log says whose session it was; another agent's is of no use here.
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

    /// Keeps something between two turns of the try: the program that runs, for one. It is dropped with the try.
    pub fn keep(&self, what: impl Any + Send) {
        *self.kept.lock() = Some(Box::new(what));
    }

    /// Keeps a program that takes the next prompt.
    pub(crate) fn keep_running(&self, conversation: impl Any + Send) {
        self.keep(conversation);
        self.expect_more();
    }

    /// Notes how much was said before the next prompt to a program that was kept.
    fn expect_more(&self) {
        let mut state = self.state.lock();
        state.at_keeping = Some((state.said, state.worked));
    }

    /// Takes what was kept.
    pub fn take_kept<T: Any + Send>(&self) -> Option<T> {
        let kept = self.kept.lock().take()?;
        kept.downcast().ok().map(|kept| *kept)
    }

    /// Continues with the program and the conversation of the iteration before.
    pub(super) async fn continue_with(
        &self,
        conversation: Box<dyn Any + Send>,
        session: Option<String>,
    ) -> Result<(), RuntimeError> {
        *self.kept.lock() = Some(conversation);
        self.expect_more();
        self.began(session.as_deref()).await
    }

    /// Whether a program that was kept ended without a word on this prompt. True at most once for each.
    pub(super) fn ended_at_once(&self, answer: &Answer) -> bool {
        let mut state = self.state.lock();
        let now = (state.said, state.worked);
        let broken = matches!(answer.end, End::Broken(_)) && !self.cancel.is_cancelled();
        broken && state.at_keeping.take() == Some(now)
    }

    /// Takes the program and its conversation, for the next iteration.
    pub(super) fn take_conversation(&self) -> Option<Box<dyn Any + Send>> {
        self.kept.lock().take()
    }

    /// A path in the agent's home, as a text.
    pub(crate) fn in_home(&self, path: &str) -> String {
        let path = self.enclosure.home().join(path);
        path.to_string_lossy().into_owned()
    }

    /// Removes files and folders of the agent's home that an earlier attempt may have left to steer it.
    pub(crate) fn clear_home(&self, paths: &[impl AsRef<str>]) -> Result<(), String> {
        for path in paths.iter().map(AsRef::as_ref) {
            let cleared = self.enclosure.clear(path);
            cleared.map_err(|err| format!("{path} in its home could not be removed: {err}"))?;
        }
        Ok(())
    }

    /// Writes a file of the agent's home.
    pub(crate) fn put_home(&self, path: &str, text: &str) -> Result<(), String> {
        let put = self.enclosure.put(path, text.as_bytes());
        put.map_err(|err| format!("{path} could not be put into its home: {err}"))
    }

    /// Says that the try began, with the agent's own session. Before anything else is said; once is enough. A session
    /// whose name could be taken for something else on a command line is none to go on with.
    pub async fn began(&self, session: Option<&str>) -> Result<(), RuntimeError> {
        let session = session.filter(|id| is_session(id));
        {
            let mut state = self.state.lock();
            state.session = session.map(str::to_owned).or_else(|| state.session.take());
            if std::mem::replace(&mut state.began, true) {
                return Ok(());
            }
        }
        // A try that waited for an answer began before it; only another session of the agent is news.
        if !self.job.pending.is_empty()
            && session.is_none_or(|id| self.resume.as_deref() == Some(id))
        {
            return Ok(());
        }
        let foreign_session = session.map(|id| format!("{}:{id}", self.name));
        self.emit(EventKind::IterationStarted {
            iteration: self.job.iteration,
            foreign_session,
        })
        .await
    }

    /// Logs an event.
    pub(crate) async fn emit(&self, kind: EventKind) -> Result<(), RuntimeError> {
        self.job.outlet.emit(kind).await?;
        Ok(())
    }

    /// What an agent is told that takes standing instructions: what it was made with, and the contract.
    #[must_use]
    pub fn standing_words(&self) -> String {
        format!("{}\n\n{CONTRACT}", self.instructions)
            .trim_start()
            .to_owned()
    }

    /// The agent's session to go on with, in its own words: the one of this try, else the one of earlier.
    #[must_use]
    pub fn session(&self) -> Option<String> {
        self.state
            .lock()
            .session
            .clone()
            .or_else(|| self.resume.clone())
    }

    /// A whole message of the agent's model. Calls in it have to be announced here before they are admitted, observed or
    /// reported.
    pub async fn said(&self, message: Message) -> Result<(), RuntimeError> {
        self.began(None).await?;
        self.count_said(message.parts.iter().map(weigh).sum())?;
        {
            let mut state = self.state.lock();
            state.spoke_since |= !message.text().trim().is_empty();
            for call in message.calls() {
                if state.open.len() < MAX_OPEN {
                    state.open.insert(call.id.clone(), call.clone());
                }
            }
        }
        self.emit(EventKind::said(message)).await
    }

    /// The name of a call in the log, where its own may have been used in the session before: there are programs and
    /// servers that count from one in every answer.
    pub fn call_id(&self, theirs: &str) -> CallId {
        let mut state = self.state.lock();
        let used = state.used.get_or_insert_with(|| {
            let mut used: HashMap<String, u32> = HashMap::new();
            for entry in self.job.outlet.history().iter() {
                entry.calls().for_each(|call| {
                    *used.entry(own_name(&call.id.0).to_owned()).or_default() += 1
                });
            }
            used
        });
        let times = used.entry(own_name(theirs).to_owned()).or_default();
        *times += 1;
        CallId(if *times > 1 {
            format!("{theirs}~{times}")
        } else {
            theirs.to_owned()
        })
    }

    /// A piece of an answer, for whoever watches.
    pub fn delta(&self, of: DeltaOf, text: &str) {
        if self.job.outlet.watched() && !text.is_empty() {
            let text = text.to_owned();
            self.job.outlet.show(EventKind::Delta { of, text });
        }
    }

    /// The newest output of a call, for whoever watches.
    pub fn progress(&self, call: &CallId, text: &str) {
        if self.job.outlet.watched() && !text.is_empty() {
            let (id, text) = (call.clone(), text.to_owned());
            self.job.outlet.show(EventKind::CallProgress { id, text });
        }
    }

    /// Has a call judged that the agent asks about. Its answer goes to the agent as it is.
    pub async fn admit(&self, call: ForeignCall) -> Result<Admitted, RuntimeError> {
        let (id, effect) = (call.call.id.clone(), worst(&call));
        let admitted = self.job.toolbox.admit(call).await?;
        // A person may have taken long: what is there now is what the call finds.
        let before = match &admitted {
            Admitted::Yes { writes, .. } => Before::of_all(self.job.files.as_ref(), writes),
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
            // It has its result.
            Admitted::No { .. } => {
                (state.refused, state.spoke_since) = (true, false);
                state.open.remove(&id);
            }
        }
        drop(state);
        Ok(admitted)
    }

    /// Runs a call of a tool of ours that the agent was offered: judged and logged like any.
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
        // It has its result. A call that is dropped on the way stays open, so that it gets one in the end.
        state.open.remove(&call.id);
        let Some(settled) = settled else {
            return Ok(ToolResult::not_run(&call, "nobody ran it"));
        };
        state.worked |= settled.effect.is_some_and(|effect| effect > Effect::Read);
        Ok(settled.result)
    }

    /// Notes a call that the agent runs without having asked.
    pub async fn observed(&self, call: ForeignCall) -> Result<(), RuntimeError> {
        self.state.lock().worked |= call.effect > Effect::Read;
        self.job.toolbox.observed(call).await?;
        Ok(())
    }

    /// Notes what the agent says came of a call. One that nobody knows, or that has its result, is passed over.
    pub async fn reported_result(&self, result: ToolResult) -> Result<(), RuntimeError> {
        if self.state.lock().open.remove(&result.id).is_none() {
            return Ok(());
        }
        self.count_said(result.text.len())?;
        let seen = self.looked_again(&result.id);
        self.job.toolbox.reported(result, seen).await?;
        Ok(())
    }

    /// What became of the files that a call was to write.
    fn looked_again(&self, call: &CallId) -> Vec<ObservedChange> {
        let before = self.state.lock().before.remove(call).unwrap_or_default();
        before
            .into_iter()
            .filter_map(|before| before.compare(self.job.files.as_ref()))
            .collect()
    }

    fn count_said(&self, bytes: usize) -> Result<(), RuntimeError> {
        let said = &mut self.state.lock().said;
        *said = said.saturating_add(bytes).saturating_add(FRAME);
        if *said <= MAX_SAID {
            return Ok(());
        }
        Err(RuntimeError::Other(format!(
            "{} said more than {} MiB in one try",
            self.name,
            MAX_SAID >> 20
        )))
    }

    /// What the agent says it spent since it last said so.
    pub fn spent(&self, more: &Reported) {
        let mut state = self.state.lock();
        state.reported.get_or_insert_default().add(more);
        state.unbooked.add(more);
    }

    /// Something a person should know.
    pub async fn warn(&self, code: &str, text: String) -> Result<(), RuntimeError> {
        let code = code.to_owned();
        self.emit(EventKind::Warned { code, text }).await
    }

    /// Whether the agent did more than look.
    pub(super) fn did_something(&self) -> bool {
        self.state.lock().worked
    }

    /// Whether the last call was refused, and the model neither did nor said anything since. Words before the call are
    /// no answer to its refusal.
    pub(crate) fn fell_silent_at_a_refusal(&self) -> bool {
        let state = self.state.lock();
        state.refused && !state.spoke_since
    }

    /// Whether the last call was refused and nothing was done since.
    pub(crate) fn ended_at_a_refusal(&self) -> bool {
        self.state.lock().refused
    }

    pub(super) fn reported(&self) -> Option<Reported> {
        self.state.lock().reported.clone()
    }

    pub(super) fn take_unbooked(&self) -> Reported {
        std::mem::take(&mut self.state.lock().unbooked)
    }

    /// Gives every call that is still open a result.
    pub(super) async fn close_open_calls(&self, why: &str) -> Result<(), RuntimeError> {
        let open = std::mem::take(&mut self.state.lock().open);
        for call in open.into_values() {
            let result = ToolResult::failed(&call, ErrorCategory::Interrupted, why);
            let seen = self.looked_again(&call.id);
            self.job.toolbox.reported(result, seen).await?;
        }
        Ok(())
    }
}

/// Whether it is a name that an agent can be told to go on with, and not a word of its command line.
fn is_session(id: &str) -> bool {
    let plain = |c: char| !c.is_whitespace() && !c.is_control();
    !id.is_empty() && id.len() <= MAX_SESSION && !id.starts_with('-') && id.chars().all(plain)
}

/// A call's own name, without the number that it got here.
fn own_name(id: &str) -> &str {
    let numbered = |(_, number): &(&str, &str)| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    id.rsplit_once('~')
        .filter(numbered)
        .map_or(id, |(name, _)| name)
}

fn worst(call: &ForeignCall) -> Effect {
    // What ours it is like is judged by the toolbox; here it only matters whether it was work.
    let looks = |like: &Like| effect_of(&like.tool) == Effect::Read;
    if !call.like.is_empty() && call.like.iter().all(looks) {
        Effect::Read
    } else {
        call.effect
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_no_word_of_a_command_line() {
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
    fn a_call_has_its_own_name_and_perhaps_a_number() {
        for (id, name) in [
            ("call-1", "call-1"),
            ("call-1~2", "call-1"),
            ("a~b", "a~b"),
            ("a~", "a~"),
            ("a~2~13", "a~2"),
        ] {
            assert_eq!(own_name(id), name);
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
        let booked = Reported {
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
    fn what_an_agent_says_it_cost_counts_before_a_price() {
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
