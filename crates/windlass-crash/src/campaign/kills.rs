//! A kill at a random operation of a run in place, an isolated run, an undo or a redo. Afterwards the next command brings
//! tree and log to one state, undo gives the bytes from before, and redo those from after.

use std::path::Path;

use anyhow::{Result, ensure};

use super::{Random, Tally, oracle, task};
use crate::Where;
use crate::place::{Place, Ran, Template, Tree};
use crate::supervise::{Blow, How};

const UNDO: [&str; 2] = ["undo", "--yes"];
const REDO: [&str; 1] = ["redo"];

/// The command that is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Run(Where),
    Undo(Where),
    Redo(Where),
}

const PHASES: [Phase; 6] = [
    Phase::Run(Where::InPlace),
    Phase::Run(Where::Isolated),
    Phase::Undo(Where::InPlace),
    Phase::Undo(Where::Isolated),
    Phase::Redo(Where::InPlace),
    Phase::Redo(Where::Isolated),
];

/// The trees before and after the task, and the number of operations of the command.
struct Expected {
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
    let mut met = [0_usize; PHASES.len()];
    let expected = PHASES.map(|phase| expected(binary, &template, phase));
    let expected: Vec<Expected> = expected.into_iter().collect::<Result<_>>()?;
    for nth in 0..kills {
        let at = nth % PHASES.len();
        let (phase, expected) = (PHASES[at], &expected[at]);
        let blow = Blow {
            at: 1 + random.below(expected.ops),
            how: How::Kill,
        };
        let here = Place::new(binary, &template)?;
        prepare(&here, phase)?;
        let ran = strike(&here, phase, Some(blow))?;
        tally.cases += 1;
        met[at] += usize::from(ran.hit.is_some());
        let hit = ran
            .hit
            .map_or_else(|| "nothing".to_owned(), |op| op.to_string());
        let wrong = after(&here, phase, expected)?.into_iter();
        tally
            .wrong
            .extend(wrong.map(|why| format!("{phase:?}, operation {} ({hit}): {why}", blow.at)));
    }
    let met: Vec<String> = PHASES
        .iter()
        .zip(met)
        .map(|(phase, met)| format!("{phase:?} {met}"))
        .collect();
    tally.seen = format!("struck: {}", met.join(", "));
    Ok(tally)
}

fn expected(binary: &Path, template: &Template, phase: Phase) -> Result<Expected> {
    let here = Place::new(binary, template)?;
    let before = oracle::files(&here.project())?;
    std::fs::write(here.base().join("script.toml"), task::script())?;
    let place = match phase {
        Phase::Run(place) | Phase::Undo(place) | Phase::Redo(place) => place,
    };
    let mut ran = task::run(&here, place, None)?;
    ensure!(
        ran.code == Some(0),
        "the run alone failed: {}{}",
        ran.out,
        ran.err
    );
    let after = oracle::files(&here.project())?;
    if !matches!(phase, Phase::Run(_)) {
        ran = here.run(UNDO, None)?;
        ensure!(ran.code == Some(0), "the undo alone failed: {}", ran.err);
        ensure!(
            oracle::files(&here.project())? == before,
            "the undo alone is not complete"
        );
    }
    if matches!(phase, Phase::Redo(_)) {
        ran = here.run(REDO, None)?;
        ensure!(ran.code == Some(0), "the redo alone failed: {}", ran.err);
    }
    Ok(Expected {
        before,
        after,
        ops: ran.ops.len(),
    })
}

/// Everything before the command that is killed.
fn prepare(here: &Place, phase: Phase) -> Result<()> {
    std::fs::write(here.base().join("script.toml"), task::script())?;
    if let Phase::Undo(place) | Phase::Redo(place) = phase {
        task::run(here, place, None)?;
    }
    if matches!(phase, Phase::Redo(_)) {
        here.run(UNDO, None)?;
    }
    Ok(())
}

fn strike(here: &Place, phase: Phase, blow: Option<Blow>) -> Result<Ran> {
    match phase {
        Phase::Run(place) => task::run(here, place, blow),
        Phase::Undo(_) => here.run(UNDO, blow),
        Phase::Redo(_) => here.run(REDO, blow),
    }
}

fn after(here: &Place, phase: Phase, expected: &Expected) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let status = here.run(["status"], None)?;
    wrong.extend(oracle::wrong_end(&status));
    if status.code != Some(0) {
        wrong.push(format!("status failed: {}", status.err));
    }
    let now = oracle::files(&here.project())?;
    let partial = matches!(phase, Phase::Run(Where::InPlace));
    if !partial && now != expected.before && now != expected.after {
        let why = oracle::difference(&expected.after, &now).unwrap_or_default();
        wrong.push(format!("half of it is in the tree: {why}"));
    }
    wrong.extend(oracle::repeat(here, &UNDO)?);
    let undone = oracle::files(&here.project())?;
    wrong.extend(
        oracle::difference(&expected.before, &undone).map(|why| format!("after undo: {why}")),
    );
    if !partial {
        let had = now == expected.after || !matches!(phase, Phase::Run(_));
        let wanted = if had {
            &expected.after
        } else {
            &expected.before
        };
        wrong.extend(oracle::repeat(here, &REDO)?);
        let redone = oracle::files(&here.project())?;
        wrong.extend(oracle::difference(wanted, &redone).map(|why| format!("after redo: {why}")));
    }
    // The next run of the session closes the one that was killed.
    if let Phase::Run(place) = phase {
        for session in here.logs()?.into_keys() {
            let flag = format!("--{}", place.word());
            let mut args = vec!["resume", &session, "Go on.", &flag];
            args.extend(["--script", "../next.toml"]);
            args.extend(task::OPTIONS);
            let resumed = here.run(args, None)?;
            if resumed.code != Some(0) {
                let why = format!("code {:?}: {}", resumed.code, resumed.err);
                wrong.push(format!("{session} cannot be resumed: {why}"));
            }
        }
    }
    for (session, log) in here.logs()? {
        let ends = oracle::wrong_in_log(&log).into_iter();
        wrong.extend(ends.map(|why| format!("{session}: {why}")));
    }
    Ok(wrong)
}
