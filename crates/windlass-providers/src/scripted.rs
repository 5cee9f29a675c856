//! A model that plays answers from a script, for the demo, for tests, and for experiments without a key.
//! The script is passed as text; this module opens no files. It plays one step per request, in small pieces, and can
//! check the content of requests. `docs/scripted-models.md` describes the format.

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

use follow::NextStep;
use format::FollowMode;
pub use format::{ModelScript, ScriptError, ScriptFormat};

/// Plays a script, one step per request. The step is chosen by the number of requests or by the conversation.
#[derive(Debug)]
pub struct ScriptedModelProvider {
    script: ModelScript,
    next: AtomicUsize,
}

impl ScriptedModelProvider {
    /// Creates a provider at the beginning of its script.
    #[must_use]
    pub fn new(script: ModelScript) -> Self {
        Self {
            script,
            next: AtomicUsize::new(0),
        }
    }

    /// Parses a script. `name` identifies it in error messages, for example the path of the file.
    pub fn parse(name: &str, text: &str, format: ScriptFormat) -> Result<Self, ScriptError> {
        ModelScript::parse(name, text, format).map(Self::new)
    }

    /// Returns the number of requests so far.
    #[must_use]
    pub fn played(&self) -> usize {
        self.next.load(Ordering::SeqCst)
    }
}

impl Provider for ScriptedModelProvider {
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
            None => NextStep::Scripted(played),
            Some(FollowMode::History) => follow::next(&self.script, request.history),
        };
        let (number, step) = match &next {
            NextStep::Scripted(number) => (*number, self.script.step(*number)),
            NextStep::Generated(number, step) => (*number, Some(step.as_ref())),
        };
        let Some(step) = step else {
            let (wanted, has) = (number + 1, self.script.len());
            return refuse(format!(
                "script `{name}` has {has} steps, but the request needs step {wanted}; add one"
            ));
        };
        for (wanted, new_only) in step.expectations() {
            if !request_contains(&request, wanted, new_only) {
                let place = if new_only {
                    "the new part of the request"
                } else {
                    "the request"
                };
                let number = number + 1;
                let last = last_text(request);
                return refuse(format!(
                    "step {number} of script `{name}` expects {place} to contain `{wanted}`; the last message was: {last}"
                ));
            }
        }
        let chunks = play::chunks(step, number);
        let hang = step.hang;
        let pieces = futures_util::stream::iter(chunks).then(|chunk| async move {
            // As with a network, other tasks run between two pieces, so that a cancellation takes effect.
            tokio::task::yield_now().await;
            chunk
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

/// Returns whether a text of the request contains `wanted`. With `new_only`, only the messages after the last answer
/// are searched.
fn request_contains(request: &Request<'_>, wanted: &str, new_only: bool) -> bool {
    let last_answer = request
        .history
        .iter()
        .rposition(|entry| entry.role == Role::Assistant);
    let from = last_answer.filter(|_| new_only).map_or(0, |at| at + 1);
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

fn last_text(request: Request<'_>) -> String {
    let Some(last) = request.history.last() else {
        return "(none)".to_owned();
    };
    let text = last.parts.iter().rev().find_map(|part| match part {
        Part::Text { text } => Some(text),
        Part::Result(result) => Some(&result.text),
        _ => None,
    });
    text.map_or_else(
        || "(no text)".to_owned(),
        |text| text.chars().take(400).collect(),
    )
}

#[cfg(test)]
#[path = "scripted_tests.rs"]
mod tests;
