//! Gemini's generateContent, whole and as a stream.

use serde_json::{Value, json};

use super::{StreamFrame, WireAnswer, lead, pieces, refuses, words};
use crate::answers::{AnswerItem, CallInput};
use crate::request::{AgentTool, ScriptedRequest, content, list, schema, text};

pub(crate) fn read(body: &Value, stream: bool) -> ScriptedRequest {
    let mut asked = ScriptedRequest {
        stream,
        ..ScriptedRequest::new(body)
    };
    for tool in list(&body["tools"]).flat_map(|tool| list(&tool["functionDeclarations"])) {
        // The schema may be in any of these fields, and types may be in upper case.
        let fields = [
            "parameters",
            "parametersJsonSchema",
            "parameters_json_schema",
        ];
        let schema = fields
            .iter()
            .map(|field| &tool[*field])
            .find(|schema| schema.is_object())
            .unwrap_or(&Value::Null);
        let (name, about) = (text(&tool["name"]), text(&tool["description"]));
        asked.tools.push(AgentTool {
            name,
            freeform: false,
            about,
            schema: schema.clone(),
        });
    }
    let settings = &body["generationConfig"];
    asked.schema =
        schema(&settings["responseJsonSchema"]).or_else(|| schema(&settings["responseSchema"]));
    for message in list(&body["contents"]).filter(|message| message["role"] == "model") {
        asked.calls += list(&message["parts"])
            .filter(|part| part["functionCall"].is_object())
            .count();
        asked.said.push(content(&message["parts"]));
    }
    asked
}

pub(crate) fn whole(answer: &WireAnswer<'_>) -> Value {
    let part = match answer.item {
        AnswerItem::Text { text, .. } | AnswerItem::Refusal(text) => json!({ "text": text }),
        AnswerItem::Call { name, input } => {
            let args = match input {
                CallInput::Json(args) => args.clone(),
                CallInput::Text(text) => json!({ "input": text }),
            };
            let call = json!({ "id": format!("call_kit_{:04}", answer.number), "name": name, "args": args });
            // Recent models sign their calls and expect the signature back.
            json!({ "functionCall": call, "thoughtSignature": "a2l0LXNpZ25hdHVyZQ==" })
        }
    };
    let words = lead(answer).map(|text| json!({ "text": text }));
    chunk(answer, words.into_iter().chain([part]).collect(), true)
}

pub(crate) fn stream(answer: &WireAnswer<'_>) -> Vec<StreamFrame> {
    let Some((text, pause_ms)) = words(answer.item).filter(|(text, _)| !text.is_empty()) else {
        return vec![StreamFrame::new(None, &whole(answer))];
    };
    let pieces = pieces(text, pause_ms);
    let last = pieces.len() - 1;
    let frame = |(at, piece): (usize, &&str)| {
        StreamFrame::new(None, &chunk(answer, json!([{ "text": piece }]), at == last))
            .after(pause_ms)
    };
    pieces.iter().enumerate().map(frame).collect()
}

fn chunk(answer: &WireAnswer<'_>, parts: Value, last: bool) -> Value {
    let usage = answer.usage;
    let input = usage.fresh + usage.cached;
    let mut candidate = json!({ "index": 0, "content": { "role": "model", "parts": parts } });
    if last {
        candidate["finishReason"] = json!(if refuses(answer.item) {
            "SAFETY"
        } else {
            "STOP"
        });
    }
    json!({
        "candidates": [candidate], "modelVersion": answer.model, "responseId": format!("kit-{:04}", answer.number),
        "usageMetadata": {
            "promptTokenCount": input, "cachedContentTokenCount": usage.cached,
            "candidatesTokenCount": usage.output, "totalTokenCount": input + usage.output,
        },
    })
}
