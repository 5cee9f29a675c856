//! From a move of the script to a call of a tool that the agent offers. Names of tools and of their arguments are
//! looked up in what was offered, so that an agent nobody has seen yet is served as well. Pure.

use serde_json::{Map, Value, json};

use crate::request::{Asked, Tool};
use crate::script::{Move, Script};

const SHELL: &[&str] = &[
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
];
const READ: &[&str] = &["Read", "read", "read_file"];
const WRITE: &[&str] = &["Write", "write", "write_file", "create_file"];
const EDIT: &[&str] = &["Edit", "edit", "edit_file", "replace", "str_replace"];
const DELETE: &[&str] = &["delete_file", "Delete", "delete"];
const PATCH: &[&str] = &["apply_patch", "patch"];
/// Who has to be asked for a host tool before it is called.
const SEARCH: &[&str] = &["ToolSearch"];
const STRUCTURED: &[&str] = &["StructuredOutput", "structured_output", "final_result", "final_answer"];

const COMMAND: &[&str] = &["command", "cmd"];
const PATH: &[&str] = &["file_path", "filePath", "absolute_path", "path", "filename"];
/// Those that want the whole path.
const ABSOLUTE: &[&str] = &["file_path", "filePath", "absolute_path"];
const CONTENT: &[&str] = &["content", "contents", "file_text", "text"];
const OLD: &[&str] = &["old_string", "oldString", "old", "old_text", "search", "before"];
const NEW: &[&str] = &["new_string", "newString", "new", "new_text", "replace", "after"];
const PATCH_TEXT: &[&str] = &["patchText", "patch", "input", "patch_text"];

/// What an answer holds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Item {
    Call { name: String, input: Input },
    Text { text: String, pause_ms: u64 },
    Refusal(String),
}

/// The arguments of a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Input {
    Json(Value),
    Text(String),
}

/// One answer in the order of the script.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Played {
    Item(Item),
    /// The move's number, so that failures can be counted.
    Fail {
        number: usize,
        status: u16,
        times: Option<usize>,
    },
    Hang,
}

/// The script as this agent can be made to do it. What it has no tool for is said in words, and named.
pub(crate) fn played(script: &Script, asked: &Asked) -> (Vec<Played>, Option<String>) {
    let mut missing = None;
    let mut all = Vec::new();
    for (number, step) in script.moves.iter().enumerate() {
        match step {
            Move::Fail { status, times } => all.push(Played::Fail { number, status: *status, times: *times }),
            Move::Hang => all.push(Played::Hang),
            step => match items(step, script, asked) {
                Some(items) => all.extend(items.into_iter().map(Played::Item)),
                None => {
                    let names: Vec<&str> = asked.tools.iter().map(|tool| tool.name.as_str()).collect();
                    missing = Some(format!("nothing offered does {step:?}; there is: {}", names.join(", ")));
                    all.push(Played::Item(said("I have no tool for that.")));
                }
            },
        }
    }
    (all, missing)
}

fn said(text: &str) -> Item {
    Item::Text { text: text.to_owned(), pause_ms: 0 }
}

fn items(step: &Move, script: &Script, asked: &Asked) -> Option<Vec<Item>> {
    let one = |item: Item| Some(vec![item]);
    match step {
        Move::Shell(line) => one(shell(asked, line)?),
        Move::Write { path, text } => one(write(script, asked, path, text)?),
        Move::Edit { path, old, new } => edit(script, asked, path, old, new),
        Move::Delete(path) => one(delete(script, asked, path)?),
        Move::Call { tool, args } => {
            let end = format!("__{tool}");
            if let (Some(search), Some(name)) =
                (asked.tool(SEARCH), asked.named.iter().find(|name| name.ends_with(&end)))
            {
                let found = call(search, &[("query", json!(format!("select:{name}")))]);
                return Some(vec![found, Item::Call { name: name.clone(), input: Input::Json(args.clone()) }]);
            }
            let ends = |known: &&Tool| known.name == *tool || known.name.ends_with(&end);
            let name = asked.tools.iter().find(ends).map_or(tool, |known| &known.name).clone();
            one(Item::Call { name, input: Input::Json(args.clone()) })
        }
        Move::Say(text) => one(said(text)),
        Move::Slow { text, pause_ms } => one(Item::Text { text: text.clone(), pause_ms: *pause_ms }),
        Move::Json(value) => match asked.tool(STRUCTURED) {
            Some(tool) => one(Item::Call { name: tool.name.clone(), input: Input::Json(value.clone()) }),
            None => one(said(&value.to_string())),
        },
        Move::Refuse(text) => one(Item::Refusal(text.clone())),
        Move::Fail { .. } | Move::Hang => Some(Vec::new()),
    }
}

