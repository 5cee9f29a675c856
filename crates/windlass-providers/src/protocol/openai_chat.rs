//! Chat completions, the protocol most servers speak, each with its own accent.
//! Encodes each message once and reads events one by one. It opens nothing and knows no vendor's address.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value};
use windlass_core::budget::Usage;
use windlass_core::message::{Message, Part, Role};
use windlass_core::provider::{Chunk, EndReason, ProviderError, Request};
use windlass_core::tool::ToolSet;

use super::wire::{Count, Lenient, Loose, Text, mend_surrogates, write_field, write_json, write_key};
use super::{Batch, MaxTokensField, Quirks, ReasoningBack, Unknowns};
use crate::errors;
use crate::sse::SseEvent;
use crate::think::{self, ThinkSplitter};

/// The body of a request. Everything that may change from step to step comes after the messages.
pub fn encode(request: &Request<'_>, quirks: &Quirks) -> Vec<u8> {
    // Messages encoded for a vendor that wants its reasoning back do not fit another one.
    let key = match quirks.reasoning_back {
        ReasoningBack::Never => "openai_chat",
        ReasoningBack::Content => "openai_chat+content",
        ReasoningBack::Details => "openai_chat+details",
    };
    let messages: Vec<Arc<[u8]>> = request
        .history
        .iter()
        .map(|entry| entry.wire().get_or_encode(key, || messages(entry, quirks.reasoning_back)))
        .filter(|bytes| !bytes.is_empty())
        .collect();
    let tools = request.tools.wire().get_or_encode("openai_chat", || tool_list(request.tools));
    let size = messages.iter().map(|bytes| bytes.len() + 1).sum::<usize>() + tools.len() + request.system.len() * 9 / 8;

    let mut body = Vec::with_capacity(size + 512);
    body.push(b'{');
    write_field(&mut body, "model", request.model);
    if !request.tools.is_empty() {
        write_key(&mut body, "tools");
        body.extend_from_slice(&tools);
    }
    write_key(&mut body, "messages");
    body.push(b'[');
    if !request.system.trim().is_empty() {
        body.extend_from_slice(br#"{"role":"system","content":"#);
        write_json(&mut body, request.system);
        body.push(b'}');
    }
    for bytes in &messages {
        if body.last() == Some(&b'}') {
            body.push(b',');
        }
        body.extend_from_slice(bytes);
    }
    body.push(b']');
    settings(&mut body, request, quirks);
    body.push(b'}');
    body
}

fn settings(body: &mut Vec<u8>, request: &Request<'_>, quirks: &Quirks) {
    let limit = match quirks.max_tokens {
        MaxTokensField::MaxTokens => "max_tokens",
        MaxTokensField::MaxCompletionTokens => "max_completion_tokens",
    };
    write_field(body, limit, &request.max_output);
    write_field(body, "stream", &true);
    if quirks.stream_usage {
        write_key(body, "stream_options");
        body.extend_from_slice(br#"{"include_usage":true}"#);
    }
    let options = request.options;
    if let Some(temperature) = options.temperature {
        write_field(body, "temperature", &temperature.clamp(0.0, 2.0));
    }
    if let Some(effort) = &options.reasoning_effort {
        write_field(body, "reasoning_effort", effort);
    }
    if !options.stop.is_empty() {
        write_field(body, "stop", &options.stop);
    }
}

fn tool_list(tools: &ToolSet) -> Vec<u8> {
    let mut out = vec![b'['];
    for (at, tool) in tools.iter().enumerate() {
        let spec = tool.spec();
        out.extend_from_slice(if at > 0 { b"," } else { b"" });
        out.extend_from_slice(br#"{"type":"function","function":{"#);
        write_field(&mut out, "name", &spec.name);
        write_field(&mut out, "description", &spec.description);
        write_field(&mut out, "parameters", &spec.schema);
        out.extend_from_slice(b"}}");
    }
    out.push(b']');
    out
}

/// One message of ours: none, one or (for results) several of the protocol's, joined by commas.
fn messages(message: &Message, back: ReasoningBack) -> Vec<u8> {
    let mut out = Vec::new();
    match message.role {
        Role::User => user(&mut out, message),
        Role::Assistant => assistant(&mut out, message, back),
        Role::Tool => {
            for part in &message.parts {
                let Part::Result(result) = part else { continue };
                out.extend_from_slice(if out.is_empty() { b"{" } else { b",{" });
                write_field(&mut out, "role", "tool");
                write_field(&mut out, "tool_call_id", &result.id);
                write_field(&mut out, "content", &result.text);
                out.push(b'}');
            }
        }
    }
    out
}

fn user(out: &mut Vec<u8>, message: &Message) {
    out.push(b'{');
    write_field(out, "role", "user");
    write_key(out, "content");
    if !message.parts.iter().any(|part| matches!(part, Part::Image { .. })) {
        write_json(out, &message.text());
        out.push(b'}');
        return;
    }
    out.push(b'[');
    for part in &message.parts {
        let comma: &[u8] = if out.last() == Some(&b'}') { b"," } else { b"" };
        match part {
            Part::Text { text } => {
                out.extend_from_slice(comma);
                out.extend_from_slice(br#"{"type":"text","text":"#);
                write_json(out, text);
                out.push(b'}');
            }
            Part::Image { media_type, data } => {
                out.extend_from_slice(comma);
                out.extend_from_slice(br#"{"type":"image_url","image_url":{"url":"#);
                write_json(out, &format!("data:{media_type};base64,{data}"));
                out.extend_from_slice(b"}}");
            }
            _ => {}
        }
    }
    out.extend_from_slice(b"]}");
}

fn assistant(out: &mut Vec<u8>, message: &Message, back: ReasoningBack) {
    let text = message.text();
    let has_calls = message.calls().next().is_some();
    if text.is_empty() && !has_calls {
        return; // only reasoning: nothing that this protocol could repeat
    }
    out.push(b'{');
    write_field(out, "role", "assistant");
    if text.is_empty() {
        write_field(out, "content", &Value::Null)
    } else {
        write_field(out, "content", &text)
    }
    match back {
        ReasoningBack::Never => {}
        ReasoningBack::Content => {
            let parts = message.parts.iter().filter_map(|part| match part {
                Part::Reasoning { text, .. } => Some(text.as_str()),
                _ => None,
            });
            write_field(out, "reasoning_content", &parts.collect::<String>());
        }
        ReasoningBack::Details => {
            let parts = message.parts.iter().filter_map(|part| match part {
                Part::Reasoning { opaque: Some(opaque), .. } => opaque.get("reasoning_details")?.as_array(),
                _ => None,
            });
            let details: Vec<&Value> = parts.flatten().collect();
            if !details.is_empty() {
                write_field(out, "reasoning_details", &details);
            }
        }
    }
    if has_calls {
        write_key(out, "tool_calls");
        out.push(b'[');
        for (at, call) in message.calls().enumerate() {
            out.extend_from_slice(if at > 0 { b",{" } else { b"{" });
            write_field(out, "id", &call.id);
            write_field(out, "type", "function");
            write_key(out, "function");
            out.push(b'{');
            write_field(out, "name", &call.name);
            // Arguments that were not JSON stay out: several servers parse what they get back.
            write_field(out, "arguments", &call.args.to_string());
            out.extend_from_slice(b"}}");
        }
        out.push(b']');
    }
    out.push(b'}');
}

/// Reads one answer.
#[derive(Debug)]
pub struct Decoder {
    think: Option<ThinkSplitter>,
    calls: Vec<Call>,
    details: Vec<Value>,
    stop: Option<EndReason>,
    refused: bool,
    ended: bool,
    unknowns: Unknowns,
}

#[derive(Debug)]
struct Call {
    /// The server's number, which may repeat.
    index: u64,
    id: String,
    /// Arguments that came before the name did.
    held: String,
    started: bool,
}

/// More calls and reasoning details than any answer has.
const MOST_CALLS: usize = 1_024;
const MOST_DETAILS: usize = 4_096;

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow, default)]
    choices: Option<Vec<WireChoice<'a>>>,
    #[serde(default)]
    usage: Option<WireUsage>,
    #[serde(default)]
    x_groq: Option<WireInner>,
    #[serde(default)]
    error: Lenient<Value>,
}

#[derive(Deserialize)]
struct WireInner {
    #[serde(default)]
    usage: Option<WireUsage>,
}

#[derive(Deserialize)]
struct WireChoice<'a> {
    #[serde(default)]
    index: Count,
    #[serde(borrow, default)]
    delta: Option<WireDelta<'a>>,
    #[serde(borrow, default)]
    finish_reason: Text<'a>,
}

#[derive(Deserialize)]
struct WireDelta<'a> {
    #[serde(borrow, default)]
    content: Loose<'a>,
    #[serde(borrow, default)]
    reasoning_content: Text<'a>,
    #[serde(borrow, default)]
    reasoning: Text<'a>,
    #[serde(default)]
    reasoning_details: Option<Vec<Value>>,
    #[serde(borrow, default)]
    refusal: Text<'a>,
    #[serde(borrow, default)]
    tool_calls: Option<Vec<WireCall<'a>>>,
}

