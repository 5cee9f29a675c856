//! One call: the checks and the approval before it runs, its execution, and its result.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use windlass_core::BoxFuture;
use windlass_core::ask::{About, Answer, Approval, Question};
use windlass_core::event::EventKind;
use windlass_core::gate::{
    CallProtection, Decision, Level, PermissionGate, Proposal, Rule, Verdict,
};
use windlass_core::message::{ArtifactRef, ErrorCategory, ToolCall, ToolResult};
use windlass_core::runtime::EventSink;
use windlass_core::store::StoreError;
use windlass_core::tool::{
    CallOutput, Effect, Happened, Interrupt, RanCommand, Tool, ToolCtx, ToolFailure, ToolOutput,
    Touch, canonical_name,
};
use windlass_core::turn::Planned;
use windlass_core::workspace::FileChange;

use super::key_scan::SCAN_AFTER_CALL;
use super::prior_answers::images_at;
use super::{Executor, GatedCall, ReadyCall};
use crate::redact::has_placeholder;

/// Time that a cancelled call has to clean up.
const GRACE: Duration = Duration::from_millis(700);
/// The error of a call that would write the placeholder of a redacted secret.
const HAS_PLACEHOLDER: &str = "the arguments contain the placeholder of a redacted secret; written to a file it would \
    replace the secret itself. Leave the line with the secret unchanged and edit only around it, or ask the user to make \
    the change";
/// Maximum size of the notes of a session, in bytes.
const MAX_NOTES: usize = 64 << 10;

/// The error of a call that cannot succeed, without the details, which may reveal the content of files.
const CANNOT_SUCCEED: &str = "the call cannot succeed with these arguments, so no approval was requested; read the file first";

/// The result of an executed call, and its effects.
pub(super) struct ExecutedCall {
    pub(super) result: ToolResult,
    pub(super) changes: Vec<FileChange>,
    pub(super) command: Option<RanCommand>,
    /// Warnings about text in changed files that looks like a key.
    pub(super) keys: Vec<String>,
}

impl Executor {
    /// Checks and judges a call, and asks for approval if necessary.
    pub(super) async fn judge(&self, planned: Planned) -> Result<GatedCall, StoreError> {
        let Planned { call, refuse } = planned;
        if let Some((category, text)) = refuse {
            return self.refused(&call, category, &text).await;
        }
        if self.cancel.is_cancelled() {
            let text = format!("not run, because {}", self.stopped());
            return self.refused(&call, ErrorCategory::Interrupted, &text).await;
        }
        let Some(tool) = self.tools.get(&call.name).cloned() else {
            let text = self.unknown_tool(&call.name);
            return self.refused(&call, ErrorCategory::UnknownTool, &text).await;
        };
        let invalid = ErrorCategory::InvalidArguments;
        if let Err(text) = self.check_arguments(&call, tool.as_ref()) {
            return self.refused(&call, invalid, &text).await;
        }
        let call_output = self.call_output(&call);
        if self.prior_answers.take_begun(&call.id) {
            return Ok(GatedCall::Ready(ReadyCall {
                call,
                tool,
                command: None,
                outside: Vec::new(),
                under: None,
            }));
        }
        let touches = match guarded(|| tool.touches(&call.args, &self.ctx(&call_output))) {
            Ok(touches) => touches,
            Err(failure) => return self.refused(&call, failure.category, &failure.text).await,
        };
        let proposal = self.proposal(&call.name, tool.spec().effect, &touches);
        if strongest_effect(&proposal) >= Effect::Write && has_placeholder(&call.args) {
            return self.refused(&call, invalid, HAS_PLACEHOLDER).await;
        }
        let decision = self.gate.lock().judge(&proposal);
        let ctx = self.ctx(&call_output);
        let still = |approval: &Approval| {
            let touches = guarded(|| tool.touches(&call.args, &ctx));
            approval.call == call
                && touches.is_ok_and(|touches| self.is_unchanged(&touches, approval))
        };
        let earlier = self.prior_answers.approval(&call.id);
        let preview = match earlier.is_none() && self.needs_answer(&decision) {
            true => guarded(|| tool.preview(&call.args, &ctx)),
            false => Ok(None),
        };
        let preview = match preview {
            Ok(preview) => preview,
            Err(failure) => {
                let (category, text) = (failure.category, self.preview_error(&proposal, failure));
                return self.refused(&call, category, &text).await;
            }
        };
        let approved = self.approve(&call, &proposal, &decision, earlier, preview, &still);
        let rule = match approved.await? {
            Ok(rule) => rule,
            Err((category, text)) => return self.refused(&call, category, &text).await,
        };
        let (mut command, mut outside) = (None, Vec::new());
        for touch in touches {
            match touch {
                Touch::Execute { command: line, .. } if command.is_none() => command = Some(line),
                Touch::Read {
                    path,
                    inside: false,
                } => outside.push(path),
                _ => {}
            }
        }
        Ok(GatedCall::Ready(ReadyCall {
            call,
            tool,
            command,
            outside,
            under: Some((decision.verdict, rule)),
        }))
    }

