//! What a log says about time, tokens, money and calls: a fold of durable events that needs nothing else.
//! Times between events are by the wall clock of whoever wrote them; a clock that was set back counts as no time.
//!
//! ```
//! use windlass::core::clock::Timestamp;
//! use windlass::core::event::{Event, EventKind, Order, VERSION};
//! use windlass::core::id::TraceId;
//! use windlass::core::message::Message;
//! use windlass::stats::{
//!     Asks, Calls, Checks, Commands, ModelStats, RunStats, Stats, StepStats, Sum, Times, cache_hits,
//! };
//!
//! let started = Event {
//!     v: VERSION,
//!     order: Order::Durable { seq: 2 },
//!     at: Timestamp::from_millis(0),
//!     session: "s1".parse()?,
//!     run: Some("r1".parse()?),
//!     trace: TraceId::fresh(0, 1),
//!     kind: EventKind::RunStarted {
//!         prompt: Message::user("go"),
//!         queued: None,
//!         flags: Default::default(),
//!     },
//! };
//! let mut stats = Stats::default();
//! stats.apply(&started);
//! let runs: &[RunStats] = &stats.runs;
//! assert_eq!((runs.len(), runs[0].outcome.as_deref()), (1, None));
//! let total: Sum = stats.total;
//! let (calls, commands): (Calls, Commands) = (total.calls, total.commands);
//! let (asks, checks, waits): (Asks, Checks, Times) = (total.asks, total.checks, total.waits);
//! assert_eq!(calls.count + commands.count + asks.count + checks.count + waits.count, 0);
//! let (steps, models): (&[StepStats], Vec<&ModelStats>) = (&stats.steps, stats.models.values().collect());
//! assert!(steps.is_empty() && models.is_empty());
//! assert_eq!(cache_hits(&total.spent.usage), None);
//! let mut all = Stats::default();
//! all.add(stats);
//! # Ok::<(), windlass::core::id::IdError>(())
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;

use windlass_core::ask::AnsweredBy;
use windlass_core::budget::{Spent, Usage};
use windlass_core::clock::Timestamp;
use windlass_core::event::{Event, EventKind};
use windlass_core::id::{AskId, CallId, RunId, SessionId};
use windlass_core::message::{ErrorCategory, Role, ToolResult};
use windlass_core::outcome::RunSummary;
use windlass_core::validator::Judgement;
use windlass_core::workspace::{FileChange, ProcessEnd};

/// Everything that was counted.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Stats {
    /// Logs that were read.
    pub sessions: u64,
    /// All of it together.
    pub total: Sum,
    /// Each run, in order.
    pub runs: Vec<RunStats>,
    /// Each step (one model call and its tools), in order.
    pub steps: Vec<StepStats>,
    /// By the name of the tool.
    pub tools: BTreeMap<String, Calls>,
    /// By the name of the model.
    pub models: BTreeMap<String, ModelStats>,
    /// By the name of the validator.
    pub validators: BTreeMap<String, Checks>,
    /// Paths that any run changed.
    pub files: BTreeSet<String>,
    #[serde(skip)]
    open: Open,
}

/// What is counted of a run, and of all runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Sum {
    /// Steps, tokens and money.
    pub spent: Spent,
    /// How long it took without waiting for a person, in milliseconds.
    pub ms: u64,
    /// Of that, how long models took.
    pub model_ms: u64,
    /// Calls of tools.
    pub calls: Calls,
    /// Commands that were run.
    pub commands: Commands,
    /// Times a model was asked again later.
    pub waits: Times,
    /// Questions to a person.
    pub asks: Asks,
    /// Checks that validators made.
    pub checks: Checks,
    /// Files that were changed; one that two runs changed counts twice.
    pub files: u64,
    /// Lines that were added to them.
    pub added: u64,
    /// Lines that were taken from them.
    pub removed: u64,
    /// Connections that the sandbox refused.
    pub refused_connections: u64,
}

