//! OpenHands as a runtime: its agent server runs in the enclosure, and a bridge of Windlass next to it forwards
//! requests and events over the pipes. Every action waits for the gate. The server runs for the whole attempt.
//!
//! In the order of one attempt: `launch` assembles the start of the server and of a conversation, `dialogue` starts the
//! conversation and follows it, `calls` and `ended` interpret its messages.

mod calls;
mod dialogue;
mod ended;
mod launch;
mod options;

use windlass_core::runtime::{Capabilities, Capability, Feature, Features};

use self::dialogue::{OpenHandsDialogue, OpenHandsSetup};
use crate::agent::{Adapter, AgentAttempt, Answering, CODER, CONVERSES, told_anew};
use crate::dialect::Dialect;
use crate::driver::{Conversation, Started, start, stay};

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
        let all = CODER.into_iter().chain([C::Mcp]);
        Capabilities::of(all.filter(|one| match one {
            C::FilesystemRead => self.has(&["terminal", "file_editor", "read_file"]),
            C::FilesystemEdit => self.has(&["terminal", "file_editor", "write_file", "edit"]),
            C::Shell => self.has(&["terminal"]),
            _ => true,
        }))
    }

    fn features(&self) -> Features {
        Features::of(CONVERSES.into_iter().chain([Feature::ReportsCost]))
    }

    fn stays(&self) -> bool {
        true
    }

    fn converse<'a>(&'a self, attempt: &'a AgentAttempt<'a>, say: &'a str) -> Answering<'a> {
        Box::pin(async move {
            let mut running = self.running(attempt).await;
            match &mut running {
                Ok(running) => running.dialogue.retold = told_anew(attempt, say),
                Err(_) => attempt.began(None).await?,
            }
            stay(attempt, running, say).await
        })
    }
}
