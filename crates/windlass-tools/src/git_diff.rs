//! git_diff: what differs from the index or from a commit. Files that hold credentials are left out.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use windlass_core::BoxFuture;
use windlass_core::gate::{is_credential, keeps_back};
use windlass_core::tool::{Effect, Tool, ToolCtx, ToolFailure, ToolOutput, ToolSpec, Touch};
use windlass_host::git::{DiffOf, changed, diff};

use crate::args::{parse, spec};
use crate::git::{SHOWN, refused};
use crate::place::reads;

/// Arguments.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Args {
    /// Commit, branch or range to compare with; the index if not given.
    #[serde(default)]
    base: Option<String>,
    /// Show what is staged.
    #[serde(default)]
    staged: bool,
    /// Only these files or directories.
    #[serde(default)]
    #[schemars(length(max = 50))]
    paths: Vec<String>,
    /// Only the names and counts.
    #[serde(default)]
    stat: bool,
}

/// The tool.
pub(crate) struct GitDiff {
    spec: ToolSpec,
}

impl GitDiff {
    pub(crate) fn new() -> Self {
        let mut spec = spec::<Args>(
            "git_diff",
            include_str!("descriptions/git_diff.md"),
            Effect::Read,
        );
        spec.parallel = true;
        Self { spec }
    }
}

impl Tool for GitDiff {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn touches(&self, args: &Value, ctx: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure> {
        let args: Args = parse(args.clone())?;
        if args.paths.is_empty() {
            return Ok(vec![reads(ctx, ".")?]);
        }
        args.paths.iter().map(|path| reads(ctx, path)).collect()
    }

    fn run<'a>(
        &'a self,
        args: Value,
        ctx: ToolCtx<'a>,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolFailure>> {
        Box::pin(async move {
            let args: Args = parse(args)?;
            let mut of = DiffOf {
                staged: args.staged,
                against: args.base,
                paths: args.paths,
                stat: args.stat,
                ..DiffOf::default()
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
            // What a rule keeps back is not even named.
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
        })
    }
}
