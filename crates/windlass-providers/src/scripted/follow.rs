//! Which answer comes next when a script follows the conversation instead of its own count (`follow = "history"`).
//! A model that is told of a call that failed or may have happened looks first, and repeats it only when it did not
//! happen. Everything it knows is in the request, so it goes on in another process as if nothing had been.

use windlass_core::history::Entry;
use windlass_core::message::{ErrorCategory, Part, Role, ToolResult};

use super::format::{Call, Script, Step};

/// What the model says before it looks whether a call happened.
const LOOKING: &str = "I look whether that happened.";
/// What it says before it makes a call once more.
const AGAIN: &str = "It did not happen: once more.";
/// So often it looks or repeats before it leaves a call alone.
const MOST_TRIES: usize = 8;

/// The next answer.
#[derive(Debug)]
pub(super) enum Next {
    /// The step of the script with this number, counted from 0.
    Step(usize),
    /// Looking, or repeating, for the step with this number.
    Made(usize, Box<Step>),
}

/// What is to be done about a call of a step that was played.
#[derive(Debug, PartialEq, Eq)]
enum Open {
    Nothing,
    Look(usize),
    Again(usize),
}

/// Finds the place in the script where this conversation is.
pub(super) fn next(script: &Script, history: &[Entry]) -> Next {
    let Some(at) = last_played(script, history) else {
        return Next::Step(0);
    };
    let Some(step) = script.step(at) else {
        return Next::Step(at);
    };
    let results: Vec<&ToolResult> = history
        .iter()
        .flat_map(|entry| &entry.parts)
        .filter_map(result)
        .collect();
    let made = |text: &str, make: fn(&Call, &str, &Open) -> Option<Call>| {
        let calls = step.calls.iter().enumerate().filter_map(|(nth, call)| {
            let name = format!("{}-{}", at + 1, nth + 1);
            make(call, &name, &open(call, &name, &results))
        });
        let calls: Vec<Call> = calls.collect();
        let step = Step {
            text: Some(text.to_owned()),
            calls,
            ..Step::default()
        };
        (!step.calls.is_empty()).then(|| Next::Made(at, Box::new(step)))
    };
    if let Some(made) = made(LOOKING, look).or_else(|| made(AGAIN, again)) {
        return made;
    }
    // Asked once more after its last words, a model says them again.
    let is_over = at + 1 == script.len() && step.calls.is_empty();
    Next::Step(if is_over { at } else { at + 1 })
}

/// The step that the last answer belongs to: by the ids of its calls, or by its words.
fn last_played(script: &Script, history: &[Entry]) -> Option<usize> {
    let mut at = None;
    for entry in history.iter().filter(|entry| entry.role == Role::Assistant) {
        let called = entry.calls().find_map(|call| step_of(call.id.0.as_str()));
        let following = at.map_or(0, |at| at + 1);
        let said = || {
            let step = script.step(following)?;
            let text = [&step.text, &step.refusal]
                .into_iter()
                .flatten()
                .map(String::as_str)
                .collect::<String>();
            (step.calls.is_empty() && text == entry.text()).then_some(following)
        };
        at = called.or_else(said).or(at);
    }
    at
}

/// The step of a call's id, counted from 0: `call-STEP-N…` or `look-STEP-N…`.
fn step_of(id: &str) -> Option<usize> {
    let rest = id
        .strip_prefix("call-")
        .or_else(|| id.strip_prefix("look-"))?;
    rest.split('-')
        .next()?
        .parse::<usize>()
        .ok()?
        .checked_sub(1)
}

fn result(part: &Part) -> Option<&ToolResult> {
    match part {
        Part::Result(result) => Some(result),
        _ => None,
    }
}

/// What the results say about one call of a step.
fn open(call: &Call, name: &str, results: &[&ToolResult]) -> Open {
    let check = call.check.as_ref();
    let (call, look) = (format!("call-{name}"), format!("look-{name}"));
    let about = |id: &str, of: &str| {
        id == of
            || id
                .strip_prefix(of)
                .is_some_and(|rest| rest.starts_with('-'))
    };
    let told: Vec<_> = results
        .iter()
        .filter(|r| about(r.id.0.as_str(), &call) || about(r.id.0.as_str(), &look))
        .collect();
    let tries = told.len();
    let Some(last) = told.last().filter(|_| tries <= MOST_TRIES) else {
        return Open::Nothing;
    };
    let interrupted = last.error == Some(ErrorCategory::Interrupted);
    if about(last.id.0.as_str(), &look) {
        return match check {
            Some(_) if interrupted => Open::Look(tries),
            Some(check) if last.text.contains(&check.shows) => Open::Nothing,
            _ => Open::Again(tries),
        };
    }
    match (last.error.is_some(), check) {
        (true, Some(_)) => Open::Look(tries),
        (true, None) if interrupted => Open::Again(tries),
        _ => Open::Nothing,
    }
}

fn look(call: &Call, name: &str, open: &Open) -> Option<Call> {
    let (Open::Look(tries), Some(check)) = (open, &call.check) else {
        return None;
    };
    Some(Call {
        name: check.name.clone(),
        args: check.args.clone(),
        args_text: None,
        id: Some(format!("look-{name}-{tries}")),
        check: None,
    })
}

fn again(call: &Call, name: &str, open: &Open) -> Option<Call> {
    let Open::Again(tries) = open else {
        return None;
    };
    Some(Call {
        id: Some(format!("call-{name}-{tries}")),
        ..call.clone()
    })
}
