//! The Messages protocol: content blocks, named events, thinking with signatures, cache marks.
//! Encodes each message once and reads events one by one. It opens nothing and knows no vendor's address.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use windlass_core::budget::Usage;
use windlass_core::message::{Message, Part, Role, ToolResult};
use windlass_core::provider::{Chunk, EndReason, ProviderError, Request};
use windlass_core::tool::ToolSet;

use super::wire::{Count, Text, mend_surrogates, write_field, write_json, write_key};
use super::{Batch, Quirks, Unknowns};
use crate::errors;
use crate::sse::SseEvent;

const KEY: &str = "anthropic";
const MARK: &[u8] = br#","cache_control":{"type":"ephemeral"}"#;
/// The least the vendor accepts as a thinking budget.
const LEAST_THINKING: u64 = 1_024;

/// The body of a request. Messages come before everything that may change from step to step, so that the bytes up
/// to the last cache mark are the same in the next request.
pub fn encode(request: &Request<'_>, quirks: &Quirks) -> Vec<u8> {
    let messages: Vec<Arc<[u8]>> = request
        .history
        .iter()
        .map(|entry| entry.wire().get_or_encode(KEY, || message(entry)))
        .filter(|bytes| !bytes.is_empty())
        .collect();
    let tools = request.tools.wire().get_or_encode(KEY, || tool_list(request.tools));
    let size = messages.iter().map(|bytes| bytes.len() + 1).sum::<usize>() + tools.len() + request.system.len() * 9 / 8;

    let mut body = Vec::with_capacity(size + 512);
    body.push(b'{');
    write_field(&mut body, "model", request.model);
    let system = !request.system.trim().is_empty();
    if !request.tools.is_empty() {
        write_key(&mut body, "tools");
        // Tools stand before the system prompt in the vendor's cache, so the mark on the latter covers both.
        push_marked(&mut body, &tools, b"}]", quirks.cache_marks && !system);
    }
    if system {
        write_key(&mut body, "system");
        body.extend_from_slice(br#"[{"type":"text","text":"#);
        write_json(&mut body, request.system);
        push_marked(&mut body, b"}]", b"}]", quirks.cache_marks);
    }
    write_key(&mut body, "messages");
    body.push(b'[');
    for (at, bytes) in messages.iter().enumerate() {
        if at > 0 {
            body.push(b',');
        }
        push_marked(&mut body, bytes, b"}]}", quirks.cache_marks && at + 1 == messages.len());
    }
    body.push(b']');
    settings(&mut body, request);
    body.push(b'}');
    body
}

/// Appends the segment, with a cache mark before its closing brackets if wanted.
fn push_marked(body: &mut Vec<u8>, segment: &[u8], closing: &[u8], mark: bool) {
    match segment.strip_suffix(closing) {
        Some(open) if mark => {
            body.extend_from_slice(open);
            body.extend_from_slice(MARK);
            body.extend_from_slice(closing);
        }
        _ => body.extend_from_slice(segment),
    }
}

fn settings(body: &mut Vec<u8>, request: &Request<'_>) {
    write_field(body, "max_tokens", &request.max_output);
    write_field(body, "stream", &true);
    let options = request.options;
    if !options.stop.is_empty() {
        write_field(body, "stop_sequences", &options.stop);
    }
    let thinking = thinking_tokens(request);
    if let Some(tokens) = thinking {
        write_key(body, "thinking");
        body.extend_from_slice(format!(r#"{{"type":"enabled","budget_tokens":{tokens}}}"#).as_bytes());
    } else if let Some(temperature) = options.temperature {
        // The vendor accepts no temperature beside thinking.
        write_field(body, "temperature", &temperature.clamp(0.0, 1.0));
    }
}

/// The thinking budget: as asked, or what an effort amounts to; it has to leave room for the answer.
fn thinking_tokens(request: &Request<'_>) -> Option<u64> {
    let asked = request.options.thinking_tokens.or_else(|| match request.options.reasoning_effort.as_deref()? {
        "minimal" | "low" => Some(2_048),
        "medium" => Some(8_192),
        "high" | "xhigh" | "max" => Some(24_576),
        _ => None,
    })?;
    let room = request.max_output.saturating_sub(LEAST_THINKING);
    (asked > 0 && room >= LEAST_THINKING).then(|| asked.clamp(LEAST_THINKING, room))
}

fn tool_list(tools: &ToolSet) -> Vec<u8> {
    let mut out = vec![b'['];
    for (at, tool) in tools.iter().enumerate() {
        let spec = tool.spec();
        out.extend_from_slice(if at > 0 { b",{" } else { b"{" });
        write_field(&mut out, "name", &spec.name);
        write_field(&mut out, "description", &spec.description);
        write_field(&mut out, "input_schema", &spec.schema);
        out.push(b'}');
    }
    out.push(b']');
    out
}

/// One message; nothing at all when no part of it can be said in this protocol.
fn message(message: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    let role = if message.role == Role::Assistant { "assistant" } else { "user" };
    out.extend_from_slice(format!(r#"{{"role":"{role}","content":["#).as_bytes());
    let empty = out.len();
    for part in &message.parts {
        block(&mut out, part);
    }
    if out.len() == empty {
        return Vec::new();
    }
    out.extend_from_slice(b"]}");
    out
}

fn block(out: &mut Vec<u8>, part: &Part) {
    let start = |out: &mut Vec<u8>, kind: &str| {
        if out.last() == Some(&b'}') {
            out.push(b',');
        }
        out.push(b'{');
        write_field(out, "type", kind);
    };
    match part {
        // The vendor refuses blank text blocks.
        Part::Text { text } if text.trim().is_empty() => return,
        Part::Text { text } => {
            start(out, "text");
            write_field(out, "text", text);
        }
        Part::Reasoning { text, opaque } => {
            let state = |name: &str| opaque.as_ref().and_then(|opaque| opaque.get(name)).and_then(Value::as_str);
            if let Some(data) = state("redacted") {
                start(out, "redacted_thinking");
                write_field(out, "data", data);
            } else if let Some(signature) = state("signature") {
                start(out, "thinking");
                write_field(out, "thinking", text);
                write_field(out, "signature", signature);
            } else {
                return; // unsigned reasoning is not accepted back
            }
        }
        Part::Image { media_type, data } => {
            start(out, "image");
            write_key(out, "source");
            out.extend_from_slice(br#"{"type":"base64""#);
            write_field(out, "media_type", media_type);
            write_field(out, "data", data);
            out.push(b'}');
        }
        Part::Call(call) => {
            start(out, "tool_use");
            write_field(out, "id", &safe_id(&call.id.0));
            write_field(out, "name", &call.name);
            let object = call.args.is_object();
            if object {
                write_field(out, "input", &call.args)
            } else {
                write_field(out, "input", &serde_json::Map::new())
            }
        }
        Part::Result(result) => {
            start(out, "tool_result");
            tool_result(out, result);
        }
    }
    out.push(b'}');
}

fn tool_result(out: &mut Vec<u8>, result: &ToolResult) {
    write_field(out, "tool_use_id", &safe_id(&result.id.0));
    let blank = result.text.trim().is_empty();
    write_field(out, "content", if blank { "(no output)" } else { &result.text });
    if result.error.is_some() {
        write_field(out, "is_error", &true);
    }
}

/// Ids of other vendors may hold characters that this one refuses; the same id always becomes the same text.
fn safe_id(id: &str) -> String {
    id.chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' }).collect()
}

/// Reads one answer.
#[derive(Debug, Default)]
pub struct Decoder {
    blocks: Vec<Block>,
    usage: Usage,
    stop: Option<EndReason>,
    ended: bool,
    unknowns: Unknowns,
}

#[derive(Debug)]
struct Block {
    index: u64,
    kind: BlockKind,
}

#[derive(Debug)]
enum BlockKind {
    Text,
    Thinking {
        signature: String,
    },
    /// `call` counts the calls of the answer. `whole` is an input that came with the start instead of in pieces.
    Call {
        call: u32,
        whole: Option<String>,
    },
    Other,
}

/// More blocks than any answer has.
const MOST_BLOCKS: usize = 4_096;

/// All events in one shape: reading a tagged union would buffer each event first, and this is the hot path.
#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow, rename = "type", default)]
    kind: Text<'a>,
    #[serde(default)]
    index: Count,
    #[serde(borrow, default)]
    delta: Option<WireDelta<'a>>,
    #[serde(borrow, default)]
    content_block: Option<WireBlock<'a>>,
    #[serde(default)]
    message: Option<WireMessage>,
    #[serde(default)]
    usage: Option<WireUsage>,
    #[serde(borrow, default)]
    error: Option<WireError<'a>>,
}

#[derive(Deserialize)]
struct WireDelta<'a> {
    #[serde(borrow, rename = "type", default)]
    kind: Text<'a>,
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow, default)]
    thinking: Text<'a>,
    #[serde(borrow, default)]
    partial_json: Text<'a>,
    #[serde(borrow, default)]
    signature: Text<'a>,
    #[serde(borrow, default)]
    stop_reason: Text<'a>,
}

#[derive(Deserialize)]
struct WireBlock<'a> {
    #[serde(borrow, rename = "type", default)]
    kind: Text<'a>,
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow, default)]
    thinking: Text<'a>,
    #[serde(borrow, default)]
    signature: Text<'a>,
    #[serde(borrow, default)]
    data: Text<'a>,
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct WireMessage {
    #[serde(default)]
    usage: Option<WireUsage>,
}

