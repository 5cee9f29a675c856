//! grep: finds lines that match a pattern, without ignored files. Lines of files with credentials are never shown.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use windlass_core::gate::is_credential;
use windlass_core::message::ErrorCategory;
use windlass_core::tool::{Effect, ToolCtx, ToolFailure, ToolOutput, Touch};
use windlass_core::typed_tool::TypedTool;
use windlass_core::workspace::{GrepQuery, Grepped};

use crate::paths::{blocking, failure, or_root, reads};

/// The default and the maximum number of matching lines in one result.
const DEFAULT_MAX: usize = 100;
const MAX: usize = 1_000;
/// The timeout of a search. Normally the search stops itself before that.
const DEADLINE: Duration = Duration::from_secs(40);
/// Maximum lines of context before and after a match.
const MAX_CONTEXT: usize = 20;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {
    pattern: String,
    path: Option<String>,
    /// Only these files, such as `*.ts`.
    glob: Option<String>,
    /// The pattern is plain text.
    #[serde(default)]
    literal: bool,
    #[serde(default)]
    ignore_case: bool,
    /// Lines around each match.
    context: Option<usize>,
    /// Default 100.
    max: Option<usize>,
}

pub(crate) struct Grep;

impl TypedTool for Grep {
    type Args = Args;
    const NAME: &str = "grep";
    const DESCRIPTION: &str = include_str!("descriptions/grep.md");
    const EFFECT: Effect = Effect::Read;
    const PARALLEL: bool = true;

    fn touches(&self, args: Args, ctx: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure> {
        Ok(vec![reads(ctx, or_root(&args.path))?])
    }

    async fn run(&self, args: Args, ctx: ToolCtx<'_>) -> Result<ToolOutput, ToolFailure> {
        if args.pattern.is_empty() {
            return Err(ToolFailure::invalid("`pattern` is empty"));
        }
        let cancel = ctx.cancel.clone();
        let searched = blocking(ctx.files, move |files| {
            let path = or_root(&args.path);
            let query = GrepQuery {
                under: path.to_owned(),
                pattern: args.pattern.clone(),
                literal: args.literal,
                ignore_case: args.ignore_case,
                glob: args.glob.clone(),
                context: args.context.unwrap_or(0).min(MAX_CONTEXT),
                max: args.max.unwrap_or(DEFAULT_MAX).clamp(1, MAX),
            };
            files
                .grep(&query, &cancel)
                .map_err(|err| failure(files, path, err))
        });
        // The search checks its own deadline only between the pieces of a file, and one piece can take long.
        let found = tokio::time::timeout(DEADLINE, searched)
            .await
            .map_err(|_| {
                ToolFailure::new(
                    ErrorCategory::Timeout,
                    "the search took too long; name a directory, a `glob` or a simpler pattern",
                )
            })??;
        Ok(ToolOutput::text(show(&found)))
    }
}

/// Shows lines below the path of their file: `12:` for a match, `12-` for context, `--` for a gap.
fn show(found: &Grepped) -> String {
    let mut out: Vec<String> = Vec::new();
    let mut hidden: Vec<&str> = Vec::new();
    let mut last: Option<(&str, u64)> = None;
    for line in &found.lines {
        if is_credential(&line.path) {
            if !hidden.contains(&line.path.as_str()) {
                hidden.push(&line.path);
            }
            continue;
        }
        match last {
            Some((path, number)) if path == line.path => {
                let has_context = found.lines.len() > found.matches;
                if has_context && line.line > number + 1 {
                    out.push("--".into());
                }
            }
            Some(_) => out.extend([String::new(), line.path.clone()]),
            None => out.push(line.path.clone()),
        }
        out.push(format!(
            "{}{}{}",
            line.line,
            if line.hit { ':' } else { '-' },
            line.text
        ));
        last = Some((&line.path, line.line));
    }
    if out.is_empty() && !found.timed_out {
        out.push("[no line matches; ignored and binary files are not looked at]".into());
    }
    if !hidden.is_empty() {
        out.push(format!(
            "[matches in {} not shown: such files hold credentials]",
            hidden.join(", ")
        ));
    }
    if found.timed_out {
        out.push(
            "[the search took too long and stopped; name a directory, a `glob` or a simpler pattern]"
                .into(),
        );
    } else if found.more {
        out.push(format!(
            "[{} matching lines shown; there are more, or some files could not be read]",
            found.matches
        ));
    }
    out.join("\n")
}
