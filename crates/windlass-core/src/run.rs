//! One run as a state machine without IO.
//!
//! [`Run`] is the fold of the events of a run. [`Run::next`] returns the next [`Step`]; the engine's driver performs it
//! and logs an event, and the event changes the state. To resume a run, fold its log and ask for the next step.
//!
//! Every step is not started, started or done. If the process that started a step is gone, the step is not repeated:
//! [`Run::left_open`] ends the run instead. A run that waits for a person has nothing open except an ask, and a paused run
//! has no step in progress, so that any process can resume it. The fold reads only events. Facts that recovery observes (the journal of a landing, a copy, a
//! dead process) reach it as events that recovery appends before the run is folded.
//!
//! | step | started | done | after a crash |
//! |---|---|---|---|
//! | open | the record of the copy | `transaction_opened` | a whole copy is a kept run, any other is removed |
//! | iterate | `iteration_started` | `iteration_finished` | begun calls are proven done or closed; the run ends |
//! | judge | `validation_started` | `judged` | the run ends |
//! | ask to land | `asked` | `answered` | the run waits; any process resumes it |
//! | land | the journal of the landing | `landed` | recovery finishes the landing and appends `landed`, or rolls it back |
//! | keep | `run_ending` | `kept` | the copy is there under its name; the run ends with the logged outcome |
//! | finish | `run_ending` | `run_finished` | the run ends with the logged outcome |
//!
//! ```
//! use windlass_core::flags::SavedFlags;
//! use windlass_core::id::RunId;
//! use windlass_core::message::Message;
//! use windlass_core::run::{Here, TransactionState, Run, Step};
//!
//! let run = Run::new(RunId::nth(1), Message::user("fix it"), SavedFlags::default());
//! let mut here = Here::default();
//! assert_eq!(run.next(&here), Step::Open { copy: None });
//! here.place = TransactionState::Open;
//! assert_eq!(run.next(&here), Step::Iterate { iteration: 1, started: false });
//! ```

mod prompts;

use std::collections::{BTreeSet, VecDeque};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::prompts::paths_in_words;
use self::prompts::{listed, retry_prompt};
use crate::ask::{About, Answer, AnsweredBy, LandingAsk};
use crate::event::{Event, EventKind};
use crate::flags::SavedFlags;
use crate::id::{AskId, RunId};
use crate::message::{Message, Origin, Part, Role};
use crate::outcome::{FailReason, Outcome, RunSummary};
use crate::pause::RunPause;
use crate::terms::Isolation;
use crate::validator::{Evidence, Finding};

/// Maximum number of times that one iteration is judged again because files changed while validators ran or while a
/// person was asked.
pub const MAX_STALE: u32 = 3;
/// Maximum number of broken rules that the outcome names.
const MAX_BROKEN: usize = 20;
/// Maximum number of remembered paths that the disk had no room for.
const MAX_UNWRITTEN: usize = 1_000;
/// Maximum number of earlier iterations whose findings are remembered.
const MAX_TRIES: usize = 20;

/// The progress of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Progress {
    /// The step has not started.
    #[default]
    NotStarted,
    /// The step has started and has no result yet.
    Started,
    /// The step has its result.
    Done,
}

/// The next step of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Open the workspace: in place, or a copy.
    Open {
        /// The name of the existing copy to resume with; `None` for a new one.
        copy: Option<String>,
    },
    /// Let the runtime work for one iteration.
    Iterate {
        /// The iteration's number, counted from 1.
        iteration: u32,
        /// True if the iteration started before the run paused. Its open calls are settled first.
        started: bool,
    },
    /// Judge the changes of the last iteration.
    Judge,
    /// Send the findings of the validators to the model, for the next iteration.
    Retry(Box<Message>),
    /// Ask a person about changed files that other programs act on.
    AskToLand(LandingAsk),
    /// Land the judged changes.
    Land {
        /// The hash of the judged tree.
        tree_hash: Option<String>,
        /// True if a person was asked or the run was paused meanwhile, so that the tree may have changed since it was
        /// judged.
        asked: bool,
    },
    /// Log the outcome of the run. `Keep` and `Finish` follow.
    End(Outcome),
    /// Keep the copy, if there is one, and close the transaction.
    Keep,
    /// Log the summary of the run.
    Finish(Outcome),
    /// Do nothing: the run is paused, or waits for a person's answer.
    Wait,
}

