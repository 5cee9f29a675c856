//! One iteration of the native loop as a pure state machine: it decides and a driver acts; time and money are
//! arguments. It has no access to a socket, a tool or the log, so tests drive it with plain values.
//!
//! ```
//! use windlass_core::budget::Limit;
//! use windlass_core::runtime::Stop;
//! use windlass_core::turn::{TurnStep, Turn};
//!
//! let mut turn = Turn::default();
//! assert!(matches!(turn.next(None), TurnStep::AskModel));
//! let over = turn.next(Some(Limit::Steps));
//! assert!(matches!(over, TurnStep::Finish(Stop::OverBudget { limit: Limit::Steps })));
//! ```

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};

use crate::budget::Limit;
use crate::message::{ErrorCategory, ToolCall, ToolResult};
use crate::outcome::{FailReason, RefusalCategory};
use crate::provider::EndReason;
use crate::reply::Reply;
use crate::runtime::Stop;
use crate::tool::{Effect, REFUSE};

/// Maximum truncated answers before the run fails.
const MAX_TRUNCATIONS: u32 = 2;
/// Maximum runs of the same call with the same result.
const MAX_REPEATS: u32 = 3;
/// Maximum reminders after an empty answer.
const MAX_EMPTY: u32 = 2;
/// Consecutive read-only steps before the model is reminded to act.
const READ_ONLY_STEPS: u32 = 15;
/// Maximum distinct calls that the repetition check remembers. Beyond it, the memory is cleared.
const REMEMBERED: usize = 4_096;

/// The next action of the driver.
#[derive(Debug, Clone, PartialEq)]
pub enum TurnStep {
    /// Call the model with the history.
    AskModel,
    /// Add this message in the role of the user, marked as internal.
    Inject(String),
    /// Settle these calls: run them, or refuse those that must not run.
    RunTools(Vec<Planned>),
    /// End the iteration for this reason.
    Finish(Stop),
}

/// A call with the loop's decision about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    /// The call to settle.
    pub call: ToolCall,
    /// Set if the call must not run; the text is for the model.
    pub refuse: Option<(ErrorCategory, String)>,
}

/// A call with its result.
#[derive(Debug, Clone, PartialEq)]
pub struct Settled {
    /// The result of the call.
    pub result: ToolResult,
    /// The effect of the tool; `None` if there is no such tool.
    pub effect: Option<Effect>,
}

/// The state of one iteration.
#[derive(Debug, Default)]
pub struct Turn {
    state: TurnState,
    truncations: u32,
    empty_ends: u32,
    read_only: u32,
    read_nudged: bool,
    last_failed: bool,
    stuck: Option<String>,
    /// For each call, its last result and how many times in a row it occurred since the last new action.
    repeats: HashMap<u64, (u64, u32)>,
    /// Every (call, result) pair so far, so that a cycle of calls does not look like progress.
    known: HashSet<(u64, u64)>,
    calls: Vec<ToolCall>,
    nudge: Option<String>,
}

#[derive(Debug, Default)]
enum TurnState {
    #[default]
    Ask,
    Run,
    Finish(Stop),
}

impl Turn {
    /// Resumes an iteration whose last message has calls without results.
    #[must_use]
    pub fn going_on(calls: Vec<ToolCall>) -> Self {
        let state = if calls.is_empty() {
            TurnState::Ask
        } else {
            TurnState::Run
        };
        Self {
            calls,
            state,
            ..Self::default()
        }
    }

    /// Continues the iteration, because the user sent a steering prompt.
    pub fn steered(&mut self) {
        self.state = TurnState::Ask;
    }

    /// The next action. `exceeded` is the limit that has been reached, if any; it prevents the next model call, but
    /// calls of the last answer are still settled.
    pub fn next(&mut self, exceeded: Option<Limit>) -> TurnStep {
        match &self.state {
            TurnState::Finish(stop) => TurnStep::Finish(stop.clone()),
            TurnState::Run => TurnStep::RunTools(self.plan()),
            TurnState::Ask => {
                if let Some(limit) = exceeded {
                    return TurnStep::Finish(Stop::OverBudget { limit });
                }
                match self.nudge.take() {
                    Some(text) => TurnStep::Inject(text),
                    None => TurnStep::AskModel,
                }
            }
        }
    }

    /// Processes an answer of the model.
    pub fn replied(&mut self, reply: &Reply) {
        self.calls = reply.message.calls().cloned().collect();
        if reply.end == EndReason::Refused {
            self.calls.clear();
            let detail = reply.message.text();
            let detail = if detail.trim().is_empty() {
                "the model declined".to_owned()
            } else {
                detail
            };
            self.state = TurnState::Finish(Stop::Refused {
                category: RefusalCategory::Safety,
                detail,
            });
            return;
        }
        if let Some(stop) = self.calls.iter().find_map(declined) {
            self.calls.clear();
            self.state = TurnState::Finish(stop);
            return;
        }
        if reply.truncated {
            self.truncations += 1;
            if self.truncations > MAX_TRUNCATIONS && self.calls.is_empty() {
                self.state = TurnState::Finish(truncation());
                return;
            }
            self.nudge = Some(CONTINUE.to_owned());
        }
        self.state = if !self.calls.is_empty() {
            TurnState::Run
        } else if reply.truncated {
            TurnState::Ask
        } else if !reply.message.has_text() && self.empty_ends < MAX_EMPTY {
            self.empty_ends += 1;
            self.nudge = Some(
                if self.last_failed {
                    EMPTY_AFTER_FAILURE
                } else {
                    EMPTY
                }
                .to_owned(),
            );
            TurnState::Ask
        } else {
            TurnState::Finish(Stop::Done)
        };
    }

