//! One call of the agent, collected from its updates, and the equivalent Windlass calls. Kind, title, paths and input
//! are claims of the agent: anything in them that would be worse than the stated kind is judged, too.

use std::collections::HashMap;
use std::path::Path;

use agent_client_protocol::v1::schema::{
    ContentBlock, Meta, ToolCallContent, ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields,
    ToolKind,
};
use serde_json::{Map, Value, json};
use windlass_core::id::CallId;
use windlass_core::message::ToolCall;
use windlass_core::tool::{Effect, Like};

use super::text::{clean, clip, shell_line};
use crate::equivalent_calls::EquivalentCalls;
use crate::json;

/// Bytes of a call's input that are kept, and of each new content of a file.
const MAX_KEPT: usize = 256 << 10;
/// Bytes of all new contents of files together.
const MAX_TEXTS: usize = 1 << 20;
/// Fields, paths and new contents that are kept of a call.
const MAX_PATHS: usize = 64;
/// Bytes of a path, or of a field name. Longer ones are ignored.
const MAX_NAME: usize = 4 << 10;
/// Bytes of the result of a call.
const MAX_RESULT: usize = 64 << 10;
/// Characters of each new content of a file in the log of a call.
const MAX_SHOWN: usize = 16 << 10;
const MAX_TITLE: usize = 300;

/// Names that agents use for the text that an edit replaces, and for its replacement.
const OLD_TEXT_FIELDS: &[&str] = &["old_string", "oldString", "old_str", "before"];
const NEW_TEXT_FIELDS: &[&str] = &["new_string", "newString", "new_str", "after"];

/// Names that agents use for the new content of a file.
const CONTENT_FIELDS: &[&str] = &["content", "contents", "file_text", "text"];

/// The state of one call.
#[derive(Debug, Clone, Default)]
pub(super) struct AcpCall {
    /// The id of the call in the log.
    pub id: CallId,
    /// The name of the tool, if the agent reports it.
    pub name: Option<String>,
    /// The title for users, shortened.
    pub title: String,
    /// The complete title: some agents put the command only there. `None` if it is too long to be judged.
    whole_title: Option<String>,
    /// The kind that the agent states.
    pub kind: ToolKind,
    pub status: ToolCallStatus,
    pub input: Map<String, Value>,
    input_bytes: usize,
    pub paths: Vec<String>,
    /// The new contents of files, if the agent shows them.
    pub diffs: Vec<(String, Option<String>)>,
    /// The files that the call deletes, if the agent shows them.
    deleted: Vec<String>,
    /// The text of the result.
    pub text: String,
    /// The raw output, which is used if there is no text.
    pub output: Option<String>,
    pub announced: bool,
    /// Whether the agent asked about the call.
    pub asked: bool,
    /// Whether the call was decided.
    pub judged: bool,
    /// Whether the log says that the call runs.
    pub started: bool,
    /// Whether the agent ran the call without asking.
    pub without_question: bool,
    /// The id of the client's terminal in which the call runs.
    pub terminal: Option<String>,
}

impl AcpCall {
    pub(super) fn new(id: CallId) -> Self {
        Self {
            id,
            ..Self::default()
        }
    }

    /// A copy under another id, which is not logged yet.
    pub(super) fn with_id(self, id: CallId) -> Self {
        Self {
            id,
            announced: false,
            asked: false,
            judged: false,
            started: false,
            ..self
        }
    }

