//! OpenAI Chat Completions, and compatible vendors.

use serde_json::{Value, json};

use super::{StreamFrame, WireAnswer, lead, pieces, refuses, words};
use crate::answers::{AnswerItem, CallInput};
use crate::request::{AgentTool, ScriptedRequest, content, list, schema, text};

pub(crate) fn read(body: &Value) -> ScriptedRequest {
    let mut asked = ScriptedRequest::new(body);
    for tool in list(&body["tools"])
        .map(|tool| &tool["function"])
        .filter(|tool| tool["name"].is_string())
    {
        let schema = tool["parameters"].clone();
        asked.tools.push(AgentTool {
            name: text(&tool["name"]),
            freeform: false,
            about: text(&tool["description"]),
            schema,
        });
    }
    asked.schema = schema(&body["response_format"]["json_schema"]["schema"]);
    for message in list(&body["messages"]).filter(|message| message["role"] == "assistant") {
        asked.calls += list(&message["tool_calls"]).count();
        asked.said.push(content(&message["content"]));
    }
    asked
}

pub(crate) fn whole(answer: &WireAnswer<'_>) -> Value {
    let mut message = json!({ "role": "assistant", "content": null });
    match answer.item {
        AnswerItem::Text { text, .. } => message["content"] = json!(text),
        AnswerItem::Refusal(text) => message["refusal"] = json!(text),
        AnswerItem::Call { name, input } => {
            message["content"] = json!(lead(answer));
            message["tool_calls"] = json!([call(answer.number, name, input)])
        }
    }
    let mut whole = base(answer, "chat.completion");
    whole["choices"] = json!([{ "index": 0, "message": message, "finish_reason": stop(answer.item), "logprobs": null }]);
    whole["usage"] = usage(answer);
    whole
}

pub(crate) fn stream(answer: &WireAnswer<'_>) -> Vec<StreamFrame> {
    let mut frames = Vec::new();
    let mut chunk = |delta: Value, end: Option<&str>, pause_ms: u64| {
        let mut chunk = base(answer, "chat.completion.chunk");
        chunk["choices"] = json!([{ "index": 0, "delta": delta, "finish_reason": end }]);
        frames.push(StreamFrame::new(None, &chunk).after(pause_ms));
    };
    match (words(answer.item), answer.item) {
        (Some((text, pause_ms)), item) => {
            let field = if refuses(item) { "refusal" } else { "content" };
            chunk(json!({ "role": "assistant", "content": "" }), None, 0);
            for piece in pieces(text, pause_ms) {
                chunk(json!({ field: piece }), None, pause_ms);
            }
        }
        (None, AnswerItem::Call { name, input }) => {
            let mut call = call(answer.number, name, input);
            call["index"] = json!(0);
            chunk(json!({ "role": "assistant", "content": "" }), None, 0);
            for piece in lead(answer).into_iter().flat_map(|text| pieces(text, 0)) {
                chunk(json!({ "content": piece }), None, 0);
            }
            chunk(json!({ "tool_calls": [call] }), None, 0);
        }
        (None, _) => {}
    }
    chunk(json!({}), Some(stop(answer.item)), 0);
    let mut last = base(answer, "chat.completion.chunk");
    last["choices"] = json!([]);
    last["usage"] = usage(answer);
    frames.push(StreamFrame::new(None, &last));
    frames.push(StreamFrame {
        event: None,
        data: "[DONE]".to_owned(),
        pause_ms: 0,
    });
    frames
}

fn base(answer: &WireAnswer<'_>, object: &str) -> Value {
    let id = format!("chatcmpl-kit-{:04}", answer.number);
    json!({ "id": id, "object": object, "created": 1_760_000_000, "model": answer.model })
}

fn call(number: usize, name: &str, input: &CallInput) -> Value {
    let arguments = match input {
        CallInput::Json(args) => args.to_string(),
        CallInput::Text(text) => json!({ "input": text }).to_string(),
    };
    let id = format!("call_kit_{number:04}");
    json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } })
}

fn stop(item: &AnswerItem) -> &'static str {
    match item {
        AnswerItem::Call { .. } => "tool_calls",
        item if refuses(item) => "content_filter",
        _ => "stop",
    }
}

fn usage(answer: &WireAnswer<'_>) -> Value {
    let usage = answer.usage;
    let input = usage.fresh + usage.cached;
    json!({
        "prompt_tokens": input, "prompt_tokens_details": { "cached_tokens": usage.cached },
        "completion_tokens": usage.output, "completion_tokens_details": { "reasoning_tokens": 0 },
        "total_tokens": input + usage.output,
    })
}