    /// Executes a call whose start is logged. A panic or a cancellation also gives a result.
    pub(super) async fn execute(&self, ready: &ReadyCall) -> ExecutedCall {
        if self.cancel.is_cancelled() {
            return ExecutedCall::plain(ToolResult::not_run(&ready.call, &self.stopped()));
        }
        let call_output = self.call_output(&ready.call);
        let _no_cancel = (ready.tool.spec().interrupt == Interrupt::Finish)
            .then(|| NoCancelGuard::new(&self.sink.uncancellable));
        let files = match &self.outside {
            Some(outside) if !ready.outside.is_empty() => {
                outside.grant(&self.files, ready.outside.clone())
            }
            _ => self.files.clone(),
        };
        let ctx = ToolCtx {
            files: &files,
            ..self.ctx(&call_output)
        };
        let running = AssertUnwindSafe(ready.tool.run(ready.call.args.clone(), ctx)).catch_unwind();
        let mut running = std::pin::pin!(running);
        let ended = tokio::select! {
            biased;
            ended = &mut running => Some(ended),
            () = self.cancel.cancelled() => match ready.tool.spec().interrupt {
                Interrupt::Finish => Some(running.await),
                // The call sees the cancellation through its token and gets some time to clean up.
                Interrupt::Cancel => tokio::select! {
                    ended = &mut running => Some(ended),
                    () = self.clock.sleep(GRACE) => None,
                },
            },
        };
        let output = match ended {
            None => {
                let why = format!("{} while it ran", self.stopped());
                return ExecutedCall::plain(ToolResult::interrupted(&ready.call, &why));
            }
            Some(Err(panic)) => Err(panicked(panic.as_ref())),
            Some(Ok(output)) => output,
        };
        self.result(&ready.call, ready.tool.spec().max_output, output)
    }

    /// The reason why a stopped run executes no calls.
    pub(super) fn stopped(&self) -> String {
        format!("the run was {}", self.sink.control.stopped_word())
    }

    fn result(
        &self,
        call: &ToolCall,
        cap: usize,
        output: Result<ToolOutput, ToolFailure>,
    ) -> ExecutedCall {
        let output = match output {
            Ok(output) => output,
            Err(failure) => {
                let text = clip(&self.redactor.redact(&failure.text), cap);
                return ExecutedCall::plain(ToolResult::failed(call, failure.category, &text));
            }
        };
        let redacted = self.redactor.redact(&output.text);
        let (mut text, artifact) = self.cut_to_limit(&redacted, cap, output.artifact);
        if text.trim().is_empty() {
            "(no output)".clone_into(&mut text);
        }
        let result = match output.failed {
            Some(category) => ToolResult::failed(call, category, &text),
            None => ToolResult::done(call, text),
        };
        let (files, redactor) = (self.files.as_ref(), self.redactor.as_ref());
        let keys = SCAN_AFTER_CALL.keys_in(files, redactor, &output.changes, &[]);
        let result = ToolResult { artifact, ..result };
        ExecutedCall {
            result,
            changes: output.changes,
            command: output.command,
            keys,
        }
    }