    /// Merges an update of the agent. If the agent states no kind, the names of tools determine it.
    pub(super) fn merge(&mut self, update: ToolCallUpdate, kinds: &HashMap<String, ToolKind>) {
        let ToolCallUpdate { fields, meta, .. } = update;
        let ToolCallUpdateFields {
            kind,
            status,
            title,
            name,
            content,
            locations,
            raw_input,
            raw_output,
            ..
        } = fields;
        if let Some(name) = name.or_else(|| meta.as_ref().and_then(tool_name)) {
            self.name =
                Some(as_tool_name(&name).unwrap_or_else(|| clip(&clean(&name), 64).into_owned()));
        }
        if let Some(title) = title {
            // The first title of a call is often the name of the tool, and a description follows later. A file name is
            // not the name of a tool.
            let is_file = || {
                locations
                    .iter()
                    .flatten()
                    .any(|location| location.path.ends_with(&title))
            };
            if self.title.is_empty() && self.name.is_none() && !is_file() {
                self.name = as_tool_name(&title);
            }
            self.title = clip(&clean(&title), MAX_TITLE).into_owned();
            self.whole_title = (title.len() <= MAX_KEPT).then_some(title);
        }
        if let Some(kind) = kind {
            self.kind = kind;
        }
        if let (ToolKind::Other, Some(kind)) = (
            self.kind,
            self.name.as_ref().and_then(|name| kinds.get(name)),
        ) {
            self.kind = *kind;
        }
        if let Some(status) = status {
            self.status = status;
        }
        if let Some(locations) = locations {
            for location in locations {
                self.path(&location.path.to_string_lossy());
            }
        }
        if let Some(input) = raw_input {
            self.input(input);
        }
        if let Some(output) = raw_output {
            self.output = Some(output_text(&output));
        }
        if let Some(content) = content {
            self.content(content);
        }
        if let Some(data) = meta
            .as_ref()
            .and_then(|meta| meta.get("terminal_output_delta")?.get("data")?.as_str())
        {
            append(&mut self.text, &clean(data));
        }
    }

    fn path(&mut self, path: &str) {
        remember(
            &mut self.paths,
            path.strip_prefix("file://").unwrap_or(path),
        );
    }

    fn input(&mut self, input: Value) {
        let fields = match input {
            Value::Object(fields) => fields,
            other => Map::from_iter([("input".to_owned(), other)]),
        };
        for name in [
            "filePath",
            "filepath",
            "file_path",
            "path",
            "abs_path",
            "absolute_path",
            "notebook_path",
        ] {
            if let Some(path) = fields.get(name).and_then(Value::as_str) {
                self.path(path);
            }
        }
        // New fields replace earlier ones, and other fields stay.
        for (name, value) in fields.into_iter().take(MAX_PATHS) {
            let before = self.input.get(&name).map(size);
            if name.len() > MAX_NAME || (before.is_none() && self.input.len() >= MAX_PATHS) {
                continue;
            }
            let others = self.input_bytes - before.unwrap_or_default();
            let bytes = size(&value);
            let value = if others + bytes <= MAX_KEPT {
                value
            } else {
                json!(format!("[{bytes} bytes omitted]"))
            };
            self.input_bytes = others + size(&value);
            self.input.insert(name, value);
        }
    }

    fn content(&mut self, content: Vec<ToolCallContent>) {
        let mut text = String::new();
        for piece in content {
            match piece {
                ToolCallContent::Content(content) => {
                    append(&mut text, &block_text(&content.content));
                }
                ToolCallContent::Diff(diff) => {
                    let path = diff.path.to_string_lossy().into_owned();
                    self.diffs.retain(|(known, _)| *known != path);
                    // The protocol cannot express that a file is deleted. One agent uses metadata for it.
                    if diff
                        .meta
                        .as_ref()
                        .and_then(|meta| meta.get("kind")?.as_str())
                        == Some("delete")
                    {
                        remember(&mut self.deleted, &path);
                        continue;
                    }
                    let others: usize = self
                        .diffs
                        .iter()
                        .filter_map(|(_, new)| new.as_ref())
                        .map(String::len)
                        .sum();
                    let fits = diff.new_text.len() <= MAX_KEPT
                        && others + diff.new_text.len() <= MAX_TEXTS;
                    let new = fits.then_some(diff.new_text);
                    if self.diffs.len() < MAX_PATHS && path.len() <= MAX_NAME {
                        self.diffs.push((path, new));
                    }
                }
                ToolCallContent::Terminal(terminal) => {
                    self.terminal = Some(clip(&terminal.terminal_id.0, 128).into_owned())
                }
                _ => {}
            }
        }
        // Each update contains the complete content so far.
        if !text.is_empty() {
            self.text = text;
        }
    }