    /// Rejects the final answer because it does not match the output schema. The model is told why and continues.
    pub fn rejected(&mut self, why: String) {
        self.nudge = Some(why);
        self.state = TurnState::Ask;
    }

    /// Processes the results of the calls: exactly one for each, in call order.
    pub fn settled(&mut self, results: &[Settled]) {
        if self.known.len() >= REMEMBERED {
            self.known.clear();
            self.repeats.clear();
        }
        for (call, settled) in self.calls.iter().zip(results) {
            let (key, result) = (
                key(call),
                hash(&(&settled.result.text, settled.result.error)),
            );
            let new = self.known.insert((key, result));
            let acted = settled.effect.is_some_and(|effect| effect > Effect::Read)
                && settled.result.error.is_none();
            if new && acted {
                // A new action succeeded, so repeating an earlier call after it is not a loop.
                self.repeats.clear();
            }
            let seen = self.repeats.entry(key).or_insert((result, 0));
            *seen = if seen.0 == result {
                (result, seen.1 + 1)
            } else {
                (result, 1)
            };
            if seen.1 == MAX_REPEATS {
                self.nudge = Some(format!(
                    "You have called {} {MAX_REPEATS} times with the same arguments and the same result. \
                     It will not be run again: try something else, or say what stops you.",
                    call.name
                ));
            }
        }
        self.last_failed = results
            .last()
            .is_some_and(|settled| settled.result.error.is_some());
        let looked = results
            .iter()
            .all(|settled| settled.effect.is_none_or(|effect| effect == Effect::Read));
        self.read_only = if looked { self.read_only + 1 } else { 0 };
        if self.read_only >= READ_ONLY_STEPS && !self.read_nudged && self.nudge.is_none() {
            self.read_nudged = true;
            self.nudge = Some(LOOKING.to_owned());
        }
        self.calls.clear();
        self.state = match self.stuck.take() {
            Some(detail) => TurnState::Finish(Stop::Failed {
                reason: FailReason::Repetition,
                detail,
            }),
            None if self.truncations > MAX_TRUNCATIONS => TurnState::Finish(truncation()),
            None => TurnState::Ask,
        };
    }

    fn plan(&mut self) -> Vec<Planned> {
        let mut planned: Vec<Planned> = Vec::with_capacity(self.calls.len());
        for call in &self.calls {
            let before = self.repeats.get(&key(call)).map_or(0, |(_, count)| *count);
            let twins = planned
                .iter()
                .filter(|other| other.call.name == call.name && other.call.args == call.args)
                .count();
            let repeated = before >= MAX_REPEATS;
            if repeated {
                self.stuck = Some(format!(
                    "the model kept calling `{}` with the same arguments and the same result; \
                     rephrase the task, or look at what the tool answers",
                    call.name
                ));
            }
            let refuse = (repeated || twins >= MAX_REPEATS as usize).then(|| {
                let text = "this call was made three times already with the same result and was not run again";
                (ErrorCategory::Blocked, text.to_owned())
            });
            planned.push(Planned {
                call: call.clone(),
                refuse,
            });
        }
        planned
    }
}

/// The refusal in a call of the `refuse` tool. A call without a valid reason is treated as an ordinary call.
fn declined(call: &ToolCall) -> Option<Stop> {
    if call.name != REFUSE || call.malformed.is_some() {
        return None;
    }
    let detail = call.args.get("reason")?.as_str()?.to_owned();
    let category = serde_json::from_value(call.args.get("category")?.clone()).ok()?;
    Some(Stop::Refused { category, detail })
}

fn truncation() -> Stop {
    Stop::Failed {
        reason: FailReason::Truncation,
        detail: "the model's answers were cut off at its output limit three times; \
                 raise the output limit, or ask for less at once"
            .to_owned(),
    }
}

fn key(call: &ToolCall) -> u64 {
    hash(&(&call.name, call.args.to_string(), &call.malformed))
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

const CONTINUE: &str = "Your answer was cut off at the output limit. Anything after the cut was not seen and no \
    unfinished call was run. Go on exactly where it stopped, in smaller pieces.";
const EMPTY: &str = "Your answer was empty. Go on with the task, or say in words that it is done.";
const EMPTY_AFTER_FAILURE: &str = "The last call failed and your answer was empty. Go on until it works, or say in \
    words why you stop here.";
const LOOKING: &str = "You have been only looking for many steps. If you know enough, act now; if something stops \
    you, say what it is.";

#[cfg(test)]
#[path = "turn_tests.rs"]
mod tests;
