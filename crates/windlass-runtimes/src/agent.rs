//! One agent that is not ours as a runtime: its place is opened, its model endpoint served, the contract told, and its
//! adapter speaks with it, until it is done, a limit is reached or somebody ends it. What an adapter knows is its
//! protocol; everything that holds an agent is here, once for all of them.

mod attempt;
mod looked;
mod metering;
mod words;

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

use crate::acp::words::end_of;
use crate::contract::{GO_ON, REFUSED, asks_for_leave};

pub use self::attempt::{AgentAttempt, ModelAccess, Reported};
pub use self::metering::Metering;
pub use self::words::told_anew;

/// How long an agent may take to end after its protocol told it to; then it is killed.
pub const CANCEL_GRACE: Duration = Duration::from_millis(500);
/// How often an answer that does not fit its schema goes back.
const MAX_REPAIRS: u32 = 2;
/// How often an agent is sent on that ended its turn at a refusal.
const MAX_REFUSALS: u32 = 5;
/// How much of its last words is shown, when they are why it ended.
const SHOWN: usize = 300;
/// How often a person may say something more before the try ends all the same.
const MAX_STEERED: u32 = 50;

const NO_NAMESPACE: &str = "what the agent sends to its model can only be counted where its network is its own, and \
                            this run has the machine's; leave the network off or allow hosts by name";

/// What an agent can do that reads and changes files and runs commands by itself.
pub(crate) const CODER: [Capability; 7] = [
    Capability::TextCompletion,
    Capability::StreamingText,
    Capability::StructuredOutput,
    Capability::NativeToolLoop,
    Capability::FilesystemRead,
    Capability::FilesystemEdit,
    Capability::Shell,
];

/// What holds for a protocol in which the agent asks about its calls and stays in one conversation.
pub(crate) const CONVERSES: [Feature; 5] = [
    Feature::ToolApproval,
    Feature::Resume,
    Feature::Cancel,
    Feature::ReportsTokens,
    Feature::ModelChoice,
];

/// An answer that is on its way.
pub type Answering<'a> = BoxFuture<'a, Result<Answer, RuntimeError>>;

/// A protocol that foreign agents speak.
pub trait Adapter: Send + Sync {
    /// The runtime's name, as people type it.
    fn name(&self) -> &str;
    /// The model it is told to use, where that is known.
    fn model(&self) -> Option<&str>;
    /// What the agent can do.
    fn capabilities(&self) -> Capabilities;
    /// How it can be held and steered.
    fn features(&self) -> Features;
    /// Whether it has no memory and no tools of its own: it is told the conversation as the log has it, with the contract as
    /// its standing instructions, and every call of it is one of ours.
    fn lives_by_the_log(&self) -> bool {
        false
    }
    /// Whether its program may stay from one iteration to the next, stopped while the checks run.
    fn stays(&self) -> bool {
        false
    }
    /// Says something to the agent and follows it to the end of its answer. The first time the program is started, and
    /// goes on with the conversation `attempt.resume` names where there is one; later the adapter may keep it running in
    /// the attempt, or start it again and go on.
    ///
    /// When `attempt.cancel` is cancelled the agent is told in its protocol and gets [`CANCEL_GRACE`]; whatever it started
    /// must be gone when this returns or is dropped.
    fn converse<'a>(&'a self, attempt: &'a AgentAttempt<'a>, say: &'a str) -> Answering<'a>;
}

/// How one turn of a conversation ended, as the agent says. Nothing of it is believed before the files were looked at.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Its last words.
    pub text: String,
    /// The answer in the schema that was asked for, where the agent's protocol has a place for it.
    pub output: Option<Value>,
    /// Why it ended.
    pub end: End,
}

/// Why a turn ended.
#[derive(Debug, Clone, PartialEq)]
pub enum End {
    /// It says it is done.
    Done,
    /// Its model declined.
    Refused(String),
    /// It declined the task by the tool for that.
    Declined(RefusalCategory, String),
    /// Its model could not be had, as it says.
    Provider(ProviderError),
    /// It ran into a limit of its own.
    OwnLimit(String),
    /// It broke off: a crash, an exit without an answer, words that are no protocol. In a sentence, with what it said
    /// last on standard error.
    Broken(String),
    /// It was told to end.
    Cancelled,
}

