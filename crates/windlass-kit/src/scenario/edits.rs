//! Everyday work: it must land, be logged by path, and be billed exactly.

use super::{Judged, Stage, Trial, edit, ended, has, lacks, say, shell, worked, write};
use crate::contract::billed;
use crate::holds;
use crate::product::{Ask, Ran};
use windlass_scripted::{Move, Script};

pub(crate) fn read(stage: &Stage<'_>) -> Judged {
    let trial = Trial::with(stage, |place| {
        let _ = place.write("work/notes.txt", "the notes say 7153\n");
        Script::new(
            &place.work(),
            vec![Move::Read("notes.txt".to_owned()), say("Read.")],
        )
    })?;
    let ran = trial.run(&Ask::default())?;
    trial.judge(&ran, || {
        ended(&ran, "completed", 0)?;
        let reached = trial
            .server
            .seen()
            .iter()
            .any(|seen| seen.body.contains("the notes say 7153"));
        holds(reached, || "the file did not reach the model".to_owned())?;
        called(stage, &ran)?;
        billed(&ran, &trial.server)
    })
}

pub(crate) fn plain_edit(stage: &Stage<'_>) -> Judged {
    let trial = Trial::new(stage, |_| {
        worked(
            stage,
            vec![edit("a.txt", "two", "TWO"), say("Changed one line.")],
        )
    })?;
    let ran = trial.run(&Ask::default())?;
    trial.judge(&ran, || {
        ended(&ran, "completed", 0)?;
        has(&trial.place, "a.txt", "one\nTWO\nthree\n")?;
        landed(&ran, &["a.txt"])?;
        called(stage, &ran)?;
        billed(&ran, &trial.server)
    })
}

pub(crate) fn several_files(stage: &Stage<'_>) -> Judged {
    let trial = Trial::new(stage, |_| {
        let moves = vec![
            write("src/new one.txt", "first\n"),
            write("other.txt", "it's \"second\"\n"),
            edit("a.txt", "three", "THREE"),
            say("Three files."),
        ];
        worked(stage, moves)
    })?;
    let ran = trial.run(&Ask::default())?;
    trial.judge(&ran, || {
        ended(&ran, "completed", 0)?;
        has(&trial.place, "src/new one.txt", "first\n")?;
        has(&trial.place, "other.txt", "it's \"second\"\n")?;
        has(&trial.place, "a.txt", "one\ntwo\nTHREE\n")?;
        landed(&ran, &["a.txt", "other.txt", "src/new one.txt"])?;
        billed(&ran, &trial.server)
    })
}

pub(crate) fn delete(stage: &Stage<'_>) -> Judged {
    let remove = match stage.runtime.facts.removes_by_command {
        true => shell("rm -- gone.txt"),
        false => Move::Delete("gone.txt".to_owned()),
    };
    let trial = Trial::new(stage, |_| {
        worked(stage, vec![remove.clone(), say("Removed.")])
    })?;
    let ran = trial.run(&Ask::default())?;
    trial.judge(&ran, || {
        ended(&ran, "completed", 0)?;
        lacks(&trial.place, "gone.txt")?;
        landed(&ran, &["gone.txt"])?;
        billed(&ran, &trial.server)
    })
}

pub(crate) fn command(stage: &Stage<'_>) -> Judged {
    let line = "wc -l < a.txt > count.txt";
    let trial = Trial::new(stage, |_| vec![shell(line), say("Counted.")])?;
    let ran = trial.run(&Ask::default())?;
    trial.judge(&ran, || {
        ended(&ran, "completed", 0)?;
        has(&trial.place, "count.txt", "3\n")?;
        landed(&ran, &["count.txt"])?;
        let logged = ran
            .of("call_started")
            .any(|event| event["data"]["call"]["args"].to_string().contains("wc -l"));
        holds(logged || !stage.runtime.facts.tells_calls, || {
            "the command is not in the log".to_owned()
        })?;
        billed(&ran, &trial.server)
    })
}

/// These paths landed, and the last event names the same.
fn landed(ran: &Ran, paths: &[&str]) -> Result<(), String> {
    let landed: Vec<&str> = ran
        .of("landed")
        .flat_map(|event| event["data"]["files"].as_array().into_iter().flatten())
        .filter_map(|p| p.as_str())
        .collect();
    holds(landed == paths, || {
        format!("what landed is {landed:?}, not {paths:?}")
    })?;
    let files = ran.end()["files"].as_array();
    let named: Vec<&str> = files
        .into_iter()
        .flatten()
        .filter_map(|file| file["path"].as_str())
        .collect();
    holds(named == paths, || {
        format!("the last event names {named:?}, not {paths:?}")
    })
}

/// Every call that began has its result, where the runtime tells of its calls.
fn called(stage: &Stage<'_>, ran: &Ran) -> Result<(), String> {
    if !stage.runtime.facts.tells_calls {
        return Ok(());
    }
    let mut begun: Vec<&str> = ran
        .of("call_started")
        .filter_map(|event| event["data"]["call"]["id"].as_str())
        .collect();
    let mut done: Vec<&str> = ran
        .of("call_finished")
        .filter_map(|event| event["data"]["result"]["id"].as_str())
        .collect();
    begun.sort_unstable();
    done.sort_unstable();
    holds(!begun.is_empty(), || "no call is in the log".to_owned())?;
    holds(begun == done, || {
        format!("calls that began: {begun:?}; that ended: {done:?}")
    })
}
