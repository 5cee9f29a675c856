//! delete_file: removes one file. Never removes a directory.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use windlass_core::BoxFuture;
use windlass_core::tool::{
    Effect, Happened, Interrupt, Tool, ToolCtx, ToolFailure, ToolOutput, ToolSpec, Touch,
};
use windlass_core::workspace::{FileErrorKind, FileKind, Files};
use windlass_edit::patch::Change;

use crate::args::{parse, spec};
use crate::change;
use crate::place::{blocking, failure, read_bounded, tidy, writes};
use crate::seen::Seen;

/// Arguments.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Args {
    /// File to delete, relative to the workspace.
    path: String,
}

/// The tool.
pub(crate) struct DeleteFile {
    spec: ToolSpec,
    seen: Arc<Seen>,
}

impl DeleteFile {
    pub(crate) fn new(seen: Arc<Seen>) -> Self {
        let mut spec = spec::<Args>(
            "delete_file",
            include_str!("descriptions/delete_file.md"),
            Effect::Write,
        );
        spec.interrupt = Interrupt::Finish;
        Self { spec, seen }
    }
}

impl Tool for DeleteFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn touches(&self, args: &Value, ctx: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure> {
        writes(ctx, &parse::<Args>(args.clone())?.path)
    }

    fn preview(&self, args: &Value, ctx: &ToolCtx<'_>) -> Option<String> {
        let args: Args = parse(args.clone()).ok()?;
        Some(change::preview(&[
            plan(ctx.files.as_ref(), &args.path).ok()?
        ]))
    }

    fn happened(&self, args: &Value, ctx: &ToolCtx<'_>) -> Option<Happened> {
        let args: Args = parse(args.clone()).ok()?;
        let gone = match ctx.files.stat(&args.path) {
            Ok(_) => false,
            Err(err) if err.kind == FileErrorKind::NotFound => {
                !is_link(ctx.files.as_ref(), &args.path)
            }
            // What cannot be looked at proves nothing.
            Err(_) => return None,
        };
        Some(match gone {
            true => Happened::Yes(format!("{} is not there any more", args.path)),
            false => Happened::No(format!("{} is still there", args.path)),
        })
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
                let change = plan(files.as_ref(), &args.path)?;
                if let Change::Delete { path, before } = &change {
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

fn plan(files: &dyn Files, path: &str) -> Result<Change, ToolFailure> {
    let before = match read_bounded(files, path) {
        Ok(before) => before,
        // What is too large to be shown can still go away.
        Err(err) if err.kind == FileErrorKind::TooLarge => Vec::new(),
        // A link that leads nowhere is there all the same; removing it says so when nothing is.
        Err(err) if err.kind == FileErrorKind::NotFound && is_link(files, path) => Vec::new(),
        Err(err) => return Err(failure(files, path, err)),
    };
    Ok(Change::Delete {
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
