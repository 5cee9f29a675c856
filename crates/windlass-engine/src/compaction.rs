//! Compacts the messages of a session and logs the compaction. `windlass_core::context` plans it. A model writes the prose
//! of the summary, within the budget of the run and without tools. Its text is untrusted and bounded. If the model returns
//! nothing useful, the summary is computed from the log alone.

use futures_util::StreamExt;
use windlass_core::CancellationToken;
use windlass_core::budget::{Estimator, LEAST_OUTPUT};
use windlass_core::context::{
    CompactionMode, CompactionPlan, Sections, TASK, WorkRecord, plan, transcript, write,
};
use windlass_core::event::EventKind;
use windlass_core::history::Entry;
use windlass_core::message::{Message, Role};
use windlass_core::provider::{EndReason, ModelFacts, Provider, Request, Sampling};
use windlass_core::reply::ReplyFold;
use windlass_core::runtime::{BudgetAccount, EventSink};
use windlass_core::settlement::{CallEnd, CallRecord};
use windlass_core::store::StoreError;
use windlass_core::tool::ToolSet;

/// Maximum size of the record that a model reads for a summary, in bytes.
const MAX_RECORD: usize = 256 << 10;
/// Minimum size of that record if the window of the model is unknown, in bytes.
const LEAST_RECORD: usize = 16 << 10;
/// Maximum output of the model for a summary, in tokens, including reasoning.
const MAX_OUTPUT: u64 = 8_192;
/// Maximum size of the model's answer, in bytes. A useful summary is much smaller.
const MAX_ANSWER: usize = 1 << 20;

/// A model call for a summary is worth its cost from this number of dropped answers on.
const LEAST_ANSWERS: usize = 3;
/// A model call for a summary is worth its cost from this size of all dropped messages on, in bytes.
const LEAST_DROPPED: usize = 32 << 10;

/// The model call that writes the prose of a summary.
pub(crate) struct SummaryWriter<'a> {
    pub(crate) provider: &'a dyn Provider,
    pub(crate) model: &'a str,
    pub(crate) facts: &'a ModelFacts,
    pub(crate) estimator: Estimator,
    pub(crate) account: &'a dyn BudgetAccount,
    pub(crate) cancel: &'a CancellationToken,
}

/// Compacts the messages to about `room` bytes and logs one event. Returns false if nothing can be dropped. Must be called
/// between two steps, because a call and its result belong together.
pub(crate) async fn compact(
    sink: &dyn EventSink,
    writer: Option<&SummaryWriter<'_>>,
    how: CompactionMode,
    room: usize,
) -> Result<bool, StoreError> {
    let history = sink.history();
    let Some(CompactionPlan {
        mut compaction,
        dropped,
    }) = plan(&history, how, room)
    else {
        return Ok(false);
    };
    let before: Vec<Entry> = history
        .iter()
        .filter(|entry| entry.seq() < compaction.kept_from)
        .cloned()
        .collect();
    drop(history);
    if !dropped.is_empty() {
        let facts = sink.facts();
        let sections = match writer
            .filter(|_| !matches!(how, CompactionMode::Fit(_)) || is_worth_a_call(&dropped))
        {
            Some(writer) => writer.sections(sink, &before, &facts, room).await?,
            None => Sections::known(&before, &facts),
        };
        if writer.is_some_and(|writer| writer.cancel.is_cancelled()) {
            return Ok(false);
        }
        compaction.summary = write(&sections, &facts, &compaction.left_out, room);
    }
    sink.emit(EventKind::Compacted { compaction }).await?;
    Ok(true)
}

/// True if the dropped messages are worth a model call. In a window that one or two steps fill, every step would otherwise
/// cost a second call.
fn is_worth_a_call(dropped: &[Entry]) -> bool {
    let new = || dropped.iter().filter(|entry| !entry.is_summary());
    let answers = new().filter(|entry| entry.role == Role::Assistant).count();
    answers >= LEAST_ANSWERS || new().map(Entry::bytes).sum::<usize>() >= LEAST_DROPPED
}

