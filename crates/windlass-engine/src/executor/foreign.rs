//! Calls that a foreign agent runs itself: judged as the calls of ours that do the same, by the same rules, modes and
//! floor, and logged like ours. What it says came of them is written down as its word.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

use windlass_core::ask::Approval;
use windlass_core::event::EventKind;
use windlass_core::gate::{Decision, Verdict};
use windlass_core::id::CallId;
use windlass_core::message::{ErrorCategory, ToolCall, ToolResult};
use windlass_core::runtime::Outlet;
use windlass_core::store::StoreError;
use windlass_core::tool::{Admitted, Effect, ForeignCall, Seen, Touch};
use windlass_core::workspace::{Change, FileChange};

use super::one::{guarded, worst};
use super::{Executor, millis};
use crate::redact::holds_mark;

/// Characters of a result that are kept beside the log.
const MAX_OUTPUT: usize = 50_000;
/// Calls that are open at a time; an agent that opens more without an end has them logged without what they changed.
const MAX_OPEN: usize = 4_096;
/// Why a call was not judged before it ran.
const NOT_ASKED: &str = "the agent did not ask; the sandbox holds it";

/// Foreign calls that were begun and have no result.
pub(crate) type ForeignCalls = Mutex<HashMap<CallId, Begun>>;

pub(crate) struct Begun {
    at: Duration,
    /// It was judged before it ran.
    judged: bool,
    /// It is known to break a rule.
    broken: bool,
    /// Paths it was to write, and whether something was there.
    writes: Vec<(String, bool)>,
}

/// What a foreign call amounts to.
struct Meaning {
    /// The tool of ours whose verdict counts.
    tool: String,
    effect: Effect,
    touches: Vec<Touch>,
    decision: Decision,
}

impl Executor {
    pub(super) async fn admit_foreign(&self, foreign: ForeignCall) -> Result<Admitted, StoreError> {
        let call = &foreign.call;
        let refuse = |category, text| self.refuse_foreign(call, category, text);
        if self.cancel.is_cancelled() {
            return refuse(ErrorCategory::Interrupted, "the run was cancelled".into()).await;
        }
        let meaning = match self.meaning(&foreign) {
            Ok(meaning) => meaning,
            Err((category, text)) => return refuse(category, text).await,
        };
        let proposal = self.proposal(&meaning.tool, meaning.effect, &meaning.touches);
        let worst = worst(&proposal);
        if worst >= Effect::Write && holds_mark(&call.args) {
            let text = "the arguments hold words that stand for a hidden secret; leave the line with it as it is";
            return refuse(ErrorCategory::InvalidArguments, text.into()).await;
        }
        let still = |approval: &Approval| {
            let now = self.meaning(&foreign);
            now.is_ok_and(|now| self.is_still(&now.touches, approval))
        };
        let earlier = self.earlier.approval_like(call);
        let decision = &meaning.decision;
        let approved = self.approve(call, &proposal, decision, earlier, None, &still);
        let rule = match approved.await? {
            Ok(rule) => rule,
            Err((category, text)) => return refuse(category, text).await,
        };
        let writes = self.writes(&meaning.touches);
        let paths = writes.iter().map(|(path, _)| path.clone()).collect();
        self.begin_foreign(call.clone(), Some(decision.verdict), rule.clone(), writes)
            .await?;
        // What may have happened must be on disk before it happens.
        if worst > Effect::Read {
            self.outlet.sync().await?;
        }
        Ok(Admitted::Yes {
            writes: paths,
            rule,
        })
    }

    /// Logs a call that the agent runs without asking. It is too late to refuse it, so a rule against it keeps the run
    /// from landing.
    pub(super) async fn observe_foreign(&self, foreign: ForeignCall) -> Result<(), StoreError> {
        let id = foreign.call.id.clone();
        let known = self
            .foreign
            .lock()
            .get(&id)
            .map(|begun| (begun.judged, begun.broken));
        match known {
            Some((true, _) | (_, true)) => return Ok(()),
            // More is known of it now.
            Some((false, false)) => {}
            None => {
                let call = foreign.call.clone();
                self.begin_foreign(call, None, NOT_ASKED.to_owned(), Vec::new())
                    .await?;
            }
        }
        let Some(rule) = self.restricting_rule(&foreign) else {
            return Ok(());
        };
        if let Some(begun) = self.foreign.lock().get_mut(&id) {
            begun.broken = true;
        }
        let broken = EventKind::RuleBroken { call: id, rule };
        self.outlet.emit(broken).await.map(drop)
    }

