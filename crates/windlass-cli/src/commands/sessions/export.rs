//! `sessions export`: writes a session as JSON lines, Markdown, an HTML page, an audit log or a directory. It reads and
//! writes one event at a time, and deletes an incomplete file after an error.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;

use futures_util::StreamExt;
use windlass::core::event::Event;
use windlass::core::id::SessionId;
use windlass::core::store::SessionStore;
use windlass::machine::SessionLog;
use windlass::transcript::Transcript;

use super::{audit, html, markdown, trace};
use crate::args::ExportFormat;
use crate::command_error::CommandError;
use crate::sanitize::{json_line, plain};
use crate::{exit, out};

/// Renders events in one of the formats.
enum ExportRenderer {
    Jsonl,
    Markdown(Box<markdown::MarkdownExport>),
    Html(Box<html::HtmlExport>),
    Audit(Box<Transcript>),
}

impl ExportRenderer {
    fn begin(&self) -> String {
        match self {
            Self::Html(page) => page.begin(),
            _ => String::new(),
        }
    }

    fn event(&mut self, event: &Event) -> String {
        match self {
            Self::Jsonl => json_line(event),
            // Users view Markdown files in terminals, too.
            Self::Markdown(text) => plain(&text.event(event)).into_owned(),
            Self::Html(page) => page.event(event),
            Self::Audit(transcript) => audit::row(event, &transcript.line(event))
                .map(|row| json_line(&row))
                .unwrap_or_default(),
        }
    }

    fn end(&mut self) -> String {
        match self {
            Self::Html(page) => page.end(),
            _ => String::new(),
        }
    }
}

pub(super) async fn run(
    store: &SessionLog,
    id: &SessionId,
    format: ExportFormat,
    to: Option<&Path>,
) -> Result<ExitCode, CommandError> {
    let mut renderer = match format {
        ExportFormat::Jsonl => ExportRenderer::Jsonl,
        ExportFormat::Markdown => ExportRenderer::Markdown(Box::default()),
        ExportFormat::Html => ExportRenderer::Html(Box::new(html::HtmlExport::new(id))),
        ExportFormat::Audit => ExportRenderer::Audit(Box::default()),
        ExportFormat::Trace => {
            let dir = to.ok_or_else(|| {
                CommandError::usage("a trace is a directory, and none was named")
                    .hint("name a directory that does not exist: `--to DIR`")
            })?;
            return trace::run(store, id, dir).await;
        }
    };
    let mut target = ExportTarget::open(to)?;
    match write(store, id, &mut renderer, &mut target).await {
        Ok(()) => Ok(exit::after_output(0)),
        Err(error) => {
            target.remove();
            Err(error)
        }
    }
}

async fn write(
    store: &SessionLog,
    id: &SessionId,
    renderer: &mut ExportRenderer,
    target: &mut ExportTarget<'_>,
) -> Result<(), CommandError> {
    let mut events = store.read(id, 1);
    let mut begun = false;
    while let Some(event) = events.next().await {
        let event = event?;
        if !begun {
            begun = true;
            target.write(&renderer.begin())?;
        }
        target.write(&renderer.event(&event))?;
        if out::stdout_error().is_some() {
            return Ok(());
        }
    }
    target.write(&renderer.end())?;
    target.flush()
}

/// The destination of an export: a new file, or standard output.
struct ExportTarget<'a> {
    file: Option<(std::io::BufWriter<std::fs::File>, &'a Path)>,
}

impl<'a> ExportTarget<'a> {
    fn open(to: Option<&'a Path>) -> Result<Self, CommandError> {
        let file = to
            .map(|path| create(path).map(|file| (std::io::BufWriter::new(file), path)))
            .transpose()?;
        Ok(Self { file })
    }

    fn write(&mut self, text: &str) -> Result<(), CommandError> {
        match &mut self.file {
            Some((file, _)) => file.write_all(text.as_bytes())?,
            None if !text.is_empty() => out::out(text),
            None => {}
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), CommandError> {
        if let Some((file, _)) = &mut self.file {
            file.flush()?;
        }
        Ok(())
    }

    /// Deletes the incomplete file, because it would look like a complete export.
    fn remove(self) {
        if let Some((_, path)) = self.file {
            let _ = std::fs::remove_file(path);
        }
    }
}

pub(super) fn create(path: &Path) -> Result<std::fs::File, CommandError> {
    let file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    file.map_err(|err| match err.kind() {
        std::io::ErrorKind::AlreadyExists => {
            CommandError::usage(format!("{} exists already", path.display()))
                .hint("name another file, or delete it first")
        }
        _ => CommandError::failed(format!("{} cannot be written: {err}", path.display())),
    })
}
