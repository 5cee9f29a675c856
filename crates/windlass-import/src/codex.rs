//! Rollout files of Codex: one line after the other, of which the response items are the conversation. What was
//! rolled back, the program's own instructions and its books are counted and left out.

use std::io::BufRead;

use serde_json::{Value, json};
use windlass_core::budget::Usage;
use windlass_core::message::{Origin, Part};

use super::weave::{About, Weave};
use super::{Foreign, ImportError, Lines, items, number, text, timestamp, words};

/// Lines that are no part of the conversation.
const BOOKS: &[&str] = &[
    "session_meta",
    "turn_context",
    "event_msg",
    "token_usage_record",
    "world_state",
];
/// Items that stand for what a vendor did or keeps by itself.
const STATE: &[&str] = &[
    "ghost_snapshot",
    "compaction",
    "compaction_summary",
    "compaction_trigger",
    "web_search_call",
];
/// How words begin that the program put in the person's mouth.
const NOT_TYPED: &[&str] = &[
    "<environment_context>",
    "<user_instructions>",
    "<user_action>",
    "<turn_aborted>",
    "<skill>",
    "<user_shell_command>",
    "# AGENTS.md instructions",
];

/// What the first reading found, and where the second one is.
pub(super) struct Reader {
    /// Lines, from and to, that were rolled back.
    rolled_back: Vec<(u64, u64)>,
    paid: Option<Value>,
}

impl Reader {
    /// Reads the file for the first time.
    pub(super) fn plan(file: Box<dyn BufRead + Send>) -> Result<(About, Self), ImportError> {
        let mut lines = Lines::new(file);
        let mut about = About::default();
        let (mut prompts, mut rolled_back) = (Vec::new(), Vec::new());
        while let Some((nth, line)) = lines.next()? {
            about.lines = nth;
            let payload = payload(&line);
            match text(&line, "type") {
                Some("session_meta") if about.id.is_none() => {
                    about.id = text(payload, "id").map(str::to_owned);
                    about.workspace = text(payload, "cwd").unwrap_or_default().to_owned();
                }
                Some("turn_context") if about.model.is_none() => {
                    about.model = text(payload, "model").map(str::to_owned);
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
                    about.results.insert(id, nth);
                }
                _ => {}
            }
        }
        let paid = None;
        Ok((about, Self { rolled_back, paid }))
    }

    fn item(&mut self, item: &Value, weave: &mut Weave) {
        let id = text(item, "call_id")
            .or_else(|| text(item, "id"))
            .unwrap_or_default();
        match text(item, "type").unwrap_or("without a type") {
            "message" => message(item, weave),
            "reasoning" => {
                let pieces = items(item, "summary").chain(items(item, "content"));
                let texts: Vec<&str> = pieces.filter_map(|piece| text(piece, "text")).collect();
                let said = texts.join("\n");
                match said.is_empty() {
                    true => weave.left_out("hidden reasoning"),
                    // Its sealed state is good for one account only; the words stay.
                    false => weave.say(Part::reasoning(said)),
                }
            }
            "function_call" => {
                let raw = text(item, "arguments").unwrap_or("{}");
                let (args, malformed) = match serde_json::from_str::<Value>(raw) {
                    Ok(args) if args.is_object() => (args, None),
                    _ => (json!({}), Some(raw.to_owned())),
                };
                weave.call(id, text(item, "name").unwrap_or_default(), args, malformed);
            }
            "custom_tool_call" => {
                let args = json!({ "input": text(item, "input").unwrap_or_default() });
                weave.call(id, text(item, "name").unwrap_or_default(), args, None);
            }
            "local_shell_call" => {
                let words = items(&item["action"], "command").filter_map(Value::as_str);
                let command = words.collect::<Vec<_>>().join(" ");
                weave.call(id, "local_shell", json!({ "command": command }), None);
            }
            "function_call_output" | "custom_tool_call_output" => {
                weave.said();
                let (said, failed) = output(item.get("output").unwrap_or(&Value::Null));
                weave.result(id, &said, failed);
            }
            kind if STATE.contains(&kind) => weave.left_out(kind),
            kind => weave.unknown(format!("response item {kind}")),
        }
    }

