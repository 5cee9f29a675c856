//! One model call of the loop: compacts the messages if they do not fit, streams the answer, retries after errors, logs the
//! answer and records its cost.

use futures_util::StreamExt;
use windlass_core::budget::LEAST_OUTPUT;
use windlass_core::context::{CompactionCause, CompactionMode};
use windlass_core::event::EventKind;
use windlass_core::history::Entry;
use windlass_core::id::CallId;
use windlass_core::message::Part;
use windlass_core::provider::{Chunk, ProviderError, ProviderErrorKind, Request, backoff};
use windlass_core::reply::{Reply, ReplyFold};
use windlass_core::runtime::{Job, RuntimeError, Stop};
use windlass_core::settlement::{CallEnd, CallRecord};
use windlass_core::store::StoreError;

use super::delta_filter::DeltaFilter;
use super::{LoopState, NativeRuntime};

/// Maximum size of one answer, in bytes. A longer one is an error of the server.
const MAX_ANSWER: usize = 64 << 20;
/// Maximum number of warnings per answer about unknown parts of the stream.
const MAX_UNKNOWN: u32 = 3;

impl NativeRuntime {
    /// Makes one model call with its retries. Returns the logged reply, or the reason to stop.
    pub(super) async fn ask_model(
        &self,
        state: &mut LoopState<'_>,
    ) -> Result<Result<Reply, Stop>, RuntimeError> {
        let LoopState { job, facts, .. } = *state;
        let mut filter = DeltaFilter::default();
        let mut attempts = 0;
        let mut compacted = false;
        self.compact_to_window(state).await?;
        loop {
            let history = job.sink.history();
            let bytes = state.size.bytes(&history);
            let input = state.size.estimator.tokens(bytes);
            let mut want = self.options.max_output.unwrap_or(facts.max_output);
            if let Some(window) = facts.context_window {
                // Input and output share the window. Only the server knows exactly whether the input fits.
                want = want.min(window.saturating_sub(input).max(LEAST_OUTPUT));
            }
            let max_output = match job.account.admit(input, want, facts.price) {
                Ok(room) => room,
                Err(limit) => return Ok(Err(Stop::OverBudget { limit })),
            };
            let mut fold = ReplyFold::default();
            let end = self
                .stream(state, &history, max_output, &mut fold, &mut filter)
                .await?;
            // Drop the reference before the next event, so that appending to the history does not copy it.
            drop(history);
            let record = CallRecord {
                sent: bytes,
                input,
                output: max_output,
                received: fold.count(),
                reported: fold.usage(),
            };
            match end {
                Streamed::Whole => return Ok(Ok(self.commit(state, fold, record).await?)),
                Streamed::Cancelled => {
                    self.settle(state, &record, CallEnd::Cut).await?;
                    return Ok(Err(Stop::Cancelled));
                }
                Streamed::Failed(err) => {
                    if let Some(end) = billed(&err, &record) {
                        self.settle(state, &record, end).await?;
                    }
                    if err.kind == ProviderErrorKind::Refused {
                        let category = windlass_core::outcome::RefusalCategory::Safety;
                        return Ok(Err(Stop::Refused {
                            category,
                            detail: err.message,
                        }));
                    }
                    // The request is too long by the server's count: retry once with half of the messages.
                    if err.kind == ProviderErrorKind::ContextLength
                        && !std::mem::replace(&mut compacted, true)
                    {
                        let room = bytes.saturating_sub(state.size.base) / 2;
                        if self
                            .compact_messages(
                                state,
                                CompactionMode::Fit(CompactionCause::Length),
                                room,
                            )
                            .await?
                        {
                            continue;
                        }
                    }
                    attempts += 1;
                    filter.restart();
                    if let Some(limit) = job.account.exceeded() {
                        return Ok(Err(Stop::OverBudget { limit }));
                    }
                    if !self.wait_to_retry(job, &err, attempts).await? {
                        let stop = if job.cancel.is_cancelled() {
                            Stop::Cancelled
                        } else {
                            Stop::Provider(with_attempts(err, attempts))
                        };
                        return Ok(Err(stop));
                    }
                }
            }
        }
    }

