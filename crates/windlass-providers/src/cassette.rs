//! Cassettes: recorded exchanges with model servers, one JSON line each, recorded live and played back in order.
//! This module opens no files: the recorder passes lines to a closure, and the player parses text. An exchange is
//! recorded without headers, except the content type, and known secrets are removed from its address and bodies.

mod decode;
mod play;
mod record;

use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine, alphabet};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

pub use decode::{DecodeOptions, DecodedAnswer, DecodedCall, DecodedError, decode};
pub use play::CassettePlayer;
pub use record::Recorder;
pub(crate) use record::{ExchangeLabel, Recording, SentRequest};

use crate::framing::Framing;
use crate::protocol::Protocol;

/// One recorded request and its response; one line of a cassette.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedExchange {
    /// Unique within one cassette.
    #[serde(deserialize_with = "as_text")]
    pub id: String,
    /// The id of the vendor.
    #[serde(default)]
    pub provider: String,
    /// A protocol, for example `anthropic.messages`.
    #[serde(default)]
    pub protocol: String,
    /// `sse`, `ndjson` or `aws-eventstream`.
    #[serde(default)]
    pub framing: String,
    #[serde(default)]
    pub streaming: bool,
    #[serde(default)]
    pub request: RecordedRequest,
    pub response: RecordedResponse,
    /// `error` (an error status), `cut` (the stream broke off), `truncated` (the body was too long to record) or
    /// `withheld` (a binary body contained a secret).
    #[serde(default)]
    pub tags: Vec<String>,
}

/// The request of a recorded exchange.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecordedRequest {
    pub method: String,
    /// Path and query, without host and keys.
    pub path: String,
    #[serde(deserialize_with = "as_text")]
    pub body: String,
}

/// The response of a recorded exchange.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecordedResponse {
    pub status: u16,
    #[serde(deserialize_with = "as_text")]
    pub content_type: String,
    /// The body, if it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// The body in base64, if it is binary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_b64: Option<String>,
}

/// Reports a cassette that cannot be played.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CassetteError {
    #[error("line {line} of the cassette is not a recorded exchange: {why}")]
    Line {
        /// Counted from 1.
        line: usize,
        why: String,
    },
    #[error("the cassette contains no exchange")]
    Empty,
    #[error("the body of the recorded exchange `{0}` is not valid base64")]
    Base64(String),
}

impl RecordedExchange {
    /// Parses one line of a cassette.
    pub fn parse(line: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(line)
    }

    /// Returns the bytes of the response body.
    pub fn body(&self) -> Result<Vec<u8>, CassetteError> {
        match (&self.response.body, &self.response.body_b64) {
            // A body in a binary framing cannot be text. Some recorders write its base64 form into `body`.
            (Some(text), _) if self.framing != framing_name(Framing::AwsEventStream) => {
                Ok(text.clone().into_bytes())
            }
            (Some(coded), _) | (None, Some(coded)) => {
                base64(coded).ok_or_else(|| CassetteError::Base64(self.id.clone()))
            }
            (None, None) => Ok(Vec::new()),
        }
    }

    /// Returns the protocol of the exchange, or `None` if this crate does not implement it.
    #[must_use]
    pub fn protocol(&self) -> Option<Protocol> {
        PROTOCOLS
            .iter()
            .find(|(name, _)| *name == self.protocol)
            .map(|(_, protocol)| *protocol)
    }
}

/// The names of the protocols in a cassette.
const PROTOCOLS: &[(&str, Protocol)] = &[
    ("anthropic.messages", Protocol::AnthropicMessages),
    ("openai.chat", Protocol::OpenAiChat),
    ("openai.responses", Protocol::OpenAiResponses),
    ("gemini.generate", Protocol::Gemini),
    ("ollama.chat", Protocol::OllamaChat),
    ("bedrock.converse", Protocol::BedrockConverse),
    ("bedrock.anthropic", Protocol::BedrockAnthropic),
    // The responses have the format of `AnthropicMessages`; only the requests differ.
    ("anthropic.messages", Protocol::VertexAnthropic),
];

/// Returns the name of a protocol in a cassette.
pub(crate) fn protocol_name(protocol: Protocol) -> &'static str {
    PROTOCOLS
        .iter()
        .find(|(_, known)| *known == protocol)
        .map_or("unknown", |(name, _)| name)
}

/// Returns the name of a framing in a cassette.
pub(crate) fn framing_name(framing: Framing) -> &'static str {
    match framing {
        Framing::Sse => "sse",
        Framing::JsonLines => "ndjson",
        Framing::AwsEventStream => "aws-eventstream",
    }
}

/// Deserializes a string as it is, null as an empty string, and any other value as its JSON text.
fn as_text<'de, D: Deserializer<'de>>(de: D) -> Result<String, D::Error> {
    Ok(match Value::deserialize(de)? {
        Value::String(text) => text,
        Value::Null => String::new(),
        other => other.to_string(),
    })
}

/// Accepts base64 without padding, because other recorders omit it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

pub(crate) fn to_base64(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

fn base64(text: &str) -> Option<Vec<u8>> {
    let coded: String = text.split_ascii_whitespace().collect();
    BASE64.decode(coded).ok()
}

#[cfg(test)]
#[path = "cassette_tests.rs"]
mod tests;
