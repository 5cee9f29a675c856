//! Makes room in a session's messages and says so in the log. `windlass_core::context` plans it; a model writes the
//! prose of the summary, under the run's budget and without tools. What it writes is untrusted, bounded text, and where
//! it writes nothing of use the log writes the summary alone.

use futures_util::StreamExt;
use windlass_core::CancellationToken;
use windlass_core::budget::{Estimator, LEAST_OUTPUT};
use windlass_core::context::{Facts, How, Plan, Sections, TASK, plan, transcript, write};
use windlass_core::event::EventKind;
use windlass_core::history::Entry;
use windlass_core::message::{Message, Role};
use windlass_core::provider::{EndReason, ModelFacts, Provider, Request, Sampling};
use windlass_core::reply::ReplyFold;
use windlass_core::runtime::{Account, Outlet};
use windlass_core::settlement::{CallEnd, CallRecord};
use windlass_core::store::StoreError;
use windlass_core::tool::ToolSet;

/// The most of a record that a model reads for a summary, in bytes.
const MAX_RECORD: usize = 256 << 10;
/// The least it is worth asking with.
const LEAST_RECORD: usize = 16 << 10;
/// The most a model writes for one, in tokens; reasoning counts.
const MAX_OUTPUT: u64 = 8_192;
/// The most it may send, in bytes; what is of use is far less.
const MAX_ANSWER: usize = 1 << 20;

/// Answers that give way, or bytes of all messages, for which a model is asked at all.
const LEAST_ANSWERS: usize = 3;
const LEAST_DROPPED: usize = 32 << 10;

/// Who writes the prose of a summary.
pub(crate) struct Writer<'a> {
    pub(crate) provider: &'a dyn Provider,
    pub(crate) model: &'a str,
    pub(crate) facts: &'a ModelFacts,
    pub(crate) estimator: Estimator,
    pub(crate) account: &'a dyn Account,
    pub(crate) cancel: &'a CancellationToken,
}

/// Brings the messages to about `room` bytes, with one event; false when nothing was to be gained. Only between steps.
pub(crate) async fn compact(
    outlet: &dyn Outlet,
    writer: Option<&Writer<'_>>,
    how: How,
    room: usize,
) -> Result<bool, StoreError> {
    let history = outlet.history();
    let Some(Plan {
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
        let facts = outlet.facts();
        let sections =
            match writer.filter(|_| !matches!(how, How::Fit(_)) || is_worth_a_call(&dropped)) {
                Some(writer) => writer.sections(outlet, &before, &facts, room).await?,
                None => Sections::known(&before, &facts),
            };
        if writer.is_some_and(|writer| writer.cancel.is_cancelled()) {
            return Ok(false);
        }
        compaction.summary = write(&sections, &facts, &compaction.left_out, room);
    }
    outlet.emit(EventKind::Compacted { compaction }).await?;
    Ok(true)
}

/// Whether so much gives way that a model is asked to sum it up. In a window that a step or two fill, every step would
/// cost a second call otherwise.
fn is_worth_a_call(dropped: &[Entry]) -> bool {
    let new = || dropped.iter().filter(|entry| !entry.is_summary());
    let answers = new().filter(|entry| entry.role == Role::Assistant).count();
    answers >= LEAST_ANSWERS || new().map(Entry::bytes).sum::<usize>() >= LEAST_DROPPED
}

impl Writer<'_> {
    async fn sections(
        &self,
        outlet: &dyn Outlet,
        before: &[Entry],
        facts: &Facts,
        room: usize,
    ) -> Result<Sections, StoreError> {
        match self.ask(before, room).await? {
            Ok(sections) => Ok(sections.or(Sections::of(facts))),
            Err(_) if self.cancel.is_cancelled() => Ok(Sections::default()),
            Err(why) => {
                let text = format!(
                    "the model wrote no summary ({why}), so the log alone stands for what was left out"
                );
                outlet
                    .emit(EventKind::warned("summary_not_written", text))
                    .await?;
                Ok(Sections::known(before, facts))
            }
        }
    }

    /// One model call, booked like any other; why there is nothing of use in the second error.
    async fn ask(
        &self,
        before: &[Entry],
        room: usize,
    ) -> Result<Result<Sections, String>, StoreError> {
        // Where the window is not known, what is to be left of the messages is the best guess of what fits.
        let window = self
            .facts
            .context_window
            .map(|window| self.estimator.bytes(window / 2));
        let fits = window.unwrap_or_else(|| room.max(LEAST_RECORD));
        // As one message in words: it fits whatever the window is, and no vendor misses the tools of old calls.
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
            Err(limit) => return Ok(Err(format!("it would cross the limit of {limit}"))),
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
            return Ok(Err("it declined".into()));
        }
        Ok(Sections::parse(&reply.message.text()).ok_or_else(|| "its answer was empty".into()))
    }

    /// Reads the answer to its end; why there is none otherwise.
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
                return Some("its answer did not end".into());
            }
        }
    }
}

#[cfg(test)]
#[path = "compact_tests.rs"]
mod tests;
