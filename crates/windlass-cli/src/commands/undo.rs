//! `undo` and `redo`: plans are shown and applied as the library says.

use std::process::ExitCode;
use std::sync::Arc;

use serde_json::json;
use windlass::core::id::CallId;
use windlass::core::workspace::{Change, FileChange, Files};
use windlass::undo::Plan;
use windlass::undo::{UndoRequest, Wanted, plan_undo};

use super::block_on;
use crate::args::{TakeBackArgs, UndoArgs};
use crate::exit;
use crate::failure::Failure;
use crate::out::{self, say};
use crate::process;
use crate::safe::{marked_block, message, one_line};
use crate::session_run::session_id;

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
    take_back(&args.how, &UndoRequest::Undo(wanted))
}

pub(super) fn redo(args: &TakeBackArgs) -> Result<ExitCode, Failure> {
    take_back(args, &UndoRequest::Redo)
}

fn take_back(args: &TakeBackArgs, request: &UndoRequest) -> Result<ExitCode, Failure> {
    let root = Arc::new(process::open_workspace(args.cd.as_deref())?);
    let settings = process::load_settings(Some(root.root()))?;
    let session = args.session.as_deref().map(session_id).transpose()?;
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
                               "conflicts": plan.conflicts }),
            );
        } else {
            show(&planned.files, plan, args.preview);
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
        let files = plan.swaps.len();
        planned.apply(&settings, &root).await?;
        if !args.json {
            say!("{word} {} in {session}", count(files));
        }
        Ok(exit::unless_broken(0))
    })
}

fn show(files: &[FileChange], planned: &Plan, whole: bool) {
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
