//! `sessions import`: a session from a file. What the file is, and what of it did not come along, is said.

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

use crate::args::{ImportArgs, ImportFrom};
use crate::command_error::CommandError;
use crate::out::say;
use crate::process;
use crate::sanitize::{message, one_line};
use crate::{exit, out};
use windlass::wire;

pub(super) async fn run(store: &SessionLog, args: &ImportArgs) -> Result<ExitCode, CommandError> {
    let given = match &args.cd {
        Some(dir) => Some(
            process::open_workspace(Some(dir))?
                .root()
                .display()
                .to_string(),
        ),
        None => None,
    };
    let workspace = |kind: FileKind, named: &str| match &given {
        Some(given) => given.clone(),
        None if kind == FileKind::Windlass => named.to_owned(),
        None => around(
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
        .map_err(|err| failure(&args.file, err))?;
    if args.json {
        out::json(&as_json(&imported));
    } else {
        tell(&imported);
    }
    Ok(exit::after_output(0))
}

/// The workspace around a folder that another agent worked in: the one our own runs there would be about.
fn around(folder: &Path, home: Option<&Path>) -> String {
    let unfit: Vec<PathBuf> = home.map(Path::to_path_buf).into_iter().collect();
    let found = if folder.is_absolute() {
        discover(folder, &unfit).ok()
    } else {
        None
    };
    found
        .unwrap_or_else(|| folder.to_path_buf())
        .display()
        .to_string()
}

fn failure(file: &Path, err: ImportError) -> CommandError {
    match err {
        ImportError::Store(err) => err.into(),
        ImportError::NoKind => CommandError::usage(format!("{}: {err}", file.display())).hint(
            "say what it is with --from; Claude Code keeps its files in ~/.claude/projects, Codex in ~/.codex/sessions",
        ),
        ImportError::Read(_) | ImportError::Nothing => CommandError::usage(format!("{}: {err}", file.display())),
        other => CommandError::failed(format!("{}: {other}", file.display())),
    }
}

fn tell(imported: &Imported) {
    out::out(&format!("{}\n", imported.id));
    if imported.kind == FileKind::Windlass
        && let Some(was) = &imported.was
    {
        say!("its id {} is taken here, so it has a new one", message(was));
    }
    say!(
        "{} prompts in {} events, about {}",
        imported.runs,
        imported.events,
        one_line(&imported.workspace)
    );
    if imported.interrupted > 0 {
        say!(
            "{} calls had no result; they are marked as interrupted",
            imported.interrupted
        );
    }
    if !imported.left_out.is_empty() {
        say!(
            "left out, because it is no part of the conversation: {}",
            listed(&imported.left_out)
        );
    }
    if !imported.unknown.is_empty() {
        say!(
            "warning: lines of unknown kinds did not come along: {}",
            listed(&imported.unknown)
        );
    }
    say!(
        "hint: go on with `windlass resume {} …` in {}",
        imported.id,
        one_line(&imported.workspace)
    );
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
