//! Checks that decide what lands, whoever worked: what one finds goes back to the model, and nothing lands before it
//! passes.

use std::collections::HashSet;
use std::sync::Mutex;

use super::{Judged, Stage, Trial, ended, has, say, worked, write};
use crate::child;
use crate::contract::{billed, untouched};
use crate::holds;
use crate::product::Ask;
use windlass_scripted::Move;

/// A check that wants a file. Its words are only in what it says, not in how it is written, so that who was told the
/// command is not taken for who was told the finding.
const CHECK: &str = "test -f good.txt || { echo KIT-$((40+2))-MISSING; exit 1; }";
const FINDING: &str = "KIT-42-MISSING";

pub(crate) fn validator(stage: &Stage<'_>) -> Judged {
    let trial = Trial::new(stage, |_| {
        let mut moves = worked(
            stage,
            vec![write("first.txt", "1\n"), say("The first try is done.")],
        );
        moves.push(Move::Heard(FINDING.to_owned()));
        moves.extend(worked(
            stage,
            vec![write("good.txt", "2\n"), say("The second try is done.")],
        ));
        moves
    })?;
    let ran = trial.run(&Ask::flags(&["--validate", CHECK]))?;
    trial.judge(&ran, || {
        ended(&ran, "completed", 0)?;
        has(&trial.place, "first.txt", "1\n")?;
        has(&trial.place, "good.txt", "2\n")?;
        let told = trial
            .server
            .seen()
            .iter()
            .any(|seen| seen.body.contains(FINDING));
        holds(told, || "the finding did not reach the model".to_owned())?;
        billed(&ran, &trial.server)
    })?;
    let trial = Trial::new(stage, |_| {
        let mut moves = worked(
            stage,
            vec![write("first.txt", "1\n"), say("The first try is done.")],
        );
        moves.push(Move::Heard(FINDING.to_owned()));
        moves.extend(worked(
            stage,
            vec![
                write("other.txt", "2\n"),
                say("The second try is done, too."),
            ],
        ));
        moves
    })?;
    let ran = trial.run(&Ask::flags(&["--validate", CHECK, "--max-iterations", "2"]))?;
    trial.judge(&ran, || {
        holds(ran.child.code != 0, || {
            "a run whose check never passed is called done".to_owned()
        })?;
        untouched(&trial.place)?;
        holds(ran.of("landed").next().is_none(), || {
            "something landed".to_owned()
        })?;
        holds(ran.of("kept").next().is_some(), || {
            "the copy was not kept".to_owned()
        })
    })
}

/// Processes of the agent are stopped while the check runs, and one of them runs in the second iteration.
pub(crate) fn same_process(stage: &Stage<'_>) -> Judged {
    // Long enough to be looked at, each.
    let check = format!("test -f good.txt || sleep 2; {CHECK}");
    let last = || Move::Slow {
        text: "The second try is done now.".to_owned(),
        pause_ms: 400,
    };
    let trial = Trial::new(stage, |_| {
        let mut moves = worked(
            stage,
            vec![write("first.txt", "1\n"), say("The first try is done.")],
        );
        moves.push(Move::Heard(FINDING.to_owned()));
        moves.extend(worked(stage, vec![write("good.txt", "2\n"), last()]));
        moves
    })?;
    let (stopped, resumed) = (
        Mutex::new(HashSet::new()),
        Mutex::new(HashSet::<u32>::new()),
    );
    let look = || {
        let (mut stopped, mut resumed) = (
            stopped
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner),
            resumed
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner),
        );
        for (pid, state) in child::states_of(&trial.place.mark()) {
            match state {
                'T' => drop(stopped.insert(pid)),
                _ if stopped.contains(&pid) => drop(resumed.insert(pid)),
                _ => {}
            }
        }
        false
    };
    let ran = trial.run(&Ask {
        interrupt: Some(&look),
        ..Ask::flags(&["--validate", &check])
    })?;
    trial.judge(&ran, || {
        ended(&ran, "completed", 0)?;
        has(&trial.place, "good.txt", "2\n")?;
        let count = |set: &Mutex<HashSet<u32>>| set.lock().map(|set| set.len()).unwrap_or_default();
        holds(count(&stopped) > 0, || {
            "no process of the agent was stopped while the check ran".to_owned()
        })?;
        holds(count(&resumed) > 0, || {
            "no process of the agent went on after the check".to_owned()
        })
    })
}
