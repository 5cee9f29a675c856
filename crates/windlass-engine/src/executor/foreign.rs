//! Calls that a foreign agent executes itself. They are judged like the built-in calls with the same effect, by the same
//! rules, mode and floor, and logged like them. The logged results are those that the agent reports.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

use windlass_core::ask::Approval;
use windlass_core::event::EventKind;
use windlass_core::gate::{Decision, Verdict};
use windlass_core::id::CallId;
use windlass_core::message::{ErrorCategory, ToolCall, ToolResult};
use windlass_core::runtime::EventSink;
use windlass_core::store::StoreError;
use windlass_core::tool::{Admitted, Effect, ForeignCall, ObservedChange, Touch};
use windlass_core::workspace::{Change, FileChange};

use super::call::{guarded, strongest_effect};
use super::{Executor, millis};
use crate::redact::has_placeholder;

/// Maximum number of characters of a result in the log. A longer result is stored as an artifact.
const MAX_OUTPUT: usize = 50_000;
/// Maximum number of remembered open calls. Further calls are logged without their duration and their changes.
const MAX_OPEN: usize = 4_096;
/// The logged rule of a call that the agent executed without asking.
const NOT_ASKED: &str = "the agent did not ask; only the sandbox restricts the call";

/// Foreign calls that started and have no result yet.
pub(crate) type ForeignCalls = Mutex<HashMap<CallId, OpenForeignCall>>;

pub(crate) struct OpenForeignCall {
    started_at: Duration,
    /// The call was judged before it was executed.
    judged: bool,
    /// The call breaks a rule, and this was logged.
    broken: bool,
    /// Paths that the call writes, and whether each existed before.
    writes: Vec<(String, bool)>,
}

