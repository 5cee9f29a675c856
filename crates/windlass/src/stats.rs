//! Statistics of session logs: time, tokens, cost and calls, computed as a fold of durable events.
//!
//! Durations between events come from the wall clock of the process that wrote the log. If that clock was set back, the
//! duration is zero.
//!
//! ```
//! use windlass::core::clock::Timestamp;
//! use windlass::core::event::{Event, EventKind, Order, VERSION};
//! use windlass::core::id::TraceId;
//! use windlass::core::message::Message;
//! use windlass::stats::{
//!     AskStats, CallStats, CheckStats, CommandStats, ModelStats, RunStats, Stats, StepStats, StatTotals, WaitStats, cache_hits,
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
//! let total: StatTotals = stats.total;
//! let (calls, commands): (CallStats, CommandStats) = (total.calls, total.commands);
//! let (asks, checks, waits): (AskStats, CheckStats, WaitStats) = (total.asks, total.checks, total.waits);
//! assert_eq!(calls.count + commands.count + asks.count + checks.count + waits.count, 0);
//! let (steps, models): (&[StepStats], Vec<&ModelStats>) = (&stats.steps, stats.models.values().collect());
//! assert!(steps.is_empty() && models.is_empty());
//! assert_eq!(cache_hits(&total.spent.usage), None);
//! let mut all = Stats::default();
//! all.add(stats);
//! # Ok::<(), windlass::core::id::IdError>(())
//! ```

mod gather;
mod words;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use serde_json::Value;

use windlass_core::ask::AnsweredBy;
use windlass_core::budget::{Spent, Usage};
use windlass_core::clock::Timestamp;
use windlass_core::event::{Event, EventKind};
use windlass_core::id::{AskId, CallId, RunId, SessionId};
use windlass_core::message::{ErrorCategory, Role, ToolResult};
use windlass_core::outcome::RunSummary;
use windlass_core::validator::Judgement;
use windlass_core::workspace::{FileChange, ProcessEnd};
use windlass_registry::parse_auto;

pub use self::gather::{
    NamedCalls, NamedModel, RunGroup, StatRow, StatsBy, StatsScope, gather_stats,
};
pub use self::words::{
    describe_calls, describe_cost, describe_duration, describe_tokens, total_lines,
};

/// The statistics of one or more sessions: [`Stats::apply`] adds an event, [`Stats::add`] adds another session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Stats {
    pub sessions: u64,
    /// In JSON, it also has the share of cached tokens, `cache_hits`.
    #[serde(serialize_with = "with_cache_hits")]
    #[schemars(with = "TotalsWithCacheHits")]
    pub total: StatTotals,
    /// In the order of the log.
    pub runs: Vec<RunStats>,
    /// In the order of the log.
    pub steps: Vec<StepStats>,
    /// By the name of the tool.
    pub tools: BTreeMap<String, CallStats>,
    /// By the name of the model.
    pub models: BTreeMap<String, ModelStats>,
    /// By the name of the validator.
    pub validators: BTreeMap<String, CheckStats>,
    /// Paths that at least one run changed.
    pub files: BTreeSet<String>,
    #[serde(skip)]
    open: OpenRunState,
    /// The runtime of the session whose events are applied.
    #[serde(skip)]
    session_runtime: String,
}

/// The JSON form of the totals of all runs.
#[derive(Serialize, JsonSchema)]
struct TotalsWithCacheHits {
    #[serde(flatten)]
    total: StatTotals,
    /// The share of input tokens that came from a cache, from 0 to 1.
    cache_hits: Option<f64>,
}

fn with_cache_hits<S: Serializer>(total: &StatTotals, serializer: S) -> Result<S::Ok, S::Error> {
    let with_cache_hits = TotalsWithCacheHits {
        total: *total,
        cache_hits: cache_hits(&total.spent.usage),
    };
    with_cache_hits.serialize(serializer)
}

/// The totals of one run, or of all runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StatTotals {
    pub spent: Spent,
    /// Duration in milliseconds, without the time in which a run waited for a person.
    pub ms: u64,
    /// Milliseconds in which a run waited for the model.
    pub model_ms: u64,
    pub calls: CallStats,
    pub commands: CommandStats,
    /// Waits before a model call was retried.
    pub waits: WaitStats,
    pub asks: AskStats,
    pub checks: CheckStats,
    /// Changed files. A file that two runs changed is counted twice.
    pub files: u64,
    /// Lines added to these files.
    pub added: u64,
    /// Lines removed from these files.
    pub removed: u64,
    /// Connections that the sandbox refused.
    pub refused_connections: u64,
}

/// Numbers of tool calls by result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CallStats {
    pub count: u64,
    /// Calls that failed while they ran, or that had invalid arguments.
    pub failed: u64,
    /// Calls that did not run, because a rule or a person denied them.
    pub denied: u64,
    pub interrupted: u64,
    /// Total duration in milliseconds.
    pub ms: u64,
    /// Duration of the longest call in milliseconds.
    pub longest_ms: u64,
}

