//! Chat completions, the protocol most servers speak, each with its own accent.
//! Reads events one by one; `encode` shapes the request. It opens nothing and knows no vendor's address.

mod encode;

use serde::Deserialize;
use serde_json::{Map, Value};
use windlass_core::budget::Usage;
use windlass_core::provider::{Chunk, EndReason, ProviderError};

use super::frame::Frame;
use super::wire::{Count, Lenient, Loose, Text, mend_surrogates};
use super::{Batch, Quirks, Unknowns};
use crate::errors;
use crate::framing::Event;
use crate::think::{self, ThinkSplitter};

pub use encode::encode;

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
    /// Of the last event, if it was a piece of text and nothing else.
    frame: Frame,
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

impl Wire<'_> {
    /// The text of an event that holds a piece of text and nothing else that means anything.
    fn only_text(&self) -> Option<&str> {
        let [
            WireChoice {
                index,
                delta: Some(delta),
                finish_reason,
            },
        ] = self.choices.as_deref()?
        else {
            return None;
        };
        let silent = |text: &Text<'_>| text.as_str().is_empty();
        let alone = index.0.unwrap_or(0) == 0
            && silent(finish_reason)
            && silent(&delta.reasoning_content)
            && silent(&delta.reasoning)
            && silent(&delta.refusal)
            && delta.reasoning_details.as_ref().is_none_or(Vec::is_empty)
            && delta.tool_calls.as_ref().is_none_or(Vec::is_empty)
            && self.usage.is_none()
            && self.x_groq.is_none()
            && self.error.0.as_ref().is_none_or(Value::is_null);
        match &delta.content {
            Loose::Text(text) if alone => Some(text),
            _ => None,
        }
    }
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
            frame: Frame::default(),
        }
    }

    /// Reads one event.
    pub fn event(&mut self, event: &Event<'_>, out: &mut Batch) -> Result<(), ProviderError> {
        if self.ended {
            return Ok(());
        }
        if event.name != "error"
            && let Some(text) = self.frame.text(&event.data)
        {
            self.text(&text, out);
            return Ok(());
        }
        self.frame.forget();
        match serde_json::from_str::<Wire<'_>>(&event.data) {
            Ok(wire) => {
                if let Some(text) = wire.only_text() {
                    self.frame.learn(&event.data, text);
                }
                self.read(&wire, event, out)
            }
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
        let Some(stop) = self.stop.take() else {
            return false;
        };
        self.ended = true;
        for (at, call) in self
            .calls
            .iter_mut()
            .enumerate()
            .filter(|(_, call)| !call.started)
        {
            // It never got a name; whoever runs calls will answer that there is no such tool.
            let index = u32::try_from(at).unwrap_or(u32::MAX);
            out.push(Chunk::CallStart {
                index,
                id: std::mem::take(&mut call.id),
                name: String::new(),
            });
            out.args(index, &call.held);
        }
        if !self.details.is_empty() {
            let details = join_details(std::mem::take(&mut self.details));
            out.push(Chunk::ReasoningState(
                serde_json::json!({ "reasoning_details": details }),
            ));
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

    fn read(
        &mut self,
        wire: &Wire<'_>,
        event: &Event<'_>,
        out: &mut Batch,
    ) -> Result<(), ProviderError> {
        if let Some(error) = wire.error.0.as_ref().filter(|error| !error.is_null()) {
            return Err(errors::from_error_value(error));
        }
        if event.name == "error" {
            let value = serde_json::from_str(&event.data).unwrap_or_default();
            return Err(errors::from_error_value(&value));
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
        out.reasoning(if thought.is_empty() {
            delta.reasoning.as_str()
        } else {
            thought
        });
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
            Some("text") => self.text(
                part.get("text").and_then(Value::as_str).unwrap_or_default(),
                out,
            ),
            Some("thinking") => match part.get("thinking") {
                Some(Value::String(text)) => out.reasoning(text),
                Some(Value::Array(parts)) => {
                    for text in parts.iter().filter_map(|part| part.get("text")?.as_str()) {
                        out.reasoning(text);
                    }
                }
                _ => {}
            },
            other => self
                .unknowns
                .note("content part", other.unwrap_or("without a type"), out),
        }
    }

    fn call(&mut self, wire: &WireCall<'_>, out: &mut Batch) {
        let id = wire.id.as_str();
        let Some(at) = self.slot(wire.index.0, id) else {
            return;
        };
        let index = u32::try_from(at).unwrap_or(u32::MAX);
        let call = &mut self.calls[at];
        if call.id.is_empty() {
            call.id.push_str(id);
        }
        let Some(function) = &wire.function else {
            return;
        };
        let name = function.name.as_str();
        if !call.started && !name.is_empty() {
            call.started = true;
            out.push(Chunk::CallStart {
                index,
                id: call.id.clone(),
                name: name.to_owned(),
            });
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
        if call.started {
            out.args(index, piece)
        } else {
            call.held.push_str(piece)
        }
    }

    /// Which call is meant. Numbers may start anywhere, be missing, or be the same for all calls; a new id under a
    /// known number is a new call, and the same id repeated is not.
    fn slot(&mut self, index: Option<u64>, id: &str) -> Option<usize> {
        let known = match index {
            Some(index) => self.calls.iter().rposition(|call| call.index == index),
            None if id.is_empty() => self.calls.len().checked_sub(1),
            None => self.calls.iter().rposition(|call| call.id == id),
        };
        let same =
            |at: &usize| id.is_empty() || self.calls[*at].id.is_empty() || self.calls[*at].id == id;
        if let Some(at) = known.filter(same) {
            return Some(at);
        }
        if self.calls.len() >= MOST_CALLS {
            return None;
        }
        // Without a number: one that no server uses, so that later pieces are not taken for this call.
        let index = index.unwrap_or(u64::MAX - self.calls.len() as u64);
        self.calls.push(Call {
            index,
            id: String::new(),
            held: String::new(),
            started: false,
        });
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
                return Err(errors::in_stream(
                    "server_error",
                    "",
                    "the upstream ended the answer with an error",
                ));
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
    let (Some(prompt), Some(output)) = (wire.prompt_tokens.0, wire.completion_tokens.0) else {
        return;
    };
    let details = wire.prompt_tokens_details.as_ref();
    let cached = details
        .and_then(|details| details.cached_tokens.0)
        .or(wire.prompt_cache_hit_tokens.0);
    let cache_read = cached.unwrap_or(0).min(prompt);
    let written = details
        .and_then(|details| details.cache_write_tokens.0)
        .unwrap_or(0);
    let cache_write = written.min(prompt - cache_read);
    let input = prompt - cache_read - cache_write;
    out.push(Chunk::Usage(Usage {
        input,
        cache_read,
        cache_write,
        output,
    }));
}

/// Pieces of one detail (same type and number) become one again: texts are joined, other fields keep their last value.
fn join_details(pieces: Vec<Value>) -> Vec<Value> {
    let mut whole: Vec<Map<String, Value>> = Vec::new();
    for piece in pieces {
        let Value::Object(piece) = piece else {
            continue;
        };
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
