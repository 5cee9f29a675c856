//! The views for programs: one JSON object at the end, or every event as it happens.

use serde_json::{Value, json};
use windlass::core::ask::Ask;
use windlass::core::event::{Event, EventKind};
use windlass::core::id::{RunId, SessionId};
use windlass::core::message::Role;
use windlass::core::outcome::RunSummary;

use crate::out;

/// Collects the fields of the object that is printed at the end.
pub(crate) struct JsonView {
    session: SessionId,
    /// The run has an output schema.
    structured: bool,
    run: Option<RunId>,
    text: String,
    warnings: Vec<Value>,
    ask: Option<Ask>,
    finished: Option<RunSummary>,
    landed: Option<Value>,
    kept: Option<String>,
}

/// The most warnings that are kept, to bound memory.
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
            EventKind::Said { message, .. } if message.role == Role::Assistant => {
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
                self.landed = Some(
                    json!({ "files": landed.files, "tree_hash": tree_hash, "ref": landed.refname,
                    "commit": landed.commit, "patch": landed.patch, "executes": landed.executes,
                    "left": landed.left }),
                );
            }
            EventKind::Kept { name } => self.kept = Some(name.clone()),
            EventKind::RunFinished(summary) => self.finished = Some(summary.clone()),
            _ => {}
        }
    }

    /// The summary of the terminal event, with derived fields for programs.
    fn finished_result(&self, summary: &RunSummary) -> Value {
        let mut result = json!({ "session": self.session, "run": self.run, "status": summary.outcome.sdk_status(),
            "iterations": summary.totals.iterations, "exceeded": summary.outcome.exceeded(),
            "cost_usd": summary.totals.cost_micros as f64 / 1_000_000.0 });
        // The event omits empty lists; the object always has them.
        result["evidence"] = json!(summary.evidence);
        result["judge_changed"] = json!(summary.judge_changed);
        result["limits"] = json!(summary.limits);
        result["transaction"] = json!(summary.transaction);
        if let (Value::Object(result), Ok(Value::Object(fields))) =
            (&mut result, serde_json::to_value(summary))
        {
            result.extend(fields.into_iter().filter(|(name, _)| name != "output"));
        }
        if self.structured {
            result["structured_output"] = summary.output.clone().unwrap_or_default();
        }
        result
    }

    pub(crate) fn end(&mut self) {
        let mut result = match &self.finished {
            Some(summary) => self.finished_result(summary),
            None => {
                json!({ "session": self.session, "run": self.run, "status": "waiting", "ask": self.ask,
                    "transaction": self.kept })
            }
        };
        result["warnings"] = std::mem::take(&mut self.warnings).into();
        result["landed"] = json!(self.landed.take());
        // `out::json` serializes to the pipe directly: the text may be megabytes, and a second copy is avoided.
        result["text"] = std::mem::take(&mut self.text).into();
        out::json(&result);
    }
}

/// Prints every event as one line, in the format of the log.
pub(crate) struct StreamView;

impl StreamView {
    pub(crate) fn event(&self, event: &Event) {
        out::json(event);
    }
}