    async fn stream(
        &self,
        state: &LoopState<'_>,
        history: &[Entry],
        max_output: u64,
        fold: &mut ReplyFold,
        filter: &mut DeltaFilter,
    ) -> Result<Streamed, StoreError> {
        let job = state.job;
        let request = Request {
            model: &self.options.model,
            system: &state.system,
            history,
            tools: job.toolbox.tools(),
            max_output,
            options: &self.options.sampling,
        };
        let watched = job.sink.watched();
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
                // An error after the end of the answer does not make it invalid.
                Some(Err(_)) | None if ended => return Ok(Streamed::Whole),
                Some(Err(err)) => return Ok(Streamed::Failed(err)),
                None => return Ok(Streamed::Failed(cut())),
            };
            match &chunk {
                Chunk::End(_) => ended = true,
                Chunk::Unknown(what) => {
                    unknown += 1;
                    if unknown <= MAX_UNKNOWN {
                        let text = format!("skipped an unknown part of the model's stream: {what}");
                        job.sink
                            .emit(EventKind::warned("unknown_stream_event", text))
                            .await?;
                    }
                }
                _ => {}
            }
            if watched && let Some(delta) = filter.delta(&chunk) {
                job.sink.show(delta);
            }
            fold.push(chunk);
            if fold.bytes() > MAX_ANSWER {
                return Ok(Streamed::Failed(too_long()));
            }
            if fold.count().passes(max_output) {
                return Ok(Streamed::Failed(above_max_output(max_output)));
            }
        }
    }

    async fn commit(
        &self,
        state: &mut LoopState<'_>,
        fold: ReplyFold,
        record: CallRecord,
    ) -> Result<Reply, StoreError> {
        let LoopState { job, size, .. } = state;
        let fresh = || CallId(format!("call_{:016x}", self.clock.entropy()));
        let mut reply = fold.finish(fresh);
        for part in &mut reply.message.parts {
            // Vendors require ids that are unique in the whole conversation, but some restart with every answer.
            if let Part::Call(call) = part
                && size.calls.contains(&call.id)
            {
                call.id = fresh();
            }
        }
        job.sink
            .emit(EventKind::said(reply.message.clone()))
            .await?;
        if let Some(reported) = record.reported_input() {
            size.estimator.correct(record.sent, reported);
        }
        self.settle(state, &record, CallEnd::Complete).await?;
        Ok(reply)
    }

    async fn settle(
        &self,
        state: &LoopState<'_>,
        record: &CallRecord,
        end: CallEnd,
    ) -> Result<(), StoreError> {
        let (usage, estimated) = record.settle(end);
        let LoopState { job, facts, .. } = state;
        job.account
            .settle(usage, facts.price, estimated, &self.options.model)
            .await
    }

    /// Waits before a retry. Returns false if the error does not allow another attempt, or the run was cancelled.
    async fn wait_to_retry(
        &self,
        job: &Job<'_>,
        err: &ProviderError,
        attempts: u32,
    ) -> Result<bool, StoreError> {
        let (retries, asked) = err.kind.retry();
        if attempts > retries {
            return Ok(false);
        }
        let wait = backoff(attempts, asked, self.clock.entropy());
        let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let (reason, error) = (err.to_string(), err.kind.clone());
        job.sink
            .emit(EventKind::Waited {
                reason,
                error,
                ms,
                attempt: attempts + 1,
            })
            .await?;
        tokio::select! {
            () = self.clock.sleep(wait) => Ok(true),
            () = job.cancel.cancelled() => Ok(false),
        }
    }
}

/// The end for the settlement of a failed call; `None` if the vendor does not charge for it.
fn billed(err: &ProviderError, record: &CallRecord) -> Option<CallEnd> {
    if record.received.passes(record.output) {
        return Some(CallEnd::Unknown);
    }
    if record.received.bytes() > 0 || record.reported.is_some() {
        return Some(CallEnd::Cut);
    }
    let sent = matches!(err.kind, ProviderErrorKind::Network { sent: true, .. });
    sent.then_some(CallEnd::Unknown)
}

enum Streamed {
    Whole,
    Cancelled,
    Failed(ProviderError),
}

fn cut() -> ProviderError {
    ProviderError {
        kind: ProviderErrorKind::Network {
            transient: true,
            sent: true,
        },
        message: "the model's stream ended before the answer was complete".into(),
        status: None,
    }
}

/// Adds the number of attempts to the error.
fn with_attempts(mut err: ProviderError, attempts: u32) -> ProviderError {
    if attempts > 1 {
        err.message.push_str(&format!("; tried {attempts} times"));
    }
    err
}

fn above_max_output(max_output: u64) -> ProviderError {
    ProviderError {
        kind: ProviderErrorKind::InvalidResponse,
        message: format!(
            "the model's server sent more than the requested {max_output} tokens; the answer was cut"
        ),
        status: None,
    }
}

fn too_long() -> ProviderError {
    ProviderError {
        kind: ProviderErrorKind::InvalidRequest,
        message: format!(
            "the model's answer is longer than {} MiB, so the rest was not read",
            MAX_ANSWER >> 20
        ),
        status: None,
    }
}
