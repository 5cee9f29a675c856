//! Builds the prompt for a model without native tool calls: the tools, the answer format, and the history in that
//! format. The same request always gives the same bytes.

use serde_json::{Value, json};
use windlass_core::history::Entry;
use windlass_core::message::{ErrorCategory, Message, Part, Role};
use windlass_core::provider::{Request, ToolChoice};
use windlass_core::tool::ToolSet;

const RULES: &str = "\
You act by writing JSON. Every answer of yours is exactly one JSON object and nothing else, in one of two forms.
To use a tool: {\"action\": \"TOOL\", \"arguments\": {...}}
To say something to the person when you are done, or when no tool is needed: {\"answer\": \"...\"}
One action at a time. Its result comes with the next message; never make one up.";

const REMINDER: &str = "\n(Answer with one valid JSON object: {\"action\": \"TOOL\", \"arguments\": {...}} or {\"answer\": \"...\"}.)";

/// Returns the system prompt with the rules and the tools.
pub(super) fn system(request: &Request<'_>) -> String {
    let tools = request
        .tools
        .wire()
        .get_or_encode("json_action", || describe(request.tools).into_bytes());
    let tools = String::from_utf8_lossy(&tools);
    let mut system = format!(
        "{}\n\n{RULES}\n\nTools:\n{tools}",
        request.system.trim_end()
    );
    if let Some(schema) = &request.options.output_schema {
        system.push_str(&format!(
            "\nThe value of \"answer\" is not text but JSON that fits this schema: {schema}\n"
        ));
    }
    match &request.options.tool_choice {
        None | Some(ToolChoice::Auto) => {}
        Some(ToolChoice::None) => system.push_str("\nUse no tool now: give your answer.\n"),
        Some(ToolChoice::Required) => {
            system.push_str("\nUse one of the tools now; do not answer yet.\n")
        }
        Some(ToolChoice::Named(name)) => system.push_str(&format!("\nUse the tool {name} now.\n")),
    }
    system
}

fn describe(tools: &ToolSet) -> String {
    let mut text = String::new();
    for tool in tools.iter() {
        let spec = tool.spec();
        text.push_str(&format!(
            "- {}: {}\n  arguments: {}\n",
            spec.name, spec.description, spec.schema
        ));
    }
    text
}

/// Returns the JSON schema of an answer, for servers that can enforce it.
pub(super) fn schema(request: &Request<'_>) -> Value {
    let choice = request
        .options
        .tool_choice
        .as_ref()
        .unwrap_or(&ToolChoice::Auto);
    let mut forms = Vec::new();
    for tool in request.tools.iter() {
        let spec = tool.spec();
        let wanted = match choice {
            ToolChoice::None => false,
            ToolChoice::Named(name) => *name == spec.name,
            ToolChoice::Auto | ToolChoice::Required => true,
        };
        if wanted {
            forms.push(form(&[
                ("action", json!({ "const": spec.name })),
                ("arguments", spec.schema.clone()),
            ]));
        }
    }
    if forms.is_empty() || matches!(choice, ToolChoice::Auto | ToolChoice::None) {
        let answer = request
            .options
            .output_schema
            .clone()
            .unwrap_or_else(|| json!({ "type": "string" }));
        forms.push(form(&[("answer", answer)]));
    }
    // A single form needs no `anyOf`, and some servers do not support `anyOf` at the top level.
    if forms.len() == 1 {
        forms.remove(0)
    } else {
        json!({ "anyOf": forms })
    }
}

fn form(fields: &[(&str, Value)]) -> Value {
    let properties: serde_json::Map<_, _> = fields
        .iter()
        .map(|(name, of)| ((*name).to_owned(), of.clone()))
        .collect();
    let required: Vec<_> = fields.iter().map(|(name, _)| *name).collect();
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

/// The history as text messages. Consecutive messages of one role become one message, because many of the models that
/// need JSON actions require alternating roles.
#[derive(Default)]
pub(super) struct Translation {
    groups: Vec<TranslatedGroup>,
}

struct TranslatedGroup {
    /// The original entries. Keeping them alive guarantees that an equal address means the same message.
    source: Vec<Entry>,
    translated: Entry,
}

impl Translation {
    /// Translates the history. Groups that were translated before are reused, with the encodings that are cached in
    /// them.
    pub(super) fn update(&mut self, history: &[Entry]) -> Vec<Entry> {
        let mut at = 0;
        let mut rest = history;
        while let Some(first) = rest.first() {
            let role = translated_role(first);
            let len = rest
                .iter()
                .take_while(|entry| translated_role(entry) == role)
                .count();
            let (group, later) = rest.split_at(len);
            rest = later;
            if !self.groups.get(at).is_some_and(|known| known.is_of(group)) {
                self.groups.truncate(at);
                self.groups.push(TranslatedGroup {
                    source: group.to_vec(),
                    translated: translate(group),
                });
            }
            at += 1;
        }
        self.groups.truncate(at);
        self.groups
            .iter()
            .map(|group| group.translated.clone())
            .collect()
    }
}

impl TranslatedGroup {
    fn is_of(&self, group: &[Entry]) -> bool {
        let same = |(a, b): (&Entry, &Entry)| std::ptr::eq::<Message>(&**a, &**b);
        self.source.len() == group.len() && self.source.iter().zip(group).all(same)
    }
}

/// Returns the role of the translated message: tool results become user messages.
fn translated_role(message: &Message) -> Role {
    match message.role {
        Role::Assistant => Role::Assistant,
        Role::User | Role::Tool => Role::User,
    }
}

fn translate(group: &[Entry]) -> Entry {
    let plain = |entry: &Entry| {
        entry.role == Role::User
            && entry
                .parts
                .iter()
                .all(|part| matches!(part, Part::Text { .. } | Part::Image { .. }))
    };
    match group {
        [one] if plain(one) => return one.clone(),
        _ => {}
    }
    let role = group
        .first()
        .map_or(Role::User, |first| translated_role(first));
    let mut parts: Vec<Part> = Vec::new();
    for entry in group {
        let acts = entry.calls().next().is_some();
        for (nth, part) in entry.parts.iter().enumerate() {
            let Part::Text { text } = translate_part(part, role, acts) else {
                parts.push(part.clone());
                continue;
            };
            // A blank line separates messages, calls and results, but not the pieces of one text.
            let separate = !parts.is_empty() && (nth == 0 || !matches!(part, Part::Text { .. }));
            parts.push(Part::Text {
                text: if separate {
                    format!("\n\n{text}")
                } else {
                    text
                },
            });
        }
    }
    let origin = group
        .first()
        .map_or_else(Default::default, |first| first.origin);
    Entry::new(Message {
        role,
        origin,
        parts,
    })
}

fn translate_part(part: &Part, role: Role, acts: bool) -> Part {
    let text = match part {
        // An earlier answer is repeated in the requested format, as an example for the model. Text before an action is
        // not an answer.
        Part::Text { text } if role == Role::Assistant && !acts => {
            json!({ "answer": text }).to_string()
        }
        Part::Call(call) => match &call.malformed {
            Some(raw) => raw.clone(),
            None => json!({ "action": call.name, "arguments": call.args }).to_string(),
        },
        Part::Result(result) => {
            let reminder = match result.error {
                Some(ErrorCategory::InvalidArguments | ErrorCategory::UnknownTool) => REMINDER,
                _ => "",
            };
            format!("Result of {}:\n{}{reminder}", result.name, result.text)
        }
        Part::Text { .. } | Part::Reasoning { .. } | Part::Image { .. } => return part.clone(),
    };
    Part::Text { text }
}