impl Step {
    /// Whether the run may pause before this step. A run whose outcome is decided or whose changes have landed does not
    /// pause any more.
    #[must_use]
    pub fn may_pause_before(&self) -> bool {
        match self {
            Self::Open { .. }
            | Self::Iterate { .. }
            | Self::Judge
            | Self::Retry(_)
            | Self::AskToLand(_)
            | Self::Land { .. } => true,
            Self::End(_) | Self::Keep | Self::Finish(_) | Self::Wait => false,
        }
    }
}

/// The result of judging an iteration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "is", rename_all = "snake_case")]
#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Judged {
    /// Nothing prevents the landing.
    Passed {
        /// The question that a person has to answer before the landing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ask: Option<LandingAsk>,
    },
    /// No file was changed.
    NothingChanged,
    /// A validator prevents the landing.
    Blocked {
        /// The name of the validator.
        validator: String,
        /// The findings of the validator.
        findings: Vec<Finding>,
    },
    /// The tree changed during the judgement or after it, so it has to be judged again.
    Stale {
        /// The paths that changed meanwhile.
        paths: Vec<String>,
    },
}

impl Judged {
    /// The name of the result, as in the log.
    #[must_use]
    pub fn word(&self) -> &'static str {
        self.into()
    }
}

/// The state of the transaction in the process that asks for the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TransactionState {
    /// The transaction was not opened yet.
    #[default]
    Unopened,
    /// The transaction is open.
    Open,
    /// The changes have landed, or the copy was kept or discarded.
    Closed,
}

/// Facts that are not in the log: the options of the run, and the transaction of this process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Here {
    /// The state of the transaction.
    pub place: TransactionState,
    /// True if the run is paused in this process, or waits for a person who is not connected.
    pub paused: bool,
    /// True if there is something to judge: a copy, a validator or a rule about paths.
    pub judges: bool,
    /// True if a run that changes no file has to fail.
    pub requires_changes: bool,
    /// True if a person is connected who can answer.
    pub attended: bool,
    /// True if the approval mode lets no call change anything.
    pub read_only: bool,
    /// True if the run only lands a kept run, which may have nothing but commits left.
    pub only_lands: bool,
    /// Maximum iterations of the budget.
    pub max_iterations: Option<u32>,
}

/// A run that has not finished, folded from its events.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// The id of the run.
    pub id: RunId,
    /// The prompt of the user.
    pub prompt: Message,
    /// The flags that the run was started with.
    pub flags: SavedFlags,
    /// The isolation, which is in place until the log says otherwise.
    pub isolation: Isolation,
    /// The name of the isolated copy.
    pub copy: Option<String>,
    /// The name of the kept run, once the copy was kept.
    pub kept: Option<String>,
    /// The prompt of the current iteration, if it is not the user's prompt.
    retry: Option<Box<Message>>,
    /// The current iteration, counted from 1; 0 before the first one.
    pub iteration: u32,
    iterating: Progress,
    judging: Progress,
    judged: Option<Judged>,
    /// Paths that validators depend on and that the run changed.
    pub judge_changed: Vec<String>,
    /// Verdicts on the tree that was judged last.
    pub evidence: Vec<Evidence>,
    /// The hash of that tree.
    tree_hash: Option<String>,
    stale: u32,
    /// The findings of earlier iterations, one set for each.
    findings: VecDeque<BTreeSet<String>>,
    landing_ask: Option<(AskId, LandingAsk)>,
    landing_answer: Option<(LandingAsk, Answer)>,
    /// True if the changes have landed.
    pub landed: bool,
    /// True if the agent has produced some text.
    answered: bool,
    /// The structured answer, if the run has an output schema.
    pub output: Option<serde_json::Value>,
    ending: Option<Outcome>,
    /// Rules that were broken by calls which nothing judged before they ran.
    broken_rules: BTreeSet<String>,
    /// True if a call has started.
    called: bool,
    /// True if a person answered an ask, also later and from another process.
    was_attended: bool,
    /// The rule by which the last call was denied.
    denied: Option<String>,
    pause: Option<RunPause>,
    /// The run was paused after its changes were judged.
    paused_after_judging: bool,
    /// Paths that the disk of the workspace had no room for, and that no later call wrote.
    unwritten: BTreeSet<String>,
}

