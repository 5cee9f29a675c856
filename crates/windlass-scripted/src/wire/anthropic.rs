//! The wire format of Anthropic Messages.

use serde_json::{Value, json};

use super::{StreamFrame, WireAnswer, lead, pieces, refuses, words};
use crate::answers::{AnswerItem, CallInput};
use crate::request::{AgentTool, ScriptedRequest, content, list, schema, text};

pub(crate) fn read(body: &Value) -> ScriptedRequest {
    let mut asked = ScriptedRequest::new(body);
    for tool in list(&body["tools"]).filter(|tool| tool["name"].is_string()) {
        let schema = tool["input_schema"].clone();
        asked.tools.push(AgentTool {
            name: text(&tool["name"]),
            freeform: false,
            about: text(&tool["description"]),
            schema,
        });
    }
    asked.schema = schema(&body["output_config"]["format"]["schema"])
        .or_else(|| schema(&body["output_format"]["schema"]));
    for message in list(&body["messages"]).filter(|message| message["role"] == "assistant") {
        asked.calls += list(&message["content"])
            .filter(|block| block["type"] == "tool_use")
            .count();
        asked.said.push(content(&message["content"]));
    }
    asked
}

pub(crate) fn whole(answer: &WireAnswer<'_>) -> Value {
    let mut message = message(answer);
    let words = lead(answer).map(|text| json!({ "type": "text", "text": text }));
    message["content"] = words.into_iter().chain([block(answer)]).collect();
    message["stop_reason"] = json!(stop(answer.item));
    message["usage"] = usage(answer, answer.usage.output);
    message
}

pub(crate) fn stream(answer: &WireAnswer<'_>) -> Vec<StreamFrame> {
    let mut frames = Vec::new();
    let mut event = |name: &'static str, mut value: Value, pause_ms: u64| {
        value["type"] = json!(name);
        frames.push(StreamFrame::new(Some(name), &value).after(pause_ms));
    };
    let mut start = message(answer);
    start["usage"] = usage(answer, 1);
    event("message_start", json!({ "message": start }), 0);
    let mut index = 0;
    if let Some(text) = lead(answer) {
        let block = json!({ "type": "text", "text": "" });
        event(
            "content_block_start",
            json!({ "index": 0, "content_block": block }),
            0,
        );
        for piece in pieces(text, 0) {
            let delta = json!({ "type": "text_delta", "text": piece });
            event(
                "content_block_delta",
                json!({ "index": 0, "delta": delta }),
                0,
            );
        }
        event("content_block_stop", json!({ "index": 0 }), 0);
        index = 1;
    }
    let mut empty = block(answer);
    let delta = |delta: Value| json!({ "index": index, "delta": delta });
    match words(answer.item) {
        Some((text, pause_ms)) => {
            empty["text"] = json!("");
            event(
                "content_block_start",
                json!({ "index": index, "content_block": empty }),
                0,
            );
            for piece in pieces(text, pause_ms) {
                event(
                    "content_block_delta",
                    delta(json!({ "type": "text_delta", "text": piece })),
                    pause_ms,
                );
            }
        }
        None => {
            let input = empty["input"].to_string();
            empty["input"] = json!({});
            event(
                "content_block_start",
                json!({ "index": index, "content_block": empty }),
                0,
            );
            for piece in pieces(&input, 0) {
                event(
                    "content_block_delta",
                    delta(json!({ "type": "input_json_delta", "partial_json": piece })),
                    0,
                );
            }
        }
    }
    event("content_block_stop", json!({ "index": index }), 0);
    let end = json!({ "stop_reason": stop(answer.item), "stop_sequence": null });
    event(
        "message_delta",
        json!({ "delta": end, "usage": usage(answer, answer.usage.output) }),
        0,
    );
    event("message_stop", json!({}), 0);
    frames
}

fn message(answer: &WireAnswer<'_>) -> Value {
    json!({
        "id": format!("msg_kit_{:04}", answer.number), "type": "message", "role": "assistant", "model": answer.model,
        "content": [], "stop_reason": null, "stop_sequence": null,
    })
}

fn block(answer: &WireAnswer<'_>) -> Value {
    match answer.item {
        AnswerItem::Call { name, input } => {
            let input = match input {
                CallInput::Json(value) => value.clone(),
                CallInput::Text(text) => json!({ "input": text }),
            };
            json!({ "type": "tool_use", "id": format!("toolu_kit_{:04}", answer.number), "name": name, "input": input })
        }
        AnswerItem::Text { text, .. } | AnswerItem::Refusal(text) => {
            json!({ "type": "text", "text": text })
        }
    }
}

fn stop(item: &AnswerItem) -> &'static str {
    match item {
        AnswerItem::Call { .. } => "tool_use",
        item if refuses(item) => "refusal",
        _ => "end_turn",
    }
}

fn usage(answer: &WireAnswer<'_>, output: u64) -> Value {
    json!({
        "input_tokens": answer.usage.fresh, "cache_read_input_tokens": answer.usage.cached,
        "cache_creation_input_tokens": 0, "output_tokens": output,
    })
}