impl SummaryWriter<'_> {
    async fn sections(
        &self,
        sink: &dyn EventSink,
        before: &[Entry],
        facts: &WorkRecord,
        room: usize,
    ) -> Result<Sections, StoreError> {
        match self.ask(before, room).await? {
            Ok(sections) => Ok(sections.or(Sections::of(facts))),
            Err(_) if self.cancel.is_cancelled() => Ok(Sections::default()),
            Err(why) => {
                let text = format!(
                    "the model wrote no summary ({why}); the summary contains only facts from the log"
                );
                sink.emit(EventKind::warned("summary_not_written", text))
                    .await?;
                Ok(Sections::known(before, facts))
            }
        }
    }

    /// Makes one model call, whose cost is recorded like that of any other call. The inner error is the reason why the model
    /// wrote nothing useful.
    async fn ask(
        &self,
        before: &[Entry],
        room: usize,
    ) -> Result<Result<Sections, String>, StoreError> {
        // If the window is unknown, the target size of the messages is the best estimate of what fits.
        let window = self
            .facts
            .context_window
            .map(|window| self.estimator.bytes(window / 2));
        let fits = window.unwrap_or_else(|| room.max(LEAST_RECORD));
        // Send the record as one text message: it can be cut to any window, and no vendor rejects calls of tools that the
        // request does not declare.
        let record = transcript(before, MAX_RECORD.min(fits.saturating_sub(TASK.len())));
        let history = [Entry::new(Message::internal(format!(
            "The record:\n\n{record}\n\nWrite the summary now."
        )))];
        let bytes = history[0].bytes() + TASK.len();
        let input = self.estimator.tokens(bytes);
        let left = self.facts.context_window.map_or(u64::MAX, |window| {
            window.saturating_sub(input).max(LEAST_OUTPUT)
        });
        let want = MAX_OUTPUT.min(self.facts.max_output).min(left);
        let max_output = match self.account.admit(input, want, self.facts.price) {
            Ok(room) => room,
            Err(limit) => return Ok(Err(format!("it would exceed the limit of {limit}"))),
        };
        let (tools, options) = (ToolSet::default(), Sampling::default());
        let model = self.model;
        let request = Request {
            model,
            system: TASK,
            history: &history,
            tools: &tools,
            max_output,
            options: &options,
        };
        let mut fold = ReplyFold::default();
        let failed = self.read(request, &mut fold).await;
        if fold.bytes() > 0 || fold.usage().is_some() {
            let record = CallRecord {
                sent: bytes,
                input,
                output: max_output,
                received: fold.count(),
                reported: fold.usage(),
            };
            let (usage, estimated) = record.settle(match failed {
                Some(_) => CallEnd::Cut,
                None => CallEnd::Complete,
            });
            self.account
                .settle(usage, self.facts.price, estimated, self.model)
                .await?;
        }
        if let Some(why) = failed {
            return Ok(Err(why));
        }
        let reply = fold.finish(|| "none".into());
        if reply.end == EndReason::Refused {
            return Ok(Err("it refused".into()));
        }
        Ok(Sections::parse(&reply.message.text()).ok_or_else(|| "its answer was empty".into()))
    }

    /// Reads the whole answer. Returns the reason if it is incomplete.
    async fn read(&self, request: Request<'_>, fold: &mut ReplyFold) -> Option<String> {
        let mut stream = self.provider.stream(request);
        let mut ended = false;
        loop {
            let item = tokio::select! {
                biased;
                () = self.cancel.cancelled() => return Some("it was cancelled".into()),
                item = stream.next() => item,
            };
            match item {
                Some(Ok(chunk)) => {
                    ended |= matches!(chunk, windlass_core::provider::Chunk::End(_));
                    fold.push(chunk);
                }
                _ if ended => return None,
                Some(Err(err)) => return Some(err.to_string()),
                None => return Some("its answer was cut off".into()),
            }
            if fold.bytes() > MAX_ANSWER {
                return Some("its answer was too long".into());
            }
        }
    }
}

#[cfg(test)]
#[path = "compaction_tests.rs"]
mod tests;
