//! apply_patch: a patch over any number of files, applied to all of them or to none.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use windlass_core::BoxFuture;
use windlass_core::message::ErrorCategory;
use windlass_core::tool::{
    Effect, Interrupt, Tool, ToolCtx, ToolFailure, ToolOutput, ToolSpec, Touch,
};
use windlass_core::workspace::{FileErrorKind, Files};
use windlass_edit::matching::EditError;
use windlass_edit::patch::{Change, Found, HunkProblem, Patch, PatchError, Plan};

use crate::args::{parse, spec};
use crate::change;
use crate::place::{blocking, read_bounded, writes};
use crate::seen::Seen;

/// Arguments.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Args {
    /// The patch: `*** Begin Patch` … `*** End Patch`, a unified diff, or search/replace blocks.
    patch: String,
}

/// The tool.
pub(crate) struct ApplyPatch {
    spec: ToolSpec,
    seen: Arc<Seen>,
}

impl ApplyPatch {
    pub(crate) fn new(seen: Arc<Seen>) -> Self {
        let mut spec = spec::<Args>(
            "apply_patch",
            include_str!("descriptions/apply_patch.md"),
            Effect::Write,
        );
        spec.interrupt = Interrupt::Finish;
        Self { spec, seen }
    }
}

impl Tool for ApplyPatch {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn touches(&self, args: &Value, ctx: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure> {
        let args: Args = parse(args.clone())?;
        let patch = Patch::parse(&args.patch).map_err(|err| refusal(&err))?;
        let touches = patch
            .paths()
            .into_iter()
            .map(|path| writes(ctx, path))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(touches.concat())
    }

    fn preview(&self, args: &Value, ctx: &ToolCtx<'_>) -> Option<String> {
        let args: Args = parse(args.clone()).ok()?;
        Some(change::preview(
            &plan(ctx.files.as_ref(), &args).ok()?.changes,
        ))
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
                let plan = plan(files.as_ref(), &args)?;
                change::refuse_links(files.as_ref(), &plan.changes)?;
                for change in &plan.changes {
                    if let Change::Modify { path, before, .. }
                    | Change::Delete { path, before }
                    | Change::Move {
                        from: path, before, ..
                    } = change
                    {
                        seen.check(files.as_ref(), path, before)?;
                    }
                }
                Ok(change::output(
                    change::write_all(files.as_ref(), &plan.changes, &seen)?,
                    &plan.notes,
                ))
            })
            .await
        })
    }
}

fn plan(files: &dyn Files, args: &Args) -> Result<Plan, ToolFailure> {
    let patch = Patch::parse(&args.patch).map_err(|err| refusal(&err))?;
    let read = |path: &str| match read_bounded(files, path) {
        Ok(bytes) => Found::File(bytes),
        Err(err) if err.kind == FileErrorKind::NotFound => Found::Absent,
        Err(err) => Found::Unusable(err.message),
    };
    patch.plan(read).map_err(|err| refusal(&err))
}

fn refusal(err: &PatchError) -> ToolFailure {
    let category = match err {
        PatchError::Syntax { .. } | PatchError::Nothing | PatchError::Exists { .. } => {
            ErrorCategory::InvalidArguments
        }
        PatchError::Forbidden { .. } => ErrorCategory::Blocked,
        PatchError::NotFound { .. } => ErrorCategory::NotFound,
        PatchError::Unusable { .. } => ErrorCategory::Exception,
        PatchError::Block { problem, .. } => match problem {
            EditError::Missing { .. } => ErrorCategory::Stale,
            EditError::Ambiguous { .. } | EditError::Count { .. } => ErrorCategory::Ambiguous,
            _ => ErrorCategory::InvalidArguments,
        },
        PatchError::Hunk { problem, .. } => match **problem {
            HunkProblem::Missing { .. }
            | HunkProblem::HeaderMissing { .. }
            | HunkProblem::LeavesLines => ErrorCategory::Stale,
            HunkProblem::Ambiguous { .. } => ErrorCategory::Ambiguous,
            HunkProblem::OutOfOrder { .. }
            | HunkProblem::NoContext
            | HunkProblem::OldLinesInNewFile => ErrorCategory::InvalidArguments,
        },
    };
    ToolFailure::new(category, format!("{err}\nnothing was written"))
}
