//! A foreign agent as a runtime. The runtime opens the enclosure, serves the model endpoint and sends the contract; the
//! adapter talks to the agent until the agent is done, a limit is reached or the user cancels. An adapter only
//! implements a protocol; all the rules that hold an agent are in this module, once for all agents.

mod attempt;
mod file_changes;
mod metering;
mod prompts;

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use serde_json::Value;
use windlass_core::budget::{Limit, Usage};
use windlass_core::clock::Clock;
use windlass_core::enclosure::Enclosure;
use windlass_core::event::EventKind;
use windlass_core::message::Message;
use windlass_core::outcome::{FailReason, RefusalCategory};
use windlass_core::provider::ProviderError;
use windlass_core::runtime::{
    Capabilities, Capability, Feature, Features, Job, Runtime, RuntimeError, Stop,
};
use windlass_core::structured_output::first_json_that_fits;
use windlass_core::terms::{GateKind, Terms};
use windlass_core::{BoxFuture, CancellationToken};
use windlass_meter::{Endpoint, Ledger, Trip};

use crate::acp::text::end_of;
use crate::contract::{CONTINUE_PROMPT, REFUSED_PROMPT, asks_for_permission};

pub use self::attempt::{AgentAttempt, ModelAccess, ReportedUsage};
pub use self::metering::Metering;
pub use self::prompts::full_prompt;

/// Time for an agent to end after its protocol told it to. Then it is killed.
pub const CANCEL_GRACE: Duration = Duration::from_millis(500);
/// Retries for an answer that does not match its schema.
const MAX_REPAIRS: u32 = 2;
/// Prompts to continue for an agent that ended its turn at a refused call.
const MAX_REFUSALS: u32 = 5;
/// Bytes of the last answer in an error message.
const MAX_QUOTED: usize = 300;
/// Prompts in one iteration, the first one and steers included.
const MAX_PROMPTS: u32 = 50;

const NO_NAMESPACE: &str = "the spending of the agent can only be metered in a network namespace, and this run uses the \
                            machine's network; turn the network off or allow hosts by name";

/// Capabilities of an agent that reads and edits files and runs commands by itself.
pub(crate) const CODER_CAPABILITIES: [Capability; 7] = [
    Capability::TextCompletion,
    Capability::StreamingText,
    Capability::StructuredOutput,
    Capability::NativeToolLoop,
    Capability::FilesystemRead,
    Capability::FilesystemEdit,
    Capability::Shell,
];

/// Features of a protocol in which the agent asks about its calls and continues one conversation.
pub(crate) const CONVERSATION_FEATURES: [Feature; 5] = [
    Feature::ToolApproval,
    Feature::Resume,
    Feature::Cancel,
    Feature::ReportsTokens,
    Feature::ModelChoice,
];

/// The future of an answer.
pub type AnswerFuture<'a> = BoxFuture<'a, Result<AgentAnswer, RuntimeError>>;

/// A protocol that foreign agents speak.
pub trait Adapter: Send + Sync {
    /// The name of the runtime, as users type it.
    fn name(&self) -> &str;
    /// The model that the agent is told to use; `None` if the agent chooses.
    fn model(&self) -> Option<&str>;
    /// The work that the agent can do by itself.
    fn capabilities(&self) -> Capabilities;
    /// The control that the protocol gives over the agent.
    fn features(&self) -> Features;
    /// Whether the agent has neither a memory nor tools of its own. It then receives the conversation from the log,
    /// with the contract as standing instructions, and all its calls are calls of Windlass tools.
    fn is_stateless(&self) -> bool {
        false
    }
    /// Whether the program may survive from one iteration to the next. It is paused while the validators run.
    fn survives_iterations(&self) -> bool {
        false
    }
    /// Sends a prompt to the agent and follows the agent to the end of its answer. The first call spawns the program
    /// and resumes the conversation `attempt.resume`, if there is one. Later calls may use the same process, which the
    /// adapter keeps in the attempt, or spawn it again and resume.
    ///
    /// When `attempt.cancel` is cancelled, the adapter tells the agent in its protocol and waits for [`CANCEL_GRACE`].
    /// All processes of the agent must be gone when this returns or is dropped.
    fn converse<'a>(&'a self, attempt: &'a AgentAttempt<'a>, say: &'a str) -> AnswerFuture<'a>;
}