    /// Whether the update contains results that only a running call can have. A terminal is no proof: one agent reports
    /// it and then asks.
    pub(super) fn has_results(&self) -> bool {
        self.status == ToolCallStatus::InProgress
            && (!self.text.is_empty() || self.output.is_some())
    }

    pub(super) fn is_completed(&self) -> bool {
        matches!(
            self.status,
            ToolCallStatus::Completed | ToolCallStatus::Failed
        )
    }

    /// The call for the log, with the agent's own fields.
    pub(super) fn call(&self) -> ToolCall {
        let name = self.name.clone().unwrap_or_else(|| json::word(self.kind));
        let mut args = self.input.clone();
        if args.is_empty() {
            args.insert("title".to_owned(), json!(self.title));
            if !self.paths.is_empty() {
                args.insert("paths".to_owned(), json!(self.paths));
            }
            // The changes are part of the call, because the approval of one text is no approval of another.
            let change = |(path, text): &(String, Option<String>)| json!({ "path": path, "text": clip(text.as_deref().unwrap_or_default(), MAX_SHOWN) });
            if !self.deleted.is_empty() {
                args.insert("deletes".to_owned(), json!(self.deleted));
            }
            if !self.diffs.is_empty() {
                args.insert(
                    "changes".to_owned(),
                    self.diffs.iter().map(change).collect(),
                );
            }
        }
        ToolCall {
            id: self.id.clone(),
            name,
            args: Value::Object(args),
            malformed: None,
        }
    }

    /// The result, as the agent reports it.
    pub(super) fn result(&self) -> String {
        if self.text.is_empty() {
            self.output.clone().unwrap_or_default()
        } else {
            self.text.clone()
        }
    }

    /// The worst effect, by the kind alone.
    pub(super) fn effect(&self) -> Effect {
        match self.kind {
            ToolKind::Read | ToolKind::Search | ToolKind::Think => Effect::Read,
            ToolKind::Edit | ToolKind::Delete | ToolKind::Move => Effect::Write,
            ToolKind::Fetch => Effect::Network,
            _ => Effect::Execute,
        }
    }

    /// The command that the call would run, if there is one.
    pub(super) fn command(&self) -> Option<String> {
        let named = ["command", "cmd", "script"]
            .iter()
            .find_map(|name| self.input.get(*name));
        match named {
            None if self.kind == ToolKind::Execute => self
                .whole_title
                .clone()
                .filter(|title| self.name.as_ref() != Some(title) && !title.trim().is_empty()),
            None => None,
            Some(named) => command_line(named),
        }
    }

    /// The equivalent Windlass calls, in the workspace `root`.
    pub(super) fn equivalent_calls(&self, root: &Path) -> EquivalentCalls {
        let mut like = Vec::new();
        if let Some(command) = self.command() {
            like.push(self.like_bash(&command, root));
        }
        for (path, new) in &self.diffs {
            let content = new.as_deref().unwrap_or_default();
            // Some agents show only the changed part of the file.
            let is_partial = self
                .text_of(NEW_TEXT_FIELDS)
                .is_some_and(|new| new == content)
                && self.text_of(OLD_TEXT_FIELDS).is_some();
            let write = || Like::new("write_file", json!({ "path": path, "content": content }));
            like.push(if is_partial {
                self.like_edit(path)
            } else {
                write()
            });
        }
        like.extend(
            self.deleted
                .iter()
                .map(|path| Like::new("delete_file", json!({ "path": path }))),
        );
        let is_shown = |path: &String| {
            self.deleted.contains(path) || self.diffs.iter().any(|(known, _)| known == path)
        };
        let others = self.paths.iter().filter(|path| !is_shown(path));
        match self.kind {
            _ if self.names_new_text()
                && !matches!(self.kind, ToolKind::Move | ToolKind::Delete) =>
            {
                like.extend(others.map(|path| self.like_edit(path)));
            }
            ToolKind::Edit => like.extend(others.map(|path| self.like_edit(path))),
            ToolKind::Delete => {
                like.extend(others.map(|path| Like::new("delete_file", json!({ "path": path }))))
            }
            ToolKind::Move => like.extend(self.like_move()),
            ToolKind::Read | ToolKind::Think => {
                like.extend(others.map(|path| Like::new("read_file", json!({ "path": path }))))
            }
            ToolKind::Search => like.push(self.like_search()),
            _ => {}
        }
        // A read without a known target may be anything.
        let unknown_target = like.is_empty() && self.kind == ToolKind::Read;
        let writes = !self.diffs.is_empty() || !self.deleted.is_empty() || self.names_new_text();
        if self.command().is_some() {
            return (like, Effect::Execute);
        }
        match (unknown_target, writes) {
            (true, _) => (like, Effect::Execute),
            (false, true) => (like, self.effect().max(Effect::Write)),
            (false, false) => (like, self.effect()),
        }
    }

