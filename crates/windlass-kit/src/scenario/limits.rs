//! Rules, limits, failures and interrupts.

use std::time::Duration;

use serde_json::json;

use super::{Judged, Stage, Trial, ended, has, lacks, say, shell, write};
use crate::contract::{billed, untouched};
use crate::facts::Need;
use crate::holds;
use crate::product::{Ask, PROMPT, Ran};
use windlass_scripted::{Move, ReportedUsage, Script};

/// The second prompt of a session.
const SECOND: &str = "Now the second part.";

pub(crate) fn denied_call(stage: &Stage<'_>) -> Judged {
    let trial = Trial::new(stage, |_| {
        vec![
            shell("touch forbidden.txt"),
            write("allowed.txt", "yes\n"),
            say("One was denied."),
        ]
    })?;
    let tables = format!("[rules]\ndeny = {}\n", json!(["bash(touch *)"]));
    // Of an agent that is named by its command it is not known that it asks.
    let flags: &[&str] = match stage.runtime.facts.name {
        "acp" => &["--accept-ungated"],
        _ => &[],
    };
    let ran = trial.run(&Ask {
        tables,
        ..Ask::flags(flags)
    })?;
    trial.judge(&ran, || {
        ended(&ran, "completed", 0)?;
        lacks(&trial.place, "forbidden.txt")?;
        has(&trial.place, "allowed.txt", "yes\n")?;
        let named = ran.of("denied").any(|event| {
            event["data"]["rule"]
                .as_str()
                .is_some_and(|rule| rule.contains("touch"))
        });
        holds(named, || "no `denied` event names the rule".to_owned())?;
        billed(&ran, &trial.server)
    })
}

pub(crate) fn budget(stage: &Stage<'_>) -> Judged {
    if !stage.runtime.has(Need::Steps) {
        return first_call(stage);
    }
    let trial = Trial::with(stage, |place| Script {
        usage: ReportedUsage {
            fresh: 40_000,
            cached: 0,
            output: 100,
        },
        ..Script::new(
            &place.work(),
            (1..20)
                .map(|at| write(&format!("n{at}.txt"), "n\n"))
                .collect::<Vec<_>>(),
        )
    })?;
    let ran = trial.run(&Ask::flags(&["--max-tokens", "100000"]))?;
    trial.judge(&ran, || {
        ended(&ran, "budget_exceeded tokens", 4)?;
        untouched(&trial.place)?;
        holds(ran.of("kept").next().is_some(), || {
            "the copy was not kept".to_owned()
        })?;
        // The third call crosses only because the vendor bills more than anybody could know; a fourth is not sent.
        let answers = trial.server.answers();
        holds((2..=3).contains(&answers), || {
            format!("the vendor answered {answers} times")
        })?;
        billed(&ran, &trial.server)
    })
}

/// The same for a runtime that asks its model once: with too little for any question, not even that one is sent.
fn first_call(stage: &Stage<'_>) -> Judged {
    let trial = Trial::new(stage, |_| vec![say("Never asked.")])?;
    let ran = trial.run(&Ask::flags(&["--max-tokens", "20"]))?;
    trial.judge(&ran, || {
        ended(&ran, "budget_exceeded tokens", 4)?;
        untouched(&trial.place)?;
        let requests = trial.server.requests();
        holds(requests == 0, || {
            format!("the vendor was asked {requests} times")
        })
    })
}

pub(crate) fn provider_500(stage: &Stage<'_>) -> Judged {
    let trial = Trial::new(stage, |_| {
        vec![Move::Fail {
            status: 500,
            times: None,
        }]
    })?;
    let ran = trial.run(&Ask::default())?;
    trial.judge(&ran, || {
        ended(&ran, "failed provider", 7)?;
        untouched(&trial.place)?;
        let requests = trial.server.requests();
        holds((1..=20).contains(&requests), || {
            format!("the vendor was asked {requests} times")
        })?;
        let took = ran.child.took;
        holds(
            took < Duration::from_secs(60) + stage.runtime.facts.start,
            || format!("it took {took:?} to give up"),
        )
    })
}

pub(crate) fn cancel(stage: &Stage<'_>) -> Judged {
    // First while the model thinks, then while a command runs.
    let trial = Trial::new(stage, |_| vec![Move::Hang])?;
    let asked = || trial.work_requests() > 0;
    let ran = trial.run(&Ask {
        interrupt: Some(&asked),
        ..Ask::default()
    })?;
    trial.judge(&ran, || {
        cancelled(&ran)?;
        untouched(&trial.place)
    })?;
    if !stage.runtime.has_tools() {
        return Ok(crate::Cell::Pass);
    }
    let trial = Trial::new(stage, |place| {
        // Some agents do not run a line that begins with a sleep.
        vec![
            write("half.txt", "half\n"),
            shell(format!("env sleep {} && touch late.txt", place.seconds)),
        ]
    })?;
    let running = || trial.work_requests() > 1 && trial.place.has_sleeper();
    let ran = trial.run(&Ask {
        interrupt: Some(&running),
        ..Ask::default()
    })?;
    trial.judge(&ran, || {
        cancelled(&ran)?;
        untouched(&trial.place)?;
        holds(ran.of("kept").next().is_some(), || {
            "the copy was not kept".to_owned()
        })
    })
}

pub(crate) fn cancelled(ran: &Ran) -> Result<(), String> {
    ended(ran, "cancelled", 130)?;
    let took = ran.cancelled_in()?;
    holds(took < Duration::from_secs(1), || {
        format!("from the interrupt to the last event it took {took:?}")
    })?;
    let stopped = ran.child.stopped_in.unwrap_or_default();
    holds(stopped < Duration::from_secs(3), || {
        format!("the program ended {stopped:?} after the interrupt")
    })
}

pub(crate) fn resume(stage: &Stage<'_>) -> Judged {
    let trial = Trial::new(stage, |_| {
        vec![
            write("first.txt", "1\n"),
            say("The first part is done."),
            Move::Heard(SECOND.to_owned()),
            write("second.txt", "2\n"),
            say("The second part is done."),
        ]
    })?;
    let first = trial.run(&Ask::default())?;
    trial.judge(&first, || {
        ended(&first, "completed", 0)?;
        has(&trial.place, "first.txt", "1\n")
    })?;
    let before = trial.server.answers();
    let ask = Ask {
        prompt: Some(SECOND),
        ..Ask::flags(&["--isolated", "-r", &first.session])
    };
    let second = trial.run(&ask)?;
    trial.judge(&second, || {
        ended(&second, "completed", 0)?;
        has(&trial.place, "second.txt", "2\n")?;
        holds(second.session == first.session, || {
            "it went on in another session".to_owned()
        })?;
        let last = trial
            .server
            .seen()
            .into_iter()
            .rfind(|seen| seen.work)
            .map(|seen| seen.body)
            .unwrap_or_default();
        holds(last.contains(PROMPT), || {
            "the model was not told what was said before".to_owned()
        })?;
        let answers = trial.server.answers() - before;
        holds(answers <= 4, || {
            format!("the second part took {answers} answers")
        })
    })
}
