//! Agents that break: they are killed, they end without work, they say too much, they leave something running.

use std::time::Duration;

use super::{Judged, Stage, Trial, commands_ran, ended, has, marked_shell, say, shell, write};
use crate::contract::untouched;
use crate::facts::Crash;
use crate::holds;
use crate::product::Ask;
use windlass_scripted::Move;

/// The most memory the engine may have after a flood, and the most its log may hold.
const MEMORY: u64 = 700 << 20;
const LOG: usize = 16 << 20;

pub(crate) fn crash(stage: &Stage<'_>) -> Judged {
    let name = match stage.runtime.facts.crash {
        Crash::ByCommand => None,
        Crash::Named(name) => Some(name),
    };
    let trial = Trial::new(stage, |_| match name {
        // The command's parent is the agent.
        None => vec![
            write("half.txt", "half\n"),
            shell("kill -KILL $PPID"),
            say("Not reached."),
        ],
        Some(_) => vec![Move::Hang],
    })?;
    // It never says that windlass is to be interrupted: what it ends is the agent.
    let strike = || {
        if let Some(name) = name.filter(|_| trial.work_requests() > 0) {
            crate::child::end_those_of(&trial.place.mark(), name);
        }
        false
    };
    let ran = trial.run(&Ask {
        interrupt: Some(&strike),
        ..Ask::default()
    })?;
    trial.judge(&ran, || {
        ended(&ran, "failed runtime", 1)?;
        untouched(&trial.place)?;
        holds(name.is_some() || ran.of("kept").next().is_some(), || {
            "the copy was not kept".to_owned()
        })
    })
}

pub(crate) fn silent_exit(stage: &Stage<'_>) -> Judged {
    let trial = Trial::new(stage, |_| vec![say("Never asked.")])?;
    let silent = "#!/bin/sh\nexit 0\n";
    let program = match stage.runtime.facts.python {
        false => trial.place.program("silent", silent)?,
        true => {
            let python = trial.place.program("python3", silent)?;
            trial
                .place
                .program("silent", &format!("#!{}\n", python.display()))?
        }
    };
    let ran = trial.run(&Ask {
        program: Some(program.display().to_string()),
        ..Ask::default()
    })?;
    trial.judge(&ran, || {
        // A one-shot program that says nothing and ends with 0 did what its protocol asks of it; it has no work to show.
        let outcome = ran.outcome();
        let known = ["failed runtime", "failed no_changes"].contains(&outcome.as_str())
            && ran.child.code == 1;
        holds(known, || {
            format!("it ended as `{outcome}` with {}", ran.child.code)
        })?;
        untouched(&trial.place)?;
        holds(trial.server.requests() == 0, || {
            "somebody asked the vendor".to_owned()
        })
    })
}

pub(crate) fn flood(stage: &Stage<'_>) -> Judged {
    // A command that says 200 MB, half of it in one line, and then the work goes on.
    let trial = Trial::new(stage, |_| {
        vec![
            marked_shell("yes x | tr -d '\\n' | head -c 100000000; yes flood | head -c 100000000"),
            write("after.txt", "after\n"),
            say("That was much."),
        ]
    })?;
    let ran = trial.run(&Ask::default())?;
    trial.judge(&ran, || {
        ended(&ran, "completed", 0)?;
        has(&trial.place, "after.txt", "after\n")?;
        commands_ran(&trial.place)?;
        bounded(ran.child.memory, &ran.log)
    })?;
    if !stage.runtime.is_foreign() {
        return Ok(crate::Cell::Pass);
    }
    // An agent that says nothing else, for ever.
    let trial = Trial::new(stage, |_| vec![say("Never asked.")])?;
    let program = trial.place.program(
        "flood",
        "#!/bin/sh\nyes 'this is no protocol' >&2 &\nexec yes 'this is no protocol'\n",
    )?;
    let ran = trial.run(&Ask {
        program: Some(program.display().to_string()),
        ..Ask::flags(&["--max-seconds", "8"])
    })?;
    trial.judge(&ran, || {
        let outcome = ran.outcome();
        holds(
            ["failed runtime", "timed_out"].contains(&outcome.as_str()),
            || format!("it ended as `{outcome}`"),
        )?;
        untouched(&trial.place)?;
        holds(ran.child.took < Duration::from_secs(20), || {
            format!("it took {:?}", ran.child.took)
        })?;
        bounded(ran.child.memory, &ran.log)
    })
}

/// The engine did not grow with what it was told, and neither did its log.
pub(crate) fn bounded(memory: u64, log: &[serde_json::Value]) -> Result<(), String> {
    holds(memory < MEMORY, || {
        format!("the engine had {} MB", memory >> 20)
    })?;
    let logged: usize = log.iter().map(|event| event.to_string().len()).sum();
    holds(logged < LOG, || format!("the log has {} KB", logged >> 10))
}

pub(crate) fn daemon(stage: &Stage<'_>) -> Judged {
    let trial = Trial::new(stage, |place| {
        vec![
            marked_shell(format!(
                "setsid sleep {} >/dev/null 2>&1 </dev/null & echo started",
                place.seconds
            )),
            write("after.txt", "after\n"),
            say("Something runs in the background."),
        ]
    })?;
    let ran = trial.run(&Ask::default())?;
    trial.judge(&ran, || {
        ended(&ran, "completed", 0)?;
        has(&trial.place, "after.txt", "after\n")?;
        commands_ran(&trial.place)?;
        let gone = super::soon(|| !trial.place.has_sleeper());
        holds(gone, || "the daemon still runs".to_owned())
    })
}
