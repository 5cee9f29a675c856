//! Scenarios with agents that misbehave: they crash, exit without work, flood the output, or leave processes running.

use std::time::Duration;

use super::{
    ScenarioContext, ScenarioResult, ScenarioSetup, commands_ran, ended, has, marked_shell, say,
    shell, write,
};
use crate::contract::untouched;
use crate::facts::Crash;
use crate::holds;
use crate::product::RunRequest;
use windlass_scripted::Move;

/// The limits of the engine's memory and log after a flood, in bytes.
const MAX_MEMORY: u64 = 700 << 20;
const MAX_LOG: usize = 16 << 20;

pub(crate) fn crash(context: &ScenarioContext<'_>) -> ScenarioResult {
    let name = match context.runtime.facts.crash {
        Crash::ByCommand => None,
        Crash::Named(name) => Some(name),
    };
    let setup = ScenarioSetup::new(context, |_| match name {
        // The command's parent is the agent.
        None => vec![
            write("half.txt", "half\n"),
            shell("kill -KILL $PPID"),
            say("Not reached."),
        ],
        Some(_) => vec![Move::Hang],
    })?;
    // This callback kills the agent and never interrupts windlass.
    let kill_agent = || {
        if let Some(name) = name.filter(|_| setup.work_requests() > 0) {
            crate::child::kill_agent(&setup.scratch.mark(), name);
        }
        false
    };
    let ran = setup.run(&RunRequest {
        interrupt: Some(&kill_agent),
        ..RunRequest::default()
    })?;
    setup.judge(&ran, || {
        ended(&ran, "failed runtime", 1)?;
        untouched(&setup.scratch)?;
        holds(name.is_some() || ran.of("kept").next().is_some(), || {
            "the copy was not kept".to_owned()
        })
    })
}

pub(crate) fn silent_exit(context: &ScenarioContext<'_>) -> ScenarioResult {
    let setup = ScenarioSetup::new(context, |_| vec![say("Never asked.")])?;
    let silent = "#!/bin/sh\nexit 0\n";
    let program = match context.runtime.facts.python {
        false => setup.scratch.program("silent", silent)?,
        true => {
            let python = setup.scratch.program("python3", silent)?;
            setup
                .scratch
                .program("silent", &format!("#!{}\n", python.display()))?
        }
    };
    let ran = setup.run(&RunRequest {
        program: Some(program.display().to_string()),
        ..RunRequest::default()
    })?;
    setup.judge(&ran, || {
        // A one-shot program without output and with exit code 0 is valid, but it has no changes.
        let outcome = ran.outcome();
        let known = ["failed runtime", "failed no_changes"].contains(&outcome.as_str())
            && ran.child.code == 1;
        holds(known, || {
            format!("it ended as `{outcome}` with {}", ran.child.code)
        })?;
        untouched(&setup.scratch)?;
        holds(setup.server.requests() == 0, || {
            "the vendor got a request".to_owned()
        })
    })
}

pub(crate) fn flood(context: &ScenarioContext<'_>) -> ScenarioResult {
    // A command prints 200 MB, half of it in one line, and then the work continues.
    let setup = ScenarioSetup::new(context, |_| {
        vec![
            marked_shell("yes x | tr -d '\\n' | head -c 100000000; yes flood | head -c 100000000"),
            write("after.txt", "after\n"),
            say("That was much."),
        ]
    })?;
    let ran = setup.run(&RunRequest::default())?;
    setup.judge(&ran, || {
        ended(&ran, "completed", 0)?;
        has(&setup.scratch, "after.txt", "after\n")?;
        commands_ran(&setup.scratch)?;
        bounded(ran.child.memory, &ran.log)
    })?;
    if !context.runtime.is_foreign() {
        return Ok(crate::MatrixCell::Pass);
    }
    // An agent prints endlessly and never speaks the protocol.
    let setup = ScenarioSetup::new(context, |_| vec![say("Never asked.")])?;
    let program = setup.scratch.program(
        "flood",
        "#!/bin/sh\nyes 'this is no protocol' >&2 &\nexec yes 'this is no protocol'\n",
    )?;
    let ran = setup.run(&RunRequest {
        program: Some(program.display().to_string()),
        ..RunRequest::flags(&["--max-seconds", "8"])
    })?;
    setup.judge(&ran, || {
        let outcome = ran.outcome();
        holds(
            ["failed runtime", "timed_out"].contains(&outcome.as_str()),
            || format!("it ended as `{outcome}`"),
        )?;
        untouched(&setup.scratch)?;
        holds(ran.child.took < Duration::from_secs(20), || {
            format!("it took {:?}", ran.child.took)
        })?;
        bounded(ran.child.memory, &ran.log)
    })
}

/// Checks that the memory and the log of the engine stayed small.
pub(crate) fn bounded(memory: u64, log: &[serde_json::Value]) -> Result<(), String> {
    holds(memory < MAX_MEMORY, || {
        format!("the engine used {} MB of memory", memory >> 20)
    })?;
    let logged: usize = log.iter().map(|event| event.to_string().len()).sum();
    holds(logged < MAX_LOG, || {
        format!("the log has {} KB", logged >> 10)
    })
}

pub(crate) fn daemon(context: &ScenarioContext<'_>) -> ScenarioResult {
    let setup = ScenarioSetup::new(context, |scratch| {
        vec![
            marked_shell(format!(
                "setsid sleep {} >/dev/null 2>&1 </dev/null & echo started",
                scratch.seconds
            )),
            write("after.txt", "after\n"),
            say("Something runs in the background."),
        ]
    })?;
    let ran = setup.run(&RunRequest::default())?;
    setup.judge(&ran, || {
        ended(&ran, "completed", 0)?;
        has(&setup.scratch, "after.txt", "after\n")?;
        commands_ran(&setup.scratch)?;
        let gone = super::soon(|| !setup.scratch.has_sleeper());
        holds(gone, || "the daemon still runs".to_owned())
    })
}
