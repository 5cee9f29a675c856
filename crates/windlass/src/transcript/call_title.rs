//! The title of a call for views that show one line for each call: a verb and its target.

use serde_json::Value;
use windlass_core::message::ToolCall;

use super::words::{describe_call, first_line, flat, within};

/// The longest target in characters.
const MAX_TARGET: usize = 400;

/// A call as a verb and its target, for example `Read` and `src/main.rs`.
///
/// ```
/// use serde_json::json;
/// use windlass::core::message::ToolCall;
/// use windlass::transcript::CallTitle;
///
/// let call = ToolCall {
///     id: "1".into(),
///     name: "bash".into(),
///     args: json!({ "command": "cargo test" }),
///     malformed: None,
/// };
/// let title = CallTitle::of(&call, "/home/me/project");
/// assert_eq!((title.verb.as_str(), title.target.as_str()), ("Run", "cargo test"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallTitle {
    pub verb: String,
    /// Empty if the call has no subject.
    pub target: String,
}

/// Verbs of the built-in tools and of the usual tools of other agents, by the lower-case name without `_`.
const VERBS: &[(&str, &str)] = &[
    ("readfile", "Read"),
    ("read", "Read"),
    ("readmanyfiles", "Read"),
    ("writefile", "Write"),
    ("write", "Write"),
    ("editfile", "Edit"),
    ("editlines", "Edit"),
    ("edit", "Edit"),
    ("multiedit", "Edit"),
    ("replace", "Edit"),
    ("applypatch", "Patch"),
    ("patch", "Patch"),
    ("deletefile", "Delete"),
    ("delete", "Delete"),
    ("movefile", "Move"),
    ("move", "Move"),
    ("listdirectory", "List"),
    ("ls", "List"),
    ("findfiles", "Find"),
    ("glob", "Find"),
    ("grep", "Search"),
    ("search", "Search"),
    ("searchfilecontent", "Search"),
    ("bash", "Run"),
    ("shell", "Run"),
    ("execute", "Run"),
    ("runshellcommand", "Run"),
    ("commandexecution", "Run"),
    ("gitstatus", "Git status"),
    ("gitdiff", "Git diff"),
    ("notes", "Notes"),
    ("todowrite", "Plan"),
    ("askuser", "Ask"),
    ("calculator", "Calculate"),
    ("python", "Python"),
    ("webfetch", "Fetch"),
    ("fetch", "Fetch"),
    ("websearch", "Search the web"),
    ("spawnagent", "Delegate"),
    ("think", "Think"),
];

impl CallTitle {
    /// The title of a call. Paths in the workspace are shown relative to it.
    #[must_use]
    pub fn of(call: &ToolCall, workspace: &str) -> Self {
        let plain: String = call.name.to_lowercase().replace(['_', '-'], "");
        let verb = VERBS.iter().find(|(name, _)| *name == plain);
        let shown = describe_call(call);
        let target = match shown.split_once(' ') {
            Some((name, _)) => within(&shown, workspace)[name.len()..].trim().to_owned(),
            None => String::new(),
        };
        let target = match (verb, moved(call)) {
            (Some((_, "Move")), Some(moved)) => moved,
            _ => target,
        };
        Self {
            verb: verb.map_or_else(|| flat(&call.name).into_owned(), |(_, verb)| (*verb).into()),
            target: first_line(&target, MAX_TARGET),
        }
    }
}

fn moved(call: &ToolCall) -> Option<String> {
    let text = |key: &str| call.args.get(key).and_then(Value::as_str);
    Some(format!("{} → {}", text("from")?, text("to")?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn calls_have_a_verb_and_a_target() {
        let check = |name: &str, args: Value, verb: &str, target: &str| {
            let call = ToolCall {
                id: "1".into(),
                name: name.into(),
                args,
                malformed: None,
            };
            let title = CallTitle::of(&call, "/w");
            assert_eq!((title.verb.as_str(), title.target.as_str()), (verb, target));
        };
        check("bash", json!({ "command": "ls -l" }), "Run", "ls -l");
        check("read_file", json!({ "path": "a.rs" }), "Read", "a.rs");
        check("Read", json!({ "file_path": "/w/a.rs" }), "Read", "a.rs");
        check(
            "move_file",
            json!({ "from": "a", "to": "b" }),
            "Move",
            "a → b",
        );
        check("git_status", json!({}), "Git status", "");
        check("mcp__x__y", json!({ "text": "hi" }), "mcp__x__y", "hi");
    }
}
