//! Tests of the tools that are programs: python, and those from the user's settings.

use std::time::Duration;

use serde_json::{Value, json};
use windlass_core::tool::Effect;

use super::ToolBench;
use crate::process::ProcessTool;

fn program(command: &[&str]) -> ProcessTool {
    ProcessTool {
        name: "mine".into(),
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        description: "Does it.".into(),
        schema: json!({"type": "object", "properties": {}}),
        effect: Effect::Read,
        timeout: Duration::from_secs(10),
    }
}

#[track_caller]
fn check(command: &[&str], args: Value, expect: &str) {
    let mut bench = ToolBench::new(&[]);
    bench.add(program(command).build().unwrap());
    assert_eq!(bench.call("mine", args), expect);
}

#[test]
fn a_program_gets_json_and_answers_with_text_or_json() {
    check(
        &["cat"],
        json!({"a": "it's $HOME `x` \"y\""}),
        "{\"a\":\"it's $HOME `x` \\\"y\\\"\"}\n",
    );
    check(
        &[
            "sh",
            "-c",
            "echo noise; printf '%s\\n' '{\"text\": \"two\\nlines\"}'",
        ],
        json!({}),
        "two\nlines",
    );
    check(
        &["sh", "-c", "echo '{\"error\": \"no such thing\"}'"],
        json!({}),
        "Error [exception]: no such thing",
    );
    check(
        &["sh", "-c", "echo '{\"other\": 1}'"],
        json!({}),
        "{\"other\": 1}\n",
    );
    check(
        &["sh", "-c", "echo bad >&2; exit 4"],
        json!({}),
        "Error [exception]: exit code 4\nbad\n",
    );
    check(
        &["printf", "%s|", "a b", "c'd", "*"],
        json!({}),
        "a b|c'd|*|",
    );
    check(&["true"], json!({}), "[no output]");
}

#[test]
fn a_program_is_serial_and_judged_as_a_command_whatever_its_definition_says() {
    let mut bench = ToolBench::new(&[]);
    bench.add(program(&["./run it", "-x"]).build().unwrap());
    let spec = bench.tools.get("mine").unwrap().spec().clone();
    assert!(!spec.parallel && spec.effect == Effect::Read);
    let touches = bench.touches("mine", json!({"a": 1})).unwrap();
    assert_eq!(touches, [crate::process::execute("'./run it' -x".into())]);
}

#[test]
fn an_incomplete_definition_of_a_program_is_rejected() {
    type Spoil = fn(&mut ProcessTool);
    let cases: [(&str, Spoil); 6] = [
        ("letters, digits", |tool| tool.name = "a b".into()),
        ("built-in", |tool| tool.name = "bash".into()),
        ("`command` is empty", |tool| tool.command.clear()),
        ("`description` is empty", |tool| {
            tool.description = " ".into()
        }),
        ("must describe an object", |tool| {
            tool.schema = json!({"type": "string"})
        }),
        ("NUL", |tool| tool.command.push("a\0b".into())),
    ];
    for (says, spoil) in cases {
        let mut tool = program(&["true"]);
        spoil(&mut tool);
        let err = tool.build().err().unwrap();
        assert!(err.contains(says), "{err}");
    }
}

#[test]
fn python_runs_isolated_and_bounded() {
    let bench = ToolBench::new(&[
        ("json.py", "raise SystemExit('shadowed')"),
        ("data.txt", "1\n2\n"),
    ]);
    let there = !bench
        .call("bash", json!({"command": "command -v python3"}))
        .starts_with("Error");
    assert!(there, "this test needs python3 on the path; install it");
    let code = "import json\nprint(json.dumps({'sum': sum(int(n) for n in open('data.txt'))}))";
    bench.check("python", json!({"code": code}), "{\"sum\": 3}\n");
    bench.check_start(
        "python",
        json!({"code": "print('it''s'); raise SystemExit(3)"}),
        "Error [exception]: exit code 3\nits",
    );
    bench.check_start(
        "python",
        json!({"code": "while True: pass", "timeout_s": 1}),
        "Error [timeout]: timed out after 1 s",
    );
    bench.check_start(
        "python",
        json!({"code": "  "}),
        "Error [invalid_arguments]: `code` is empty",
    );
    let touches = bench
        .touches("python", json!({"code": "print('a')"}))
        .unwrap();
    assert_eq!(
        touches,
        [crate::process::execute(
            r"python3 -I -c 'print('\''a'\'')'".into()
        )]
    );
}

#[test]
fn a_missing_python_is_reported() {
    let bench = ToolBench::with_path("/nonexistent");
    bench.check_start(
        "python",
        json!({"code": "print(1)"}),
        "Error [not_found]: there is no python3 here",
    );
}
