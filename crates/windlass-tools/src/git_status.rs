//! git_status: shows the branch and the changed files in short form. It never changes the index.

use schemars::JsonSchema;
use serde::Deserialize;
use windlass_core::tool::{Effect, ToolCtx, ToolFailure, ToolOutput, Touch};
use windlass_core::typed_tool::TypedTool;

use crate::git::{SHOWN, refused};
use crate::paths::reads;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {}

pub(crate) struct GitStatus;

impl TypedTool for GitStatus {
    type Args = Args;
    const NAME: &str = "git_status";
    const DESCRIPTION: &str = include_str!("descriptions/git_status.md");
    const EFFECT: Effect = Effect::Read;
    const PARALLEL: bool = true;

    fn touches(&self, _args: Args, ctx: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure> {
        Ok(vec![reads(ctx, ".")?])
    }

    async fn run(&self, _args: Args, ctx: ToolCtx<'_>) -> Result<ToolOutput, ToolFailure> {
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
    }
}
