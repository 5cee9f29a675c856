//! Checks of the log, the tree and undo after a kill or a failure, read from the files alone.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use crate::folded::whole_lines;
use crate::place::{Place, Ran, Tree};

/// Every exit code that is documented.
const CODES: [i32; 11] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 124, 130];
/// So many undos or redos in a row find nothing more to do.
const MOST_UNDOS: usize = 8;

/// The events of one log, without a torn last line.
pub(super) fn events(log: &[u8]) -> Vec<Value> {
    let text = String::from_utf8_lossy(whole_lines(log)).into_owned();
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap_or_default())
        .collect()
}

/// Whether a call of a log failed.
pub(super) fn has_failed_call(log: &[u8]) -> bool {
    let mut events = events(log).into_iter();
    events.any(|event| {
        event["kind"] == "call_finished" && !event["data"]["result"]["error"].is_null()
    })
}

/// Faults of a log after recovery: a run without exactly one end, or a call that was started twice.
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
            None => return vec!["a line of the log is no event".to_owned()],
        }
    }
    let ends = ends.into_iter().filter(|(_, ends)| *ends != 1);
    let twice = calls.into_iter().filter(|(_, times)| *times > 1);
    ends.map(|(run, ends)| format!("{run} has {ends} ends"))
        .chain(twice.map(|(call, times)| format!("{call} was started {times} times")))
        .collect()
}

/// The fault in the end of a command that was not killed.
pub(super) fn wrong_end(ran: &Ran) -> Option<String> {
    let panicked = ran.err.contains("panicked at");
    match ran.code {
        _ if ran.hung => Some("it hung".to_owned()),
        _ if panicked => Some(format!("it panicked: {}", ran.err)),
        Some(code) if CODES.contains(&code) => None,
        Some(code) => Some(format!("exit code {code}")),
        None => Some(format!("a signal ended it: {}", ran.err)),
    }
}

/// The files of a project: an undo leaves empty folders in place.
pub(super) fn files(project: &Path) -> Result<Tree> {
    let mut tree = Place::tree_in(project)?;
    tree.retain(|path, _| !path.starts_with(".git/") && project.join(path).is_file());
    Ok(tree)
}

/// Undoes, or redoes, until there is nothing left.
pub(super) fn repeat(place: &Place, args: &[&str]) -> Result<Option<String>> {
    for _ in 0..MOST_UNDOS {
        let ran = place.run(args, None)?;
        if ran.code == Some(0) {
            continue;
        }
        let nothing = ran.err.contains("nothing to undo");
        return Ok((!nothing).then(|| format!("{} failed: {}", args.join(" "), ran.err)));
    }
    Ok(Some(format!("{} never comes to an end", args.join(" "))))
}

/// The differences between two trees.
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

/// Whether these bytes are in any file below a directory.
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
