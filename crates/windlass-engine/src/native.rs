//! Our own agent loop: it drives `Turn`, which decides. One loop, streaming only.
//! It knows no vendor and no tool: a provider streams, the toolbox settles calls.

mod asking;
mod instructed;
mod meter;
mod shown;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::OnceCell;
use windlass_core::budget::Estimator;
use windlass_core::clock::Clock;
use windlass_core::context::{Cause, How, reserve};
use windlass_core::event::EventKind;
use windlass_core::history::Entry;
use windlass_core::message::Message;
use windlass_core::outcome::FailReason;
use windlass_core::provider::{ModelFacts, Provider, Sampling};
use windlass_core::runtime::{
    Account, Capabilities, Capability, Feature, Features, Job, MakeRoom, Runtime, RuntimeError,
    Stop,
};
use windlass_core::store::StoreError;
use windlass_core::structured_output::first_json_that_fits;
use windlass_core::turn::{Step, Turn};
use windlass_core::{BoxFuture, CancellationToken};

pub use self::instructed::Instructions;
use self::instructed::Nearby;
use self::meter::{Meter, tool_bytes};
use crate::compact::{Writer, compact};
use crate::schema::Schemas;

/// How often an answer that does not fit its schema goes back to the model.
const MAX_REPAIRS: u32 = 2;

/// The built-in agent.
pub struct NativeRuntime {
    provider: Arc<dyn Provider>,
    clock: Arc<dyn Clock>,
    options: NativeOptions,
    /// What is known without asking; what a run works with is in `probed`.
    facts: ModelFacts,
    probed: OnceCell<ModelFacts>,
    price_warned: AtomicBool,
    schemas: Schemas,
}

/// What the built-in agent needs to know.
#[derive(Debug, Clone, Default)]
pub struct NativeOptions {
    /// The vendor's model name.
    pub model: String,
    /// The system prompt.
    pub system: String,
    /// Wishes about how to answer.
    pub sampling: Sampling,
    /// A schema that answers have to fit in the place of the one in `sampling`, which the vendor is told.
    pub accepts: Option<serde_json::Value>,
    /// The most output tokens of one answer; the model's own maximum when absent.
    pub max_output: Option<u64>,
    /// What is behind the system prompt, and what may be added to it while it works.
    pub instructions: Instructions,
}

/// What one iteration carries from step to step.
struct Course<'a> {
    job: &'a Job<'a>,
    facts: &'a ModelFacts,
    /// The same bytes in every request.
    system: String,
    meter: Meter,
}

