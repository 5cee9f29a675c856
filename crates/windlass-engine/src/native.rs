//! Our own agent loop: it drives `Turn`, which decides. One loop, streaming only.
//! It knows no vendor and no tool: a provider streams, the toolbox settles calls.

mod shown;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::StreamExt;
use serde_json::Value;
use tokio::sync::OnceCell;
use windlass_core::BoxFuture;
use windlass_core::budget::{Estimator, LEAST_OUTPUT, Usage};
use windlass_core::clock::Clock;
use windlass_core::event::EventKind;
use windlass_core::history::Entry;
use windlass_core::id::CallId;
use windlass_core::message::{Message, Part};
use windlass_core::outcome::FailReason;
use windlass_core::provider::{
    Chunk, ModelFacts, Provider, ProviderError, ProviderErrorKind, Request, Sampling, backoff,
};
use windlass_core::reply::{Reply, ReplyFold};
use windlass_core::runtime::{Capabilities, Capability, Job, Runtime, RuntimeError, Stop};
use windlass_core::store::StoreError;
use windlass_core::turn::{Step, Turn};

use self::shown::Shown;
use crate::schema::Schemas;

/// The most one answer may hold, in bytes; a vendor that sends more is not believed.
const MAX_ANSWER: usize = 64 << 20;
/// How often an answer that does not fit its schema goes back to the model.
const MAX_REPAIRS: u32 = 2;
/// Unknown things in one answer that are told; the rest is counted.
const MAX_UNKNOWN: u32 = 3;

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
    /// The most output tokens of one answer; the model's own maximum when absent.
    pub max_output: Option<u64>,
}

impl NativeRuntime {
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
    pub const WITHOUT_TOOLS: &'static [Capability] =
        &[Capability::TextCompletion, Capability::StreamingText, Capability::StructuredOutput];

    /// The built-in agent on a provider.
    #[must_use]
    pub fn new(provider: Arc<dyn Provider>, clock: Arc<dyn Clock>, mut options: NativeOptions) -> Self {
        let facts = provider.facts(&options.model);
        if let Some(schema) = &options.sampling.output_schema {
            // Said in words as well: not every server can be held to a schema.
            options.system.push_str(&format!(
                "\nWhen the task is done, answer with one JSON value and nothing around it. It must fit this JSON Schema:\n{schema}\n"
            ));
        }
        let price_warned = AtomicBool::new(false);
        Self { provider, clock, options, facts, probed: OnceCell::new(), price_warned, schemas: Schemas::default() }
    }