    /// The deny or ask rule that is about a foreign call, or about a call of ours that does the same.
    fn restricting_rule(&self, foreign: &ForeignCall) -> Option<String> {
        let rule_about = |tool: &str, effect: Effect, touches: &[Touch]| {
            let proposal = self.proposal(tool, effect, touches);
            let decision = self.gate.lock().restricting_rule(&proposal)?;
            Some(decision.rule)
        };
        let about_like = foreign.like.iter().find_map(|like| {
            // A tool that a rule removed is not in the set. Its rule needs no touches.
            let Some(tool) = self.tools.get(&like.tool) else {
                return rule_about(&like.tool, foreign.effect, &[]);
            };
            let voice = self.voice(&foreign.call);
            let touches = guarded(|| tool.touches(&like.args, &self.ctx(&voice)));
            rule_about(&like.tool, tool.spec().effect, &touches.unwrap_or_default())
        });
        about_like.or_else(|| rule_about(&foreign.call.name, foreign.effect, &[]))
    }

    pub(super) async fn report_foreign(
        &self,
        mut result: ToolResult,
        seen: Vec<Seen>,
    ) -> Result<(), StoreError> {
        let begun = self.foreign.lock().remove(&result.id);
        let redacted = self.redactor.redact(&result.text).into_owned();
        (result.text, result.artifact) = self.fit(&redacted, MAX_OUTPUT, result.artifact.take());
        let mut ms = 0;
        if let Some(begun) = begun {
            ms = millis(self.clock.monotonic().saturating_sub(begun.at));
            for (path, was_there) in begun.writes {
                let change = match seen.iter().find(|looked| looked.path == path) {
                    Some(looked) => looked.change.clone(),
                    None => self.change_at(path, was_there, result.error.is_some()),
                };
                if let Some(change) = change {
                    let changed = EventKind::FileChanged {
                        call: Some(result.id.clone()),
                        change,
                        swap: None,
                    };
                    self.outlet.emit(changed).await?;
                }
            }
        }
        self.log_finished(result, ms).await
    }

    /// What became of a path that a call was to write and that nobody looked at before.
    fn change_at(&self, path: String, was_there: bool, failed: bool) -> Option<FileChange> {
        let change = match (was_there, self.files.stat(&path).is_ok()) {
            (false, true) => Change::Created,
            (true, false) => Change::Deleted,
            (true, true) if !failed => Change::Modified,
            (true, true) | (false, false) => return None,
        };
        Some(FileChange {
            path,
            change,
            added: None,
            removed: None,
            diff: None,
        })
    }

    async fn begin_foreign(
        &self,
        call: ToolCall,
        verdict: Option<Verdict>,
        rule: String,
        writes: Vec<(String, bool)>,
    ) -> Result<(), StoreError> {
        let at = self.clock.monotonic();
        {
            let mut open = self.foreign.lock();
            if open.len() < MAX_OPEN {
                let begun = Begun {
                    at,
                    judged: verdict.is_some(),
                    broken: false,
                    writes,
                };
                open.insert(call.id.clone(), begun);
            }
        }
        self.log_started(call, verdict, rule).await
    }

    async fn refuse_foreign(
        &self,
        call: &ToolCall,
        category: ErrorCategory,
        text: String,
    ) -> Result<Admitted, StoreError> {
        self.log_finished(ToolResult::failed(call, category, &text), 0)
            .await?;
        Ok(Admitted::No { category, text })
    }

    /// The strictest verdict on the calls of ours that do the same, with everything they would touch.
    fn meaning(&self, foreign: &ForeignCall) -> Result<Meaning, (ErrorCategory, String)> {
        let meaning = |tool: &str, effect: Effect, touches: &[Touch]| Meaning {
            tool: tool.to_owned(),
            effect,
            touches: Vec::new(),
            decision: self
                .gate
                .lock()
                .judge(&self.proposal(tool, effect, touches)),
        };
        let mut strictest: Option<Meaning> = None;
        let mut touches = Vec::new();
        for like in &foreign.like {
            let Some(tool) = self.tools.get(&like.tool) else {
                let text = format!(
                    "`{}` is off in this run, and this call does the same",
                    like.tool
                );
                return Err((ErrorCategory::Blocked, text));
            };
            let voice = self.voice(&foreign.call);
            let own = guarded(|| tool.touches(&like.args, &self.ctx(&voice)));
            let own = own.map_err(|failure| (failure.category, failure.text))?;
            let found = meaning(&like.tool, tool.spec().effect, &own);
            touches.extend(own);
            let known = strictest.as_ref().map(|known| known.decision.verdict);
            if known.is_none_or(|known| found.decision.verdict > known) {
                strictest = Some(found);
            }
        }
        Ok(match strictest {
            Some(meaning) => Meaning { touches, ..meaning },
            // No call of ours does the same.
            None => meaning(&foreign.call.name, foreign.effect, &[]),
        })
    }

    fn writes(&self, touches: &[Touch]) -> Vec<(String, bool)> {
        let path = |touch: &Touch| match touch {
            Touch::Write {
                path, inside: true, ..
            } => Some((path.clone(), self.files.stat(path).is_ok())),
            _ => None,
        };
        touches.iter().filter_map(path).collect()
    }
}
