//! Chat completions, the protocol most servers speak, each with its own accent.
//! Reads events one by one; `encode` shapes the request. It opens nothing and knows no vendor's address.

mod encode;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use windlass_core::provider::{Chunk, EndReason};

use super::decode::{Ending, ReadJson, ReadResult};
use super::frame::Frame;
use super::wire::{Count, Lenient, Loose, OpenAiUsage, Text, WireCall};
use super::{Batch, Quirks};
use crate::errors;
use crate::framing::Event;
use crate::think::ThinkSplitter;

pub(super) use encode::encode;

/// Reads one answer.
#[derive(Debug)]
pub(super) struct ChatDecoder {
    think: ThinkSplitter,
    calls: Vec<Call>,
    details: Vec<Value>,
    ending: Ending,
    refused: bool,
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

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Wire<'a> {
    #[serde(borrow)]
    choices: Option<Vec<WireChoice<'a>>>,
    usage: Option<OpenAiUsage>,
    x_groq: Option<WireInner>,
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

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireInner {
    usage: Option<OpenAiUsage>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireChoice<'a> {
    index: Count,
    #[serde(borrow)]
    delta: Option<WireDelta<'a>>,
    finish_reason: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireDelta<'a> {
    #[serde(borrow)]
    content: Loose<'a>,
    reasoning_content: Text<'a>,
    reasoning: Text<'a>,
    reasoning_details: Option<Vec<Value>>,
    refusal: Text<'a>,
    tool_calls: Option<Vec<WireCall<'a>>>,
}

impl ChatDecoder {
    /// For one answer of a vendor with these quirks.
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
    type Wire<'a> = Wire<'a>;

    fn shortcut(&mut self, event: &Event<'_>, out: &mut Batch) -> bool {
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
            // It never got a name; whoever runs calls will answer that there is no such tool.
            let index = u32::try_from(at).unwrap_or(u32::MAX);
            out.call(index, &call.id, "");
            out.args(index, &call.held);
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
            // The mark ends the answer even when no reason came before it.
            self.ending.stop.get_or_insert(EndReason::Done);
            self.finish(out);
        }
        matches!(mark, "[DONE]" | "")
    }

    fn read(&mut self, wire: &Wire<'_>, event: &Event<'_>, out: &mut Batch) -> ReadResult {
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
        if let Some(usage) = wire.usage.as_ref().or(groq).and_then(OpenAiUsage::counted) {
            out.push(Chunk::Usage(usage));
        }
        Ok(())
    }
}

impl ChatDecoder {
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

    /// Content as a list: text, and with some vendors thoughts.
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
            out.call(index, &call.id, name);
            out.args(index, &std::mem::take(&mut call.held));
        }
        let Some(piece) = function.arguments.json() else {
            return;
        };
        if call.started {
            out.args(index, &piece)
        } else {
            call.held.push_str(&piece)
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
        // The first reason stands; a later chunk may repeat it.
        self.ending.stop.get_or_insert(end);
        Ok(())
    }
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
