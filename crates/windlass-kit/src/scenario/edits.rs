//! Scenarios with normal work: changes must land, be logged by path, and be billed exactly.

use super::{
    ScenarioContext, ScenarioResult, ScenarioSetup, edit, ended, has, lacks, say, shell, worked,
    write,
};
use crate::contract::billed;
use crate::holds;
use crate::product::{FinishedRun, RunRequest};
use windlass_scripted::{Move, Script};

pub(crate) fn read(context: &ScenarioContext<'_>) -> ScenarioResult {
    let setup = ScenarioSetup::with(context, |scratch| {
        let _ = scratch.write("work/notes.txt", "the notes say 7153\n");
        Script::new(
            &scratch.work(),
            vec![Move::Read("notes.txt".to_owned()), say("Read.")],
        )
    })?;
    let ran = setup.run(&RunRequest::default())?;
    setup.judge(&ran, || {
        ended(&ran, "completed", 0)?;
        let reached = setup
            .server
            .seen()
            .iter()
            .any(|seen| seen.body.contains("the notes say 7153"));
        holds(reached, || "the file did not reach the model".to_owned())?;
        called(context, &ran)?;
        billed(&ran, &setup.server)
    })
}

pub(crate) fn plain_edit(context: &ScenarioContext<'_>) -> ScenarioResult {
    let setup = ScenarioSetup::new(context, |_| {
        worked(
            context,
            vec![edit("a.txt", "two", "TWO"), say("Changed one line.")],
        )
    })?;
    let ran = setup.run(&RunRequest::default())?;
    setup.judge(&ran, || {
        ended(&ran, "completed", 0)?;
        has(&setup.scratch, "a.txt", "one\nTWO\nthree\n")?;
        landed(&ran, &["a.txt"])?;
        called(context, &ran)?;
        billed(&ran, &setup.server)
    })
}

pub(crate) fn several_files(context: &ScenarioContext<'_>) -> ScenarioResult {
    let setup = ScenarioSetup::new(context, |_| {
        let moves = vec![
            write("src/new one.txt", "first\n"),
            write("other.txt", "it's \"second\"\n"),
            edit("a.txt", "three", "THREE"),
            say("Three files."),
        ];
        worked(context, moves)
    })?;
    let ran = setup.run(&RunRequest::default())?;
    setup.judge(&ran, || {
        ended(&ran, "completed", 0)?;
        has(&setup.scratch, "src/new one.txt", "first\n")?;
        has(&setup.scratch, "other.txt", "it's \"second\"\n")?;
        has(&setup.scratch, "a.txt", "one\ntwo\nTHREE\n")?;
        landed(&ran, &["a.txt", "other.txt", "src/new one.txt"])?;
        billed(&ran, &setup.server)
    })
}

pub(crate) fn delete(context: &ScenarioContext<'_>) -> ScenarioResult {
    let remove = match context.runtime.facts.removes_by_command {
        true => shell("rm -- gone.txt"),
        false => Move::Delete("gone.txt".to_owned()),
    };
    let setup = ScenarioSetup::new(context, |_| {
        worked(context, vec![remove.clone(), say("Removed.")])
    })?;
    let ran = setup.run(&RunRequest::default())?;
    setup.judge(&ran, || {
        ended(&ran, "completed", 0)?;
        lacks(&setup.scratch, "gone.txt")?;
        landed(&ran, &["gone.txt"])?;
        billed(&ran, &setup.server)
    })
}

pub(crate) fn command(context: &ScenarioContext<'_>) -> ScenarioResult {
    let line = "wc -l < a.txt > count.txt";
    let setup = ScenarioSetup::new(context, |_| vec![shell(line), say("Counted.")])?;
    let ran = setup.run(&RunRequest::default())?;
    setup.judge(&ran, || {
        ended(&ran, "completed", 0)?;
        has(&setup.scratch, "count.txt", "3\n")?;
        landed(&ran, &["count.txt"])?;
        let logged = ran
            .of("call_started")
            .any(|event| event["data"]["call"]["args"].to_string().contains("wc -l"));
        holds(logged || !context.runtime.facts.logs_calls, || {
            "the command is not in the log".to_owned()
        })?;
        billed(&ran, &setup.server)
    })
}

/// Checks that exactly these paths landed, and that the terminal event lists them.
fn landed(ran: &FinishedRun, paths: &[&str]) -> Result<(), String> {
    let landed: Vec<&str> = ran
        .of("landed")
        .flat_map(|event| event["data"]["files"].as_array().into_iter().flatten())
        .filter_map(|p| p.as_str())
        .collect();
    holds(landed == paths, || {
        format!("{landed:?} landed, not {paths:?}")
    })?;
    let files = ran.end()["files"].as_array();
    let named: Vec<&str> = files
        .into_iter()
        .flatten()
        .filter_map(|file| file["path"].as_str())
        .collect();
    holds(named == paths, || {
        format!("the terminal event lists {named:?}, not {paths:?}")
    })
}

/// Checks that every started call has a result, if the runtime reports its calls.
fn called(context: &ScenarioContext<'_>, ran: &FinishedRun) -> Result<(), String> {
    if !context.runtime.facts.logs_calls {
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
        format!("started calls: {begun:?}; finished calls: {done:?}")
    })
}
