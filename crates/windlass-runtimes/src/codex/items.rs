//! Maps the items of Codex to calls: the call of an item, its equivalent Windlass calls, and its result.

use serde_json::{Value, json};
use windlass_core::message::{ErrorCategory, ToolCall, ToolResult};
use windlass_core::tool::{Effect, Like};

use crate::equivalent_calls::{EquivalentCalls, equivalent, no_equivalent};
use crate::json;

/// Words of a command line that are parsed.
const MAX_WORDS: usize = 4;

/// The call of an item; `None` if the item is no call.
pub(super) fn call(item: &Value) -> Option<ToolCall> {
    let text = |key: &str| json::text(item, key);
    let args = || item.get("arguments").cloned().unwrap_or_else(|| json!({}));
    let (name, args) = match text("type") {
        "commandExecution" => (
            "exec_command".to_owned(),
            command(text("command"), text("cwd")),
        ),
        "fileChange" => {
            let changes = item.get("changes").cloned().unwrap_or_else(|| json!([]));
            ("apply_patch".to_owned(), json!({ "changes": changes }))
        }
        "mcpToolCall" => (format!("mcp__{}__{}", text("server"), text("tool")), args()),
        "dynamicToolCall" => (text("tool").to_owned(), args()),
        "webSearch" => ("web_search".to_owned(), json!({ "query": text("query") })),
        "imageView" => ("view_image".to_owned(), json!({ "path": text("path") })),
        "collabAgentToolCall" => (
            text("tool").to_owned(),
            json!({ "prompt": item.get("prompt").cloned().unwrap_or_default() }),
        ),
        _ => return None,
    };
    let id = Some(text("id")).filter(|id| !id.is_empty())?;
    Some(ToolCall::new(id, name, args))
}

/// The arguments of a command.
pub(super) fn command(line: &str, cwd: &str) -> Value {
    json!({ "command": unwrap_shell(line), "cwd": cwd })
}

/// The equivalent Windlass calls of a call, in the workspace `root`.
pub(super) fn equivalent_calls(call: &ToolCall, root: &str) -> EquivalentCalls {
    let text = |key: &str| json::text(&call.args, key);
    match call.name.as_str() {
        "exec_command" => {
            let mut args = json!({ "command": text("command") });
            let cwd = text("cwd");
            if !cwd.is_empty() && cwd.trim_end_matches('/') != root.trim_end_matches('/') {
                args["workdir"] = json!(cwd);
            }
            equivalent("bash", args)
        }
        "apply_patch" => {
            let changes = json::items(&call.args, "changes");
            (changes.flat_map(change).collect(), Effect::Write)
        }
        "view_image" => equivalent("read_file", json!({ "path": text("path") })),
        "web_search" => no_equivalent(Effect::Network),
        // A subagent. Its own calls are judged one by one.
        "spawnAgent" | "sendInput" | "resumeAgent" | "wait" | "closeAgent" => {
            no_equivalent(Effect::Read)
        }
        _ => no_equivalent(Effect::Execute),
    }
}

/// One change of a patch. Codex often shows only the diff, so the judgement depends on the path.
fn change(change: &Value) -> Vec<Like> {
    let (path, kind) = (json::text(change, "path"), &change["kind"]);
    let mut likes = vec![match json::some_text(kind, "type") {
        Some("delete") => Like::new("delete_file", json!({ "path": path })),
        _ => {
            let content = json::text(change, "diff");
            Like::new("write_file", json!({ "path": path, "content": content }))
        }
    }];
    if let Some(to) = json::some_text(kind, "move_path") {
        let args = json!({ "from": path, "to": to, "overwrite": true });
        likes.push(Like::new("move_file", args));
    }
    likes
}

/// The result that an item reports for its call.
pub(super) fn result(item: &Value, call: &ToolCall) -> ToolResult {
    let text = |key: &str| json::text(item, key);
    let failed = matches!(text("status"), "failed" | "declined")
        || item.get("success") == Some(&Value::Bool(false));
    let output = match text("type") {
        "commandExecution" => {
            let code = item["exitCode"].as_i64().filter(|code| *code != 0);
            let code = code.map(|code| format!("exit code {code}\n"));
            format!("{}{}", code.unwrap_or_default(), text("aggregatedOutput"))
        }
        "mcpToolCall" => match item["error"]["message"].as_str() {
            Some(error) => error.to_owned(),
            None => json::texts(&item["result"], "content"),
        },
        "dynamicToolCall" => json::texts(item, "contentItems"),
        _ => text("status").to_owned(),
    };
    let output = json::clipped(output);
    if failed {
        return ToolResult::failed(call, ErrorCategory::Exception, &output);
    }
    ToolResult::done(call, output)
}