    /// A booking is told again and again; it counts when the total has grown.
    fn token_count(&mut self, payload: &Value, weave: &mut Weave) {
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
        weave.said();
        weave.spend(Usage::of_prompt(
            count("input_tokens"),
            count("cached_input_tokens"),
            count("cache_write_input_tokens"),
            count("output_tokens"),
        ));
    }
}

impl Foreign for Reader {
    fn line(&mut self, number: u64, line: &Value, weave: &mut Weave) {
        if self
            .rolled_back
            .iter()
            .any(|(from, to)| (*from..=*to).contains(&number))
        {
            return weave.left_out("lines that were rolled back");
        }
        weave.at(timestamp(line));
        if let Some(item) = item(line) {
            return self.item(item, weave);
        }
        let payload = payload(line);
        match text(line, "type").unwrap_or("without a type") {
            "turn_context" => {
                if let Some(model) = text(payload, "model") {
                    weave.model(model);
                }
                weave.left_out("turn_context");
            }
            "event_msg" if text(payload, "type") == Some("token_count") => {
                self.token_count(payload, weave);
                weave.left_out("event_msg");
            }
            // What came before stays as it was said; the summary is there for whoever wants less.
            "compacted" => match text(payload, "message").filter(|said| !said.trim().is_empty()) {
                Some(said) => {
                    let text = said.to_owned();
                    weave.injected(vec![Part::Text { text }], Origin::Engine);
                }
                None => weave.left_out("compacted"),
            },
            kind if BOOKS.contains(&kind) => weave.left_out(kind),
            kind => weave.unknown(kind),
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

/// Whether a person typed it.
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
    !NOT_TYPED.iter().any(|start| first.starts_with(start))
}

fn message(item: &Value, weave: &mut Weave) {
    let mut parts = Vec::new();
    for piece in items(item, "content") {
        match text(piece, "type") {
            Some("input_text" | "output_text" | "text") => {
                parts.push(words(piece));
            }
            Some("input_image") => match text(piece, "image_url").and_then(image) {
                Some(image) => parts.push(image),
                None => weave.left_out("images by address"),
            },
            other => weave.unknown(format!(
                "message piece {}",
                other.unwrap_or("without a type")
            )),
        }
    }
    match text(item, "role") {
        Some("assistant") => parts.into_iter().for_each(|part| weave.say(part)),
        Some("user") if is_prompt(item) => weave.prompt(parts),
        _ => weave.left_out("instructions of the other agent"),
    }
}

/// A picture that stands in its address.
fn image(address: &str) -> Option<Part> {
    let (media_type, data) = address.strip_prefix("data:")?.split_once(";base64,")?;
    Some(Part::Image {
        media_type: media_type.to_owned(),
        data: data.to_owned(),
    })
}

/// What a tool answered, and whether it says that it failed.
fn output(output: &Value) -> (String, bool) {
    let said = match output {
        Value::String(said) => said.clone(),
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
    // Older files wrap the answer in JSON of its own.
    if let Ok(Value::Object(wrapped)) = serde_json::from_str::<Value>(&said)
        && let Some(inner) = wrapped.get("output").and_then(Value::as_str)
    {
        let code = wrapped
            .get("metadata")
            .and_then(|about| about["exit_code"].as_i64());
        return (inner.to_owned(), code.is_some_and(|code| code != 0));
    }
    let code = said.lines().take(5).find_map(|line| {
        let code = line
            .strip_prefix("Exit code: ")
            .or_else(|| line.strip_prefix("Process exited with code "))?;
        code.trim().parse::<i64>().ok()
    });
    (said, code.is_some_and(|code| code != 0))
}
