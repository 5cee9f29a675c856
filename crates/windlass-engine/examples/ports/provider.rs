//! A provider: access to a model. It returns facts about the model, and streams answers in pieces of any size.
//! The model here repeats the prompt; a real provider sends the request to a server and decodes the answer.
//! It never retries and reads no settings: the engine decides about retries.

use std::sync::Arc;

use futures_util::StreamExt;
use windlass_core::BoxStream;
use windlass_core::budget::{Price, Usage};
use windlass_core::outcome::Outcome;
use windlass_core::provider::{Chunk, EndReason, ModelFacts, Provider, ProviderError, Request};

use super::ExampleResult;
use super::fakes::Fakes;

struct RepeatingProvider;

impl Provider for RepeatingProvider {
    fn name(&self) -> &str {
        "parrot"
    }

    fn facts(&self, _model: &str) -> ModelFacts {
        ModelFacts {
            context_window: Some(8_000),
            price: Some(Price::FREE),
            ..ModelFacts::default()
        }
    }

    fn stream<'a>(&'a self, request: Request<'a>) -> BoxStream<'a, Result<Chunk, ProviderError>> {
        let heard = request
            .history
            .last()
            .map(|entry| entry.text())
            .unwrap_or_default();
        let chunks = [
            Chunk::Text("You said: ".into()),
            Chunk::Text(heard),
            Chunk::Usage(Usage {
                input: 12,
                output: 4,
                ..Usage::default()
            }),
            Chunk::End(EndReason::Done),
        ];
        futures_util::stream::iter(chunks.map(Ok)).boxed()
    }
}

pub(crate) async fn run_example() -> ExampleResult {
    let fakes = Fakes::new([]);
    let engine = fakes
        .builder()
        .runtime(fakes.native(Arc::new(RepeatingProvider)))
        .build()?;
    let result = engine
        .execute(windlass_engine::Request::new("pieces of eight"))
        .await?;
    assert_eq!(result.outcome(), Some(&Outcome::Completed));
    assert_eq!(result.text, "You said: pieces of eight");
    assert_eq!(
        (result.totals().usage.input, result.totals().usage.output),
        (12, 4)
    );
    Ok(())
}