/// Commands that tools executed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CommandStats {
    pub count: u64,
    /// Commands that did not end with exit code 0.
    pub failed: u64,
    /// Size of the output in bytes.
    pub bytes: u64,
    /// Total duration in milliseconds.
    pub ms: u64,
}

/// Waits before retries of model calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct WaitStats {
    pub count: u64,
    /// Total duration in milliseconds.
    pub ms: u64,
}

/// Asks and the time until their answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AskStats {
    pub count: u64,
    /// Asks that a person answered, in contrast to a rule or a flag.
    pub by_person: u64,
    /// Asks that still wait for an answer.
    pub open: u64,
    /// Total time until the answers in milliseconds.
    pub ms: u64,
}

/// Numbers of checks by verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CheckStats {
    pub count: u64,
    pub passed: u64,
    pub failed: u64,
    pub unverifiable: u64,
    /// Total duration in milliseconds.
    pub ms: u64,
}

/// Calls of one model, and their cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ModelStats {
    pub calls: u64,
    pub usage: Usage,
    /// Micro-USD, without the calls that have no known price.
    pub cost_micros: u64,
    /// Calls without a known price.
    pub unpriced: u64,
    /// Calls whose tokens the engine estimated, because the model server did not report them.
    pub estimated: u64,
    /// Total duration in milliseconds.
    pub ms: u64,
}

/// The statistics of one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RunStats {
    pub session: SessionId,
    pub run: RunId,
    /// The agent that worked: the one that the run was started with, else that of the session.
    pub runtime: String,
    pub began: Timestamp,
    /// The word of the outcome; absent for an open run.
    pub outcome: Option<String>,
    #[serde(flatten)]
    pub sum: StatTotals,
}

/// The statistics of one step: one model call, and the tool calls that it requested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StepStats {
    pub session: SessionId,
    pub run: RunId,
    /// Counted from 1 in each run.
    pub step: u32,
    pub model: String,
    pub usage: Usage,
    /// Micro-USD; absent if the price is unknown.
    pub cost_micros: Option<u64>,
    /// Duration of the model call in milliseconds.
    pub model_ms: u64,
    pub calls: CallStats,
}

/// State of the current run: model calls, asks, calls and checks that have begun and not ended.
#[derive(Debug, Clone, Default, PartialEq)]
struct OpenRunState {
    last: Option<Timestamp>,
    /// Duration of the model call whose message was logged and whose cost was not yet.
    said_ms: Option<u64>,
    /// Time spent waiting before retries of the current model call.
    waited_ms: u64,
    tools: HashMap<CallId, String>,
    asks: HashMap<AskId, Timestamp>,
    check: Option<Timestamp>,
    changed: BTreeMap<String, (u32, u32)>,
    in_run: bool,
}

/// The share of input tokens that the vendor read from its cache, from 0 to 1; `None` if there was no input.
#[must_use]
pub fn cache_hits(usage: &Usage) -> Option<f64> {
    let all = usage.total_input();
    (all > 0).then(|| usage.cache_read as f64 / all as f64)
}

impl Stats {
    /// Adds the next event of a log. Live events are ignored.
    pub fn apply(&mut self, event: &Event) {
        if event.order.seq().is_none() {
            return;
        }
        match &event.kind {
            EventKind::SessionOpened { runtime, .. } => {
                self.sessions += 1;
                self.session_runtime.clone_from(runtime);
                self.open = OpenRunState::default();
            }
            EventKind::RunStarted { flags, .. } => {
                let named = flags.get("runtime").and_then(Value::as_str);
                self.begin(event, named);
            }
            EventKind::Forked { .. } => self.close_asks(),
            _ if self.open.in_run => self.in_run(event),
            EventKind::Spent {
                model,
                call,
                cost_micros,
                estimated,
                ..
            } => {
                // A model call between two runs (a compaction, for example) belongs to no run, but it costs money. The
                // log does not say when it began, so its duration is zero.
                self.model_called(model, *call, *cost_micros, *estimated, 0);
                self.total.paid(*call, *cost_micros, *estimated, 0);
            }
            _ => {}
        }
        self.open.last = Some(event.at);
    }

    /// The number of sessions without everything else: for a fork, whose copied events count in the original session.
    fn without_runs(self) -> Self {
        Self {
            sessions: self.sessions,
            session_runtime: self.session_runtime,
            ..Self::default()
        }
    }

    /// Adds the statistics of another log.
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

