//! Chat completions, the protocol that most servers support, each with small differences.
//! This file decodes the events; `encode` builds the request.

mod encode;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use windlass_core::provider::{Chunk, EndReason};

use super::decode::{Ending, ReadJson, ReadResult};
use super::frame::Frame;
use super::wire::{Count, JsonText, Lenient, Loose, OpenAiUsage, WireCall};
use super::{Batch, Quirks};
use crate::errors;
use crate::framing::FramedEvent;
use crate::think::ThinkSplitter;

pub(super) use encode::encode;

/// Decodes one chat completion.
#[derive(Debug)]
pub(super) struct ChatDecoder {
    think: ThinkSplitter,
    calls: Vec<ChatCall>,
    details: Vec<Value>,
    ending: Ending,
    refused: bool,
    /// The frame of the last event, if that was only a text delta.
    frame: Frame,
}

#[derive(Debug)]
struct ChatCall {
    /// The number that the server gave, which may repeat.
    index: u64,
    id: String,
    /// Arguments that arrived before the name.
    early_args: String,
    started: bool,
}

// These limit the memory for a malicious answer.
const MAX_CALLS: usize = 1_024;
const MAX_DETAILS: usize = 4_096;

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ChatEvent<'a> {
    #[serde(borrow)]
    choices: Option<Vec<ChatChoice<'a>>>,
    usage: Option<OpenAiUsage>,
    x_groq: Option<GroqExtension>,
    error: Lenient<Value>,
}