/// Calls and what came of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Calls {
    /// All of them.
    pub count: u64,
    /// Failed while running, or with arguments that do not fit.
    pub failed: u64,
    /// Not run, because a rule or a person said no.
    pub denied: u64,
    /// Stopped half way.
    pub interrupted: u64,
    /// How long all of them took, in milliseconds.
    pub ms: u64,
    /// How long the longest took.
    pub longest_ms: u64,
}

/// Commands and how they ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Commands {
    /// All of them.
    pub count: u64,
    /// Ended otherwise than with exit code 0.
    pub failed: u64,
    /// Bytes they wrote.
    pub bytes: u64,
    /// How long all of them took, in milliseconds.
    pub ms: u64,
}

/// How often, and how long together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Times {
    /// How often.
    pub count: u64,
    /// In milliseconds.
    pub ms: u64,
}

/// Questions to a person.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Asks {
    /// All of them.
    pub count: u64,
    /// Of those, answered by a person.
    pub by_person: u64,
    /// Of those, not answered yet.
    pub open: u64,
    /// How long the answers took, in milliseconds.
    pub ms: u64,
}

/// Verdicts of validators.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Checks {
    /// All of them.
    pub count: u64,
    /// Fine.
    pub passed: u64,
    /// Not fine.
    pub failed: u64,
    /// Could not be established.
    pub unverifiable: u64,
    /// How long they took, in milliseconds.
    pub ms: u64,
}

