//! Checks that decide what lands, whoever worked: what one finds goes back to the model, and nothing lands before it
//! passes.

use super::{Judged, Stage, Trial, ended, has, say, worked, write};
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
