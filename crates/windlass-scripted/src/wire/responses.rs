//! OpenAI Responses, including tools that take plain text.

use serde_json::{Value, json};

use super::{StreamFrame, WireAnswer, lead, pieces, words};
use crate::answers::{AnswerItem, CallInput};
use crate::request::{AgentTool, ScriptedRequest, content, list, schema, text};
use crate::tools::UNLISTED;

/// Separates the namespace of a tool from its name; no name contains it.
const NAMESPACE_SEPARATOR: char = '/';

pub(crate) fn read(body: &Value) -> ScriptedRequest {
    let mut asked = ScriptedRequest::new(body);
    for tool in list(&body["tools"]) {
        take(&mut asked, tool, None);
    }
    asked.schema = schema(&body["text"]["format"]["schema"]);
    for item in list(&body["input"]) {
        match item["type"].as_str().unwrap_or("message") {
            "message" if item["role"] == "assistant" => asked.said.push(content(&item["content"])),
            "function_call" | "custom_tool_call" | "local_shell_call" | "tool_search_call" => {
                asked.calls += 1
            }
            "tool_search_output" => {
                list(&item["tools"]).for_each(|tool| take(&mut asked, tool, None))
            }
            _ => {}
        }
    }
    asked
}

fn take(asked: &mut ScriptedRequest, tool: &Value, space: Option<&str>) {
    let name = match (tool["type"].as_str(), tool["name"].as_str()) {
        (Some("namespace"), name) => {
            return list(&tool["tools"]).for_each(|tool| take(asked, tool, name));
        }
        (Some("tool_search"), None) => UNLISTED.to_owned(),
        (_, Some(name)) => space.map_or_else(
            || name.to_owned(),
            |space| format!("{space}{NAMESPACE_SEPARATOR}{name}"),
        ),
        _ => return,
    };
    let (freeform, about) = (tool["type"] == "custom", text(&tool["description"]));
    asked.tools.push(AgentTool {
        name,
        freeform,
        about,
        schema: tool["parameters"].clone(),
    });
}

pub(crate) fn whole(answer: &WireAnswer<'_>) -> Value {
    let mut response = response(answer, "completed");
    let words = lead(answer).map(|text| said_before(answer, text, "completed"));
    response["output"] = words
        .into_iter()
        .chain([item(answer, "completed")])
        .collect();
    response["usage"] = usage(answer);
    response
}

pub(crate) fn stream(answer: &WireAnswer<'_>) -> Vec<StreamFrame> {
    let mut frames: Vec<StreamFrame> = Vec::new();
    let mut event = |name: &'static str, mut value: Value, pause_ms: u64| {
        value["type"] = json!(name);
        value["sequence_number"] = json!(frames.len());
        frames.push(StreamFrame::new(Some(name), &value).after(pause_ms));
    };
    event(
        "response.created",
        json!({ "response": response(answer, "in_progress") }),
        0,
    );
    event(
        "response.in_progress",
        json!({ "response": response(answer, "in_progress") }),
        0,
    );
    let words = lead(answer).map(|text| {
        let item = |status| said_before(answer, text, status);
        (item("in_progress"), item("completed"))
    });
    let own = (item(answer, "in_progress"), item(answer, "completed"));
    for (at, (begun, done)) in words.into_iter().chain([own]).enumerate() {
        output_item(answer, at, begun, &done, &mut event);
    }
    event(
        "response.completed",
        json!({ "response": whole(answer) }),
        0,
    );
    frames
}

