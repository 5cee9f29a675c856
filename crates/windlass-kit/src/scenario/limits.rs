//! Scenarios with rules, limits, failures and interrupts.

use std::time::Duration;

use serde_json::json;

use super::{ScenarioContext, ScenarioResult, ScenarioSetup, ended, has, lacks, say, shell, write};
use crate::contract::{billed, untouched};
use crate::facts::ScenarioNeed;
use crate::holds;
use crate::product::{FinishedRun, PROMPT, RunRequest};
use windlass_scripted::{Move, ReportedUsage, Script};

/// The prompt of the second run in a session.
const SECOND: &str = "Now the second part.";

pub(crate) fn denied_call(context: &ScenarioContext<'_>) -> ScenarioResult {
    let setup = ScenarioSetup::new(context, |_| {
        vec![
            shell("touch forbidden.txt"),
            write("allowed.txt", "yes\n"),
            say("One was denied."),
        ]
    })?;
    let tables = format!("[rules]\ndeny = {}\n", json!(["bash(touch *)"]));
    // Windlass does not know whether an agent that is named by its command asks before calls.
    let flags: &[&str] = match context.runtime.facts.name {
        "acp" => &["--accept-ungated"],
        _ => &[],
    };
    let ran = setup.run(&RunRequest {
        tables,
        ..RunRequest::flags(flags)
    })?;
    setup.judge(&ran, || {
        ended(&ran, "completed", 0)?;
        lacks(&setup.scratch, "forbidden.txt")?;
        has(&setup.scratch, "allowed.txt", "yes\n")?;
        let named = ran.of("denied").any(|event| {
            event["data"]["rule"]
                .as_str()
                .is_some_and(|rule| rule.contains("touch"))
        });
        holds(named, || "no `denied` event names the rule".to_owned())?;
        billed(&ran, &setup.server)
    })
}

pub(crate) fn budget(context: &ScenarioContext<'_>) -> ScenarioResult {
    if !context.runtime.has(ScenarioNeed::Steps) {
        return first_call(context);
    }
    let setup = ScenarioSetup::with(context, |scratch| Script {
        usage: ReportedUsage {
            fresh: 40_000,
            cached: 0,
            output: 100,
        },
        ..Script::new(
            &scratch.work(),
            (1..20)
                .map(|at| write(&format!("n{at}.txt"), "n\n"))
                .collect::<Vec<_>>(),
        )
    })?;
    let ran = setup.run(&RunRequest::flags(&["--max-tokens", "100000"]))?;
    setup.judge(&ran, || {
        ended(&ran, "budget_exceeded tokens", 4)?;
        untouched(&setup.scratch)?;
        holds(ran.of("kept").next().is_some(), || {
            "the copy was not kept".to_owned()
        })?;
        // The third request may exceed the limit, because its exact cost is unknown in advance; a fourth must not be
        // sent.
        let answers = setup.server.answers();
        holds((2..=3).contains(&answers), || {
            format!("the vendor gave {answers} answers")
        })?;
        billed(&ran, &setup.server)
    })
}

/// The same for a runtime that makes one model request: with a limit too low for it, the request is not sent.
fn first_call(context: &ScenarioContext<'_>) -> ScenarioResult {
    let setup = ScenarioSetup::new(context, |_| vec![say("Never asked.")])?;
    let ran = setup.run(&RunRequest::flags(&["--max-tokens", "20"]))?;
    setup.judge(&ran, || {
        ended(&ran, "budget_exceeded tokens", 4)?;
        untouched(&setup.scratch)?;
        let requests = setup.server.requests();
        holds(requests == 0, || {
            format!("the vendor got {requests} requests")
        })
    })
}

pub(crate) fn provider_500(context: &ScenarioContext<'_>) -> ScenarioResult {
    let setup = ScenarioSetup::new(context, |_| {
        vec![Move::Fail {
            status: 500,
            times: None,
        }]
    })?;
    let ran = setup.run(&RunRequest::default())?;
    setup.judge(&ran, || {
        ended(&ran, "failed provider", 7)?;
        untouched(&setup.scratch)?;
        let requests = setup.server.requests();
        holds((1..=20).contains(&requests), || {
            format!("the vendor got {requests} requests")
        })?;
        let took = ran.child.took;
        holds(
            took < Duration::from_secs(60) + context.runtime.facts.start,
            || format!("it took {took:?} to give up"),
        )
    })
}

pub(crate) fn cancel(context: &ScenarioContext<'_>) -> ScenarioResult {
    // Cancel first while the model is thinking, then while a command runs.
    let setup = ScenarioSetup::new(context, |_| vec![Move::Hang])?;
    let asked = || setup.work_requests() > 0;
    let ran = setup.run(&RunRequest {
        interrupt: Some(&asked),
        ..RunRequest::default()
    })?;
    setup.judge(&ran, || {
        cancelled(&ran)?;
        untouched(&setup.scratch)
    })?;
    if !context.runtime.has_tools() {
        return Ok(crate::MatrixCell::Pass);
    }
    let setup = ScenarioSetup::new(context, |scratch| {
        // Some agents reject a command that begins with `sleep`.
        vec![
            write("half.txt", "half\n"),
            shell(format!("env sleep {} && touch late.txt", scratch.seconds)),
        ]
    })?;
    let running = || setup.work_requests() > 1 && setup.scratch.has_sleeper();
    let ran = setup.run(&RunRequest {
        interrupt: Some(&running),
        ..RunRequest::default()
    })?;
    setup.judge(&ran, || {
        cancelled(&ran)?;
        untouched(&setup.scratch)?;
        holds(ran.of("kept").next().is_some(), || {
            "the copy was not kept".to_owned()
        })
    })
}

pub(crate) fn cancelled(ran: &FinishedRun) -> Result<(), String> {
    ended(ran, "cancelled", 130)?;
    let took = ran.cancelled_in()?;
    holds(took < Duration::from_secs(1), || {
        format!("the terminal event came {took:?} after the interrupt")
    })?;
    let stopped = ran.child.stopped_in.unwrap_or_default();
    holds(stopped < Duration::from_secs(3), || {
        format!("the process exited {stopped:?} after the interrupt")
    })
}

pub(crate) fn resume(context: &ScenarioContext<'_>) -> ScenarioResult {
    let setup = ScenarioSetup::new(context, |_| {
        vec![
            write("first.txt", "1\n"),
            say("The first part is done."),
            Move::Heard(SECOND.to_owned()),
            write("second.txt", "2\n"),
            say("The second part is done."),
        ]
    })?;
    let first = setup.run(&RunRequest::default())?;
    setup.judge(&first, || {
        ended(&first, "completed", 0)?;
        has(&setup.scratch, "first.txt", "1\n")
    })?;
    let before = setup.server.answers();
    let ask = RunRequest {
        prompt: Some(SECOND),
        ..RunRequest::flags(&["--isolated", "-r", &first.session])
    };
    let second = setup.run(&ask)?;
    setup.judge(&second, || {
        ended(&second, "completed", 0)?;
        has(&setup.scratch, "second.txt", "2\n")?;
        holds(second.session == first.session, || {
            "it continued in another session".to_owned()
        })?;
        let last = setup
            .server
            .seen()
            .into_iter()
            .rfind(|seen| seen.work)
            .map(|seen| seen.body)
            .unwrap_or_default();
        holds(last.contains(PROMPT), || {
            "the request did not contain the earlier conversation".to_owned()
        })?;
        let answers = setup.server.answers() - before;
        holds(answers <= 4, || {
            format!("the second part took {answers} answers")
        })
    })
}