#[derive(Deserialize)]
struct WireCall<'a> {
    #[serde(default)]
    index: Count,
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow, default)]
    function: Option<WireFunction<'a>>,
}

#[derive(Deserialize)]
struct WireFunction<'a> {
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow, default)]
    arguments: Loose<'a>,
}

#[derive(Deserialize)]
struct WireUsage {
    #[serde(default)]
    prompt_tokens: Count,
    #[serde(default)]
    completion_tokens: Count,
    #[serde(default)]
    prompt_tokens_details: Option<WirePromptDetails>,
    #[serde(default)]
    prompt_cache_hit_tokens: Count,
}

#[derive(Deserialize)]
struct WirePromptDetails {
    #[serde(default)]
    cached_tokens: Count,
    #[serde(default)]
    cache_write_tokens: Count,
}

impl Decoder {
    /// A decoder for one answer of a vendor with these quirks.
    #[must_use]
    pub fn new(quirks: &Quirks) -> Self {
        Self {
            think: quirks.think_tags.then(ThinkSplitter::default),
            calls: Vec::new(),
            details: Vec::new(),
            stop: None,
            refused: false,
            ended: false,
            unknowns: Unknowns::default(),
        }
    }

    /// Reads one event.
    pub fn event(&mut self, event: &SseEvent<'_>, out: &mut Batch) -> Result<(), ProviderError> {
        if self.ended {
            return Ok(());
        }
        match serde_json::from_str::<Wire<'_>>(&event.data) {
            Ok(wire) => self.read(&wire, event, out),
            Err(_) if event.data.trim() == "[DONE]" => {
                // The mark ends the answer even when no reason came before it.
                self.stop.get_or_insert(EndReason::Done);
                self.finish(out);
                Ok(())
            }
            Err(_) if event.data.trim().is_empty() => Ok(()),
            Err(err) => match mend_surrogates(&event.data) {
                Some(mended) => match serde_json::from_str::<Wire<'_>>(&mended) {
                    Ok(wire) => self.read(&wire, event, out),
                    Err(err) => Err(errors::not_an_event(&event.data, &err)),
                },
                None => Err(errors::not_an_event(&event.data, &err)),
            },
        }
    }

    /// See [`super::Decoder::finish`].
    pub fn finish(&mut self, out: &mut Batch) -> bool {
        if self.ended {
            return true;
        }
        if let Some(think) = &mut self.think {
            think.finish(|part, piece| emit(part, piece, out));
        }
        let Some(stop) = self.stop.take() else { return false };
        self.ended = true;
        for (at, call) in self.calls.iter_mut().enumerate().filter(|(_, call)| !call.started) {
            // It never got a name; whoever runs calls will answer that there is no such tool.
            let index = u32::try_from(at).unwrap_or(u32::MAX);
            out.push(Chunk::CallStart { index, id: std::mem::take(&mut call.id), name: String::new() });
            out.args(index, &call.held);
        }
        if !self.details.is_empty() {
            let details = join_details(std::mem::take(&mut self.details));
            out.push(Chunk::ReasoningState(serde_json::json!({ "reasoning_details": details })));
        }
        let end = match stop {
            EndReason::Done if self.refused => EndReason::Refused,
            // Several servers say `stop` although they ask for calls.
            EndReason::Done if !self.calls.is_empty() => EndReason::ToolCalls,
            other => other,
        };
        out.push(Chunk::End(end));
        true
    }

    /// See [`super::Decoder::ended`].
    pub fn ended(&self) -> bool {
        self.ended
    }

    fn read(&mut self, wire: &Wire<'_>, event: &SseEvent<'_>, out: &mut Batch) -> Result<(), ProviderError> {
        if let Some(error) = wire.error.0.as_ref().filter(|error| !error.is_null()) {
            return Err(errors::from_error_value(error));
        }
        if event.name == "error" {
            return Err(errors::in_stream("", "", &event.data));
        }
        for choice in wire.choices.iter().flatten() {
            if choice.index.0.unwrap_or(0) != 0 {
                continue; // we ask for one answer
            }
            if let Some(delta) = &choice.delta {
                self.delta(delta, out);
            }
            if let Some(reason) = choice.finish_reason.0.as_deref() {
                self.finish_reason(reason, out)?;
            }
        }
        let groq = wire.x_groq.as_ref().and_then(|inner| inner.usage.as_ref());
        if let Some(usage) = wire.usage.as_ref().or(groq) {
            count(usage, out);
        }
        Ok(())
    }

    fn delta(&mut self, delta: &WireDelta<'_>, out: &mut Batch) {
        // Some servers say the same thought in both fields.
        let thought = delta.reasoning_content.as_str();
        out.reasoning(if thought.is_empty() { delta.reasoning.as_str() } else { thought });
        if let Some(details) = &delta.reasoning_details {
            let room = MOST_DETAILS.saturating_sub(self.details.len());
            self.details.extend(details.iter().take(room).cloned());
        }
        match &delta.content {
            Loose::Text(text) => self.text(text, out),
            Loose::Parts(parts) => {
                for part in parts {
                    self.part(part, out);
                }
            }
            Loose::Absent | Loose::Object(_) => {}
        }
        let refusal = delta.refusal.as_str();
        if !refusal.is_empty() {
            self.refused = true;
            out.text(refusal);
        }
        for call in delta.tool_calls.iter().flatten() {
            self.call(call, out);
        }
    }

    fn text(&mut self, text: &str, out: &mut Batch) {
        match &mut self.think {
            Some(think) => think.push(text, |part, piece| emit(part, piece, out)),
            None => out.text(text),
        }
    }

    /// Content as a list: text, and with some vendors thoughts.
    fn part(&mut self, part: &Value, out: &mut Batch) {
        match part.get("type").and_then(Value::as_str) {
            Some("text") => self.text(part.get("text").and_then(Value::as_str).unwrap_or_default(), out),
            Some("thinking") => match part.get("thinking") {
                Some(Value::String(text)) => out.reasoning(text),
                Some(Value::Array(parts)) => {
                    for text in parts.iter().filter_map(|part| part.get("text")?.as_str()) {
                        out.reasoning(text);
                    }
                }
                _ => {}
            },
            other => self.unknowns.note("content part", other.unwrap_or("without a type"), out),
        }
    }

    fn call(&mut self, wire: &WireCall<'_>, out: &mut Batch) {
        let id = wire.id.as_str();
        let Some(at) = self.slot(wire.index.0, id) else { return };
        let index = u32::try_from(at).unwrap_or(u32::MAX);
        let call = &mut self.calls[at];
        if call.id.is_empty() {
            call.id.push_str(id);
        }
        let Some(function) = &wire.function else { return };
        let name = function.name.as_str();
        if !call.started && !name.is_empty() {
            call.started = true;
            out.push(Chunk::CallStart { index, id: call.id.clone(), name: name.to_owned() });
            out.args(index, &std::mem::take(&mut call.held));
        }
        let whole;
        let piece = match &function.arguments {
            Loose::Text(piece) => piece.as_ref(),
            Loose::Object(value) => {
                whole = value.to_string();
                &whole
            }
            Loose::Absent | Loose::Parts(_) => return,
        };
        if call.started { out.args(index, piece) } else { call.held.push_str(piece) }
    }

    /// Which call is meant. Numbers may start anywhere, be missing, or be the same for all calls; a new id under a
    /// known number is a new call, and the same id repeated is not.
    fn slot(&mut self, index: Option<u64>, id: &str) -> Option<usize> {
        let known = match index {
            Some(index) => self.calls.iter().rposition(|call| call.index == index),
            None if id.is_empty() => self.calls.len().checked_sub(1),
            None => self.calls.iter().rposition(|call| call.id == id),
        };
        let same = |at: &usize| id.is_empty() || self.calls[*at].id.is_empty() || self.calls[*at].id == id;
        if let Some(at) = known.filter(same) {
            return Some(at);
        }
        if self.calls.len() >= MOST_CALLS {
            return None;
        }
        // Without a number: one that no server uses, so that later pieces are not taken for this call.
        let index = index.unwrap_or(u64::MAX - self.calls.len() as u64);
        self.calls.push(Call { index, id: String::new(), held: String::new(), started: false });
        Some(self.calls.len() - 1)
    }

    fn finish_reason(&mut self, reason: &str, out: &mut Batch) -> Result<(), ProviderError> {
        let end = match reason {
            "" => return Ok(()),
            "stop" | "eos" | "end_turn" | "stop_sequence" | "completed" => EndReason::Done,
            "tool_calls" | "tool_use" | "function_call" => EndReason::ToolCalls,
            "length" | "max_tokens" | "model_length" | "max_output_tokens" => EndReason::Length,
            "content_filter" | "refusal" | "safety" => EndReason::Refused,
            "error" | "insufficient_system_resource" => {
                return Err(errors::in_stream("server_error", "", "the upstream ended the answer with an error"));
            }
            other => {
                self.unknowns.note("finish reason", other, out);
                EndReason::Done
            }
        };
        // The first reason stands; a later chunk may repeat it.
        self.stop.get_or_insert(end);
        Ok(())
    }
}