/// The line inside `/bin/bash -lc '…'`; any other line unchanged.
pub(super) fn unwrap_shell(line: &str) -> String {
    let Some(words) = split_words(line) else {
        return line.to_owned();
    };
    // A shell in the workspace could be any program, and is not unwrapped.
    let shell_dirs = ["/usr/local/bin/", "/usr/bin/", "/bin/"];
    let program_name = |word: &str| {
        shell_dirs
            .iter()
            .find_map(|dir| word.strip_prefix(dir))
            .unwrap_or(word)
            .to_owned()
    };
    let shell = |word: &str| matches!(program_name(word).as_str(), "bash" | "sh" | "zsh" | "dash");
    match words.as_slice() {
        [program, flag, script] if shell(program) && matches!(flag.as_str(), "-lc" | "-c") => {
            script.clone()
        }
        _ => line.to_owned(),
    }
}

/// Splits a line into words by the quoting rules of a shell. `None` if a quote is open, or if there are too many words.
fn split_words(line: &str) -> Option<Vec<String>> {
    let mut words: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        match c {
            ' ' | '\t' | '\n' => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match rest.next()? {
                        '\'' => break,
                        c => word.push(c),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match rest.next()? {
                        '"' => break,
                        '\\' => match rest.next()? {
                            '\n' => {}
                            c @ ('$' | '`' | '"' | '\\') => word.push(c),
                            c => word.extend(['\\', c]),
                        },
                        c => word.push(c),
                    }
                }
            }
            '\\' => word.get_or_insert_default().push(rest.next()?),
            c => word.get_or_insert_default().push(c),
        }
        if words.len() > MAX_WORDS {
            return None;
        }
    }
    words.extend(word);
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(item: Value, expect: &str) {
        let call = call(&item);
        let (like, effect) = call.as_ref().map_or((Vec::new(), Effect::Read), |call| {
            equivalent_calls(call, "/w")
        });
        let like: Vec<String> = like
            .iter()
            .map(|like| format!("{} {}", like.tool, like.args))
            .collect();
        let name = call.map(|call| call.name).unwrap_or_default();
        assert_eq!(format!("{name} {effect:?}: {}", like.join("; ")), expect);
    }

    #[test]
    fn items_are_mapped_to_windlass_tools() {
        check(
            json!({"type": "commandExecution", "id": "c", "command": "/bin/bash -lc 'a && b'", "cwd": "/w"}),
            r#"exec_command Execute: bash {"command":"a && b"}"#,
        );
        check(
            json!({"type": "commandExecution", "id": "c", "command": "ls -la", "cwd": "/w/sub"}),
            r#"exec_command Execute: bash {"command":"ls -la","workdir":"/w/sub"}"#,
        );
        check(
            json!({"type": "fileChange", "id": "c", "changes": [
                {"path": "/w/a", "kind": {"type": "add"}, "diff": "x"},
                {"path": "/w/b", "kind": {"type": "delete"}, "diff": ""},
                {"path": "/w/c", "kind": {"type": "update", "move_path": "/w/d"}, "diff": "@@"},
            ]}),
            "apply_patch Write: write_file {\"path\":\"/w/a\",\"content\":\"x\"}; delete_file {\"path\":\"/w/b\"}; \
             write_file {\"path\":\"/w/c\",\"content\":\"@@\"}; \
             move_file {\"from\":\"/w/c\",\"to\":\"/w/d\",\"overwrite\":true}",
        );
        check(
            json!({"type": "mcpToolCall", "id": "c", "server": "s", "tool": "t"}),
            "mcp__s__t Execute: ",
        );
        check(
            json!({"type": "webSearch", "id": "c", "query": "q"}),
            "web_search Network: ",
        );
        check(
            json!({"type": "agentMessage", "id": "c", "text": "t"}),
            " Read: ",
        );
        check(
            json!({"type": "commandExecution", "command": "ls"}),
            " Read: ",
        );
    }

    #[track_caller]
    fn check_line(line: &str, expect: &str) {
        assert_eq!(unwrap_shell(line), expect);
    }

    #[test]
    fn the_line_inside_a_shell_command_is_found() {
        check_line("/bin/bash -lc 'touch a && cat b'", "touch a && cat b");
        check_line("bash -c ls", "ls");
        check_line(
            r#"/bin/bash -lc "echo 'it'\"x\" \$HOME \n""#,
            r#"echo 'it'"x" $HOME \n"#,
        );
        check_line(r"/usr/bin/zsh -lc 'it'\''s'", "it's");
        check_line("/bin/bash -lc 'open", "/bin/bash -lc 'open");
        check_line("/bin/bash -lc a b", "/bin/bash -lc a b");
        check_line("python -c 'x'", "python -c 'x'");
        check_line("./bash -c ls", "./bash -c ls");
        check_line("/w/bin/sh -c ls", "/w/bin/sh -c ls");
        check_line("", "");
    }
}