#[derive(Deserialize)]
struct WireUsage {
    #[serde(default)]
    input_tokens: Count,
    #[serde(default)]
    output_tokens: Count,
    #[serde(default)]
    cache_read_input_tokens: Count,
    #[serde(default)]
    cache_creation_input_tokens: Count,
}

#[derive(Deserialize)]
struct WireError<'a> {
    #[serde(borrow, rename = "type", default)]
    kind: Text<'a>,
    #[serde(borrow, default)]
    message: Text<'a>,
}

impl Decoder {
    /// Reads one event.
    pub fn event(&mut self, event: &SseEvent<'_>, out: &mut Batch) -> Result<(), ProviderError> {
        if self.ended || event.name == "ping" {
            return Ok(());
        }
        match serde_json::from_str::<Wire<'_>>(&event.data) {
            Ok(wire) => self.read(&wire, out),
            Err(_) if event.data.trim() == "[DONE]" => {
                self.finish(out);
                Ok(())
            }
            Err(err) => match mend_surrogates(&event.data) {
                Some(mended) => match serde_json::from_str::<Wire<'_>>(&mended) {
                    Ok(wire) => self.read(&wire, out),
                    Err(err) => Err(errors::not_an_event(&event.data, &err)),
                },
                None => Err(errors::not_an_event(&event.data, &err)),
            },
        }
    }

    /// See [`super::Decoder::finish`].
    pub fn finish(&mut self, out: &mut Batch) -> bool {
        if !self.ended
            && let Some(stop) = self.stop.take()
        {
            self.ended = true;
            out.push(Chunk::End(stop));
        }
        self.ended
    }

    /// See [`super::Decoder::ended`].
    pub fn ended(&self) -> bool {
        self.ended
    }

    fn read(&mut self, wire: &Wire<'_>, out: &mut Batch) -> Result<(), ProviderError> {
        match wire.kind.as_str() {
            "content_block_delta" => self.delta(wire, out),
            "content_block_start" => self.start(wire, out),
            "content_block_stop" => self.stop(wire.index.0.unwrap_or(0), out),
            "message_start" => {
                if let Some(usage) = wire.message.as_ref().and_then(|message| message.usage.as_ref()) {
                    self.count(usage, out);
                }
            }
            "message_delta" => {
                if let Some(usage) = &wire.usage {
                    self.count(usage, out);
                }
                if let Some(reason) = wire.delta.as_ref().and_then(|delta| delta.stop_reason.0.as_deref()) {
                    self.stop_reason(reason, out);
                }
            }
            "message_stop" => {
                self.stop.get_or_insert(EndReason::Done);
                self.finish(out);
            }
            "error" => {
                let error = wire.error.as_ref();
                let (kind, message) = error.map_or(("", ""), |error| (error.kind.as_str(), error.message.as_str()));
                return Err(errors::in_stream(kind, "", message));
            }
            "ping" => {}
            other => self.unknowns.note("event", other, out),
        }
        Ok(())
    }

    fn delta(&mut self, wire: &Wire<'_>, out: &mut Batch) {
        let Some(delta) = &wire.delta else { return };
        let index = wire.index.0.unwrap_or(0);
        // The newest block is nearly always the one that is meant.
        let block = self.blocks.iter_mut().rev().find(|block| block.index == index).map(|block| &mut block.kind);
        match (delta.kind.as_str(), block) {
            ("text_delta", Some(BlockKind::Text) | None) => out.text(delta.text.as_str()),
            ("thinking_delta", Some(BlockKind::Thinking { .. }) | None) => out.reasoning(delta.thinking.as_str()),
            ("signature_delta", Some(BlockKind::Thinking { signature })) => {
                signature.push_str(delta.signature.as_str())
            }
            ("input_json_delta", Some(BlockKind::Call { call, whole })) => {
                let piece = delta.partial_json.as_str();
                if !piece.is_empty() {
                    *whole = None;
                    out.args(*call, piece);
                }
            }
            (_, Some(BlockKind::Other)) => {}
            (kind, _) => self.unknowns.note("delta", kind, out),
        }
    }

    fn start(&mut self, wire: &Wire<'_>, out: &mut Batch) {
        let Some(block) = &wire.content_block else { return };
        let index = wire.index.0.unwrap_or(0);
        if self.blocks.iter().any(|known| known.index == index) || self.blocks.len() >= MOST_BLOCKS {
            return; // a repeated start changes nothing
        }
        let kind = match block.kind.as_str() {
            "text" => {
                out.text(block.text.as_str());
                BlockKind::Text
            }
            "thinking" => {
                out.reasoning(block.thinking.as_str());
                BlockKind::Thinking { signature: block.signature.as_str().to_owned() }
            }
            "redacted_thinking" => {
                out.push(Chunk::ReasoningState(serde_json::json!({ "redacted": block.data.as_str() })));
                BlockKind::Other
            }
            "tool_use" => {
                let calls = self.blocks.iter().filter(|known| matches!(known.kind, BlockKind::Call { .. })).count();
                let call = u32::try_from(calls).unwrap_or(u32::MAX);
                let (id, name) = (block.id.as_str().to_owned(), block.name.as_str().to_owned());
                out.push(Chunk::CallStart { index: call, id, name });
                let whole = block.input.map(RawValue::get).filter(|json| !matches!(*json, "{}" | "null" | "\"\""));
                BlockKind::Call { call, whole: whole.map(str::to_owned) }
            }
            other => {
                self.unknowns.note("content block", other, out);
                BlockKind::Other
            }
        };
        self.blocks.push(Block { index, kind });
    }

    fn stop(&mut self, index: u64, out: &mut Batch) {
        match self.blocks.iter_mut().find(|block| block.index == index).map(|block| &mut block.kind) {
            Some(BlockKind::Thinking { signature }) if !signature.is_empty() => {
                let signature = std::mem::take(signature);
                out.push(Chunk::ReasoningState(serde_json::json!({ "signature": signature })));
            }
            Some(BlockKind::Call { call, whole }) => {
                if let Some(json) = whole.take() {
                    out.args(*call, &json);
                }
            }
            _ => {}
        }
    }

    /// Later reports replace earlier ones number by number; what is missing or absurd keeps its last value.
    fn count(&mut self, wire: &WireUsage, out: &mut Batch) {
        let all = [
            (&mut self.usage.input, wire.input_tokens),
            (&mut self.usage.output, wire.output_tokens),
            (&mut self.usage.cache_read, wire.cache_read_input_tokens),
            (&mut self.usage.cache_write, wire.cache_creation_input_tokens),
        ];
        let mut any = false;
        for (ours, Count(theirs)) in all {
            if let Some(count) = theirs {
                *ours = count;
                any = true;
            }
        }
        if any {
            out.push(Chunk::Usage(self.usage));
        }
    }

    fn stop_reason(&mut self, reason: &str, out: &mut Batch) {
        let end = match reason {
            "end_turn" | "stop_sequence" | "pause_turn" => EndReason::Done,
            "tool_use" => EndReason::ToolCalls,
            "max_tokens" | "model_context_window_exceeded" => EndReason::Length,
            "refusal" => EndReason::Refused,
            other => {
                self.unknowns.note("stop reason", other, out);
                EndReason::Done
            }
        };
        self.stop = Some(end);
    }
}
