//! Maps the tools of Claude Code to Windlass tools, so that the same rules judge its calls. A call without an
//! equivalent is judged by its worst effect; an unknown tool is treated as a program.

use serde_json::{Map, Value, json};
use windlass_core::tool::Effect;

use crate::equivalent_calls::{EquivalentCalls, equivalent, no_equivalent};
use crate::json;

/// The equivalent Windlass calls of a call.
pub(super) fn equivalent_calls(name: &str, args: &Value) -> EquivalentCalls {
    let text = |key: &str| json::text(args, key);
    let write = |path: &str, content: &str| {
        let (path, content) = (text(path), text(content));
        equivalent("write_file", json!({ "path": path, "content": content }))
    };
    match name {
        "Bash" => equivalent("bash", json!({ "command": text("command") })),
        "Read" => equivalent("read_file", json!({ "path": text("file_path") })),
        "Write" => write("file_path", "content"),
        "Edit" | "MultiEdit" => equivalent("edit_file", edit(args, text("file_path"))),
        "NotebookEdit" => write("notebook_path", "new_source"),
        "Glob" => equivalent("find_files", pick(args, &["pattern", "path"])),
        "Grep" => equivalent("grep", pick(args, &["pattern", "path", "glob"])),
        "LS" => equivalent("list_directory", pick(args, &["path"])),
        "WebFetch" | "WebSearch" => no_equivalent(Effect::Network),
        // These tools plan, read, or start a subagent whose own calls are judged one by one.
        "Task"
        | "Agent"
        | "TodoWrite"
        | "TaskCreate"
        | "TaskGet"
        | "TaskList"
        | "TaskUpdate"
        | "TaskStop"
        | "TaskOutput"
        | "BashOutput"
        | "KillShell"
        | "KillBash"
        | "EnterPlanMode"
        | "ExitPlanMode"
        | "Skill"
        | "ToolSearch"
        | "StructuredOutput"
        | "AskUserQuestion"
        | "ListAgents"
        | "ReportFindings"
        | "SendMessage"
        | "ListMcpResourcesTool"
        | "ReadMcpResourceTool" => no_equivalent(Effect::Read),
        _ => no_equivalent(Effect::Execute),
    }
}

/// Missing fields become empty, and the check of the Windlass tool refuses them.
fn edit(args: &Value, path: &str) -> Value {
    let one = |from: &Value| {
        let (old, new) = (
            json::text(from, "old_string"),
            json::text(from, "new_string"),
        );
        json!({ "old": old, "new": new, "replace_all": from["replace_all"] == true })
    };
    match args.get("edits").and_then(Value::as_array) {
        Some(edits) => json!({ "path": path, "edits": edits.iter().map(one).collect::<Vec<_>>() }),
        None => {
            let mut edit = one(args);
            edit["path"] = path.into();
            edit
        }
    }
}

/// The fields that are texts, under the same names.
fn pick(args: &Value, keys: &[&str]) -> Value {
    let known = keys
        .iter()
        .filter_map(|key| Some(((*key).to_owned(), args.get(key)?.as_str()?.into())));
    Value::Object(known.collect::<Map<String, Value>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, args: Value, expect: &str) {
        let (like, effect) = equivalent_calls(name, &args);
        let like: Vec<String> = like
            .iter()
            .map(|like| format!("{} {}", like.tool, like.args))
            .collect();
        assert_eq!(format!("{effect:?}: {}", like.join("; ")), expect);
    }

    #[test]
    fn calls_are_mapped_to_windlass_tools() {
        check(
            "Bash",
            json!({"command": "ls", "description": "look"}),
            r#"Execute: bash {"command":"ls"}"#,
        );
        check(
            "Read",
            json!({"file_path": "/w/a", "limit": 3}),
            r#"Read: read_file {"path":"/w/a"}"#,
        );
        check(
            "Write",
            json!({"file_path": "a", "content": "x"}),
            r#"Write: write_file {"path":"a","content":"x"}"#,
        );
        check(
            "Edit",
            json!({"file_path": "a", "old_string": "x", "new_string": "y"}),
            r#"Write: edit_file {"old":"x","new":"y","replace_all":false,"path":"a"}"#,
        );
        check(
            "MultiEdit",
            json!({"file_path": "a", "edits": [{"old_string": "x", "new_string": "y", "replace_all": true}]}),
            r#"Write: edit_file {"path":"a","edits":[{"old":"x","new":"y","replace_all":true}]}"#,
        );
        check(
            "NotebookEdit",
            json!({"notebook_path": "n.ipynb", "file_path": "other", "new_source": "1"}),
            r#"Write: write_file {"path":"n.ipynb","content":"1"}"#,
        );
        check(
            "Grep",
            json!({"pattern": "x", "-n": true}),
            r#"Read: grep {"pattern":"x"}"#,
        );
        check("LS", json!({}), "Read: list_directory {}");
        check("WebFetch", json!({"url": "https://a"}), "Network: ");
        check("Task", json!({}), "Read: ");
        check("mcp__other__thing", json!({}), "Execute: ");
        check("Brandnew", json!({}), "Execute: ");
        check(
            "Write",
            json!({"file_path": 7}),
            r#"Write: write_file {"path":"","content":""}"#,
        );
    }
}