impl NativeRuntime {
    /// How it can be held and steered.
    pub const FEATURES: &'static [Feature] = &[
        Feature::ToolApproval,
        Feature::HostTools,
        Feature::Resume,
        Feature::Fork,
        Feature::Cancel,
        Feature::Steering,
        Feature::ReportsTokens,
        Feature::ModelChoice,
    ];

    /// What it can do on a model that calls tools.
    pub const CAPABILITIES: &'static [Capability] = &[
        Capability::TextCompletion,
        Capability::StreamingText,
        Capability::StructuredOutput,
        Capability::NativeToolLoop,
        Capability::FunctionTools,
        Capability::FilesystemRead,
        Capability::FilesystemEdit,
        Capability::Shell,
        Capability::ApplyPatch,
    ];
    /// What it can do on one that does not.
    pub const WITHOUT_TOOLS: &'static [Capability] = &[
        Capability::TextCompletion,
        Capability::StreamingText,
        Capability::StructuredOutput,
    ];

    /// The built-in agent on a provider.
    #[must_use]
    pub fn new(
        provider: Arc<dyn Provider>,
        clock: Arc<dyn Clock>,
        mut options: NativeOptions,
    ) -> Self {
        let facts = provider.facts(&options.model);
        if let Some(schema) = &options.sampling.output_schema {
            // Said in words as well: not every server can be held to a schema.
            options.system.push_str(&format!(
                "\nWhen the task is done, answer with one JSON value and nothing around it. It must fit this JSON Schema:\n{schema}\n"
            ));
        }
        let price_warned = AtomicBool::new(false);
        Self {
            provider,
            clock,
            options,
            facts,
            probed: OnceCell::new(),
            price_warned,
            schemas: Schemas::default(),
        }
    }

    async fn drive(&self, job: &Job<'_>) -> Result<Stop, RuntimeError> {
        let mut turn = Turn::going_on(job.pending.clone());
        let facts = self.probed_facts(job).await?;
        self.warn_about_price(job, facts).await?;
        let system = self.instruct(job).await?;
        let mut meter = Meter::new(system.len() + tool_bytes(job.toolbox.tools()));
        let last = job.outlet.facts().reported;
        if let Some((_, input)) = last.filter(|(model, _)| *model == self.options.model) {
            meter.seed(input, &job.outlet.history());
        }
        let mut course = Course {
            job,
            facts,
            system,
            meter,
        };
        let mut nearby = Nearby::new(&self.options.instructions);
        let mut answer = String::new();
        let mut rejections = 0;
        loop {
            if job.cancel.is_cancelled() {
                return Ok(Stop::Cancelled);
            }
            let step = turn.next(job.account.exceeded());
            // What a person says goes in between steps, and is not lost when it came just before the end.
            if matches!(step, Step::AskModel | Step::Finish(Stop::Done))
                && job.outlet.steer().await?
            {
                turn.steered();
                continue;
            }
            match step {
                Step::AskModel => match self.ask_model(&mut course).await? {
                    Ok(reply) => {
                        // Only an answer that is held to a schema is looked at again; it may be megabytes long.
                        if self.options.sampling.output_schema.is_some() {
                            answer = reply.message.text();
                        }
                        turn.replied(&reply);
                    }
                    Err(stop) => return Ok(stop),
                },
                Step::Inject(text) => {
                    job.outlet
                        .emit(EventKind::said(Message::internal(text)))
                        .await?;
                }
                Step::RunTools(calls) => {
                    nearby.note(&calls);
                    let results = job.toolbox.call(calls).await?;
                    turn.settled(&results);
                    nearby.tell(job, &results).await?;
                }
                Step::Finish(Stop::Done) => match self.check_output(&answer) {
                    Ok(None) => return Ok(Stop::Done),
                    Ok(Some(output)) => return Ok(Stop::Answered { output }),
                    Err(why) if rejections < MAX_REPAIRS => {
                        rejections += 1;
                        turn.rejected(format!("Your answer does not fit the schema that was asked for: {why}. Answer again with one JSON value that does, and nothing around it."));
                    }
                    Err(why) => {
                        let detail = format!(
                            "after {} tries the answer still does not fit the schema: {why}",
                            rejections + 1
                        );
                        return Ok(Stop::Failed {
                            reason: FailReason::StructuredOutput,
                            detail,
                        });
                    }
                },
                Step::Finish(stop) => return Ok(stop),
            }
        }
    }

    /// What the server says of its model, asked once; what is known otherwise when it cannot say.
    async fn probed_facts(&self, job: &Job<'_>) -> Result<&ModelFacts, StoreError> {
        if let Some(facts) = self.probed.get() {
            return Ok(facts);
        }
        let asked = tokio::select! {
            asked = self.provider.probe(&self.options.model) => asked,
            () = job.cancel.cancelled() => Ok(self.facts.clone()),
        };
        let facts = match asked {
            Ok(facts) => facts,
            Err(err) => {
                let text = format!(
                    "the server did not say what `{}` can do: {err}",
                    self.options.model
                );
                job.outlet
                    .emit(EventKind::warned("model_not_probed", text))
                    .await?;
                self.facts.clone()
            }
        };
        Ok(self.probed.get_or_init(|| async { facts }).await)
    }

    /// Whether the last answer fits the schema, where one was asked for.
    fn check_output(&self, answer: &str) -> Result<Option<serde_json::Value>, String> {
        let Some(schema) = &self.options.sampling.output_schema else {
            return Ok(None);
        };
        let schema = self.options.accepts.as_ref().unwrap_or(schema);
        let fits = |value: &_| self.schemas.check("the output", schema, value);
        first_json_that_fits(answer, fits).map(Some)
    }

    /// Makes room when the next request would not leave the reserve free. What does not fit then is sent all the same:
    /// the server has the last word.
    async fn fit(&self, course: &mut Course<'_>) -> Result<(), StoreError> {
        let Some(window) = course.facts.context_window else {
            return Ok(());
        };
        let meter = &mut course.meter;
        let held = meter.bytes(&course.job.outlet.history()) - meter.base;
        let room = room(window, &meter.estimator, meter.base);
        if held <= room {
            return Ok(());
        }
        // A good deal less than would fit, so that the next steps need not do it again.
        self.make_room(course, How::Fit(Cause::Window), room / 8 * 5)
            .await?;
        Ok(())
    }

    async fn make_room(
        &self,
        course: &mut Course<'_>,
        how: How,
        room: usize,
    ) -> Result<bool, StoreError> {
        let Job {
            outlet,
            account,
            cancel,
            ..
        } = course.job;
        let writer = self.writer(course.facts, course.meter.estimator, *account, cancel);
        let made = compact(*outlet, Some(&writer), how, room).await?;
        course.meter.recount();
        Ok(made)
    }

    fn writer<'a>(
        &'a self,
        facts: &'a ModelFacts,
        estimator: Estimator,
        account: &'a dyn Account,
        cancel: &'a CancellationToken,
    ) -> Writer<'a> {
        Writer {
            provider: self.provider.as_ref(),
            model: &self.options.model,
            facts,
            estimator,
            account,
            cancel,
        }
    }

    async fn warn_about_price(&self, job: &Job<'_>, facts: &ModelFacts) -> Result<(), StoreError> {
        if facts.price.is_some() || self.price_warned.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let text = format!(
            "the price of `{}` is not known, so the cost limit does not bind; the token limit does (`prices` in the configuration sets one)",
            self.options.model
        );
        job.outlet
            .emit(EventKind::warned("unknown_price", text))
            .await?;
        Ok(())
    }
}

