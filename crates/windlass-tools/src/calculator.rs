//! calculator: evaluates one arithmetic expression. Fractions stay exact as long as they fit; the tool never runs code.

mod expression;
mod number;

use schemars::JsonSchema;
use serde::Deserialize;
use windlass_core::tool::{Effect, ToolCtx, ToolFailure, ToolOutput, Touch};
use windlass_core::typed_tool::TypedTool;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {
    expression: String,
}

pub(crate) struct Calculator;

impl TypedTool for Calculator {
    type Args = Args;
    const NAME: &str = "calculator";
    const DESCRIPTION: &str = include_str!("descriptions/calculator.md");
    const EFFECT: Effect = Effect::Read;
    const PARALLEL: bool = true;

    fn touches(&self, _args: Args, _ctx: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure> {
        Ok(Vec::new())
    }

    async fn run(&self, args: Args, _ctx: ToolCtx<'_>) -> Result<ToolOutput, ToolFailure> {
        let value = expression::evaluate(&args.expression).map_err(ToolFailure::invalid)?;
        Ok(ToolOutput::text(value.to_string()))
    }
}
