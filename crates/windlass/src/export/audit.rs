//! Exports a session as an audit log: actor, action, rule and result of each event. Hashes and sizes replace the content,
//! so that a reader can verify it without seeing it.

use crate::transcript::{LineBlock, TranscriptLine};
use serde_json::{Map, Value, json};
use windlass_core::event::{Event, EventKind};
use windlass_core::message::ToolCall;

/// The row of an event; `None` if the event is neither an action nor a decision.
pub(super) fn row(event: &Event, line: &TranscriptLine<'_>) -> Option<Value> {
    let is_message = matches!(event.kind, EventKind::Said { .. });
    let mut row = json!({
        "at": line.at, "session": event.session, "seq": line.seq, "run": event.run, "who": line.actor.word(),
        "did": line.action?,
    });
    let mut content: Option<String> = None;
    let mut calls = Vec::new();
    for block in &line.body {
        let text = match block {
            LineBlock::Text(text) => text,
            LineBlock::Preformatted(text) => *text,
            LineBlock::Result(result) => &result.text,
            LineBlock::Call(call) => {
                calls.push(about_call(call));
                continue;
            }
            _ => continue,
        };
        content.get_or_insert_default().push_str(text);
    }
    let row_fields = row.as_object_mut()?;
    if is_message {
        content.get_or_insert_default();
        row_fields.extend((!calls.is_empty()).then(|| ("calls".to_owned(), calls.into())));
    } else {
        row_fields.extend(calls.into_iter().filter_map(object).flatten());
    }
    if let Some(content) = content {
        row_fields.insert("bytes".into(), content.len().into());
        row_fields.insert("blake3".into(), hash(&content).into());
    }
    let facts = object(line.facts.clone()).into_iter().flatten();
    row_fields.extend(facts.filter(|(_, value)| !value.is_null()));
    Some(row)
}

fn object(value: Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(fields) => Some(fields),
        _ => None,
    }
}

fn about_call(call: &ToolCall) -> Value {
    let args = call.args.to_string();
    let mut about = json!({ "call": call.id, "tool": call.name, "args_bytes": args.len(), "args_blake3": hash(&args) });
    if let Some(path) = call.args.get("path").and_then(Value::as_str) {
        about["path"] = path.into();
    }
    about
}

fn hash(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().to_string()
}
