//! Reads the statistics of one session, of the sessions of a workspace, or of all sessions, and groups them in rows.
//!
//! ```
//! use windlass::Notices;
//! use windlass::machine::SessionLog;
//! use windlass::stats::{NamedCalls, NamedModel, RunGroup, StatRow, StatsBy, StatsScope, gather_stats};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! let store = SessionLog::new(dir.path().join("sessions"));
//! let stats = gather_stats(&store, &StatsScope::All, &Notices::default()).await?;
//! assert_eq!(stats.sessions, 0);
//! for row in stats.rows(StatsBy::Day) {
//!     match row {
//!         StatRow::Runs(RunGroup { name, runs, sum }) => println!("{name}: {runs} runs, {} files", sum.files),
//!         StatRow::Tool(NamedCalls { name, calls }) => println!("{name}: {} calls", calls.count),
//!         StatRow::Model(NamedModel { name, model }) => println!("{name}: {} calls", model.calls),
//!         StatRow::Run(run) => println!("{}: {:?}", run.run, run.outcome),
//!         StatRow::Step(step) => println!("{}: {}", step.step, step.model),
//!     }
//! }
//! # Ok(())
//! # }
//! ```

use std::collections::BTreeMap;
use std::path::PathBuf;

use futures_util::StreamExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use windlass_core::event::EventKind;
use windlass_core::id::SessionId;
use windlass_core::store::{SessionStore, StoreError};
use windlass_host::session_log::SessionLog;

use super::{CallStats, ModelStats, RunStats, StatTotals, Stats, StepStats};
use crate::error::Error;
use crate::notices::Notices;

/// The sessions that statistics count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatsScope {
    Session(SessionId),
    /// The sessions of the workspace with this root.
    Workspace(PathBuf),
    All,
}

/// The grouping of statistics in rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum StatsBy {
    /// Group by step: one model call and its tool calls
    Step,
    /// Group by tool name
    Tool,
    /// Group by model name
    Model,
    /// Group by run: one prompt from start to end
    Run,
    /// Group by the day on which runs started, in UTC
    Day,
    /// Group by the agent that worked
    Agent,
}

/// A row of grouped statistics. Model calls between two runs, such as compactions, are in the rows by model only.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum StatRow {
    Step(StepStats),
    Tool(NamedCalls),
    Model(NamedModel),
    Run(RunStats),
    /// The runs of a day or of an agent.
    Runs(RunGroup),
}

/// The calls of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NamedCalls {
    pub name: String,
    #[serde(flatten)]
    pub calls: CallStats,
}

/// The calls of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NamedModel {
    pub name: String,
    #[serde(flatten)]
    pub model: ModelStats,
}

/// Runs with a common property.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RunGroup {
    /// The day as `YYYY-MM-DD`, or the agent.
    pub name: String,
    pub runs: u64,
    #[serde(flatten)]
    pub sum: StatTotals,
}

/// Reads the logs of the scope. A log that cannot be read is skipped with a warning, unless it is the only one.
pub async fn gather_stats(
    store: &SessionLog,
    scope: &StatsScope,
    notices: &Notices,
) -> Result<Stats, Error> {
    if let StatsScope::Session(id) = scope {
        return Ok(fold(store, id, &[]).await?);
    }
    let (mut all, mut ids) = (Stats::default(), Vec::new());
    let mut heads = store.list();
    while let Some(head) = heads.next().await {
        match (head, scope) {
            (Ok(head), StatsScope::Workspace(root))
                if root.as_os_str() != head.workspace.as_str() => {}
            (Ok(head), _) => ids.push(head.id),
            (Err(err), _) => notices.warn(&format!("skipped: {err}")),
        }
    }
    for id in &ids {
        match fold(store, id, &ids).await {
            Ok(one) => all.add(one),
            Err(err) => notices.warn(&format!("skipped: {err}")),
        }
    }
    Ok(all)
}

/// Counts the events of one log. The copied part of a fork is not counted if `others` contains the original session.
async fn fold(
    store: &SessionLog,
    id: &SessionId,
    others: &[SessionId],
) -> Result<Stats, StoreError> {
    let mut stats = Stats::default();
    let mut events = store.read(id, 1);
    while let Some(event) = events.next().await {
        let event = event?;
        stats.apply(&event);
        if let EventKind::Forked { from, .. } = &event.kind
            && from != id
            && others.contains(from)
        {
            stats = stats.without_runs();
        }
    }
    Ok(stats)
}

impl Stats {
    /// The statistics in rows. Rows of steps and runs are in the order of the log, others are sorted by name.
    #[must_use]
    pub fn rows(&self, by: StatsBy) -> Vec<StatRow> {
        match by {
            StatsBy::Step => self.steps.iter().cloned().map(StatRow::Step).collect(),
            StatsBy::Run => self.runs.iter().cloned().map(StatRow::Run).collect(),
            StatsBy::Tool => {
                let tools = self.tools.iter();
                tools
                    .map(|(name, calls)| {
                        StatRow::Tool(NamedCalls {
                            name: name.clone(),
                            calls: *calls,
                        })
                    })
                    .collect()
            }
            StatsBy::Model => {
                let models = self.models.iter();
                models
                    .map(|(name, model)| {
                        StatRow::Model(NamedModel {
                            name: name.clone(),
                            model: *model,
                        })
                    })
                    .collect()
            }
            StatsBy::Day => self.run_groups(|run| run.began.to_string().chars().take(10).collect()),
            StatsBy::Agent => self.run_groups(|run| run.runtime.clone()),
        }
    }

    fn run_groups(&self, name: impl Fn(&RunStats) -> String) -> Vec<StatRow> {
        let mut groups: BTreeMap<String, (u64, StatTotals)> = BTreeMap::new();
        for run in &self.runs {
            let (runs, sum) = groups.entry(name(run)).or_default();
            *runs += 1;
            sum.add(&run.sum);
        }
        groups
            .into_iter()
            .map(|(name, (runs, sum))| StatRow::Runs(RunGroup { name, runs, sum }))
            .collect()
    }
}
