//! The Responses protocol: output items announced, filled and closed by named events; state that the model needs again
//! travels inside its reasoning items.
//! Reads events one by one; `encode` shapes the request. It opens nothing and knows no vendor's address.

mod encode;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use windlass_core::provider::{Chunk, EndReason, ProviderError};

use super::Batch;
use super::decode::{Ending, ReadJson, ReadResult};
use super::wire::{Count, Lenient, OpenAiUsage, Text};
use crate::errors;
use crate::framing::Event;

pub(super) use encode::encode;
pub use encode::reasons;

/// Reads one answer.
#[derive(Debug, Default)]
pub(super) struct ResponsesDecoder {
    items: Vec<Item>,
    calls: u32,
    refused: bool,
    ending: Ending,
}

#[derive(Debug)]
struct Item {
    index: Option<u64>,
    id: String,
    done: bool,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// `said`: its text came in pieces.
    Message {
        said: bool,
    },
    /// Which form of the thoughts is shown; a server may send both.
    Reasoning {
        shown: Option<Shown>,
    },
    /// `pieces`: its arguments came in pieces.
    Call {
        call: u32,
        pieces: bool,
    },
    /// A call that is not announced before it is complete: without a name, or with text instead of arguments.
    Late,
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// The number of the summary's part.
    Summary(u64),
    Thoughts,
}

/// More items than any answer has.
const MOST_ITEMS: usize = 4_096;