/// Looks whether an answer fits the schema that was asked for.
pub type OutputCheck = Arc<dyn Fn(&Value) -> Result<(), String> + Send + Sync>;

/// An answer that has to fit a schema.
#[derive(Clone)]
pub struct WantedOutput {
    /// The schema.
    pub schema: Value,
    /// Whether an answer fits it.
    pub check: OutputCheck,
}

/// A foreign agent under the contract.
pub struct ForeignRuntime {
    /// The agent.
    pub adapter: Box<dyn Adapter>,
    /// How the spending is known.
    pub metering: Metering,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// What its answer has to fit, where a schema was given.
    pub output: Option<WantedOutput>,
    /// What it is told behind the contract: a profile, what the project says that it does not read itself.
    pub instructions: String,
    /// Which version of its program works, where that is known.
    pub version: Option<String>,
    /// The agent of the last iteration, while the checks run.
    pub paused: PausedAgent,
}

/// An agent that waits for the next iteration of its run: its programs are stopped, its conversation is open.
#[derive(Default)]
pub struct PausedAgent(Mutex<Option<Paused>>);

struct Paused {
    enclosure: Arc<dyn Enclosure>,
    conversation: Box<dyn Any + Send>,
    session: Option<String>,
}

impl PausedAgent {
    /// The agent of the iteration before this one, running again. None where it ended, or where its copy is closed or was
    /// mounted anew.
    fn resume(&self, iteration: u32) -> Option<Paused> {
        let paused = self.0.lock().take()?;
        (iteration > 1 && paused.enclosure.resume()).then_some(paused)
    }
}

impl ForeignRuntime {
    async fn one_try(&self, job: &Job<'_>) -> Result<Stop, RuntimeError> {
        let paused = self.paused.resume(job.iteration);
        let (place, before) = match paused {
            Some(paused) => {
                let before = (paused.conversation, paused.session);
                (paused.enclosure, Some(before))
            }
            None => match job.processes.enclose().await {
                Ok(place) => (place, None),
                Err(err) => return Ok(failed(FailReason::Isolation, err.0)),
            },
        };
        let model = match (&self.metering, place.endpoint()) {
            (Metering::Wire(endpoint), Some(port)) => ModelAccess::Metered {
                url: format!("http://127.0.0.1:{port}"),
                key: endpoint.key(),
            },
            (Metering::Wire(_), None) => return Ok(failed(FailReason::Isolation, NO_NAMESPACE)),
            (Metering::Reported { .. } | Metering::None, _) => ModelAccess::Own,
        };
        let cancel = job.cancel.child_token();
        let attempt = AgentAttempt::new(job, place.as_ref(), self, model, cancel.clone());
        if let Some((conversation, session)) = before {
            attempt.continue_with(conversation, session).await?;
        }
        let stop = match &self.metering {
            Metering::Wire(endpoint) => {
                self.under_meter(&attempt, endpoint.as_ref(), &cancel)
                    .await?
            }
            Metering::Reported { .. } | Metering::None => self.talk(&attempt).await?,
        };
        attempt
            .close_open_calls("the agent ended before it said what came of it")
            .await?;
        for host in place.take_refused() {
            let rule = "sandbox: network".to_owned();
            attempt
                .emit(EventKind::ConnectionRefused { host, rule })
                .await?;
        }
        self.reconcile(&attempt).await?;
        let is_judged = matches!(stop, Stop::Done | Stop::Answered { .. });
        if is_judged
            && self.adapter.stays()
            && let Some(conversation) = attempt.take_conversation()
        {
            let (session, enclosure) = (attempt.session(), Arc::clone(&place));
            *self.paused.0.lock() = Some(Paused {
                enclosure,
                conversation,
                session,
            });
        }
        Ok(stop)
    }

