//! Converts a move of the script to an answer for this agent: a call of a tool that it offers, a text, or edits in the
//! text if it offers no tools. All functions are pure.

use serde_json::{Value, json};

use crate::request::{AgentTool, ScriptedRequest};
use crate::script::{Move, Script};
use crate::text_edits;
use crate::tools::{
    self, CALLER, COMMAND, CONTENT, DELETE, EDIT, NEW, OLD, PATCH, PATCH_TEXT, READ, SEARCH, SHELL,
};
use crate::tools::{OfferedTool, STRUCTURED, UNLISTED, WRITE, find};

/// Agents with a tool of one of these names reject a change of a file that was not read before.
const READ_FIRST: &[&str] = &["Read", "read"];

/// Characters between the name of a server and the name of its tool.
const JOINTS: &[char] = &['_', '.', '/', ':', '-'];

/// The content of one answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum AnswerItem {
    Call { name: String, input: CallInput },
    Text { text: String, pause_ms: u64 },
    Refusal(String),
}

/// The arguments of a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum CallInput {
    Json(Value),
    Text(String),
}

/// One answer of the script, in order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ScriptedAnswer {
    Item(AnswerItem),
    /// The number of the move serves to count its failures.
    Fail {
        number: usize,
        status: u16,
        times: Option<usize>,
    },
    Hang,
    /// All moves before it are done if the request contains this text.
    Heard(String),
}

/// Converts the script to answers for this agent. If the agent has no tool for a move, the answer is a text, and the
/// second value names the move.
pub(crate) fn plan_answers(
    script: &Script,
    asked: &ScriptedRequest,
) -> (Vec<ScriptedAnswer>, Option<String>) {
    let (mut missing, mut all) = (None, Vec::new());
    let form = text_edits::edit_format(asked);
    let mut moves = script.moves.iter().enumerate().peekable();
    while let Some((number, step)) = moves.next() {
        match step {
            Move::Fail { status, times } => all.push(ScriptedAnswer::Fail {
                number,
                status: *status,
                times: *times,
            }),
            Move::Hang => all.push(ScriptedAnswer::Hang),
            Move::Heard(words) => all.push(ScriptedAnswer::Heard(words.clone())),
            step => {
                let done = match form.filter(|_| step.changes_a_file()) {
                    Some(form) => {
                        // All changes up to the next other move form one answer.
                        let mut steps = vec![step];
                        while let Some((_, step)) = moves.next_if(|(_, step)| step.changes_a_file())
                        {
                            steps.push(step);
                        }
                        text_edits::answer(form, &steps).map(|text| vec![text_item(&text)])
                    }
                    None => items(step, script, asked),
                };
                all.extend(
                    done.unwrap_or_else(|| {
                        let names: Vec<&str> =
                            asked.tools.iter().map(|tool| tool.name.as_str()).collect();
                        missing = Some(format!(
                            "nothing offered does {step:?}; there is: {}",
                            names.join(", ")
                        ));
                        vec![text_item("I have no tool for that.")]
                    })
                    .into_iter()
                    .map(ScriptedAnswer::Item),
                );
            }
        }
    }
    (all, missing)
}

fn text_item(text: &str) -> AnswerItem {
    AnswerItem::Text {
        text: text.to_owned(),
        pause_ms: 0,
    }
}

fn items(step: &Move, script: &Script, asked: &ScriptedRequest) -> Option<Vec<AnswerItem>> {
    let one = |item: AnswerItem| Some(vec![item]);
    match step {
        Move::Shell(line) => one(shell(asked, line)?),
        Move::Read(path) => one(read(script, asked, path)?),
        Move::Write { path, text } => write(script, asked, path, text),
        Move::Edit { path, old, new } => edit(script, asked, path, old, new),
        Move::Delete(path) => one(delete(script, asked, path)?),
        Move::Call { tool, args } => Some(host_tool(asked, tool, args)),
        Move::Say(text) => one(text_item(text)),
        Move::Slow { text, pause_ms } => one(AnswerItem::Text {
            text: text.clone(),
            pause_ms: *pause_ms,
        }),
        Move::Json(value) => match find(asked, &STRUCTURED) {
            Some(found) => one(AnswerItem::Call {
                name: found.tool.name.clone(),
                input: CallInput::Json(value.clone()),
            }),
            None => one(text_item(&value.to_string())),
        },
        Move::Refuse(text) => one(AnswerItem::Refusal(text.clone())),
        Move::Fail { .. } | Move::Hang | Move::Heard(_) => Some(Vec::new()),
    }
}

