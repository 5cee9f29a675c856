//! Kills at a random operation of an in-place run, an isolated run, an undo or a redo. Afterwards the next command
//! repairs tree and log to a consistent state, undo restores the original bytes, and redo restores the changes.

use std::path::Path;

use anyhow::{Result, ensure};

use super::{Random, Tally, oracle, task};
use crate::WorkMode;
use crate::scratch::{FinishedRun, ScratchDir, Template, Tree};
use crate::supervise::{FaultKind, FaultPoint};

const UNDO: [&str; 2] = ["undo", "--yes"];
const REDO: [&str; 1] = ["redo"];

/// The command that is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KilledCommand {
    Run(WorkMode),
    Undo(WorkMode),
    Redo(WorkMode),
}

const KILLED_COMMANDS: [KilledCommand; 6] = [
    KilledCommand::Run(WorkMode::InPlace),
    KilledCommand::Run(WorkMode::Isolated),
    KilledCommand::Undo(WorkMode::InPlace),
    KilledCommand::Undo(WorkMode::Isolated),
    KilledCommand::Redo(WorkMode::InPlace),
    KilledCommand::Redo(WorkMode::Isolated),
];

/// The trees before and after the task, and the number of operations of the command.
struct KillBaseline {
    before: Tree,
    after: Tree,
    ops: usize,
}

pub(super) fn run(binary: &Path, kills: usize, random: &mut Random) -> Result<Tally> {
    let template = Template::with(task::files(), false)?;
    let mut tally = Tally {
        part: "kills".to_owned(),
        ..Tally::default()
    };
    let mut met = [0_usize; KILLED_COMMANDS.len()];
    let expected = KILLED_COMMANDS.map(|killed| expected(binary, &template, killed));
    let expected: Vec<KillBaseline> = expected.into_iter().collect::<Result<_>>()?;
    for nth in 0..kills {
        let at = nth % KILLED_COMMANDS.len();
        let (killed, expected) = (KILLED_COMMANDS[at], &expected[at]);
        let fault = FaultPoint {
            at: 1 + random.below(expected.ops),
            kind: FaultKind::Kill,
        };
        let scratch = ScratchDir::new(binary, &template)?;
        prepare(&scratch, killed)?;
        let ran = run_killed(&scratch, killed, Some(fault))?;
        tally.cases += 1;
        met[at] += usize::from(ran.hit.is_some());
        let hit = ran
            .hit
            .map_or_else(|| "nothing".to_owned(), |op| op.to_string());
        let wrong = after(&scratch, killed, expected)?.into_iter();
        tally
            .wrong
            .extend(wrong.map(|why| format!("{killed:?}, operation {} ({hit}): {why}", fault.at)));
    }
    let met: Vec<String> = KILLED_COMMANDS
        .iter()
        .zip(met)
        .map(|(killed, met)| format!("{killed:?} {met}"))
        .collect();
    tally.seen = format!("hit: {}", met.join(", "));
    Ok(tally)
}

fn expected(binary: &Path, template: &Template, killed: KilledCommand) -> Result<KillBaseline> {
    let scratch = ScratchDir::new(binary, template)?;
    let before = oracle::files(&scratch.project())?;
    std::fs::write(scratch.base().join("script.toml"), task::script())?;
    let mode = match killed {
        KilledCommand::Run(mode) | KilledCommand::Undo(mode) | KilledCommand::Redo(mode) => mode,
    };
    let mut ran = task::run(&scratch, mode, None)?;
    ensure!(
        ran.code == Some(0),
        "the run without faults failed: {}{}",
        ran.out,
        ran.err
    );
    let after = oracle::files(&scratch.project())?;
    if !matches!(killed, KilledCommand::Run(_)) {
        ran = scratch.run(UNDO, None)?;
        ensure!(
            ran.code == Some(0),
            "the undo without faults failed: {}",
            ran.err
        );
        ensure!(
            oracle::files(&scratch.project())? == before,
            "the undo without faults is not complete"
        );
    }
    if matches!(killed, KilledCommand::Redo(_)) {
        ran = scratch.run(REDO, None)?;
        ensure!(
            ran.code == Some(0),
            "the redo without faults failed: {}",
            ran.err
        );
    }
    Ok(KillBaseline {
        before,
        after,
        ops: ran.ops.len(),
    })
}

/// Runs the commands before the one that is killed.
fn prepare(scratch: &ScratchDir, killed: KilledCommand) -> Result<()> {
    std::fs::write(scratch.base().join("script.toml"), task::script())?;
    if let KilledCommand::Undo(mode) | KilledCommand::Redo(mode) = killed {
        task::run(scratch, mode, None)?;
    }
    if matches!(killed, KilledCommand::Redo(_)) {
        scratch.run(UNDO, None)?;
    }
    Ok(())
}

fn run_killed(
    scratch: &ScratchDir,
    killed: KilledCommand,
    fault: Option<FaultPoint>,
) -> Result<FinishedRun> {
    match killed {
        KilledCommand::Run(mode) => task::run(scratch, mode, fault),
        KilledCommand::Undo(_) => scratch.run(UNDO, fault),
        KilledCommand::Redo(_) => scratch.run(REDO, fault),
    }
}

fn after(
    scratch: &ScratchDir,
    killed: KilledCommand,
    expected: &KillBaseline,
) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let status = scratch.run(["status"], None)?;
    wrong.extend(oracle::wrong_end(&status));
    if status.code != Some(0) {
        wrong.push(format!("status failed: {}", status.err));
    }
    let now = oracle::files(&scratch.project())?;
    let partial = matches!(killed, KilledCommand::Run(WorkMode::InPlace));
    if !partial && now != expected.before && now != expected.after {
        let why = oracle::difference(&expected.after, &now).unwrap_or_default();
        wrong.push(format!("a part of the changes is in the tree: {why}"));
    }
    wrong.extend(oracle::repeat(scratch, &UNDO)?);
    let undone = oracle::files(&scratch.project())?;
    wrong.extend(
        oracle::difference(&expected.before, &undone).map(|why| format!("after undo: {why}")),
    );
    if !partial {
        let had = now == expected.after || !matches!(killed, KilledCommand::Run(_));
        let wanted = if had {
            &expected.after
        } else {
            &expected.before
        };
        wrong.extend(oracle::repeat(scratch, &REDO)?);
        let redone = oracle::files(&scratch.project())?;
        wrong.extend(oracle::difference(wanted, &redone).map(|why| format!("after redo: {why}")));
    }
    // The next run of the session closes the one that was killed.
    if let KilledCommand::Run(mode) = killed {
        for session in scratch.logs()?.into_keys() {
            let flag = format!("--{}", mode.word());
            let mut args = vec!["resume", &session, "Go on.", &flag];
            args.extend(["--script", "../next.toml"]);
            args.extend(task::OPTIONS);
            let resumed = scratch.run(args, None)?;
            if resumed.code != Some(0) {
                let why = format!("code {:?}: {}", resumed.code, resumed.err);
                wrong.push(format!("{session} cannot be resumed: {why}"));
            }
        }
    }
    for (session, log) in scratch.logs()? {
        let ends = oracle::wrong_in_log(&log).into_iter();
        wrong.extend(ends.map(|why| format!("{session}: {why}")));
    }
    Ok(wrong)
}