impl Run {
    /// A run that has just started.
    #[must_use]
    pub fn new(id: RunId, prompt: Message, flags: SavedFlags) -> Self {
        Self {
            id,
            prompt,
            flags,
            isolation: Isolation::InPlace,
            copy: None,
            kept: None,
            retry: None,
            iteration: 0,
            iterating: Progress::NotStarted,
            judging: Progress::NotStarted,
            judged: None,
            judge_changed: Vec::new(),
            evidence: Vec::new(),
            tree_hash: None,
            stale: 0,
            findings: VecDeque::new(),
            landing_ask: None,
            landing_answer: None,
            landed: false,
            answered: false,
            output: None,
            ending: None,
            broken_rules: BTreeSet::new(),
            called: false,
            was_attended: false,
            denied: None,
            pause: None,
            paused_after_judging: false,
            unwritten: BTreeSet::new(),
        }
    }

    /// The prompt of the current iteration: the user's prompt, or the findings of the validators.
    #[must_use]
    pub fn request(&self) -> &Message {
        self.retry.as_deref().unwrap_or(&self.prompt)
    }

    /// The next step of the run.
    #[must_use]
    pub fn next(&self, here: &Here) -> Step {
        let open = here.place == TransactionState::Open;
        if let Some(outcome) = &self.ending {
            return match open {
                true => Step::Keep,
                false => Step::Finish(outcome.clone()),
            };
        }
        if here.paused {
            return if open { Step::Keep } else { Step::Wait };
        }
        match here.place {
            TransactionState::Unopened => {
                return Step::Open {
                    copy: self.copy.clone(),
                };
            }
            TransactionState::Closed => return Step::Finish(Outcome::Completed),
            TransactionState::Open => {}
        }
        if self.iterating != Progress::Done {
            return Step::Iterate {
                iteration: self.iteration.max(1),
                started: self.iterating == Progress::Started,
            };
        }
        if !self.broken_rules.is_empty() && !self.landed {
            let rules = self.broken_rules.iter().map(String::as_str);
            return Step::End(rules_broken(
                "a call that the agent ran without asking",
                rules,
            ));
        }
        if !self.unwritten.is_empty() {
            return Step::End(no_room(&self.unwritten));
        }
        if let Some(rule) = &self.denied
            && !(self.called || self.was_attended || here.attended || here.read_only)
        {
            return Step::End(all_denied(rule));
        }
        if !here.judges || self.landed {
            return Step::Keep;
        }
        match &self.judged {
            None if self.judging == Progress::Started => Step::End(self.left_open().outcome),
            None => Step::Judge,
            Some(Judged::Stale { paths }) if self.stale > MAX_STALE => Step::End(Outcome::failed(
                FailReason::LandingConflict,
                format!(
                    "the tree was changed {MAX_STALE} times while the checks ran ({}); stop what changes it, then land \
                     the kept copy",
                    paths_in_words(paths)
                ),
            )),
            Some(Judged::Stale { .. }) => Step::Judge,
            Some(Judged::Blocked {
                validator,
                findings,
            }) => self.retry_or_end(validator, findings, here.max_iterations),
            Some(Judged::NothingChanged) if !here.only_lands && self.lacks_result(here) => {
                Step::End(nothing_changed(here.requires_changes))
            }
            Some(Judged::NothingChanged) => self.land(None, here),
            Some(Judged::Passed { ask }) => self.land(ask.as_ref(), here),
        }
    }