/// Calls a tool by its name or the last part of it. If the agent only names its host tools in prose, the answers first
/// search for the tool, and then call it in the agent's way.
fn host_tool(asked: &ScriptedRequest, tool: &str, args: &Value) -> Vec<AnswerItem> {
    let ends = |name: &str| {
        name == tool
            || name
                .strip_suffix(tool)
                .is_some_and(|rest| rest.ends_with(JOINTS))
    };
    let call = |name: &str| AnswerItem::Call {
        name: name.to_owned(),
        input: CallInput::Json(args.clone()),
    };
    let offered = asked
        .tools
        .iter()
        .map(|tool: &AgentTool| &tool.name)
        .find(|name| ends(name));
    let told = asked.named.iter().find(|name| ends(name));
    // After the search, the tool may be offered like any other; the search is still in the history.
    let looked_up = |name: &str| asked.whole.contains(&format!("select:{name}"));
    // A search tool that lists no names is queried with words.
    let words = format!("{tool}: {}", tool.replace('_', " "));
    let told = told.filter(|name| offered.is_none() || looked_up(name));
    match (find(asked, &SEARCH), told) {
        (Some(search), Some(name)) => {
            let found = search.call(&[("query", json!(format!("select:{name}")))]);
            let caller = find(asked, &CALLER);
            let called = caller.map_or_else(
                || call(name),
                |by| by.call(&[("name", json!(name)), ("arguments", args.clone())]),
            );
            vec![found, called]
        }
        (Some(search), None)
            if search.tool.name == UNLISTED
                && (offered.is_none() || asked.whole.contains(&words)) =>
        {
            vec![
                search.call(&[("query", json!(words))]),
                call(offered.map_or(tool, String::as_str)),
            ]
        }
        _ => vec![call(offered.map_or(tool, String::as_str))],
    }
}

fn shell(asked: &ScriptedRequest, line: &str) -> Option<AnswerItem> {
    let found = find(asked, &SHELL)?;
    let name = found.argument(COMMAND);
    let kind = found.tool.schema["properties"][name]["type"]
        .as_str()
        .unwrap_or_default();
    let listed = kind.eq_ignore_ascii_case("array");
    let line = if listed {
        json!(["bash", "-lc", line])
    } else {
        json!(line)
    };
    Some(found.call(&[(name, line)]))
}

fn read(script: &Script, asked: &ScriptedRequest, path: &str) -> Option<AnswerItem> {
    match find(asked, &READ) {
        Some(found) => Some(found.call(&[found.file(&script.root, path)])),
        None => shell(asked, &format!("cat -- {}", quoted(path))),
    }
}

fn write(
    script: &Script,
    asked: &ScriptedRequest,
    path: &str,
    text: &str,
) -> Option<Vec<AnswerItem>> {
    if let Some(found) = find(asked, &WRITE) {
        let written = found.call(&[
            found.file(&script.root, path),
            (found.argument(CONTENT), json!(text)),
        ]);
        // Editors with operations do not create missing directories.
        let folder = path
            .rsplit_once('/')
            .filter(|_| found.is_operation())
            .map(|(folder, _)| folder);
        let made = folder.and_then(|folder| shell(asked, &format!("mkdir -p {}", quoted(folder))));
        return Some(made.into_iter().chain([written]).collect());
    }
    let lines: String = text.lines().map(|line| format!("+{line}\n")).collect();
    let patched = patch(asked, &format!("*** Add File: {path}\n{lines}"));
    let line = || {
        format!(
            "mkdir -p \"$(dirname {0})\" && printf %s {1} > {0}",
            quoted(path),
            quoted(text)
        )
    };
    Some(vec![patched.or_else(|| shell(asked, &line()))?])
}

fn edit(
    script: &Script,
    asked: &ScriptedRequest,
    path: &str,
    old: &str,
    new: &str,
) -> Option<Vec<AnswerItem>> {
    if let Some(found) = find(asked, &EDIT) {
        let (old, new) = (
            (found.argument(OLD), json!(old)),
            (found.argument(NEW), json!(new)),
        );
        let changed = found.call(&[found.file(&script.root, path), old, new]);
        let read = find(asked, &READ).filter(|read| reads_first(&found, read));
        let read = read.map(|read| read.call(&[read.file(&script.root, path)]));
        return Some(read.into_iter().chain([changed]).collect());
    }
    let minus: String = old.lines().map(|line| format!("-{line}\n")).collect();
    let plus: String = new.lines().map(|line| format!("+{line}\n")).collect();
    patch(
        asked,
        &format!("*** Update File: {path}\n@@\n{minus}{plus}"),
    )
    .map(|item| vec![item])
}