fn shell(asked: &Asked, line: &str) -> Option<Item> {
    let tool = asked.tool(SHELL)?;
    let name = known(tool, COMMAND);
    let listed = tool.schema["properties"][name]["type"] == "array";
    let line = if listed { json!(["bash", "-lc", line]) } else { json!(line) };
    Some(call(tool, &[(name, line)]))
}

fn write(script: &Script, asked: &Asked, path: &str, text: &str) -> Option<Item> {
    if let Some(tool) = asked.tool(WRITE) {
        return Some(call(tool, &[file(script, tool, path), (known(tool, CONTENT), json!(text))]));
    }
    let lines: String = text.lines().map(|line| format!("+{line}\n")).collect();
    if let Some(item) = patch(asked, &format!("*** Add File: {path}\n{lines}")) {
        return Some(item);
    }
    shell(asked, &format!("mkdir -p \"$(dirname {0})\" && printf %s {1} > {0}", quoted(path), quoted(text)))
}

fn edit(script: &Script, asked: &Asked, path: &str, old: &str, new: &str) -> Option<Vec<Item>> {
    if let Some(tool) = asked.tool(EDIT) {
        let changed = [file(script, tool, path), (known(tool, OLD), json!(old)), (known(tool, NEW), json!(new))];
        // Agents with these names do not let a file be changed that was not read.
        let read = asked.tool(READ).map(|tool| call(tool, &[file(script, tool, path)]));
        return Some(read.into_iter().chain([call(tool, &changed)]).collect());
    }
    let minus: String = old.lines().map(|line| format!("-{line}\n")).collect();
    let plus: String = new.lines().map(|line| format!("+{line}\n")).collect();
    patch(asked, &format!("*** Update File: {path}\n@@\n{minus}{plus}")).map(|item| vec![item])
}

fn delete(script: &Script, asked: &Asked, path: &str) -> Option<Item> {
    if let Some(tool) = asked.tool(DELETE) {
        return Some(call(tool, &[file(script, tool, path)]));
    }
    patch(asked, &format!("*** Delete File: {path}\n")).or_else(|| shell(asked, &format!("rm -- {}", quoted(path))))
}

fn patch(asked: &Asked, hunks: &str) -> Option<Item> {
    let tool = asked.tool(PATCH)?;
    let text = format!("*** Begin Patch\n{hunks}*** End Patch\n");
    if tool.freeform {
        return Some(Item::Call { name: tool.name.clone(), input: Input::Text(text) });
    }
    Some(call(tool, &[(known(tool, PATCH_TEXT), json!(text))]))
}

fn file<'a>(script: &Script, tool: &Tool, path: &str) -> (&'a str, Value) {
    let name = known(tool, PATH);
    let whole = ABSOLUTE.contains(&name) && !path.starts_with('/') && !script.root.is_empty();
    (name, if whole { json!(format!("{}/{path}", script.root)) } else { json!(path) })
}

/// The name among these that the tool knows; the first where it knows none.
fn known<'a>(tool: &Tool, names: &[&'a str]) -> &'a str {
    let properties = &tool.schema["properties"];
    names.iter().find(|name| properties.get(**name).is_some()).or(names.first()).copied().unwrap_or_default()
}

/// A call with these arguments, and with something for every other one that must be there.
fn call(tool: &Tool, given: &[(&str, Value)]) -> Item {
    let mut args = Map::new();
    for (name, value) in given {
        args.insert((*name).to_owned(), value.clone());
    }
    for name in crate::request::list(&tool.schema["required"]).filter_map(Value::as_str) {
        if !args.contains_key(name) {
            args.insert(name.to_owned(), filler(&tool.schema["properties"][name]));
        }
    }
    Item::Call { name: tool.name.clone(), input: Input::Json(Value::Object(args)) }
}

