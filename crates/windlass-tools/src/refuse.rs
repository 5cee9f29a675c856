//! refuse: the model says that it will not, or cannot, do the task. The loop ends with that; nothing is run.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use windlass_core::BoxFuture;
use windlass_core::outcome::RefusalCategory;
use windlass_core::tool::{
    Effect, REFUSE, Tool, ToolCtx, ToolFailure, ToolOutput, ToolSpec, Touch,
};

use crate::args::{parse, spec};

/// Arguments.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Args {
    /// `safety`: it would do harm. `policy`: a rule forbids it. `capability`: it cannot be done with what is here.
    #[serde(rename = "category")]
    _category: RefusalCategory,
    /// Why, for the person.
    #[serde(rename = "reason")]
    _reason: String,
}

/// The tool.
pub(crate) struct Refuse {
    spec: ToolSpec,
}

impl Refuse {
    pub(crate) fn new() -> Self {
        Self {
            spec: spec::<Args>(REFUSE, include_str!("descriptions/refuse.md"), Effect::Read),
        }
    }
}

impl Tool for Refuse {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn touches(&self, _args: &Value, _ctx: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure> {
        Ok(Vec::new())
    }

    /// Only reached in a loop that does not end with it.
    fn run<'a>(
        &'a self,
        args: Value,
        _ctx: ToolCtx<'a>,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolFailure>> {
        Box::pin(async move {
            let _: Args = parse(args)?;
            Ok(ToolOutput::text(
                "noted; say it to the person in words and end here",
            ))
        })
    }
}
