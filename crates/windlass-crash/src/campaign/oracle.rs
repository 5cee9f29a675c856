//! Checks of the log, the tree and undo after a kill or a failure, from the files alone.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use crate::conversation::complete_lines;
use crate::scratch::{FinishedRun, ScratchDir, Tree};

/// The documented exit codes.
const CODES: [i32; 11] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 124, 130];
/// The maximum number of undos or redos until there must be nothing left to do.
const MAX_UNDOS: usize = 8;

/// Returns the events of one log, without an incomplete last line.
pub(super) fn events(log: &[u8]) -> Vec<Value> {
    let text = String::from_utf8_lossy(complete_lines(log)).into_owned();
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap_or_default())
        .collect()
}

/// Returns whether a call in a log failed.
pub(super) fn has_failed_call(log: &[u8]) -> bool {
    let mut events = events(log).into_iter();
    events.any(|event| {
        event["kind"] == "call_finished" && !event["data"]["result"]["error"].is_null()
    })
}

/// Returns the violations in a log after recovery: a run without exactly one end, or a call that was started twice.
pub(super) fn wrong_in_log(log: &[u8]) -> Vec<String> {
    let (mut ends, mut calls) = (
        BTreeMap::<String, i64>::new(),
        BTreeMap::<String, usize>::new(),
    );
    for event in events(log) {
        let run = event["run"].as_str().unwrap_or_default().to_owned();
        match event["kind"].as_str() {
            Some("run_started") => {
                ends.entry(run).or_default();
            }
            Some("run_finished") => *ends.entry(run).or_default() += 1,
            Some("call_started") => {
                let id = event["data"]["call"]["id"].as_str().unwrap_or_default();
                *calls.entry(format!("{run} {id}")).or_default() += 1;
            }
            Some(_) => {}
            None => return vec!["a line of the log is not an event".to_owned()],
        }
    }
    let ends = ends.into_iter().filter(|(_, ends)| *ends != 1);
    let twice = calls.into_iter().filter(|(_, times)| *times > 1);
    ends.map(|(run, ends)| format!("{run} has {ends} ends"))
        .chain(twice.map(|(call, times)| format!("{call} was started {times} times")))
        .collect()
}

/// Returns the violation in the exit of a command that was not killed.
pub(super) fn wrong_end(ran: &FinishedRun) -> Option<String> {
    let panicked = ran.err.contains("panicked at");
    match ran.code {
        _ if ran.hung => Some("it hung".to_owned()),
        _ if panicked => Some(format!("it panicked: {}", ran.err)),
        Some(code) if CODES.contains(&code) => None,
        Some(code) => Some(format!("exit code {code}")),
        None => Some(format!("a signal ended it: {}", ran.err)),
    }
}

/// Returns the files of a project without directories, because an undo keeps empty directories.
pub(super) fn files(project: &Path) -> Result<Tree> {
    let mut tree = ScratchDir::tree_in(project)?;
    tree.retain(|path, _| !path.starts_with(".git/") && project.join(path).is_file());
    Ok(tree)
}

/// Runs undo or redo until there is nothing left.
pub(super) fn repeat(scratch: &ScratchDir, args: &[&str]) -> Result<Option<String>> {
    for _ in 0..MAX_UNDOS {
        let ran = scratch.run(args, None)?;
        if ran.code == Some(0) {
            continue;
        }
        let nothing = ran.err.contains("nothing to undo");
        return Ok((!nothing).then(|| format!("{} failed: {}", args.join(" "), ran.err)));
    }
    Ok(Some(format!("{} never ends", args.join(" "))))
}

/// Returns the differences between two trees.
pub(super) fn difference(expected: &Tree, got: &Tree) -> Option<String> {
    let paths = expected.keys().chain(got.keys());
    let differs = paths.filter(|path| expected.get(*path) != got.get(*path));
    let mut differs: Vec<&String> = differs.collect();
    differs.sort_unstable();
    differs.dedup();
    let shown: Vec<String> = differs
        .iter()
        .take(4)
        .map(|path| {
            format!(
                "{path}: {:?}, not {:?}",
                got.get(*path),
                expected.get(*path)
            )
        })
        .collect();
    (!shown.is_empty()).then(|| format!("{} files differ: {}", differs.len(), shown.join("; ")))
}

/// Returns whether these bytes are in any file below a directory.
pub(super) fn holds(dir: &Path, bytes: &[u8]) -> bool {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return false;
    };
    entries.flatten().any(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => holds(&entry.path(), bytes),
        Ok(kind) if kind.is_file() => std::fs::read(entry.path())
            .is_ok_and(|all| all.windows(bytes.len()).any(|part| part == bytes)),
        _ => false,
    })
}
