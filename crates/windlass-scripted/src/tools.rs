//! Finds the tool that an agent offers for a purpose: by its usual names, or by an operation in its schema. Names of
//! arguments are read from the schemas, so that unknown agents work as well. This file has only data and pure lookups.

use serde_json::{Map, Value, json};

use crate::answers::{AnswerItem, CallInput};
use crate::request::{AgentTool, ScriptedRequest, list};

/// A purpose of tools: the names of tools with only this purpose, and the names of the operation in tools with several.
pub(crate) struct ToolPurpose {
    names: &'static [&'static str],
    operations: &'static [&'static str],
}

pub(crate) const SHELL: ToolPurpose = ToolPurpose {
    names: &[
        "Bash",
        "bash",
        "exec_command",
        "shell_command",
        "shell",
        "run_shell_command",
        "developer__shell",
        "terminal",
        "execute_bash",
        "run_command",
        "execute_command",
        "run_terminal_cmd",
    ],
    operations: &[],
};
pub(crate) const READ: ToolPurpose = ToolPurpose {
    names: &["Read", "read", "read_file"],
    operations: &["view", "read"],
};
pub(crate) const WRITE: ToolPurpose = ToolPurpose {
    names: &["Write", "write", "write_file", "create_file"],
    operations: &["create", "write"],
};
pub(crate) const EDIT: ToolPurpose = ToolPurpose {
    names: &["Edit", "edit", "edit_file", "replace", "str_replace"],
    operations: &["str_replace", "replace"],
};
pub(crate) const DELETE: ToolPurpose = ToolPurpose {
    names: &["delete_file", "Delete", "delete"],
    operations: &["delete", "remove"],
};
pub(crate) const PATCH: ToolPurpose = ToolPurpose {
    names: &["apply_patch", "patch"],
    operations: &[],
};
/// Stands for a search tool that has a type of its own instead of a name, and lists no tools. No function can have this
/// name.
pub(crate) const UNLISTED: &str = "type/tool_search";
/// Searches for a host tool, which some agents want before its call.
pub(crate) const SEARCH: ToolPurpose = ToolPurpose {
    names: &["ToolSearch", "tool_search", UNLISTED],
    operations: &[],
};
/// Calls a host tool by name, for agents that do not offer it as a tool of its own.
pub(crate) const CALLER: ToolPurpose = ToolPurpose {
    names: &["tool_call"],
    operations: &[],
};
/// A tool that only gives the form of a structured answer.
pub(crate) const STRUCTURED: ToolPurpose = ToolPurpose {
    names: &[
        "StructuredOutput",
        "structured_output",
        "final_result",
        "final_answer",
        "set_model_response",
        "respond_in_schema",
    ],
    operations: &[],
};

/// The argument that selects an operation.
const OPERATION: &[&str] = &["command", "operation", "action"];
pub(crate) const COMMAND: &[&str] = &["command", "cmd"];
const PATH: &[&str] = &["file_path", "filePath", "absolute_path", "path", "filename"];
/// Path arguments that are always absolute, whatever their description says.
const ABSOLUTE: &[&str] = &["file_path", "filePath", "absolute_path"];
pub(crate) const CONTENT: &[&str] = &["content", "contents", "file_text", "text"];
pub(crate) const OLD: &[&str] = &[
    "old_string",
    "oldString",
    "old",
    "old_text",
    "old_str",
    "before",
    "search",
];
pub(crate) const NEW: &[&str] = &[
    "new_string",
    "newString",
    "new",
    "new_text",
    "new_str",
    "after",
    "replace",
];
pub(crate) const PATCH_TEXT: &[&str] = &["patchText", "patch", "input", "patch_text"];

/// An offered tool, with the operation to select if it has several.
#[derive(Clone, Copy)]
pub(crate) struct OfferedTool<'a> {
    pub(crate) tool: &'a AgentTool,
    operation: Option<(&'static str, &'static str)>,
}

/// The offered tool for this purpose, if any.
pub(crate) fn find<'a>(
    asked: &'a ScriptedRequest,
    wanted: &ToolPurpose,
) -> Option<OfferedTool<'a>> {
    let named = |name: &str| asked.tools.iter().find(|tool| tool.name == name);
    if let Some(tool) = wanted.names.iter().find_map(|name| named(name)) {
        return Some(OfferedTool {
            tool,
            operation: None,
        });
    }
    let offers = |tool: &'a AgentTool| {
        Some(OfferedTool {
            tool,
            operation: Some(operation(tool, wanted.operations)?),
        })
    };
    asked.tools.iter().find_map(offers)
}

