//! calculator: evaluates one arithmetic expression. Fractions stay exact as long as they fit; never runs code.

mod expression;
mod number;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use windlass_core::BoxFuture;
use windlass_core::tool::{Effect, Tool, ToolCtx, ToolFailure, ToolOutput, ToolSpec, Touch};

use crate::args::{invalid, parse, spec};

/// Arguments.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Args {
    /// Such as `(3.5 + 0x1f) * 2^10 / 7`.
    expression: String,
}

/// The tool.
pub(crate) struct Calculator {
    spec: ToolSpec,
}

impl Calculator {
    pub(crate) fn new() -> Self {
        let mut spec = spec::<Args>(
            "calculator",
            include_str!("descriptions/calculator.md"),
            Effect::Read,
        );
        spec.parallel = true;
        Self { spec }
    }
}

impl Tool for Calculator {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn touches(&self, _args: &Value, _ctx: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure> {
        Ok(Vec::new())
    }

    fn run<'a>(
        &'a self,
        args: Value,
        _ctx: ToolCtx<'a>,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolFailure>> {
        Box::pin(async move {
            let args: Args = parse(args)?;
            let value = expression::evaluate(&args.expression).map_err(invalid)?;
            Ok(ToolOutput::text(value.to_string()))
        })
    }
}
