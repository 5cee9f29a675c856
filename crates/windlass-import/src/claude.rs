//! Reads session files of Claude Code. The lines form a tree; the branch with the last line is the conversation. Other
//! branches, subagents and bookkeeping are counted and left out.

use std::collections::{HashMap, HashSet};
use std::io::BufRead;

use serde_json::Value;
use windlass_core::budget::Usage;
use windlass_core::message::{Origin, Part};

use super::event_builder::{EventBuilder, SourceSummary};
use super::{
    ForeignReader, ImportError, JsonLineReader, items, number, text, text_part, timestamp,
};

/// Kinds of lines that are not part of the conversation.
const BOOKKEEPING: &[&str] = &[
    "agent-name",
    "ai-title",
    "attachment",
    "custom-title",
    "file-history-snapshot",
    "last-prompt",
    "mode",
    "permission-mode",
    "pr-link",
    "progress",
    "queue-operation",
    "summary",
    "system",
    "tag",
];
/// Prefixes of user messages that the program generated.
const GENERATED_PREFIXES: &[&str] = &[
    "<local-command-",
    "<command-name>",
    "<command-message>",
    "<bash-stdout>",
    "<bash-stderr>",
    "<system-reminder>",
    "<task-notification>",
    "[Request interrupted",
    "Caveat: The messages below",
];

/// The findings of the first pass and the state of the second.
pub(super) struct ClaudeReader {
    /// The number of the last line.
    lines: u64,
    /// The numbers of the lines that belong to the conversation.
    main: HashSet<u64>,
    /// The id of the current message. `paid` is the last message whose usage was counted.
    message: Option<String>,
    paid: Option<String>,
    usage: Option<Usage>,
}

/// One line of the tree.
struct TreeLine {
    line: u64,
    parent: Option<String>,
    message: Option<String>,
    /// The ids of the calls in the line. `results` are the ids of the calls that it has results for.
    calls: Vec<String>,
    results: Vec<String>,
    side_agent: bool,
}

impl ClaudeReader {
    /// Performs the first pass.
    pub(super) fn plan(
        file: Box<dyn BufRead + Send>,
    ) -> Result<(SourceSummary, Self), ImportError> {
        let mut lines = JsonLineReader::new(file);
        let mut source = SourceSummary::default();
        let (mut nodes, mut by_id) = (Vec::new(), HashMap::new());
        while let Some((number, line)) = lines.next()? {
            source.lines = number;
            let Some(uuid) = text(&line, "uuid") else {
                continue;
            };
            let node = node(number, &line);
            for id in &node.results {
                source.results.insert(id.clone(), number);
            }
            if !node.side_agent {
                source.id = source
                    .id
                    .or_else(|| text(&line, "sessionId").map(str::to_owned));
                if source.workspace.is_empty() {
                    source.workspace = text(&line, "cwd").unwrap_or_default().to_owned();
                }
                if source.model.is_none() {
                    source.model = text(&line["message"], "model").map(str::to_owned);
                }
            }
            by_id.insert(uuid.to_owned(), nodes.len());
            nodes.push(node);
        }
        let reader = Self {
            lines: source.lines,
            main: conversation(&nodes, &by_id),
            message: None,
            paid: None,
            usage: None,
        };
        Ok((source, reader))
    }

    fn assistant(&mut self, line: &Value, builder: &mut EventBuilder) {
        let message = line.get("message").unwrap_or(&Value::Null);
        if line["isApiErrorMessage"] == true || text(message, "model") == Some("<synthetic>") {
            // The program wrote this message about a failure; it is not an answer of the model.
            let error = items(message, "content")
                .filter_map(|block| text(block, "text"))
                .collect::<Vec<_>>()
                .join("\n");
            return builder.warn("imported_error", error);
        }
        let id = text(message, "id").map(str::to_owned);
        if id.is_none() || id != self.message {
            self.end_message(builder);
            self.message = id;
        }
        if let Some(model) = text(message, "model") {
            builder.model(model);
        }
        for block in items(message, "content") {
            match text(block, "type") {
                Some("text") => builder.say(text_part(block)),
                Some("thinking") => {
                    let text = text(block, "thinking").unwrap_or_default().to_owned();
                    // The signature is valid for one account and model only, so just the text is kept.
                    builder.say(Part::reasoning(text));
                }
                Some("redacted_thinking") => builder.left_out("hidden reasoning"),
                Some("tool_use" | "server_tool_use") => {
                    let args = block.get("input").cloned().filter(Value::is_object);
                    let (id, name) = (
                        text(block, "id").unwrap_or_default(),
                        text(block, "name").unwrap_or_default(),
                    );
                    builder.call(
                        id,
                        name,
                        args.unwrap_or_else(|| serde_json::json!({})),
                        None,
                    );
                }
                other => builder.unknown(format!(
                    "assistant block {}",
                    other.unwrap_or("without a type")
                )),
            }
        }
        self.usage = message.get("usage").map(usage).or(self.usage);
    }

    /// Completes the current message and counts its usage once.
    fn end_message(&mut self, builder: &mut EventBuilder) {
        builder.end_message();
        if let Some(usage) = self.usage.take()
            && (self.message.is_none() || self.message != self.paid)
        {
            self.paid.clone_from(&self.message);
            builder.spend(usage);
        }
    }