    /// Cuts an output to the limit of its tool and stores the whole output as an artifact.
    pub(super) fn cut_to_limit(
        &self,
        text: &str,
        cap: usize,
        stored: Option<ArtifactRef>,
    ) -> (String, Option<ArtifactRef>) {
        if text.chars().nth(cap).is_none() {
            return (text.to_owned(), stored);
        }
        let stored = match stored {
            Some(stored) => Ok(stored),
            None => self.artifacts.put(text.as_bytes()),
        };
        let note = match &stored {
            Ok(stored) => format!(
                "\n[... cut; all {} bytes are kept: read_file with path \"artifact:{}\" reads them by range ...]\n",
                stored.bytes, stored.id
            ),
            Err(err) => format!("\n[... cut; the rest could not be stored: {err} ...]\n"),
        };
        (clip_with(text, cap, &note), stored.ok())
    }

    fn check_arguments(&self, call: &ToolCall, tool: &dyn Tool) -> Result<(), String> {
        if let Some(raw) = &call.malformed {
            let start: String = raw.chars().take(200).collect();
            return Err(format!(
                "the arguments are not valid JSON; they began: {start}"
            ));
        }
        self.schemas
            .check(&call.name, &tool.spec().schema, &call.args)
    }

    pub(super) fn proposal<'a>(
        &self,
        tool: &'a str,
        effect: Effect,
        touches: &'a [Touch],
    ) -> Proposal<'a> {
        Proposal {
            tool,
            effect,
            touches,
            place: CallProtection {
                has_jobs: self.processes.has_jobs(),
                ..self.place
            },
        }
    }

    /// Returns the rule under which the call may run, or the error for the model; a denial is logged. An answer may take
    /// hours, so `still` checks afterwards that the call would still do exactly what was approved.
    pub(super) async fn approve(
        &self,
        call: &ToolCall,
        proposal: &Proposal<'_>,
        decision: &Decision,
        earlier: Option<(Answer, Approval)>,
        preview: Option<String>,
        still: &(dyn Fn(&Approval) -> bool + Sync),
    ) -> Result<Result<String, (ErrorCategory, String)>, StoreError> {
        let asked = self.ask_to_approve(call, proposal, decision, earlier, preview, still);
        let approved = asked.await?;
        if let Err((_, text)) = &approved {
            let denied = EventKind::Denied {
                call: call.id.clone(),
                rule: decision.rule.clone(),
                reason: text.clone(),
            };
            self.sink.emit(denied).await?;
        }
        Ok(approved)
    }

    async fn ask_to_approve(
        &self,
        call: &ToolCall,
        proposal: &Proposal<'_>,
        decision: &Decision,
        earlier: Option<(Answer, Approval)>,
        preview: Option<String>,
        still: &(dyn Fn(&Approval) -> bool + Sync),
    ) -> Result<Result<String, (ErrorCategory, String)>, StoreError> {
        // If a person denied exactly this call, no rule, mode or flag of the resumed run may allow it.
        let refused = matches!(earlier, Some((Answer::No { .. }, _)));
        match decision.verdict {
            Verdict::Deny => {
                let text = format!("{} ({})", decision.reason, decision.rule);
                return Ok(Err((ErrorCategory::Blocked, text)));
            }
            Verdict::Allow | Verdict::Ask if refused => {}
            Verdict::Allow => return Ok(Ok(decision.rule.clone())),
            Verdict::Ask if self.yes => {
                return Ok(Ok(format!("{}, answered by --yes", decision.rule)));
            }
            Verdict::Ask | Verdict::Person => {}
        }
        let touches = proposal.touches;
        let person = decision.verdict == Verdict::Person;
        let always = match person {
            true => None,
            false => PermissionGate::always_rule(proposal),
        };
        let (answer, approval) = match earlier {
            Some(known) => known,
            None => {
                let approval = Approval {
                    call: call.clone(),
                    touches: touches.to_vec(),
                    found: images_at(self.files.as_ref(), touches),
                    rule: decision.rule.clone(),
                    reason: decision.reason.clone(),
                    preview,
                    always: always.clone(),
                };
                let about = About::Approval(Box::new(approval.clone()));
                let asked = self.sink.ask_about(about, person, Some(call.id.clone()));
                (asked.await?, approval)
            }
        };
        if matches!(answer, Answer::Once | Answer::Always { .. }) && !still(&approval) {
            let text = "the files that the call touches changed while it waited for approval; read them again, then repeat the call";
            return Ok(Err((ErrorCategory::Stale, text.into())));
        }
        let rule = &decision.rule;
        let why = match answer {
            Answer::Once => return Ok(Ok(format!("{rule}, approved once"))),
            Answer::Always { .. } => {
                self.add_rule(approval.added_rule(&answer));
                return Ok(Ok(format!("{rule}, approved always")));
            }
            Answer::Abandoned => {
                let text = "the run ended before it was approved";
                return Ok(Err((ErrorCategory::Interrupted, text.into())));
            }
            Answer::No { note: Some(note) } => format!("the user said no: {note}"),
            Answer::No { note: None } | Answer::Text { .. } => {
                "the user said no; find another way, or ask".into()
            }
            Answer::Expired => "the approval was not answered in time".into(),
            Answer::Unanswered => format!(
                "it needs approval ({rule}), and no user is connected to give it; find another way"
            ),
        };
        Ok(Err((ErrorCategory::Denied, why)))
    }

    /// True if a person has to answer before the call runs.
    fn needs_answer(&self, decision: &Decision) -> bool {
        match decision.verdict {
            Verdict::Ask => !self.yes,
            Verdict::Person => true,
            Verdict::Allow | Verdict::Deny => false,
        }
    }

    /// The error of a call for which no approval is requested, because it cannot succeed. The details may reveal the content
    /// of files, so the model gets them only if it may read those files without approval.
    fn preview_error(&self, proposal: &Proposal<'_>, failure: ToolFailure) -> String {
        if self.gate.lock().may_read(proposal) {
            return failure.text;
        }
        CANNOT_SUCCEED.to_owned()
    }

    /// True if the touches are those that were approved, and the touched files have not changed since.
    pub(super) fn is_unchanged(&self, touches: &[Touch], approval: &Approval) -> bool {
        let same = touches.len() == approval.touches.len()
            && touches
                .iter()
                .zip(&approval.touches)
                .all(|(now, then)| now.is_same(then));
        same && images_at(self.files.as_ref(), touches) == approval.found
    }

    fn add_rule(&self, always: Option<&str>) {
        let rule = always.map(|text| Rule::parse(text, Verdict::Allow, Level::Session));
        if let Some(Ok(rule)) = rule {
            self.gate.lock().rules.push(rule);
        }
    }

    /// Asks the tool whether a call whose process died had its effect. `None` if the tool cannot tell.
    pub(crate) fn happened(&self, call: &ToolCall) -> Option<Happened> {
        let tool = self.tools.get(&call.name)?;
        self.check_arguments(call, tool.as_ref()).ok()?;
        let call_output = self.call_output(call);
        let happened = guarded(|| Ok(tool.happened(&call.args, &self.ctx(&call_output))));
        happened.ok().flatten()
    }

    fn unknown_tool(&self, name: &str) -> String {
        let shown: String = name.chars().take(80).collect();
        let meant = canonical_name(name);
        let hint = match self.tools.get(meant) {
            Some(_) => format!(" Did you mean `{meant}`?"),
            None => String::new(),
        };
        let tools = self.tools.iter();
        let names: Vec<&str> = tools.map(|tool| tool.spec().name.as_str()).collect();
        format!(
            "there is no tool `{shown}`.{hint} The tools are: {}",
            names.join(", ")
        )
    }

    pub(super) fn call_output<'a>(&'a self, call: &'a ToolCall) -> RunningCall<'a> {
        RunningCall {
            executor: self,
            call,
        }
    }

    pub(super) fn ctx<'a>(&'a self, call_output: &'a RunningCall<'a>) -> ToolCtx<'a> {
        ToolCtx {
            files: &self.files,
            processes: &self.processes,
            artifacts: &self.artifacts,
            call_output,
            cancel: self.cancel.clone(),
        }
    }
}

