//! `undo` and `redo`: plans are shown and applied as the library says.

use std::process::ExitCode;
use std::sync::Arc;

use serde_json::json;
use windlass::core::id::CallId;
use windlass::core::workspace::{Change, FileChange, Files};
use windlass::undo::UndoPlan;
use windlass::undo::{PlannedUndo, UndoRequest, Wanted, plan_undo};

use super::block_on;
use crate::args::{TakeBackArgs, UndoArgs};
use crate::exit;
use crate::failure::Failure;
use crate::out::{self, say};
use crate::process;
use crate::safe::{marked_block, message, one_line};
use crate::session_run::find_session;

pub(super) fn undo(args: &UndoArgs) -> Result<ExitCode, Failure> {
    let wanted = match (&args.run, &args.call, args.to) {
        (Some(run), _, _) => Wanted::Run(
            run.parse()
                .map_err(|_| Failure::usage(format!("`{run}` is no run")))?,
        ),
        (_, Some(call), _) => Wanted::Call(CallId(call.clone())),
        (_, _, Some(seq)) => Wanted::To(seq),
        _ => Wanted::LastRun,
    };
    let more = More {
        yes: args.yes,
        revert_commit: args.revert_commit,
    };
    take_back(&args.how, &UndoRequest::Undo(wanted), &more)
}

pub(super) fn redo(args: &TakeBackArgs) -> Result<ExitCode, Failure> {
    take_back(args, &UndoRequest::Redo, &More::default())
}

/// Options of an undo that a redo does not have.
#[derive(Default)]
struct More {
    yes: bool,
    revert_commit: bool,
}

fn take_back(args: &TakeBackArgs, request: &UndoRequest, more: &More) -> Result<ExitCode, Failure> {
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
            out::json(
                &json!({ "session": session.to_string(), "preview": args.preview, "files": planned.files,
                               "merged": plan.merged, "unchanged": plan.unchanged,
                               "conflicts": plan.conflicts, "commits": planned.commits }),
            );
        } else {
            show(&planned.files, plan, args.preview);
            let shown = planned
                .commits
                .iter()
                .filter(|_| args.preview && !more.revert_commit);
            for commit in shown {
                say!("commit {commit} stays; with --revert-commit a new commit takes it back");
            }
        }
        if args.preview {
            return Ok(exit::unless_broken(0));
        }
        if !plan.conflicts.is_empty() && !args.partly {
            return Err(
                Failure::failed(format!("nothing was {word}: some files cannot be"))
                    .hint("look at them with --preview; --partly leaves them out"),
            );
        }
        if planned.is_older && !more.yes {
            ask_about_older(&planned)?;
        }
        if more.revert_commit && !plan.merged.is_empty() {
            let why = "nothing was undone: your later edits of these files would be in the commit";
            return Err(
                Failure::failed(why).hint("commit them first, or leave out --revert-commit")
            );
        }
        let (swaps, commits) = (plan.swaps.clone(), planned.commits.clone());
        planned.apply(&settings, &root).await?;
        if !args.json {
            say!("{word} {} in {session}", count(swaps.len()));
        }
        if more.revert_commit && !commits.is_empty() {
            let made = PlannedUndo::commit_revert(&settings, &root, &commits, &swaps).await?;
            say!("commit {made} takes back {}", commits.join(", "));
        } else {
            for commit in &commits {
                say!(
                    "commit {commit} stays in your history; to revert it as well: `windlass redo`, then `windlass undo                      --revert-commit`"
                );
            }
        }
        Ok(exit::unless_broken(0))
    })
}

/// The newest run changed nothing, so that the one to undo is another than the user may think.
fn ask_about_older(planned: &PlannedUndo) -> Result<(), Failure> {
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
    Err(Failure::new(exit::ASKED, &why).hint(format!(
        "`windlass undo --session {session} --run {run}` undoes it"
    )))
}

fn show(files: &[FileChange], planned: &UndoPlan, whole: bool) {
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
            Some(diff) if whole => out::out(&marked_block(diff)),
            _ => out::out(&format!("{sign} {}{merged}\n", one_line(&file.path))),
        }
    }
    for path in &planned.unchanged {
        say!("as it was already: {}", message(path));
    }
    for (path, why) in &planned.conflicts {
        say!("cannot be taken back: {}: {}", message(path), message(why));
    }
}

fn count(files: usize) -> String {
    if files == 1 {
        "1 file".to_owned()
    } else {
        format!("{files} files")
    }
}
