//! Python agent SDKs as runtimes: the OpenAI Agents SDK and Google's ADK, each hosted by a small Python program of
//! Windlass (`python/`) that speaks JSON lines. They only have Windlass tools, which the engine runs like the calls of
//! the built-in agent. They store no conversation, so that the log is their memory.

mod dialogue;
mod history;
mod launch;
mod options;
mod turn_end;

use windlass_core::runtime::{Capabilities, Capability, Feature, Features};

use self::dialogue::SidecarDialogue;
use crate::agent::{
    Adapter, AgentAttempt, AnswerFuture, CODER_CAPABILITIES, CONVERSATION_FEATURES,
};
use crate::dialect::Dialect;
use crate::driver::{Conversation, Started, run_turn_and_keep, start};
use crate::option_checks::or_default_program;

pub use self::options::{Sdk, SidecarOptions, SubagentOptions};

/// The adapter for a Python SDK in a sidecar.
#[derive(Debug)]
pub struct Sidecar {
    sdk: Sdk,
    wire: Dialect,
    options: SidecarOptions,
}

impl Sidecar {
    /// Checks the options. `wire` is the protocol of the model.
    pub fn new(sdk: Sdk, wire: Dialect, mut options: SidecarOptions) -> Result<Self, String> {
        options.program = or_default_program(options.program, "python3");
        options.check(sdk, wire)?;
        Ok(Self { sdk, wire, options })
    }

    /// The process that was kept from the previous turn, or a new one.
    async fn running(&self, attempt: &AgentAttempt<'_>) -> Started<SidecarDialogue> {
        if let Some(kept) = attempt.take_kept() {
            return Ok(kept);
        }
        let launch = launch::launch(self.sdk, &self.options, attempt);
        let program = start(attempt, launch, &self.options.program).await?;
        let dialogue = SidecarDialogue::new(self.options.clone());
        Ok(Conversation::new(dialogue, program))
    }

    async fn begin(&self, attempt: &AgentAttempt<'_>, say: &str) -> Started<SidecarDialogue> {
        let mut running = self.running(attempt).await?;
        let new = running.dialogue.is_new();
        let start = launch::start(self.sdk, self.wire, &self.options, attempt, say, new)?;
        running.dialogue.next_turn(start);
        Ok(running)
    }
}

impl Adapter for Sidecar {
    fn name(&self) -> &str {
        self.sdk.name()
    }

    fn model(&self) -> Option<&str> {
        self.options.model.as_deref()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::of(
            CODER_CAPABILITIES
                .into_iter()
                .chain([Capability::FunctionTools]),
        )
    }

    fn features(&self) -> Features {
        Features::of(
            CONVERSATION_FEATURES
                .into_iter()
                .chain([Feature::HostTools]),
        )
    }

    fn is_stateless(&self) -> bool {
        true
    }

    fn survives_iterations(&self) -> bool {
        true
    }

    fn converse<'a>(&'a self, attempt: &'a AgentAttempt<'a>, say: &'a str) -> AnswerFuture<'a> {
        Box::pin(
            async move { run_turn_and_keep(attempt, self.begin(attempt, say).await, say).await },
        )
    }
}
