//! write_file: puts a whole text file in place, new or replaced. Never appends and never merges.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use windlass_core::BoxFuture;
use windlass_core::tool::{
    Effect, Happened, Interrupt, Tool, ToolCtx, ToolFailure, ToolOutput, ToolSpec, Touch,
};
use windlass_core::workspace::{FileErrorKind, Files};
use windlass_edit::patch::Change;

use crate::args::{invalid, parse, spec};
use crate::change;
use crate::place::{blocking, failure, read_bounded, tidy, writes};
use crate::seen::Seen;

/// Arguments.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Args {
    /// File to write, relative to the workspace; missing directories are made.
    path: String,
    /// The whole new text of the file.
    content: String,
}

/// The tool.
pub(crate) struct WriteFile {
    spec: ToolSpec,
    seen: Arc<Seen>,
}

impl WriteFile {
    pub(crate) fn new(seen: Arc<Seen>) -> Self {
        let mut spec = spec::<Args>(
            "write_file",
            include_str!("descriptions/write_file.md"),
            Effect::Write,
        );
        spec.interrupt = Interrupt::Finish;
        Self { spec, seen }
    }
}

impl Tool for WriteFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn touches(&self, args: &Value, ctx: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure> {
        writes(ctx, &parse::<Args>(args.clone())?.path)
    }

    fn preview(&self, args: &Value, ctx: &ToolCtx<'_>) -> Option<String> {
        let args: Args = parse(args.clone()).ok()?;
        Some(change::preview(&[plan(ctx.files.as_ref(), args).ok()?]))
    }

    fn happened(&self, args: &Value, ctx: &ToolCtx<'_>) -> Option<Happened> {
        let args: Args = parse(args.clone()).ok()?;
        let there = read_bounded(ctx.files.as_ref(), &args.path).ok()?;
        // Other content proves nothing: it may have been written and changed since.
        (there == args.content.as_bytes())
            .then(|| Happened::Yes(format!("{} has exactly this content", args.path)))
    }

    fn run<'a>(
        &'a self,
        args: Value,
        ctx: ToolCtx<'a>,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolFailure>> {
        Box::pin(async move {
            let args: Args = parse(args)?;
            let seen = self.seen.clone();
            blocking(ctx.files, move |files| {
                let change = plan(files.as_ref(), args)?;
                if let Change::Modify { path, before, .. } = &change {
                    seen.check(files.as_ref(), path, before)?;
                }
                Ok(change::output(
                    change::write_all(files.as_ref(), &[change], &seen)?,
                    &[],
                ))
            })
            .await
        })
    }
}

fn plan(files: &dyn Files, args: Args) -> Result<Change, ToolFailure> {
    let (path, after) = (tidy(files, &args.path), args.content.into_bytes());
    match read_bounded(files, &path) {
        Ok(before) if before == after => {
            Err(invalid(format!("{path} has exactly this content already")))
        }
        Ok(before) => Ok(Change::Modify {
            path,
            before,
            after,
        }),
        Err(err) if err.kind == FileErrorKind::NotFound => Ok(Change::Create { path, after }),
        Err(err) => Err(failure(files, &path, err)),
    }
}
