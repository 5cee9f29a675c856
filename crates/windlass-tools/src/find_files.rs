//! find_files: files by the pattern of their path, honouring ignore files. Never looks into them.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use windlass_core::BoxFuture;
use windlass_core::tool::{Effect, Tool, ToolCtx, ToolFailure, ToolOutput, ToolSpec, Touch};
use windlass_core::workspace::FindQuery;

use crate::args::{invalid, parse, spec};
use crate::place::{blocking, failure, or_root, reads};

/// Paths of one answer when no limit is given, and at most.
const DEFAULT_MAX: usize = 200;
const MAX: usize = 2_000;

/// Arguments.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Args {
    /// Glob such as `*.rs` or `src/**/test_*.py`; without a slash it means the file name, in any directory.
    pattern: String,
    /// Directory to look in; the workspace if not given.
    #[serde(default)]
    path: Option<String>,
    /// The most paths to list; 200 if not given.
    #[serde(default)]
    #[schemars(range(min = 1, max = 2000))]
    max: Option<usize>,
}

/// The tool.
pub(crate) struct FindFiles {
    spec: ToolSpec,
}

impl FindFiles {
    pub(crate) fn new() -> Self {
        let mut spec = spec::<Args>(
            "find_files",
            include_str!("descriptions/find_files.md"),
            Effect::Read,
        );
        spec.parallel = true;
        Self { spec }
    }
}

impl Tool for FindFiles {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn touches(&self, args: &Value, ctx: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure> {
        Ok(vec![reads(
            ctx,
            or_root(&parse::<Args>(args.clone())?.path),
        )?])
    }

    fn run<'a>(
        &'a self,
        args: Value,
        ctx: ToolCtx<'a>,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolFailure>> {
        Box::pin(async move {
            let args: Args = parse(args)?;
            if args.pattern.is_empty() {
                return Err(invalid("`pattern` is empty; use `*` for every file"));
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
                    .map_err(|err| failure(files.as_ref(), path, err))
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
        })
    }
}