/// The built-in call with the same effect as a foreign call, and the gate's decision about it.
struct EquivalentCall {
    /// The built-in tool with the strictest verdict.
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
            return refuse(ErrorCategory::Interrupted, self.stopped()).await;
        }
        let equivalent = match self.equivalent(&foreign) {
            Ok(equivalent) => equivalent,
            Err((category, text)) => return refuse(category, text).await,
        };
        let proposal = self.proposal(&equivalent.tool, equivalent.effect, &equivalent.touches);
        let effect = strongest_effect(&proposal);
        if effect >= Effect::Write && has_placeholder(&call.args) {
            let text = "the arguments contain the placeholder of a redacted secret; leave the line with the secret unchanged";
            return refuse(ErrorCategory::InvalidArguments, text.into()).await;
        }
        let still = |approval: &Approval| {
            let now = self.equivalent(&foreign);
            now.is_ok_and(|now| self.is_unchanged(&now.touches, approval))
        };
        let earlier = self.prior_answers.approval_like(call);
        let decision = &equivalent.decision;
        let approved = self.approve(call, &proposal, decision, earlier, None, &still);
        let rule = match approved.await? {
            Ok(rule) => rule,
            Err((category, text)) => return refuse(category, text).await,
        };
        let writes = self.writes(&equivalent.touches);
        let paths = writes.iter().map(|(path, _)| path.clone()).collect();
        self.begin_foreign(call.clone(), Some(decision.verdict), rule.clone(), writes)
            .await?;
        // Write-ahead: the log must be on disk before the effect.
        if effect > Effect::Read {
            self.sink.sync().await?;
        }
        Ok(Admitted::Yes {
            writes: paths,
            rule,
        })
    }

    /// Logs a call that the agent executes without asking. It is too late to refuse the call, so a rule against it prevents
    /// the landing of the run.
    pub(super) async fn observe_foreign(&self, foreign: ForeignCall) -> Result<(), StoreError> {
        let id = foreign.call.id.clone();
        let known = self
            .foreign
            .lock()
            .get(&id)
            .map(|begun| (begun.judged, begun.broken));
        match known {
            Some((true, _) | (_, true)) => return Ok(()),
            // The agent reports the call again with more details, so it is compared with the rules again.
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
        self.sink.emit(broken).await.map(drop)
    }

    /// The deny or ask rule that matches a foreign call, or the built-in call with the same effect.
    fn restricting_rule(&self, foreign: &ForeignCall) -> Option<String> {
        let rule_about = |tool: &str, effect: Effect, touches: &[Touch]| {
            let proposal = self.proposal(tool, effect, touches);
            let decision = self.gate.lock().restricting_rule(&proposal)?;
            Some(decision.rule)
        };
        let about_like = foreign.like.iter().find_map(|like| {
            // A rule may have removed the whole tool from the set. Such a rule needs no touches.
            let Some(tool) = self.tools.get(&like.tool) else {
                return rule_about(&like.tool, foreign.effect, &[]);
            };
            let call_output = self.call_output(&foreign.call);
            let touches = guarded(|| tool.touches(&like.args, &self.ctx(&call_output)));
            rule_about(&like.tool, tool.spec().effect, &touches.unwrap_or_default())
        });
        about_like.or_else(|| rule_about(&foreign.call.name, foreign.effect, &[]))
    }

    pub(super) async fn report_foreign(
        &self,
        mut result: ToolResult,
        seen: Vec<ObservedChange>,
    ) -> Result<(), StoreError> {
        let begun = self.foreign.lock().remove(&result.id);
        let redacted = self.redactor.redact(&result.text).into_owned();
        (result.text, result.artifact) =
            self.cut_to_limit(&redacted, MAX_OUTPUT, result.artifact.take());
        let mut ms = 0;
        if let Some(begun) = begun {
            ms = millis(self.clock.monotonic().saturating_sub(begun.started_at));
            for (path, was_there) in begun.writes {
                let change = match seen.iter().find(|observed| observed.path == path) {
                    Some(observed) => observed.change.clone(),
                    None => self.change_at(path, was_there, result.error.is_some()),
                };
                if let Some(change) = change {
                    let changed = EventKind::FileChanged {
                        call: Some(result.id.clone()),
                        change,
                        swap: None,
                    };
                    self.sink.emit(changed).await?;
                }
            }
        }
        self.log_finished(result, ms).await
    }

    /// The change of a path that the call was to write and that the runtime did not observe.
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
        let started_at = self.clock.monotonic();
        {
            let mut open = self.foreign.lock();
            if open.len() < MAX_OPEN {
                let begun = OpenForeignCall {
                    started_at,
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

    /// The strictest verdict on the built-in calls with the same effect, with all their touches.
    fn equivalent(&self, foreign: &ForeignCall) -> Result<EquivalentCall, (ErrorCategory, String)> {
        let equivalent = |tool: &str, effect: Effect, touches: &[Touch]| EquivalentCall {
            tool: tool.to_owned(),
            effect,
            touches: Vec::new(),
            decision: self
                .gate
                .lock()
                .judge(&self.proposal(tool, effect, touches)),
        };
        let mut strictest: Option<EquivalentCall> = None;
        let mut touches = Vec::new();
        for like in &foreign.like {
            let Some(tool) = self.tools.get(&like.tool) else {
                let text = format!(
                    "`{}` is disabled in this run, and this call does the same",
                    like.tool
                );
                return Err((ErrorCategory::Blocked, text));
            };
            let call_output = self.call_output(&foreign.call);
            let own = guarded(|| tool.touches(&like.args, &self.ctx(&call_output)));
            let own = own.map_err(|failure| (failure.category, failure.text))?;
            let found = equivalent(&like.tool, tool.spec().effect, &own);
            touches.extend(own);
            let known = strictest.as_ref().map(|known| known.decision.verdict);
            if known.is_none_or(|known| found.decision.verdict > known) {
                strictest = Some(found);
            }
        }
        Ok(match strictest {
            Some(equivalent) => EquivalentCall {
                touches,
                ..equivalent
            },
            // No built-in call has the same effect.
            None => equivalent(&foreign.call.name, foreign.effect, &[]),
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
