//! Many parallel runs in one workspace: each lands its changes, or reports that it did not.

use std::path::Path;
use std::process::{Child, Stdio};

use anyhow::{Context as _, Result};

use super::{Tally, oracle, task};
use crate::WorkMode;
use crate::scratch::{ScratchDir, Template};

pub(super) fn run(binary: &Path, mode: WorkMode, runs: usize) -> Result<Tally> {
    let template = Template::with(task::files(), false)?;
    let mut tally = Tally {
        part: format!("{runs} runs at once, {}", mode.word()),
        ..Tally::default()
    };
    let (mut landed, mut failed) = (0, 0);
    for shared in [false, true] {
        let scratch = ScratchDir::new(binary, &template)?;
        let started = (0..runs).map(|nth| start(&scratch, mode, nth, shared));
        let started: Vec<Child> = started.collect::<Result<_>>()?;
        for (nth, child) in started.into_iter().enumerate() {
            let ended = child.wait_with_output().context("cannot wait for a run")?;
            tally.cases += 1;
            let said = String::from_utf8_lossy(&ended.stdout).into_owned();
            let is_in = is_in_tree(&scratch, nth, shared);
            match (claims(&said, ended.status.code(), mode), is_in) {
                (true, true) => landed += 1,
                (false, _) if shared && is_loud(&said, ended.status.code()) => failed += 1,
                (claimed, is_in) => tally.wrong.push(format!(
                    "run {nth} (shared file: {shared}) claims success: {claimed}, changes in the tree: {is_in}, code {:?}: {}{}",
                    ended.status.code(),
                    said.lines().last().unwrap_or_default(),
                    String::from_utf8_lossy(&ended.stderr)
                )),
            }
        }
        for (session, log) in scratch.logs()? {
            let wrong = oracle::wrong_in_log(&log).into_iter();
            tally
                .wrong
                .extend(wrong.map(|why| format!("{session}: {why}")));
        }
    }
    tally.seen = format!("{landed} landed, {failed} failed and reported it");
    Ok(tally)
}

fn start(scratch: &ScratchDir, mode: WorkMode, nth: usize, shared: bool) -> Result<Child> {
    let script = if shared {
        task::script_of_one_shared(nth)
    } else {
        task::script_of_one(nth)
    };
    let path = scratch.base().join(format!("script-{nth}.toml"));
    std::fs::write(&path, script)?;
    let flag = format!("--{}", mode.word());
    let mut command = scratch.command(scratch.binary(), ["run", "Do it.", &flag, "--script"]);
    command
        .arg(path)
        .args(task::OPTIONS)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().context("cannot start the binary")
}

fn is_in_tree(scratch: &ScratchDir, nth: usize, shared: bool) -> bool {
    let read =
        |path: &str| std::fs::read_to_string(scratch.project().join(path)).unwrap_or_default();
    if shared {
        let lines = read("shared.log");
        return lines
            .lines()
            .filter(|line| *line == format!("line {nth}."))
            .count()
            == 1;
    }
    let expected = format!("run {nth}\n");
    read(&format!("own/{nth}.txt")) == expected
        && read(&format!("own/{nth}-written.txt")) == expected
}

/// Returns whether the run claims that all its changes are in the tree.
fn claims(said: &str, code: Option<i32>, mode: WorkMode) -> bool {
    let all_calls = mode == WorkMode::Isolated || !oracle::has_failed_call(said.as_bytes());
    code == Some(0) && all_calls
}

/// Returns whether the run reports that a change is not in the tree: by its exit code, or by a failed call and a
/// warning.
fn is_loud(said: &str, code: Option<i32>) -> bool {
    let events = oracle::events(said.as_bytes());
    let mut warnings = events.iter().filter(|event| event["kind"] == "warned");
    code.is_some_and(|code| code != 0)
        || warnings.any(|event| event["data"]["code"] == "not_merged")
}
