//! Operations on finished runs: list them, compare two of them, and propose a commit message.

use std::collections::BTreeMap;

use futures_util::StreamExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use windlass::core::event::{Event, EventKind};
use windlass::core::id::{RunId, SessionId};
use windlass::core::outcome::{Outcome, RunSummary};
use windlass::core::store::SessionStore;
use windlass::transcript::first_line;

use super::sessions::SessionParams;
use super::{Call, Json, Method, Operation};
use crate::access::Scope;
use crate::problem::{Problem, ProblemCode};

/// Maximum length of the subject of a commit message.
const SUBJECT: usize = 72;
/// Maximum number of runs in a list.
const MAX_RUNS: usize = 10_000;

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation::new(
            "runs.list",
            (Method::Get, "/v1/sessions/{session}/runs", 200),
            Scope::Read,
            "List the runs of a session with their outcomes, files and cost",
            list,
        ),
        Operation::new(
            "runs.compare",
            (Method::Get, "/v1/compare", 200),
            Scope::Read,
            "Compare two runs: the first difference, the files, the checks, the cost and the time",
            compare,
        ),
        Operation::new(
            "runs.commit_message",
            (
                Method::Get,
                "/v1/sessions/{session}/runs/{run}/commit-message",
                200,
            ),
            Scope::Read,
            "Propose a commit message for the changes of a run",
            commit_message,
        ),
    ]
}

/// A run of a session.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RunItem {
    pub run: RunId,
    pub prompt: String,
    /// The number of its first event.
    pub first_seq: u64,
    /// The number of its last event so far.
    pub last_seq: u64,
    /// The result; absent while the run is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<RunSummary>,
}

/// Folds the runs of a session.
#[derive(Default)]
struct RunFold(Vec<RunItem>);

impl RunFold {
    fn apply(&mut self, event: &Event) {
        let (Some(run), Some(seq)) = (&event.run, event.order.seq()) else {
            return;
        };
        if let EventKind::RunStarted { prompt, .. } = &event.kind
            && self.0.len() < MAX_RUNS
        {
            self.0.push(RunItem {
                run: run.clone(),
                prompt: prompt.text(),
                first_seq: seq,
                last_seq: seq,
                summary: None,
            });
        }
        let mut items = self.0.iter_mut().rev();
        let Some(item) = items.find(|item| item.run == *run) else {
            return;
        };
        item.last_seq = seq;
        if let EventKind::RunFinished(summary) = &event.kind {
            item.summary = Some(summary.clone());
        }
    }
}

async fn list(call: Call, params: SessionParams) -> Result<Json<Vec<RunItem>>, Problem> {
    let host = call.service.host(&call.caller, &params.session).await?;
    let mut fold = RunFold::default();
    let mut events = call.service.0.store.read(&host.id, 1);
    while let Some(event) = events.next().await {
        fold.apply(&event?);
    }
    Ok(Json(fold.0))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CompareParams {
    left: SessionId,
    right: SessionId,
    /// The run of the left session; the default is its last one.
    #[serde(default)]
    left_run: Option<RunId>,
    /// The run of the right session; the default is its last one.
    #[serde(default)]
    right_run: Option<RunId>,
}

/// One side of a comparison.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ComparedRun {
    pub session: SessionId,
    #[serde(flatten)]
    pub item: RunItem,
    /// The changes by path, as unified diffs.
    pub diffs: BTreeMap<String, Option<String>>,
}

/// The first step in which two runs differ.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Divergence {
    /// The number of equal steps before it.
    pub equal_steps: usize,
    /// The number of the event of the left run; absent if it has no further step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_seq: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub right_seq: Option<u64>,
}

/// A comparison of two runs.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Comparison {
    pub left: ComparedRun,
    pub right: ComparedRun,
    /// The first difference; absent if all steps are equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub divergence: Option<Divergence>,
    /// Paths that both runs changed in the same way.
    pub same_files: Vec<String>,
    /// Paths that both runs changed differently.
    pub different_files: Vec<String>,
    pub only_left: Vec<String>,
    pub only_right: Vec<String>,
}

/// A run with the facts that a comparison needs.
struct ReadRun {
    compared: ComparedRun,
    /// The answers and calls of the model, in order, with the numbers of the events.
    steps: Vec<(u64, String)>,
}

async fn compare(call: Call, params: CompareParams) -> Result<Json<Comparison>, Problem> {
    let left = read_run(&call, &params.left, params.left_run.as_ref()).await?;
    let right = read_run(&call, &params.right, params.right_run.as_ref()).await?;
    let divergence = first_difference(&left.steps, &right.steps);
    let (one, other) = (&left.compared.diffs, &right.compared.diffs);
    let (mut same_files, mut different_files, mut only_left) = (Vec::new(), Vec::new(), Vec::new());
    for (path, diff) in one {
        match other.get(path) {
            Some(with) if with == diff && diff.is_some() => same_files.push(path.clone()),
            Some(_) => different_files.push(path.clone()),
            None => only_left.push(path.clone()),
        }
    }
    let only_right = other
        .keys()
        .filter(|path| !one.contains_key(*path))
        .cloned();
    Ok(Json(Comparison {
        divergence,
        same_files,
        different_files,
        only_left,
        only_right: only_right.collect(),
        left: left.compared,
        right: right.compared,
    }))
}

