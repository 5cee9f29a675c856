//! What an adapter has in its hands during one try: the place, the way to the model, and the doors to log, gate and
//! person. It keeps count of what was seen, so that every call has its result when the try ends.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use windlass_core::CancellationToken;
use windlass_core::budget::Usage;
use windlass_core::clock::Clock;
use windlass_core::enclosure::Enclosure;
use windlass_core::event::{DeltaOf, EventKind};
use windlass_core::id::CallId;
use windlass_core::message::{ErrorCategory, Message, ToolCall, ToolResult};
use windlass_core::runtime::{Job, RuntimeError};
use windlass_core::tool::{Admitted, Effect, ForeignCall};
use windlass_core::turn::Planned;

use super::WantedOutput;

/// The most calls of one message that are open at a time; what is over is not logged one by one.
const MAX_OPEN: usize = 1_024;

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

/// One try with a foreign agent.
pub struct Visit<'a> {
    /// Everything the run gives.
    pub job: &'a Job<'a>,
    /// Where the agent runs.
    pub place: &'a dyn Enclosure,
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
    name: String,
    state: Mutex<State>,
    kept: Mutex<Option<Box<dyn Any + Send>>>,
}

#[derive(Default)]
struct State {
    began: bool,
    session: Option<String>,
    worked: bool,
    /// The last thing of note was a call that was refused.
    refused: bool,
    open: HashMap<CallId, ToolCall>,
    reported: Option<Reported>,
    unbooked: Reported,
}

impl<'a> Visit<'a> {
    pub(super) fn new(
        job: &'a Job<'a>,
        place: &'a dyn Enclosure,
        name: &str,
        model: ModelAccess,
        output: Option<&'a WantedOutput>,
        cancel: CancellationToken,
        clock: &'a dyn Clock,
    ) -> Self {
        // The log says whose session it was; another agent's is of no use here.
        let own = job.foreign_session.as_deref().and_then(|text| text.split_once(':'));
        let resume = own.filter(|(whose, _)| *whose == name).map(|(_, id)| id.to_owned());
        let (name, state, kept) = (name.to_owned(), Mutex::default(), Mutex::default());
        Self { job, place, model, resume, output, cancel, clock, name, state, kept }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps something between two turns of the try: the program that runs, for one. It is dropped with the try.
    pub fn keep(&self, what: impl Any + Send) {
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(what));
    }

