//! OpenHands as a runtime: its agent server runs in the enclosure, and a bridge of Windlass next to it forwards
//! requests and events over the pipes. Every action waits for the gate. The server runs for the whole attempt.
//!
//! In the order of one attempt: `launch` assembles the start of the server and of a conversation, `dialogue` starts the
//! conversation and follows it, `calls` and `turn_end` interpret its messages.

mod calls;
mod dialogue;
mod launch;
mod options;
mod turn_end;

use windlass_core::runtime::{Capabilities, Capability, Feature, Features};

use self::dialogue::{OpenHandsDialogue, OpenHandsSetup};
use crate::agent::{
    Adapter, AgentAttempt, AnswerFuture, CODER_CAPABILITIES, CONVERSATION_FEATURES, full_prompt,
};
use crate::dialect::Dialect;
use crate::driver::{Conversation, Started, run_turn_and_keep, start};

pub use self::options::OpenHandsOptions;

/// The adapter for OpenHands.
#[derive(Debug)]
pub struct OpenHands {
    options: OpenHandsOptions,
    dialect: Dialect,
}

impl OpenHands {
    /// The name that users type.
    pub const NAME: &'static str = "openhands";

    /// Checks the options. `dialect` is the protocol of the model.
    pub fn new(options: OpenHandsOptions, dialect: Dialect) -> Result<Self, String> {
        options.check()?;
        Ok(Self { options, dialect })
    }

    /// The server that was kept from the previous turn, or a new process.
    async fn running(&self, attempt: &AgentAttempt<'_>) -> Started<OpenHandsDialogue> {
        if let Some(kept) = attempt.take_kept() {
            return Ok(kept);
        }
        let options = &self.options;
        let Some(llm) = launch::llm(options, self.dialect, &attempt.model) else {
            return Err("OpenHands has no login of its own; remove `--auth login`".to_owned());
        };
        let program = start(attempt, launch::launch(options, attempt), &options.python).await?;
        let root = attempt.job.files.root();
        let dialogue = OpenHandsDialogue::new(OpenHandsSetup {
            resume: attempt.session(),
            conversation: launch::conversation(options, attempt, &llm),
            terms: launch::terms(options, root),
            llm,
            root: root.to_owned(),
            max_iterations: options.max_iterations,
        });
        Ok(Conversation::new(dialogue, program))
    }

    fn has(&self, tools: &[&str]) -> bool {
        let wanted = |tool: &String| tools.contains(&tool.as_str());
        self.options.tools.iter().any(wanted)
    }
}

impl Adapter for OpenHands {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn model(&self) -> Option<&str> {
        self.options.model.as_deref()
    }

    fn capabilities(&self) -> Capabilities {
        use Capability as C;
        let all = CODER_CAPABILITIES.into_iter().chain([C::Mcp]);
        Capabilities::of(all.filter(|one| match one {
            C::FilesystemRead => self.has(&["terminal", "file_editor", "read_file"]),
            C::FilesystemEdit => self.has(&["terminal", "file_editor", "write_file", "edit"]),
            C::Shell => self.has(&["terminal"]),
            _ => true,
        }))
    }

    fn features(&self) -> Features {
        Features::of(
            CONVERSATION_FEATURES
                .into_iter()
                .chain([Feature::ReportsCost]),
        )
    }

    fn survives_iterations(&self) -> bool {
        true
    }

    fn converse<'a>(&'a self, attempt: &'a AgentAttempt<'a>, say: &'a str) -> AnswerFuture<'a> {
        Box::pin(async move {
            let mut running = self.running(attempt).await;
            match &mut running {
                Ok(running) => running.dialogue.prompt_with_digest = full_prompt(attempt, say),
                Err(_) => attempt.log_start(None).await?,
            }
            run_turn_and_keep(attempt, running, say).await
        })
    }
}
