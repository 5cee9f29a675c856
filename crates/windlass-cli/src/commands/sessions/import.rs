//! `sessions import`: creates a session from a file, and reports the parts of the file that it did not import.

use std::collections::BTreeMap;
use std::process::ExitCode;

use windlass::core::workspace::Files;
use windlass::imports::{FileKind, Imported};
use windlass::machine::SessionLog;
use windlass::sessions::{ImportRequest, ImportRow, import_session};
use windlass::transcript::counted;

use crate::args::{ImportArgs, ImportFrom};
use crate::command_error::CommandError;
use crate::out::say;
use crate::process;
use crate::sanitize::{message, one_line};
use crate::{exit, out};

pub(super) async fn run(store: &SessionLog, args: &ImportArgs) -> Result<ExitCode, CommandError> {
    let root = args
        .cd
        .as_ref()
        .map(|dir| process::open_workspace(Some(dir)))
        .transpose()?;
    let request = ImportRequest {
        file: &args.file,
        kind: match args.from {
            ImportFrom::Auto => None,
            ImportFrom::Windlass => Some(FileKind::Windlass),
            ImportFrom::Claude => Some(FileKind::Claude),
            ImportFrom::Codex => Some(FileKind::Codex),
        },
        workspace: root.as_ref().map(Files::root),
        name: None,
    };
    let imported = import_session(store, &process::load_settings(None)?, request).await?;
    if args.json {
        out::json(&ImportRow::from(imported));
    } else {
        print_summary(&imported);
    }
    Ok(exit::after_output(0))
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