/// Whether a file must be read before it may be changed: because of the tool's name, or because its description says
/// so.
fn reads_first(edit: &OfferedTool<'_>, read: &OfferedTool<'_>) -> bool {
    let name = read.tool.name.as_str();
    name != edit.tool.name && (READ_FIRST.contains(&name) || edit.tool.about.contains(name))
}

fn delete(script: &Script, asked: &ScriptedRequest, path: &str) -> Option<AnswerItem> {
    if let Some(found) = find(asked, &DELETE) {
        return Some(found.call(&[found.file(&script.root, path)]));
    }
    patch(asked, &format!("*** Delete File: {path}\n"))
        .or_else(|| shell(asked, &format!("rm -- {}", quoted(path))))
}

fn patch(asked: &ScriptedRequest, hunks: &str) -> Option<AnswerItem> {
    let found = find(asked, &PATCH)?;
    let text = format!("*** Begin Patch\n{hunks}*** End Patch\n");
    if found.tool.freeform {
        return Some(AnswerItem::Call {
            name: found.tool.name.clone(),
            input: CallInput::Text(text),
        });
    }
    Some(found.call(&[(found.argument(PATCH_TEXT), json!(text))]))
}

/// The answer to a side question: a short text, or the smallest value that its schema accepts.
pub(crate) fn side_answer(asked: &ScriptedRequest, words: &str) -> AnswerItem {
    let text = asked.schema.as_ref().map_or_else(
        || words.to_owned(),
        |schema| tools::filler(schema).to_string(),
    );
    text_item(&text)
}

