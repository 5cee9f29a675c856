//! Maps the actions of OpenHands to calls: the call of an action, its equivalent Windlass calls, and its result.

use serde_json::{Value, json};
use windlass_core::message::{ErrorCategory, ToolCall, ToolResult};
use windlass_core::tool::Effect;

use crate::equivalent_calls::{EquivalentCalls, equivalent, no_equivalent};
use crate::json::{self, clipped};

/// The call of an action event. If the server could not parse the model's call, its raw arguments are used.
pub(super) fn call(event: &Value) -> Option<ToolCall> {
    let text = |key: &str| json::some_text(event, key).filter(|text| !text.is_empty());
    let mut args = match event.get("action").filter(|action| action.is_object()) {
        Some(action) if kind(action) == "MCPToolAction" => {
            action.get("data").cloned().unwrap_or_default()
        }
        Some(action) => action.clone(),
        None => {
            let text = json::text(&event["tool_call"], "arguments");
            serde_json::from_str(text).unwrap_or_else(|_| json!({ "arguments": text }))
        }
    };
    if let Some(args) = args.as_object_mut() {
        args.remove("kind");
    }
    Some(ToolCall::new(
        text("tool_call_id")?,
        text("tool_name")?.to_owned(),
        args,
    ))
}

/// The class of an event, an action or an observation.
pub(super) fn kind(of: &Value) -> &str {
    json::text(of, "kind")
}

/// The equivalent Windlass calls of a call. `cwd` is the directory of the terminal, if it is not the workspace.
pub(super) fn equivalent_calls(name: &str, args: &Value, cwd: Option<&str>) -> EquivalentCalls {
    let text = |key: &str| json::text(args, key);
    let write = |path: &str, content: &str| {
        let (path, content) = (text(path), text(content));
        equivalent("write_file", json!({ "path": path, "content": content }))
    };
    let edit = |path: &str, old: &str, new: &str| {
        let (path, old, new) = (text(path), text(old), text(new));
        equivalent("edit_file", json!({ "path": path, "old": old, "new": new }))
    };
    match name {
        "terminal" if only_waits(args) => no_equivalent(Effect::Read),
        "terminal" => {
            let mut args = json!({ "command": text("command") });
            if let Some(cwd) = cwd {
                args["workdir"] = json!(cwd);
            }
            equivalent("bash", args)
        }
        "file_editor" | "planning_file_editor" => match text("command") {
            "view" => equivalent("read_file", json!({ "path": text("path") })),
            "str_replace" => edit("path", "old_str", "new_str"),
            "create" => write("path", "file_text"),
            // The new content of the file is unknown, so that the judgement depends on the path.
            _ => write("path", "new_str"),
        },
        "write_file" => write("file_path", "content"),
        "edit" => edit("file_path", "old_string", "new_string"),
        "read_file" => equivalent("read_file", json!({ "path": text("file_path") })),
        "list_directory" => equivalent("list_directory", json!({ "path": text("dir_path") })),
        "glob" => equivalent("find_files", searched(args)),
        "grep" => equivalent("grep", searched(args)),
        // These tools store a task list next to the conversation, or think.
        "task_tracker" | "think" | "finish" => no_equivalent(Effect::Read),
        _ => no_equivalent(Effect::Execute),
    }
}

/// Whether the call only reads the output of a running command, or sends it a key such as Ctrl-C.
fn only_waits(args: &Value) -> bool {
    let line = json::text(args, "command").trim();
    let typed = args["is_input"] == true;
    let key = line.strip_prefix("C-").is_some_and(|key| key.len() == 1);
    line.is_empty() || (typed && key)
}

fn searched(args: &Value) -> Value {
    let mut all = json!({ "pattern": args.get("pattern").cloned().unwrap_or_else(|| json!("")) });
    if let Some(path) = json::some_text(args, "path") {
        all["path"] = json!(path);
    }
    all
}

/// The result of a call, from an observation.
pub(super) fn result(event: &Value, call: &ToolCall) -> ToolResult {
    match kind(event) {
        "AgentErrorEvent" => {
            let error = json::some_text(event, "error").unwrap_or("no reason given");
            ToolResult::failed(call, ErrorCategory::Exception, &clipped(error.to_owned()))
        }
        _ => {
            let observation = event.get("observation").unwrap_or(&Value::Null);
            let text = clipped(json::texts(observation, "content"));
            let code = observation["exit_code"].as_i64().filter(|code| *code != 0);
            if observation["is_error"] == true {
                return ToolResult::failed(call, ErrorCategory::Exception, &text);
            }
            let text = match code {
                // The command still runs, or its exit code is unknown.
                Some(-1) | None => text,
                Some(code) => format!("exit code {code}\n{text}"),
            };
            ToolResult::done(call, text)
        }
    }
}

