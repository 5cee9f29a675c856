//! delete_file: removes one file. It never removes a directory.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use windlass_core::tool::{Effect, Happened, Interrupt, ToolCtx, ToolFailure, ToolOutput, Touch};
use windlass_core::typed_tool::TypedTool;
use windlass_core::workspace::{FileErrorKind, FileKind, Files};
use windlass_edit::patch::PatchChange;

use crate::change;
use crate::last_seen::LastSeenFiles;
use crate::paths::{blocking, failure, read_bounded, tidy, writes};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {
    path: String,
}

pub(crate) struct DeleteFile(pub(crate) Arc<LastSeenFiles>);

impl TypedTool for DeleteFile {
    type Args = Args;
    const NAME: &str = "delete_file";
    const DESCRIPTION: &str = include_str!("descriptions/delete_file.md");
    const EFFECT: Effect = Effect::Write;
    const INTERRUPT: Interrupt = Interrupt::Finish;

    fn touches(&self, args: Args, ctx: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure> {
        writes(ctx, &args.path)
    }

    fn preview(&self, args: Args, ctx: &ToolCtx<'_>) -> Result<Option<String>, ToolFailure> {
        let change = plan(ctx.files.as_ref(), &args.path)?;
        Ok(Some(change::preview(&[change])))
    }

    fn happened(&self, args: Args, ctx: &ToolCtx<'_>) -> Option<Happened> {
        let gone = match ctx.files.stat(&args.path) {
            Ok(_) => false,
            Err(err) if err.kind == FileErrorKind::NotFound => {
                !is_link(ctx.files.as_ref(), &args.path)
            }
            // A path that cannot be inspected proves nothing.
            Err(_) => return None,
        };
        Some(match gone {
            true => Happened::Yes(format!("{} is not there any more", args.path)),
            false => Happened::No(format!("{} is still there", args.path)),
        })
    }

    async fn run(&self, args: Args, ctx: ToolCtx<'_>) -> Result<ToolOutput, ToolFailure> {
        let seen = self.0.clone();
        blocking(ctx.files, move |files| {
            change::apply(files, &[plan(files, &args.path)?], &[], &seen)
        })
        .await
    }
}

fn plan(files: &dyn Files, path: &str) -> Result<PatchChange, ToolFailure> {
    let before = match read_bounded(files, path) {
        Ok(before) => before,
        // A file that is too large to be shown can still be deleted.
        Err(err) if err.kind == FileErrorKind::TooLarge => Vec::new(),
        // A dangling symlink is reported as not found, although it exists. If nothing exists, the removal reports it.
        Err(err) if err.kind == FileErrorKind::NotFound && is_link(files, path) => Vec::new(),
        Err(err) => return Err(failure(files, path, err)),
    };
    Ok(PatchChange::Delete {
        path: tidy(files, path),
        before,
    })
}

fn is_link(files: &dyn Files, path: &str) -> bool {
    let (parent, name) = path.rsplit_once('/').unwrap_or((".", path));
    let listing = files.list(parent, usize::MAX);
    listing.is_ok_and(|found| {
        found
            .entries
            .iter()
            .any(|(entry, kind, _)| entry == name && *kind == FileKind::Link)
    })
}
