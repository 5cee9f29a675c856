//! From a move of the script to an answer that this agent understands: a call of a tool that it offers, words, or edits
//! in the text where it offers no tools. Pure.

use serde_json::{Value, json};

use crate::prose;
use crate::request::{Asked, Tool};
use crate::script::{Move, Script};
use crate::tools::{
    self, CALLER, COMMAND, CONTENT, DELETE, EDIT, NEW, OLD, PATCH, PATCH_TEXT, READ, SEARCH, SHELL,
};
use crate::tools::{Found, STRUCTURED, UNLISTED, WRITE, find};

/// Agents with a tool of these names do not let a file be changed that was not read.
const READ_FIRST: &[&str] = &["Read", "read"];

/// What stands between the name of a server and the name of its tool.
const JOINTS: &[char] = &['_', '.', '/', ':', '-'];

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
    /// All before it is done where the question holds these words.
    Heard(String),
}

/// The script as this agent can be made to do it. What it has no tool for is said in words, and named.
pub(crate) fn played(script: &Script, asked: &Asked) -> (Vec<Played>, Option<String>) {
    let (mut missing, mut all) = (None, Vec::new());
    let form = prose::form(asked);
    let mut moves = script.moves.iter().enumerate().peekable();
    while let Some((number, step)) = moves.next() {
        match step {
            Move::Fail { status, times } => all.push(Played::Fail {
                number,
                status: *status,
                times: *times,
            }),
            Move::Hang => all.push(Played::Hang),
            Move::Heard(words) => all.push(Played::Heard(words.clone())),
            step => {
                let done = match form.filter(|_| step.changes_a_file()) {
                    Some(form) => {
                        // Everything up to the next words is one answer.
                        let mut steps = vec![step];
                        while let Some((_, step)) = moves.next_if(|(_, step)| step.changes_a_file())
                        {
                            steps.push(step);
                        }
                        prose::answer(form, &steps).map(|text| vec![said(&text)])
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
                        vec![said("I have no tool for that.")]
                    })
                    .into_iter()
                    .map(Played::Item),
                );
            }
        }
    }
    (all, missing)
}

fn said(text: &str) -> Item {
    Item::Text {
        text: text.to_owned(),
        pause_ms: 0,
    }
}

fn items(step: &Move, script: &Script, asked: &Asked) -> Option<Vec<Item>> {
    let one = |item: Item| Some(vec![item]);
    match step {
        Move::Shell(line) => one(shell(asked, line)?),
        Move::Read(path) => one(read(script, asked, path)?),
        Move::Write { path, text } => write(script, asked, path, text),
        Move::Edit { path, old, new } => edit(script, asked, path, old, new),
        Move::Delete(path) => one(delete(script, asked, path)?),
        Move::Call { tool, args } => Some(host_tool(asked, tool, args)),
        Move::Say(text) => one(said(text)),
        Move::Slow { text, pause_ms } => one(Item::Text {
            text: text.clone(),
            pause_ms: *pause_ms,
        }),
        Move::Json(value) => match find(asked, &STRUCTURED) {
            Some(found) => one(Item::Call {
                name: found.tool.name.clone(),
                input: Input::Json(value.clone()),
            }),
            None => one(said(&value.to_string())),
        },
        Move::Refuse(text) => one(Item::Refusal(text.clone())),
        Move::Fail { .. } | Move::Hang | Move::Heard(_) => Some(Vec::new()),
    }
}

