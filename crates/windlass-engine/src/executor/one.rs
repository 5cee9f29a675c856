//! One call: from the model's words to a verdict, and from a verdict to a result.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use windlass_core::BoxFuture;
use windlass_core::ask::{About, Answer, Approval, Question};
use windlass_core::event::EventKind;
use windlass_core::gate::{Decision, Level, PermissionGate, Place, Proposal, Rule, Verdict};
use windlass_core::message::{ArtifactRef, ErrorCategory, ToolCall, ToolResult};
use windlass_core::runtime::Outlet;
use windlass_core::store::StoreError;
use windlass_core::tool::{
    Effect, Happened, Interrupt, RanCommand, Tool, ToolCtx, ToolFailure, ToolOutput, Touch, Voice,
    canonical_name,
};
use windlass_core::turn::Planned;
use windlass_core::workspace::FileChange;

use super::earlier::found;
use super::keys::OF_A_CALL;
use super::{Executor, Judged, Ready};
use crate::redact::holds_mark;

/// How long a cancelled call may take to clean up.
const GRACE: Duration = Duration::from_millis(700);
/// Why a call that would write the words that stand for a secret is not run.
const MARKED: &str = "the arguments hold words that stand for a hidden secret; written to a file they would replace \
    the secret itself. Leave the line with the secret as it is and change only what is around it, or ask the person \
    to make that change";
/// Notes a session may keep, in bytes.
const MAX_NOTES: usize = 64 << 10;

/// The reason where the model may not know more.
const UNFIT: &str =
    "it cannot be done as it is given, so that nobody was asked; read the file first";

/// What came of running a call.
pub(super) struct Done {
    pub(super) result: ToolResult,
    pub(super) changes: Vec<FileChange>,
    pub(super) command: Option<RanCommand>,
    /// Where a changed file now holds what looks like a key, in words.
    pub(super) keys: Vec<String>,
}

