//! The project and the scripted task of a campaign: commands that change many files at once, edits, moves and
//! deletions.

use anyhow::Result;
use serde_json::{Value, json};

use crate::WorkMode;
use crate::scratch::{FinishedRun, ScratchDir};
use crate::script::inline;
use crate::supervise::FaultPoint;

/// The number of files in the directory that commands rewrite.
pub(super) const DOCS: usize = 40;

/// The options of a scripted run; the script is next to the project.
pub(super) const OPTIONS: [&str; 6] = [
    "--approval",
    "auto",
    "--output-format",
    "stream-json",
    "--validate",
    "none",
];

pub(super) fn files() -> Vec<(String, String)> {
    let mut files: Vec<_> = (0..DOCS)
        .map(|at| (doc(at), format!("document {at}\n")))
        .collect();
    files.push(("notes.txt".to_owned(), "alpha\n".to_owned()));
    files.push(("shared.log".to_owned(), "first\n".to_owned()));
    files
}

pub(super) fn doc(at: usize) -> String {
    format!("docs/{at}.txt")
}

/// Returns a task that changes, creates, moves and deletes files, by commands and by tools.
pub(super) fn script() -> String {
    let mut steps = Vec::new();
    for round in 0..3 {
        steps.push(bash(&format!(
            "for f in docs/*.txt; do echo round {round} >> $f; done; rm docs/{round}.txt; echo r{round} > new-{round}.txt"
        )));
        let (old, new) = (
            ["alpha", "beta", "gamma"][round],
            ["beta", "gamma", "delta"][round],
        );
        steps.push(
            json!({ "name": "edit_file", "args": { "path": "notes.txt", "old": old, "new": new } }),
        );
        steps.push(json!({ "name": "write_file", "args": { "path": format!("written/{round}.txt"), "content": "w\n" } }));
        steps.push(bash(&format!(
            "mv docs/{}.txt docs/moved-{round}.txt",
            30 + round
        )));
    }
    text(&steps)
}

/// Runs the task, whose script is next to the project.
pub(super) fn run(
    scratch: &ScratchDir,
    mode: WorkMode,
    fault: Option<FaultPoint>,
) -> Result<FinishedRun> {
    let flag = format!("--{}", mode.word());
    let mut args = vec!["run", "Do it.", &flag, "--script", "../script.toml"];
    args.extend(OPTIONS);
    scratch.run(args, fault)
}

/// Returns the script of one of many runs, which writes its own files.
pub(super) fn script_of_one(nth: usize) -> String {
    text(&[
        bash(&format!("mkdir -p own && echo run {nth} > own/{nth}.txt")),
        json!({ "name": "write_file", "args": { "path": format!("own/{nth}-written.txt"), "content": format!("run {nth}\n") } }),
    ])
}

/// Returns the script of one of many runs, which appends to a file that all runs change.
pub(super) fn script_of_one_shared(nth: usize) -> String {
    text(&[bash(&format!("echo line {nth}. >> shared.log"))])
}

fn bash(command: &str) -> Value {
    json!({ "name": "bash", "args": { "command": command } })
}

fn text(calls: &[Value]) -> String {
    let steps = calls
        .iter()
        .map(|call| format!("[[step]]\ntext = \"\"\ncalls = [{}]\n", inline(call)));
    let steps: Vec<String> = steps.collect();
    format!("{}\n[[step]]\ntext = \"Done.\"\n", steps.join("\n"))
}
