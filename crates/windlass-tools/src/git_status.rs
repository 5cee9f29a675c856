//! git_status: branch and changed files, short. Never changes the index.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use windlass_core::BoxFuture;
use windlass_core::tool::{Effect, Tool, ToolCtx, ToolFailure, ToolOutput, ToolSpec, Touch};

use crate::args::{parse, spec};
use crate::git::{SHOWN, refused};
use crate::place::reads;

/// Arguments: none.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Args {}

/// The tool.
pub(crate) struct GitStatus {
    spec: ToolSpec,
}

impl GitStatus {
    pub(crate) fn new() -> Self {
        let mut spec = spec::<Args>(
            "git_status",
            include_str!("descriptions/git_status.md"),
            Effect::Read,
        );
        spec.parallel = true;
        Self { spec }
    }
}

impl Tool for GitStatus {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn touches(&self, _args: &Value, ctx: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure> {
        Ok(vec![reads(ctx, ".")?])
    }

    fn run<'a>(
        &'a self,
        args: Value,
        ctx: ToolCtx<'a>,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolFailure>> {
        Box::pin(async move {
            let Args {} = parse(args)?;
            let status = windlass_host::git::status(ctx.processes.as_ref(), SHOWN, &ctx.cancel)
                .await
                .map_err(refused)?;
            let status = status.output;
            let clean = status.lines().all(|line| line.starts_with("##"));
            let status = status.trim_end();
            Ok(ToolOutput::text(if clean {
                format!("{status}\n[nothing changed]")
            } else {
                status.to_owned()
            }))
        })
    }
}
