//! Creates a session from a file of Windlass or of another agent.
//!
//! ```
//! use windlass::machine::SessionLog;
//! use windlass::sessions::{ImportRequest, ImportRow, import_session};
//! use windlass::settings::Settings;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! let file = dir.path().join("export.jsonl");
//! let opened = r#"{"v":2,"seq":1,"at":"2026-11-15T00:00:00.000Z","session":"s1","trace":"t","kind":"session_opened","data":{"workspace":"/work","runtime":"native","program":"1"}}"#;
//! let started = r#"{"v":2,"seq":2,"at":"2026-11-15T00:00:01.000Z","session":"s1","run":"r1","trace":"t","kind":"run_started","data":{"prompt":{"role":"user","parts":[{"type":"text","data":{"text":"hi"}}]}}}"#;
//! std::fs::write(&file, format!("{opened}\n{started}\n"))?;
//! let (settings, store) = (Settings::none(dir.path()), SessionLog::new(dir.path().join("sessions")));
//! let request = ImportRequest { file: &file, kind: None, workspace: None, name: None };
//! let row = ImportRow::from(import_session(&store, &settings, request).await?);
//! assert_eq!((row.kind, row.runs, row.workspace.as_str()), ("windlass", 1, "/work"));
//! # Ok(())
//! # }
//! ```

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;
use windlass_core::id::SessionId;
use windlass_host::clock::SystemClock;
use windlass_host::session_log::SessionLog;
use windlass_host::workspace::{discover, open_file};
use windlass_import::{FileKind, ImportError, Imported, Importer};

use crate::error::{Error, ErrorKind};
use crate::settings::Settings;
use crate::wire;

/// A file to import as a session.
#[derive(Debug, Clone, Copy)]
pub struct ImportRequest<'a> {
    pub file: &'a Path,
    /// `None` to detect the kind from the content.
    pub kind: Option<FileKind>,
    /// The workspace of the new session; `None` for the one that the file names.
    pub workspace: Option<&'a Path>,
    /// The name of the file in errors; `None` for its path.
    pub name: Option<&'a str>,
}

/// The result of an import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ImportRow {
    /// The id of the new session.
    pub id: SessionId,
    /// The kind of the file.
    pub kind: &'static str,
    /// The id in the file, if the new one differs.
    pub was: Option<String>,
    /// The workspace of the new session.
    pub workspace: String,
    /// The number of events that were written.
    pub events: u64,
    /// The number of runs, each of which has one prompt.
    pub runs: u64,
    /// The number of calls without a result, which were closed as interrupted.
    pub interrupted: u64,
    /// The number of lines that are not part of the conversation and were left out, by kind.
    pub left_out: BTreeMap<String, u64>,
    /// The number of lines of unknown kinds, by kind. They are not in the session.
    pub unknown: BTreeMap<String, u64>,
}

impl From<Imported> for ImportRow {
    fn from(imported: Imported) -> Self {
        Self {
            id: imported.id,
            kind: imported.kind.word(),
            was: imported.was,
            workspace: imported.workspace,
            events: imported.events,
            runs: imported.runs,
            interrupted: imported.interrupted,
            left_out: imported.left_out,
            unknown: imported.unknown,
        }
    }
}

/// Imports a file without the secrets that the settings know. If it fails, no session is left behind.
pub async fn import_session(
    store: &SessionLog,
    settings: &Settings,
    request: ImportRequest<'_>,
) -> Result<Imported, Error> {
    let ImportRequest { file, kind, .. } = request;
    let chosen = request.workspace.map(|root| root.display().to_string());
    let home = settings.environment.get("HOME").map(PathBuf::from);
    let workspace = |kind: FileKind, named: &str| match &chosen {
        Some(chosen) => chosen.clone(),
        None if kind == FileKind::Windlass => named.to_owned(),
        None => workspace_of(Path::new(named), home.as_deref()),
    };
    let redactor = wire::redactor(settings)?;
    let clock = SystemClock::new();
    let importer = Importer {
        store,
        clock: &clock,
        redactor: redactor.as_ref(),
        program: env!("CARGO_PKG_VERSION").to_owned(),
        workspace: &workspace,
    };
    let mut open = || {
        let file = open_file(file).map_err(|err| std::io::Error::other(err.message))?;
        Ok(Box::new(BufReader::new(file)) as Box<dyn BufRead + Send>)
    };
    importer
        .import(&mut open, kind)
        .await
        .map_err(|err| match request.name {
            Some(name) => import_error(name, err),
            None => import_error(&file.display().to_string(), err),
        })
}

/// Finds the workspace that contains the directory of another agent: the one that a run there would use.
fn workspace_of(dir: &Path, home: Option<&Path>) -> String {
    let excluded: Vec<PathBuf> = home.map(Path::to_path_buf).into_iter().collect();
    let found = match dir.is_absolute() {
        true => discover(dir, &excluded).ok(),
        false => None,
    };
    let workspace = found.unwrap_or_else(|| dir.to_path_buf());
    workspace.display().to_string()
}

fn import_error(name: &str, err: ImportError) -> Error {
    let message = format!("{name}: {err}");
    match err {
        ImportError::Store(err) => err.into(),
        ImportError::NoKind => Error::usage(message).hint(
            "name the kind with `--from`; Claude Code keeps its files in ~/.claude/projects, Codex in ~/.codex/sessions",
        ),
        ImportError::Read(_) | ImportError::Nothing => Error::usage(message),
        ImportError::Line { .. } | ImportError::OtherVersion { .. } => {
            Error::new(ErrorKind::Content, message)
        }
    }
}
