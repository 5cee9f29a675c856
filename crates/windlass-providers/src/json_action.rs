//! Tools for models that cannot call tools: a provider that wraps a provider. The tools are described in the system
//! prompt, the model answers with one JSON object (an action or a final answer), and that becomes the same chunks a
//! native call would have given. Same tools, same gate, same loop.
//! It never runs anything, never repairs half an action, and shows no word of the JSON around an answer.

mod prompt;
mod reader;

use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::{Stream, StreamExt};
use tokio::sync::mpsc;
use windlass_core::history::Entry;
use windlass_core::provider::{
    Chunk, ModelFacts, Provider, ProviderError, ProviderErrorKind, Request,
};
use windlass_core::tool::ToolSet;
use windlass_core::{BoxFuture, BoxStream};

use crate::protocol::Batch;
use prompt::Translation;
use reader::{Reader, TooLong};

/// The provider as it is when its model calls tools by itself; otherwise the provider with the JSON-action loop
/// around it.
#[must_use]
pub fn with_tools(provider: Arc<dyn Provider>, model: &str) -> Arc<dyn Provider> {
    if provider.facts(model).tools {
        provider
    } else {
        Arc::new(JsonActions::new(provider))
    }
}

/// A provider whose models call tools through JSON in their text, where they cannot call them otherwise. Asked anew
/// for each request: a server may say what its model can do after the first question.
pub struct JsonActions {
    inner: Arc<dyn Provider>,
    /// The history in words. Kept, so that each message is translated, and encoded by the inner provider, once.
    translation: Mutex<Translation>,
}

impl JsonActions {
    /// Puts the loop around a provider.
    #[must_use]
    pub fn new(inner: Arc<dyn Provider>) -> Self {
        Self {
            inner,
            translation: Mutex::default(),
        }
    }

    fn translate(&self, history: &[Entry]) -> Vec<Entry> {
        self.translation.lock().update(history)
    }

    /// Asks in words and reads the answer as it comes; what it means goes out through `out`.
    async fn ask(&self, request: Request<'_>, out: mpsc::Sender<Result<Chunk, ProviderError>>) {
        let system = prompt::system(&request);
        let mut options = request.options.clone();
        options.tool_choice = None;
        options.output_schema = self
            .inner
            .facts(request.model)
            .structured_output
            .then(|| prompt::schema(&request));
        let history = self.translate(request.history);
        let none = ToolSet::default();
        let in_words = Request {
            system: &system,
            history: &history,
            tools: &none,
            options: &options,
            ..request
        };
        let mut answer = self.inner.stream(in_words);
        let mut reader = Reader::new(
            request
                .tools
                .iter()
                .map(|tool| tool.spec().name.clone())
                .collect(),
        );
        let mut batch = Batch::default();
        while let Some(item) = answer.next().await {
            let failed = match item {
                Ok(chunk) => read(&mut reader, chunk, &mut batch).err(),
                Err(err) => Some(err),
            };
            while let Some(chunk) = batch.pop() {
                if out.send(Ok(chunk)).await.is_err() {
                    return;
                }
            }
            if let Some(err) = failed {
                let _ = out.send(Err(err)).await; // nobody listens any more: then nobody needs to know
                return;
            }
        }
    }
}

/// The facts of a model that calls tools in one way or the other.
fn in_any_case(facts: ModelFacts) -> ModelFacts {
    ModelFacts {
        tools: true,
        json_actions: !facts.tools,
        ..facts
    }
}

impl Provider for JsonActions {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn facts(&self, model: &str) -> ModelFacts {
        in_any_case(self.inner.facts(model))
    }

    fn probe<'a>(&'a self, model: &'a str) -> BoxFuture<'a, Result<ModelFacts, ProviderError>> {
        Box::pin(async move { Ok(in_any_case(self.inner.probe(model).await?)) })
    }

    fn stream<'a>(&'a self, request: Request<'a>) -> BoxStream<'a, Result<Chunk, ProviderError>> {
        if self.inner.facts(request.model).tools {
            return self.inner.stream(request);
        }
        // One place: the answer is read as fast as it is taken, and no faster.
        let (sender, receiver) = mpsc::channel(1);
        Box::pin(Asking {
            work: Some(Box::pin(self.ask(request, sender))),
            receiver,
        })
    }
}

fn read(reader: &mut Reader, chunk: Chunk, batch: &mut Batch) -> Result<(), ProviderError> {
    match chunk {
        Chunk::Text(text) => reader.push(&text, batch).map_err(|TooLong| ProviderError {
            kind: ProviderErrorKind::InvalidResponse,
            message: "the model's JSON action is larger than any action may be".to_owned(),
            status: None,
        })?,
        Chunk::End(end) => reader.finish(end, batch),
        // A model that calls natively after all is understood, too; its calls stand behind ours.
        Chunk::CallStart { index, id, name } => {
            reader.native_call();
            batch.push(Chunk::CallStart {
                index: index.saturating_add(1),
                id,
                name,
            });
        }
        Chunk::CallArgs { index, json } => {
            batch.args(index.saturating_add(1), &json);
        }
        other => batch.push(other),
    }
    Ok(())
}

/// The work of one answer, done when its chunks are asked for.
struct Asking<'a> {
    work: Option<BoxFuture<'a, ()>>,
    receiver: mpsc::Receiver<Result<Chunk, ProviderError>>,
}

impl Stream for Asking<'_> {
    type Item = Result<Chunk, ProviderError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if let Poll::Ready(Some(item)) = this.receiver.poll_recv(cx) {
            return Poll::Ready(Some(item));
        }
        if let Some(work) = &mut this.work
            && work.as_mut().poll(cx).is_ready()
        {
            this.work = None; // its sender is gone, so the channel ends after what is in it
        }
        this.receiver.poll_recv(cx)
    }
}

#[cfg(test)]
#[path = "json_action_tests.rs"]
mod tests;
