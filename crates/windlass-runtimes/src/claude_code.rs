//! Claude Code as a runtime: `claude -p` with JSON lines both ways. Every call is judged by our gate through a hook, our
//! tools are offered in the same pipe, and each turn is a process of its own that goes on with the conversation.

mod calls;
mod ended;
mod hosted;
mod launch;
mod options;
mod turn;
mod words;

use windlass_core::BoxFuture;
use windlass_core::runtime::{Capabilities, Capability, Feature, Features, RuntimeError};

use self::launch::launch;
use self::turn::Turn;
use crate::agent::{Adapter, Answer, End, Visit};
use crate::conversation::{Ended, one_turn};
use crate::offered::offered;
use crate::peer::Peer;

pub use self::options::{ClaudeEffort, ClaudeOptions, SettingSource};

/// The adapter.
#[derive(Debug)]
pub struct ClaudeCode {
    options: ClaudeOptions,
}

impl ClaudeCode {
    /// Its name, as people type it.
    pub const NAME: &'static str = "claude-code";

    /// With these options, where they can be honoured.
    pub fn new(options: ClaudeOptions) -> Result<Self, String> {
        options.check()?;
        Ok(Self { options })
    }

    async fn turn(
        &self,
        visit: &Visit<'_>,
        resume: Option<&str>,
        say: String,
    ) -> Result<Ended, RuntimeError> {
        let offers = offered(visit.job.toolbox).next().is_some();
        let started = match launch(&self.options, visit, resume, offers) {
            Ok(launch) => visit
                .place
                .start(launch)
                .await
                .map_err(|err| err.to_string()),
            Err(err) => Err(err),
        };
        let inmate = match started {
            Ok(inmate) => inmate,
            Err(err) => {
                let end = End::Broken(format!(
                    "`{}` could not be started: {err}",
                    self.options.program
                ));
                return Ok(Ended::Answered(Answer {
                    text: String::new(),
                    output: None,
                    end,
                }));
            }
        };
        Turn::new(visit, Peer::new(inmate), resume.is_some(), say)
            .follow(offers)
            .await
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
        let all = [
            C::TextCompletion,
            C::StreamingText,
            C::StructuredOutput,
            C::NativeToolLoop,
            C::FunctionTools,
            C::Mcp,
            C::FilesystemRead,
            C::FilesystemEdit,
            C::Shell,
            C::Subagents,
        ];
        // With a list of tools it can only do what they can.
        let allows = |tools: &[&str]| match &self.options.allowed_tools {
            Some(allowed) => allowed.iter().any(|tool| tools.contains(&tool.as_str())),
            None => true,
        };
        Capabilities::of(all.into_iter().filter(|one| match one {
            C::FilesystemRead => allows(&["Read", "Bash"]),
            C::FilesystemEdit => allows(&["Edit", "Write", "MultiEdit", "Bash"]),
            C::Shell => allows(&["Bash"]),
            C::Subagents => allows(&["Task", "Agent"]),
            _ => true,
        }))
    }

    fn features(&self) -> Features {
        Features::of([
            Feature::ToolApproval,
            Feature::HostTools,
            Feature::Resume,
            Feature::Cancel,
            Feature::ReportsTokens,
            Feature::ReportsCost,
            Feature::ModelChoice,
        ])
    }

    fn converse<'a>(
        &'a self,
        visit: &'a Visit<'a>,
        say: &'a str,
    ) -> BoxFuture<'a, Result<Answer, RuntimeError>> {
        Box::pin(one_turn(visit, say, "Claude Code", move |session, say| {
            Box::pin(async move { self.turn(visit, session.as_deref(), say).await })
        }))
    }
}
