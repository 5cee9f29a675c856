//! What our decoders read from one recorded exchange, as data. Pure: the same bytes through the same framing and
//! decoder as on the network, in pieces of any size; no socket, no clock.

use std::time::SystemTime;

use reqwest::header::HeaderMap;
use serde::Serialize;
use serde_json::Value;
use windlass_core::budget::Usage;
use windlass_core::provider::{Chunk, EndReason, ProviderError, ProviderErrorKind};

use super::Row;
use crate::errors;
use crate::framing::{Framer, Framing};
use crate::protocol::{Batch, Protocol, Quirks};

/// How the bytes are fed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DecodeOptions {
    /// In pieces of so many bytes; whole without it.
    pub split: Option<std::num::NonZeroUsize>,
    /// With a byte-order mark in front (text framings only).
    pub bom: bool,
    /// With the line ends of another system (text framings only).
    pub crlf: bool,
}

/// What was read.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Decoded {
    /// The row's id.
    pub id: String,
    /// What the model said; when it was cut, what came before.
    pub text: String,
    /// Its readable reasoning.
    pub reasoning: String,
    /// Its calls, complete or not.
    pub tool_calls: Vec<DecodedCall>,
    /// `done`, `tool_calls`, `length` or `refused`; nothing when the answer has no end.
    pub stop: Option<EndReason>,
    /// Tokens as reported.
    pub usage: Option<Usage>,
    /// What went wrong.
    pub error: Option<DecodedError>,
    /// What was unknown or not whole.
    pub warnings: Vec<String>,
}

/// One call.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DecodedCall {
    /// The tool's name.
    pub name: String,
    /// The arguments; as the text that came when that is not JSON.
    pub arguments: Value,
}

/// An error with its kind, as in the spec.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DecodedError {
    /// For example `rate_limited`.
    pub kind: &'static str,
    /// For a person.
    pub message: String,
    /// The HTTP status, where it matters.
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

/// Reads one exchange.
#[must_use]
pub fn decode(row: &Row, options: &DecodeOptions) -> Decoded {
    let mut decoded = Decoded {
        id: row.id.clone(),
        ..Decoded::default()
    };
    let status = row.response.status;
    let usable = match (row.protocol(), row.body()) {
        (None, _) => Err(invalid(format!(
            "the protocol `{}` is not one we speak",
            row.protocol
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
    let body = disguised(body, protocol.framing(), options);
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
                    "the arguments of `{}` are not whole JSON; such a call is not run",
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
    let mut seen = false;
    let size = options
        .split
        .map_or(body.len().max(1), std::num::NonZeroUsize::get);
    let mut failed = body.chunks(size).find_map(|piece| {
        let pushed: Result<(), ProviderError> = framer.push(piece, |event| {
            seen = true;
            decoder.event(&event, &mut batch)
        });
        pushed.err()
    });
    if failed.is_none() {
        let last: Result<(), ProviderError> = framer.finish(|event| {
            seen = true;
            decoder.event(&event, &mut batch)
        });
        // Half an event at the end is a cut, not another protocol.
        failed = last
            .err()
            .filter(|err| err.kind != ProviderErrorKind::InvalidResponse);
    }
    if decoder.finish(&mut batch) && failed.is_none() {
        return (batch, None);
    }
    let cut = || match seen {
        true => errors::cut("the recording"),
        false => errors::no_event("the recording", body),
    };
    (batch, Some(failed.unwrap_or_else(cut)))
}

/// The body as another server might have sent it.
fn disguised(body: Vec<u8>, framing: Framing, options: &DecodeOptions) -> Vec<u8> {
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
