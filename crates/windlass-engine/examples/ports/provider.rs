//! A provider: the way to a model. It says what is known about the model, and streams its answer in pieces of any size.
//! The model here is a parrot; a real provider sends the request over a wire and decodes what comes back.
//! It never retries and reads no settings: how often a failed call is tried again is the engine's decision.

use std::sync::Arc;

use futures_util::StreamExt;
use windlass_core::BoxStream;
use windlass_core::budget::{Price, Usage};
use windlass_core::outcome::Outcome;
use windlass_core::provider::{Chunk, EndReason, ModelFacts, Provider, ProviderError, Request};

use super::Shown;
use super::fakes::Fakes;

struct Parrot;

impl Provider for Parrot {
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

pub(crate) async fn show() -> Shown {
    let fakes = Fakes::new([]);
    let engine = fakes
        .builder()
        .runtime(fakes.native(Arc::new(Parrot)))
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
