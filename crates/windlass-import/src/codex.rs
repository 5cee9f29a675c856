//! Reads rollout files of Codex. The response items are the conversation. Turns that were rolled back, instructions of
//! the program and bookkeeping are counted and left out.

use std::io::BufRead;

use serde_json::{Value, json};
use windlass_core::budget::Usage;
use windlass_core::message::{Origin, Part};

use super::event_builder::{EventBuilder, SourceSummary};
use super::{
    ForeignReader, ImportError, JsonLineReader, items, number, text, text_part, timestamp,
};

/// Kinds of lines that are not part of the conversation.
const BOOKKEEPING: &[&str] = &[
    "session_meta",
    "turn_context",
    "event_msg",
    "token_usage_record",
    "world_state",
];
/// Kinds of items that represent actions or state of the vendor.
const STATE: &[&str] = &[
    "ghost_snapshot",
    "compaction",
    "compaction_summary",
    "compaction_trigger",
    "web_search_call",
];
/// Prefixes of user messages that the program generated.
const GENERATED_PREFIXES: &[&str] = &[
    "<environment_context>",
    "<user_instructions>",
    "<user_action>",
    "<turn_aborted>",
    "<skill>",
    "<user_shell_command>",
    "# AGENTS.md instructions",
];

/// The findings of the first pass and the state of the second.
pub(super) struct CodexReader {
    /// Ranges of lines, both ends included, that were rolled back.
    rolled_back: Vec<(u64, u64)>,
    /// The last token total that was counted.
    paid: Option<Value>,
}

impl CodexReader {
    /// Performs the first pass.
    pub(super) fn plan(
        file: Box<dyn BufRead + Send>,
    ) -> Result<(SourceSummary, Self), ImportError> {
        let mut lines = JsonLineReader::new(file);
        let mut source = SourceSummary::default();
        let (mut prompts, mut rolled_back) = (Vec::new(), Vec::new());
        while let Some((nth, line)) = lines.next()? {
            source.lines = nth;
            let payload = payload(&line);
            match text(&line, "type") {
                Some("session_meta") if source.id.is_none() => {
                    source.id = text(payload, "id").map(str::to_owned);
                    source.workspace = text(payload, "cwd").unwrap_or_default().to_owned();
                }
                Some("turn_context") if source.model.is_none() => {
                    source.model = text(payload, "model").map(str::to_owned);
                }
                Some("event_msg") if text(payload, "type") == Some("thread_rolled_back") => {
                    let turns = usize::try_from(number(payload, "num_turns"));
                    let turns = turns.unwrap_or(usize::MAX).min(prompts.len());
                    if let Some(from) = prompts.split_off(prompts.len() - turns).first() {
                        rolled_back.push((*from, nth));
                    }
                }
                _ => {}
            }
            let Some(item) = item(&line) else { continue };
            match text(item, "type") {
                Some("message") if is_prompt(item) => prompts.push(nth),
                Some("function_call_output" | "custom_tool_call_output") => {
                    let id = text(item, "call_id").unwrap_or_default().to_owned();
                    source.results.insert(id, nth);
                }
                _ => {}
            }
        }
        let paid = None;
        Ok((source, Self { rolled_back, paid }))
    }

    fn item(&mut self, item: &Value, builder: &mut EventBuilder) {
        let id = text(item, "call_id")
            .or_else(|| text(item, "id"))
            .unwrap_or_default();
        match text(item, "type").unwrap_or("without a type") {
            "message" => message(item, builder),
            "reasoning" => {
                let pieces = items(item, "summary").chain(items(item, "content"));
                let texts: Vec<&str> = pieces.filter_map(|piece| text(piece, "text")).collect();
                let reasoning = texts.join("\n");
                match reasoning.is_empty() {
                    true => builder.left_out("hidden reasoning"),
                    // The encrypted state is valid for one account only, so just the text is kept.
                    false => builder.say(Part::reasoning(reasoning)),
                }
            }
            "function_call" => {
                let raw = text(item, "arguments").unwrap_or("{}");
                let (args, malformed) = match serde_json::from_str::<Value>(raw) {
                    Ok(args) if args.is_object() => (args, None),
                    _ => (json!({}), Some(raw.to_owned())),
                };
                builder.call(id, text(item, "name").unwrap_or_default(), args, malformed);
            }
            "custom_tool_call" => {
                let args = json!({ "input": text(item, "input").unwrap_or_default() });
                builder.call(id, text(item, "name").unwrap_or_default(), args, None);
            }
            "local_shell_call" => {
                let words = items(&item["action"], "command").filter_map(Value::as_str);
                let command = words.collect::<Vec<_>>().join(" ");
                builder.call(id, "local_shell", json!({ "command": command }), None);
            }
            "function_call_output" | "custom_tool_call_output" => {
                builder.end_message();
                let (text, failed) = output(item.get("output").unwrap_or(&Value::Null));
                builder.result(id, &text, failed);
            }
            kind if STATE.contains(&kind) => builder.left_out(kind),
            kind => builder.unknown(format!("response item {kind}")),
        }
    }

