//! Session files of Claude Code: a tree of lines, of which the branch that ends last is the conversation. Other
//! branches, agents beside it and bookkeeping are counted and left out.

use std::collections::{HashMap, HashSet};
use std::io::BufRead;

use serde_json::Value;
use windlass_core::budget::Usage;
use windlass_core::message::{Origin, Part};

use super::weave::{About, Weave};
use super::{Foreign, ImportError, Lines, items, number, text, timestamp, words};

/// Lines of the program's own books.
const BOOKS: &[&str] = &[
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
/// How words begin that the program put in the person's mouth.
const NOT_TYPED: &[&str] = &[
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

/// What the first reading found, and where the second one is.
pub(super) struct Reader {
    /// The number of the last line.
    lines: u64,
    /// The lines of the conversation.
    main: HashSet<u64>,
    /// The message that is being said, and the last one that was paid for.
    message: Option<String>,
    paid: Option<String>,
    usage: Option<Usage>,
}

/// One line of the tree.
struct Node {
    line: u64,
    parent: Option<String>,
    message: Option<String>,
    /// Calls it makes, or results it brings.
    calls: Vec<String>,
    brings: Vec<String>,
    beside: bool,
}

impl Reader {
    /// Reads the file for the first time.
    pub(super) fn plan(file: Box<dyn BufRead + Send>) -> Result<(About, Self), ImportError> {
        let mut lines = Lines::new(file);
        let mut about = About::default();
        let (mut nodes, mut by_id) = (Vec::new(), HashMap::new());
        while let Some((number, line)) = lines.next()? {
            about.lines = number;
            let Some(uuid) = text(&line, "uuid") else {
                continue;
            };
            let node = node(number, &line);
            for id in &node.brings {
                about.results.insert(id.clone(), number);
            }
            if !node.beside {
                about.id = about
                    .id
                    .or_else(|| text(&line, "sessionId").map(str::to_owned));
                if about.workspace.is_empty() {
                    about.workspace = text(&line, "cwd").unwrap_or_default().to_owned();
                }
                if about.model.is_none() {
                    about.model = text(&line["message"], "model").map(str::to_owned);
                }
            }
            by_id.insert(uuid.to_owned(), nodes.len());
            nodes.push(node);
        }
        let reader = Self {
            lines: about.lines,
            main: conversation(&nodes, &by_id),
            message: None,
            paid: None,
            usage: None,
        };
        Ok((about, reader))
    }

    fn assistant(&mut self, line: &Value, weave: &mut Weave) {
        let message = line.get("message").unwrap_or(&Value::Null);
        if line["isApiErrorMessage"] == true || text(message, "model") == Some("<synthetic>") {
            // The program's own words about a failure are nobody's answer.
            let said = items(message, "content")
                .filter_map(|block| text(block, "text"))
                .collect::<Vec<_>>()
                .join("\n");
            return weave.warn("imported_error", said);
        }
        let id = text(message, "id").map(str::to_owned);
        if id.is_none() || id != self.message {
            self.end_message(weave);
            self.message = id;
        }
        if let Some(model) = text(message, "model") {
            weave.model(model);
        }
        for block in items(message, "content") {
            match text(block, "type") {
                Some("text") => weave.say(words(block)),
                Some("thinking") => {
                    let text = text(block, "thinking").unwrap_or_default().to_owned();
                    // A signature is good for one account and model only; the words stay.
                    weave.say(Part::reasoning(text));
                }
                Some("redacted_thinking") => weave.left_out("hidden reasoning"),
                Some("tool_use" | "server_tool_use") => {
                    let args = block.get("input").cloned().filter(Value::is_object);
                    let (id, name) = (
                        text(block, "id").unwrap_or_default(),
                        text(block, "name").unwrap_or_default(),
                    );
                    weave.call(
                        id,
                        name,
                        args.unwrap_or_else(|| serde_json::json!({})),
                        None,
                    );
                }
                other => weave.unknown(format!(
                    "assistant block {}",
                    other.unwrap_or("without a type")
                )),
            }
        }
        self.usage = message.get("usage").map(usage).or(self.usage);
    }

    /// The message is whole: it is said, and paid for once.
    fn end_message(&mut self, weave: &mut Weave) {
        weave.said();
        if let Some(usage) = self.usage.take()
            && (self.message.is_none() || self.message != self.paid)
        {
            self.paid.clone_from(&self.message);
            weave.spend(usage);
        }
    }

    fn user(&mut self, line: &Value, weave: &mut Weave) {
        let message = line.get("message").unwrap_or(&Value::Null);
        let mut said = Vec::new();
        for block in items(message, "content") {
            match text(block, "type") {
                Some("tool_result") => {
                    let id = text(block, "tool_use_id").unwrap_or_default();
                    let failed = block["is_error"] == true;
                    weave.result(id, &result_text(block.get("content")), failed);
                }
                Some("text") => said.push(words(block)),
                Some("image") => match image(block) {
                    Some(image) => said.push(image),
                    None => weave.left_out("images by address"),
                },
                other => weave.unknown(format!("user block {}", other.unwrap_or("without a type"))),
            }
        }
        if let Some(text) = message.get("content").and_then(Value::as_str) {
            said.push(Part::Text {
                text: text.to_owned(),
            });
        }
        if said.is_empty() {
            return;
        }
        self.end_message(weave);
        let first = said.iter().find_map(|part| match part {
            Part::Text { text } => Some(text.trim_start()),
            _ => None,
        });
        let not_typed =
            first.is_some_and(|first| NOT_TYPED.iter().any(|start| first.starts_with(start)));
        let beside_results =
            items(message, "content").any(|block| text(block, "type") == Some("tool_result"));
        if line["isMeta"] == true || line["isCompactSummary"] == true || not_typed {
            weave.injected(said, Origin::Engine);
        } else if beside_results {
            weave.injected(said, Origin::Person);
        } else {
            weave.prompt(said);
        }
    }
}

impl Foreign for Reader {
    fn line(&mut self, number: u64, line: &Value, weave: &mut Weave) {
        let kind = text(line, "type").unwrap_or("without a type");
        match kind {
            "user" | "assistant" if self.main.contains(&number) => {
                weave.at(timestamp(line));
                if kind == "user" {
                    self.user(line, weave)
                } else {
                    self.assistant(line, weave)
                }
            }
            "user" | "assistant" if is_beside(line) => {
                weave.left_out("agents beside the conversation")
            }
            "user" | "assistant" => weave.left_out("branches that were left"),
            kind if BOOKS.contains(&kind) => weave.left_out(kind),
            kind => weave.unknown(kind),
        }
        if number == self.lines {
            self.end_message(weave);
        }
    }
}

fn is_beside(line: &Value) -> bool {
    line["isSidechain"] == true
}

fn node(line_number: u64, line: &Value) -> Node {
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
    Node {
        line: line_number,
        parent,
        message: text(message, "id").map(str::to_owned),
        calls: ids("tool_use", "id"),
        brings: ids("tool_result", "tool_use_id"),
        beside: is_beside(line),
    }
}

/// The lines of the branch that ends last, with everything that its messages and calls need: an answer of several
/// calls is written as lines that branch.
fn conversation(nodes: &[Node], by_id: &HashMap<String, usize>) -> HashSet<u64> {
    let mut on: HashSet<usize> = HashSet::new();
    let mut at = nodes.iter().rposition(|node| !node.beside);
    while let Some(here) = at {
        if !on.insert(here) {
            break; // a circle: somebody else's mistake, which must not hold us
        }
        at = match &nodes[here].parent {
            None => None,
            Some(parent) => match by_id.get(parent) {
                Some(parent) => Some(*parent),
                // The parent is in another file or was never written: what stands before it is the best guess.
                None => nodes[..here].iter().rposition(|node| !node.beside),
            },
        };
    }
    let messages: HashSet<&str> = on
        .iter()
        .filter_map(|at| nodes[*at].message.as_deref())
        .collect();
    let same = |node: &Node| {
        node.message
            .as_deref()
            .is_some_and(|id| messages.contains(id))
    };
    on.extend((0..nodes.len()).filter(|at| !nodes[*at].beside && same(&nodes[*at])));
    let calls: HashSet<&str> = on
        .iter()
        .flat_map(|at| nodes[*at].calls.iter().map(String::as_str))
        .collect();
    let brought = |node: &Node| node.brings.iter().any(|id| calls.contains(id.as_str()));
    on.extend(
        (0..nodes.len())
            .filter(|at| !nodes[*at].beside && brought(&nodes[*at]))
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

/// What a tool answered: text, or blocks of which the text counts.
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
