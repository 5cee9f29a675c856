//! An editor saves files while an in-place run, an undo and a redo change the same files. Each file is saved once, with
//! unique text. Afterwards the text must be in the tree, in a kept layer, or in the store of undo.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;

use super::{Random, Tally, oracle, task};
use crate::scratch::{FinishedRun, ScratchDir, Template};
use crate::supervise::{FaultKind, FaultPoint};

/// The maximum time between two saves, in milliseconds.
const LONGEST_PAUSE: usize = 60;

pub(super) fn run(binary: &Path, saves: usize, random: &mut Random) -> Result<Tally> {
    let template = Template::with(task::files(), false)?;
    let mut tally = Tally {
        part: "saves during a run, an undo and a redo".to_owned(),
        ..Tally::default()
    };
    let (mut in_tree, mut kept, mut rounds) = (0, 0, 0);
    while tally.cases < saves {
        let scratch = ScratchDir::new(binary, &template)?;
        std::fs::write(scratch.base().join("script.toml"), task::script())?;
        let (saved, ends) = save_beside(&scratch, random, rounds)?;
        rounds += 1;
        tally
            .wrong
            .extend(ends.iter().filter_map(oracle::wrong_end));
        let status = scratch.run(["status"], None)?;
        tally.wrong.extend(oracle::wrong_end(&status));
        for (path, token) in saved {
            tally.cases += 1;
            let bytes = token.as_bytes();
            if oracle::holds(&scratch.project(), bytes) {
                in_tree += 1;
            } else if oracle::holds(&scratch.data(), bytes) {
                kept += 1;
            } else {
                tally
                    .wrong
                    .push(format!("the save of {path} in round {rounds} is lost"));
            }
        }
        for (session, log) in scratch.logs()? {
            let wrong = oracle::wrong_in_log(&log).into_iter();
            let wrong = wrong.filter(|why| !why.ends_with("has 0 ends"));
            tally
                .wrong
                .extend(wrong.map(|why| format!("{session}: {why}")));
        }
    }
    tally.seen = format!(
        "{rounds} rounds, {in_tree} in the tree, {kept} in the store of undo or in a layer"
    );
    Ok(tally)
}

/// A path of the project, and the text that was saved there.
type Save = (String, String);

/// Saves each file once while the commands run; every second run is killed at a random operation.
fn save_beside(
    scratch: &ScratchDir,
    random: &mut Random,
    round: usize,
) -> Result<(Vec<Save>, Vec<FinishedRun>)> {
    let pauses: Vec<u64> = (0..task::DOCS)
        .map(|_| random.below(LONGEST_PAUSE) as u64)
        .collect();
    let fault = (round % 2 == 1).then(|| FaultPoint {
        at: 1 + random.below(1500),
        kind: FaultKind::Kill,
    });
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let editor = scope.spawn(|| {
            let mut saved = Vec::new();
            for (at, pause) in pauses.into_iter().enumerate() {
                if over.load(Ordering::SeqCst) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(pause));
                // Most names exist; the run creates the others.
                let path = if at % 8 == 7 {
                    format!("new-{}.txt", at / 8)
                } else {
                    task::doc(at)
                };
                let token = format!("saved {round} {at}\n");
                if save(&scratch.project().join(&path), &token, at % 2 == 0).is_ok() {
                    saved.push((path, token));
                }
            }
            saved
        });
        let mut args = vec!["run", "Do it.", "--in-place", "--script", "../script.toml"];
        args.extend(task::OPTIONS);
        let mut ends = Vec::new();
        let ran = scratch.run(args, fault)?;
        if fault.is_none() {
            ends.push(ran);
        }
        for args in [&["undo", "--yes", "--partly"][..], &["redo", "--partly"]] {
            ends.push(scratch.run(args, None)?);
        }
        over.store(true, Ordering::SeqCst);
        let saved = editor.join().unwrap_or_default();
        Ok((saved, ends))
    })
}

/// Saves like an editor: renames a new file over the old one, or writes to the old one.
fn save(path: &Path, text: &str, rename: bool) -> std::io::Result<()> {
    if !rename {
        return std::fs::write(path, text);
    }
    let draft = path.with_extension("editor-draft");
    std::fs::write(&draft, text)?;
    std::fs::rename(draft, path)
}
