//! Codex as a runtime: `codex app-server` with JSON-RPC in both directions. The gate judges every command and patch,
//! and Windlass tools are offered as dynamic tools. One process takes all prompts of a run; a process that exited is
//! spawned again and resumes the conversation.

mod dialogue;
mod items;
mod launch;
mod options;
mod turn_end;

use windlass_core::runtime::{Capabilities, Capability, Feature, Features};

use self::dialogue::{CodexDialogue, CodexSetup};
use crate::agent::{
    Adapter, AgentAttempt, AnswerFuture, CODER_CAPABILITIES, CONVERSATION_FEATURES,
};
use crate::driver::{Conversation, Started, run_turn, start};
use crate::offered_tools::offered_tools;
use crate::option_checks::or_default_program;

pub use self::options::CodexOptions;

/// The adapter for Codex.
#[derive(Debug)]
pub struct Codex {
    options: CodexOptions,
}

impl Codex {
    /// The name that users type.
    pub const NAME: &'static str = "codex";

    /// Checks the options, and sets the default program.
    pub fn new(mut options: CodexOptions) -> Result<Self, String> {
        options.program = or_default_program(options.program, "codex");
        options.check()?;
        Ok(Self { options })
    }

    async fn start(
        &self,
        attempt: &AgentAttempt<'_>,
        resume: Option<String>,
    ) -> Started<CodexDialogue> {
        let launch = launch::launch(&self.options, attempt);
        let program = start(attempt, launch, &self.options.program).await?;
        let dialogue = CodexDialogue::new(CodexSetup {
            thread: launch::thread(&self.options, attempt, resume.as_deref()),
            turn: launch::turn(&self.options, attempt),
            resumes: resume.is_some(),
            model: self.options.model.clone(),
            tools: offered_tools(attempt.job.toolbox),
            root: attempt.job.files.root().to_string_lossy().into_owned(),
        });
        Ok(Conversation::new(dialogue, program))
    }
}

impl Adapter for Codex {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn model(&self) -> Option<&str> {
        self.options.model.as_deref()
    }

    fn capabilities(&self) -> Capabilities {
        use Capability as C;
        let more = [C::FunctionTools, C::Mcp, C::ApplyPatch];
        Capabilities::of(CODER_CAPABILITIES.into_iter().chain(more))
    }

    fn features(&self) -> Features {
        Features::of(
            CONVERSATION_FEATURES
                .into_iter()
                .chain([Feature::HostTools]),
        )
    }

    fn survives_iterations(&self) -> bool {
        true
    }

    fn converse<'a>(&'a self, attempt: &'a AgentAttempt<'a>, say: &'a str) -> AnswerFuture<'a> {
        Box::pin(run_turn(
            attempt,
            attempt.session(),
            say,
            move |resume, _| Box::pin(self.start(attempt, resume)),
        ))
    }
}
