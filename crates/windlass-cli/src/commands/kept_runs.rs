//! `status`, `diff`, `discard` and `sessions gc`: list kept runs, show their changes and delete them. [`recover`] finishes
//! or rolls back the landings of a dead process before any other command starts.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use windlass::core::event::EventKind;
use windlass::core::workspace::{Change, Changes, FileChange, Files};
use windlass::kept::{KeptRunMeta, UNDO_BYTES, undo_contents};
use windlass::machine::Root;
use windlass::settings::{Places, Settings};
use windlass::transcript::counted;
use windlass::undo::last_changes;

use super::block_on;
use crate::args::{DiffArgs, DiscardArgs, StatusArgs};
use crate::command_error::CommandError;
use crate::exit;
use crate::out::{self, say};
use crate::process;
use crate::sanitize::{marked_block, message, one_line};
use windlass::kept;

/// Finishes or rolls back interrupted landings, and prints a notice for each.
pub(super) fn recover() {
    let Ok(places) = process::places() else {
        return;
    };
    let notices = process::notices();
    let unlogged = windlass::recover(&places, &notices);
    if unlogged.is_empty() {
        return;
    }
    let logged = process::load_settings(None).and_then(|settings| {
        block_on(async {
            unlogged.log(&settings).await;
            Ok(())
        })
    });
    if let Err(failure) = logged {
        say!("warning: {}", message(&failure.message()));
    }
}

pub(super) fn status(args: &StatusArgs) -> Result<ExitCode, CommandError> {
    let places = process::places()?;
    let root = match args.all {
        true => None,
        false => Some(process::open_workspace(args.cd.as_deref())?),
    };
    let here = |card: &KeptRunMeta| root.as_ref().is_none_or(|root| card.root == root.root());
    let all = kept::shelf(&places).list().into_iter();
    // A run that died before its copy was complete has no changes; the next run or `gc` deletes it.
    let kept: Vec<(KeptRunMeta, bool)> = all
        .filter(|(card, busy)| here(card) && (*busy || card.was_made()))
        .collect();
    if args.json {
        let rows: Vec<_> = kept
            .iter()
            .map(|(card, busy)| {
                let state = state(card, *busy);
                json!({ "name": card.name, "state": state, "root": card.root, "session": card.session,
                        "run": card.run, "strategy": card.strategy, "files": card.files, "bytes": card.bytes,
                        "opened": card.opened, "kept": card.kept })
            })
            .collect();
        out::json(&json!({ "kept": rows, "recovered": windlass::recoveries(&places) }));
        return Ok(exit::after_output(0));
    }
    if kept.is_empty() {
        out::out("no kept runs\n");
    }
    for (card, busy) in &kept {
        let files = counted(card.files, "file");
        let (state, size) = (state(card, *busy), card.bytes.div_ceil(1 << 20));
        out::out(&format!(
            "{:24} {state:12} {files:>10}  {size} MB  session {}\n",
            card.name, card.session
        ));
        if root.is_none() {
            out::out(&format!(
                "  {}\n",
                one_line(&card.root.display().to_string())
            ));
        }
    }
    for line in windlass::recoveries(&places) {
        out::out(&format!("{}\n", one_line(&line)));
    }
    if let Some((card, _)) = kept.first() {
        out::out(&format!(
            "\nwindlass diff {0} · land {0} · resume {0} · discard {0}\n",
            card.name
        ));
    }
    Ok(exit::after_output(0))
}

fn state(card: &KeptRunMeta, busy: bool) -> &'static str {
    match (busy, card.kept) {
        (true, _) => "running",
        (false, Some(_)) => "kept",
        (false, None) => "interrupted",
    }
}

pub(super) fn diff(args: &DiffArgs) -> Result<ExitCode, CommandError> {
    let root = Arc::new(process::open_workspace(args.cd.as_deref())?);
    let settings = process::load_settings(Some(root.root()))?;
    let card = match kept::find(&settings.places, &root, args.name.as_deref()) {
        Ok(card) => card,
        Err(_) if args.name.is_none() => return diff_of_last_run(args, &settings, &root),
        Err(err) => return Err(err.into()),
    };
    block_on(async move {
        let changes = kept::changes_of(&settings, &root, &card).await?;
        if args.json {
            out::json(
                &json!({ "name": card.name, "files": changes.files, "tree_hash": changes.tree_hash,
                               "left": changes.left, "cannot_land": changes.cannot }),
            );
            return Ok(exit::after_output(0));
        }
        show(&changes, args.stat);
        Ok(exit::after_output(0))
    })
}

/// Shows the changes that landed last, if there is no kept run.
fn diff_of_last_run(
    args: &DiffArgs,
    settings: &Settings,
    root: &Root,
) -> Result<ExitCode, CommandError> {
    let (session, files) =
        block_on(async { Ok(last_changes(settings, root).await?) }).map_err(|_| {
            CommandError::usage("this workspace has no kept run and no landed run")
                .hint("`windlass status --all` lists kept runs of other workspaces")
        })?;
    if args.json {
        out::json(&json!({ "session": session, "files": files }));
        return Ok(exit::after_output(0));
    }
    say!("no kept run; these are the last landed changes of session {session}");
    show_files(&files, args.stat);
    Ok(exit::after_output(0))
}

