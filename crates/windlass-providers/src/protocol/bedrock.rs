//! Anthropic's models on Bedrock: the Messages protocol inside binary messages. The body names a version instead of
//! the model, which stands in the address; each message wraps one event. It signs and sends nothing.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use windlass_core::provider::ProviderError;

use super::Batch;
use super::anthropic::AnthropicDecoder;
use super::decode::{Decode, Ending, ReadResult};
use super::wire::Text;
use crate::errors;
use crate::framing::{Event, FramingError, text};

/// Reads one answer.
#[derive(Debug, Default)]
pub(super) struct BedrockDecoder {
    inner: AnthropicDecoder,
    /// One event, unwrapped; kept for its memory.
    event: Vec<u8>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Wire<'a> {
    #[serde(borrow)]
    bytes: Text<'a>,
}

/// The event of the Messages protocol inside a message; `false` when there is none in it.
pub fn unwrap(data: &str, event: &mut Vec<u8>) -> Result<bool, ProviderError> {
    let wire: Wire<'_> =
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
    fn event(&mut self, event: &Event<'_>, out: &mut Batch) -> ReadResult {
        if !unwrap(&event.data, &mut self.event)? {
            return Ok(()); // not an event of the model
        }
        let inner = Event {
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
