//! Claude Code as a runtime: `claude -p` with JSON lines in both directions. The gate judges every call through a hook,
//! and Windlass tools are offered over the same pipe. One process takes all prompts of a run; a process that exited is
//! spawned again and resumes the conversation.

mod calls;
mod dialogue;
mod launch;
mod mcp_host;
mod messages;
mod options;
mod turn_end;

use windlass_core::runtime::{Capabilities, Capability, Feature, Features};

use self::dialogue::ClaudeDialogue;
use self::launch::launch;
use crate::agent::{
    Adapter, AgentAttempt, AnswerFuture, CODER_CAPABILITIES, CONVERSATION_FEATURES,
};
use crate::driver::{Conversation, Started, run_turn, start};
use crate::offered_tools::offered_tools;
use crate::option_checks::or_default_program;

pub use self::options::{ClaudeEffort, ClaudeOptions, SettingSource};

/// The adapter for Claude Code.
#[derive(Debug)]
pub struct ClaudeCode {
    options: ClaudeOptions,
}

impl ClaudeCode {
    /// The name that users type.
    pub const NAME: &'static str = "claude-code";

    /// Checks the options, and sets the default program.
    pub fn new(mut options: ClaudeOptions) -> Result<Self, String> {
        options.program = or_default_program(options.program, "claude");
        options.check()?;
        Ok(Self { options })
    }

    async fn start(
        &self,
        attempt: &AgentAttempt<'_>,
        resume: Option<String>,
    ) -> Started<ClaudeDialogue> {
        let tools = offered_tools(attempt.job.toolbox);
        let launch = launch(&self.options, attempt, resume.as_deref(), !tools.is_empty());
        let program = start(attempt, launch, &self.options.program).await?;
        let dialogue = ClaudeDialogue::new(tools, resume.is_some());
        Ok(Conversation::new(dialogue, program))
    }
}

impl Adapter for ClaudeCode {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn model(&self) -> Option<&str> {
        self.options.model.as_deref()
    }

    fn capabilities(&self) -> Capabilities {
        use Capability as C;
        let all = CODER_CAPABILITIES
            .into_iter()
            .chain([C::FunctionTools, C::Mcp, C::Subagents]);
        // A list of allowed tools also limits the capabilities.
        let allows = |tools: &[&str]| match &self.options.allowed_tools {
            Some(allowed) => allowed.iter().any(|tool| tools.contains(&tool.as_str())),
            None => true,
        };
        Capabilities::of(all.filter(|one| match one {
            C::FilesystemRead => allows(&["Read", "Bash"]),
            C::FilesystemEdit => allows(&["Edit", "Write", "MultiEdit", "Bash"]),
            C::Shell => allows(&["Bash"]),
            C::Subagents => allows(&["Task", "Agent"]),
            _ => true,
        }))
    }

    fn features(&self) -> Features {
        let more = [Feature::HostTools, Feature::ReportsCost];
        Features::of(CONVERSATION_FEATURES.into_iter().chain(more))
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
