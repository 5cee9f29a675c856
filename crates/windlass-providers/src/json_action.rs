//! Tool calls for models without native tool calls: a provider that wraps another. It describes the tools in the system
//! prompt, the model answers with one JSON object (an action or a final answer), and the object becomes the same chunks
//! as a native call. Tools, gate and agent loop do not notice a difference.
//! The wrapper executes nothing, never completes a partial action, and does not display the JSON around an answer.

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
use reader::{ActionReader, MAX_TEXT, TooLong};

/// Returns the provider unchanged if the model supports native tool calls, and wrapped in [`JsonActions`] otherwise.
#[must_use]
pub fn with_tools(provider: Arc<dyn Provider>, model: &str) -> Arc<dyn Provider> {
    if provider.facts(model).tools {
        provider
    } else {
        Arc::new(JsonActions::new(provider))
    }
}

/// Adds tool calls as JSON in the text to models without native tool calls. It checks the model's facts for each
/// request, because a server may report them only after the first one.
pub struct JsonActions {
    inner: Arc<dyn Provider>,
    /// Cached, so that each message is translated, and encoded by the inner provider, only once.
    translation: Mutex<Translation>,
}

impl JsonActions {
    /// Wraps a provider, whose models need not support tool calls.
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

    /// Sends the translated request, and sends the chunks of the answer to `out` as they arrive.
    async fn run(&self, request: Request<'_>, out: mpsc::Sender<Result<Chunk, ProviderError>>) {
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
        let translated = Request {
            system: &system,
            history: &history,
            tools: &none,
            options: &options,
            ..request
        };
        let mut answer = self.inner.stream(translated);
        let mut reader = ActionReader::new(
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
                let _ = out.send(Err(err)).await; // fails only if the receiver was dropped
                return;
            }
        }
    }
}

/// Returns the facts of a model with either native tool calls or JSON actions.
fn with_tool_calls(facts: ModelFacts) -> ModelFacts {
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
        with_tool_calls(self.inner.facts(model))
    }

    fn probe<'a>(&'a self, model: &'a str) -> BoxFuture<'a, Result<ModelFacts, ProviderError>> {
        Box::pin(async move { Ok(with_tool_calls(self.inner.probe(model).await?)) })
    }

    fn stream<'a>(&'a self, request: Request<'a>) -> BoxStream<'a, Result<Chunk, ProviderError>> {
        if self.inner.facts(request.model).tools {
            return self.inner.stream(request);
        }
        // Capacity 1, so that the answer is read only as fast as the caller consumes it.
        let (sender, receiver) = mpsc::channel(1);
        Box::pin(JsonActionStream {
            work: Some(Box::pin(self.run(request, sender))),
            receiver,
        })
    }
}

fn read(reader: &mut ActionReader, chunk: Chunk, batch: &mut Batch) -> Result<(), ProviderError> {
    match chunk {
        Chunk::Text(text) => reader.push(&text, batch).map_err(|TooLong| ProviderError {
            kind: ProviderErrorKind::InvalidResponse,
            message: format!("the model's JSON action is larger than {MAX_TEXT} bytes"),
            status: None,
        })?,
        Chunk::End(end) => reader.finish(end, batch),
        // Some models make native calls anyway. Their indexes follow index 0, which is the JSON action.
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

/// The stream of one answer. It does its work while it is polled.
struct JsonActionStream<'a> {
    work: Option<BoxFuture<'a, ()>>,
    receiver: mpsc::Receiver<Result<Chunk, ProviderError>>,
}

impl Stream for JsonActionStream<'_> {
    type Item = Result<Chunk, ProviderError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if let Poll::Ready(Some(item)) = this.receiver.poll_recv(cx) {
            return Poll::Ready(Some(item));
        }
        if let Some(work) = &mut this.work
            && work.as_mut().poll(cx).is_ready()
        {
            this.work = None; // this drops the sender, so the channel ends after the queued chunks
        }
        this.receiver.poll_recv(cx)
    }
}

#[cfg(test)]
#[path = "json_action_tests.rs"]
mod tests;