/// The end of one turn of a conversation, as the agent reports it. The engine trusts nothing of it before it has
/// inspected the files.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentAnswer {
    /// The last message of the agent.
    pub text: String,
    /// The structured answer, if the agent's protocol has a field for it.
    pub output: Option<Value>,
    pub end: TurnEndReason,
}

/// The reason why a turn ended, as the agent reports it.
#[derive(Debug, Clone, PartialEq)]
pub enum TurnEndReason {
    /// The agent says that the task is done.
    Done,
    /// The model refused the task.
    Refused(String),
    /// The agent refused the task through the tool for refusals.
    Declined(RefusalCategory, String),
    /// The agent reports that its model failed.
    Provider(ProviderError),
    /// The agent reached a limit of its own.
    OwnLimit(String),
    /// The agent crashed, exited without an answer, or violated its protocol. The sentence quotes the end of standard
    /// error.
    Broken(String),
    Cancelled,
}

/// Checks whether an answer matches the requested schema.
pub type OutputCheck = Arc<dyn Fn(&Value) -> Result<(), String> + Send + Sync>;

/// A schema that the answer has to match.
#[derive(Clone)]
pub struct WantedOutput {
    pub schema: Value,
    pub check: OutputCheck,
}

/// A runtime that holds a foreign agent to the contract.
pub struct ForeignRuntime {
    pub adapter: Box<dyn Adapter>,
    pub metering: Metering,
    pub clock: Arc<dyn Clock>,
    /// The schema of the answer, if the caller gave one.
    pub output: Option<WantedOutput>,
    /// Instructions that follow the contract: the profile, and project files that the agent does not read by itself.
    pub instructions: String,
    /// The version of the agent's program, if known.
    pub version: Option<String>,
    /// The agent of the last iteration, while the validators run.
    pub paused: PausedAgent,
}

/// An agent that waits for the next iteration of its run: its processes are paused, its conversation is open.
#[derive(Default)]
pub struct PausedAgent(Mutex<Option<Paused>>);

struct Paused {
    enclosure: Arc<dyn Enclosure>,
    conversation: Box<dyn Any + Send>,
    session: Option<String>,
}

impl PausedAgent {
    /// Resumes the agent of the previous iteration. `None` if it ended, or if its copy was closed or mounted again.
    fn resume(&self, iteration: u32) -> Option<Paused> {
        let paused = self.0.lock().take()?;
        (iteration > 1 && paused.enclosure.resume()).then_some(paused)
    }
}

impl ForeignRuntime {
    async fn run_attempt(&self, job: &Job<'_>) -> Result<Stop, RuntimeError> {
        let paused = self.paused.resume(job.iteration);
        let (enclosure, before) = match paused {
            Some(paused) => {
                let before = (paused.conversation, paused.session);
                (paused.enclosure, Some(before))
            }
            None => match job.processes.enclose().await {
                Ok(enclosure) => (enclosure, None),
                Err(err) => return Ok(failed(FailReason::Isolation, err.0)),
            },
        };
        let model = match (&self.metering, enclosure.endpoint()) {
            (Metering::Wire(endpoint), Some(port)) => ModelAccess::Metered {
                url: format!("http://127.0.0.1:{port}"),
                key: endpoint.key(),
            },
            (Metering::Wire(_), None) => return Ok(failed(FailReason::Isolation, NO_NAMESPACE)),
            (Metering::Reported { .. } | Metering::None, _) => ModelAccess::Own,
        };
        let cancel = job.cancel.child_token();
        let attempt = AgentAttempt::new(job, enclosure.as_ref(), self, model, cancel.clone());
        if let Some((conversation, session)) = before {
            attempt.continue_with(conversation, session).await?;
        }
        let stop = match &self.metering {
            Metering::Wire(endpoint) => {
                self.run_metered(&attempt, endpoint.as_ref(), &cancel)
                    .await?
            }
            Metering::Reported { .. } | Metering::None => self.converse(&attempt).await?,
        };
        attempt
            .close_open_calls("the agent ended before it reported a result")
            .await?;
        for host in enclosure.take_refused() {
            let rule = "sandbox: network".to_owned();
            attempt
                .emit(EventKind::ConnectionRefused { host, rule })
                .await?;
        }
        self.reconcile(&attempt).await?;
        let is_judged = matches!(stop, Stop::Done | Stop::Answered { .. });
        if is_judged
            && self.adapter.survives_iterations()
            && let Some(conversation) = attempt.take_conversation()
        {
            let (session, enclosure) = (attempt.session(), Arc::clone(&enclosure));
            *self.paused.0.lock() = Some(Paused {
                enclosure,
                conversation,
                session,
            });
        }
        Ok(stop)
    }