/// The events of one output item of an answer.
fn output_item(
    answer: &WireAnswer<'_>,
    index: usize,
    mut begun: Value,
    done: &Value,
    event: &mut dyn FnMut(&'static str, Value, u64),
) {
    match done["content"].get(0).cloned() {
        Some(part) => {
            let own = words(answer.item).map(|(_, pause_ms)| pause_ms);
            let pause_ms = own.unwrap_or_default();
            let text = ["text", "refusal"]
                .iter()
                .find_map(|field| part[*field].as_str());
            let text = text.unwrap_or_default();
            begun["content"] = json!([]);
            event(
                "response.output_item.added",
                json!({ "output_index": index, "item": begun }),
                0,
            );
            let at = |mut value: Value| {
                value["output_index"] = json!(index);
                value["content_index"] = json!(0);
                value["item_id"] = done["id"].clone();
                value
            };
            let refusal = part["type"] == "refusal";
            let mut empty = part.clone();
            empty[if refusal { "refusal" } else { "text" }] = json!("");
            event(
                "response.content_part.added",
                at(json!({ "part": empty })),
                0,
            );
            let names = match refusal {
                true => ("response.refusal.delta", "response.refusal.done"),
                false => ("response.output_text.delta", "response.output_text.done"),
            };
            for piece in pieces(text, pause_ms) {
                event(names.0, at(json!({ "delta": piece })), pause_ms);
            }
            event(names.1, at(json!({ "text": text, "refusal": text })), 0);
            event("response.content_part.done", at(json!({ "part": part })), 0);
        }
        None => {
            let (field, names) = match done["type"] == "custom_tool_call" {
                true => (
                    "input",
                    (
                        "response.custom_tool_call_input.delta",
                        "response.custom_tool_call_input.done",
                    ),
                ),
                false => (
                    "arguments",
                    (
                        "response.function_call_arguments.delta",
                        "response.function_call_arguments.done",
                    ),
                ),
            };
            // The arguments of a search are not a text, so they are not streamed in pieces.
            let text = done[field].as_str();
            if text.is_some() {
                begun[field] = json!("");
            }
            event(
                "response.output_item.added",
                json!({ "output_index": index, "item": begun }),
                0,
            );
            if let Some(text) = text {
                for piece in pieces(text, 0) {
                    event(
                        names.0,
                        json!({ "output_index": index, "item_id": done["id"], "delta": piece }),
                        0,
                    );
                }
                event(
                    names.1,
                    json!({ "output_index": index, "item_id": done["id"], field: text }),
                    0,
                );
            }
        }
    }
    event(
        "response.output_item.done",
        json!({ "output_index": index, "item": done }),
        0,
    );
}

fn response(answer: &WireAnswer<'_>, status: &str) -> Value {
    json!({
        "id": format!("resp_kit_{:04}", answer.number), "object": "response", "created_at": 1_760_000_000,
        "model": answer.model, "status": status, "output": [], "usage": null, "error": null,
        "incomplete_details": null, "instructions": null, "metadata": {}, "parallel_tool_calls": false,
        "tool_choice": "auto", "tools": [], "temperature": 1.0, "top_p": 1.0,
    })
}

fn item(answer: &WireAnswer<'_>, status: &str) -> Value {
    let number = answer.number;
    let call = format!("call_kit_{number:04}");
    match answer.item {
        AnswerItem::Call {
            name,
            input: CallInput::Json(args),
        } if name == UNLISTED => json!({
            "type": "tool_search_call", "id": format!("tsc_kit_{number:04}"), "call_id": call, "execution": "client",
            "arguments": args, "status": status,
        }),
        AnswerItem::Call {
            name,
            input: CallInput::Text(text),
        } => json!({
            "type": "custom_tool_call", "id": format!("ctc_kit_{number:04}"), "call_id": call, "name": name,
            "input": text, "status": status,
        }),
        AnswerItem::Call {
            name,
            input: CallInput::Json(args),
        } => {
            let (space, name) = name
                .split_once(NAMESPACE_SEPARATOR)
                .map_or((None, name.as_str()), |(space, name)| (Some(space), name));
            let mut called = json!({
                "type": "function_call", "id": format!("fc_kit_{number:04}"), "call_id": call, "name": name,
                "arguments": args.to_string(), "status": status,
            });
            if let Some(space) = space {
                called["namespace"] = json!(space);
            }
            called
        }
        AnswerItem::Text { text, .. } => said(
            number,
            status,
            &json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] }),
        ),
        AnswerItem::Refusal(text) => said(
            number,
            status,
            &json!({ "type": "refusal", "refusal": text }),
        ),
    }
}

/// The text before a call.
fn said_before(answer: &WireAnswer<'_>, text: &str, status: &str) -> Value {
    let part = json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] });
    said(answer.number, status, &part)
}

fn said(number: usize, status: &str, part: &Value) -> Value {
    let id = format!("msg_kit_{number:04}");
    json!({ "type": "message", "id": id, "role": "assistant", "status": status, "content": [part] })
}

fn usage(answer: &WireAnswer<'_>) -> Value {
    let usage = answer.usage;
    let input = usage.fresh + usage.cached;
    json!({
        "input_tokens": input, "input_tokens_details": { "cached_tokens": usage.cached },
        "output_tokens": usage.output, "output_tokens_details": { "reasoning_tokens": 0 },
        "total_tokens": input + usage.output,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::ReportedUsage;

    #[test]
    fn tools_that_a_search_found_are_offered_in_their_namespace() {
        let function = json!({ "type": "function", "name": "look", "parameters": {} });
        let found = json!({ "type": "namespace", "name": "mcp__host", "tools": [function] });
        let asked = read(&json!({
            "tools": [{ "type": "function", "name": "exec" }, { "type": "tool_search" }, { "type": "web_search" }],
            "input": [{ "type": "tool_search_call" }, { "type": "tool_search_output", "tools": [found] }],
        }));
        let names: Vec<&str> = asked.tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(
            (names, asked.calls),
            (vec!["exec", UNLISTED, "mcp__host/look"], 1)
        );
    }

    #[track_caller]
    fn check(name: &str, expect: &[(&str, Value)]) {
        let call = AnswerItem::Call {
            name: name.to_owned(),
            input: CallInput::Json(json!({ "query": "q" })),
        };
        let answer = WireAnswer {
            model: "m",
            item: &call,
            usage: ReportedUsage::default(),
            number: 1,
        };
        let said = whole(&answer)["output"][1].clone();
        for (field, value) in expect {
            assert_eq!(said[field], *value, "{field} of {said}");
        }
        let kinds: Vec<&str> = stream(&answer)
            .iter()
            .filter_map(|frame| frame.event)
            .collect();
        let pieces = kinds.contains(&"response.function_call_arguments.done");
        assert_eq!(pieces, said["type"] == "function_call", "{kinds:?}");
    }

    #[test]
    fn a_call_has_its_namespace_and_a_search_is_no_function() {
        let args = json!(r#"{"query":"q"}"#);
        check(
            "look",
            &[
                ("type", json!("function_call")),
                ("namespace", Value::Null),
                ("arguments", args),
            ],
        );
        check(
            "mcp__host/look",
            &[("name", json!("look")), ("namespace", json!("mcp__host"))],
        );
        let search = [
            ("type", json!("tool_search_call")),
            ("execution", json!("client")),
            ("name", Value::Null),
        ];
        check(UNLISTED, &search);
        check(UNLISTED, &[("arguments", json!({ "query": "q" }))]);
    }
}
