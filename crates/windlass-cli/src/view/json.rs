//! The views for programs: one object at the end, or every event as it happens.

use serde_json::{Value, json};
use windlass_core::ask::Ask;
use windlass_core::budget::Limit;
use windlass_core::event::{Event, EventKind};
use windlass_core::id::{RunId, SessionId};
use windlass_core::message::Role;
use windlass_core::outcome::Outcome;

use crate::out;

/// Collects what the last line needs.
pub(crate) struct JsonView {
    session: SessionId,
    /// The answer is JSON that fits a schema.
    structured: bool,
    run: Option<RunId>,
    text: String,
    warnings: Vec<Value>,
    ask: Option<Ask>,
    finished: Option<EventKind>,
    landed: Option<Value>,
    kept: Option<String>,
}

/// Warnings that are kept; a flood of them must not fill memory.
const MAX_WARNINGS: usize = 100;

impl JsonView {
    pub(crate) fn new(session: &SessionId, structured: bool) -> Self {
        Self {
            session: session.clone(),
            structured,
            run: None,
            text: String::new(),
            warnings: Vec::new(),
            ask: None,
            finished: None,
            landed: None,
            kept: None,
        }
    }

    pub(crate) fn event(&mut self, event: &Event) {
        match &event.kind {
            EventKind::RunStarted { .. } => {
                *self = Self::new(&self.session, self.structured);
                self.run.clone_from(&event.run);
            }
            EventKind::Said { message } if message.role == Role::Assistant => {
                let text = message.text();
                if !text.is_empty() {
                    self.text = text;
                }
            }
            EventKind::Warned { code, text } if self.warnings.len() < MAX_WARNINGS => {
                self.warnings.push(json!({ "code": code, "text": text }));
            }
            EventKind::Asked { ask } => self.ask = Some(ask.clone()),
            EventKind::Answered { .. } => self.ask = None,
            EventKind::Landed { landed, tree_hash } => {
                self.landed = Some(json!({ "files": landed.files, "tree_hash": tree_hash, "ref": landed.refname,
                    "commit": landed.commit, "patch": landed.patch, "executes": landed.executes,
                    "left": landed.left }));
            }
            EventKind::Kept { name } => self.kept = Some(name.clone()),
            EventKind::RunFinished { .. } => self.finished = Some(event.kind.clone()),
            _ => {}
        }
    }

    pub(crate) fn end(&mut self) {
        let mut result = json!({ "session": self.session, "run": self.run });
        match self.finished.take() {
            Some(EventKind::RunFinished {
                outcome,
                files,
                totals,
                ms,
                evidence,
                judge_changed,
                limits,
                output,
                ..
            }) => {
                let exceeded = match &outcome {
                    Outcome::BudgetExceeded { limit } | Outcome::CompletedWithLimitExceeded { limit } => Some(*limit),
                    Outcome::TimedOut => Some(Limit::Time),
                    Outcome::MaxSteps => Some(Limit::Steps),
                    _ => None,
                };
                result["iterations"] = totals.iterations.into();
                result["limits"] = json!(limits);
                result["exceeded"] = json!(exceeded);
                if self.structured {
                    result["structured_output"] = output.unwrap_or_default();
                }
                result["status"] = outcome.sdk_status().into();
                result["outcome"] = json!(outcome);
                result["files"] = json!(files);
                result["totals"] = json!(totals);
                result["cost_usd"] = (totals.cost_micros as f64 / 1_000_000.0).into();
                result["ms"] = ms.into();
                result["evidence"] = json!(evidence);
                result["judge_changed"] = json!(judge_changed);
            }
            _ => {
                result["status"] = "waiting".into();
                result["ask"] = json!(self.ask);
            }
        }
        result["warnings"] = std::mem::take(&mut self.warnings).into();
        result["landed"] = json!(self.landed.take());
        result["transaction"] = json!(self.kept.take());
        // Written straight to the pipe: the text may be megabytes, and one copy of it is enough.
        result["text"] = std::mem::take(&mut self.text).into();
        out::json(&result);
    }
}

/// Every event, one a line, as it stands in the log.
pub(crate) struct StreamView;

impl StreamView {
    pub(crate) fn event(&self, event: &Event) {
        out::json(event);
    }
}