    async fn drive(&self, job: &Job<'_>) -> Result<Stop, RuntimeError> {
        let mut turn = Turn::default();
        let mut meter = Meter::new(self.options.system.len() + tool_bytes(job));
        let facts = self.probed_facts(job).await?;
        self.warn_about_price(job, facts).await?;
        let mut answer = String::new();
        let mut rejections = 0;
        loop {
            if job.cancel.is_cancelled() {
                return Ok(Stop::Cancelled);
            }
            match turn.next(job.account.exceeded()) {
                Step::AskModel => match self.ask_model(job, facts, &mut meter).await? {
                    Ok(reply) => {
                        answer = reply.message.text();
                        turn.replied(&reply);
                    }
                    Err(stop) => return Ok(stop),
                },
                Step::Inject(text) => {
                    job.outlet.emit(EventKind::Said { message: Message::internal(text) }).await?;
                }
                Step::RunTools(calls) => turn.settled(&job.toolbox.call(calls).await?),
                Step::Finish(Stop::Done) => match self.check_output(&answer) {
                    Ok(None) => return Ok(Stop::Done),
                    Ok(Some(output)) => return Ok(Stop::Answered { output }),
                    Err(why) if rejections < MAX_REPAIRS => {
                        rejections += 1;
                        turn.rejected(format!("Your answer does not fit the schema that was asked for: {why}. Answer again with one JSON value that does, and nothing around it."));
                    }
                    Err(why) => {
                        let detail =
                            format!("after {} tries the answer still does not fit the schema: {why}", rejections + 1);
                        return Ok(Stop::Failed { reason: FailReason::StructuredOutput, detail });
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
                let text = format!("the server did not say what `{}` can do: {err}", self.options.model);
                job.outlet.emit(EventKind::Warned { code: "model_not_probed".into(), text }).await?;
                self.facts.clone()
            }
        };
        Ok(self.probed.get_or_init(|| async { facts }).await)
    }

    /// Whether the last answer fits the schema, where one was asked for.
    fn check_output(&self, answer: &str) -> Result<Option<serde_json::Value>, String> {
        let Some(schema) = &self.options.sampling.output_schema else { return Ok(None) };
        let value = serde_json::from_str(answer.trim()).map_err(|err| format!("it is not JSON ({err})"))?;
        self.schemas.check("the output", schema, &value)?;
        Ok(Some(value))
    }

    /// One model call with its retries: the committed reply, or why there is none.
    async fn ask_model(
        &self,
        job: &Job<'_>,
        facts: &ModelFacts,
        meter: &mut Meter,
    ) -> Result<Result<Reply, Stop>, RuntimeError> {
        let mut shown = Shown::default();
        let mut tries = 0;
        loop {
            let history = job.outlet.history();
            let bytes = meter.bytes(&history);
            let input = meter.estimator.tokens(bytes);
            let mut want = self.options.max_output.unwrap_or(facts.max_output);
            if let Some(window) = facts.context_window {
                // Input and output share the window; the server has the last word on whether the input fits.
                want = want.min(window.saturating_sub(input).max(LEAST_OUTPUT));
            }
            let max_output = match job.account.admit(input, want, facts.price) {
                Ok(room) => room,
                Err(limit) => return Ok(Err(Stop::OverBudget { limit })),
            };
            let mut fold = ReplyFold::default();
            let end = self.stream(job, &history, max_output, &mut fold, &mut shown).await?;
            // Given back before the next event, so that appending to the history copies nothing.
            drop(history);
            match end {
                Streamed::Whole => return Ok(Ok(self.commit(job, facts, fold, meter, bytes).await?)),
                Streamed::Cancelled => {
                    self.settle_partial(job, facts, &fold, meter, bytes).await?;
                    return Ok(Err(Stop::Cancelled));
                }
                Streamed::Failed(err) => {
                    self.settle_partial(job, facts, &fold, meter, bytes).await?;
                    if err.kind == ProviderErrorKind::Refused {
                        let category = windlass_core::outcome::RefusalCategory::Safety;
                        return Ok(Err(Stop::Refused { category, detail: err.message }));
                    }
                    tries += 1;
                    shown.restart();
                    if let Some(limit) = job.account.exceeded() {
                        return Ok(Err(Stop::OverBudget { limit }));
                    }
                    if !self.wait_to_retry(job, &err, tries).await? {
                        let stop = if job.cancel.is_cancelled() {
                            Stop::Cancelled
                        } else {
                            Stop::Provider(after_tries(err, tries))
                        };
                        return Ok(Err(stop));
                    }
                }
            }
        }
    }

    async fn stream(
        &self,
        job: &Job<'_>,
        history: &[Entry],
        max_output: u64,
        fold: &mut ReplyFold,
        shown: &mut Shown,
    ) -> Result<Streamed, StoreError> {
        let request = Request {
            model: &self.options.model,
            system: &self.options.system,
            history,
            tools: job.toolbox.tools(),
            max_output,
            options: &self.options.sampling,
        };
        let watched = job.outlet.watched();
        let mut unknown = 0;
        let mut stream = self.provider.stream(request);
        let mut ended = false;
        loop {
            let item = tokio::select! {
                biased;
                () = job.cancel.cancelled() => return Ok(Streamed::Cancelled),
                item = stream.next() => item,
            };
            let chunk = match item {
                Some(Ok(chunk)) => chunk,
                // What comes after the end of an answer does not undo it.
                Some(Err(_)) | None if ended => return Ok(Streamed::Whole),
                Some(Err(err)) => return Ok(Streamed::Failed(err)),
                None => return Ok(Streamed::Failed(cut())),
            };
            match &chunk {
                Chunk::End(_) => ended = true,
                Chunk::Unknown(what) => {
                    unknown += 1;
                    if unknown <= MAX_UNKNOWN {
                        let text = format!("the model's stream held something unknown, which was skipped: {what}");
                        job.outlet.emit(EventKind::Warned { code: "unknown_stream_event".into(), text }).await?;
                    }
                }
                _ => {}
            }
            if watched && let Some(delta) = shown.delta(&chunk) {
                job.outlet.show(delta);
            }
            fold.push(chunk);
            if fold.bytes() > MAX_ANSWER {
                return Ok(Streamed::Failed(too_long()));
            }
        }
    }

    async fn commit(
        &self,
        job: &Job<'_>,
        facts: &ModelFacts,
        fold: ReplyFold,
        meter: &mut Meter,
        bytes: usize,
    ) -> Result<Reply, StoreError> {
        let out_bytes = fold.bytes();
        let fresh = || CallId(format!("call_{:016x}", self.clock.entropy()));
        let mut reply = fold.finish(fresh);
        for part in &mut reply.message.parts {
            // Vendors want ids to be unique in a whole conversation; some start anew with every answer.
            if let Part::Call(call) = part
                && meter.calls.contains(&call.id)
            {
                call.id = fresh();
            }
        }
        job.outlet.emit(EventKind::Said { message: reply.message.clone() }).await?;
        let (usage, estimated) = match reply.usage {
            Some(usage) => {
                meter.estimator.correct(bytes, usage.total_input());
                (usage, false)
            }
            None => (meter.estimate(bytes, out_bytes), true),
        };
        job.account.settle(usage, facts.price, estimated, &self.options.model).await?;
        Ok(reply)
    }

    /// A stream that was cut was paid for, too.
    async fn settle_partial(
        &self,
        job: &Job<'_>,
        facts: &ModelFacts,
        fold: &ReplyFold,
        meter: &Meter,
        bytes: usize,
    ) -> Result<(), StoreError> {
        if fold.bytes() == 0 && fold.usage().is_none() {
            return Ok(());
        }
        // Whichever is more: usage at the start of a stream does not know its end.
        let mut usage = meter.estimate(bytes, fold.bytes());
        if let Some(reported) = fold.usage() {
            usage = Usage { output: reported.output.max(usage.output), ..reported };
        }
        job.account.settle(usage, facts.price, true, &self.options.model).await
    }

    /// Waits as long as the error asks for; false when it is not to be tried again.
    async fn wait_to_retry(&self, job: &Job<'_>, err: &ProviderError, tries: u32) -> Result<bool, StoreError> {
        let (retries, asked) = err.kind.retry();
        if tries > retries {
            return Ok(false);
        }
        let wait = backoff(tries, asked, self.clock.entropy());
        let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let (reason, error) = (err.to_string(), err.kind.word().to_owned());
        job.outlet.emit(EventKind::Waited { reason, error, ms, attempt: tries + 1 }).await?;
        tokio::select! {
            () = self.clock.sleep(wait) => Ok(true),
            () = job.cancel.cancelled() => Ok(false),
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
        job.outlet.emit(EventKind::Warned { code: "unknown_price".into(), text }).await?;
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
            (old.images && !new.images, "pictures"),
            (old.structured_output && !new.structured_output, "structured output"),
        ];
        lost.extend(abilities.iter().filter(|(gone, _)| *gone).map(|(_, what)| (*what).to_owned()));
        if let (Some(old), Some(new)) = (old.context_window, new.context_window)
            && new < old
        {
            lost.push(format!("a window of {old} tokens (it has {new})"));
        }
        lost
    }

    fn capabilities(&self) -> Capabilities {
        let which = if self.facts.tools { Self::CAPABILITIES } else { Self::WITHOUT_TOOLS };
        Capabilities::of(which.iter().copied())
    }

    fn run<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Result<Stop, RuntimeError>> {
        Box::pin(async move { self.drive(&job).await })
    }
}

enum Streamed {
    Whole,
    Cancelled,
    Failed(ProviderError),
}

fn cut() -> ProviderError {
    ProviderError {
        kind: ProviderErrorKind::Network { transient: true },
        message: "the model's stream ended before the answer did".into(),
        status: None,
    }
}

/// The last error, with how often it was tried.
fn after_tries(mut err: ProviderError, tries: u32) -> ProviderError {
    if tries > 1 {
        err.message.push_str(&format!("; tried {tries} times"));
    }
    err
}

fn too_long() -> ProviderError {
    ProviderError {
        kind: ProviderErrorKind::InvalidRequest,
        message: format!("the model's answer passed {} MiB and was not read further", MAX_ANSWER >> 20),
        status: None,
    }
}

fn tool_bytes(job: &Job<'_>) -> usize {
    let tools = job.toolbox.tools().iter();
    tools.map(|tool| tool.spec().description.len() + json_bytes(&tool.spec().schema) + 64).sum()
}

/// About how long a value is as JSON. Counted, not written: this is paid at every start.
fn json_bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 4,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => 2 + items.iter().map(|item| json_bytes(item) + 1).sum::<usize>(),
        Value::Object(map) => 2 + map.iter().map(|(name, value)| name.len() + 4 + json_bytes(value)).sum::<usize>(),
    }
}

/// Counts what a request weighs without walking the whole history at every step.
struct Meter {
    estimator: Estimator,
    base: usize,
    counted: usize,
    bytes: usize,
    /// Ids of all calls so far; vendors want them unique.
    calls: HashSet<CallId>,
}

impl Meter {
    fn new(base: usize) -> Self {
        Self { estimator: Estimator::default(), base, counted: 0, bytes: 0, calls: HashSet::new() }
    }

    fn bytes(&mut self, history: &[Entry]) -> usize {
        if history.len() < self.counted {
            (self.counted, self.bytes) = (0, 0); // it was compacted
        }
        for entry in &history[self.counted..] {
            self.bytes += entry.bytes();
            self.calls.extend(entry.calls().map(|call| call.id.clone()));
        }
        self.counted = history.len();
        self.base + self.bytes
    }

    fn estimate(&self, input: usize, output: usize) -> Usage {
        Usage { input: self.estimator.tokens(input), output: self.estimator.tokens(output), ..Usage::default() }
    }
}