/// What a model was asked and what it cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ModelStats {
    /// Calls of it.
    pub calls: u64,
    /// Tokens.
    pub usage: Usage,
    /// Micro-USD, as far as a price is known.
    pub cost_micros: u64,
    /// Calls without a known price, which are missing from the cost.
    pub unpriced: u64,
    /// Calls whose tokens are our own count.
    pub estimated: u64,
    /// How long they took, in milliseconds.
    pub ms: u64,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunStats {
    /// Whose log.
    pub session: SessionId,
    /// Which.
    pub run: RunId,
    /// When it began.
    pub began: Timestamp,
    /// How it ended, in a word; absent while it is open.
    pub outcome: Option<String>,
    /// What was counted.
    #[serde(flatten)]
    pub sum: Sum,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StepStats {
    /// Whose log.
    pub session: SessionId,
    /// In which run.
    pub run: RunId,
    /// Counted from 1 in its run.
    pub step: u32,
    /// The model that was asked.
    pub model: String,
    /// Tokens.
    pub usage: Usage,
    /// Micro-USD; absent when the price is unknown.
    pub cost_micros: Option<u64>,
    /// How long the model took, in milliseconds.
    pub model_ms: u64,
    /// Its calls.
    pub calls: Calls,
}

/// What has begun and not ended.
#[derive(Debug, Clone, Default, PartialEq)]
struct Open {
    last: Option<Timestamp>,
    /// How long the model took for what it said last.
    said_ms: Option<u64>,
    waited_ms: u64,
    tools: HashMap<CallId, String>,
    asks: HashMap<AskId, Timestamp>,
    check: Option<Timestamp>,
    changed: BTreeMap<String, (u32, u32)>,
    in_run: bool,
}

/// The share of the input that came from a cache; `None` without input.
#[must_use]
pub fn cache_hits(usage: &Usage) -> Option<f64> {
    let all = usage.total_input();
    (all > 0).then(|| usage.cache_read as f64 / all as f64)
}

impl Stats {
    /// Takes one more event of a log in. Live ones change nothing.
    pub fn apply(&mut self, event: &Event) {
        if event.order.seq().is_none() {
            return;
        }
        match &event.kind {
            EventKind::SessionOpened { .. } => {
                self.sessions += 1;
                self.open = Open::default();
            }
            EventKind::RunStarted { .. } => self.begin(event),
            EventKind::Forked { .. } => self.close_asks(),
            _ if self.open.in_run => self.in_run(event),
            EventKind::Spent {
                model,
                call,
                cost_micros,
                estimated,
                ..
            } => {
                // Between two runs: it belongs to none of them, and was paid all the same. When it was begun, nobody says.
                self.model_called(model, *call, *cost_micros, *estimated, 0);
                self.total.paid(*call, *cost_micros, *estimated, 0);
            }
            _ => {}
        }
        self.open.last = Some(event.at);
    }

    /// Adds what was counted in another log.
    pub fn add(&mut self, other: Self) {
        self.sessions += other.sessions;
        self.total.add(&other.total);
        self.runs.extend(other.runs);
        self.steps.extend(other.steps);
        self.files.extend(other.files);
        for (name, calls) in other.tools {
            self.tools.entry(name).or_default().add(&calls);
        }
        for (name, model) in other.models {
            self.models.entry(name).or_default().add(&model);
        }
        for (name, checks) in other.validators {
            self.validators.entry(name).or_default().add(&checks);
        }
    }

    fn begin(&mut self, event: &Event) {
        self.end_files(None);
        self.close_asks();
        self.open = Open {
            in_run: true,
            ..Open::default()
        };
        let run = event
            .run
            .clone()
            .unwrap_or_else(|| RunId::nth(self.runs.len() as u64 + 1));
        let session = event.session.clone();
        self.runs.push(RunStats {
            session,
            run,
            began: event.at,
            outcome: None,
            sum: Sum::default(),
        });
    }

    fn in_run(&mut self, event: &Event) {
        match &event.kind {
            EventKind::IterationStarted { .. } => self.both(|sum| sum.spent.iterations += 1),
            EventKind::Said { message, .. } if message.role == Role::Assistant => {
                self.open.said_ms = Some(self.thought(event.at));
            }
            EventKind::Spent {
                model,
                call,
                cost_micros,
                estimated,
                ..
            } => {
                self.spent(event.at, model, *call, *cost_micros, *estimated);
            }
            EventKind::Waited { ms, .. } => {
                self.open.waited_ms = self.open.waited_ms.saturating_add(*ms);
                self.both(|sum| sum.waits.add(&Times { count: 1, ms: *ms }));
            }
            EventKind::CallStarted { call, .. } => {
                self.open.tools.insert(call.id.clone(), call.name.clone());
            }
            EventKind::CallFinished { result, ms } => self.call_finished(result, *ms),
            EventKind::CommandFinished { end, bytes, ms, .. } => {
                let failed = u64::from(*end != ProcessEnd::Exited { code: 0 });
                self.both(|sum| {
                    sum.commands.add(&Commands {
                        count: 1,
                        failed,
                        bytes: *bytes,
                        ms: *ms,
                    })
                });
            }
            EventKind::ConnectionRefused { .. } => self.both(|sum| sum.refused_connections += 1),
            EventKind::FileChanged { change, .. } => self.changed(change),
            EventKind::Asked { ask } => {
                self.open.asks.insert(ask.id.clone(), event.at);
                self.both(|sum| {
                    sum.asks.add(&Asks {
                        count: 1,
                        open: 1,
                        ..Asks::default()
                    })
                });
            }
            EventKind::Answered { ask, by, .. } => {
                let Some(asked) = self.open.asks.remove(ask) else {
                    return;
                };
                let (ms, by_person) = (
                    between(asked, event.at),
                    u64::from(*by == AnsweredBy::Person),
                );
                self.both(|sum| {
                    sum.asks.open = sum.asks.open.saturating_sub(1);
                    sum.asks.add(&Asks {
                        by_person,
                        ms,
                        ..Asks::default()
                    });
                });
            }
            EventKind::ValidationStarted { .. } => self.open.check = Some(event.at),
            EventKind::Validated {
                validator, report, ..
            } => {
                let ms = self
                    .open
                    .check
                    .take()
                    .map_or(0, |since| between(since, event.at));
                let checks = Checks::one(report.judgement, ms);
                self.validators
                    .entry(validator.clone())
                    .or_default()
                    .add(&checks);
                self.both(|sum| sum.checks.add(&checks));
            }
            EventKind::RunFinished(RunSummary {
                outcome, files, ms, ..
            }) => {
                self.end_files(Some(files));
                self.close_asks();
                self.both(|sum| sum.ms = sum.ms.saturating_add(*ms));
                if let Some(run) = self.runs.last_mut() {
                    run.outcome = Some(outcome.word().to_owned());
                }
                self.open.in_run = false;
            }
            _ => {}
        }
    }

    fn spent(
        &mut self,
        at: Timestamp,
        model: &str,
        usage: Usage,
        cost: Option<u64>,
        estimated: bool,
    ) {
        let ms = self.open.said_ms.take().unwrap_or_else(|| self.thought(at));
        self.open.waited_ms = 0;
        self.model_called(model, usage, cost, estimated, ms);
        self.both(|sum| sum.paid(usage, cost, estimated, ms));
        let Some(run) = self.runs.last() else { return };
        self.steps.push(StepStats {
            session: run.session.clone(),
            run: run.run.clone(),
            step: run.sum.spent.steps,
            model: model.to_owned(),
            usage,
            cost_micros: cost,
            model_ms: ms,
            calls: Calls::default(),
        });
    }

    fn model_called(
        &mut self,
        model: &str,
        usage: Usage,
        cost: Option<u64>,
        estimated: bool,
        ms: u64,
    ) {
        self.models
            .entry(model.to_owned())
            .or_default()
            .add(&ModelStats {
                calls: 1,
                usage,
                cost_micros: cost.unwrap_or(0),
                unpriced: u64::from(cost.is_none()),
                estimated: u64::from(estimated),
                ms,
            });
    }

    /// Nobody waits any more for what was not answered in the run.
    fn close_asks(&mut self) {
        let Some(run) = self.runs.last_mut() else {
            return;
        };
        let open = std::mem::take(&mut run.sum.asks.open);
        self.total.asks.open = self.total.asks.open.saturating_sub(open);
        self.open.asks.clear();
    }

    fn call_finished(&mut self, result: &ToolResult, ms: u64) {
        let calls = Calls::one(result.error, ms);
        let name = self
            .open
            .tools
            .remove(&result.id)
            .unwrap_or_else(|| result.name.clone());
        self.tools.entry(name).or_default().add(&calls);
        self.both(|sum| sum.calls.add(&calls));
        if let Some(step) = self.steps.last_mut() {
            step.calls.add(&calls);
        }
    }

    fn changed(&mut self, change: &FileChange) {
        self.files.insert(change.path.clone());
        let (added, removed) = self.open.changed.entry(change.path.clone()).or_default();
        *added = added.saturating_add(change.added.unwrap_or_default());
        *removed = removed.saturating_add(change.removed.unwrap_or_default());
    }

    /// What a run changed: what its end says, or what its calls said when it has none.
    fn end_files(&mut self, told: Option<&[FileChange]>) {
        let seen = std::mem::take(&mut self.open.changed);
        let lines: Vec<(u32, u32)> = match told {
            Some(files) => {
                self.files
                    .extend(files.iter().map(|file| file.path.clone()));
                files
                    .iter()
                    .map(|file| {
                        let count = |lines: Option<u32>| lines.unwrap_or_default();
                        (count(file.added), count(file.removed))
                    })
                    .collect()
            }
            None => seen.into_values().collect(),
        };
        let count = lines.len() as u64;
        let sums = lines.iter().fold((0, 0), |(a, r), (added, removed)| {
            (a + u64::from(*added), r + u64::from(*removed))
        });
        self.both(|sum| {
            sum.files += count;
            sum.added += sums.0;
            sum.removed += sums.1;
        });
    }

    /// How long the model took until now: since the event before, without the time it was waited for on purpose.
    fn thought(&self, at: Timestamp) -> u64 {
        let since = self.open.last.map_or(0, |last| between(last, at));
        since.saturating_sub(self.open.waited_ms)
    }

    /// Counts in the run and in the whole.
    fn both(&mut self, count: impl Fn(&mut Sum)) {
        count(&mut self.total);
        self.sum(count);
    }

    fn sum(&mut self, count: impl Fn(&mut Sum)) {
        if let Some(run) = self.runs.last_mut() {
            count(&mut run.sum);
        }
    }
}

fn between(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.as_millis().saturating_sub(from.as_millis())).unwrap_or(0)
}