    fn begin(&mut self, event: &Event, named_runtime: Option<&str>) {
        self.end_files(None);
        self.close_asks();
        self.open = OpenRunState {
            in_run: true,
            ..OpenRunState::default()
        };
        let run = event
            .run
            .clone()
            .unwrap_or_else(|| RunId::nth(self.runs.len() as u64 + 1));
        let session = event.session.clone();
        // `auto` is not a runtime; the session has the one that it chose.
        let named = named_runtime.filter(|name| parse_auto(name).is_none());
        let runtime = named.unwrap_or(&self.session_runtime).to_owned();
        self.runs.push(RunStats {
            session,
            run,
            runtime,
            began: event.at,
            outcome: None,
            sum: StatTotals::default(),
        });
    }

    fn in_run(&mut self, event: &Event) {
        match &event.kind {
            EventKind::IterationStarted { .. } => self.both(|sum| sum.spent.iterations += 1),
            EventKind::Said { message, .. } if message.role == Role::Assistant => {
                self.open.said_ms = Some(self.model_call_ms(event.at));
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
                self.both(|sum| sum.waits.add(&WaitStats { count: 1, ms: *ms }));
            }
            EventKind::CallStarted { call, .. } => {
                self.open.tools.insert(call.id.clone(), call.name.clone());
            }
            EventKind::CallFinished { result, ms } => self.call_finished(result, *ms),
            EventKind::CommandFinished { end, bytes, ms, .. } => {
                let failed = u64::from(*end != ProcessEnd::Exited { code: 0 });
                self.both(|sum| {
                    sum.commands.add(&CommandStats {
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
                    sum.asks.add(&AskStats {
                        count: 1,
                        open: 1,
                        ..AskStats::default()
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
                    sum.asks.add(&AskStats {
                        by_person,
                        ms,
                        ..AskStats::default()
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
                let checks = CheckStats::single(report.judgement, ms);
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
        let said_ms = self.open.said_ms.take();
        let ms = said_ms.unwrap_or_else(|| self.model_call_ms(at));
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
            calls: CallStats::default(),
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

    /// Asks of a run that has ended are no longer pending, even without an answer.
    fn close_asks(&mut self) {
        let Some(run) = self.runs.last_mut() else {
            return;
        };
        let open = std::mem::take(&mut run.sum.asks.open);
        self.total.asks.open = self.total.asks.open.saturating_sub(open);
        self.open.asks.clear();
    }

    fn call_finished(&mut self, result: &ToolResult, ms: u64) {
        let calls = CallStats::single(result.error, ms);
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

    /// Counts the changed files of a run: those of its terminal event, or those of its calls if it has no terminal event.
    fn end_files(&mut self, in_summary: Option<&[FileChange]>) {
        let of_calls = std::mem::take(&mut self.open.changed);
        let lines: Vec<(u32, u32)> = match in_summary {
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
            None => of_calls.into_values().collect(),
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

    /// Duration of the current model call: the time since the last event, without waits before retries.
    fn model_call_ms(&self, at: Timestamp) -> u64 {
        let since = self.open.last.map_or(0, |last| between(last, at));
        since.saturating_sub(self.open.waited_ms)
    }

    /// Updates the totals of the current run and of all runs.
    fn both(&mut self, count: impl Fn(&mut StatTotals)) {
        count(&mut self.total);
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
            /// Adds each number of `other`, saturating.
            pub fn add(&mut self, other: &Self) {
                $( self.$field = self.$field.saturating_add(other.$field); )+
            }
        }
    )+ };
}

adds! {
    CommandStats: count, failed, bytes, ms;
    WaitStats: count, ms;
    AskStats: count, by_person, open, ms;
    CheckStats: count, passed, failed, unverifiable, ms;
}

impl CallStats {
    fn single(error: Option<ErrorCategory>, ms: u64) -> Self {
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

    /// Adds each number of `other`, saturating; the longest duration is the maximum of both.
    pub fn add(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.failed = self.failed.saturating_add(other.failed);
        self.denied = self.denied.saturating_add(other.denied);
        self.interrupted = self.interrupted.saturating_add(other.interrupted);
        self.ms = self.ms.saturating_add(other.ms);
        self.longest_ms = self.longest_ms.max(other.longest_ms);
    }
}

impl CheckStats {
    fn single(judgement: Judgement, ms: u64) -> Self {
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
    /// Adds each number of `other`, saturating.
    pub fn add(&mut self, other: &Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.usage.add(other.usage);
        self.cost_micros = self.cost_micros.saturating_add(other.cost_micros);
        self.unpriced = self.unpriced.saturating_add(other.unpriced);
        self.estimated = self.estimated.saturating_add(other.estimated);
        self.ms = self.ms.saturating_add(other.ms);
    }
}

impl StatTotals {
    /// Counts one model call as a step.
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

    /// Adds each number of `other`, saturating.
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
        for (total, more) in numbers {
            *total = total.saturating_add(more);
        }
    }
}

#[cfg(test)]
#[path = "stats_tests.rs"]
mod tests;
