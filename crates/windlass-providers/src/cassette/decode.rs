//! Decodes one recorded exchange with the same framing and decoder as a live answer, in pieces of any size, and
//! returns the result as data. Pure: no socket, no clock.

use std::time::SystemTime;

use reqwest::header::HeaderMap;
use serde::Serialize;
use serde_json::Value;
use windlass_core::budget::Usage;
use windlass_core::provider::{Chunk, EndReason, ProviderError, ProviderErrorKind};

use super::RecordedExchange;
use crate::errors;
use crate::framing::{Framer, Framing};
use crate::protocol::{Batch, Protocol, Quirks};

/// Variations of the recorded bytes, to test that the decoders do not depend on them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DecodeOptions {
    /// The size of the pieces in bytes; `None` feeds the whole body at once.
    pub split: Option<std::num::NonZeroUsize>,
    /// Prepends a byte-order mark (text framings only).
    pub bom: bool,
    /// Replaces line feeds by CRLF (text framings only).
    pub crlf: bool,
}

/// The result of decoding a recorded response.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct DecodedAnswer {
    /// The id of the recorded exchange.
    pub id: String,
    /// The text of the answer. If the stream broke off, the text up to there.
    pub text: String,
    pub reasoning: String,
    /// The requested tool calls, including incomplete ones.
    pub tool_calls: Vec<DecodedCall>,
    /// `done`, `tool_calls`, `length` or `refused`; `None` if the answer has no end.
    pub stop: Option<EndReason>,
    pub usage: Option<Usage>,
    pub error: Option<DecodedError>,
    /// Unknown or incomplete parts of the answer.
    pub warnings: Vec<String>,
}

/// A tool call in a decoded answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DecodedCall {
    pub name: String,
    /// The arguments, or the received text as a string if it is not valid JSON.
    pub arguments: Value,
}

/// A provider error with its category.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DecodedError {
    /// The category, for example `rate_limited`.
    pub kind: &'static str,
    pub message: String,
    /// The HTTP status, if the error came with one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
}

impl From<ProviderError> for DecodedError {
    fn from(err: ProviderError) -> Self {
        Self {
            kind: err.kind.word(),
            message: err.message,
            status: err.status,
        }
    }
}

/// Decodes the response of one recorded exchange.
#[must_use]
pub fn decode(exchange: &RecordedExchange, options: &DecodeOptions) -> DecodedAnswer {
    let mut decoded = DecodedAnswer {
        id: exchange.id.clone(),
        ..DecodedAnswer::default()
    };
    let status = exchange.response.status;
    let usable = match (exchange.protocol(), exchange.body()) {
        (None, _) => Err(invalid(format!(
            "the protocol `{}` is unknown",
            exchange.protocol
        ))),
        (Some(_), Err(err)) => Err(invalid(err.to_string())),
        (Some(_), Ok(body)) if !(200..300).contains(&status) => {
            let (headers, now) = (HeaderMap::new(), SystemTime::UNIX_EPOCH);
            Err(errors::from_status(status, &headers, &body, now).into())
        }
        (Some(protocol), Ok(body)) => Ok((protocol, body)),
    };
    let (protocol, body) = match usable {
        Ok(usable) => usable,
        Err(err) => {
            decoded.error = Some(err);
            return decoded;
        }
    };
    let body = varied(body, protocol.framing(), options);
    let (mut batch, error) = read(protocol, &body, options);
    let mut indexes = Vec::new();
    let mut arguments: Vec<String> = Vec::new();
    while let Some(chunk) = batch.pop() {
        match chunk {
            Chunk::Text(text) => decoded.text.push_str(&text),
            Chunk::Reasoning(text) => decoded.reasoning.push_str(&text),
            Chunk::CallStart { index, name, .. } if !indexes.contains(&index) => {
                indexes.push(index);
                arguments.push(String::new());
                decoded.tool_calls.push(DecodedCall {
                    name,
                    arguments: Value::Null,
                });
            }
            Chunk::CallArgs { index, json } => {
                if let Some(at) = indexes.iter().position(|known| *known == index) {
                    arguments[at].push_str(&json);
                }
            }
            Chunk::Usage(usage) => decoded.usage = Some(usage),
            Chunk::Unknown(what) => decoded.warnings.push(what),
            Chunk::End(reason) => {
                decoded.stop.get_or_insert(reason);
            }
            Chunk::CallStart { .. } | Chunk::ReasoningState(_) => {}
        }
    }
    for (call, json) in decoded.tool_calls.iter_mut().zip(arguments) {
        call.arguments = match serde_json::from_str(&json) {
            Ok(arguments) => arguments,
            Err(_) if json.trim().is_empty() => Value::Object(serde_json::Map::new()),
            Err(_) => {
                let warning = format!(
                    "the arguments of `{}` are not complete JSON; such a call is not executed",
                    call.name
                );
                decoded.warnings.push(warning);
                Value::String(json)
            }
        };
    }
    decoded.error = error.map(Into::into);
    decoded
}

fn invalid(message: String) -> DecodedError {
    DecodedError {
        kind: "invalid_request",
        message,
        status: None,
    }
}

fn read(
    protocol: Protocol,
    body: &[u8],
    options: &DecodeOptions,
) -> (Batch, Option<ProviderError>) {
    let mut framer = Framer::new(protocol.framing());
    let mut decoder = protocol.decoder(&Quirks::NONE);
    let mut batch = Batch::default();
    let mut any_event = false;
    let size = options
        .split
        .map_or(body.len().max(1), std::num::NonZeroUsize::get);
    let mut failed = body.chunks(size).find_map(|piece| {
        let pushed: Result<(), ProviderError> = framer.push(piece, |event| {
            any_event = true;
            decoder.event(&event, &mut batch)
        });
        pushed.err()
    });
    if failed.is_none() {
        let last: Result<(), ProviderError> = framer.finish(|event| {
            any_event = true;
            decoder.event(&event, &mut batch)
        });
        // An incomplete event at the end means that the stream broke off, not that it is another protocol.
        failed = last
            .err()
            .filter(|err| err.kind != ProviderErrorKind::InvalidResponse);
    }
    if decoder.finish(&mut batch) && failed.is_none() {
        return (batch, None);
    }
    let cut = || match any_event {
        true => errors::cut("the recording"),
        false => errors::no_event("the recording", body),
    };
    (batch, Some(failed.unwrap_or_else(cut)))
}

/// Applies the options to the body of a text framing.
fn varied(body: Vec<u8>, framing: Framing, options: &DecodeOptions) -> Vec<u8> {
    if framing == Framing::AwsEventStream || !(options.bom || options.crlf) {
        return body;
    }
    let mut out: Vec<u8> = if options.bom {
        b"\xef\xbb\xbf".to_vec()
    } else {
        Vec::new()
    };
    for (at, byte) in body.iter().enumerate() {
        if options.crlf && *byte == b'\n' && (at == 0 || body[at - 1] != b'\r') {
            out.push(b'\r');
        }
        out.push(*byte);
    }
    out
}
