//! `undo` and `redo`: print the plan of the library and apply it.

use std::process::ExitCode;
use std::sync::Arc;

use windlass::core::id::CallId;
use windlass::core::workspace::{Change, FileChange, Files};
use windlass::transcript::counted;
use windlass::undo::{PlannedUndo, UndoOptions, UndoPlan, UndoRequest, UndoTarget, plan_undo};
use windlass_text::sanitize::{marked_block, message, one_line};

use super::block_on;
use crate::args::{UndoArgs, UndoRedoArgs};
use crate::command_error::CommandError;
use crate::exit;
use crate::out::{self, say};
use crate::process;
use crate::session_run::find_session;

pub(super) fn undo(args: &UndoArgs) -> Result<ExitCode, CommandError> {
    let target =
        match (&args.run, &args.call, args.to) {
            (Some(run), _, _) => UndoTarget::Run(run.parse().map_err(|_| {
                CommandError::usage(format!("`{run}` is not a run id such as `r2`"))
            })?),
            (_, Some(call), _) => UndoTarget::Call(CallId(call.clone())),
            (_, _, Some(seq)) => UndoTarget::To(seq),
            _ => UndoTarget::LastRun,
        };
    let options = UndoOptions {
        partly: args.common.partly,
        revert_commit: args.revert_commit,
    };
    let request = UndoRequest::Undo(target);
    plan_and_apply(&args.common, &request, &options, args.yes)
}

pub(super) fn redo(args: &UndoRedoArgs) -> Result<ExitCode, CommandError> {
    let options = UndoOptions {
        partly: args.partly,
        ..UndoOptions::default()
    };
    plan_and_apply(args, &UndoRequest::Redo, &options, true)
}

fn plan_and_apply(
    args: &UndoRedoArgs,
    request: &UndoRequest,
    options: &UndoOptions,
    yes: bool,
) -> Result<ExitCode, CommandError> {
    let root = Arc::new(process::open_workspace(args.cd.as_deref())?);
    let settings = process::load_settings(Some(root.root()))?;
    let session = args.session.as_deref().map(find_session).transpose()?;
    block_on(async {
        let planned = plan_undo(&settings, &root, session.as_ref(), request).await?;
        let (session, plan) = (planned.session.clone(), &planned.plan);
        let word = if planned.is_redo() {
            "redone"
        } else {
            "undone"
        };
        if args.json {
            out::json(&planned.report(args.preview));
        } else {
            show(&planned.files, plan, args.preview);
            let shown = planned
                .commits
                .iter()
                .filter(|_| args.preview && !options.revert_commit);
            for commit in shown {
                say!("commit {commit} stays; `--revert-commit` creates a commit that reverts it");
            }
        }
        if args.preview {
            return Ok(exit::after_output(0));
        }
        planned.check(options)?;
        if planned.is_older && !yes {
            ask_about_older(&planned)?;
        }
        let commits = planned.commits.clone();
        let applied = planned.apply(&settings, &root, options).await?;
        if !args.json {
            say!("{word} {} in {session}", counted(applied.files, "file"));
        }
        if let Some(made) = applied.revert {
            say!("commit {made} reverts {}", commits.join(", "));
        } else {
            for commit in &commits {
                say!(
                    "commit {commit} stays in your history; to revert it as well, run `windlass redo`, then \
                     `windlass undo --revert-commit`"
                );
            }
        }
        Ok(exit::after_output(0))
    })
}

/// Asks for confirmation if the newest run has nothing to undo, because the user may expect that run to be undone.
fn ask_about_older(planned: &PlannedUndo) -> Result<(), CommandError> {
    let run = planned.run.as_ref().map(ToString::to_string);
    let (run, session) = (run.unwrap_or_default(), &planned.session);
    let question = format!(
        "the newest run has nothing to undo; undo {run} of session {session} instead? [y/N] "
    );
    if super::sessions::confirmed(&question)? {
        return Ok(());
    }
    let why = format!(
        "nothing was undone: the newest run has nothing to undo, and {run} of session {session} is older"
    );
    Err(CommandError::new(exit::ASKED, &why).hint(format!(
        "undo it with `windlass undo --session {session} --run {run}`"
    )))
}

fn show(files: &[FileChange], planned: &UndoPlan, with_diffs: bool) {
    for file in files {
        let sign = match &file.change {
            Change::Created => '+',
            Change::Deleted => '-',
            Change::Modified | Change::MovedFrom(_) => '~',
        };
        let merged = if planned.merged.contains(&file.path) {
            " (your later edits stay)"
        } else {
            ""
        };
        match &file.diff {
            Some(diff) if with_diffs => out::out(&marked_block(diff)),
            _ => out::out(&format!("{sign} {}{merged}\n", one_line(&file.path))),
        }
    }
    for path in &planned.unchanged {
        say!("unchanged: {}", message(path));
    }
    for (path, why) in &planned.conflicts {
        say!("cannot be undone: {}: {}", message(path), message(why));
    }
}
