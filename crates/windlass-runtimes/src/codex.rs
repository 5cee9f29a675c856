//! Codex as a runtime: `codex app-server` with JSON-RPC both ways. Every command and patch is judged by our gate, our tools
//! are offered as its dynamic ones, and each turn is a process of its own that goes on with the conversation.

mod ended;
mod items;
mod launch;
mod options;
mod turn;

use windlass_core::BoxFuture;
use windlass_core::runtime::{Capabilities, Capability, Feature, Features, RuntimeError};

use self::turn::Turn;
use crate::agent::{Adapter, Answer, End, Visit};
use crate::conversation::{Ended, one_turn};
use crate::rpc::Rpc;

pub use self::options::CodexOptions;

/// The adapter.
#[derive(Debug)]
pub struct Codex {
    options: CodexOptions,
}

impl Codex {
    /// Its name, as people type it.
    pub const NAME: &'static str = "codex";

    /// With these options, where they can be honoured.
    pub fn new(options: CodexOptions) -> Result<Self, String> {
        options.check()?;
        Ok(Self { options })
    }

    async fn turn(
        &self,
        visit: &Visit<'_>,
        resume: Option<String>,
        say: String,
    ) -> Result<Ended, RuntimeError> {
        let started = match launch::launch(&self.options, visit) {
            Ok(launch) => visit
                .place
                .start(launch)
                .await
                .map_err(|err| err.to_string()),
            Err(err) => Err(err),
        };
        match started {
            Ok(inmate) => {
                Turn::new(
                    &self.options,
                    visit,
                    Rpc::without_version(inmate),
                    resume,
                    say,
                )
                .follow()
                .await
            }
            Err(err) => {
                let end = End::Broken(format!(
                    "`{}` could not be started: {err}",
                    self.options.program
                ));
                Ok(Ended::Answered(Answer {
                    text: String::new(),
                    output: None,
                    end,
                }))
            }
        }
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
        Capabilities::of([
            C::TextCompletion,
            C::StreamingText,
            C::StructuredOutput,
            C::NativeToolLoop,
            C::FunctionTools,
            C::Mcp,
            C::FilesystemRead,
            C::FilesystemEdit,
            C::Shell,
            C::ApplyPatch,
        ])
    }

    fn features(&self) -> Features {
        Features::of([
            Feature::ToolApproval,
            Feature::HostTools,
            Feature::Resume,
            Feature::Cancel,
            Feature::ReportsTokens,
            Feature::ModelChoice,
        ])
    }

    fn converse<'a>(
        &'a self,
        visit: &'a Visit<'a>,
        say: &'a str,
    ) -> BoxFuture<'a, Result<Answer, RuntimeError>> {
        Box::pin(one_turn(visit, say, "Codex", move |session, say| {
            Box::pin(self.turn(visit, session, say))
        }))
    }
}