    /// Whether a run that changed no file also lacks any other result. An answer counts as a result.
    fn lacks_result(&self, here: &Here) -> bool {
        self.output.is_none() && (here.requires_changes || !self.answered)
    }

    fn land(&self, ask: Option<&LandingAsk>, here: &Here) -> Step {
        if !self.isolation.is_isolated() {
            return Step::Keep;
        }
        let land = |asked| Step::Land {
            tree_hash: self.tree_hash.clone(),
            asked: asked || self.paused_after_judging,
        };
        let Some(ask) = ask else { return land(false) };
        match &self.landing_answer {
            Some((about, answer)) if about == ask => match answer {
                Answer::Once | Answer::Always { .. } => land(true),
                Answer::Abandoned => Step::End(Outcome::Cancelled),
                _ => Step::End(not_let_land(ask)),
            },
            None if !ask.failing.is_empty() && !here.attended => {
                Step::End(failed_before(&ask.failing))
            }
            _ => Step::AskToLand(ask.clone()),
        }
    }

    /// The next iteration, unless nothing improved or the budget allows no more iterations.
    fn retry_or_end(&self, validator: &str, findings: &[Finding], max: Option<u32>) -> Step {
        let failed = |why: String| {
            let detail = format!("{why}:\n{}", listed(validator, findings));
            Step::End(Outcome::failed(FailReason::Validation, detail))
        };
        let now = lines(validator, findings);
        if self.findings.back() == Some(&now) {
            return failed("nothing improved: two tries ended with the same findings".to_owned());
        }
        if max.is_some_and(|max| self.iteration >= max) {
            let tries = self.iteration;
            return failed(format!("the checks still fail after {tries} iterations"));
        }
        let text = retry_prompt(
            &self.prompt.text(),
            validator,
            findings,
            &now,
            &self.findings,
        );
        Step::Retry(Box::new(Message::internal(text)))
    }

