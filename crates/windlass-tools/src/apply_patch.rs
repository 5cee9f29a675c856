//! apply_patch: a patch over any number of files, applied to all of them or to none.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use windlass_core::message::ErrorCategory;
use windlass_core::tool::{Effect, Interrupt, ToolCtx, ToolFailure, ToolOutput, Touch};
use windlass_core::typed_tool::TypedTool;
use windlass_core::workspace::{FileErrorKind, Files};
use windlass_edit::matching::EditError;
use windlass_edit::patch::{HunkProblem, Patch, PatchError, PatchPlan, PatchedPath};

use crate::change;
use crate::last_seen::LastSeenFiles;
use crate::paths::{blocking, read_bounded, writes};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {
    patch: String,
}

pub(crate) struct ApplyPatch(pub(crate) Arc<LastSeenFiles>);

impl TypedTool for ApplyPatch {
    type Args = Args;
    const NAME: &str = "apply_patch";
    const DESCRIPTION: &str = include_str!("descriptions/apply_patch.md");
    const EFFECT: Effect = Effect::Write;
    const INTERRUPT: Interrupt = Interrupt::Finish;

    fn touches(&self, args: Args, ctx: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure> {
        let patch = Patch::parse(&args.patch).map_err(|err| refusal(&err))?;
        let touches = patch
            .paths()
            .into_iter()
            .map(|path| writes(ctx, path))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(touches.concat())
    }

    fn preview(&self, args: Args, ctx: &ToolCtx<'_>) -> Result<Option<String>, ToolFailure> {
        let plan = plan(ctx.files.as_ref(), &args)?;
        Ok(Some(change::preview(&plan.changes)))
    }

    async fn run(&self, args: Args, ctx: ToolCtx<'_>) -> Result<ToolOutput, ToolFailure> {
        let seen = self.0.clone();
        blocking(ctx.files, move |files| {
            let plan = plan(files, &args)?;
            change::refuse_links(files, &plan.changes)?;
            change::apply(files, &plan.changes, &plan.notes, &seen)
        })
        .await
    }
}

fn plan(files: &dyn Files, args: &Args) -> Result<PatchPlan, ToolFailure> {
    let patch = Patch::parse(&args.patch).map_err(|err| refusal(&err))?;
    let read = |path: &str| match read_bounded(files, path) {
        Ok(bytes) => PatchedPath::File(bytes),
        Err(err) if err.kind == FileErrorKind::NotFound => PatchedPath::Absent,
        Err(err) => PatchedPath::Unusable(err.message),
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