    /// Lets the agent work while the meter accepts its model requests.
    async fn run_metered(
        &self,
        attempt: &AgentAttempt<'_>,
        endpoint: &dyn Endpoint,
        cancel: &CancellationToken,
    ) -> Result<Stop, RuntimeError> {
        let ledger = Ledger {
            account: attempt.job.account,
            sink: attempt.job.sink,
        };
        let done = CancellationToken::new();
        let mut serving = endpoint.serve(attempt.enclosure, ledger, &done);
        let mut conversing = std::pin::pin!(self.converse(attempt));
        let trip = tokio::select! {
            biased;
            stop = &mut conversing => {
                done.cancel();
                // The last request may have reached a limit. Then the limit is the reason for the end.
                match (serving.await?, stop?, endpoint.failing()) {
                    (Some(trip), ..) => Some(trip),
                    // An agent whose model fails may report any error of its own.
                    (None, Stop::Failed { reason: FailReason::Runtime, .. }, Some(err)) => Some(Trip::Provider(err)),
                    (None, stop, _) => return Ok(stop),
                }
            }
            trip = &mut serving => {
                // The agent sees the refusal of the meter. The attempt ends with this trip, independent of the agent's
                // reaction.
                cancel.cancel();
                tokio::select! {
                    biased;
                    _ = &mut conversing => {}
                    () = self.clock.sleep(CANCEL_GRACE * 2) => {}
                }
                trip?
            }
        };
        Ok(match trip {
            Some(Trip::OverBudget(limit)) => Stop::OverBudget { limit },
            Some(Trip::Provider(err)) => Stop::Provider(err),
            Some(Trip::Declined) => {
                let detail = "the agent's model refused repeatedly".to_owned();
                Stop::Refused {
                    category: RefusalCategory::Safety,
                    detail,
                }
            }
            None => Stop::Cancelled,
        })
    }

    async fn converse(&self, attempt: &AgentAttempt<'_>) -> Result<Stop, RuntimeError> {
        let mut extra = ExtraPrompts::default();
        let mut say = prompts::first_prompt(attempt, self.adapter.is_stateless()).await?;
        for _ in 0..MAX_PROMPTS {
            let mut answer = self.adapter.converse(attempt, &say).await?;
            // A program that was about to exit when it was paused exits as soon as it is resumed. Such a program is
            // started again.
            if attempt.exited_at_once(&answer) {
                answer = self.adapter.converse(attempt, &say).await?;
            }
            self.book_reported(attempt).await?;
            match self.after_answer(attempt, answer, &mut extra).await? {
                AfterAnswer::Stop(stop) => return Ok(stop),
                AfterAnswer::Say(_) if attempt.job.sink.pauses() => return Ok(Stop::Paused),
                AfterAnswer::Say(words) => say = words,
            }
        }
        let detail =
            "the agent received too many prompts in one iteration; send the rest in a new prompt";
        Ok(failed(FailReason::Runtime, detail))
    }

