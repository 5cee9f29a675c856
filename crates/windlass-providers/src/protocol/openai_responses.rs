//! OpenAI's responses protocol: named events add, fill and complete output items. State that the model needs again is
//! in its reasoning items. This file decodes the events; `encode` builds the request.

mod encode;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use windlass_core::provider::{Chunk, EndReason, ProviderError};

use super::Batch;
use super::decode::{Ending, ReadJson, ReadResult};
use super::wire::{Count, JsonText, Lenient, OpenAiUsage};
use crate::errors;
use crate::framing::FramedEvent;

pub(super) use encode::encode;
pub use encode::is_reasoning_model;

/// Decodes one answer of the responses protocol.
#[derive(Debug, Default)]
pub(super) struct ResponsesDecoder {
    items: Vec<OutputItem>,
    calls: u32,
    refused: bool,
    ending: Ending,
}

#[derive(Debug)]
struct OutputItem {
    index: Option<u64>,
    id: String,
    done: bool,
    kind: ItemKind,
}

#[derive(Debug)]
enum ItemKind {
    /// `has_text`: text of the item was already passed on.
    Message {
        has_text: bool,
    },
    /// `form`: the form of the thoughts that is passed on; a server may send both.
    Reasoning {
        form: Option<ReasoningForm>,
    },
    /// `has_args`: arguments of the call were already passed on.
    Call {
        call: u32,
        has_args: bool,
    },
    /// A call that is passed on only when it is complete: it began without a name, or has text instead of arguments.
    DeferredCall,
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReasoningForm {
    /// The number of the summary's part.
    Summary(u64),
    Thoughts,
}

/// Limits the memory for a malicious answer.
const MAX_ITEMS: usize = 4_096;

/// All events in one struct: this is the hot path, and deserializing a tagged enum would buffer each event first.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ResponsesEvent<'a> {
    #[serde(borrow, rename = "type")]
    kind: JsonText<'a>,
    output_index: Count,
    summary_index: Count,
    item_id: JsonText<'a>,
    delta: JsonText<'a>,
    text: JsonText<'a>,
    refusal: JsonText<'a>,
    arguments: JsonText<'a>,
    item: Option<&'a RawValue>,
    response: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ResponsesResult {
    error: Lenient<Value>,
    incomplete_details: Lenient<IncompleteDetails>,
    usage: Lenient<OpenAiUsage>,
    output: Lenient<Vec<Value>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct IncompleteDetails {
    reason: String,
}

impl ReadJson for ResponsesDecoder {
    type WireEvent<'a> = ResponsesEvent<'a>;

    fn ending(&self) -> &Ending {
        &self.ending
    }

    /// Ignores the marker of some gateways; the answer ends with its own event.
    fn mark(&mut self, mark: &str, _out: &mut Batch) -> bool {
        matches!(mark, "[DONE]" | "")
    }

    fn read(
        &mut self,
        wire: &ResponsesEvent<'_>,
        event: &FramedEvent<'_>,
        out: &mut Batch,
    ) -> ReadResult {
        // Some servers put the type only into the `event:` line.
        let kind = if wire.kind.as_str().is_empty() {
            event.name.as_ref()
        } else {
            wire.kind.as_str()
        };
        match kind {
            "response.output_text.delta" => self.text(wire, wire.delta.as_str(), true, out),
            "response.output_text.done" => self.text(wire, wire.text.as_str(), false, out),
            "response.refusal.delta" => {
                self.refused = true;
                self.text(wire, wire.delta.as_str(), true, out);
            }
            "response.refusal.done" => {
                self.refused = true;
                self.text(wire, wire.refusal.as_str(), false, out);
            }
            "response.reasoning_summary_text.delta" => {
                let part = wire.summary_index.0.unwrap_or(0);
                self.reasoning(wire, wire.delta.as_str(), ReasoningForm::Summary(part), out);
            }
            "response.reasoning_text.delta" | "response.reasoning.delta" => {
                self.reasoning(wire, wire.delta.as_str(), ReasoningForm::Thoughts, out);
            }
            "response.function_call_arguments.delta" => {
                self.args(wire, wire.delta.as_str(), true, out)
            }
            "response.function_call_arguments.done" => {
                self.args(wire, wire.arguments.as_str(), false, out)
            }
            "response.output_item.added" => self.added(wire.output_index.0, &item_of(wire), out),
            "response.output_item.done" => self.done(wire.output_index.0, &item_of(wire), out),
            "response.completed" | "response.done" | "response.incomplete" => {
                self.completed(kind, wire, out)
            }
            "response.failed" | "response.cancelled" => return Err(failed(kind, wire)),
            "error" => return Err(error_event(&event.data)),
            "response.created"
            | "response.queued"
            | "response.in_progress"
            | "response.content_part.added"
            | "response.content_part.done"
            | "response.reasoning_summary_part.added"
            | "response.reasoning_summary_part.done"
            | "response.reasoning_summary_text.done"
            | "response.reasoning_text.done"
            | "response.reasoning.done"
            | "response.output_text.annotation.added"
            | "response.custom_tool_call_input.delta"
            | "response.custom_tool_call_input.done"
            | "ping"
            | "keepalive" => {}
            _ if wire.error.is_some_and(|error| error.get() != "null") => {
                return Err(error_event(&event.data));
            }
            other => self.ending.note("event", other, out),
        }
        Ok(())
    }
}

impl ResponsesDecoder {
    /// Returns the item that an event belongs to: by its number, else by its id, else the newest.
    fn item(&mut self, index: Option<u64>, id: &str) -> Option<&mut OutputItem> {
        let at = match index {
            Some(index) => self
                .items
                .iter()
                .rposition(|item| item.index == Some(index)),
            None if id.is_empty() => self.items.len().checked_sub(1),
            None => self.items.iter().rposition(|item| item.id == id),
        };
        at.map(|at| &mut self.items[at])
    }

    /// Passes on the text of a message. If it came in pieces, the complete text is ignored.
    fn text(&mut self, wire: &ResponsesEvent<'_>, text: &str, piece: bool, out: &mut Batch) {
        match self
            .item(wire.output_index.0, wire.item_id.as_str())
            .map(|item| &mut item.kind)
        {
            Some(ItemKind::Message { has_text }) => {
                if piece || !*has_text {
                    out.text(text);
                }
                *has_text |= !text.is_empty();
            }
            // The item was not announced, so no later event has its text.
            None if piece => out.text(text),
            _ => {}
        }
    }

    fn reasoning(
        &mut self,
        wire: &ResponsesEvent<'_>,
        text: &str,
        new: ReasoningForm,
        out: &mut Batch,
    ) {
        match self
            .item(wire.output_index.0, wire.item_id.as_str())
            .map(|item| &mut item.kind)
        {
            Some(ItemKind::Reasoning { form }) => match (*form, new) {
                (None, _) | (Some(ReasoningForm::Thoughts), ReasoningForm::Thoughts) => {
                    *form = Some(new);
                    out.reasoning(text);
                }
                (Some(ReasoningForm::Summary(part)), ReasoningForm::Summary(next)) => {
                    if next != part {
                        *form = Some(new);
                        out.reasoning("\n\n");
                    }
                    out.reasoning(text);
                }
                _ => {}
            },
            None => out.reasoning(text),
            _ => {}
        }
    }

    fn args(&mut self, wire: &ResponsesEvent<'_>, json: &str, piece: bool, out: &mut Batch) {
        if let Some(OutputItem {
            kind: ItemKind::Call { call, has_args },
            ..
        }) = self.item(wire.output_index.0, wire.item_id.as_str())
        {
            if piece || !*has_args {
                out.args(*call, json);
            }
            *has_args |= !json.is_empty();
        }
    }

    fn added(&mut self, index: Option<u64>, item: &Value, out: &mut Batch) {
        let id = text_of(item, "id")
            .or_else(|| text_of(item, "call_id"))
            .unwrap_or_default();
        let known = (index.is_some() || !id.is_empty()) && self.item(index, id).is_some();
        if known || self.items.len() >= MAX_ITEMS {
            return; // ignore a repeated start
        }
        let kind = match text_of(item, "type").unwrap_or_default() {
            "message" => {
                // The phase is sent back with the message, so that the model can tell its remarks from its answers.
                if let Some(phase) = text_of(item, "phase") {
                    out.state(json!({ "phase": phase }));
                }
                ItemKind::Message { has_text: false }
            }
            "reasoning" => ItemKind::Reasoning { form: None },
            "function_call" => match text_of(item, "name") {
                Some(name) => {
                    let call = self.next_call();
                    let id = text_of(item, "call_id").unwrap_or_default();
                    out.call(call, id, name);
                    ItemKind::Call {
                        call,
                        has_args: false,
                    }
                }
                None => ItemKind::DeferredCall,
            },
            "custom_tool_call" => ItemKind::DeferredCall,
            other => {
                self.ending.note("output item", other, out);
                ItemKind::Other
            }
        };
        self.items.push(OutputItem {
            index,
            id: id.to_owned(),
            done: false,
            kind,
        });
    }

    fn next_call(&mut self) -> u32 {
        let call = self.calls;
        self.calls = self.calls.saturating_add(1);
        call
    }

    /// Handles a complete item: passes on the parts of it that did not come in pieces.
    fn done(&mut self, index: Option<u64>, value: &Value, out: &mut Batch) {
        self.added(index, value, out);
        let id = text_of(value, "id")
            .or_else(|| text_of(value, "call_id"))
            .unwrap_or_default();
        let Some(item) = self.item(index, id).filter(|item| !item.done) else {
            return;
        };
        item.done = true;
        match &mut item.kind {
            ItemKind::Message { has_text } => {
                let text_is_new = !std::mem::replace(has_text, true);
                for part in value
                    .get("content")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten()
                {
                    let refusal = text_of(part, "refusal");
                    self.refused |= refusal.is_some();
                    if text_is_new {
                        out.text(
                            refusal
                                .or_else(|| text_of(part, "text"))
                                .unwrap_or_default(),
                        );
                    }
                }
            }
            ItemKind::Reasoning { form } => {
                if form.is_none() {
                    out.reasoning(&thoughts_of(value));
                }
                out.state(json!({ "item": value }));
            }
            ItemKind::Call { call, has_args } => {
                if !*has_args {
                    out.args(*call, text_of(value, "arguments").unwrap_or_default());
                }
            }
            ItemKind::DeferredCall => {
                let call = self.next_call();
                let text = |name| text_of(value, name).unwrap_or_default();
                out.call(call, text("call_id"), text("name"));
                match text_of(value, "input") {
                    Some(input) => out.args(call, &json!({ "input": input }).to_string()),
                    None => out.args(call, text("arguments")),
                }
            }
            ItemKind::Other => {}
        }
    }

    fn completed(&mut self, kind: &str, wire: &ResponsesEvent<'_>, out: &mut Batch) {
        let response = response_of(wire);
        if self.items.is_empty() {
            // No items were announced: the last event contains the whole answer.
            for (at, item) in response.output.0.iter().flatten().enumerate() {
                self.done(Some(at as u64), item, out);
            }
        }
        if let Some(usage) = response.usage.0.and_then(|usage| usage.to_usage()) {
            out.push(Chunk::Usage(usage));
        }
        let reason = response
            .incomplete_details
            .0
            .map(|details| details.reason)
            .unwrap_or_default();
        let end = match reason.as_str() {
            "max_output_tokens" => EndReason::Length,
            "content_filter" => EndReason::Refused,
            "" if kind == "response.incomplete" => EndReason::Length,
            "" if self.refused => EndReason::Refused,
            "" if self.calls > 0 => EndReason::ToolCalls,
            "" => EndReason::Done,
            other => {
                self.ending.note("incomplete reason", other, out);
                EndReason::Length
            }
        };
        self.ending.stop = Some(end);
        self.ending.end(false, out);
    }
}

fn item_of(wire: &ResponsesEvent<'_>) -> Value {
    wire.item
        .and_then(|item| serde_json::from_str(item.get()).ok())
        .unwrap_or_default()
}

fn response_of(wire: &ResponsesEvent<'_>) -> ResponsesResult {
    wire.response
        .and_then(|response| serde_json::from_str(response.get()).ok())
        .unwrap_or_default()
}

fn text_of<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name)?.as_str().filter(|text| !text.is_empty())
}

/// Returns the readable part of a reasoning item: its summary, else its thoughts.
fn thoughts_of(item: &Value) -> String {
    let texts = |name: &str| -> Vec<&str> {
        let parts = item
            .get(name)
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        parts.filter_map(|part| text_of(part, "text")).collect()
    };
    let summary = texts("summary");
    if summary.is_empty() {
        texts("content").concat()
    } else {
        summary.join("\n\n")
    }
}

fn failed(kind: &str, wire: &ResponsesEvent<'_>) -> ProviderError {
    match response_of(wire).error.0.filter(|error| !error.is_null()) {
        Some(error) => errors::from_error_value(&error),
        None => errors::in_stream(
            "server_error",
            "",
            &format!("the upstream ended the answer with `{kind}`"),
        ),
    }
}

/// Maps an error event, whose fields are in the event itself or in an object inside it.
fn error_event(data: &str) -> ProviderError {
    let mut value: Value = serde_json::from_str(data).unwrap_or_default();
    match value.get_mut("error").map(Value::take) {
        Some(error) if !error.is_null() => errors::from_error_value(&error),
        _ => {
            if let Value::Object(map) = &mut value {
                map.remove("type"); // always `error`
            }
            errors::from_error_value(&value)
        }
    }
}