fn emit(part: think::Part, piece: &str, out: &mut Batch) {
    match part {
        think::Part::Text => out.text(piece),
        think::Part::Reasoning => out.reasoning(piece),
    }
}

/// The prompt's count includes what came from a cache.
fn count(wire: &WireUsage, out: &mut Batch) {
    let (Some(prompt), Some(output)) = (wire.prompt_tokens.0, wire.completion_tokens.0) else { return };
    let details = wire.prompt_tokens_details.as_ref();
    let cached = details.and_then(|details| details.cached_tokens.0).or(wire.prompt_cache_hit_tokens.0);
    let cache_read = cached.unwrap_or(0).min(prompt);
    let written = details.and_then(|details| details.cache_write_tokens.0).unwrap_or(0);
    let cache_write = written.min(prompt - cache_read);
    let input = prompt - cache_read - cache_write;
    out.push(Chunk::Usage(Usage { input, cache_read, cache_write, output }));
}

/// Pieces of one detail (same type and number) become one again: texts are joined, other fields keep their last value.
fn join_details(pieces: Vec<Value>) -> Vec<Value> {
    let mut whole: Vec<Map<String, Value>> = Vec::new();
    for piece in pieces {
        let Value::Object(piece) = piece else { continue };
        let same = |known: &&mut Map<String, Value>| {
            known.get("type") == piece.get("type") && known.get("index") == piece.get("index")
        };
        let Some(known) = whole.iter_mut().rev().find(same) else {
            whole.push(piece);
            continue;
        };
        for (name, value) in piece {
            match (known.get_mut(&name), value) {
                (_, Value::Null) => {}
                (Some(Value::String(text)), Value::String(more))
                    if matches!(name.as_str(), "text" | "summary" | "data") =>
                {
                    text.push_str(&more);
                }
                (_, value) => {
                    known.insert(name, value);
                }
            }
        }
    }
    whole.into_iter().map(Value::Object).collect()
}
