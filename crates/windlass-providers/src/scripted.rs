//! A model that reads its lines from a script: for the demo, for tests, and for trying things without a key.
//! The script comes in as text; this file opens nothing. It answers request by request, in small pieces, and can
//! insist on what a request must contain. The format is described in `docs/scripted-models.md`.

mod follow;
mod format;
mod play;

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::StreamExt;
use windlass_core::BoxStream;
use windlass_core::budget::Price;
use windlass_core::message::{Message, Part, Role};
use windlass_core::provider::{
    Chunk, ModelFacts, Provider, ProviderError, ProviderErrorKind, Request,
};

use follow::Next;
use format::Follow;
pub use format::{Script, ScriptError, ScriptFormat};

/// Plays a script, one step a request; which one, the count of requests says, or the conversation.
#[derive(Debug)]
pub struct ScriptedProvider {
    script: Script,
    next: AtomicUsize,
}

impl ScriptedProvider {
    /// A provider at the beginning of its script.
    #[must_use]
    pub fn new(script: Script) -> Self {
        Self {
            script,
            next: AtomicUsize::new(0),
        }
    }

    /// Reads a script and stands at its beginning. `name` is what errors call it, for example the file's path.
    pub fn parse(name: &str, text: &str, format: ScriptFormat) -> Result<Self, ScriptError> {
        Script::parse(name, text, format).map(Self::new)
    }

    /// Steps that have been played, or tried to be.
    #[must_use]
    pub fn played(&self) -> usize {
        self.next.load(Ordering::SeqCst)
    }
}

impl Provider for ScriptedProvider {
    fn name(&self) -> &str {
        "scripted"
    }

    fn facts(&self, _model: &str) -> ModelFacts {
        ModelFacts {
            context_window: self.script.context_window,
            max_output: self
                .script
                .max_output
                .unwrap_or(ModelFacts::default().max_output),
            price: Some(Price::FREE),
            ..ModelFacts::default()
        }
    }

    fn stream<'a>(&'a self, request: Request<'a>) -> BoxStream<'a, Result<Chunk, ProviderError>> {
        let played = self.next.fetch_add(1, Ordering::SeqCst);
        let name = &self.script.name;
        let next = match self.script.follow {
            None => Next::Step(played),
            Some(Follow::History) => follow::next(&self.script, request.history),
        };
        let (number, step) = match &next {
            Next::Step(number) => (*number, self.script.step(*number)),
            Next::Made(number, step) => (*number, Some(step.as_ref())),
        };
        let Some(step) = step else {
            let (asked, has) = (number + 1, self.script.len());
            return refuse(format!(
                "script `{name}` has {has} steps, and the model was asked for step {asked}; add one"
            ));
        };
        for (wanted, new_only) in step.expectations() {
            if !request_contains(&request, wanted, new_only) {
                let place = if new_only {
                    "what is new in the request"
                } else {
                    "the request"
                };
                let number = number + 1;
                let last = last_words(request);
                return refuse(format!(
                    "step {number} of script `{name}` expects {place} to contain `{wanted}`; the last message was: {last}"
                ));
            }
        }
        let acts = play::acts(step, number);
        let hang = step.hang;
        let pieces = futures_util::stream::iter(acts).then(|act| async move {
            // Each piece is a turn of its own, as on a network: others run in between, and a cancel gets through.
            tokio::task::yield_now().await;
            act
        });
        if hang {
            Box::pin(pieces.chain(futures_util::stream::pending()))
        } else {
            Box::pin(pieces)
        }
    }
}

fn refuse<'a>(message: String) -> BoxStream<'a, Result<Chunk, ProviderError>> {
    let err = ProviderError {
        kind: ProviderErrorKind::InvalidRequest,
        message,
        status: None,
    };
    Box::pin(futures_util::stream::iter([Err(err)]))
}

/// Whether some text of the request holds these words. `new_only` leaves out what was there before the last answer.
fn request_contains(request: &Request<'_>, wanted: &str, new_only: bool) -> bool {
    let answered = request
        .history
        .iter()
        .rposition(|entry| entry.role == Role::Assistant);
    let from = answered.filter(|_| new_only).map_or(0, |at| at + 1);
    let in_history = request.history[from..]
        .iter()
        .any(|entry| message_contains(entry, wanted));
    in_history || (!new_only && request.system.contains(wanted))
}

fn message_contains(message: &Message, wanted: &str) -> bool {
    message.parts.iter().any(|part| match part {
        Part::Text { text } | Part::Reasoning { text, .. } => text.contains(wanted),
        Part::Result(result) => result.text.contains(wanted),
        Part::Call(call) => call.name.contains(wanted) || call.args.to_string().contains(wanted),
        Part::Image { .. } => false,
    })
}

fn last_words(request: Request<'_>) -> String {
    let Some(last) = request.history.last() else {
        return "(none)".to_owned();
    };
    let words = last.parts.iter().rev().find_map(|part| match part {
        Part::Text { text } => Some(text),
        Part::Result(result) => Some(&result.text),
        _ => None,
    });
    words.map_or_else(
        || "(no text)".to_owned(),
        |text| text.chars().take(400).collect(),
    )
}

#[cfg(test)]
#[path = "scripted_tests.rs"]
mod tests;
