//! The patch runtime: any model that supports an output schema proposes a patch, and this runtime applies it.
//!
//! The model has no tools. It is shown files and answers with a proposal. The proposal is checked against the rules and
//! the files, then applied with our `apply_patch` tool, so that it passes the gate and the floor and is logged. Then the
//! tests that it names are run if they are permitted. Problems are sent back to the model a limited number of times.

mod check;
mod proposal;

use std::sync::Arc;

use serde_json::json;
use windlass_core::event::EventKind;
use windlass_core::id::CallId;
use windlass_core::message::{ErrorCategory, Message, ToolCall, ToolResult};
use windlass_core::outcome::FailReason;
use windlass_core::runtime::{Capability, Job, Runtime, RuntimeError, Stop};
use windlass_core::store::StoreError;
use windlass_core::turn::Planned;

pub use self::proposal::{Operation, PatchProposal, ProposedFile, accepted_schema, schema};

use self::check::{CheckedProposal, check};
use crate::no_tools::NoTools;
use crate::shown_files::{asked_for, overview};

/// Problems are sent back to the model at most this many times.
const MAX_ROUNDS: u32 = 3;
/// The model may ask for files at most this many times.
const MAX_READS: u32 = 6;
/// At most this many bytes of the output of a failed test are sent back.
const MAX_OUTPUT: usize = 8_000;
/// The time limit of one test in seconds.
const TEST_SECONDS: u64 = 600;

// The tools that the runtime calls on behalf of the model.
const APPLY: &str = "apply_patch";
const SHELL: &str = "bash";

pub(crate) const CAPABILITIES: &[Capability] = &[
    Capability::TextCompletion,
    Capability::StreamingText,
    Capability::StructuredOutput,
    Capability::ApplyPatch,
];

const FORM: &str = "\
You have no tools here. You propose a change, and it is checked, applied and tested for you. Answer with one JSON \
object and nothing around it:
{\"summary\": what the change does,
 \"files\": [{\"path\", \"operation\": \"create\", \"update\", \"delete\" or \"move\", \"to\": the new path of a move or null, \"patch\"}],
 \"tests\": [commands that show that it works], \"risks\": [what may go wrong],
 \"read\": [files you must see first, as \"path\" or \"path:first-last\"]}
With \"read\" nothing is changed: you are shown the files and answer again. Otherwise leave it empty.
A \"patch\" is about its own file only, in one of these forms: a unified diff; search/replace blocks (<<<<<<< SEARCH, the \
old lines, =======, the new lines, >>>>>>> REPLACE; an empty SEARCH makes a new file); or *** Begin Patch. Old lines \
must be exactly those of the file and must occur once: give enough of them. Modes, links and binary files cannot be \
patched. To delete or only move a file, leave its patch empty.";

pub(crate) async fn run(inner: &dyn Runtime, job: &Job<'_>) -> Result<Stop, RuntimeError> {
    let (proposal, calls) = (0, 0);
    ProposalLoop {
        inner,
        job,
        proposal,
        calls,
    }
    .drive()
    .await
}

/// The loop of one iteration: ask for a proposal, check, apply and test it.
struct ProposalLoop<'a> {
    inner: &'a dyn Runtime,
    job: &'a Job<'a>,
    /// The sequence number of the event of the current proposal.
    proposal: u64,
    /// The number of tool calls so far.
    calls: u32,
}

/// The result of a proposal.
enum ProposalResult {
    /// The proposal was applied, and no test failed.
    Good,
    /// Nothing was written. The text is sent back to the model.
    NotApplied(String),
    /// The proposal was applied, but tests failed. The text is sent back to the model.
    TestsFail(String),
}