    /// Decides what follows an answer: the end of the attempt, or another prompt.
    async fn after_answer(
        &self,
        attempt: &AgentAttempt<'_>,
        answer: AgentAnswer,
        extra: &mut ExtraPrompts,
    ) -> Result<AfterAnswer, RuntimeError> {
        let job = attempt.job;
        if let Some(stop) = self.ended(attempt, &answer) {
            return Ok(AfterAnswer::Stop(stop));
        }
        if let Some(limit) = self.reported_limit(job) {
            return Ok(AfterAnswer::Stop(Stop::OverBudget { limit }));
        }
        if job.sink.steer().await? {
            return Ok(AfterAnswer::Say(prompts::last_user_message(job.sink)));
        }
        // Some agents end their turn at a refused call.
        if attempt.is_silent_after_refusal() && extra.refusals < MAX_REFUSALS {
            extra.refusals += 1;
            return tell(job, REFUSED_PROMPT).await;
        }
        match self.checked_output(answer.output, &answer.text) {
            Ok(Some(output)) => return Ok(AfterAnswer::Stop(Stop::Answered { output })),
            Ok(None) => {}
            Err(why) => return Ok(extra.repair(&why)),
        }
        if attempt.did_work() || !asks_for_permission(&answer.text) {
            return Ok(AfterAnswer::Stop(Stop::Done));
        }
        if std::mem::replace(&mut extra.told_to_continue, true) {
            let detail = format!(
                "{} asked for confirmation twice instead of doing the work: {}",
                self.adapter.name(),
                end_of(answer.text.trim(), MAX_QUOTED)
            );
            let category = RefusalCategory::Capability;
            return Ok(AfterAnswer::Stop(Stop::Refused { category, detail }));
        }
        tell(job, CONTINUE_PROMPT).await
    }

    /// The stop that follows from an answer; `None` if the agent says that it is done.
    fn ended(&self, attempt: &AgentAttempt<'_>, answer: &AgentAnswer) -> Option<Stop> {
        let refused = |detail: &str| Stop::Refused {
            category: RefusalCategory::Safety,
            detail: detail.to_owned(),
        };
        Some(match &answer.end {
            _ if attempt.cancel.is_cancelled() => Stop::Cancelled,
            TurnEndReason::Cancelled => Stop::Cancelled,
            TurnEndReason::Refused(detail) => refused(detail),
            TurnEndReason::Declined(category, detail) => Stop::Refused {
                category: *category,
                detail: detail.clone(),
            },
            TurnEndReason::Provider(err) => Stop::Provider(err.clone()),
            TurnEndReason::OwnLimit(detail) => {
                let name = self.adapter.name();
                let detail = format!("{name} stopped at a limit of its own: {detail}");
                failed(FailReason::Runtime, detail)
            }
            // Some agents crash when their model refuses, because they expect text.
            TurnEndReason::Done | TurnEndReason::Broken(_) if self.declined() => {
                match end_of(answer.text.trim(), MAX_QUOTED) {
                    "" => refused("the agent's model refused the task"),
                    said => refused(said),
                }
            }
            TurnEndReason::Broken(detail) => failed(FailReason::Runtime, detail),
            TurnEndReason::Done => return None,
        })
    }

    /// The structured answer, if a schema was given. `Err` explains why the answer does not match.
    fn checked_output(&self, output: Option<Value>, text: &str) -> Result<Option<Value>, String> {
        let Some(wanted) = &self.output else {
            return Ok(None);
        };
        match output {
            Some(value) => (wanted.check)(&value).map(|()| Some(value)),
            None => first_json_that_fits(text, |value| (wanted.check)(value)).map(Some),
        }
    }

    /// Whether the meter saw the model refuse.
    fn declined(&self) -> bool {
        matches!(&self.metering, Metering::Wire(endpoint) if endpoint.declined())
    }