impl ExecutedCall {
    fn plain(result: ToolResult) -> Self {
        Self {
            result,
            changes: Vec::new(),
            command: None,
            keys: Vec::new(),
        }
    }
}

/// Counts a running call that must not be interrupted. The runtime is not stopped while the count is above zero.
struct NoCancelGuard<'a>(&'a AtomicU32);

impl<'a> NoCancelGuard<'a> {
    fn new(count: &'a AtomicU32) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for NoCancelGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The channel of a running call: progress, questions and notes.
pub(super) struct RunningCall<'a> {
    executor: &'a Executor,
    call: &'a ToolCall,
}

impl CallOutput for RunningCall<'_> {
    fn progress(&self, text: &str) {
        if self.executor.sink.watched() {
            // The output may end in the middle of a secret, so only the settled part is shown.
            let redactor = &self.executor.redactor;
            let text = redactor.redact(&text[..redactor.settled(text)]);
            let (id, text) = (self.call.id.clone(), text.into_owned());
            let sink = &self.executor.sink;
            sink.show(EventKind::CallProgress { id, text });
        }
    }

    fn ask<'a>(&'a self, question: Question) -> BoxFuture<'a, Answer> {
        Box::pin(async move {
            if let Some(answer) = self.executor.prior_answers.answer(&self.call.id, &question) {
                return answer;
            }
            let (about, call) = (About::Question(question), Some(self.call.id.clone()));
            let asked = self.executor.sink.ask_about(about, false, call);
            // If the store failed, the next event ends the run, so this call only has to return.
            asked.await.unwrap_or(Answer::Abandoned)
        })
    }

    fn notes(&self) -> String {
        self.executor.sink.notes()
    }

    fn set_notes<'a>(&'a self, text: String) -> BoxFuture<'a, Result<(), ToolFailure>> {
        Box::pin(async move {
            if text.len() > MAX_NOTES {
                let why = format!("notes are limited to {} KiB; shorten them", MAX_NOTES >> 10);
                return Err(ToolFailure::new(ErrorCategory::InvalidArguments, why));
            }
            let noted = self.executor.sink.emit(EventKind::Noted { text }).await;
            noted
                .map(|_| ())
                .map_err(|err| ToolFailure::new(ErrorCategory::Exception, err.to_string()))
        })
    }
}

