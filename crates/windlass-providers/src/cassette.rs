//! Recorded exchanges with model servers: one JSON row each, made as they happen and played back in order.
//! Rows go out through a closure and come in as text; no file is opened here. No header but the content type is ever
//! in a row, and known secrets are taken out of addresses and bodies when the row is made.

mod decode;
mod play;
mod record;

use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine, alphabet};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

pub use decode::{DecodeOptions, Decoded, DecodedCall, DecodedError, decode};
pub use play::Player;
pub use record::Recorder;
pub(crate) use record::{Asked, Label, Recording};

use crate::framing::Framing;
use crate::protocol::Protocol;

/// One exchange.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Tells rows of one cassette apart.
    #[serde(deserialize_with = "as_text")]
    pub id: String,
    /// The vendor's id.
    #[serde(default)]
    pub provider: String,
    /// For example `anthropic.messages`.
    #[serde(default)]
    pub protocol: String,
    /// `sse`, `ndjson` or `aws-eventstream`.
    #[serde(default)]
    pub framing: String,
    /// The answer came as a stream.
    #[serde(default)]
    pub streaming: bool,
    /// What was asked.
    #[serde(default)]
    pub request: RowRequest,
    /// What was answered.
    pub response: RowResponse,
    /// Words about it: `error`, `cut`, `truncated`.
    #[serde(default)]
    pub tags: Vec<String>,
}

/// What was asked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RowRequest {
    /// For example `POST`.
    pub method: String,
    /// Path and query, without host and keys.
    pub path: String,
    /// The body as text.
    #[serde(deserialize_with = "as_text")]
    pub body: String,
}

/// What was answered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RowResponse {
    /// The HTTP status.
    pub status: u16,
    /// The `content-type` header.
    #[serde(deserialize_with = "as_text")]
    pub content_type: String,
    /// The body, when it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// The body in base64, when it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_b64: Option<String>,
}

/// A row that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CassetteError {
    /// A line is not a row.
    #[error("line {line} of the cassette is not a recorded exchange: {why}")]
    Line {
        /// Which, from 1.
        line: usize,
        /// What the parser says.
        why: String,
    },
    /// There is nothing in it.
    #[error("the cassette holds no exchange")]
    Empty,
    /// A body is not base64.
    #[error("the body of `{0}` is not base64")]
    Base64(String),
}

impl Row {
    /// Reads one line.
    pub fn parse(line: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(line)
    }

    /// The bytes of the answer.
    pub fn body(&self) -> Result<Vec<u8>, CassetteError> {
        match (&self.response.body, &self.response.body_b64) {
            // A binary body cannot be text, so text in its place is base64; some recorders write it there.
            (Some(text), _) if self.framing != framing_word(Framing::AwsEventStream) => {
                Ok(text.clone().into_bytes())
            }
            (Some(coded), _) | (None, Some(coded)) => {
                base64(coded).ok_or_else(|| CassetteError::Base64(self.id.clone()))
            }
            (None, None) => Ok(Vec::new()),
        }
    }

    /// How it was spoken; `None` when we do not speak that.
    #[must_use]
    pub fn protocol(&self) -> Option<Protocol> {
        PROTOCOLS
            .iter()
            .find(|(word, _)| *word == self.protocol)
            .map(|(_, protocol)| *protocol)
    }
}

/// What rows call our protocols.
const PROTOCOLS: &[(&str, Protocol)] = &[
    ("anthropic.messages", Protocol::AnthropicMessages),
    ("openai.chat", Protocol::OpenAiChat),
    ("openai.responses", Protocol::OpenAiResponses),
    ("gemini.generate", Protocol::Gemini),
    ("ollama.chat", Protocol::OllamaChat),
    ("bedrock.converse", Protocol::BedrockConverse),
    ("bedrock.anthropic", Protocol::BedrockAnthropic),
    // The answers are those of the first row; only the requests differ.
    ("anthropic.messages", Protocol::VertexAnthropic),
];

/// What rows call a protocol.
pub(crate) fn protocol_word(protocol: Protocol) -> &'static str {
    PROTOCOLS
        .iter()
        .find(|(_, known)| *known == protocol)
        .map_or("unknown", |(word, _)| word)
}

/// What rows call a framing.
pub(crate) fn framing_word(framing: Framing) -> &'static str {
    match framing {
        Framing::Sse => "sse",
        Framing::JsonLines => "ndjson",
        Framing::AwsEventStream => "aws-eventstream",
    }
}

/// Text as it is, nothing for null, and anything else as JSON.
fn as_text<'de, D: Deserializer<'de>>(de: D) -> Result<String, D::Error> {
    Ok(match Value::deserialize(de)? {
        Value::String(text) => text,
        Value::Null => String::new(),
        other => other.to_string(),
    })
}

/// Whoever wrote a row may have left the padding out.
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