fn show(changes: &Changes, stat: bool) {
    show_files(&changes.files, stat);
    for (path, why) in &changes.cannot {
        say!("cannot land: {}: {why}", message(path));
    }
    if !changes.left.is_empty() {
        let left = counted(changes.left.len(), "ignored or generated path");
        say!("{left} will not land");
    }
}

fn show_files(files: &[FileChange], stat: bool) {
    for file in files {
        let (sign, from) = match &file.change {
            Change::Created => ('+', String::new()),
            Change::Deleted => ('-', String::new()),
            Change::Modified => ('~', String::new()),
            Change::MovedFrom(from) => ('>', format!(" (was {})", one_line(from))),
        };
        match &file.diff {
            // A program gets the raw diff, to apply it; a terminal gets a sanitized one.
            Some(diff) if !stat && !std::io::stdout().is_terminal() => out::out(diff),
            Some(diff) if !stat => out::out(&marked_block(diff)),
            _ => out::out(&format!(
                "{sign} {}{from} {}\n",
                one_line(&file.path),
                file.line_counts()
            )),
        }
    }
}

pub(super) fn discard(args: &DiscardArgs) -> Result<ExitCode, CommandError> {
    let settings = process::load_settings(None)?;
    let slot = kept::shelf(&settings.places)
        .open(&args.name)
        .map_err(|err| CommandError::usage(err.to_string()))?;
    if slot.has_pending_landing() {
        let why = format!(
            "{} has landed, but its landing is not in the log yet",
            args.name
        );
        return Err(
            CommandError::failed(why).hint("free some disk space, then run any command again")
        );
    }
    let question = format!(
        "delete {} with {}? [y/N] ",
        args.name,
        counted(slot.meta.files, "changed file")
    );
    if !args.yes && !super::sessions::confirmed(&question)? {
        return Err(CommandError::new(exit::ASKED, "nothing was deleted")
            .hint("use `--yes` to delete it without confirmation"));
    }
    let card = slot.meta.clone();
    slot.discard()
        .map_err(|err| CommandError::failed(err.to_string()))?;
    let discarded = EventKind::Discarded {
        name: card.name.clone(),
    };
    let logged = block_on(async { Ok(kept::note(&settings, &card, discarded).await?) });
    if let Err(why) = logged {
        say!(
            "warning: the deletion could not be logged in the session: {}",
            message(&why.message())
        );
    }
    say!("deleted {}", args.name);
    Ok(exit::after_output(0))
}

/// Deletes kept runs that are too old or too large, and prints the reason for each.
pub(super) fn gc(
    places: &Places,
    max_bytes: u64,
    max_age: Duration,
    dry_run: bool,
    as_json: bool,
) -> Result<ExitCode, CommandError> {
    let shelf = kept::shelf(places);
    let failed = |err: String| CommandError::failed(err);
    let (mut deleted, mut freed) = (Vec::new(), 0);
    for (card, why) in shelf.surplus(max_bytes, max_age) {
        if !dry_run {
            // Another process may have opened it since it was listed.
            let Ok(slot) = shelf.open(&card.name) else {
                continue;
            };
            slot.discard().map_err(|err| failed(err.to_string()))?;
        }
        freed += card.bytes;
        deleted.push(json!({ "name": card.name, "bytes": card.bytes, "why": why }));
        if !as_json {
            let megabytes = card.bytes.div_ceil(1 << 20);
            out::out(&format!(
                "{} {} ({megabytes} MB): {why}\n",
                verb(dry_run),
                card.name
            ));
        }
    }
    let left = shelf.list();
    let kept: u64 = left.iter().map(|(card, _)| card.bytes).sum();
    let undo = undo_contents(&places.undo_dir()).and_then(|contents| contents.used());
    let undo = undo.map_err(|err| failed(err.to_string()))?;
    if as_json {
        out::json(
            &json!({ "dry_run": dry_run, "gone": deleted, "bytes": freed, "kept_runs": left.len(),
                           "kept_bytes": kept, "undo_bytes": undo, "undo_cap": UNDO_BYTES }),
        );
        return Ok(exit::after_output(0));
    }
    let megabytes = |bytes: u64| bytes.div_ceil(1 << 20);
    out::out(&format!(
        "kept runs: {} with {} MB (limits: {} MB, {} days); undo data: {} MB of {} MB (the oldest is deleted \
         automatically)\n",
        left.len(),
        megabytes(kept),
        megabytes(max_bytes),
        max_age.as_secs() / 86_400,
        megabytes(undo),
        megabytes(UNDO_BYTES),
    ));
    Ok(exit::after_output(0))
}

fn verb(dry_run: bool) -> &'static str {
    if dry_run { "would delete" } else { "deleted" }
}
