//! git_diff: what differs from the index or from a commit. Files that hold credentials are left out.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use windlass_core::BoxFuture;
use windlass_core::gate::is_credential;
use windlass_core::tool::{Effect, Tool, ToolCtx, ToolFailure, ToolOutput, ToolSpec, Touch};

use crate::args::{invalid, parse, spec};
use crate::git;
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
        let mut spec = spec::<Args>("git_diff", include_str!("descriptions/git_diff.md"), Effect::Read);
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

    fn run<'a>(&'a self, args: Value, ctx: ToolCtx<'a>) -> BoxFuture<'a, Result<ToolOutput, ToolFailure>> {
        Box::pin(async move {
            let args: Args = parse(args)?;
            if args.base.as_ref().is_some_and(|base| base.starts_with('-') || base.is_empty()) {
                return Err(invalid("`base` must be a commit, branch or range"));
            }
            let names = git::names(&ctx, &words(&args, &["--name-only", "-z", "--no-renames"], &[])).await?;
            let hidden: Vec<String> = names.into_iter().filter(|name| is_credential(name)).collect();
            let form: &[&str] = if args.stat { &["--stat"] } else { &[] };
            let mut text = git::look(&ctx, &words(&args, form, &hidden)).await?.trim_end().to_owned();
            if text.is_empty() {
                text = "[no difference]".into();
            }
            if !hidden.is_empty() {
                text = format!("{text}\n[changes of {} not shown: such files hold credentials]", hidden.join(", "));
            }
            Ok(ToolOutput::text(text))
        })
    }
}

fn words(args: &Args, form: &[&str], hidden: &[String]) -> Vec<String> {
    let mut words: Vec<String> = ["diff", "--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=dirty"]
        .map(str::to_owned)
        .to_vec();
    words.extend(form.iter().map(|word| (*word).to_owned()));
    if args.staged {
        words.push("--cached".into());
    }
    words.extend(args.base.clone());
    words.push("--".into());
    words.extend(args.paths.iter().map(|path| format!(":(literal){path}")));
    if args.paths.is_empty() {
        words.push(".".into());
    }
    words.extend(hidden.iter().map(|path| format!(":(exclude,literal,top){path}")));
    words
}