    /// Books the spending that the agent reports, if no meter counts it.
    async fn book_reported(&self, attempt: &AgentAttempt<'_>) -> Result<(), RuntimeError> {
        let Metering::Reported { price } = &self.metering else {
            return Ok(());
        };
        let reported = attempt.take_unbooked();
        let Some((usage, price)) = reported.booked(*price) else {
            return Ok(());
        };
        let model = reported
            .model
            .as_deref()
            .or(self.adapter.model())
            .unwrap_or("unknown");
        attempt
            .job
            .account
            .settle(usage, price, false, model)
            .await?;
        Ok(())
    }

    fn reported_limit(&self, job: &Job<'_>) -> Option<Limit> {
        match self.metering {
            Metering::Reported { .. } => job.account.exceeded(),
            Metering::Wire(_) | Metering::None => None,
        }
    }

    /// Warns if the agent's own token count is far from the count of the meter.
    async fn reconcile(&self, attempt: &AgentAttempt<'_>) -> Result<(), RuntimeError> {
        let Metering::Wire(endpoint) = &self.metering else {
            return Ok(());
        };
        let counted = endpoint.take_usage();
        // A cancelled agent may not have reported all of its usage.
        let Some(reported) = attempt
            .reported()
            .filter(|_| !attempt.cancel.is_cancelled())
        else {
            return Ok(());
        };
        let sum = |usage: &Usage| usage.total_input().saturating_add(usage.output);
        let (ours, theirs) = (sum(&counted), sum(&reported.usage));
        if ours.abs_diff(theirs) <= (ours / 20).max(1_000) {
            return Ok(());
        }
        let text = format!(
            "{} reports {theirs} tokens; {ours} were metered and are charged",
            self.adapter.name()
        );
        attempt.warn("usage_differs", text).await
    }
}

/// Prompts that one attempt sent to the agent besides the task.
#[derive(Default)]
struct ExtraPrompts {
    repairs: u32,
    refusals: u32,
    told_to_continue: bool,
}

impl ExtraPrompts {
    /// Sends an answer that does not match its schema back to the agent, at most [`MAX_REPAIRS`] times.
    fn repair(&mut self, why: &str) -> AfterAnswer {
        self.repairs += 1;
        if self.repairs <= MAX_REPAIRS {
            return AfterAnswer::Say(format!(
                "Your answer does not fit the schema that was asked for: {why}. Answer again with one JSON value that \
                 does, and nothing around it."
            ));
        }
        let attempts = self.repairs;
        let detail =
            format!("the answer does not match the schema after {attempts} attempts: {why}");
        AfterAnswer::Stop(failed(FailReason::StructuredOutput, detail))
    }
}

/// The reaction of the runtime to an answer.
enum AfterAnswer {
    Stop(Stop),
    Say(String),
}

/// Logs a prompt of the engine for the agent, and sends it.
async fn tell(job: &Job<'_>, words: &str) -> Result<AfterAnswer, RuntimeError> {
    let message = Message::internal(words);
    job.sink.emit(EventKind::said(message)).await?;
    Ok(AfterAnswer::Say(words.to_owned()))
}

fn failed(reason: FailReason, detail: impl Into<String>) -> Stop {
    let detail = detail.into();
    Stop::Failed { reason, detail }
}

impl Runtime for ForeignRuntime {
    fn name(&self) -> &str {
        self.adapter.name()
    }

    fn model(&self) -> Option<&str> {
        self.adapter.model()
    }

    fn capabilities(&self) -> Capabilities {
        // The enclosure is a sandbox, also for an agent without one of its own.
        Capabilities::of(
            self.adapter
                .capabilities()
                .iter()
                .chain([Capability::Sandbox]),
        )
    }

    fn features(&self) -> Features {
        self.adapter.features()
    }

    fn terms(&self, terms: &mut Terms) {
        terms.metering = self.metering.kind();
        let asks = self.features().has(Feature::ToolApproval);
        terms.gate = if asks {
            GateKind::PerCall
        } else {
            GateKind::SandboxOnly
        };
        terms.agent_version.clone_from(&self.version);
    }

    fn begins_itself(&self) -> bool {
        true
    }

    fn run<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Result<Stop, RuntimeError>> {
        Box::pin(async move { self.run_attempt(&job).await })
    }
}
