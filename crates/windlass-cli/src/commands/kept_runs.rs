//! `status`, `diff`, `discard` and `sessions gc`: list kept runs, show their changes and delete them. [`recover`] finishes
//! or rolls back the landings of a dead process before any other command starts.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;

use windlass::core::workspace::{Change, FileChange, Files};
use windlass::kept::{self, DiffReport, GcLimits};
use windlass::settings::Places;
use windlass::transcript::counted;
use windlass_text::sanitize::{marked_block, message, one_line};

use super::block_on;
use crate::args::{DiffArgs, DiscardArgs, StatusArgs};
use crate::command_error::CommandError;
use crate::exit;
use crate::out::{self, say};
use crate::process;

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
    let status = kept::status(&places, root.as_ref().map(Files::root));
    if args.json {
        out::json(&status);
        return Ok(exit::after_output(0));
    }
    if status.kept.is_empty() {
        out::out("no kept runs\n");
    }
    for run in &status.kept {
        let files = counted(run.files, "file");
        let size = run.bytes.div_ceil(1 << 20);
        out::out(&format!(
            "{:24} {:12} {files:>10}  {size} MB  session {}\n",
            run.name, run.state, run.session
        ));
        if root.is_none() {
            out::out(&format!(
                "  {}\n",
                one_line(&run.root.display().to_string())
            ));
        }
    }
    for line in &status.recovered {
        out::out(&format!("{}\n", one_line(line)));
    }
    if let Some(run) = status.kept.first() {
        out::out(&format!(
            "\nwindlass diff {0} · land {0} · resume {0} · discard {0}\n",
            run.name
        ));
    }
    Ok(exit::after_output(0))
}

pub(super) fn diff(args: &DiffArgs) -> Result<ExitCode, CommandError> {
    let root = Arc::new(process::open_workspace(args.cd.as_deref())?);
    let settings = process::load_settings(Some(root.root()))?;
    let name = args.name.as_deref();
    let report = block_on(async { Ok(kept::diff(&settings, &root, name).await?) })?;
    if args.json {
        out::json(&report);
        return Ok(exit::after_output(0));
    }
    if let DiffReport::Landed { session, .. } = &report {
        say!("no kept run; these are the last landed changes of session {session}");
    }
    show_files(report.files(), args.stat);
    if let DiffReport::Kept {
        left, cannot_land, ..
    } = &report
    {
        for (path, why) in cannot_land {
            say!("cannot land: {}: {why}", message(path));
        }
        if !left.is_empty() {
            let left = counted(left.len(), "ignored or generated path");
            say!("{left} will not land");
        }
    }
    Ok(exit::after_output(0))
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
    let run = kept::check_discard(&settings.places, &args.name)?;
    let question = format!(
        "delete {} with {}? [y/N] ",
        args.name,
        counted(run.files, "changed file")
    );
    if !args.yes && !super::sessions::confirmed(&question)? {
        return Err(CommandError::new(exit::ASKED, "nothing was deleted")
            .hint("use `--yes` to delete it without confirmation"));
    }
    block_on(async { Ok(kept::discard(&settings, &args.name).await?) })?;
    say!("deleted {}", args.name);
    Ok(exit::after_output(0))
}

/// Deletes kept runs that are too old or too large, and prints the reason for each.
pub(super) fn gc(
    places: &Places,
    limits: &GcLimits,
    dry_run: bool,
    as_json: bool,
) -> Result<ExitCode, CommandError> {
    let report = kept::gc(places, limits, dry_run)?;
    if as_json {
        out::json(&report);
        return Ok(exit::after_output(0));
    }
    let megabytes = |bytes: u64| bytes.div_ceil(1 << 20);
    let verb = if dry_run { "would delete" } else { "deleted" };
    for run in &report.gone {
        let size = megabytes(run.bytes);
        out::out(&format!("{verb} {} ({size} MB): {}\n", run.name, run.why));
    }
    out::out(&format!(
        "kept runs: {} with {} MB (limits: {} MB, {} days); undo data: {} MB of {} MB (the oldest is deleted \
         automatically)\n",
        report.kept_runs,
        megabytes(report.kept_bytes),
        megabytes(limits.bytes),
        limits.age.as_secs() / 86_400,
        megabytes(report.undo_bytes),
        megabytes(report.undo_cap),
    ));
    Ok(exit::after_output(0))
}