impl ProposalLoop<'_> {
    async fn drive(&mut self) -> Result<Stop, RuntimeError> {
        let none = NoTools::over(self.job.toolbox);
        self.brief().await?;
        let (mut rounds, mut reads) = (0, 0);
        loop {
            if self.job.cancel.is_cancelled() {
                return Ok(Stop::Cancelled);
            }
            let output = match self.inner.run(none.job(self.job)).await? {
                Stop::Answered { output } => output,
                Stop::Done => {
                    let detail =
                        "the wrapped runtime does not support an output schema, so it cannot propose a patch".to_owned();
                    return Ok(Stop::Failed {
                        reason: FailReason::StructuredOutput,
                        detail,
                    });
                }
                stop => return Ok(stop),
            };
            let result = match PatchProposal::read(&output) {
                Ok(proposal) if !proposal.read.is_empty() && reads < MAX_READS => {
                    reads += 1;
                    let shown = asked_for(self.job.files, &proposal.read).await;
                    self.say(format!("Here is what you asked for.\n{shown}"))
                        .await?;
                    continue;
                }
                Ok(proposal) if !proposal.read.is_empty() => ProposalResult::NotApplied(format!(
                    "Files were shown {MAX_READS} times; propose the change with what you know, without `read`."
                )),
                Ok(proposal) => self.attempt(&proposal).await?,
                Err(text) => ProposalResult::NotApplied(text),
            };
            match result {
                ProposalResult::Good => return Ok(Stop::Answered { output }),
                ProposalResult::NotApplied(text) | ProposalResult::TestsFail(text)
                    if rounds < MAX_ROUNDS =>
                {
                    rounds += 1;
                    self.say(text).await?;
                }
                // The run does not fail: the validators judge the files, not the tests that the model chose.
                ProposalResult::TestsFail(text) => {
                    let text = format!(
                        "after {} proposals the tests that the model chose still fail: {text}",
                        rounds + 1
                    );
                    self.warn("proposed_tests_failed", text).await?;
                    return Ok(Stop::Answered { output });
                }
                ProposalResult::NotApplied(text) => {
                    let detail = format!(
                        "after {} proposals none could be applied: {text}",
                        rounds + 1
                    );
                    return Ok(Stop::Failed {
                        reason: FailReason::NoChanges,
                        detail,
                    });
                }
            }
        }
    }

    /// Tells the model the form of the answer and shows it files, because it has no tools to read them.
    async fn brief(&self) -> Result<(), StoreError> {
        if self.job.iteration > 1 || !self.job.pending.is_empty() {
            return self
                .say(
                    "Answer in the same form again, as one whole proposal against the files as they are now."
                        .to_owned(),
                )
                .await;
        }
        let shown = overview(self.job.files, &self.job.prompt.text(), &self.job.cancel).await;
        self.say(format!("{FORM}\n\n{shown}")).await
    }

    async fn attempt(&mut self, proposal: &PatchProposal) -> Result<ProposalResult, StoreError> {
        let summary = proposal.summary.clone();
        let files = proposal.files.iter().map(|file| file.path.clone());
        let files = files.collect();
        self.proposal = self
            .emit(EventKind::PatchProposed { summary, files })
            .await?;
        if proposal.files.is_empty() {
            let problems = Vec::new();
            self.emit(EventKind::PatchChecked { problems }).await?;
            return self.test(proposal).await;
        }
        let (tree, asked) = (Arc::clone(self.job.files), proposal.clone());
        let checked = tokio::task::spawn_blocking(move || check(tree.as_ref(), &asked)).await;
        let checked = checked.unwrap_or_else(|err| Err(vec![format!("the check failed: {err}")]));
        let problems = checked.as_ref().err().cloned().unwrap_or_default();
        self.emit(EventKind::PatchChecked { problems }).await?;
        match checked {
            Ok(checked) => self.apply(proposal, checked).await,
            Err(problems) => Ok(ProposalResult::NotApplied(refused(&problems.join("\n- ")))),
        }
    }

    async fn apply(
        &mut self,
        proposal: &PatchProposal,
        checked: CheckedProposal,
    ) -> Result<ProposalResult, StoreError> {
        let result = self.call(APPLY, json!({ "patch": checked.patch })).await?;
        if result.error.is_some() {
            return Ok(ProposalResult::NotApplied(refused(&result.text)));
        }
        let files = checked.files;
        self.emit(EventKind::PatchApplied { files }).await?;
        self.test(proposal).await
    }

    /// Runs the tests of a proposal; those that are not permitted are skipped with a warning.
    async fn test(&mut self, proposal: &PatchProposal) -> Result<ProposalResult, StoreError> {
        let mut failed = Vec::new();
        for command in proposal
            .tests
            .iter()
            .filter(|command| !command.trim().is_empty())
        {
            if self.job.cancel.is_cancelled() {
                break;
            }
            let result = self
                .call(
                    SHELL,
                    json!({ "command": command, "timeout_s": TEST_SECONDS }),
                )
                .await?;
            match result.error {
                None => {}
                Some(
                    ErrorCategory::Blocked | ErrorCategory::Denied | ErrorCategory::UnknownTool,
                ) => {
                    let text = format!("the test `{command}` was not run: {}", result.text);
                    self.warn("proposed_test_not_run", text).await?;
                }
                Some(_) => failed.push(format!("`{command}`:\n{}", ending(&result.text))),
            }
        }
        if failed.is_empty() {
            return Ok(ProposalResult::Good);
        }
        Ok(ProposalResult::TestsFail(format!(
            "The patch was applied, but these tests fail. Propose the remaining changes against the files as they are now; do not repeat changes that were applied.\n\n{}",
            failed.join("\n\n")
        )))
    }

    /// Calls one of our tools. The call is judged and logged like a call of the model.
    async fn call(
        &mut self,
        tool: &str,
        args: serde_json::Value,
    ) -> Result<ToolResult, StoreError> {
        self.calls += 1;
        let id = CallId(format!("proposal-{}-{}", self.proposal, self.calls));
        let call = ToolCall::new(id, tool, args);
        let planned = Planned {
            call: call.clone(),
            refuse: None,
        };
        let settled = self.job.toolbox.call(vec![planned]).await?;
        let missing =
            || ToolResult::failed(&call, ErrorCategory::Exception, "the call has no result");
        Ok(settled
            .into_iter()
            .next()
            .map_or_else(missing, |settled| settled.result))
    }

    async fn say(&self, text: String) -> Result<(), StoreError> {
        let said = EventKind::said(Message::internal(text));
        self.emit(said).await.map(drop)
    }

    async fn warn(&self, code: &str, text: String) -> Result<(), StoreError> {
        let code = code.to_owned();
        self.emit(EventKind::Warned { code, text }).await.map(drop)
    }

    async fn emit(&self, kind: EventKind) -> Result<u64, StoreError> {
        self.job.sink.emit(kind).await
    }
}

fn refused(why: &str) -> String {
    format!(
        "The proposal was not applied; nothing was written:\n- {why}\n\nPropose the whole change again, with this corrected."
    )
}

/// The end of an output, which usually contains the failure.
fn ending(text: &str) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(MAX_OUTPUT))..]
}