    /// Takes what was kept.
    pub fn take_kept<T: Any + Send>(&self) -> Option<T> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        kept.downcast().ok().map(|kept| *kept)
    }

    /// Says that the try began, with the agent's own session. Before anything else is said; once is enough.
    pub async fn began(&self, session: Option<&str>) -> Result<(), RuntimeError> {
        {
            let mut state = self.state();
            state.session = session.map(str::to_owned).or_else(|| state.session.take());
            if std::mem::replace(&mut state.began, true) {
                return Ok(());
            }
        }
        // A try that waited for an answer began before it; only another session of the agent is news.
        if !self.job.pending.is_empty() && session.is_none_or(|id| self.resume.as_deref() == Some(id)) {
            return Ok(());
        }
        let foreign_session = session.map(|id| format!("{}:{id}", self.name));
        let iteration = self.job.iteration;
        self.job.outlet.emit(EventKind::IterationStarted { iteration, foreign_session }).await?;
        Ok(())
    }

    /// The agent's session to go on with, in its own words: the one of this try, else the one of earlier.
    #[must_use]
    pub fn session(&self) -> Option<String> {
        self.state().session.clone().or_else(|| self.resume.clone())
    }

    /// A whole message of the agent's model. Calls in it have to be announced here before they are admitted, observed or
    /// reported.
    pub async fn said(&self, message: Message) -> Result<(), RuntimeError> {
        self.began(None).await?;
        {
            let mut state = self.state();
            for call in message.calls() {
                if state.open.len() < MAX_OPEN {
                    state.open.insert(call.id.clone(), call.clone());
                }
            }
        }
        self.job.outlet.emit(EventKind::Said { message }).await?;
        Ok(())
    }

    /// A piece of an answer, for whoever watches.
    pub fn delta(&self, of: DeltaOf, text: &str) {
        if self.job.outlet.watched() && !text.is_empty() {
            self.job.outlet.show(EventKind::Delta { of, text: text.to_owned() });
        }
    }

    /// The newest output of a call, for whoever watches.
    pub fn progress(&self, call: &CallId, text: &str) {
        if self.job.outlet.watched() && !text.is_empty() {
            self.job.outlet.show(EventKind::CallProgress { id: call.clone(), text: text.to_owned() });
        }
    }

    /// Has a call judged that the agent asks about. Its answer goes to the agent as it is.
    pub async fn admit(&self, call: ForeignCall) -> Result<Admitted, RuntimeError> {
        let (id, effect) = (call.call.id.clone(), worst(&call));
        let admitted = self.job.toolbox.admit(call).await?;
        let mut state = self.state();
        match &admitted {
            Admitted::Yes { .. } => {
                state.refused = false;
                state.worked |= effect > Effect::Read;
            }
            // It has its result.
            Admitted::No { .. } => {
                state.refused = true;
                state.open.remove(&id);
            }
        }
        drop(state);
        Ok(admitted)
    }

    /// Runs a call of a tool of ours that the agent was offered: judged and logged like any.
    pub async fn call(&self, call: ToolCall) -> Result<ToolResult, RuntimeError> {
        let planned = Planned { call: call.clone(), refuse: None };
        let settled = self.job.toolbox.call(vec![planned]).await?.into_iter().next();
        let mut state = self.state();
        // It has its result. A call that is dropped on the way stays open, so that it gets one in the end.
        state.open.remove(&call.id);
        let Some(settled) = settled else { return Ok(ToolResult::not_run(&call, "nobody ran it")) };
        state.worked |= settled.effect.is_some_and(|effect| effect > Effect::Read);
        Ok(settled.result)
    }

    /// Notes a call that the agent runs without having asked.
    pub async fn observed(&self, call: ToolCall, effect: Effect) -> Result<(), RuntimeError> {
        self.state().worked |= effect > Effect::Read;
        self.job.toolbox.observed(call).await?;
        Ok(())
    }

    /// Notes what the agent says came of a call. One that nobody knows, or that has its result, is passed over.
    pub async fn reported_result(&self, result: ToolResult) -> Result<(), RuntimeError> {
        if self.state().open.remove(&result.id).is_none() {
            return Ok(());
        }
        self.job.toolbox.reported(result).await?;
        Ok(())
    }

    /// What the agent says it spent since it last said so.
    pub fn spent(&self, more: &Reported) {
        let mut state = self.state();
        let mut sum = state.reported.take().unwrap_or_default();
        add(&mut sum, more);
        state.reported = Some(sum);
        add(&mut state.unbooked, more);
    }

    /// Something a person should know.
    pub async fn warn(&self, code: &str, text: String) -> Result<(), RuntimeError> {
        self.job.outlet.emit(EventKind::Warned { code: code.to_owned(), text }).await?;
        Ok(())
    }

    /// Whether the agent did more than look.
    pub(super) fn did_something(&self) -> bool {
        self.state().worked
    }

    /// Whether the last call was refused and nothing was done since.
    pub(super) fn ended_at_a_refusal(&self) -> bool {
        self.state().refused
    }

    pub(super) fn reported(&self) -> Option<Reported> {
        self.state().reported.clone()
    }

    pub(super) fn take_unbooked(&self) -> Reported {
        std::mem::take(&mut self.state().unbooked)
    }

    /// Gives every call that is still open a result.
    pub(super) async fn close_open_calls(&self, why: &str) -> Result<(), RuntimeError> {
        let open = std::mem::take(&mut self.state().open);
        for call in open.into_values() {
            self.job.toolbox.reported(ToolResult::failed(&call, ErrorCategory::Interrupted, why)).await?;
        }
        Ok(())
    }
}

fn worst(call: &ForeignCall) -> Effect {
    // What ours it is like is judged by the toolbox; here it only matters whether it was work.
    let looks = |tool: &str| matches!(tool, "read_file" | "list_directory" | "find_files" | "grep" | "git_status");
    if !call.like.is_empty() && call.like.iter().all(|like| looks(&like.tool)) { Effect::Read } else { call.effect }
}

fn add(sum: &mut Reported, more: &Reported) {
    sum.usage.add(more.usage);
    if let Some(cost) = more.cost_micros {
        sum.cost_micros = Some(sum.cost_micros.unwrap_or_default().saturating_add(cost));
    }
    if more.model.is_some() {
        sum.model.clone_from(&more.model);
    }
}