/// The directory of the terminal after a command.
pub(super) fn cwd(event: &Value) -> Option<&str> {
    let dir = event["observation"]["metadata"]["working_dir"].as_str();
    dir.filter(|path| path.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, args: Value, expect: &str) {
        let (like, effect) = equivalent_calls(name, &args, None);
        let like: Vec<String> = like
            .iter()
            .map(|like| format!("{} {}", like.tool, like.args))
            .collect();
        assert_eq!(format!("{effect:?}: {}", like.join("; ")), expect);
    }

    #[test]
    fn calls_are_mapped_to_windlass_tools() {
        check(
            "terminal",
            json!({"command": "ls", "is_input": false}),
            r#"Execute: bash {"command":"ls"}"#,
        );
        check(
            "terminal",
            json!({"command": "rm x", "is_input": true}),
            r#"Execute: bash {"command":"rm x"}"#,
        );
        check(
            "terminal",
            json!({"command": "C-c", "is_input": true}),
            "Read: ",
        );
        check(
            "terminal",
            json!({"command": "C-c"}),
            r#"Execute: bash {"command":"C-c"}"#,
        );
        check(
            "terminal",
            json!({"command": "", "is_input": false}),
            "Read: ",
        );
        check(
            "file_editor",
            json!({"command": "view", "path": "/w/a"}),
            r#"Read: read_file {"path":"/w/a"}"#,
        );
        check(
            "file_editor",
            json!({"command": "create", "path": "/w/a", "file_text": "x"}),
            r#"Write: write_file {"path":"/w/a","content":"x"}"#,
        );
        check(
            "file_editor",
            json!({"command": "str_replace", "path": "/w/a", "old_str": "x", "new_str": "y"}),
            r#"Write: edit_file {"path":"/w/a","old":"x","new":"y"}"#,
        );
        check(
            "file_editor",
            json!({"command": "insert", "path": "/w/a", "insert_line": 1, "new_str": "y"}),
            r#"Write: write_file {"path":"/w/a","content":"y"}"#,
        );
        check(
            "file_editor",
            json!({"command": "brandnew", "path": "/w/a"}),
            r#"Write: write_file {"path":"/w/a","content":""}"#,
        );
        check(
            "write_file",
            json!({"file_path": 7}),
            r#"Write: write_file {"path":"","content":""}"#,
        );
        check(
            "glob",
            json!({"pattern": "*.rs"}),
            r#"Read: find_files {"pattern":"*.rs"}"#,
        );
        check("task_tracker", json!({"command": "plan"}), "Read: ");
        check("docs_search", json!({}), "Execute: ");
    }

    #[test]
    fn the_directory_of_the_terminal_is_part_of_the_call() {
        let (like, _) = equivalent_calls("terminal", &json!({"command": "ls"}), Some("/w/sub"));
        assert_eq!(like[0].args, json!({"command": "ls", "workdir": "/w/sub"}));
    }

    #[track_caller]
    fn check_call(event: Value, expect: Option<&str>) {
        let call = call(&event).map(|call| format!("{} {} {}", call.id, call.name, call.args));
        assert_eq!(call.as_deref(), expect);
    }

    #[test]
    fn the_action_is_the_call_and_unparsable_arguments_stay_raw() {
        check_call(
            json!({"tool_name": "terminal", "tool_call_id": "c", "action": {"kind": "TerminalAction", "command": "ls"}}),
            Some(r#"c terminal {"command":"ls"}"#),
        );
        check_call(
            json!({"tool_name": "find", "tool_call_id": "c", "action": {"kind": "MCPToolAction", "data": {"q": 1}}}),
            Some(r#"c find {"q":1}"#),
        );
        check_call(
            json!({"tool_name": "x", "tool_call_id": "c", "tool_call": {"arguments": "{broken"}}),
            Some(r#"c x {"arguments":"{broken"}"#),
        );
        check_call(json!({"tool_name": "x"}), None);
    }
}
