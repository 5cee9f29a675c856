//! `undo` and `redo`: what the log says was done is planned against what is there now, shown, done as one landing, and
//! logged. Files that nobody named are not looked at.

use std::process::ExitCode;
use std::sync::Arc;

use futures_util::StreamExt;
use serde_json::json;
use windlass::undo::{UndoableChanges, Wanted};
use windlass_core::event::EventKind;
use windlass_core::gate::Mode;
use windlass_core::id::{CallId, SessionId};
use windlass_core::image::Swap;
use windlass_core::runtime::RunMode;
use windlass_core::store::SessionStore;
use windlass_core::workspace::{Change, FileChange, Files};
use windlass_engine::Open;
use windlass_host::session_log::SessionLog;
use windlass_host::workspace::Root;
use windlass_transaction::isolated::{undo_contents, undo_journal};
use windlass_transaction::landing::undo::{Plan, plan, preview};
use windlass_transaction::landing::{Contents, land};

use super::block_on;
use crate::args::{TakeBackArgs, UndoArgs};
use crate::exit;
use crate::failure::Failure;
use crate::out::{self, say};
use crate::process;
use crate::safe::{marked_block, message, one_line};
use crate::session_run::session_id;
use windlass::settings::Settings;
use windlass::wire;

/// Sessions that are looked through for something to take back.
const MAX_SESSIONS: usize = 50;

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
    take_back(&args.how, |changes| {
        let found = changes.find(&wanted);
        let (first, others) = found.split_first()?;
        let swaps = found
            .iter()
            .flat_map(|change| change.swaps.clone())
            .collect();
        Some(Task {
            swaps,
            of: first.seq,
            also: others.iter().map(|change| change.seq).collect(),
            redo: false,
        })
    })
}

pub(super) fn redo(args: &TakeBackArgs) -> Result<ExitCode, Failure> {
    take_back(args, |changes| {
        let last = changes.undone.last()?;
        Some(Task {
            swaps: last.swaps.clone(),
            of: last.seq,
            also: last.of.clone(),
            redo: true,
        })
    })
}

/// What is to be taken back, and what the log will say of it.
struct Task {
    swaps: Vec<Swap>,
    /// The event it is about: the first change, or for a redo the one that took it back.
    of: u64,
    /// The further changes; for a redo all of them.
    also: Vec<u64>,
    redo: bool,
}

impl Task {
    fn word(&self) -> &'static str {
        if self.redo { "redone" } else { "undone" }
    }

    /// It was noted under this number, and did not happen.
    fn revoked(&self, seq: u64) -> EventKind {
        match self.redo {
            true => {
                let (of, also) = self
                    .also
                    .split_first()
                    .map_or((self.of, &[][..]), |(first, rest)| (*first, rest));
                EventKind::undone(of, also.to_vec(), self.swaps.clone())
            }
            false => EventKind::redone(seq, Vec::new()),
        }
    }

    fn noted(&self, swaps: Vec<Swap>) -> EventKind {
        match self.redo {
            true => EventKind::redone(self.of, swaps),
            false => EventKind::undone(self.of, self.also.clone(), swaps),
        }
    }
}

fn take_back(
    args: &TakeBackArgs,
    pick: impl Fn(&UndoableChanges) -> Option<Task>,
) -> Result<ExitCode, Failure> {
    let root = Arc::new(process::open_workspace(args.cd.as_deref())?);
    let settings = process::load_settings(Some(root.root()))?;
    let store = SessionLog::new(settings.places.sessions_dir());
    block_on(async {
        let (session, task) = find(&store, &root, args.session.as_deref(), pick).await?;
        let contents = undo_contents(&settings.places.undo_dir());
        let contents = contents.map_err(|err| Failure::new(exit::FAILED, err.to_string()))?;
        let planned = plan(&root, &task.swaps, &contents)
            .map_err(|err| Failure::new(exit::FAILED, err.to_string()))?;
        let files = preview(&root, &planned, &contents);
        if args.json {
            out::json(
                &json!({ "session": session.to_string(), "preview": args.preview, "files": files,
                               "merged": planned.merged, "unchanged": planned.unchanged,
                               "conflicts": planned.conflicts }),
            );
        } else {
            show(&files, &planned, args.preview);
        }
        if args.preview {
            return Ok(exit::unless_broken(0));
        }
        if !planned.conflicts.is_empty() && !args.partly {
            return Err(Failure::new(
                exit::FAILED,
                format!("nothing was {}: some files cannot be", task.word()),
            )
            .hint("look at them with --preview; --partly leaves them out"));
        }
        apply(&settings, &root, &session, &task, &planned, &contents).await?;
        if !args.json {
            say!(
                "{} {} in {session}",
                task.word(),
                count(planned.swaps.len())
            );
        }
        Ok(exit::unless_broken(0))
    })
}

/// The session to take something back in: the named one, or the newest of the workspace with something.
async fn find(
    store: &SessionLog,
    root: &Root,
    named: Option<&str>,
    pick: impl Fn(&UndoableChanges) -> Option<Task>,
) -> Result<(SessionId, Task), Failure> {
    let nothing = || {
        Failure::usage("there is nothing to take back")
            .hint("`windlass sessions show SESSION` tells what a session did")
    };
    if let Some(named) = named {
        let id = session_id(named)?;
        let task = pick(&undoable_changes(store, &id).await?).ok_or_else(nothing)?;
        return Ok((id, task));
    }
    let here = root.root().display().to_string();
    let mut heads = store.list().take(MAX_SESSIONS);
    while let Some(head) = heads.next().await {
        let Ok(head) = head else { continue };
        if head.workspace == here
            && let Some(task) = pick(&undoable_changes(store, &head.id).await?)
        {
            return Ok((head.id, task));
        }
    }
    Err(nothing())
}

/// What a session did to the tree.
pub(super) async fn undoable_changes(
    store: &SessionLog,
    id: &SessionId,
) -> Result<UndoableChanges, Failure> {
    let mut changes = UndoableChanges::default();
    let mut events = store.read(id, 1);
    while let Some(event) = events.next().await {
        changes.apply(&event?);
    }
    Ok(changes)
}

async fn apply(
    settings: &Settings,
    root: &Arc<Root>,
    session: &SessionId,
    task: &Task,
    planned: &Plan,
    contents: &Contents,
) -> Result<(), Failure> {
    // Held first: a session at work must not have its files changed under it.
    let nobody = wire::Agent::Nobody;
    let wired = wire::engine(
        settings,
        &nobody,
        root.clone(),
        Mode::Ask,
        Vec::new(),
        Vec::new(),
    )?;
    let session = wired
        .engine
        .open(Open::Resume(session.clone()), RunMode::Analysis)
        .await?;
    let journal = undo_journal(&settings.places.undo_dir(), root.root());
    // The log first: what is broken off after that is finished by the next command, and the log knows of it already.
    let seq = session.note(task.noted(planned.swaps.clone())).await?;
    let done = match land(root, &planned.swaps, contents, contents, &journal) {
        Ok(done) => done,
        Err(err) => {
            session.note(task.revoked(seq)).await?;
            return Err(Failure::new(exit::FAILED, err.to_string()));
        }
    };
    for lost in done.not_kept {
        say!(
            "warning: {} cannot be brought back: {}",
            message(&lost.path),
            lost.reason
        );
    }
    Ok(())
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