impl ChatEvent<'_> {
    /// Returns the text of an event that contains a text delta and no other information.
    fn only_text(&self) -> Option<&str> {
        let [
            ChatChoice {
                index,
                delta: Some(delta),
                finish_reason,
            },
        ] = self.choices.as_deref()?
        else {
            return None;
        };
        let is_empty = |text: &JsonText<'_>| text.as_str().is_empty();
        let only_text = index.0.unwrap_or(0) == 0
            && is_empty(finish_reason)
            && is_empty(&delta.reasoning_content)
            && is_empty(&delta.reasoning)
            && is_empty(&delta.refusal)
            && delta.reasoning_details.as_ref().is_none_or(Vec::is_empty)
            && delta.tool_calls.as_ref().is_none_or(Vec::is_empty)
            && self.usage.is_none()
            && self.x_groq.is_none()
            && self.error.0.as_ref().is_none_or(Value::is_null);
        match &delta.content {
            Loose::Text(text) if only_text => Some(text),
            _ => None,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct GroqExtension {
    usage: Option<OpenAiUsage>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ChatChoice<'a> {
    index: Count,
    #[serde(borrow)]
    delta: Option<ChatDelta<'a>>,
    finish_reason: JsonText<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ChatDelta<'a> {
    #[serde(borrow)]
    content: Loose<'a>,
    reasoning_content: JsonText<'a>,
    reasoning: JsonText<'a>,
    reasoning_details: Option<Vec<Value>>,
    refusal: JsonText<'a>,
    tool_calls: Option<Vec<WireCall<'a>>>,
}

impl ChatDecoder {
    /// Creates a decoder for one answer.
    pub(super) fn new(quirks: &Quirks) -> Self {
        Self {
            think: ThinkSplitter::new(quirks.think_tags),
            calls: Vec::new(),
            details: Vec::new(),
            ending: Ending::default(),
            refused: false,
            frame: Frame::default(),
        }
    }
}

impl ReadJson for ChatDecoder {
    type WireEvent<'a> = ChatEvent<'a>;

    fn shortcut(&mut self, event: &FramedEvent<'_>, out: &mut Batch) -> bool {
        let text = self.frame.text(&event.data);
        let text = text.filter(|_| event.name != "error");
        match &text {
            Some(text) => self.think.push(text, out),
            None => self.frame.forget(),
        }
        text.is_some()
    }

    fn finish(&mut self, out: &mut Batch) {
        self.think.finish(out);
        if self.ending.stop.is_none() {
            return;
        }
        for (at, call) in self
            .calls
            .iter_mut()
            .enumerate()
            .filter(|(_, call)| !call.started)
        {
            // The call has no name. The engine answers it with an unknown-tool error.
            let index = u32::try_from(at).unwrap_or(u32::MAX);
            out.call(index, &call.id, "");
            out.args(index, &call.early_args);
        }
        if !self.details.is_empty() {
            let details = join_details(std::mem::take(&mut self.details));
            out.state(json!({ "reasoning_details": details }));
        }
        if self.refused && self.ending.stop == Some(EndReason::Done) {
            self.ending.stop = Some(EndReason::Refused);
        }
        self.ending.end(!self.calls.is_empty(), out);
    }

    fn ending(&self) -> &Ending {
        &self.ending
    }

    fn mark(&mut self, mark: &str, out: &mut Batch) -> bool {
        if mark == "[DONE]" {
            // The marker ends the answer even without a finish reason.
            self.ending.stop.get_or_insert(EndReason::Done);
            self.finish(out);
        }
        matches!(mark, "[DONE]" | "")
    }

    fn read(
        &mut self,
        wire: &ChatEvent<'_>,
        event: &FramedEvent<'_>,
        out: &mut Batch,
    ) -> ReadResult {
        if let Some(error) = wire.error.0.as_ref().filter(|error| !error.is_null()) {
            return Err(errors::from_error_value(error));
        }
        if event.name == "error" {
            let value = serde_json::from_str(&event.data).unwrap_or_default();
            return Err(errors::from_error_value(&value));
        }
        if let Some(text) = wire.only_text() {
            self.frame.learn(&event.data, text);
        }
        for choice in wire.choices.iter().flatten() {
            if choice.index.0.unwrap_or(0) != 0 {
                continue; // the request asks for one choice
            }
            if let Some(delta) = &choice.delta {
                self.delta(delta, out);
            }
            if let Some(reason) = choice.finish_reason.0.as_deref() {
                self.finish_reason(reason, out)?;
            }
        }
        let groq = wire.x_groq.as_ref().and_then(|inner| inner.usage.as_ref());
        if let Some(usage) = wire.usage.as_ref().or(groq).and_then(OpenAiUsage::to_usage) {
            out.push(Chunk::Usage(usage));
        }
        Ok(())
    }
}

impl ChatDecoder {
    fn delta(&mut self, delta: &ChatDelta<'_>, out: &mut Batch) {
        // Some servers send the same text in both fields.
        let thought = delta.reasoning_content.as_str();
        out.reasoning(if thought.is_empty() {
            delta.reasoning.as_str()
        } else {
            thought
        });
        if let Some(details) = &delta.reasoning_details {
            let free = MAX_DETAILS.saturating_sub(self.details.len());
            self.details.extend(details.iter().take(free).cloned());
        }
        match &delta.content {
            Loose::Text(text) => self.think.push(text, out),
            Loose::Parts(parts) => {
                for part in parts {
                    self.part(part, out);
                }
            }
            Loose::Absent | Loose::Number(_) | Loose::Object(_) => {}
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

    /// Decodes a part of content that is a list: text, and with some vendors thoughts.
    fn part(&mut self, part: &Value, out: &mut Batch) {
        match part.get("type").and_then(Value::as_str) {
            Some("text") => self.think.push(
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
                .ending
                .note("content part", other.unwrap_or("without a type"), out),
        }
    }

    fn call(&mut self, wire: &WireCall<'_>, out: &mut Batch) {
        let id = wire.id.as_str();
        let Some(at) = self.find_or_add_call(wire.index.0, id) else {
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
            out.call(index, &call.id, name);
            out.args(index, &std::mem::take(&mut call.early_args));
        }
        let Some(piece) = function.arguments.json() else {
            return;
        };
        if call.started {
            out.args(index, &piece)
        } else {
            call.early_args.push_str(&piece)
        }
    }

    /// Returns the position of the call that a delta belongs to. Server numbers may start anywhere, be missing, or be
    /// the same for all calls. A new id with a known number is a new call; a repeated id is not.
    fn find_or_add_call(&mut self, index: Option<u64>, id: &str) -> Option<usize> {
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
        if self.calls.len() >= MAX_CALLS {
            return None;
        }
        // A call without a number gets one that no server uses, so that later deltas do not match it by number.
        let index = index.unwrap_or(u64::MAX - self.calls.len() as u64);
        self.calls.push(ChatCall {
            index,
            id: String::new(),
            early_args: String::new(),
            started: false,
        });
        Some(self.calls.len() - 1)
    }

    fn finish_reason(&mut self, reason: &str, out: &mut Batch) -> ReadResult {
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
                self.ending.note("finish reason", other, out);
                EndReason::Done
            }
        };
        // The first reason is kept; later chunks may repeat it.
        self.ending.stop.get_or_insert(end);
        Ok(())
    }
}

/// Joins the pieces of each detail (same type and number): texts are concatenated, other fields keep their last value.
fn join_details(pieces: Vec<Value>) -> Vec<Value> {
    let mut joined: Vec<Map<String, Value>> = Vec::new();
    for piece in pieces {
        let Value::Object(piece) = piece else {
            continue;
        };
        let same = |known: &&mut Map<String, Value>| {
            known.get("type") == piece.get("type") && known.get("index") == piece.get("index")
        };
        let Some(known) = joined.iter_mut().rev().find(same) else {
            joined.push(piece);
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
    joined.into_iter().map(Value::Object).collect()
}