/// The argument of a tool that accepts one of these operations, and the operation.
fn operation(tool: &AgentTool, words: &[&'static str]) -> Option<(&'static str, &'static str)> {
    let takes = |argument: &str, word: &str| {
        list(&tool.schema["properties"][argument]["enum"]).any(|known| known.as_str() == Some(word))
    };
    let of = |argument: &&'static str| {
        words
            .iter()
            .find(|word| takes(argument, word))
            .map(|word| (*argument, *word))
    };
    OPERATION.iter().find_map(of)
}

/// Whether a tool only gives the form of a structured answer.
pub(crate) fn is_form(tool: &AgentTool) -> bool {
    STRUCTURED.names.contains(&tool.name.as_str())
}

impl OfferedTool<'_> {
    /// Whether the tool has several operations.
    pub(crate) fn is_operation(&self) -> bool {
        self.operation.is_some()
    }

    /// The first of these names that the tool's schema has; the first name if it has none.
    pub(crate) fn argument(&self, names: &[&'static str]) -> &'static str {
        let properties = &self.tool.schema["properties"];
        names
            .iter()
            .find(|name| properties.get(**name).is_some())
            .or(names.first())
            .copied()
            .unwrap_or_default()
    }

    /// The path argument, with the path in the form that the tool wants.
    pub(crate) fn file(&self, root: &str, path: &str) -> (&'static str, Value) {
        let name = self.argument(PATH);
        let about = self.tool.schema["properties"][name]["description"]
            .as_str()
            .unwrap_or_default()
            .to_lowercase();
        let says = about.contains("absolute") && !about.contains("relative");
        let whole =
            (says || ABSOLUTE.contains(&name)) && !path.starts_with('/') && !root.is_empty();
        (
            name,
            if whole {
                json!(format!("{root}/{path}"))
            } else {
                json!(path)
            },
        )
    }

    /// A call with these arguments, and with fillers for all other required ones.
    pub(crate) fn call(&self, given: &[(&str, Value)]) -> AnswerItem {
        let mut args = Map::new();
        if let Some((argument, word)) = self.operation {
            args.insert(argument.to_owned(), json!(word));
        }
        for (name, value) in given {
            args.insert((*name).to_owned(), value.clone());
        }
        for name in list(&self.tool.schema["required"]).filter_map(Value::as_str) {
            if !args.contains_key(name) {
                args.insert(
                    name.to_owned(),
                    filler(&self.tool.schema["properties"][name]),
                );
            }
        }
        AnswerItem::Call {
            name: self.tool.name.clone(),
            input: CallInput::Json(Value::Object(args)),
        }
    }
}

/// Maximum depth of a schema.
const DEEPEST: usize = 8;

/// The smallest value that a schema accepts: the first value of an enum, false for a boolean, only the required fields
/// of an object.
pub(crate) fn filler(schema: &Value) -> Value {
    filled(schema, DEEPEST)
}

fn filled(schema: &Value, deeper: usize) -> Value {
    if let Some(first) = list(&schema["enum"]).next() {
        return first.clone();
    }
    // Gemini writes types in upper case.
    match schema["type"]
        .as_str()
        .unwrap_or_default()
        .to_lowercase()
        .as_str()
    {
        "boolean" => json!(false),
        "integer" | "number" => json!(1),
        "array" => json!([]),
        "object" if deeper > 0 => {
            let required = list(&schema["required"]).filter_map(Value::as_str);
            let field = |name: &str| {
                (
                    name.to_owned(),
                    filled(&schema["properties"][name], deeper - 1),
                )
            };
            Value::Object(required.map(field).collect())
        }
        "object" => json!({}),
        _ => json!("as the script says"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(schema: Value, expect: Value) {
        assert_eq!(filler(&schema), expect);
    }

    #[test]
    fn a_schema_is_filled_with_the_smallest_value() {
        check(
            json!({ "enum": ["user", "model"], "type": "STRING" }),
            json!("user"),
        );
        check(json!({ "type": "BOOLEAN" }), json!(false));
        check(
            json!({ "type": ["string", "null"] }),
            json!("as the script says"),
        );
        let inner = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
        check(
            json!({ "type": "OBJECT", "properties": { "a": inner, "b": { "type": "array" } }, "required": ["a"] }),
            json!({ "a": { "n": 1 } }),
        );
    }
}
