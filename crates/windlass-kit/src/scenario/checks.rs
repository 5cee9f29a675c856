//! Scenarios with validators: findings go back to the model, and changes land only after the validators pass.

use std::collections::HashSet;
use std::sync::Mutex;

use super::{ScenarioContext, ScenarioResult, ScenarioSetup, ended, has, say, worked, write};
use crate::child;
use crate::contract::{billed, untouched};
use crate::holds;
use crate::product::RunRequest;
use windlass_scripted::Move;

/// A check that requires a file. The text of the finding is in its output but not in the command itself, so that a
/// model that sees only the command is not taken for one that got the finding.
const CHECK: &str = "test -f good.txt || { echo KIT-$((40+2))-MISSING; exit 1; }";
const FINDING: &str = "KIT-42-MISSING";

pub(crate) fn validator(context: &ScenarioContext<'_>) -> ScenarioResult {
    let setup = ScenarioSetup::new(context, |_| {
        let mut moves = worked(
            context,
            vec![write("first.txt", "1\n"), say("The first try is done.")],
        );
        moves.push(Move::Heard(FINDING.to_owned()));
        moves.extend(worked(
            context,
            vec![write("good.txt", "2\n"), say("The second try is done.")],
        ));
        moves
    })?;
    let ran = setup.run(&RunRequest::flags(&["--validate", CHECK]))?;
    setup.judge(&ran, || {
        ended(&ran, "completed", 0)?;
        has(&setup.scratch, "first.txt", "1\n")?;
        has(&setup.scratch, "good.txt", "2\n")?;
        let reached = setup
            .server
            .seen()
            .iter()
            .any(|seen| seen.body.contains(FINDING));
        holds(reached, || "the finding did not reach the model".to_owned())?;
        billed(&ran, &setup.server)
    })?;
    let setup = ScenarioSetup::new(context, |_| {
        let mut moves = worked(
            context,
            vec![write("first.txt", "1\n"), say("The first try is done.")],
        );
        moves.push(Move::Heard(FINDING.to_owned()));
        moves.extend(worked(
            context,
            vec![
                write("other.txt", "2\n"),
                say("The second try is done, too."),
            ],
        ));
        moves
    })?;
    let ran = setup.run(&RunRequest::flags(&[
        "--validate",
        CHECK,
        "--max-iterations",
        "2",
    ]))?;
    setup.judge(&ran, || {
        holds(ran.child.code != 0, || {
            "a run whose check never passed completed".to_owned()
        })?;
        untouched(&setup.scratch)?;
        holds(ran.of("landed").next().is_none(), || {
            "something landed".to_owned()
        })?;
        holds(ran.of("kept").next().is_some(), || {
            "the copy was not kept".to_owned()
        })
    })
}

/// Checks that the agent's processes are stopped while the check runs, and that one of them continues in the second
/// iteration.
pub(crate) fn same_process(context: &ScenarioContext<'_>) -> ScenarioResult {
    // Both phases last long enough to observe the processes.
    let check = format!("test -f good.txt || sleep 2; {CHECK}");
    let last = || Move::Slow {
        text: "The second try is done now.".to_owned(),
        pause_ms: 400,
    };
    let setup = ScenarioSetup::new(context, |_| {
        let mut moves = worked(
            context,
            vec![write("first.txt", "1\n"), say("The first try is done.")],
        );
        moves.push(Move::Heard(FINDING.to_owned()));
        moves.extend(worked(context, vec![write("good.txt", "2\n"), last()]));
        moves
    })?;
    let (stopped, resumed) = (
        Mutex::new(HashSet::new()),
        Mutex::new(HashSet::<u32>::new()),
    );
    let observe = || {
        let (mut stopped, mut resumed) = (
            stopped
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner),
            resumed
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner),
        );
        for (pid, state) in child::states_of(&setup.scratch.mark()) {
            match state {
                'T' => drop(stopped.insert(pid)),
                _ if stopped.contains(&pid) => drop(resumed.insert(pid)),
                _ => {}
            }
        }
        false
    };
    let ran = setup.run(&RunRequest {
        interrupt: Some(&observe),
        ..RunRequest::flags(&["--validate", &check])
    })?;
    setup.judge(&ran, || {
        ended(&ran, "completed", 0)?;
        has(&setup.scratch, "good.txt", "2\n")?;
        let count = |set: &Mutex<HashSet<u32>>| set.lock().map(|set| set.len()).unwrap_or_default();
        holds(count(&stopped) > 0, || {
            "no process of the agent was stopped while the check ran".to_owned()
        })?;
        holds(count(&resumed) > 0, || {
            "no process of the agent continued after the check".to_owned()
        })
    })
}