    /// Lets the agent work as long as its model may be asked.
    async fn under_meter(
        &self,
        attempt: &AgentAttempt<'_>,
        endpoint: &dyn Endpoint,
        cancel: &CancellationToken,
    ) -> Result<Stop, RuntimeError> {
        let ledger = Ledger {
            account: attempt.job.account,
            outlet: attempt.job.outlet,
        };
        let done = CancellationToken::new();
        let mut serving = endpoint.serve(attempt.enclosure, ledger, &done);
        let mut talking = std::pin::pin!(self.talk(attempt));
        let trip = tokio::select! {
            biased;
            stop = &mut talking => {
                done.cancel();
                // A limit that was reached with the last words is how it ended all the same.
                match (serving.await?, stop?, endpoint.failing()) {
                    (Some(trip), ..) => Some(trip),
                    // An agent that gives up when its model fails may call that anything.
                    (None, Stop::Failed { reason: FailReason::Runtime, .. }, Some(err)) => Some(Trip::Provider(err)),
                    (None, stop, _) => return Ok(stop),
                }
            }
            trip = &mut serving => {
                // It knows by the refusal. Whatever it makes of it, this is how the try ends.
                cancel.cancel();
                tokio::select! {
                    biased;
                    _ = &mut talking => {}
                    () = self.clock.sleep(CANCEL_GRACE * 2) => {}
                }
                trip?
            }
        };
        Ok(match trip {
            Some(Trip::OverBudget(limit)) => Stop::OverBudget { limit },
            Some(Trip::Provider(err)) => Stop::Provider(err),
            Some(Trip::Declined) => {
                let detail = "the agent's model declined again and again".to_owned();
                Stop::Refused {
                    category: RefusalCategory::Safety,
                    detail,
                }
            }
            None => Stop::Cancelled,
        })
    }

    async fn talk(&self, attempt: &AgentAttempt<'_>) -> Result<Stop, RuntimeError> {
        let mut talk = Talk::default();
        let mut say = words::opening(attempt, self.adapter.lives_by_the_log()).await?;
        for _ in 0..MAX_STEERED {
            let mut answer = self.adapter.converse(attempt, &say).await?;
            // A program that was about to end when it was stopped ends as soon as it runs again.
            if attempt.ended_at_once(&answer) {
                answer = self.adapter.converse(attempt, &say).await?;
            }
            self.book_reported(attempt).await?;
            match self.after(attempt, answer, &mut talk).await? {
                Next::Stop(stop) => return Ok(stop),
                Next::Say(words) => say = words,
            }
        }
        let detail = "too much was said to the agent in one try; say the rest in a new prompt";
        Ok(failed(FailReason::Runtime, detail))
    }

    /// What follows from an answer: the end of the attempt, or more words.
    async fn after(
        &self,
        attempt: &AgentAttempt<'_>,
        answer: Answer,
        talk: &mut Talk,
    ) -> Result<Next, RuntimeError> {
        let job = attempt.job;
        if let Some(stop) = self.ended(attempt, &answer) {
            return Ok(Next::Stop(stop));
        }
        if let Some(limit) = self.reported_limit(job) {
            return Ok(Next::Stop(Stop::OverBudget { limit }));
        }
        if job.outlet.steer().await? {
            return Ok(Next::Say(words::last(job.outlet)));
        }
        // Some agents take a refusal for the end of the turn.
        if attempt.fell_silent_at_a_refusal() && talk.refusals < MAX_REFUSALS {
            talk.refusals += 1;
            return tell(job, REFUSED).await;
        }
        match self.checked_output(answer.output, &answer.text) {
            Ok(Some(output)) => return Ok(Next::Stop(Stop::Answered { output })),
            Ok(None) => {}
            Err(why) => return Ok(talk.repair(&why)),
        }
        if attempt.did_something() || !asks_for_leave(&answer.text) {
            return Ok(Next::Stop(Stop::Done));
        }
        if std::mem::replace(&mut talk.told_to_go_on, true) {
            let detail = format!(
                "{} asked for confirmation twice instead of doing the work: {}",
                self.adapter.name(),
                end_of(answer.text.trim(), SHOWN)
            );
            let category = RefusalCategory::Capability;
            return Ok(Next::Stop(Stop::Refused { category, detail }));
        }
        tell(job, GO_ON).await
    }

