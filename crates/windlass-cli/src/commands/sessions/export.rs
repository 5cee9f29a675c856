//! `sessions export`: writes a session as JSON lines, Markdown, an HTML page, an audit log or a directory. It deletes an
//! incomplete file after an error.

use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;

use windlass::core::id::SessionId;
use windlass::export::{TranscriptFormat, export_session};
use windlass::machine::SessionLog;
use windlass::{Error, ErrorKind};
use windlass_text::sanitize::escaped_json;

use super::trace;
use crate::args::ExportFormat;
use crate::command_error::CommandError;
use crate::{exit, out};

pub(super) async fn run(
    store: &SessionLog,
    id: &SessionId,
    format: ExportFormat,
    to: Option<&Path>,
) -> Result<ExitCode, CommandError> {
    let format = match format {
        ExportFormat::Jsonl => TranscriptFormat::Jsonl,
        ExportFormat::Markdown => TranscriptFormat::Markdown,
        ExportFormat::Html => TranscriptFormat::Html,
        ExportFormat::Audit => TranscriptFormat::Audit,
        ExportFormat::Trace => {
            let dir = to.ok_or_else(|| {
                CommandError::usage("a trace is a directory, and none was named")
                    .hint("name a directory that does not exist: `--to DIR`")
            })?;
            return trace::run(store, id, dir).await;
        }
    };
    let file = to.map(create).transpose()?.map(BufWriter::new);
    let is_json = format.is_json();
    let mut target = ExportTarget { file, is_json };
    match (export_session(store, id, format, &mut target).await, to) {
        (Ok(()), _) => {}
        // A reader that closed the pipe has seen enough.
        (Err(_), None) if out::stdout_error().is_some() => {}
        (Err(error), to) => {
            // The incomplete file would look like a complete export.
            let _ = to.map(std::fs::remove_file);
            return Err(error.into());
        }
    }
    Ok(exit::after_output(0))
}

/// The destination of an export: a new file, or standard output. Characters that are unsafe for a terminal are escaped
/// in JSON; the other formats do not contain them.
struct ExportTarget {
    file: Option<BufWriter<std::fs::File>>,
    is_json: bool,
}

impl Write for ExportTarget {
    /// The library writes complete UTF-8 texts.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = std::str::from_utf8(bytes).map_err(io::Error::other)?;
        let text = match self.is_json {
            true => escaped_json(text),
            false => text.into(),
        };
        match &mut self.file {
            Some(file) => file.write_all(text.as_bytes())?,
            None => out::out(&text),
        }
        match out::stdout_error() {
            Some((kind, _)) if self.file.is_none() => Err((*kind).into()),
            _ => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), Write::flush)
    }
}

pub(super) fn create(path: &Path) -> Result<std::fs::File, Error> {
    let file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    file.map_err(|err| match err.kind() {
        io::ErrorKind::AlreadyExists => Error::usage(format!("{} exists already", path.display()))
            .hint("name another file, or delete it first"),
        _ => Error::new(
            ErrorKind::Failed,
            format!("{} cannot be written: {err}", path.display()),
        ),
    })
}