macro_rules! adds {
    ($($kind:ident: $($field:ident),+;)+) => { $(
        impl $kind {
            /// Adds the same of another.
            pub fn add(&mut self, other: &Self) {
                $( self.$field = self.$field.saturating_add(other.$field); )+
            }
        }
    )+ };
}

adds! {
    Commands: count, failed, bytes, ms;
    Times: count, ms;
    Asks: count, by_person, open, ms;
    Checks: count, passed, failed, unverifiable, ms;
}

impl Calls {
    fn one(error: Option<ErrorCategory>, ms: u64) -> Self {
        let mut calls = Self {
            count: 1,
            ms,
            longest_ms: ms,
            ..Self::default()
        };
        match error {
            None => {}
            Some(ErrorCategory::Denied | ErrorCategory::Blocked) => calls.denied = 1,
            Some(ErrorCategory::Interrupted) => calls.interrupted = 1,
            Some(_) => calls.failed = 1,
        }
        calls
    }

    /// Adds the same of another.
    pub fn add(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.failed = self.failed.saturating_add(other.failed);
        self.denied = self.denied.saturating_add(other.denied);
        self.interrupted = self.interrupted.saturating_add(other.interrupted);
        self.ms = self.ms.saturating_add(other.ms);
        self.longest_ms = self.longest_ms.max(other.longest_ms);
    }
}

