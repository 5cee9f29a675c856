//! What an agent offers its model, looked up by what a tool is for: by its usual names, or by an operation that its
//! schema names. Names of arguments are read from the schemas, so that an agent nobody has seen yet is served as well.
//! Data and lookups alone; pure.

use serde_json::{Map, Value, json};

use crate::offer::{Input, Item};
use crate::request::{Asked, Tool, list};

/// Something a tool is for: the names of tools that do nothing else, and the words for it where one tool does several
/// things and an argument says which.
pub(crate) struct Use {
    names: &'static [&'static str],
    operations: &'static [&'static str],
}

pub(crate) const SHELL: Use = Use {
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
pub(crate) const READ: Use = Use {
    names: &["Read", "read", "read_file"],
    operations: &["view", "read"],
};
pub(crate) const WRITE: Use = Use {
    names: &["Write", "write", "write_file", "create_file"],
    operations: &["create", "write"],
};
pub(crate) const EDIT: Use = Use {
    names: &["Edit", "edit", "edit_file", "replace", "str_replace"],
    operations: &["str_replace", "replace"],
};
pub(crate) const DELETE: Use = Use {
    names: &["delete_file", "Delete", "delete"],
    operations: &["delete", "remove"],
};
pub(crate) const PATCH: Use = Use {
    names: &["apply_patch", "patch"],
    operations: &[],
};
/// Who has to be asked for a host tool before it is called, and who then calls it where it is not called by its name.
/// A search that says where tools are and not which, by a type of its own in the place of a name: no function can be
/// called so.
pub(crate) const UNLISTED: &str = "type/tool_search";
pub(crate) const SEARCH: Use = Use {
    names: &["ToolSearch", "tool_search", UNLISTED],
    operations: &[],
};
pub(crate) const CALLER: Use = Use {
    names: &["tool_call"],
    operations: &[],
};
/// A tool that is the form of an answer, and does nothing.
pub(crate) const STRUCTURED: Use = Use {
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

/// The argument that says which operation is meant.
const OPERATION: &[&str] = &["command", "operation", "action"];
pub(crate) const COMMAND: &[&str] = &["command", "cmd"];
const PATH: &[&str] = &["file_path", "filePath", "absolute_path", "path", "filename"];
/// Those that want the whole path, whatever they say about it.
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

/// An offered tool, with the operation where it wants one.
#[derive(Clone, Copy)]
pub(crate) struct Found<'a> {
    pub(crate) tool: &'a Tool,
    operation: Option<(&'static str, &'static str)>,
}

/// The tool that is for this; none where nothing offered is.
pub(crate) fn find<'a>(asked: &'a Asked, wanted: &Use) -> Option<Found<'a>> {
    let named = |name: &str| asked.tools.iter().find(|tool| tool.name == name);
    if let Some(tool) = wanted.names.iter().find_map(|name| named(name)) {
        return Some(Found {
            tool,
            operation: None,
        });
    }
    let offers = |tool: &'a Tool| {
        Some(Found {
            tool,
            operation: Some(operation(tool, wanted.operations)?),
        })
    };
    asked.tools.iter().find_map(offers)
}

/// The argument of a tool that takes one of these words, and the word.
fn operation(tool: &Tool, words: &[&'static str]) -> Option<(&'static str, &'static str)> {
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

/// Whether a tool is only the form of an answer.
pub(crate) fn is_form(tool: &Tool) -> bool {
    STRUCTURED.names.contains(&tool.name.as_str())
}

impl Found<'_> {
    /// Whether the tool does several things, and is told which.
    pub(crate) fn is_operation(&self) -> bool {
        self.operation.is_some()
    }

    /// The name among these that the tool knows; the first where it knows none.
    pub(crate) fn argument(&self, names: &[&'static str]) -> &'static str {
        let properties = &self.tool.schema["properties"];
        names
            .iter()
            .find(|name| properties.get(**name).is_some())
            .or(names.first())
            .copied()
            .unwrap_or_default()
    }

    /// The argument for a file, and the path in the form that the tool wants.
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

    /// A call with these arguments, and with something for every other one that must be there.
    pub(crate) fn call(&self, given: &[(&str, Value)]) -> Item {
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
        Item::Call {
            name: self.tool.name.clone(),
            input: Input::Json(Value::Object(args)),
        }
    }
}

/// How deep a schema is followed.
const DEEPEST: usize = 8;

/// Something that a schema takes: the first word of a list, no for a question, what must be there of an object.
pub(crate) fn filler(schema: &Value) -> Value {
    filled(schema, DEEPEST)
}

fn filled(schema: &Value, deeper: usize) -> Value {
    if let Some(first) = list(&schema["enum"]).next() {
        return first.clone();
    }
    // Gemini writes types in capitals.
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
    fn a_schema_is_filled_with_the_least_that_it_takes() {
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
