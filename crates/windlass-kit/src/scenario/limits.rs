//! Rules, limits, failures and interrupts.

use std::time::{Duration, SystemTime};

use serde_json::json;

use super::{Judged, Stage, Trial, ended, has, lacks, say, shell, without_tools, write};
use crate::contract::{billed, untouched};
use crate::holds;
use crate::model::{Move, Script, Usage};
use crate::product::{Ask, PROMPT, Ran};

pub(crate) fn denied_call(stage: &Stage<'_>) -> Judged {
    if let Some(judged) = without_tools(stage) {
        return judged;
    }
    let trial = Trial::new(stage, |_| {
        vec![shell("touch forbidden.txt"), write("allowed.txt", "yes\n"), say("One was denied.")]
    })?;
    let tables = format!("[rules]\ndeny = {}\n", json!(["bash(touch *)"]));
    let ran = trial.run(&Ask { tables, ..Ask::default() })?;
    trial.judge(&ran, || {
        ended(&ran, "completed", 0)?;
        lacks(&trial.place, "forbidden.txt")?;
        has(&trial.place, "allowed.txt", "yes\n")?;
        let named = ran.of("denied").any(|event| event["rule"].as_str().is_some_and(|rule| rule.contains("touch")));
        holds(named, || "no `denied` event names the rule".to_owned())?;
        billed(&ran, &trial.server)
    })
}

pub(crate) fn budget(stage: &Stage<'_>) -> Judged {
    if let Some(judged) = without_tools(stage) {
        return judged;
    }
    let trial = Trial::with(stage, |place| Script {
        usage: Usage { fresh: 40_000, cached: 0, output: 100 },
        ..Script::new(&place.work(), (1..20).map(|at| write(&format!("n{at}.txt"), "n\n")).collect::<Vec<_>>())
    })?;
    let ran = trial.run(&Ask::flags(&["--max-tokens", "100000"]))?;
    trial.judge(&ran, || {
        ended(&ran, "budget_exceeded tokens", 4)?;
        untouched(&trial.place)?;
        holds(ran.of("kept").next().is_some(), || "the copy was not kept".to_owned())?;
        // The third call crosses only because the vendor bills more than anybody could know; a fourth is not sent.
        let answers = trial.server.answers();
        holds((2..=3).contains(&answers), || format!("the vendor answered {answers} times"))?;
        billed(&ran, &trial.server)
    })
}

pub(crate) fn provider_500(stage: &Stage<'_>) -> Judged {
    let trial = Trial::new(stage, |_| vec![Move::Fail { status: 500, times: None }])?;
    let ran = trial.run(&Ask::default())?;
    trial.judge(&ran, || {
        ended(&ran, "failed provider", 7)?;
        untouched(&trial.place)?;
        let requests = trial.server.requests();
        holds((1..=20).contains(&requests), || format!("the vendor was asked {requests} times"))?;
        let took = ran.child.took;
        holds(took < Duration::from_secs(60), || format!("it took {took:?} to give up"))
    })
}

pub(crate) fn cancel(stage: &Stage<'_>) -> Judged {
    // First while the model thinks, then while a command runs.
    let trial = Trial::new(stage, |_| vec![Move::Hang])?;
    let asked = || trial.work_requests() > 0;
    let ran = trial.run(&Ask { interrupt: Some(&asked), ..Ask::default() })?;
    trial.judge(&ran, || {
        cancelled(&ran)?;
        untouched(&trial.place)
    })?;
    if !stage.runtime.has_tools() {
        return Ok(crate::Cell::Pass);
    }
    let trial = Trial::new(stage, |place| {
        vec![write("half.txt", "half\n"), shell(format!("sleep {} && touch late.txt", place.seconds))]
    })?;
    let running = || trial.work_requests() > 1 && trial.place.has_sleeper();
    let ran = trial.run(&Ask { interrupt: Some(&running), ..Ask::default() })?;
    trial.judge(&ran, || {
        cancelled(&ran)?;
        untouched(&trial.place)?;
        holds(ran.of("kept").next().is_some(), || "the copy was not kept".to_owned())
    })
}

pub(crate) fn cancelled(ran: &Ran) -> Result<(), String> {
    ended(ran, "cancelled", 130)?;
    let at = ran.end()["at"].as_str().unwrap_or_default();
    let told = ran.child.interrupted.map(|(_, at)| at).ok_or("it ended before it was interrupted")?;
    let took = since(told, at).ok_or_else(|| format!("`{at}` is no time"))?;
    holds(took < Duration::from_secs(1), || format!("from the interrupt to the last event it took {took:?}"))?;
    let stopped = ran.child.stopped_in.unwrap_or_default();
    holds(stopped < Duration::from_secs(3), || format!("the program ended {stopped:?} after the interrupt"))
}

/// From a moment to a time of the log of the same day; by seconds of the day, which is all that is needed.
fn since(from: SystemTime, at: &str) -> Option<Duration> {
    let (_, time) = at.trim_end_matches('Z').split_once('T')?;
    let mut parts = time.split(':').map(str::parse::<f64>);
    let (hours, minutes, seconds) = (parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?);
    let at = hours * 3600.0 + minutes * 60.0 + seconds;
    let from = from.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs_f64() % 86400.0;
    // Over midnight the day begins anew.
    Some(Duration::from_secs_f64((at - from).rem_euclid(86400.0)).min(Duration::from_secs(43200)))
}

pub(crate) fn resume(stage: &Stage<'_>) -> Judged {
    if let Some(judged) = without_tools(stage) {
        return judged;
    }
    let trial = Trial::new(stage, |_| {
        vec![
            write("first.txt", "1\n"),
            say("The first part is done."),
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
    let ask = Ask { prompt: Some("Now the second part."), ..Ask::flags(&["--isolated", "-r", &first.session]) };
    let second = trial.run(&ask)?;
    trial.judge(&second, || {
        ended(&second, "completed", 0)?;
        has(&trial.place, "second.txt", "2\n")?;
        holds(second.session == first.session, || "it went on in another session".to_owned())?;
        let last = trial.server.seen().into_iter().rfind(|seen| seen.work).map(|seen| seen.body).unwrap_or_default();
        holds(last.contains(PROMPT), || "the model was not told what was said before".to_owned())?;
        let answers = trial.server.answers() - before;
        holds(answers <= 4, || format!("the second part took {answers} answers"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_counted_over_midnight() {
        let from = SystemTime::UNIX_EPOCH + Duration::from_millis(86_399_500);
        assert_eq!(since(from, "1970-01-02T00:00:00.250Z"), Some(Duration::from_millis(750)));
        assert_eq!(since(from, "1970-01-01T23:59:59.750Z"), Some(Duration::from_millis(250)));
        assert_eq!(since(from, "soon"), None);
    }
}
