//! Anthropic's models on Bedrock: the messages protocol in binary messages, one event each. The model is in the
//! address, and the body contains a version instead.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use windlass_core::provider::ProviderError;

use super::Batch;
use super::anthropic::AnthropicDecoder;
use super::decode::{Decode, Ending, ReadResult};
use super::wire::JsonText;
use crate::errors;
use crate::framing::{FramedEvent, FramingError, text};

/// Decodes one answer of an Anthropic model on Bedrock.
#[derive(Debug, Default)]
pub(super) struct BedrockDecoder {
    inner: AnthropicDecoder,
    /// The buffer for an unwrapped event, kept to reuse its memory.
    event: Vec<u8>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct BedrockEvent<'a> {
    #[serde(borrow)]
    bytes: JsonText<'a>,
}

/// Extracts the event of the messages protocol from a message into `event`; returns `false` if it contains none.
pub fn unwrap(data: &str, event: &mut Vec<u8>) -> Result<bool, ProviderError> {
    let wire: BedrockEvent<'_> =
        serde_json::from_str(data).map_err(|err| errors::not_an_event(data, &err))?;
    let Some(encoded) = wire.bytes.0 else {
        return Ok(false);
    };
    event.clear();
    let malformed = |_| FramingError::Malformed("its content is not base64");
    STANDARD
        .decode_vec(encoded.as_bytes(), event)
        .map_err(malformed)?;
    Ok(true)
}

impl Decode for BedrockDecoder {
    fn event(&mut self, event: &FramedEvent<'_>, out: &mut Batch) -> ReadResult {
        if !unwrap(&event.data, &mut self.event)? {
            return Ok(()); // not an event of the model
        }
        let inner = FramedEvent {
            name: "message".into(),
            data: text(&self.event),
        };
        self.inner.event(&inner, out)
    }

    fn finish(&mut self, out: &mut Batch) {
        self.inner.finish(out);
    }

    fn ending(&self) -> &Ending {
        self.inner.ending()
    }
}