/// A tool by its name or by the end of it. Where tools of the host are only told of, they are looked up first, and
/// called in the way that the agent has for that.
fn host_tool(asked: &Asked, tool: &str, args: &Value) -> Vec<Item> {
    let ends = |name: &str| {
        name == tool
            || name
                .strip_suffix(tool)
                .is_some_and(|rest| rest.ends_with(JOINTS))
    };
    let call = |name: &str| Item::Call {
        name: name.to_owned(),
        input: Input::Json(args.clone()),
    };
    let offered = asked
        .tools
        .iter()
        .map(|tool: &Tool| &tool.name)
        .find(|name| ends(name));
    let told = asked.named.iter().find(|name| ends(name));
    // Once it was looked up it may be offered like any other, and the history still has the question.
    let looked_up = |name: &str| asked.whole.contains(&format!("select:{name}"));
    // A search that says no names goes by words.
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

fn shell(asked: &Asked, line: &str) -> Option<Item> {
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

fn read(script: &Script, asked: &Asked, path: &str) -> Option<Item> {
    match find(asked, &READ) {
        Some(found) => Some(found.call(&[found.file(&script.root, path)])),
        None => shell(asked, &format!("cat -- {}", quoted(path))),
    }
}

fn write(script: &Script, asked: &Asked, path: &str, text: &str) -> Option<Vec<Item>> {
    if let Some(found) = find(asked, &WRITE) {
        let written = found.call(&[
            found.file(&script.root, path),
            (found.argument(CONTENT), json!(text)),
        ]);
        // Editors with operations put a file where there is a folder, and make none.
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

fn edit(script: &Script, asked: &Asked, path: &str, old: &str, new: &str) -> Option<Vec<Item>> {
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

/// Whether a file must be read before it may be changed: by the name, or because the tool says so.
fn reads_first(edit: &Found<'_>, read: &Found<'_>) -> bool {
    let name = read.tool.name.as_str();
    name != edit.tool.name && (READ_FIRST.contains(&name) || edit.tool.about.contains(name))
}

fn delete(script: &Script, asked: &Asked, path: &str) -> Option<Item> {
    if let Some(found) = find(asked, &DELETE) {
        return Some(found.call(&[found.file(&script.root, path)]));
    }
    patch(asked, &format!("*** Delete File: {path}\n"))
        .or_else(|| shell(asked, &format!("rm -- {}", quoted(path))))
}

fn patch(asked: &Asked, hunks: &str) -> Option<Item> {
    let found = find(asked, &PATCH)?;
    let text = format!("*** Begin Patch\n{hunks}*** End Patch\n");
    if found.tool.freeform {
        return Some(Item::Call {
            name: found.tool.name.clone(),
            input: Input::Text(text),
        });
    }
    Some(found.call(&[(found.argument(PATCH_TEXT), json!(text))]))
}

/// The answer to a question beside the work: few words, or the least that its schema takes.
pub(crate) fn aside(asked: &Asked, words: &str) -> Item {
    let text = asked.schema.as_ref().map_or_else(
        || words.to_owned(),
        |schema| tools::filler(schema).to_string(),
    );
    said(&text)
}

/// One word for a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;

    /// A tool of this name whose arguments are texts; those behind `!` must be there.
    fn tool(name: &str, arguments: &str) -> Tool {
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
        Tool {
            name: name.to_owned(),
            freeform: false,
            about: String::new(),
            schema,
        }
    }

    #[track_caller]
    fn check(tools: Vec<Tool>, step: Move, expect: &[&str]) {
        let script = Script {
            moves: vec![step],
            root: "/w".into(),
            ..Script::default()
        };
        let (all, missing) = played(
            &script,
            &Asked {
                tools,
                ..Asked::default()
            },
        );
        let shown: Vec<String> = all.iter().map(shown).collect();
        assert_eq!(shown, expect, "{missing:?}");
    }

    fn shown(played: &Played) -> String {
        match played {
            Played::Item(Item::Call {
                name,
                input: Input::Json(args),
            }) => format!("{name} {args}"),
            Played::Item(Item::Call {
                name,
                input: Input::Text(text),
            }) => format!("{name} {text}"),
            Played::Item(Item::Text { text, .. } | Item::Refusal(text)) => text.clone(),
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
            vec![Tool {
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
        // goose
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
        // OpenHands, as its schemas are.
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
    fn a_file_is_read_before_it_is_changed_where_the_agent_wants_that() {
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
        let says = Tool {
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
    fn a_host_tool_is_found_behind_its_prefix_and_an_unknown_one_is_called_all_the_same() {
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
    fn a_host_tool_that_is_only_told_of_is_looked_up_first() {
        let step = Move::Call {
            tool: "look".into(),
            args: json!({}),
        };
        let script = Script {
            moves: vec![step],
            ..Script::default()
        };
        let named = crate::request::host_tools("there are:\\nmcp__host__look\\nmcp__host__other");
        let all = |tools: Vec<Tool>| {
            let (all, _) = played(
                &script,
                &Asked {
                    tools,
                    named: named.clone(),
                    ..Asked::default()
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
        let (later, _) = played(
            &script,
            &Asked {
                tools: offered(),
                named: named.clone(),
                whole,
                ..Asked::default()
            },
        );
        assert_eq!(later.len(), 2);
    }

    #[test]
    fn a_search_that_says_no_names_is_asked_by_words() {
        let step = Move::Call {
            tool: "look_up".into(),
            args: json!({}),
        };
        let script = Script {
            moves: vec![step],
            ..Script::default()
        };
        let all = |tools: Vec<Tool>, whole: &str| {
            let (all, _) = played(
                &script,
                &Asked {
                    tools,
                    whole: whole.to_owned(),
                    ..Asked::default()
                },
            );
            all.iter().map(shown).collect::<Vec<_>>()
        };
        let search = || tool(UNLISTED, "!query");
        let searched = r#"type/tool_search {"query":"look_up: look up"}"#;
        assert_eq!(all(vec![search()], ""), [searched, "look_up {}"]);
        let found = || vec![search(), tool("mcp__host/look_up", "")];
        assert_eq!(all(found(), searched), [searched, "mcp__host/look_up {}"]);
        // It was there from the beginning.
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
        let asked = Asked {
            whole: "use *SEARCH/REPLACE block*s".into(),
            ..Asked::default()
        };
        let (all, missing) = played(&script, &asked);
        let all: Vec<String> = all.iter().map(shown).collect();
        assert_eq!(all.len(), 2, "{missing:?}");
        assert!(
            all[0].contains("a\n```\n<<<<<<< SEARCH")
                && all[0].contains(">>>>>>> REPLACE\n```\n\nb\n"),
            "{all:?}"
        );
    }

    #[test]
    fn a_question_beside_the_work_gets_the_form_that_it_wants() {
        let schema = json!({ "type": "object", "properties": { "next": { "enum": ["user"] } }, "required": ["next"] });
        let text = |asked: &Asked| shown(&Played::Item(aside(asked, "A title")));
        assert_eq!(text(&Asked::default()), "A title");
        assert_eq!(
            text(&Asked {
                schema: Some(schema),
                ..Asked::default()
            }),
            r#"{"next":"user"}"#
        );
    }
}
