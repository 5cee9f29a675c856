//! The built-in agent loop. It drives the pure `Turn` of the core, which decides each next step. It names no vendor and no
//! tool: a provider streams the answers, and the toolbox executes the calls.

mod delta_filter;
mod instructions;
mod model_call;
mod request_size;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::OnceCell;
use windlass_core::budget::Estimator;
use windlass_core::clock::Clock;
use windlass_core::context::{CompactionCause, CompactionMode, reserve};
use windlass_core::event::EventKind;
use windlass_core::history::Entry;
use windlass_core::message::Message;
use windlass_core::outcome::FailReason;
use windlass_core::provider::{ModelFacts, Provider, Sampling};
use windlass_core::runtime::{
    BudgetAccount, Capabilities, Capability, CompactionRequest, Feature, Features, Job, Runtime,
    RuntimeError, Stop,
};
use windlass_core::store::StoreError;
use windlass_core::structured_output::first_json_that_fits;
use windlass_core::turn::{Turn, TurnStep};
use windlass_core::{BoxFuture, CancellationToken};

use self::instructions::DirectoryInstructions;
pub use self::instructions::Instructions;
use self::request_size::{RequestSize, tool_bytes};
use crate::compaction::{SummaryWriter, compact};
use crate::schema::Schemas;

/// Maximum number of times that an answer is returned to the model because it does not match the schema.
const MAX_REPAIRS: u32 = 2;

/// The built-in agent on one model of a provider.
pub struct NativeRuntime {
    provider: Arc<dyn Provider>,
    clock: Arc<dyn Clock>,
    options: NativeOptions,
    /// Facts that are known without a request. Runs use those in `probed`.
    facts: ModelFacts,
    probed: OnceCell<ModelFacts>,
    price_warned: AtomicBool,
    schemas: Schemas,
}

/// The options of the built-in agent.
#[derive(Debug, Clone, Default)]
pub struct NativeOptions {
    /// The vendor's model name.
    pub model: String,
    /// The system prompt, without [`Instructions::opening`].
    pub system: String,
    pub sampling: Sampling,
    /// The schema that answers are checked against. If absent, it is the one in `sampling`, which the vendor gets.
    pub accepts: Option<serde_json::Value>,
    /// Maximum output tokens of one answer. If absent, the maximum of the model.
    pub max_output: Option<u64>,
    pub instructions: Instructions,
}

/// The state of one iteration.
struct LoopState<'a> {
    job: &'a Job<'a>,
    facts: &'a ModelFacts,
    /// The system prompt. It has the same bytes in every request, so that vendors can cache it.
    system: String,
    size: RequestSize,
}

impl NativeRuntime {
    /// The features for control and steering.
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