    /// Whether the call names a file and its new content, independent of the stated kind.
    fn names_new_text(&self) -> bool {
        !self.paths.is_empty()
            && (self.text_of(CONTENT_FIELDS).is_some() || self.text_of(NEW_TEXT_FIELDS).is_some())
    }

    fn text_of(&self, names: &[&str]) -> Option<&str> {
        names
            .iter()
            .find_map(|name| self.input.get(*name).and_then(Value::as_str))
    }

    fn like_bash(&self, command: &str, root: &Path) -> Like {
        let mut args = json!({ "command": command });
        let workdir = self.text_of(&["cwd", "workdir", "directory"]);
        if let Some(workdir) = workdir.filter(|workdir| Path::new(workdir) != root) {
            args["workdir"] = json!(workdir);
        }
        Like::new("bash", args)
    }

    fn like_edit(&self, path: &str) -> Like {
        let (old, new) = (self.text_of(OLD_TEXT_FIELDS), self.text_of(NEW_TEXT_FIELDS));
        match (old, new) {
            (Some(old), Some(new)) if !old.is_empty() => {
                Like::new("edit_file", json!({ "path": path, "old": old, "new": new }))
            }
            _ => {
                let content = self.text_of(CONTENT_FIELDS).unwrap_or_default();
                Like::new("write_file", json!({ "path": path, "content": content }))
            }
        }
    }

    fn like_move(&self) -> Vec<Like> {
        let from = self
            .text_of(&["from", "source", "old_path", "oldPath"])
            .or(self.paths.first().map(String::as_str));
        let to = self
            .text_of(&["to", "destination", "new_path", "newPath"])
            .or(self.paths.get(1).map(String::as_str));
        match (from, to) {
            (Some(from), Some(to)) => vec![Like::new(
                "move_file",
                json!({ "from": from, "to": to, "overwrite": true }),
            )],
            (Some(from), None) => vec![Like::new("delete_file", json!({ "path": from }))],
            _ => Vec::new(),
        }
    }

    fn like_search(&self) -> Like {
        let pattern = self.text_of(&["pattern", "query", "regex"]).unwrap_or(".");
        let mut args = json!({ "pattern": pattern, "literal": true });
        if let Some(path) = self.paths.first() {
            args["path"] = json!(path);
        }
        Like::new("grep", args)
    }
}

/// The text of a content block, or a placeholder for other content.
pub(super) fn block_text(block: &ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => clean(&text.text).into_owned(),
        ContentBlock::ResourceLink(link) => format!("[{}]", clean(&link.uri)),
        ContentBlock::Image(_) => "[image]".to_owned(),
        ContentBlock::Audio(_) => "[audio]".to_owned(),
        _ => "[resource]".to_owned(),
    }
}

