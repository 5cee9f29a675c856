//! Checks the classification of many lines: the shared corpus and the data files of this crate. Nothing is run.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use serde_json::Value;
use windlass_core::gate::{CallProtection, Level, Mode, PermissionGate, Proposal, Rule, Verdict};
use windlass_core::terms::Isolation;
use windlass_core::tool::{Effect, Touch};

fn rows(text: &str) -> impl Iterator<Item = Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap())
}

/// The lines of a data file, without its own comments.
fn lines(text: &str) -> Vec<String> {
    let kept = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with("## "));
    kept.map(|line| line.replace('␤', "\n")).collect()
}

fn judge(
    gate: &PermissionGate,
    line: &str,
    place: CallProtection,
) -> windlass_core::gate::Decision {
    let script = Some(Arc::new(windlass_shell::read(line)));
    let touches = [Touch::Execute {
        command: line.to_owned(),
        script,
    }];
    gate.judge(&Proposal {
        tool: "bash",
        effect: Effect::Execute,
        touches: &touches,
        place,
    })
}

#[track_caller]
fn check_all(name: &str, text: &str, wrong: impl Fn(&str) -> Option<String>) {
    let all = lines(text);
    let found: Vec<String> = all
        .iter()
        .filter_map(|line| Some(format!("{line:?}: {}", wrong(line)?)))
        .collect();
    assert!(
        found.is_empty(),
        "{} of {} {name}:\n{}",
        found.len(),
        all.len(),
        found.join("\n")
    );
}

fn why(line: &str) -> String {
    let script = windlass_shell::read(line);
    let busy: Vec<&str> = script
        .commands
        .iter()
        .filter(|one| !one.looks)
        .map(|one| one.program())
        .collect();
    format!("{:?} {:?} {busy:?}", script.unclear, script.doubt)
}

#[test]
fn commands_that_change_something_are_never_read_only() {
    check_all("act", include_str!("data/acts.txt"), |line| {
        windlass_shell::read(line)
            .only_looks()
            .then(|| "taken for looking".to_owned())
    });
}

#[test]
fn read_only_commands_are_recognised() {
    check_all("look", include_str!("data/looks.txt"), |line| {
        (!windlass_shell::read(line).only_looks()).then(|| why(line))
    });
}

#[test]
fn everyday_lines_parse_without_doubt_and_run_in_a_sandbox() {
    let auto = PermissionGate {
        mode: Mode::Auto,
        ..PermissionGate::default()
    };
    for isolation in [Isolation::InPlace, Isolation::Isolated] {
        check_all("work", include_str!("data/works.txt"), |line| {
            let script = windlass_shell::read(line);
            let decision = judge(
                &auto,
                line,
                CallProtection {
                    isolation,
                    sandboxed: true,
                    has_jobs: false,
                },
            );
            let fits = script.is_certain() && decision.verdict == Verdict::Allow;
            (!fits).then(|| format!("{} {}", decision.rule, why(line)))
        });
    }
}

#[test]
fn a_forbidden_program_does_not_hide() {
    let rules = [
        ("bash(rm *)", Verdict::Deny),
        ("bash(git push *)", Verdict::Deny),
        ("*", Verdict::Allow),
    ];
    let rules = rules.map(|(text, verdict)| Rule::parse(text, verdict, Level::User).unwrap());
    for place in [
        CallProtection::default(),
        CallProtection {
            isolation: Isolation::Isolated,
            sandboxed: true,
            has_jobs: false,
        },
    ] {
        let gate = PermissionGate {
            mode: Mode::Auto,
            rules: rules.to_vec(),
            ..PermissionGate::default()
        };
        check_all("hide", include_str!("data/hides.txt"), |line| {
            let decision = judge(&gate, line, place);
            (decision.verdict < Verdict::Person).then(|| format!("{} {}", decision.rule, why(line)))
        });
    }
}

#[test]
fn the_corpus_is_classified() {
    let mut wrong = Vec::new();
    for row in rows(include_str!("data/corpus.jsonl")) {
        let line = row["line"].as_str().unwrap();
        let script = windlass_shell::read(line);
        let free = row["expect"][0] == "allow";
        let should_look = free && row["mode"] == "ask";
        let fits = if free {
            script.is_certain() && (!should_look || script.only_looks())
        } else {
            !script.only_looks()
        };
        if !fits {
            wrong.push(format!(
                "{} {line}\n    {:?} {:?}",
                row["id"], script.unclear, script.doubt
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
