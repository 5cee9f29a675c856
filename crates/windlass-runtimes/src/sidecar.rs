//! Agent SDKs of Python as runtimes: the OpenAI Agents SDK and Google's ADK, each in a small program of ours (`python/`)
//! that speaks JSON lines. All their tools are ours, run by the engine like calls of the built-in agent; they remember
//! nothing by themselves, so that the log is their memory.

mod ended;
mod history;
mod launch;
mod options;
mod turn;

use windlass_core::BoxFuture;
use windlass_core::runtime::{Capabilities, Capability, Feature, Features, RuntimeError};

use self::turn::{Running, Turn};
use crate::agent::{Adapter, Answer, End, Visit};
use crate::dialect::Dialect;

pub use self::options::{Helper, Sdk, SidecarOptions};

/// The adapter.
#[derive(Debug)]
pub struct Sidecar {
    sdk: Sdk,
    wire: Dialect,
    options: SidecarOptions,
}

impl Sidecar {
    /// This SDK with these options, where they can be honoured. `wire` says in which words its model is asked.
    pub fn new(sdk: Sdk, wire: Dialect, options: SidecarOptions) -> Result<Self, String> {
        options.check(sdk, wire)?;
        Ok(Self { sdk, wire, options })
    }

    /// The program that was kept from the turn before, or a new one.
    async fn running(&self, visit: &Visit<'_>) -> Result<Running, String> {
        if let Some(kept) = visit.take_kept() {
            return Ok(kept);
        }
        let launch = launch::launch(self.sdk, &self.options, visit)?;
        visit
            .place
            .start(launch)
            .await
            .map(Running::new)
            .map_err(|err| err.to_string())
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
        use Capability as C;
        Capabilities::of([
            C::TextCompletion,
            C::StreamingText,
            C::StructuredOutput,
            C::NativeToolLoop,
            C::FunctionTools,
            C::FilesystemRead,
            C::FilesystemEdit,
            C::Shell,
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

    fn lives_by_the_log(&self) -> bool {
        true
    }

    fn converse<'a>(
        &'a self,
        visit: &'a Visit<'a>,
        say: &'a str,
    ) -> BoxFuture<'a, Result<Answer, RuntimeError>> {
        Box::pin(async move {
            let broken = |why: String| Answer {
                text: String::new(),
                output: None,
                end: End::Broken(why),
            };
            let running = match self.running(visit).await {
                Ok(running) => running,
                Err(why) => {
                    return Ok(broken(format!(
                        "`{}` could not be started: {why}",
                        self.options.program
                    )));
                }
            };
            match launch::start(
                self.sdk,
                self.wire,
                &self.options,
                visit,
                say,
                running.turns == 0,
            ) {
                Ok(start) => Turn::new(visit, running, &self.options).follow(start).await,
                Err(why) => Ok(broken(why)),
            }
        })
    }
}