    /// Applies one event. Events of other runs are ignored, except that they can discard this run's copy.
    pub fn apply(&mut self, event: &Event) {
        match &event.kind {
            EventKind::Discarded { name } => {
                self.copy.take_if(|copy| copy == name);
            }
            // Only the original session may resume the run on its copy.
            EventKind::Forked { .. } => self.pause = None,
            _ => {}
        }
        if event.run.as_ref() != Some(&self.id) {
            return;
        }
        match &event.kind {
            EventKind::Paused { reason, run_ms } => {
                let (reason, run_ms) = (*reason, *run_ms);
                self.pause = Some(RunPause { reason, run_ms });
                self.paused_after_judging = self.judged.is_some();
                // Checks that the pause stopped run again.
                if self.judging == Progress::Started {
                    self.judging = Progress::NotStarted;
                    self.evidence.clear();
                }
            }
            EventKind::TransactionOpened { terms, name } => {
                self.pause = None;
                self.isolation = terms.isolation;
                self.copy.clone_from(name);
                self.kept = None;
            }
            EventKind::Kept { name } => {
                self.copy = Some(name.clone());
                self.kept = Some(name.clone());
            }
            EventKind::IterationStarted { iteration, .. } => {
                self.iteration = *iteration;
                self.begin_try(Progress::Started);
            }
            EventKind::IterationFinished { output, .. } => {
                self.iterating = Progress::Done;
                self.output.clone_from(output);
            }
            EventKind::ValidationStarted { .. } => self.judging = Progress::Started,
            EventKind::Validated {
                validator,
                blocking,
                report,
                tree_hash,
            } => {
                // A validator with fixes changed the tree, so verdicts on the previous tree no longer apply.
                self.evidence.retain(|one| one.tree_hash == *tree_hash);
                self.evidence.push(Evidence {
                    validator: validator.clone(),
                    judgement: report.judgement,
                    advisory: !blocking,
                    preexisting: report.failed_before(),
                    tree_hash: tree_hash.clone(),
                    proof: report.proof.clone(),
                });
            }
            EventKind::Judged {
                result,
                tree_hash,
                judge_changed,
            } => self.take_judged(result, tree_hash.as_ref(), judge_changed),
            EventKind::Said { message, .. } if message.role == Role::Assistant => {
                let said =
                    |part: &Part| matches!(part, Part::Text { text } if !text.trim().is_empty());
                self.answered |= message.parts.iter().any(said);
            }
            EventKind::Said { message, .. }
                if message.origin == Origin::Engine
                    && matches!(self.judged, Some(Judged::Blocked { .. })) =>
            {
                self.iteration += 1;
                self.retry = Some(Box::new(message.clone()));
                self.begin_try(Progress::NotStarted);
            }
            EventKind::Asked { ask } => {
                if let About::Landing(about) = &ask.about {
                    self.landing_ask = Some((ask.id.clone(), about.clone()));
                }
            }
            EventKind::Answered {
                ask, answer, by, ..
            } => {
                self.was_attended |= *by == AnsweredBy::Person;
                if let Some((_, about)) = self.landing_ask.take_if(|(id, _)| id == ask) {
                    self.landing_answer = Some((about, answer.clone()));
                }
            }
            EventKind::Landed { .. } => {
                self.landed = true;
                self.copy = None;
            }
            EventKind::RuleBroken { rule, .. } if self.broken_rules.len() < MAX_BROKEN => {
                self.broken_rules.insert(rule.clone());
            }
            EventKind::CallStarted { .. } => self.called = true,
            EventKind::Denied { rule, .. } => self.denied = Some(rule.clone()),
            EventKind::NotWritten { paths, .. } => {
                let room = MAX_UNWRITTEN.saturating_sub(self.unwritten.len());
                self.unwritten.extend(paths.iter().take(room).cloned());
            }
            EventKind::FileChanged { change, .. } => {
                self.unwritten.remove(&change.path);
            }
            EventKind::RunEnding { outcome } => self.ending = Some(outcome.clone()),
            _ => {}
        }
    }

    fn begin_try(&mut self, iterating: Progress) {
        self.remember_findings();
        self.iterating = iterating;
        self.judging = Progress::NotStarted;
        self.evidence.clear();
        self.judge_changed.clear();
        self.stale = 0;
    }

    fn remember_findings(&mut self) {
        if let Some(Judged::Blocked {
            validator,
            findings,
        }) = self.judged.take()
        {
            self.findings.push_back(lines(&validator, &findings));
            if self.findings.len() > MAX_TRIES {
                self.findings.pop_front();
            }
        }
    }

    fn take_judged(
        &mut self,
        result: &Judged,
        tree_hash: Option<&String>,
        judge_changed: &[String],
    ) {
        self.tree_hash = tree_hash.cloned();
        self.judge_changed = judge_changed.to_vec();
        self.judged = Some(result.clone());
        self.judging = Progress::Done;
        self.paused_after_judging = false;
        if matches!(result, Judged::Stale { .. }) {
            self.stale += 1;
            self.judging = Progress::NotStarted;
            self.evidence.clear();
        }
    }

    /// Whether the runtime has started the current iteration and not finished it.
    #[must_use]
    pub fn is_iterating(&self) -> bool {
        self.iterating == Progress::Started
    }

    /// The pause of the run, until its workspace is opened again.
    #[must_use]
    pub fn pause(&self) -> Option<RunPause> {
        self.pause
    }