    /// How an answer ends the attempt; `None` where the agent says that it is done.
    fn ended(&self, attempt: &AgentAttempt<'_>, answer: &Answer) -> Option<Stop> {
        let refused = |detail: &str| Stop::Refused {
            category: RefusalCategory::Safety,
            detail: detail.to_owned(),
        };
        Some(match &answer.end {
            _ if attempt.cancel.is_cancelled() => Stop::Cancelled,
            End::Cancelled => Stop::Cancelled,
            End::Refused(detail) => refused(detail),
            End::Declined(category, detail) => Stop::Refused {
                category: *category,
                detail: detail.clone(),
            },
            End::Provider(err) => Stop::Provider(err.clone()),
            End::OwnLimit(detail) => {
                let name = self.adapter.name();
                let detail = format!("{name} stopped at a limit of its own: {detail}");
                failed(FailReason::Runtime, detail)
            }
            // Some break when their model declines, because they wait for words.
            End::Done | End::Broken(_) if self.declined() => {
                match end_of(answer.text.trim(), SHOWN) {
                    "" => refused("the agent's model declined"),
                    said => refused(said),
                }
            }
            End::Broken(detail) => failed(FailReason::Runtime, detail),
            End::Done => return None,
        })
    }

    /// The answer in its schema, where one was asked for.
    fn checked_output(&self, output: Option<Value>, text: &str) -> Result<Option<Value>, String> {
        let Some(wanted) = &self.output else {
            return Ok(None);
        };
        match output {
            Some(value) => (wanted.check)(&value).map(|()| Some(value)),
            None => first_json_that_fits(text, |value| (wanted.check)(value)).map(Some),
        }
    }

    /// Whether its model declined, as far as we see it.
    fn declined(&self) -> bool {
        matches!(&self.metering, Metering::Wire(endpoint) if endpoint.declined())
    }

    /// Books what the agent says it spent, where nobody else counts.
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

    /// Says so when the agent's own numbers are far from what went through us.
    async fn reconcile(&self, attempt: &AgentAttempt<'_>) -> Result<(), RuntimeError> {
        let Metering::Wire(endpoint) = &self.metering else {
            return Ok(());
        };
        let counted = endpoint.take_usage();
        // One that was stopped did not come to say it.
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
            "{} reports {theirs} tokens; {ours} went through the meter, and those count",
            self.adapter.name()
        );
        attempt.warn("usage_differs", text).await
    }
}

/// What was said to an agent in one attempt beside the task.
#[derive(Default)]
struct Talk {
    repairs: u32,
    refusals: u32,
    told_to_go_on: bool,
}

impl Talk {
    /// An answer that does not fit its schema goes back, so often.
    fn repair(&mut self, why: &str) -> Next {
        self.repairs += 1;
        if self.repairs <= MAX_REPAIRS {
            return Next::Say(format!(
                "Your answer does not fit the schema that was asked for: {why}. Answer again with one JSON value that \
                 does, and nothing around it."
            ));
        }
        let tries = self.repairs;
        let detail = format!("after {tries} tries the answer still does not fit the schema: {why}");
        Next::Stop(failed(FailReason::StructuredOutput, detail))
    }
}

/// What follows from an answer.
enum Next {
    Stop(Stop),
    Say(String),
}

/// Logs words of ours for the agent, and says them.
async fn tell(job: &Job<'_>, words: &str) -> Result<Next, RuntimeError> {
    let message = Message::internal(words);
    job.outlet.emit(EventKind::said(message)).await?;
    Ok(Next::Say(words.to_owned()))
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
        // The envelope is a sandbox, whatever the agent has of its own.
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
        Box::pin(async move { self.one_try(&job).await })
    }
}
