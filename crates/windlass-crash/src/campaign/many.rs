//! Many runs in one workspace at once: each lands what it did, or says that it did not.

use std::path::Path;
use std::process::{Child, Stdio};

use anyhow::{Context as _, Result};

use super::{Tally, oracle, task};
use crate::Where;
use crate::place::{Place, Template};

pub(super) fn run(binary: &Path, place: Where, runs: usize) -> Result<Tally> {
    let template = Template::with(task::files(), false)?;
    let mut tally = Tally {
        part: format!("{runs} runs at once, {}", place.word()),
        ..Tally::default()
    };
    let (mut landed, mut failed) = (0, 0);
    for shared in [false, true] {
        let here = Place::new(binary, &template)?;
        let started = (0..runs).map(|nth| start(&here, place, nth, shared));
        let started: Vec<Child> = started.collect::<Result<_>>()?;
        for (nth, child) in started.into_iter().enumerate() {
            let ended = child.wait_with_output().context("a run is lost")?;
            tally.cases += 1;
            let said = String::from_utf8_lossy(&ended.stdout).into_owned();
            let is_in = is_in_tree(&here, nth, shared);
            match (claims(&said, ended.status.code(), place), is_in) {
                (true, true) => landed += 1,
                (false, _) if shared && is_loud(&said, ended.status.code()) => failed += 1,
                (claimed, is_in) => tally.wrong.push(format!(
                    "run {nth} (shared file: {shared}) claims success: {claimed}, its changes are there: {is_in}, code {:?}: {}{}",
                    ended.status.code(),
                    said.lines().last().unwrap_or_default(),
                    String::from_utf8_lossy(&ended.stderr)
                )),
            }
        }
        for (session, log) in here.logs()? {
            let wrong = oracle::wrong_in_log(&log).into_iter();
            tally
                .wrong
                .extend(wrong.map(|why| format!("{session}: {why}")));
        }
    }
    tally.seen = format!("{landed} landed, {failed} failed and said so");
    Ok(tally)
}

fn start(here: &Place, place: Where, nth: usize, shared: bool) -> Result<Child> {
    let script = if shared {
        task::script_of_one_shared(nth)
    } else {
        task::script_of_one(nth)
    };
    let path = here.base().join(format!("script-{nth}.toml"));
    std::fs::write(&path, script)?;
    let flag = format!("--{}", place.word());
    let mut command = here.command(here.binary(), ["run", "Do it.", &flag, "--script"]);
    command
        .arg(path)
        .args(task::OPTIONS)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().context("the binary cannot be started")
}

fn is_in_tree(here: &Place, nth: usize, shared: bool) -> bool {
    let read = |path: &str| std::fs::read_to_string(here.project().join(path)).unwrap_or_default();
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

/// Whether the run says that everything it did is in the tree.
fn claims(said: &str, code: Option<i32>, place: Where) -> bool {
    let all_calls = place == Where::Isolated || !oracle::has_failed_call(said.as_bytes());
    code == Some(0) && all_calls
}

/// Whether it says that something is not in the tree: by its exit code, or by a failed call and a warning.
fn is_loud(said: &str, code: Option<i32>) -> bool {
    let events = oracle::events(said.as_bytes());
    let mut warnings = events.iter().filter(|event| event["kind"] == "warned");
    code.is_some_and(|code| code != 0)
        || warnings.any(|event| event["data"]["code"] == "not_merged")
}