fn first_difference(left: &[(u64, String)], right: &[(u64, String)]) -> Option<Divergence> {
    let equal = left
        .iter()
        .zip(right)
        .take_while(|((_, one), (_, other))| one == other)
        .count();
    let (left_seq, right_seq) = (left.get(equal), right.get(equal));
    (left_seq.is_some() || right_seq.is_some()).then(|| Divergence {
        equal_steps: equal,
        left_seq: left_seq.map(|(seq, _)| *seq),
        right_seq: right_seq.map(|(seq, _)| *seq),
    })
}

async fn read_run(
    call: &Call,
    session: &SessionId,
    wanted: Option<&RunId>,
) -> Result<ReadRun, Problem> {
    let host = call.service.host(&call.caller, session).await?;
    let mut fold = RunFold::default();
    let (mut steps, mut diffs) = (Vec::new(), BTreeMap::new());
    let mut events = call.service.0.store.read(&host.id, 1);
    while let Some(event) = events.next().await {
        let event = event?;
        fold.apply(&event);
        // Without a wanted run, the last one counts: begin anew with each.
        if matches!(event.kind, EventKind::RunStarted { .. }) && wanted.is_none() {
            (steps, diffs) = (Vec::new(), BTreeMap::new());
        }
        if wanted.is_some() && event.run.as_ref() != wanted {
            continue;
        }
        let seq = event.order.seq().unwrap_or_default();
        match &event.kind {
            EventKind::Said { message, .. } => steps.push((seq, message.text())),
            EventKind::CallStarted { call, .. } => {
                steps.push((seq, format!("{} {}", call.name, call.args)));
            }
            EventKind::FileChanged { change, .. } => {
                diffs.insert(change.path.clone(), change.diff.clone());
            }
            _ => {}
        }
    }
    let item = fold
        .0
        .into_iter()
        .rev()
        .find(|item| wanted.is_none_or(|run| item.run == *run));
    let item = item.ok_or_else(|| no_such_run(session))?;
    Ok(ReadRun {
        compared: ComparedRun {
            session: session.clone(),
            item,
            diffs,
        },
        steps,
    })
}

fn no_such_run(session: &SessionId) -> Problem {
    Problem::new(
        ProblemCode::NotFound,
        format!("session `{session}` has no such run"),
    )
    .hint("`GET /v1/sessions/ID/runs` lists the runs")
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RunParams {
    session: SessionId,
    run: RunId,
}

/// A proposed commit message.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct CommitMessage {
    pub subject: String,
    pub body: String,
}

async fn commit_message(call: Call, params: RunParams) -> Result<Json<CommitMessage>, Problem> {
    let read = read_run(&call, &params.session, Some(&params.run)).await?;
    let item = &read.compared.item;
    let summary = item.summary.as_ref().ok_or_else(|| {
        Problem::new(ProblemCode::Conflict, "the run has not finished").hint("wait for its end")
    })?;
    Ok(Json(CommitMessage {
        subject: first_line(&item.prompt, SUBJECT),
        body: message_body(&params.session, &params.run, summary),
    }))
}

/// The checks, the cost and the run that made the changes.
fn message_body(session: &SessionId, run: &RunId, summary: &RunSummary) -> String {
    let mut body = String::new();
    let checks: Vec<_> = summary
        .evidence
        .iter()
        .map(|one| one.validator.as_str())
        .collect();
    if summary.outcome == Outcome::Completed && !checks.is_empty() {
        body.push_str(&format!("Checked by {}.\n", checks.join(", ")));
    }
    let spent = &summary.totals;
    let dollars = spent.cost_micros as f64 / 1e6;
    body.push_str(&format!(
        "Made by windlass run {run} of session {session} in {} steps for ${dollars:.4}.\n",
        spent.steps
    ));
    body
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_found() {
        let steps = |texts: &[&str]| -> Vec<(u64, String)> {
            (1..)
                .zip(texts.iter().map(|text| (*text).to_owned()))
                .collect()
        };
        let check =
            |left: &[&str], right: &[&str], expect: Option<(usize, Option<u64>, Option<u64>)>| {
                let found = first_difference(&steps(left), &steps(right));
                let found = found.map(|one| (one.equal_steps, one.left_seq, one.right_seq));
                assert_eq!(found, expect);
            };
        check(&["a", "b"], &["a", "b"], None);
        check(&["a", "b"], &["a", "c"], Some((1, Some(2), Some(2))));
        check(&["a"], &["a", "b"], Some((1, None, Some(2))));
        check(&[], &[], None);
    }
}