    fn left_while(&self) -> &'static str {
        if self.pause.is_some() {
            "while it was paused"
        } else if self.landing_ask.is_some() {
            "while a person was asked"
        } else if self.judging == Progress::Started {
            "while the checks ran"
        } else if self.judging == Progress::Done {
            "after the checks"
        } else if self.iterating == Progress::Started {
            "while the agent worked"
        } else {
            "between two steps"
        }
    }

    /// The summary of a run whose process is gone and which is not resumed. Steps that the process had started are not
    /// repeated. If recovery could finish a landing, it has logged that already.
    #[must_use]
    pub fn left_open(&self) -> RunSummary {
        let outcome = match &self.ending {
            Some(outcome) => outcome.clone(),
            None if self.landed => Outcome::Completed,
            None => Outcome::failed(
                FailReason::Interrupted,
                format!(
                    "the run was left open {}; the session goes on from what was logged",
                    self.left_while()
                ),
            ),
        };
        RunSummary {
            transaction: self.copy.clone().filter(|_| self.isolation.is_isolated()),
            evidence: self.evidence.clone(),
            judge_changed: self.judge_changed.clone(),
            output: self.output.clone(),
            ..RunSummary::new(outcome)
        }
    }
}

/// Each finding as one line, to compare them with those of another iteration.
fn lines(validator: &str, findings: &[Finding]) -> BTreeSet<String> {
    let line = |finding| format!("{validator}: {finding}");
    findings.iter().map(line).collect()
}

fn nothing_changed(required: bool) -> Outcome {
    let detail = match required {
        true => {
            "no file was changed, and --require-changes was given; say more exactly what is to be done"
        }
        false => "the agent changed no file and said nothing; say more exactly what is to be done",
    };
    Outcome::failed(FailReason::NoChanges, detail)
}

/// The outcome of an unattended run whose validators already failed before it.
fn failed_before(checks: &[String]) -> Outcome {
    let detail = format!(
        "these checks fail, and they failed before this run, too: {}; look at the kept copy and land it, or accept such \
         failures with --accept-preexisting",
        checks.join(", ")
    );
    Outcome::failed(FailReason::Validation, detail)
}

/// The outcome of a run whose landing no person approved.
fn not_let_land(ask: &LandingAsk) -> Outcome {
    if ask.paths.is_empty() {
        return failed_before(&ask.failing);
    }
    let names: Vec<String> = ask.paths.iter().map(|(path, _)| path.clone()).collect();
    let detail = format!(
        "a person has to let these land, and nobody did: {}; name them in the prompt, or look at the kept copy and \
         land it yourself",
        paths_in_words(&names)
    );
    Outcome::failed(FailReason::Policy, detail)
}

/// The outcome of a run in which something broke rules and was not judged before it happened.
#[must_use]
pub fn rules_broken<'a>(what: &str, rules: impl IntoIterator<Item = &'a str>) -> Outcome {
    let rules: Vec<&str> = rules.into_iter().collect();
    let detail = format!(
        "{what} is not allowed by {}; nothing landed, look at the kept copy and land it yourself if it may stay",
        rules.join(", ")
    );
    Outcome::failed(FailReason::Policy, detail)
}

/// The end of a run that nobody watches and that was not let do anything.
fn all_denied(rule: &str) -> Outcome {
    let detail = format!(
        "every call of the agent was denied, the last one by {rule}; allow what it needs by a rule or --approval, or \
         run it where a person can answer"
    );
    Outcome::failed(FailReason::Policy, detail)
}

/// The end of a run in place whose changes are not all on the disk.
fn no_room(paths: &BTreeSet<String>) -> Outcome {
    let names: Vec<String> = paths.iter().cloned().collect();
    let detail = format!(
        "the disk of the workspace is full, and these changes are not written: {}; free some space, then resume the \
         session",
        paths_in_words(&names)
    );
    Outcome::failed(FailReason::Store, detail)
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
