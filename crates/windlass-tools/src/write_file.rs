//! write_file: creates or replaces a whole text file. It never appends or merges.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use windlass_core::tool::{Effect, Happened, Interrupt, ToolCtx, ToolFailure, ToolOutput, Touch};
use windlass_core::typed_tool::TypedTool;
use windlass_core::workspace::{FileErrorKind, Files};
use windlass_edit::patch::PatchChange;

use crate::change;
use crate::last_seen::LastSeenFiles;
use crate::paths::{blocking, failure, read_bounded, tidy, writes};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {
    path: String,
    content: String,
}

pub(crate) struct WriteFile(pub(crate) Arc<LastSeenFiles>);

impl TypedTool for WriteFile {
    type Args = Args;
    const NAME: &str = "write_file";
    const DESCRIPTION: &str = include_str!("descriptions/write_file.md");
    const EFFECT: Effect = Effect::Write;
    const INTERRUPT: Interrupt = Interrupt::Finish;

    fn touches(&self, args: Args, ctx: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure> {
        writes(ctx, &args.path)
    }

    fn preview(&self, args: Args, ctx: &ToolCtx<'_>) -> Result<Option<String>, ToolFailure> {
        let change = plan(ctx.files.as_ref(), args)?;
        Ok(Some(change::preview(&[change])))
    }

    fn happened(&self, args: Args, ctx: &ToolCtx<'_>) -> Option<Happened> {
        let there = read_bounded(ctx.files.as_ref(), &args.path).ok()?;
        // Other content proves nothing: the file may have been written and changed again.
        (there == args.content.as_bytes())
            .then(|| Happened::Yes(format!("{} has exactly this content", args.path)))
    }

    async fn run(&self, args: Args, ctx: ToolCtx<'_>) -> Result<ToolOutput, ToolFailure> {
        let seen = self.0.clone();
        blocking(ctx.files, move |files| {
            change::apply(files, &[plan(files, args)?], &[], &seen)
        })
        .await
    }
}

fn plan(files: &dyn Files, args: Args) -> Result<PatchChange, ToolFailure> {
    let (path, after) = (tidy(files, &args.path), args.content.into_bytes());
    match read_bounded(files, &path) {
        Ok(before) if before == after => Err(ToolFailure::invalid(format!(
            "{path} has exactly this content already"
        ))),
        Ok(before) => Ok(PatchChange::Modify {
            path,
            before,
            after,
        }),
        Err(err) if err.kind == FileErrorKind::NotFound => Ok(PatchChange::Create { path, after }),
        Err(err) => Err(failure(files, &path, err)),
    }
}