impl Executor {
    /// Everything before a call runs: afterwards it may be begun, or has its result.
    pub(super) async fn judge(&self, planned: Planned) -> Result<Judged, StoreError> {
        let Planned { call, refuse } = planned;
        if let Some((category, text)) = refuse {
            return self.refused(&call, category, &text).await;
        }
        if self.cancel.is_cancelled() {
            let text = "not run, because the run was cancelled";
            return self.refused(&call, ErrorCategory::Interrupted, text).await;
        }
        let Some(tool) = self.tools.get(&call.name).cloned() else {
            let text = self.unknown(&call.name);
            return self.refused(&call, ErrorCategory::UnknownTool, &text).await;
        };
        let invalid = ErrorCategory::InvalidArguments;
        if let Err(text) = self.check_arguments(&call, tool.as_ref()) {
            return self.refused(&call, invalid, &text).await;
        }
        let voice = self.voice(&call);
        if self.earlier.begun(&call.id) {
            return Ok(Judged::Ready(Ready {
                call,
                tool,
                command: None,
                outside: Vec::new(),
                under: None,
            }));
        }
        let touches = match guarded(|| tool.touches(&call.args, &self.ctx(&voice))) {
            Ok(touches) => touches,
            Err(failure) => return self.refused(&call, failure.category, &failure.text).await,
        };
        let proposal = self.proposal(&call.name, tool.spec().effect, &touches);
        if worst(&proposal) >= Effect::Write && holds_mark(&call.args) {
            return self.refused(&call, invalid, MARKED).await;
        }
        let decision = self.gate.lock().judge(&proposal);
        let ctx = self.ctx(&voice);
        let still = |approval: &Approval| {
            let touches = guarded(|| tool.touches(&call.args, &ctx));
            approval.call == call && touches.is_ok_and(|touches| self.is_still(&touches, approval))
        };
        let earlier = self.earlier.approval(&call.id);
        let preview = match earlier.is_none() && self.asks(&decision) {
            true => guarded(|| tool.preview(&call.args, &ctx)),
            false => Ok(None),
        };
        let preview = match preview {
            Ok(preview) => preview,
            Err(failure) => {
                let (category, text) = (failure.category, self.why_unfit(&proposal, failure));
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
        Ok(Judged::Ready(Ready {
            call,
            tool,
            command,
            outside,
            under: Some((decision.verdict, rule)),
        }))
    }

    /// Runs a call that was logged; always gives a result.
    pub(super) async fn execute(&self, ready: &Ready) -> Done {
        if self.cancel.is_cancelled() {
            return Done::plain(ToolResult::not_run(&ready.call, "the run was cancelled"));
        }
        let voice = self.voice(&ready.call);
        let _untorn = (ready.tool.spec().interrupt == Interrupt::Finish)
            .then(|| Untorn::new(&self.outlet.untorn));
        let files = match &self.outside {
            Some(outside) if !ready.outside.is_empty() => {
                outside.grant(&self.files, ready.outside.clone())
            }
            _ => self.files.clone(),
        };
        let ctx = ToolCtx {
            files: &files,
            ..self.ctx(&voice)
        };
        let running = AssertUnwindSafe(ready.tool.run(ready.call.args.clone(), ctx)).catch_unwind();
        let mut running = std::pin::pin!(running);
        let ended = tokio::select! {
            biased;
            ended = &mut running => Some(ended),
            () = self.cancel.cancelled() => match ready.tool.spec().interrupt {
                Interrupt::Finish => Some(running.await),
                // The call was told through its own token; it gets a moment to end what it started.
                Interrupt::Cancel => tokio::select! {
                    ended = &mut running => Some(ended),
                    () = self.clock.sleep(GRACE) => None,
                },
            },
        };
        let output = match ended {
            None => {
                let why = "the run was cancelled while it ran";
                return Done::plain(ToolResult::interrupted(&ready.call, why));
            }
            Some(Err(panic)) => Err(panicked(panic.as_ref())),
            Some(Ok(output)) => output,
        };
        self.result(&ready.call, ready.tool.spec().max_output, output)
    }

    fn result(&self, call: &ToolCall, cap: usize, output: Result<ToolOutput, ToolFailure>) -> Done {
        let output = match output {
            Ok(output) => output,
            Err(failure) => {
                let text = clip(&self.redactor.redact(&failure.text), cap);
                return Done::plain(ToolResult::failed(call, failure.category, &text));
            }
        };
        let redacted = self.redactor.redact(&output.text);
        let (mut text, artifact) = self.fit(&redacted, cap, output.artifact);
        if text.trim().is_empty() {
            "(no output)".clone_into(&mut text);
        }
        let result = match output.failed {
            Some(category) => ToolResult::failed(call, category, &text),
            None => ToolResult::done(call, text),
        };
        let (files, redactor) = (self.files.as_ref(), self.redactor.as_ref());
        let keys = OF_A_CALL.keys_in(files, redactor, &output.changes, &[]);
        let result = ToolResult { artifact, ..result };
        Done {
            result,
            changes: output.changes,
            command: output.command,
            keys,
        }
    }

    /// What the model gets of a large output, and where the rest is.
    pub(super) fn fit(
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
            place: Place {
                has_jobs: self.processes.has_jobs(),
                ..self.place
            },
        }
    }

    /// The rule under which the call may run, or what the model is told instead, which is logged. A person may take
    /// long: what they approved must still be what would happen.
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
            self.outlet.emit(denied).await?;
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
        // A person's no to exactly this call counts before any rule, mode or flag that would let it run by now.
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
                    found: found(self.files.as_ref(), touches),
                    rule: decision.rule.clone(),
                    reason: decision.reason.clone(),
                    preview,
                    always: always.clone(),
                };
                let about = About::Approval(Box::new(approval.clone()));
                let asked = self.outlet.ask_about(about, person, Some(call.id.clone()));
                (asked.await?, approval)
            }
        };
        if matches!(answer, Answer::Once | Answer::Always) && !still(&approval) {
            let text = "what it would touch changed while it waited for approval; look again, then ask again";
            return Ok(Err((ErrorCategory::Stale, text.into())));
        }
        let rule = &decision.rule;
        let why = match answer {
            Answer::Once => return Ok(Ok(format!("{rule}, approved once"))),
            Answer::Always => {
                self.add_rule(always.as_deref());
                return Ok(Ok(format!("{rule}, approved for good")));
            }
            Answer::Abandoned => {
                let text = "the run ended before it was approved";
                return Ok(Err((ErrorCategory::Interrupted, text.into())));
            }
            Answer::No { note: Some(note) } => format!("a person said no: {note}"),
            Answer::No { note: None } | Answer::Text { .. } => {
                "a person said no; do it another way, or ask".into()
            }
            Answer::Expired => "nobody answered in time".into(),
            Answer::Unanswered => format!(
                "it needs approval ({rule}) and nobody is there to give it; do it another way"
            ),
        };
        Ok(Err((ErrorCategory::Denied, why)))
    }

    /// Whether a person has to answer before the call runs.
    fn asks(&self, decision: &Decision) -> bool {
        match decision.verdict {
            Verdict::Ask => !self.yes,
            Verdict::Person => true,
            Verdict::Allow | Verdict::Deny => false,
        }
    }

    /// The reason why a call is not put to a person: it cannot work. It may tell what is in files, so the model gets it
    /// only where it may read those without a question.
    fn why_unfit(&self, proposal: &Proposal<'_>, failure: ToolFailure) -> String {
        if self.gate.lock().may_read(proposal) {
            return failure.text;
        }
        UNFIT.to_owned()
    }

    /// Whether a call would touch what was approved, on the files it was asked about.
    pub(super) fn is_still(&self, touches: &[Touch], approval: &Approval) -> bool {
        let same = touches.len() == approval.touches.len()
            && touches
                .iter()
                .zip(&approval.touches)
                .all(|(now, then)| now.is_same(then));
        same && found(self.files.as_ref(), touches) == approval.found
    }

    fn add_rule(&self, always: Option<&str>) {
        let rule = always.map(|text| Rule::parse(text, Verdict::Allow, Level::Session));
        if let Some(Ok(rule)) = rule {
            self.gate.lock().rules.push(rule);
        }
    }

    /// What became of a call whose process died, where that can be seen.
    pub(crate) fn happened(&self, call: &ToolCall) -> Option<Happened> {
        let tool = self.tools.get(&call.name)?;
        self.check_arguments(call, tool.as_ref()).ok()?;
        let voice = self.voice(call);
        let looked = guarded(|| Ok(tool.happened(&call.args, &self.ctx(&voice))));
        looked.ok().flatten()
    }

    fn unknown(&self, name: &str) -> String {
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

    pub(super) fn voice<'a>(&'a self, call: &'a ToolCall) -> CallVoice<'a> {
        CallVoice {
            executor: self,
            call,
        }
    }

    pub(super) fn ctx<'a>(&'a self, voice: &'a CallVoice<'a>) -> ToolCtx<'a> {
        ToolCtx {
            files: &self.files,
            processes: &self.processes,
            artifacts: &self.artifacts,
            voice,
            cancel: self.cancel.clone(),
        }
    }
}