/// Quotes a text as one shell word.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;

    /// A tool of this name with text arguments; those with a leading `!` are required.
    fn tool(name: &str, arguments: &str) -> AgentTool {
        let names: Vec<&str> = arguments.split_whitespace().collect();
        let properties: Map<String, Value> = names
            .iter()
            .map(|name| {
                (
                    name.trim_start_matches('!').to_owned(),
                    json!({ "type": "string" }),
                )
            })
            .collect();
        let required: Vec<&str> = names
            .iter()
            .filter_map(|name| name.strip_prefix('!'))
            .collect();
        let schema = json!({ "type": "object", "properties": properties, "required": required });
        AgentTool {
            name: name.to_owned(),
            freeform: false,
            about: String::new(),
            schema,
        }
    }

    #[track_caller]
    fn check(tools: Vec<AgentTool>, step: Move, expect: &[&str]) {
        let script = Script {
            moves: vec![step],
            root: "/w".into(),
            ..Script::default()
        };
        let (all, missing) = plan_answers(
            &script,
            &ScriptedRequest {
                tools,
                ..ScriptedRequest::default()
            },
        );
        let shown: Vec<String> = all.iter().map(shown).collect();
        assert_eq!(shown, expect, "{missing:?}");
    }

    fn shown(played: &ScriptedAnswer) -> String {
        match played {
            ScriptedAnswer::Item(AnswerItem::Call {
                name,
                input: CallInput::Json(args),
            }) => format!("{name} {args}"),
            ScriptedAnswer::Item(AnswerItem::Call {
                name,
                input: CallInput::Text(text),
            }) => format!("{name} {text}"),
            ScriptedAnswer::Item(AnswerItem::Text { text, .. } | AnswerItem::Refusal(text)) => {
                text.clone()
            }
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn each_agent_is_served_by_its_own_names() {
        let bash = tool("Bash", "!command !description");
        check(
            vec![bash],
            Move::Shell("ls".into()),
            &[r#"Bash {"command":"ls","description":"as the script says"}"#],
        );
        let write = || Move::Write {
            path: "a b.txt".into(),
            text: "it's\n".into(),
        };
        check(
            vec![tool("Write", "file_path content")],
            write(),
            &[r#"Write {"file_path":"/w/a b.txt","content":"it's\n"}"#],
        );
        check(
            vec![tool("write_file", "path content")],
            write(),
            &[r#"write_file {"path":"a b.txt","content":"it's\n"}"#],
        );
        check(
            vec![AgentTool {
                freeform: true,
                ..tool("apply_patch", "")
            }],
            write(),
            &["apply_patch *** Begin Patch\n*** Add File: a b.txt\n+it's\n*** End Patch\n"],
        );
        check(
            vec![tool("exec_command", "!cmd")],
            write(),
            &[
                r#"exec_command {"cmd":"mkdir -p \"$(dirname 'a b.txt')\" && printf %s 'it'\\''s\n' > 'a b.txt'"}"#,
            ],
        );
        // These are the tools of goose.
        let step = || Move::Edit {
            path: "a".into(),
            old: "x".into(),
            new: "y".into(),
        };
        check(
            vec![
                tool("shell", "!command"),
                tool("edit", "!path !before !after"),
            ],
            step(),
            &[r#"edit {"path":"a","before":"x","after":"y"}"#],
        );
        check(
            vec![tool("shell", "!command")],
            Move::Read("a".into()),
            &[r#"shell {"command":"cat -- 'a'"}"#],
        );
        check(
            vec![tool("shell", "!command")],
            Move::Delete("a".into()),
            &[r#"shell {"command":"rm -- 'a'"}"#],
        );
    }

    #[test]
    fn an_operation_may_be_an_argument() {
        // These are the schemas of OpenHands.
        let mut editor = tool(
            "file_editor",
            "!command !path file_text old_str new_str !security_risk",
        );
        editor.schema["properties"]["command"]["enum"] =
            json!(["view", "create", "str_replace", "insert"]);
        editor.schema["properties"]["path"]["description"] =
            json!("Absolute path to file or directory.");
        editor.schema["properties"]["security_risk"]["enum"] = json!(["UNKNOWN", "LOW"]);
        let all = || {
            vec![
                tool("terminal", "!command is_input"),
                editor.clone(),
                tool("finish", "!message"),
            ]
        };
        check(
            all(),
            Move::Write {
                path: "a".into(),
                text: "t\n".into(),
            },
            &[
                r#"file_editor {"command":"create","path":"/w/a","file_text":"t\n","security_risk":"UNKNOWN"}"#,
            ],
        );
        let below = r#"file_editor {"command":"create","path":"/w/b/c","file_text":"t","security_risk":"UNKNOWN"}"#;
        check(
            all(),
            Move::Write {
                path: "b/c".into(),
                text: "t".into(),
            },
            &[r#"terminal {"command":"mkdir -p 'b'"}"#, below],
        );
        let edit = Move::Edit {
            path: "a".into(),
            old: "x".into(),
            new: "y".into(),
        };
        let changed = r#"{"command":"str_replace","path":"/w/a","old_str":"x","new_str":"y","security_risk":"UNKNOWN"}"#;
        check(all(), edit, &[&format!("file_editor {changed}")]);
        let looked = r#"file_editor {"command":"view","path":"/w/a","security_risk":"UNKNOWN"}"#;
        check(all(), Move::Read("a".into()), &[looked]);
        check(
            all(),
            Move::Shell("ls".into()),
            &[r#"terminal {"command":"ls"}"#],
        );
    }

    #[test]
    fn a_file_is_read_before_it_is_changed_if_the_agent_wants_that() {
        let step = || Move::Edit {
            path: "a".into(),
            old: "x".into(),
            new: "y".into(),
        };
        let edit = |name: &str| tool(name, "file_path old_string new_string");
        let changed = |name: &str| {
            format!(r#"{name} {{"file_path":"/w/a","old_string":"x","new_string":"y"}}"#)
        };
        let read = r#"Read {"file_path":"/w/a"}"#;
        check(
            vec![tool("Read", "!file_path"), edit("Edit")],
            step(),
            &[read, &changed("Edit")],
        );
        check(
            vec![tool("read_file", "!file_path"), edit("replace")],
            step(),
            &[&changed("replace")],
        );
        let says = AgentTool {
            about: "Always use the read_file tool first.".into(),
            ..edit("edit")
        };
        let read = r#"read_file {"file_path":"/w/a"}"#;
        check(
            vec![tool("read_file", "!file_path"), says],
            step(),
            &[read, &changed("edit")],
        );
    }

    #[test]
    fn a_host_tool_is_found_by_its_last_part_and_an_unknown_one_is_called_anyway() {
        let step = |name: &str| Move::Call {
            tool: name.into(),
            args: json!({}),
        };
        check(
            vec![tool("mcp__host__look", "")],
            step("look"),
            &["mcp__host__look {}"],
        );
        check(
            vec![tool("mcp_host_look", "")],
            step("look"),
            &["mcp_host_look {}"],
        );
        check(vec![tool("host.look", "")], step("look"), &["host.look {}"]);
        check(vec![tool("outlook", "")], step("look"), &["look {}"]);
        check(vec![], step("no_such_tool"), &["no_such_tool {}"]);
        check(
            vec![],
            Move::Shell("ls".into()),
            &["I have no tool for that."],
        );
    }

    #[test]
    fn a_host_tool_that_is_only_named_in_prose_is_searched_first() {
        let step = Move::Call {
            tool: "look".into(),
            args: json!({}),
        };
        let script = Script {
            moves: vec![step],
            ..Script::default()
        };
        let named = crate::request::host_tools("there are:\\nmcp__host__look\\nmcp__host__other");
        let all = |tools: Vec<AgentTool>| {
            let (all, _) = plan_answers(
                &script,
                &ScriptedRequest {
                    tools,
                    named: named.clone(),
                    ..ScriptedRequest::default()
                },
            );
            all.iter().map(shown).collect::<Vec<_>>()
        };
        let found = r#" {"query":"select:mcp__host__look"}"#;
        let search = tool("ToolSearch", "!query");
        assert_eq!(
            all(vec![search]),
            [
                format!("ToolSearch{found}"),
                "mcp__host__look {}".to_owned()
            ]
        );
        let two = vec![
            tool("tool_search", "!query"),
            tool("tool_call", "!name !arguments"),
        ];
        let called = r#"tool_call {"name":"mcp__host__look","arguments":{}}"#;
        assert_eq!(all(two), [format!("tool_search{found}"), called.to_owned()]);
        let offered = || vec![tool("ToolSearch", "!query"), tool("mcp__host__look", "")];
        assert_eq!(all(offered()), ["mcp__host__look {}"]);
        let whole = format!("ToolSearch{found}");
        let (later, _) = plan_answers(
            &script,
            &ScriptedRequest {
                tools: offered(),
                named: named.clone(),
                whole,
                ..ScriptedRequest::default()
            },
        );
        assert_eq!(later.len(), 2);
    }

    #[test]
    fn a_search_that_lists_no_names_is_queried_with_words() {
        let step = Move::Call {
            tool: "look_up".into(),
            args: json!({}),
        };
        let script = Script {
            moves: vec![step],
            ..Script::default()
        };
        let all = |tools: Vec<AgentTool>, whole: &str| {
            let (all, _) = plan_answers(
                &script,
                &ScriptedRequest {
                    tools,
                    whole: whole.to_owned(),
                    ..ScriptedRequest::default()
                },
            );
            all.iter().map(shown).collect::<Vec<_>>()
        };
        let search = || tool(UNLISTED, "!query");
        let searched = r#"type/tool_search {"query":"look_up: look up"}"#;
        assert_eq!(all(vec![search()], ""), [searched, "look_up {}"]);
        let found = || vec![search(), tool("mcp__host/look_up", "")];
        assert_eq!(all(found(), searched), [searched, "mcp__host/look_up {}"]);
        // The tool was offered from the beginning, so no search is needed.
        assert_eq!(all(found(), ""), ["mcp__host/look_up {}"]);
    }

    #[test]
    fn without_tools_edits_are_in_the_text() {
        let moves = vec![
            Move::Write {
                path: "a".into(),
                text: "t\n".into(),
            },
            Move::Edit {
                path: "b".into(),
                old: "x".into(),
                new: "y".into(),
            },
            Move::Say("Done so far.".into()),
        ];
        let script = Script {
            moves,
            ..Script::default()
        };
        let asked = ScriptedRequest {
            whole: "use *SEARCH/REPLACE block*s".into(),
            ..ScriptedRequest::default()
        };
        let (all, missing) = plan_answers(&script, &asked);
        let all: Vec<String> = all.iter().map(shown).collect();
        assert_eq!(all.len(), 2, "{missing:?}");
        assert!(
            all[0].contains("a\n```\n<<<<<<< SEARCH")
                && all[0].contains(">>>>>>> REPLACE\n```\n\nb\n"),
            "{all:?}"
        );
    }

    #[test]
    fn a_side_question_gets_an_answer_of_its_schema() {
        let schema = json!({ "type": "object", "properties": { "next": { "enum": ["user"] } }, "required": ["next"] });
        let text =
            |asked: &ScriptedRequest| shown(&ScriptedAnswer::Item(side_answer(asked, "A title")));
        assert_eq!(text(&ScriptedRequest::default()), "A title");
        assert_eq!(
            text(&ScriptedRequest {
                schema: Some(schema),
                ..ScriptedRequest::default()
            }),
            r#"{"next":"user"}"#
        );
    }
}
