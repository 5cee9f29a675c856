//! find_files: finds files by a pattern for their path, without ignored files. It never reads their content.

use schemars::JsonSchema;
use serde::Deserialize;
use windlass_core::tool::{Effect, ToolCtx, ToolFailure, ToolOutput, Touch};
use windlass_core::typed_tool::TypedTool;
use windlass_core::workspace::FindQuery;

use crate::paths::{blocking, failure, or_root, reads};

/// The default and the maximum number of paths in one result.
const DEFAULT_MAX: usize = 200;
const MAX: usize = 2_000;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {
    pattern: String,
    path: Option<String>,
    /// Default 200.
    max: Option<usize>,
}

pub(crate) struct FindFiles;

impl TypedTool for FindFiles {
    type Args = Args;
    const NAME: &str = "find_files";
    const DESCRIPTION: &str = include_str!("descriptions/find_files.md");
    const EFFECT: Effect = Effect::Read;
    const PARALLEL: bool = true;

    fn touches(&self, args: Args, ctx: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure> {
        Ok(vec![reads(ctx, or_root(&args.path))?])
    }

    async fn run(&self, args: Args, ctx: ToolCtx<'_>) -> Result<ToolOutput, ToolFailure> {
        if args.pattern.is_empty() {
            return Err(ToolFailure::invalid(
                "`pattern` is empty; use `*` for every file",
            ));
        }
        let max = args.max.unwrap_or(DEFAULT_MAX).clamp(1, MAX);
        let cancel = ctx.cancel.clone();
        let found = blocking(ctx.files, move |files| {
            let path = or_root(&args.path);
            let query = FindQuery {
                under: path.to_owned(),
                glob: args.pattern.clone(),
                max,
            };
            files
                .find(&query, &cancel)
                .map_err(|err| failure(files, path, err))
        })
        .await?;
        let mut lines = found.paths;
        if lines.is_empty() {
            lines.push("[no file matches; ignored files are not looked at]".into());
        } else if found.more {
            lines.push(format!(
                "[more than {} files; a narrower pattern shows the rest]",
                lines.len()
            ));
        }
        Ok(ToolOutput::text(lines.join("\n")))
    }
}