    fn user(&mut self, line: &Value, builder: &mut EventBuilder) {
        let message = line.get("message").unwrap_or(&Value::Null);
        let mut parts = Vec::new();
        for block in items(message, "content") {
            match text(block, "type") {
                Some("tool_result") => {
                    let id = text(block, "tool_use_id").unwrap_or_default();
                    let failed = block["is_error"] == true;
                    builder.result(id, &result_text(block.get("content")), failed);
                }
                Some("text") => parts.push(text_part(block)),
                Some("image") => match image(block) {
                    Some(image) => parts.push(image),
                    None => builder.left_out("images by URL"),
                },
                other => {
                    builder.unknown(format!("user block {}", other.unwrap_or("without a type")))
                }
            }
        }
        if let Some(text) = message.get("content").and_then(Value::as_str) {
            parts.push(Part::Text {
                text: text.to_owned(),
            });
        }
        if parts.is_empty() {
            return;
        }
        self.end_message(builder);
        let first = parts.iter().find_map(|part| match part {
            Part::Text { text } => Some(text.trim_start()),
            _ => None,
        });
        let generated = first.is_some_and(|first| {
            GENERATED_PREFIXES
                .iter()
                .any(|start| first.starts_with(start))
        });
        let with_results =
            items(message, "content").any(|block| text(block, "type") == Some("tool_result"));
        if line["isMeta"] == true || line["isCompactSummary"] == true || generated {
            builder.injected(parts, Origin::Engine);
        } else if with_results {
            builder.injected(parts, Origin::Person);
        } else {
            builder.prompt(parts);
        }
    }
}

impl ForeignReader for ClaudeReader {
    fn line(&mut self, number: u64, line: &Value, builder: &mut EventBuilder) {
        let kind = text(line, "type").unwrap_or("without a type");
        match kind {
            "user" | "assistant" if self.main.contains(&number) => {
                builder.at(timestamp(line));
                if kind == "user" {
                    self.user(line, builder)
                } else {
                    self.assistant(line, builder)
                }
            }
            "user" | "assistant" if is_side_agent(line) => builder.left_out("lines of subagents"),
            "user" | "assistant" => builder.left_out("abandoned branches"),
            kind if BOOKKEEPING.contains(&kind) => builder.left_out(kind),
            kind => builder.unknown(kind),
        }
        if number == self.lines {
            self.end_message(builder);
        }
    }
}

fn is_side_agent(line: &Value) -> bool {
    line["isSidechain"] == true
}

fn node(line_number: u64, line: &Value) -> TreeLine {
    let parent = text(line, "parentUuid")
        .or_else(|| text(line, "logicalParentUuid"))
        .map(str::to_owned);
    let message = line.get("message").unwrap_or(&Value::Null);
    let ids = |kind: &str, key: &str| -> Vec<String> {
        let of_kind = items(message, "content").filter(|block| text(block, "type") == Some(kind));
        of_kind
            .filter_map(|block| text(block, key))
            .map(str::to_owned)
            .collect()
    };
    TreeLine {
        line: line_number,
        parent,
        message: text(message, "id").map(str::to_owned),
        calls: ids("tool_use", "id"),
        results: ids("tool_result", "tool_use_id"),
        side_agent: is_side_agent(line),
    }
}

/// The lines of the branch with the last line, and all other lines of its messages and calls: Claude Code writes an
/// answer with several calls as lines that branch.
fn conversation(nodes: &[TreeLine], by_id: &HashMap<String, usize>) -> HashSet<u64> {
    let mut on: HashSet<usize> = HashSet::new();
    let mut at = nodes.iter().rposition(|node| !node.side_agent);
    while let Some(here) = at {
        if !on.insert(here) {
            break; // The parents form a cycle; without this check the loop would not end.
        }
        at = match &nodes[here].parent {
            None => None,
            Some(parent) => match by_id.get(parent) {
                Some(parent) => Some(*parent),
                // The parent is in another file or was never written: the previous line is the best guess.
                None => nodes[..here].iter().rposition(|node| !node.side_agent),
            },
        };
    }
    let messages: HashSet<&str> = on
        .iter()
        .filter_map(|at| nodes[*at].message.as_deref())
        .collect();
    let same = |node: &TreeLine| {
        node.message
            .as_deref()
            .is_some_and(|id| messages.contains(id))
    };
    on.extend((0..nodes.len()).filter(|at| !nodes[*at].side_agent && same(&nodes[*at])));
    let calls: HashSet<&str> = on
        .iter()
        .flat_map(|at| nodes[*at].calls.iter().map(String::as_str))
        .collect();
    let has_result = |node: &TreeLine| node.results.iter().any(|id| calls.contains(id.as_str()));
    on.extend(
        (0..nodes.len())
            .filter(|at| !nodes[*at].side_agent && has_result(&nodes[*at]))
            .collect::<Vec<_>>(),
    );
    on.into_iter().map(|at| nodes[at].line).collect()
}

fn image(block: &Value) -> Option<Part> {
    let source = block.get("source")?;
    let (media_type, data) = (
        text(source, "media_type")?.to_owned(),
        text(source, "data")?.to_owned(),
    );
    Some(Part::Image { media_type, data })
}

/// The text of a tool result: a string, or blocks of which only the text is kept.
fn result_text(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(blocks)) => {
            let part = |block: &Value| match text(block, "type") {
                Some("text") => text(block, "text").unwrap_or_default().to_owned(),
                other => format!("[{} that was not imported]", other.unwrap_or("something")),
            };
            blocks.iter().map(part).collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

fn usage(usage: &Value) -> Usage {
    let count = |key: &str| number(usage, key);
    Usage {
        input: count("input_tokens"),
        cache_read: count("cache_read_input_tokens"),
        cache_write: count("cache_creation_input_tokens"),
        output: count("output_tokens"),
    }
}
