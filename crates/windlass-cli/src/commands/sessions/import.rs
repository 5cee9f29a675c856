//! `sessions import`: creates a session from a file, and reports the parts of the file that it did not import.

use std::collections::BTreeMap;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;
use windlass::core::workspace::Files;
use windlass::imports::{FileKind, ImportError, Imported, Importer};
use windlass::machine::SessionLog;
use windlass::machine::SystemClock;
use windlass::machine::{discover, open_file};
use windlass::transcript::counted;

use crate::args::{ImportArgs, ImportFrom};
use crate::command_error::CommandError;
use crate::out::say;
use crate::process;
use crate::sanitize::{message, one_line};
use crate::{exit, out};
use windlass::wire;

pub(super) async fn run(store: &SessionLog, args: &ImportArgs) -> Result<ExitCode, CommandError> {
    let chosen = match &args.cd {
        Some(dir) => Some(
            process::open_workspace(Some(dir))?
                .root()
                .display()
                .to_string(),
        ),
        None => None,
    };
    let workspace = |kind: FileKind, named: &str| match &chosen {
        Some(chosen) => chosen.clone(),
        None if kind == FileKind::Windlass => named.to_owned(),
        None => workspace_of(
            Path::new(named),
            std::env::var_os("HOME").map(PathBuf::from).as_deref(),
        ),
    };
    let redactor = wire::redactor(&process::load_settings(None)?)?;
    let clock = SystemClock::new();
    let importer = Importer {
        store,
        clock: &clock,
        redactor: redactor.as_ref(),
        program: env!("CARGO_PKG_VERSION").to_owned(),
        workspace: &workspace,
    };
    let mut open = || {
        let file = open_file(&args.file).map_err(|err| std::io::Error::other(err.message))?;
        Ok(Box::new(BufReader::new(file)) as Box<dyn std::io::BufRead + Send>)
    };
    let kind = match args.from {
        ImportFrom::Auto => None,
        ImportFrom::Windlass => Some(FileKind::Windlass),
        ImportFrom::Claude => Some(FileKind::Claude),
        ImportFrom::Codex => Some(FileKind::Codex),
    };
    let imported = importer
        .import(&mut open, kind)
        .await
        .map_err(|err| import_error(&args.file, err))?;
    if args.json {
        out::json(&as_json(&imported));
    } else {
        print_summary(&imported);
    }
    Ok(exit::after_output(0))
}

/// Finds the workspace that contains the directory of another agent: the one that a run there would use.
fn workspace_of(dir: &Path, home: Option<&Path>) -> String {
    let excluded: Vec<PathBuf> = home.map(Path::to_path_buf).into_iter().collect();
    let found = if dir.is_absolute() {
        discover(dir, &excluded).ok()
    } else {
        None
    };
    found
        .unwrap_or_else(|| dir.to_path_buf())
        .display()
        .to_string()
}

fn import_error(file: &Path, err: ImportError) -> CommandError {
    match err {
        ImportError::Store(err) => err.into(),
        ImportError::NoKind => CommandError::usage(format!("{}: {err}", file.display())).hint(
            "name the kind with `--from`; Claude Code keeps its files in ~/.claude/projects, Codex in ~/.codex/sessions",
        ),
        ImportError::Read(_) | ImportError::Nothing => CommandError::usage(format!("{}: {err}", file.display())),
        other => CommandError::failed(format!("{}: {other}", file.display())),
    }
}

fn print_summary(imported: &Imported) {
    out::out(&format!("{}\n", imported.id));
    if imported.kind == FileKind::Windlass
        && let Some(was) = &imported.was
    {
        say!(
            "the id {} already exists, so the session got a new one",
            message(was)
        );
    }
    say!(
        "imported {} and {} for {}",
        plural(imported.runs, "prompt"),
        plural(imported.events, "event"),
        one_line(&imported.workspace)
    );
    if imported.interrupted > 0 {
        say!(
            "marked {} without a result as interrupted",
            plural(imported.interrupted, "call")
        );
    }
    if !imported.left_out.is_empty() {
        say!(
            "omitted, because it is not part of the conversation: {}",
            listed(&imported.left_out)
        );
    }
    if !imported.unknown.is_empty() {
        say!(
            "warning: omitted lines of unknown kinds: {}",
            listed(&imported.unknown)
        );
    }
    say!(
        "hint: continue with `windlass resume {} …` in {}",
        imported.id,
        one_line(&imported.workspace)
    );
}

fn plural(count: u64, noun: &str) -> String {
    counted(usize::try_from(count).unwrap_or(usize::MAX), noun)
}

fn listed(kinds: &BTreeMap<String, u64>) -> String {
    one_line(
        &kinds
            .iter()
            .map(|(kind, count)| format!("{count} of {kind}"))
            .collect::<Vec<_>>()
            .join(", "),
    )
}

fn as_json(imported: &Imported) -> serde_json::Value {
    json!({
        "id": imported.id, "kind": imported.kind.word(), "was": imported.was, "workspace": imported.workspace,
        "events": imported.events, "runs": imported.runs, "interrupted": imported.interrupted,
        "left_out": imported.left_out, "unknown": imported.unknown,
    })
}
