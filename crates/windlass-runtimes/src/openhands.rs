//! OpenHands as a runtime: its agent server runs in the agent's place, and a bridge of ours beside it carries requests
//! and events over the pipes. Every action waits for our gate; the server runs as long as the try.
//!
//! In the order of one try: `launch` says how it is started and what a conversation begins with, `opening` begins it,
//! `live` is the way to it, `turn` follows it, `calls` and `ended` say what its words mean.

mod calls;
mod ended;
mod launch;
mod live;
mod opening;
mod options;
mod turn;

use windlass_core::BoxFuture;
use windlass_core::runtime::{Capabilities, Capability, Feature, Features, RuntimeError};

use self::live::Live;
use self::turn::Turn;
use crate::agent::{Adapter, Answer, End, Visit, told_anew};
use crate::dialect::Dialect;

pub use self::options::OpenHandsOptions;

/// The adapter.
#[derive(Debug)]
pub struct OpenHands {
    options: OpenHandsOptions,
    dialect: Dialect,
}

impl OpenHands {
    /// Its name, as people type it.
    pub const NAME: &'static str = "openhands";

    /// With these options, where they can be honoured, for a model that speaks so.
    pub fn new(options: OpenHandsOptions, dialect: Dialect) -> Result<Self, String> {
        options.check()?;
        Ok(Self { options, dialect })
    }

    fn has(&self, tools: &[&str]) -> bool {
        self.options
            .tools
            .iter()
            .any(|tool| tools.contains(&tool.as_str()))
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
        let all = [
            (C::TextCompletion, true),
            (C::StreamingText, true),
            (C::StructuredOutput, true),
            (C::NativeToolLoop, true),
            (C::Mcp, true),
            (
                C::FilesystemRead,
                self.has(&["terminal", "file_editor", "read_file"]),
            ),
            (
                C::FilesystemEdit,
                self.has(&["terminal", "file_editor", "write_file", "edit"]),
            ),
            (C::Shell, self.has(&["terminal"])),
        ];
        Capabilities::of(all.into_iter().filter(|(_, has)| *has).map(|(one, _)| one))
    }

    fn features(&self) -> Features {
        Features::of([
            Feature::ToolApproval,
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
        Box::pin(async move {
            let mut live: Live = match visit.take_kept() {
                Some(live) => live,
                None => match opening::open(self, visit).await? {
                    Ok(live) => live,
                    Err(end) => {
                        visit.began(None).await?;
                        return Ok(Answer {
                            text: String::new(),
                            output: None,
                            end,
                        });
                    }
                },
            };
            let say = if std::mem::take(&mut live.forgot) {
                let text = "OpenHands does not know the conversation any more that it was to go on with, or it was begun \
                            with other tools or in another directory; it begins a new one and is told what was said \
                            before, shortened";
                visit.warn("session_lost", text.to_owned()).await?;
                told_anew(visit, say)
            } else {
                say.to_owned()
            };
            let answer = Turn::new(&self.options, visit, &mut live)
                .follow(&say)
                .await?;
            // Whatever ended otherwise is ended by us: its server goes with it.
            if answer.end == End::Done {
                visit.keep(live);
            }
            Ok(answer)
        })
    }
}