/// Calls into a tool and turns a panic of the tool into its failure.
pub(super) fn guarded<T>(call: impl FnOnce() -> Result<T, ToolFailure>) -> Result<T, ToolFailure> {
    std::panic::catch_unwind(AssertUnwindSafe(call))
        .unwrap_or_else(|panic| Err(panicked(panic.as_ref())))
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> ToolFailure {
    ToolFailure::new(ErrorCategory::Exception, describe_panic(panic))
}

/// The strongest effect of a call and its touches.
pub(super) fn strongest_effect(proposal: &Proposal<'_>) -> Effect {
    let touched = proposal.touches.iter().map(Touch::effect);
    touched.fold(proposal.effect, Effect::max)
}

pub(crate) fn describe_panic(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("it panicked: {}", clip(text.unwrap_or("no message"), 500))
}

fn clip(text: &str, cap: usize) -> String {
    clip_with(text, cap, "\n[... cut ...]\n")
}

/// Cuts a text to `cap` characters: two thirds from its beginning, one third from its end, and a note between them.
fn clip_with(text: &str, cap: usize, note: &str) -> String {
    let total = text.chars().count();
    if total <= cap {
        return text.to_owned();
    }
    let room = cap.saturating_sub(note.chars().count());
    let (head, tail) = (room - room / 3, room / 3);
    let mut out: String = text.chars().take(head).collect();
    out.push_str(note);
    out.extend(text.chars().skip(total - tail));
    out
}
