//! move_file: renames or moves a file. It overwrites another file only if told to.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use windlass_core::tool::{Effect, Happened, Interrupt, ToolCtx, ToolFailure, ToolOutput, Touch};
use windlass_core::typed_tool::TypedTool;
use windlass_core::workspace::{Change, FileChange, FileErrorKind, FileKind, Files};

use crate::change;
use crate::last_seen::LastSeenFiles;
use crate::paths::{MAX_FILE, blocking, failure, is_directory, tidy, writes};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {
    from: String,
    to: String,
    #[serde(default)]
    overwrite: bool,
}

pub(crate) struct MoveFile(pub(crate) Arc<LastSeenFiles>);

impl TypedTool for MoveFile {
    type Args = Args;
    const NAME: &str = "move_file";
    const DESCRIPTION: &str = include_str!("descriptions/move_file.md");
    const EFFECT: Effect = Effect::Write;
    const INTERRUPT: Interrupt = Interrupt::Finish;

    fn touches(&self, args: Args, ctx: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure> {
        let mut touches = writes(ctx, &args.from)?;
        touches.extend(writes(ctx, &args.to)?);
        Ok(touches)
    }

    fn preview(&self, args: Args, ctx: &ToolCtx<'_>) -> Result<Option<String>, ToolFailure> {
        check(ctx.files.as_ref(), &args)?;
        Ok(Some(format!("move {} to {}\n", args.from, args.to)))
    }

    fn happened(&self, args: Args, ctx: &ToolCtx<'_>) -> Option<Happened> {
        let there = |path: &str| match ctx.files.stat(path) {
            Ok(_) => Some(true),
            Err(err) => (err.kind == FileErrorKind::NotFound).then_some(false),
        };
        match (there(&args.from)?, there(&args.to)?) {
            (false, true) => Some(Happened::Yes(format!(
                "{} is there, and {} is not",
                args.to, args.from
            ))),
            (true, false) => Some(Happened::No(format!(
                "{} is still there, and {} is not",
                args.from, args.to
            ))),
            _ => None,
        }
    }

    async fn run(&self, args: Args, ctx: ToolCtx<'_>) -> Result<ToolOutput, ToolFailure> {
        let seen = self.0.clone();
        blocking(ctx.files, move |files| rename(files, &args, &seen)).await
    }
}

/// Refuses a move that cannot work, before anything is moved.
fn check(files: &dyn Files, args: &Args) -> Result<(), ToolFailure> {
    let stat = files
        .stat(&args.from)
        .map_err(|err| failure(files, &args.from, err))?;
    if stat.kind == FileKind::Directory {
        return Err(ToolFailure::invalid(format!(
            "{} is a directory; move its files one by one, or use bash",
            args.from
        )));
    }
    if is_directory(files, &args.to) {
        let name = args.from.rsplit('/').next().unwrap_or(&args.from);
        return Err(ToolFailure::invalid(format!(
            "{} is a directory; name the file, as in {}/{name}",
            args.to,
            args.to.trim_end_matches('/')
        )));
    }
    if !args.overwrite && files.stat(&args.to).is_ok() {
        return Err(exists(args));
    }
    Ok(())
}

fn exists(args: &Args) -> ToolFailure {
    ToolFailure::invalid(format!(
        "{} exists already; choose another name or set overwrite",
        args.to
    ))
}

fn rename(files: &dyn Files, args: &Args, seen: &LastSeenFiles) -> Result<ToolOutput, ToolFailure> {
    check(files, args)?;
    files
        .rename(&args.from, &args.to, args.overwrite)
        .map_err(|err| match err.kind {
            FileErrorKind::Exists => exists(args),
            _ => failure(files, &args.from, err),
        })?;
    seen.forget(files, &args.from);
    if let Ok(bytes) = files.read(&args.to, MAX_FILE) {
        seen.note(files, &args.to, &bytes);
    }
    let moved = FileChange {
        path: tidy(files, &args.to),
        change: Change::MovedFrom(tidy(files, &args.from)),
        added: Some(0),
        removed: Some(0),
        diff: None,
    };
    Ok(change::output(vec![moved], &[]))
}