/// All events in one shape: reading a tagged union would buffer each event first, and this is the hot path.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Wire<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    output_index: Count,
    summary_index: Count,
    item_id: Text<'a>,
    delta: Text<'a>,
    text: Text<'a>,
    refusal: Text<'a>,
    arguments: Text<'a>,
    item: Option<&'a RawValue>,
    response: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireResponse {
    error: Lenient<Value>,
    incomplete_details: Lenient<WireIncomplete>,
    usage: Lenient<OpenAiUsage>,
    output: Lenient<Vec<Value>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireIncomplete {
    reason: String,
}

impl ReadJson for ResponsesDecoder {
    type Wire<'a> = Wire<'a>;

    fn ending(&self) -> &Ending {
        &self.ending
    }

    /// A gateway's mark; the answer ends with an event of its own.
    fn mark(&mut self, mark: &str, _out: &mut Batch) -> bool {
        matches!(mark, "[DONE]" | "")
    }

    fn read(&mut self, wire: &Wire<'_>, event: &Event<'_>, out: &mut Batch) -> ReadResult {
        // Some servers name the event in its own line only.
        let kind = if wire.kind.as_str().is_empty() {
            event.name.as_ref()
        } else {
            wire.kind.as_str()
        };
        match kind {
            "response.output_text.delta" => self.say(wire, wire.delta.as_str(), true, out),
            "response.output_text.done" => self.say(wire, wire.text.as_str(), false, out),
            "response.refusal.delta" => {
                self.refused = true;
                self.say(wire, wire.delta.as_str(), true, out);
            }
            "response.refusal.done" => {
                self.refused = true;
                self.say(wire, wire.refusal.as_str(), false, out);
            }
            "response.reasoning_summary_text.delta" => {
                let part = wire.summary_index.0.unwrap_or(0);
                self.think(wire, wire.delta.as_str(), Shown::Summary(part), out);
            }
            "response.reasoning_text.delta" | "response.reasoning.delta" => {
                self.think(wire, wire.delta.as_str(), Shown::Thoughts, out);
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
    /// The item an event speaks of: by its number, else by its id, else the newest.
    fn item(&mut self, index: Option<u64>, id: &str) -> Option<&mut Item> {
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

    /// Text of a message, in pieces or whole. What came in pieces is not said again.
    fn say(&mut self, wire: &Wire<'_>, text: &str, piece: bool, out: &mut Batch) {
        match self
            .item(wire.output_index.0, wire.item_id.as_str())
            .map(|item| &mut item.kind)
        {
            Some(Kind::Message { said }) => {
                if piece || !*said {
                    out.text(text);
                }
                *said |= !text.is_empty();
            }
            // Not announced: then it is all there will be of it.
            None if piece => out.text(text),
            _ => {}
        }
    }

    fn think(&mut self, wire: &Wire<'_>, text: &str, form: Shown, out: &mut Batch) {
        match self
            .item(wire.output_index.0, wire.item_id.as_str())
            .map(|item| &mut item.kind)
        {
            Some(Kind::Reasoning { shown }) => match (*shown, form) {
                (None, _) | (Some(Shown::Thoughts), Shown::Thoughts) => {
                    *shown = Some(form);
                    out.reasoning(text);
                }
                (Some(Shown::Summary(part)), Shown::Summary(next)) => {
                    if next != part {
                        *shown = Some(form);
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

    fn args(&mut self, wire: &Wire<'_>, json: &str, piece: bool, out: &mut Batch) {
        if let Some(Item {
            kind: Kind::Call { call, pieces },
            ..
        }) = self.item(wire.output_index.0, wire.item_id.as_str())
        {
            if piece || !*pieces {
                out.args(*call, json);
            }
            *pieces |= !json.is_empty();
        }
    }

    fn added(&mut self, index: Option<u64>, item: &Value, out: &mut Batch) {
        let id = text_of(item, "id")
            .or_else(|| text_of(item, "call_id"))
            .unwrap_or_default();
        let known = (index.is_some() || !id.is_empty()) && self.item(index, id).is_some();
        if known || self.items.len() >= MOST_ITEMS {
            return; // a repeated start changes nothing
        }
        let kind = match text_of(item, "type").unwrap_or_default() {
            "message" => {
                // Sent back with the message: it tells the model its remarks from its answers.
                if let Some(phase) = text_of(item, "phase") {
                    out.state(json!({ "phase": phase }));
                }
                Kind::Message { said: false }
            }
            "reasoning" => Kind::Reasoning { shown: None },
            "function_call" => match text_of(item, "name") {
                Some(name) => {
                    let call = self.next_call();
                    let id = text_of(item, "call_id").unwrap_or_default();
                    out.call(call, id, name);
                    Kind::Call {
                        call,
                        pieces: false,
                    }
                }
                None => Kind::Late,
            },
            "custom_tool_call" => Kind::Late,
            other => {
                self.ending.note("output item", other, out);
                Kind::Other
            }
        };
        self.items.push(Item {
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

    /// An item is complete: what did not come in pieces is taken from it.
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
            Kind::Message { said } => {
                let whole = !std::mem::replace(said, true);
                for part in value
                    .get("content")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten()
                {
                    let refusal = text_of(part, "refusal");
                    self.refused |= refusal.is_some();
                    if whole {
                        out.text(
                            refusal
                                .or_else(|| text_of(part, "text"))
                                .unwrap_or_default(),
                        );
                    }
                }
            }
            Kind::Reasoning { shown } => {
                if shown.is_none() {
                    out.reasoning(&thoughts_of(value));
                }
                out.state(json!({ "item": value }));
            }
            Kind::Call { call, pieces } => {
                if !*pieces {
                    out.args(*call, text_of(value, "arguments").unwrap_or_default());
                }
            }
            Kind::Late => {
                let call = self.next_call();
                let text = |name| text_of(value, name).unwrap_or_default();
                out.call(call, text("call_id"), text("name"));
                match text_of(value, "input") {
                    Some(input) => out.args(call, &json!({ "input": input }).to_string()),
                    None => out.args(call, text("arguments")),
                }
            }
            Kind::Other => {}
        }
    }

    fn completed(&mut self, kind: &str, wire: &Wire<'_>, out: &mut Batch) {
        let response = response_of(wire);
        if self.items.is_empty() {
            // Nothing was announced: the whole answer stands in its last event.
            for (at, item) in response.output.0.iter().flatten().enumerate() {
                self.done(Some(at as u64), item, out);
            }
        }
        if let Some(usage) = response.usage.0.and_then(|usage| usage.counted()) {
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

fn item_of(wire: &Wire<'_>) -> Value {
    wire.item
        .and_then(|item| serde_json::from_str(item.get()).ok())
        .unwrap_or_default()
}

fn response_of(wire: &Wire<'_>) -> WireResponse {
    wire.response
        .and_then(|response| serde_json::from_str(response.get()).ok())
        .unwrap_or_default()
}

fn text_of<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name)?.as_str().filter(|text| !text.is_empty())
}

/// The readable part of a reasoning item: its summary, else its thoughts.
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

fn failed(kind: &str, wire: &Wire<'_>) -> ProviderError {
    match response_of(wire).error.0.filter(|error| !error.is_null()) {
        Some(error) => errors::from_error_value(&error),
        None => errors::in_stream(
            "server_error",
            "",
            &format!("the upstream ended the answer with `{kind}`"),
        ),
    }
}

/// An error event: the words stand in it, or in an object inside it.
fn error_event(data: &str) -> ProviderError {
    let mut value: Value = serde_json::from_str(data).unwrap_or_default();
    match value.get_mut("error").map(Value::take) {
        Some(error) if !error.is_null() => errors::from_error_value(&error),
        _ => {
            if let Value::Object(map) = &mut value {
                map.remove("type"); // it says `error`, which tells nobody anything
            }
            errors::from_error_value(&value)
        }
    }
}
