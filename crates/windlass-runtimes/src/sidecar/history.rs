//! The conversation of the log, in the plain items of the sidecar protocol: texts, calls and results. The beginning of
//! a conversation that is too long is omitted, with a note.

use serde_json::{Value, json};
use windlass_core::history::Entry;
use windlass_core::message::{Message, Part, Role};
use windlass_core::runtime::Job;

/// Bytes of a conversation that are sent to a new process.
const MAX_BYTES: usize = 1 << 20;
/// The note in place of the omitted beginning.
const OMITTED_NOTE: &str = "[The beginning of this long conversation is omitted.]";

/// The conversation without the prompt that is sent now.
pub(super) fn items(job: &Job<'_>) -> Vec<Value> {
    let history = job.sink.history();
    let entries = match history.split_last() {
        // After an answer to an ask, the iteration has sent its prompt already.
        Some((last, earlier)) if job.pending.is_empty() && last.role == Role::User => earlier,
        _ => history.as_slice(),
    };
    items_of(entries, MAX_BYTES)
}

fn items_of(entries: &[Entry], most: usize) -> Vec<Value> {
    let mut remaining = most;
    let fits = |entry: &&Entry| {
        let left = remaining.checked_sub(entry.bytes());
        remaining = left.unwrap_or(remaining);
        left.is_some()
    };
    let included = entries.iter().rev().take_while(fits).count();
    let (omitted, included) = entries.split_at(entries.len() - included);
    // A result without its call would be invalid.
    let included = &included[included
        .iter()
        .take_while(|entry| !omitted.is_empty() && entry.role == Role::Tool)
        .count()..];
    let note = (!omitted.is_empty()).then(|| json!({ "type": "user", "text": OMITTED_NOTE }));
    note.into_iter()
        .chain(included.iter().flat_map(|entry| message(entry)))
        .collect()
}

fn message(message: &Message) -> Vec<Value> {
    let who = if message.role == Role::User {
        "user"
    } else {
        "assistant"
    };
    let item = |part: &Part| match part {
        Part::Text { text } if text.trim().is_empty() => None,
        Part::Text { text } => Some(json!({ "type": who, "text": text })),
        Part::Call(call) => Some(
            json!({ "type": "tool_call", "call_id": call.id, "name": call.name, "arguments": call.args }),
        ),
        Part::Result(result) => Some(json!({
            "type": "tool_result",
            "call_id": result.id,
            "name": result.name,
            "content": result.text,
            "is_error": result.error.is_some(),
        })),
        // The reasoning of a model is only usable for its vendor, and images are not passed on.
        Part::Reasoning { .. } | Part::Image { .. } => None,
    };
    message.parts.iter().filter_map(item).collect()
}

#[cfg(test)]
mod tests {
    use windlass_core::message::{Origin, ToolCall, ToolResult};

    use super::*;

    fn call(id: &str) -> ToolCall {
        ToolCall {
            id: id.into(),
            name: "bash".to_owned(),
            args: json!({"command": "ls"}),
            malformed: None,
        }
    }

    fn conversation() -> Vec<Entry> {
        let thought = Part::Reasoning {
            text: "hm".to_owned(),
            opaque: None,
        };
        let parts = vec![
            thought,
            Part::Text {
                text: "I look.".to_owned(),
            },
            Part::Call(call("c1")),
        ];
        let asked = Message {
            role: Role::Assistant,
            origin: Origin::Model,
            parts,
        };
        let result = ToolResult {
            id: "c1".into(),
            name: "bash".into(),
            text: "a".into(),
            error: None,
            artifact: None,
        };
        let answered = Message {
            role: Role::Tool,
            origin: Origin::Engine,
            parts: vec![Part::Result(result)],
        };
        [
            Message::user("Do it."),
            asked,
            answered,
            Message::assistant("Done."),
        ]
        .map(Entry::new)
        .to_vec()
    }

    #[track_caller]
    fn check(most: usize, expect: &[&str]) {
        let items = items_of(&conversation(), most);
        let kinds: Vec<String> = items
            .iter()
            .map(|item| {
                item.get("text")
                    .or(item.get("call_id"))
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned()
            })
            .collect();
        assert_eq!(kinds, expect, "{items:?}");
    }

    #[test]
    fn a_conversation_becomes_plain_items_and_a_long_one_loses_its_beginning() {
        let all = ["Do it.", "I look.", "c1", "c1", "Done."];
        check(MAX_BYTES, &all);
        let sizes: Vec<usize> = conversation().iter().map(Entry::bytes).collect();
        let last = |n: usize| sizes[sizes.len() - n..].iter().sum::<usize>();
        check(last(4), &all);
        check(last(3), &[OMITTED_NOTE, "I look.", "c1", "c1", "Done."]);
        // A result is omitted together with its call.
        check(last(2), &[OMITTED_NOTE, "Done."]);
        check(0, &[OMITTED_NOTE]);
    }
}
