//! Chooses the next step of a script by the conversation (`follow = "history"`) instead of by the number of requests.
//! If a call failed or was interrupted, the model first checks whether it took effect, and repeats it only if it did
//! not. All its state is in the request, so it continues correctly in another process after a crash.

use windlass_core::history::Entry;
use windlass_core::message::{ErrorCategory, Part, Role, ToolResult};

use super::format::{ModelScript, ScriptCall, ScriptStep};

/// The text of an answer that checks whether a call took effect.
const CHECK_TEXT: &str = "I check whether that took effect.";
/// The text of an answer that repeats a call.
const REPEAT_TEXT: &str = "It did not take effect, so I repeat it.";
/// The maximum number of checks and repetitions of one call.
const MAX_ATTEMPTS: usize = 8;

/// The step that answers a request.
#[derive(Debug)]
pub(super) enum NextStep {
    /// The step of the script with this number, counted from 0.
    Scripted(usize),
    /// A step that checks or repeats calls of the step with this number.
    Generated(usize, Box<ScriptStep>),
}

/// The action that a played call still needs, with the number of its results so far.
#[derive(Debug, PartialEq, Eq)]
enum PendingAction {
    None,
    Check(usize),
    Repeat(usize),
}

/// Finds the next step for this conversation.
pub(super) fn next(script: &ModelScript, history: &[Entry]) -> NextStep {
    let Some(at) = last_played(script, history) else {
        return NextStep::Scripted(0);
    };
    let Some(step) = script.step(at) else {
        return NextStep::Scripted(at);
    };
    let results: Vec<&ToolResult> = history
        .iter()
        .flat_map(|entry| &entry.parts)
        .filter_map(result)
        .collect();
    let generate = |text: &str, make: MakeCall| {
        let calls = step.calls.iter().enumerate().filter_map(|(nth, call)| {
            let name = format!("{}-{}", at + 1, nth + 1);
            make(call, &name, &pending_action(call, &name, &results))
        });
        let calls: Vec<ScriptCall> = calls.collect();
        let step = ScriptStep {
            text: Some(text.to_owned()),
            calls,
            ..ScriptStep::default()
        };
        (!step.calls.is_empty()).then(|| NextStep::Generated(at, Box::new(step)))
    };
    let generated = generate(CHECK_TEXT, check).or_else(|| generate(REPEAT_TEXT, repeat));
    if let Some(step) = generated {
        return step;
    }
    // If the conversation continues after the final answer, the model repeats that answer.
    let is_over = at + 1 == script.len() && step.calls.is_empty();
    NextStep::Scripted(if is_over { at } else { at + 1 })
}

/// Finds the step of the last answer, by the ids of its calls or by its text.
fn last_played(script: &ModelScript, history: &[Entry]) -> Option<usize> {
    let mut at = None;
    for entry in history.iter().filter(|entry| entry.role == Role::Assistant) {
        let by_call = entry.calls().find_map(|call| step_of(call.id.0.as_str()));
        let following = at.map_or(0, |at| at + 1);
        let by_text = || {
            let step = script.step(following)?;
            let text = [&step.text, &step.refusal]
                .into_iter()
                .flatten()
                .map(String::as_str)
                .collect::<String>();
            (step.calls.is_empty() && text == entry.text()).then_some(following)
        };
        at = by_call.or_else(by_text).or(at);
    }
    at
}

/// Returns the step in the id of a call, counted from 0: `call-STEP-N…` or `look-STEP-N…`.
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

/// Derives from the results the action that a call of a step still needs.
fn pending_action(call: &ScriptCall, name: &str, results: &[&ToolResult]) -> PendingAction {
    let check = call.check.as_ref();
    let (call, look) = (format!("call-{name}"), format!("look-{name}"));
    let belongs_to = |id: &str, of: &str| {
        id == of
            || id
                .strip_prefix(of)
                .is_some_and(|rest| rest.starts_with('-'))
    };
    let received: Vec<_> = results
        .iter()
        .filter(|r| belongs_to(r.id.0.as_str(), &call) || belongs_to(r.id.0.as_str(), &look))
        .collect();
    let attempts = received.len();
    let Some(last) = received.last().filter(|_| attempts <= MAX_ATTEMPTS) else {
        return PendingAction::None;
    };
    let interrupted = last.error == Some(ErrorCategory::Interrupted);
    if belongs_to(last.id.0.as_str(), &look) {
        return match check {
            Some(_) if interrupted => PendingAction::Check(attempts),
            Some(check) if last.text.contains(&check.shows) => PendingAction::None,
            _ => PendingAction::Repeat(attempts),
        };
    }
    match (last.error.is_some(), check) {
        (true, Some(_)) => PendingAction::Check(attempts),
        (true, None) if interrupted => PendingAction::Repeat(attempts),
        _ => PendingAction::None,
    }
}

type MakeCall = fn(&ScriptCall, &str, &PendingAction) -> Option<ScriptCall>;

fn check(call: &ScriptCall, name: &str, pending: &PendingAction) -> Option<ScriptCall> {
    let (PendingAction::Check(attempts), Some(check)) = (pending, &call.check) else {
        return None;
    };
    Some(ScriptCall {
        name: check.name.clone(),
        args: check.args.clone(),
        args_text: None,
        id: Some(format!("look-{name}-{attempts}")),
        check: None,
    })
}

fn repeat(call: &ScriptCall, name: &str, pending: &PendingAction) -> Option<ScriptCall> {
    let PendingAction::Repeat(attempts) = pending else {
        return None;
    };
    Some(ScriptCall {
        id: Some(format!("call-{name}-{attempts}")),
        ..call.clone()
    })
}
