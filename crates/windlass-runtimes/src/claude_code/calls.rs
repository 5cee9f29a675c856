//! Claude Code's tools in the words of ours, so that its calls are judged by the same rules. What is like nothing of ours
//! is judged by the worst it can do; what nobody knows is taken for a program.

use serde_json::{Map, Value, json};
use windlass_core::message::ToolCall;
use windlass_core::tool::{Effect, ForeignCall, Like};

/// What a call amounts to.
pub(super) fn foreign(call: ToolCall) -> ForeignCall {
    let (like, effect) = likeness(&call.name, &call.args);
    ForeignCall { call, like, effect }
}

fn likeness(name: &str, args: &Value) -> (Vec<Like>, Effect) {
    let path = || text(args, &["file_path"]);
    let one = |tool: &str, args: Value| vec![Like::new(tool, args)];
    match name {
        "Bash" => (one("bash", bash(args)), Effect::Execute),
        "Read" => (one("read_file", json!({ "path": path() })), Effect::Read),
        "Write" => {
            let content = text(args, &["content"]);
            (
                one("write_file", json!({ "path": path(), "content": content })),
                Effect::Write,
            )
        }
        "Edit" | "MultiEdit" => (one("edit_file", edit(args, path())), Effect::Write),
        "NotebookEdit" => {
            let (path, content) = (text(args, &["notebook_path"]), text(args, &["new_source"]));
            (
                one("write_file", json!({ "path": path, "content": content })),
                Effect::Write,
            )
        }
        "Glob" => (
            one("find_files", pick(args, &["pattern", "path"])),
            Effect::Read,
        ),
        "Grep" => (
            one("grep", pick(args, &["pattern", "path", "glob"])),
            Effect::Read,
        ),
        "LS" => (one("list_directory", pick(args, &["path"])), Effect::Read),
        "WebFetch" | "WebSearch" => (Vec::new(), Effect::Network),
        // They plan, look, or start an agent whose own calls are judged one by one.
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
        | "ReadMcpResourceTool" => (Vec::new(), Effect::Read),
        _ => (Vec::new(), Effect::Execute),
    }
}

fn bash(args: &Value) -> Value {
    json!({ "command": text(args, &["command"]) })
}

fn edit(args: &Value, path: String) -> Value {
    let one = |from: &Value| {
        let all = from
            .get("replace_all")
            .and_then(Value::as_bool)
            .unwrap_or_default();
        json!({ "old": text(from, &["old_string"]), "new": text(from, &["new_string"]), "replace_all": all })
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

/// The first of these that is a text. What is missing becomes empty, and our tool's own check refuses it.
fn text(args: &Value, keys: &[&str]) -> String {
    keys.iter()
        .find_map(|key| args.get(key)?.as_str())
        .unwrap_or_default()
        .to_owned()
}

/// Those of these that are texts, under the same names.
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
        let (like, effect) = likeness(name, &args);
        let like: Vec<String> = like
            .iter()
            .map(|like| format!("{} {}", like.tool, like.args))
            .collect();
        assert_eq!(format!("{effect:?}: {}", like.join("; ")), expect);
    }

    #[test]
    fn its_calls_are_judged_as_ours() {
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
