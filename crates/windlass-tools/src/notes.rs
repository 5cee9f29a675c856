//! notes: a short list the model keeps for itself in the session. Lives in the log, never in a file.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use windlass_core::BoxFuture;
use windlass_core::tool::{
    Effect, Interrupt, Tool, ToolCtx, ToolFailure, ToolOutput, ToolSpec, Touch,
};

use crate::args::{invalid, parse, spec};

/// Characters the notes may have; they are a list, not a document.
const MAX_NOTES: usize = 10_000;

/// Arguments.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Args {
    /// What to do.
    action: Action,
    /// The note to add, or the whole new list for replace.
    #[serde(default)]
    text: Option<String>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Action {
    Read,
    Add,
    Replace,
}

/// The tool.
pub(crate) struct Notes {
    spec: ToolSpec,
}

impl Notes {
    pub(crate) fn new() -> Self {
        let mut spec = spec::<Args>("notes", include_str!("descriptions/notes.md"), Effect::Read);
        spec.interrupt = Interrupt::Finish;
        Self { spec }
    }
}

impl Tool for Notes {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn touches(&self, _args: &Value, _ctx: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure> {
        Ok(Vec::new())
    }

    fn run<'a>(
        &'a self,
        args: Value,
        ctx: ToolCtx<'a>,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolFailure>> {
        Box::pin(async move {
            let args: Args = parse(args)?;
            let now = ctx.voice.notes();
            let text = match (args.action, args.text) {
                (Action::Read, _) => return Ok(ToolOutput::text(shown(&now))),
                (Action::Add, Some(text)) if !text.trim().is_empty() => {
                    format!("{now}{}- {}\n", gap(&now), text.trim())
                }
                (Action::Add, _) => return Err(invalid("add needs `text`")),
                (Action::Replace, Some(text)) => text,
                (Action::Replace, None) => {
                    return Err(invalid(
                        "replace needs `text`; an empty one clears the notes",
                    ));
                }
            };
            if text.len() > MAX_NOTES {
                return Err(invalid(format!(
                    "the notes would have {} bytes, more than {MAX_NOTES}; replace them by a shorter list",
                    text.len()
                )));
            }
            ctx.voice.set_notes(text.clone()).await?;
            Ok(ToolOutput::text(shown(&text)))
        })
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