/// The name of the tool in the metadata, where some agents put it.
fn tool_name(meta: &Meta) -> Option<String> {
    let at = |path: &[&str]| {
        let mut value = meta.get(path[0])?;
        for name in &path[1..] {
            value = value.get(*name)?;
        }
        value.as_str().map(str::to_owned)
    };
    at(&["toolName"])
        .or_else(|| at(&["claudeCode", "toolName"]))
        .or_else(|| at(&["goose", "toolCall", "toolName"]))
}

/// The text, if it is a name and not a sentence.
fn as_tool_name(text: &str) -> Option<String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    (!text.is_empty() && text.len() <= 64 && text.chars().all(fits) && !text.starts_with('/'))
        .then(|| text.to_owned())
}

/// A command as a line, from a string or a list of arguments.
fn command_line(named: &Value) -> Option<String> {
    match named {
        Value::String(line) if !line.trim().is_empty() => Some(line.clone()),
        Value::Array(words) => {
            let words: Option<Vec<&str>> = words.iter().map(Value::as_str).collect();
            Some(shell_line(&words?))
        }
        _ => None,
    }
}

/// The approximate size of a value.
fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(_) | Value::Object(_) => value.to_string().len(),
        _ => 0,
    }
}

/// The output of a call, from the fields that agents use.
fn output_text(output: &Value) -> String {
    let named = output
        .get("output")
        .or_else(|| output.get("error"))
        .unwrap_or(output);
    let text = match named {
        Value::String(text) => clean(text).into_owned(),
        _ => output.to_string(),
    };
    clip(&text, MAX_RESULT).into_owned()
}

/// Appends to the text of a result, up to the limit. After the first cut nothing is appended, so that the note about the
/// cut appears once and the text stays bounded.
fn append(text: &mut String, more: &str) {
    let remaining = MAX_RESULT.saturating_sub(text.len());
    if remaining > 0 {
        text.push_str(&clip(more, remaining));
    }
}

/// Adds a path once, up to the limit.
fn remember(paths: &mut Vec<String>, path: &str) {
    let known = paths.iter().any(|known| known == path);
    if paths.len() < MAX_PATHS && path.len() <= MAX_NAME && !known {
        paths.push(path.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(kind: ToolKind, input: Value, wanted: &[&str], effect: Effect) {
        let mut acp_call = AcpCall::new(CallId::default());
        acp_call.kind = kind;
        acp_call.input(input);
        let (like, worst) = acp_call.equivalent_calls(Path::new("/w"));
        let names: Vec<&str> = like.iter().map(|like| like.tool.as_str()).collect();
        assert_eq!((names.as_slice(), worst), (wanted, effect));
    }

    #[test]
    fn the_text_of_a_result_is_cut_once() {
        let mut text = "x".repeat(MAX_RESULT - 2);
        append(&mut text, "abc");
        let cut = text.clone();
        assert!(cut.ends_with("xab…[3 bytes in total]"), "{}", cut.len());
        for _ in 0..3 {
            append(&mut text, "more");
        }
        assert_eq!(text, cut);
    }

    #[test]
    fn a_call_is_judged_by_its_fields_and_not_by_its_kind_alone() {
        let write = json!({ "path": "/etc/passwd", "content": "x" });
        for kind in [ToolKind::Think, ToolKind::Read, ToolKind::Search] {
            check(kind, write.clone(), &["write_file"], Effect::Write);
        }
        check(ToolKind::Fetch, write, &["write_file"], Effect::Write);
        let edit = json!({ "file_path": "a", "old_string": "x", "new_string": "y" });
        check(ToolKind::Think, edit, &["edit_file"], Effect::Write);
        let read = json!({ "path": "/root/.ssh/id_rsa" });
        check(ToolKind::Think, read, &["read_file"], Effect::Read);
        let thought = json!({ "thought": "first the tests" });
        check(ToolKind::Think, thought, &[], Effect::Read);
        let command = json!({ "command": "rm -rf ." });
        check(ToolKind::Think, command, &["bash"], Effect::Execute);
    }
}
