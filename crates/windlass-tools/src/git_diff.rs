//! git_diff: shows the differences from the index or from a commit. Files with credentials are left out.

use schemars::JsonSchema;
use serde::Deserialize;
use windlass_core::gate::{is_credential, keeps_back};
use windlass_core::tool::{Effect, ToolCtx, ToolFailure, ToolOutput, Touch};
use windlass_core::typed_tool::TypedTool;
use windlass_host::git::{DiffQuery, changed, diff};

use crate::git::{SHOWN, refused};
use crate::paths::{at_most, reads};

const MAX_PATHS: usize = 50;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {
    /// Commit, branch or range.
    base: Option<String>,
    #[serde(default)]
    staged: bool,
    #[serde(default)]
    paths: Vec<String>,
    #[serde(default)]
    stat: bool,
}

pub(crate) struct GitDiff;

impl TypedTool for GitDiff {
    type Args = Args;
    const NAME: &str = "git_diff";
    const DESCRIPTION: &str = include_str!("descriptions/git_diff.md");
    const EFFECT: Effect = Effect::Read;
    const PARALLEL: bool = true;

    fn touches(&self, args: Args, ctx: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure> {
        at_most(&args.paths, MAX_PATHS, "paths")?;
        if args.paths.is_empty() {
            return Ok(vec![reads(ctx, ".")?]);
        }
        args.paths.iter().map(|path| reads(ctx, path)).collect()
    }

    async fn run(&self, args: Args, ctx: ToolCtx<'_>) -> Result<ToolOutput, ToolFailure> {
        let mut of = DiffQuery {
            staged: args.staged,
            against: args.base,
            paths: args.paths,
            stat: args.stat,
            ..DiffQuery::default()
        };
        let names = changed(ctx.processes.as_ref(), &of, &ctx.cancel)
            .await
            .map_err(refused)?;
        let kept_back = |name: &str| {
            ctx.files
                .hidden()
                .iter()
                .any(|pattern| keeps_back(pattern, name))
        };
        of.without = names
            .into_iter()
            .filter(|name| is_credential(name) || kept_back(name))
            .collect();
        // A file that a rule hides is not even named.
        let hidden: Vec<String> = of
            .without
            .iter()
            .filter(|name| !kept_back(name))
            .cloned()
            .collect();
        let shown = diff(ctx.processes.as_ref(), &of, SHOWN, &ctx.cancel)
            .await
            .map_err(refused)?;
        let mut text = shown.output.trim_end().to_owned();
        if text.is_empty() {
            text = "[no difference]".into();
        }
        if !hidden.is_empty() {
            text = format!(
                "{text}\n[changes of {} not shown: such files hold credentials]",
                hidden.join(", ")
            );
        }
        Ok(ToolOutput::text(text))
    }
}
