//! edit_lines: changes whole lines, which the model names by their anchors. If an anchor no longer matches, nothing is
//! written.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use windlass_core::message::ErrorCategory;
use windlass_core::tool::{Effect, Interrupt, ToolCtx, ToolFailure, ToolOutput, Touch};
use windlass_core::typed_tool::TypedTool;
use windlass_core::workspace::Files;
use windlass_edit::anchors::{Anchor, AnchorError, LineEdit, apply};
use windlass_edit::patch::PatchChange;

use crate::change::{self, about};
use crate::last_seen::LastSeenFiles;
use crate::paths::{at_most, blocking, read_whole, writes};

const MAX_EDITS: usize = 100;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {
    path: String,
    edits: Vec<AnchoredEdit>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AnchoredEdit {
    op: LineOperation,
    /// First line; for insert_after the line before, or `0`.
    start: String,
    /// Last line, default `start`.
    end: Option<String>,
    text: Option<String>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum LineOperation {
    Replace,
    InsertAfter,
    Delete,
}

pub(crate) struct EditLines(pub(crate) Arc<LastSeenFiles>);

impl TypedTool for EditLines {
    type Args = Args;
    const NAME: &str = "edit_lines";
    const DESCRIPTION: &str = include_str!("descriptions/edit_lines.md");
    const EFFECT: Effect = Effect::Write;
    const INTERRUPT: Interrupt = Interrupt::Finish;

    fn touches(&self, args: Args, ctx: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure> {
        writes(ctx, &args.path)
    }

    fn preview(&self, args: Args, ctx: &ToolCtx<'_>) -> Result<Option<String>, ToolFailure> {
        let change = plan(ctx.files.as_ref(), &args)?;
        Ok(Some(change::preview(&[change])))
    }

    async fn run(&self, args: Args, ctx: ToolCtx<'_>) -> Result<ToolOutput, ToolFailure> {
        let seen = self.0.clone();
        blocking(ctx.files, move |files| {
            let done = change::write_all(files, &[plan(files, &args)?], &seen)?;
            Ok(change::output(done, &[]))
        })
        .await
    }
}

fn plan(files: &dyn Files, args: &Args) -> Result<PatchChange, ToolFailure> {
    if args.edits.is_empty() {
        return Err(ToolFailure::invalid("`edits` is empty"));
    }
    at_most(&args.edits, MAX_EDITS, "edits")?;
    let before = read_whole(files, &args.path)?;
    let edits: Result<Vec<_>, _> = args.edits.iter().map(line_edit).collect();
    let edits = edits?;
    let (change, ()) = change::modify(files, &args.path, before, |text| {
        let after = apply(text, &edits).map_err(|err| {
            let category = match err {
                AnchorError::Stale { .. } => ErrorCategory::Stale,
                _ => ErrorCategory::InvalidArguments,
            };
            about(&args.path, category, err)
        })?;
        Ok((after, ()))
    })?;
    Ok(change)
}

fn line_edit(one: &AnchoredEdit) -> Result<LineEdit, ToolFailure> {
    let anchor = |text: &str| {
        Anchor::parse(text).ok_or_else(|| {
            ToolFailure::invalid(format!(
                "{text:?} is not an anchor; copy one such as `12:k3f9` from read_file with anchors"
            ))
        })
    };
    let start = anchor(&one.start)?;
    let end = one
        .end
        .as_deref()
        .map_or_else(|| Ok(start.clone()), anchor)?;
    let text = |what: &str| {
        one.text
            .clone()
            .ok_or_else(|| ToolFailure::invalid(format!("{what} needs `text`")))
    };
    match one.op {
        LineOperation::Replace => Ok(LineEdit::Replace {
            start,
            end,
            text: text("replace")?,
        }),
        LineOperation::InsertAfter if end != start => Err(ToolFailure::invalid(
            "insert_after takes one anchor, in `start`",
        )),
        LineOperation::InsertAfter => Ok(LineEdit::InsertAfter {
            after: start,
            text: text("insert_after")?,
        }),
        LineOperation::Delete if one.text.as_ref().is_some_and(|text| !text.is_empty()) => Err(
            ToolFailure::invalid("delete takes no `text`; use replace to put lines there"),
        ),
        LineOperation::Delete => Ok(LineEdit::Delete { start, end }),
    }
}