impl Done {
    fn plain(result: ToolResult) -> Self {
        Self {
            result,
            changes: Vec::new(),
            command: None,
            keys: Vec::new(),
        }
    }
}

/// While this lives, a call runs that must not be torn.
struct Untorn<'a>(&'a AtomicU32);

impl<'a> Untorn<'a> {
    fn new(count: &'a AtomicU32) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for Untorn<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// How one running call speaks.
pub(super) struct CallVoice<'a> {
    executor: &'a Executor,
    call: &'a ToolCall,
}

impl Voice for CallVoice<'_> {
    fn progress(&self, text: &str) {
        if self.executor.outlet.watched() {
            // The newest output may end in the middle of a secret.
            let redactor = &self.executor.redactor;
            let text = redactor.redact(&text[..redactor.settled(text)]);
            let (id, text) = (self.call.id.clone(), text.into_owned());
            let outlet = &self.executor.outlet;
            outlet.show(EventKind::CallProgress { id, text });
        }
    }

    fn ask<'a>(&'a self, question: Question) -> BoxFuture<'a, Answer> {
        Box::pin(async move {
            if let Some(answer) = self.executor.earlier.answer(&self.call.id, &question) {
                return answer;
            }
            let (about, call) = (About::Question(question), Some(self.call.id.clone()));
            let asked = self.executor.outlet.ask_about(about, false, call);
            // A failed store ends the run at the next event; the call only has to end.
            asked.await.unwrap_or(Answer::Abandoned)
        })
    }

    fn notes(&self) -> String {
        self.executor.outlet.notes()
    }

    fn set_notes<'a>(&'a self, text: String) -> BoxFuture<'a, Result<(), ToolFailure>> {
        Box::pin(async move {
            if text.len() > MAX_NOTES {
                let why = format!(
                    "notes are limited to {} KiB; keep what still matters",
                    MAX_NOTES >> 10
                );
                return Err(ToolFailure::new(ErrorCategory::InvalidArguments, why));
            }
            let noted = self.executor.outlet.emit(EventKind::Noted { text }).await;
            noted
                .map(|_| ())
                .map_err(|err| ToolFailure::new(ErrorCategory::Exception, err.to_string()))
        })
    }
}

/// A tool is foreign code: its panic is its failure, not ours.
pub(super) fn guarded<T>(look: impl FnOnce() -> Result<T, ToolFailure>) -> Result<T, ToolFailure> {
    std::panic::catch_unwind(AssertUnwindSafe(look))
        .unwrap_or_else(|panic| Err(panicked(panic.as_ref())))
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> ToolFailure {
    ToolFailure::new(ErrorCategory::Exception, describe_panic(panic))
}

/// The worst that a call may do.
pub(super) fn worst(proposal: &Proposal<'_>) -> Effect {
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

/// The head and the tail of a text, with a note between them.
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