    /// The capabilities with a model that calls tools.
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
    /// The capabilities with a model that does not call tools.
    pub const WITHOUT_TOOLS: &'static [Capability] = &[
        Capability::TextCompletion,
        Capability::StreamingText,
        Capability::StructuredOutput,
    ];

    /// Creates the agent. If the options have an output schema, it is also added to the system prompt.
    #[must_use]
    pub fn new(
        provider: Arc<dyn Provider>,
        clock: Arc<dyn Clock>,
        mut options: NativeOptions,
    ) -> Self {
        let facts = provider.facts(&options.model);
        if let Some(schema) = &options.sampling.output_schema {
            // Not every server enforces a schema.
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
        let mut size = RequestSize::new(system.len() + tool_bytes(job.toolbox.tools()));
        let last = job.sink.facts().reported;
        if let Some((_, input)) = last.filter(|(model, _)| *model == self.options.model) {
            size.seed(input, &job.sink.history());
        }
        let mut state = LoopState {
            job,
            facts,
            system,
            size,
        };
        let mut directories = DirectoryInstructions::new(&self.options.instructions);
        let mut answer = String::new();
        let mut rejections = 0;
        loop {
            if job.cancel.is_cancelled() {
                return Ok(Stop::Cancelled);
            }
            let step = turn.next(job.account.exceeded());
            // Deliver steering messages between two steps, and also before the end of the turn, so that none is lost.
            if matches!(step, TurnStep::AskModel | TurnStep::Finish(Stop::Done))
                && job.sink.steer().await?
            {
                turn.steered();
                continue;
            }
            match step {
                TurnStep::AskModel if job.sink.pauses() => return Ok(Stop::Paused),
                TurnStep::AskModel => match self.ask_model(&mut state).await? {
                    Ok(reply) => {
                        // The text is needed only for the check against a schema, and may be megabytes long.
                        if self.options.sampling.output_schema.is_some() {
                            answer = reply.message.text();
                        }
                        turn.replied(&reply);
                    }
                    Err(stop) => return Ok(stop),
                },
                TurnStep::Inject(text) => {
                    job.sink
                        .emit(EventKind::said(Message::internal(text)))
                        .await?;
                }
                TurnStep::RunTools(calls) => {
                    directories.note_paths(&calls);
                    let results = job.toolbox.call(calls).await?;
                    turn.settled(&results);
                    directories.send_new(job, &results).await?;
                }
                TurnStep::Finish(Stop::Done) => match self.check_output(&answer) {
                    Ok(None) => return Ok(Stop::Done),
                    Ok(Some(output)) => return Ok(Stop::Answered { output }),
                    Err(why) if rejections < MAX_REPAIRS => {
                        rejections += 1;
                        turn.rejected(format!("Your answer does not match the requested schema: {why}. Answer again with one JSON value that does, and no other text."));
                    }
                    Err(why) => {
                        let detail = format!(
                            "the answer does not match the schema after {} attempts: {why}",
                            rejections + 1
                        );
                        return Ok(Stop::Failed {
                            reason: FailReason::StructuredOutput,
                            detail,
                        });
                    }
                },
                TurnStep::Finish(stop) => return Ok(stop),
            }
        }
    }

    /// Asks the server for the facts of its model, once. If the server cannot tell, uses the built-in facts.
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
                    "the capabilities of `{}` could not be queried, so defaults apply: {err}",
                    self.options.model
                );
                job.sink
                    .emit(EventKind::warned("model_not_probed", text))
                    .await?;
                self.facts.clone()
            }
        };
        Ok(self.probed.get_or_init(|| async { facts }).await)
    }

    /// Checks the last answer against the schema, if one was requested.
    fn check_output(&self, answer: &str) -> Result<Option<serde_json::Value>, String> {
        let Some(schema) = &self.options.sampling.output_schema else {
            return Ok(None);
        };
        let schema = self.options.accepts.as_ref().unwrap_or(schema);
        let fits = |value: &_| self.schemas.check("the output", schema, value);
        first_json_that_fits(answer, fits).map(Some)
    }

    /// Compacts the messages if the next request would use the reserve of the window. A request that is still too large is
    /// sent anyway, because the server knows the exact count.
    async fn compact_to_window(&self, state: &mut LoopState<'_>) -> Result<(), StoreError> {
        let Some(window) = state.facts.context_window else {
            return Ok(());
        };
        let size = &mut state.size;
        let held = size.bytes(&state.job.sink.history()) - size.base;
        let room = message_bytes(window, &size.estimator, size.base);
        if held <= room {
            return Ok(());
        }
        // Compact to less than would fit, so that the next steps do not compact again.
        self.compact_messages(
            state,
            CompactionMode::Fit(CompactionCause::Window),
            room / 8 * 5,
        )
        .await?;
        Ok(())
    }

    async fn compact_messages(
        &self,
        state: &mut LoopState<'_>,
        how: CompactionMode,
        room: usize,
    ) -> Result<bool, StoreError> {
        let Job {
            sink,
            account,
            cancel,
            ..
        } = state.job;
        let writer = self.summary_writer(state.facts, state.size.estimator, *account, cancel);
        let compacted = compact(*sink, Some(&writer), how, room).await?;
        state.size.recount();
        Ok(compacted)
    }

    fn summary_writer<'a>(
        &'a self,
        facts: &'a ModelFacts,
        estimator: Estimator,
        account: &'a dyn BudgetAccount,
        cancel: &'a CancellationToken,
    ) -> SummaryWriter<'a> {
        SummaryWriter {
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
            "the price of `{}` is unknown, so the cost limit has no effect and only the token limit applies; set a price with `prices` in the configuration",
            self.options.model
        );
        job.sink
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
                "native tool calls (it calls tools through JSON in its text)",
            ),
            (old.images && !new.images, "images"),
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
                "a context window of {old} tokens (it has {new}; messages that do not fit are summarised)"
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

    fn compact<'a>(
        &'a self,
        job: CompactionRequest<'a>,
    ) -> BoxFuture<'a, Result<bool, RuntimeError>> {
        Box::pin(async move {
            let (facts, estimator) = (
                self.probed.get().unwrap_or(&self.facts),
                Estimator::default(),
            );
            let held: usize = job.sink.history().iter().map(Entry::bytes).sum();
            let base = self.options.system.len() + tool_bytes(job.tools);
            let fits = facts
                .context_window
                .map(|window| message_bytes(window, &estimator, base));
            let room = fits.map_or(held, |fits| fits.min(held)) / 4;
            let writer = self.summary_writer(facts, estimator, job.account, &job.cancel);
            Ok(compact(job.sink, Some(&writer), job.how, room).await?)
        })
    }
}

/// Maximum size of the messages that leaves the reserve of the window free, in bytes. If the system prompt and the tools
/// nearly fill a small window, the messages still get a quarter of it: without messages the agent could do nothing.
fn message_bytes(window: u64, estimator: &Estimator, base: usize) -> usize {
    estimator
        .bytes(window - reserve(window))
        .saturating_sub(base)
        .max(estimator.bytes(window / 4))
}
