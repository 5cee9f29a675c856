//! notes: a short list that the model keeps for itself during the session. It is stored in the log, never in a file.

use schemars::JsonSchema;
use serde::Deserialize;
use windlass_core::tool::{Effect, Interrupt, ToolCtx, ToolFailure, ToolOutput, Touch};
use windlass_core::typed_tool::TypedTool;

/// Maximum bytes of the notes; they are meant to be a list, not a document.
const MAX_NOTES: usize = 10_000;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {
    action: Action,
    /// The note to add, or the new list.
    text: Option<String>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Action {
    Read,
    Add,
    Replace,
}

pub(crate) struct NotesTool;

impl TypedTool for NotesTool {
    type Args = Args;
    const NAME: &str = "notes";
    const DESCRIPTION: &str = include_str!("descriptions/notes.md");
    const EFFECT: Effect = Effect::Read;
    const INTERRUPT: Interrupt = Interrupt::Finish;

    fn touches(&self, _args: Args, _ctx: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure> {
        Ok(Vec::new())
    }

    async fn run(&self, args: Args, ctx: ToolCtx<'_>) -> Result<ToolOutput, ToolFailure> {
        let now = ctx.call_output.notes();
        let text = match (args.action, args.text) {
            (Action::Read, _) => return Ok(ToolOutput::text(shown(&now))),
            (Action::Add, Some(text)) if !text.trim().is_empty() => {
                format!("{now}{}- {}\n", gap(&now), text.trim())
            }
            (Action::Add, _) => return Err(ToolFailure::invalid("add needs `text`")),
            (Action::Replace, Some(text)) => text,
            (Action::Replace, None) => {
                return Err(ToolFailure::invalid(
                    "replace needs `text`; an empty one clears the notes",
                ));
            }
        };
        if text.len() > MAX_NOTES {
            return Err(ToolFailure::invalid(format!(
                "the notes would have {} bytes, more than {MAX_NOTES}; replace them by a shorter list",
                text.len()
            )));
        }
        ctx.call_output.set_notes(text.clone()).await?;
        Ok(ToolOutput::text(shown(&text)))
    }
}

fn gap(now: &str) -> &'static str {
    if now.is_empty() || now.ends_with('\n') {
        ""
    } else {
        "\n"
    }
}

fn shown(notes: &str) -> String {
    if notes.trim().is_empty() {
        "[no notes]".to_owned()
    } else {
        notes.trim_end().to_owned()
    }
}