    /// Adds token usage. Codex repeats the same record, so it is counted only if the total has changed.
    fn token_count(&mut self, payload: &Value, builder: &mut EventBuilder) {
        let Some(info) = payload.get("info").filter(|info| info.is_object()) else {
            return;
        };
        let total = info.get("total_token_usage").cloned();
        if total.is_none() || total == self.paid {
            return;
        }
        self.paid = total;
        let last = info.get("last_token_usage").unwrap_or(&Value::Null);
        let count = |key: &str| number(last, key);
        builder.end_message();
        builder.spend(Usage::of_prompt(
            count("input_tokens"),
            count("cached_input_tokens"),
            count("cache_write_input_tokens"),
            count("output_tokens"),
        ));
    }
}

impl ForeignReader for CodexReader {
    fn line(&mut self, number: u64, line: &Value, builder: &mut EventBuilder) {
        if self
            .rolled_back
            .iter()
            .any(|(from, to)| (*from..=*to).contains(&number))
        {
            return builder.left_out("lines that were rolled back");
        }
        builder.at(timestamp(line));
        if let Some(item) = item(line) {
            return self.item(item, builder);
        }
        let payload = payload(line);
        match text(line, "type").unwrap_or("without a type") {
            "turn_context" => {
                if let Some(model) = text(payload, "model") {
                    builder.model(model);
                }
                builder.left_out("turn_context");
            }
            "event_msg" if text(payload, "type") == Some("token_count") => {
                self.token_count(payload, builder);
                builder.left_out("event_msg");
            }
            // The messages before a compaction are kept, and its summary is added to them.
            "compacted" => match text(payload, "message").filter(|text| !text.trim().is_empty()) {
                Some(summary) => {
                    let text = summary.to_owned();
                    builder.injected(vec![Part::Text { text }], Origin::Engine);
                }
                None => builder.left_out("compacted"),
            },
            kind if BOOKKEEPING.contains(&kind) => builder.left_out(kind),
            kind => builder.unknown(kind),
        }
    }
}

fn payload(line: &Value) -> &Value {
    line.get("payload").unwrap_or(&Value::Null)
}

/// The response item of a line.
fn item(line: &Value) -> Option<&Value> {
    (text(line, "type") == Some("response_item")).then(|| payload(line))
}

/// Whether the user typed the message.
fn is_prompt(item: &Value) -> bool {
    if text(item, "role") != Some("user") {
        return false;
    }
    let kinds = item
        .pointer("/internal_chat_message_metadata_passthrough/content_item_kinds")
        .and_then(Value::as_array);
    if let Some(kinds) = kinds {
        return kinds
            .iter()
            .filter_map(Value::as_str)
            .any(|kind| kind.starts_with("user."));
    }
    let first = items(item, "content")
        .find_map(|piece| text(piece, "text"))
        .unwrap_or_default()
        .trim_start();
    !GENERATED_PREFIXES
        .iter()
        .any(|start| first.starts_with(start))
}

fn message(item: &Value, builder: &mut EventBuilder) {
    let mut parts = Vec::new();
    for piece in items(item, "content") {
        match text(piece, "type") {
            Some("input_text" | "output_text" | "text") => {
                parts.push(text_part(piece));
            }
            Some("input_image") => match text(piece, "image_url").and_then(image) {
                Some(image) => parts.push(image),
                None => builder.left_out("images by URL"),
            },
            other => builder.unknown(format!(
                "message piece {}",
                other.unwrap_or("without a type")
            )),
        }
    }
    match text(item, "role") {
        Some("assistant") => parts.into_iter().for_each(|part| builder.say(part)),
        Some("user") if is_prompt(item) => builder.prompt(parts),
        _ => builder.left_out("instructions of the other agent"),
    }
}

/// The image in a `data:` URL.
fn image(address: &str) -> Option<Part> {
    let (media_type, data) = address.strip_prefix("data:")?.split_once(";base64,")?;
    Some(Part::Image {
        media_type: media_type.to_owned(),
        data: data.to_owned(),
    })
}

/// The text of a tool result, and whether it reports a failure.
fn output(output: &Value) -> (String, bool) {
    let result = match output {
        Value::String(text) => text.clone(),
        Value::Array(pieces) => {
            let piece = |piece: &Value| {
                text(piece, "text").map_or_else(|| "[not imported]".to_owned(), str::to_owned)
            };
            pieces.iter().map(piece).collect::<Vec<_>>().join("\n")
        }
        Value::Object(map) => map
            .get("content")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned(),
        _ => String::new(),
    };
    // Older files wrap the result in a JSON object.
    if let Ok(Value::Object(wrapped)) = serde_json::from_str::<Value>(&result)
        && let Some(inner) = wrapped.get("output").and_then(Value::as_str)
    {
        let code = wrapped
            .get("metadata")
            .and_then(|source| source["exit_code"].as_i64());
        return (inner.to_owned(), code.is_some_and(|code| code != 0));
    }
    let code = result.lines().take(5).find_map(|line| {
        let code = line
            .strip_prefix("Exit code: ")
            .or_else(|| line.strip_prefix("Process exited with code "))?;
        code.trim().parse::<i64>().ok()
    });
    (result, code.is_some_and(|code| code != 0))
}