impl Runtime for NativeRuntime {
    fn name(&self) -> &str {
        "native"
    }

    fn model(&self) -> Option<&str> {
        Some(&self.options.model)
    }

    fn loses_from(&self, model: &str) -> Vec<String> {
        let (old, new) = (self.provider.facts(model), &self.facts);
        let mut lost = Vec::new();
        let abilities = [
            (old.tools && !new.tools, "tool calls"),
            (
                new.json_actions && !old.json_actions,
                "tool calls of its own (it calls tools through JSON in its text)",
            ),
            (old.images && !new.images, "pictures"),
            (
                old.structured_output && !new.structured_output,
                "structured output",
            ),
        ];
        lost.extend(
            abilities
                .iter()
                .filter(|(gone, _)| *gone)
                .map(|(_, what)| (*what).to_owned()),
        );
        if let (Some(old), Some(new)) = (old.context_window, new.context_window)
            && new < old
        {
            lost.push(format!(
                "a window of {old} tokens (it has {new}; messages that do not fit are summarised first)"
            ));
        }
        lost
    }

    fn capabilities(&self) -> Capabilities {
        let which = if self.facts.tools {
            Self::CAPABILITIES
        } else {
            Self::WITHOUT_TOOLS
        };
        Capabilities::of(which.iter().copied())
    }

    fn features(&self) -> Features {
        Features::of(Self::FEATURES.iter().copied())
    }

    fn run<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Result<Stop, RuntimeError>> {
        Box::pin(async move { self.drive(&job).await })
    }

    fn compact<'a>(&'a self, job: MakeRoom<'a>) -> BoxFuture<'a, Result<bool, RuntimeError>> {
        Box::pin(async move {
            let (facts, estimator) = (
                self.probed.get().unwrap_or(&self.facts),
                Estimator::default(),
            );
            let held: usize = job.outlet.history().iter().map(Entry::bytes).sum();
            let base = self.options.system.len() + tool_bytes(job.tools);
            let fits = facts
                .context_window
                .map(|window| room(window, &estimator, base));
            let room = fits.map_or(held, |fits| fits.min(held)) / 4;
            let writer = self.writer(facts, estimator, job.account, &job.cancel);
            Ok(compact(job.outlet, Some(&writer), job.how, room).await?)
        })
    }
}

/// Bytes of messages that leave the reserve of a window free. In a small window that prompt and tools nearly fill they
/// get a quarter of it all the same: without any messages nothing would ever be done.
fn room(window: u64, estimator: &Estimator, base: usize) -> usize {
    estimator
        .bytes(window - reserve(window))
        .saturating_sub(base)
        .max(estimator.bytes(window / 4))
}