impl Checks {
    fn one(judgement: Judgement, ms: u64) -> Self {
        let is = |which: Judgement| u64::from(judgement == which);
        Self {
            count: 1,
            passed: is(Judgement::Pass),
            failed: is(Judgement::Fail),
            unverifiable: is(Judgement::Unverifiable),
            ms,
        }
    }
}

impl ModelStats {
    /// Adds the same of another.
    pub fn add(&mut self, other: &Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.usage.add(other.usage);
        self.cost_micros = self.cost_micros.saturating_add(other.cost_micros);
        self.unpriced = self.unpriced.saturating_add(other.unpriced);
        self.estimated = self.estimated.saturating_add(other.estimated);
        self.ms = self.ms.saturating_add(other.ms);
    }
}

impl Sum {
    /// A call of a model was paid.
    fn paid(&mut self, usage: Usage, cost: Option<u64>, estimated: bool, ms: u64) {
        self.model_ms = self.model_ms.saturating_add(ms);
        let (unpriced, cost_micros) = (cost.is_none(), cost.unwrap_or(0));
        self.spent.add(&Spent {
            iterations: 0,
            steps: 1,
            usage,
            cost_micros,
            estimated,
            unpriced,
        });
    }

    /// Adds the same of another.
    pub fn add(&mut self, other: &Self) {
        self.spent.add(&other.spent);
        self.calls.add(&other.calls);
        self.commands.add(&other.commands);
        self.waits.add(&other.waits);
        self.asks.add(&other.asks);
        self.checks.add(&other.checks);
        let numbers = [
            (&mut self.ms, other.ms),
            (&mut self.model_ms, other.model_ms),
            (&mut self.files, other.files),
            (&mut self.added, other.added),
            (&mut self.removed, other.removed),
            (&mut self.refused_connections, other.refused_connections),
        ];
        for (mine, more) in numbers {
            *mine = mine.saturating_add(more);
        }
    }
}

#[cfg(test)]
#[path = "stats_tests.rs"]
mod tests;