fn filler(schema: &Value) -> Value {
    if let Some(first) = crate::request::list(&schema["enum"]).next() {
        return first.clone();
    }
    match schema["type"].as_str() {
        Some("boolean") => json!(false),
        Some("integer" | "number") => json!(1),
        Some("array") => json!([]),
        Some("object") => json!({}),
        _ => json!("as the script says"),
    }
}

/// One word for a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, freeform: bool, properties: &[&str], required: &[&str]) -> Tool {
        let properties: Map<String, Value> =
            properties.iter().map(|name| ((*name).to_owned(), json!({ "type": "string" }))).collect();
        let schema = json!({ "properties": properties, "required": required });
        Tool { name: name.to_owned(), freeform, schema }
    }

    #[track_caller]
    fn check(tools: Vec<Tool>, step: Move, expect: &[&str]) {
        let script = Script { moves: vec![step], root: "/w".into(), ..Script::default() };
        let (all, missing) = played(&script, &Asked { tools, ..Asked::default() });
        let shown: Vec<String> = all.iter().map(shown).collect();
        assert_eq!(shown, expect, "{missing:?}");
    }

    fn shown(played: &Played) -> String {
        match played {
            Played::Item(Item::Call { name, input: Input::Json(args) }) => format!("{name} {args}"),
            Played::Item(Item::Call { name, input: Input::Text(text) }) => format!("{name} {text}"),
            Played::Item(Item::Text { text, .. } | Item::Refusal(text)) => text.clone(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn each_agent_is_served_by_its_own_names() {
        let bash = || tool("Bash", false, &["command", "description"], &["command", "description"]);
        check(vec![bash()], Move::Shell("ls".into()), &[r#"Bash {"command":"ls","description":"as the script says"}"#]);
        let write = || Move::Write { path: "a b.txt".into(), text: "it's\n".into() };
        check(
            vec![tool("Write", false, &["file_path", "content"], &[])],
            write(),
            &[r#"Write {"file_path":"/w/a b.txt","content":"it's\n"}"#],
        );
        check(
            vec![tool("write_file", false, &["path", "content"], &[])],
            write(),
            &[r#"write_file {"path":"a b.txt","content":"it's\n"}"#],
        );
        check(
            vec![tool("apply_patch", true, &[], &[])],
            write(),
            &["apply_patch *** Begin Patch\n*** Add File: a b.txt\n+it's\n*** End Patch\n"],
        );
        check(
            vec![tool("exec_command", false, &["cmd"], &["cmd"])],
            write(),
            &[r#"exec_command {"cmd":"mkdir -p \"$(dirname 'a b.txt')\" && printf %s 'it'\\''s\n' > 'a b.txt'"}"#],
        );
    }

    #[test]
    fn a_file_is_read_before_it_is_changed_where_the_agent_wants_that() {
        let read = tool("Read", false, &["file_path"], &["file_path"]);
        let edit = tool("Edit", false, &["file_path", "old_string", "new_string"], &[]);
        let step = Move::Edit { path: "a".into(), old: "x".into(), new: "y".into() };
        let changed = r#"Edit {"file_path":"/w/a","old_string":"x","new_string":"y"}"#;
        check(vec![read, edit], step, &[r#"Read {"file_path":"/w/a"}"#, changed]);
    }

    #[test]
    fn a_host_tool_is_found_behind_its_prefix_and_an_unknown_one_is_called_all_the_same() {
        let step = |name: &str| Move::Call { tool: name.into(), args: json!({}) };
        check(vec![tool("mcp__host__look", false, &[], &[])], step("look"), &["mcp__host__look {}"]);
        check(vec![], step("no_such_tool"), &["no_such_tool {}"]);
        let search = tool("ToolSearch", false, &["query"], &["query"]);
        let script = Script { moves: vec![step("look")], ..Script::default() };
        let named = crate::request::host_tools("there are:\\nmcp__host__look\\nmcp__host__other");
        let (all, _) = played(&script, &Asked { tools: vec![search], named, ..Asked::default() });
        let all: Vec<String> = all.iter().map(shown).collect();
        assert_eq!(all, [r#"ToolSearch {"query":"select:mcp__host__look"}"#, "mcp__host__look {}"]);
        check(vec![], Move::Shell("ls".into()), &["I have no tool for that."]);
    }
}
