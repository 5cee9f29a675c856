//! One model call of the loop: room is made where it would not fit, the answer is streamed, retried, committed and paid.

use futures_util::StreamExt;
use windlass_core::budget::LEAST_OUTPUT;
use windlass_core::context::{Cause, How};
use windlass_core::event::EventKind;
use windlass_core::history::Entry;
use windlass_core::id::CallId;
use windlass_core::message::Part;
use windlass_core::provider::{Chunk, ProviderError, ProviderErrorKind, Request, backoff};
use windlass_core::reply::{Reply, ReplyFold};
use windlass_core::runtime::{Job, RuntimeError, Stop};
use windlass_core::settlement::{CallEnd, CallRecord};
use windlass_core::store::StoreError;

use super::shown::Shown;
use super::{Course, NativeRuntime};

/// The most one answer may hold, in bytes; a vendor that sends more is not believed.
const MAX_ANSWER: usize = 64 << 20;
/// Unknown things in one answer that are told; the rest is counted.
const MAX_UNKNOWN: u32 = 3;

impl NativeRuntime {
    /// One model call with its retries: the committed reply, or why there is none.
    pub(super) async fn ask_model(
        &self,
        course: &mut Course<'_>,
    ) -> Result<Result<Reply, Stop>, RuntimeError> {
        let Course { job, facts, .. } = *course;
        let mut shown = Shown::default();
        let mut tries = 0;
        let mut pressed = false;
        self.fit(course).await?;
        loop {
            let history = job.outlet.history();
            let bytes = course.meter.bytes(&history);
            let input = course.meter.estimator.tokens(bytes);
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
            let end = self
                .stream(course, &history, max_output, &mut fold, &mut shown)
                .await?;
            // Given back before the next event, so that appending to the history copies nothing.
            drop(history);
            let record = CallRecord {
                sent: bytes,
                input,
                output: max_output,
                received: fold.count(),
                reported: fold.usage(),
            };
            match end {
                Streamed::Whole => return Ok(Ok(self.commit(course, fold, record).await?)),
                Streamed::Cancelled => {
                    self.settle(course, &record, CallEnd::Cut).await?;
                    return Ok(Err(Stop::Cancelled));
                }
                Streamed::Failed(err) => {
                    if let Some(end) = billed(&err, &record) {
                        self.settle(course, &record, end).await?;
                    }
                    if err.kind == ProviderErrorKind::Refused {
                        let category = windlass_core::outcome::RefusalCategory::Safety;
                        return Ok(Err(Stop::Refused {
                            category,
                            detail: err.message,
                        }));
                    }
                    // Too long by the server's count: once more, with much less.
                    if err.kind == ProviderErrorKind::ContextLength
                        && !std::mem::replace(&mut pressed, true)
                    {
                        let room = bytes.saturating_sub(course.meter.base) / 2;
                        if self
                            .make_room(course, How::Fit(Cause::Length), room)
                            .await?
                        {
                            continue;
                        }
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
        course: &Course<'_>,
        history: &[Entry],
        max_output: u64,
        fold: &mut ReplyFold,
        shown: &mut Shown,
    ) -> Result<Streamed, StoreError> {
        let job = course.job;
        let request = Request {
            model: &self.options.model,
            system: &course.system,
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
                        let text = format!(
                            "the model's stream held something unknown, which was skipped: {what}"
                        );
                        job.outlet
                            .emit(EventKind::warned("unknown_stream_event", text))
                            .await?;
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
            if fold.count().passes(max_output) {
                return Ok(Streamed::Failed(passed_the_maximum(max_output)));
            }
        }
    }

    async fn commit(
        &self,
        course: &mut Course<'_>,
        fold: ReplyFold,
        record: CallRecord,
    ) -> Result<Reply, StoreError> {
        let Course { job, meter, .. } = course;
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
        job.outlet
            .emit(EventKind::said(reply.message.clone()))
            .await?;
        if let Some(reported) = record.reported_input() {
            meter.estimator.correct(record.sent, reported);
        }
        self.settle(course, &record, CallEnd::Complete).await?;
        Ok(reply)
    }

    async fn settle(
        &self,
        course: &Course<'_>,
        record: &CallRecord,
        end: CallEnd,
    ) -> Result<(), StoreError> {
        let (usage, estimated) = record.settle(end);
        let Course { job, facts, .. } = course;
        job.account
            .settle(usage, facts.price, estimated, &self.options.model)
            .await
    }

    /// Waits as long as the error asks for; false when it is not to be tried again.
    async fn wait_to_retry(
        &self,
        job: &Job<'_>,
        err: &ProviderError,
        tries: u32,
    ) -> Result<bool, StoreError> {
        let (retries, asked) = err.kind.retry();
        if tries > retries {
            return Ok(false);
        }
        let wait = backoff(tries, asked, self.clock.entropy());
        let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let (reason, error) = (err.to_string(), err.kind.clone());
        job.outlet
            .emit(EventKind::Waited {
                reason,
                error,
                ms,
                attempt: tries + 1,
            })
            .await?;
        tokio::select! {
            () = self.clock.sleep(wait) => Ok(true),
            () = job.cancel.cancelled() => Ok(false),
        }
    }
}

/// The end that a failed call is settled with; `None` where the vendor bills nothing.
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

fn passed_the_maximum(max_output: u64) -> ProviderError {
    ProviderError {
        kind: ProviderErrorKind::InvalidResponse,
        message: format!(
            "the model's server sent more than the {max_output} tokens that were asked for; the answer was cut"
        ),
        status: None,
    }
}

fn too_long() -> ProviderError {
    ProviderError {
        kind: ProviderErrorKind::InvalidRequest,
        message: format!(
            "the model's answer passed {} MiB and was not read further",
            MAX_ANSWER >> 20
        ),
        status: None,
    }
}
