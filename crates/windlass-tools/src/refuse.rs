//! refuse: the model declares that it will not or cannot do the task. The loop ends with it; nothing is run.

use schemars::JsonSchema;
use serde::Deserialize;
use windlass_core::outcome::RefusalCategory;
use windlass_core::tool::{Effect, REFUSE, ToolCtx, ToolFailure, ToolOutput, Touch};
use windlass_core::typed_tool::TypedTool;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {
    #[serde(rename = "category")]
    #[schemars(description = "")]
    _category: RefusalCategory,
    #[serde(rename = "reason")]
    _reason: String,
}

pub(crate) struct Refuse;

impl TypedTool for Refuse {
    type Args = Args;
    const NAME: &str = REFUSE;
    const DESCRIPTION: &str = include_str!("descriptions/refuse.md");
    const EFFECT: Effect = Effect::Read;

    fn touches(&self, _args: Args, _ctx: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure> {
        Ok(Vec::new())
    }

    /// Only reached in a loop that does not end with a refusal.
    async fn run(&self, _args: Args, _ctx: ToolCtx<'_>) -> Result<ToolOutput, ToolFailure> {
        Ok(ToolOutput::text(
            "noted; say it to the person in words and end here",
        ))
    }
}
