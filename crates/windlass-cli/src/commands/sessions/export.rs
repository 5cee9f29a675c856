//! `sessions export`: a session as lines, as a text, as a page, as an audit log, or as a folder. Read and written one
//! event at a time; a file that could not be written whole is taken away again.

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

/// What makes text of events.
enum Form {
    Jsonl,
    Markdown(Box<markdown::Markdown>),
    Html(Box<html::Page>),
    Audit(Box<Transcript>),
}

impl Form {
    fn begin(&self) -> String {
        match self {
            Self::Html(page) => page.begin(),
            _ => String::new(),
        }
    }

    fn event(&mut self, event: &Event) -> String {
        match self {
            Self::Jsonl => json_line(event),
            // A file is looked at in a terminal, too.
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
    let mut form = match format {
        ExportFormat::Jsonl => Form::Jsonl,
        ExportFormat::Markdown => Form::Markdown(Box::default()),
        ExportFormat::Html => Form::Html(Box::new(html::Page::new(id))),
        ExportFormat::Audit => Form::Audit(Box::default()),
        ExportFormat::Trace => {
            let folder = to.ok_or_else(|| {
                CommandError::usage("a trace is a folder, and none was named")
                    .hint("name one that is not there: --to DIR")
            })?;
            return trace::run(store, id, folder).await;
        }
    };
    let mut sink = Sink::open(to)?;
    match write(store, id, &mut form, &mut sink).await {
        Ok(()) => Ok(exit::after_output(0)),
        Err(failure) => {
            sink.remove();
            Err(failure)
        }
    }
}

async fn write(
    store: &SessionLog,
    id: &SessionId,
    form: &mut Form,
    sink: &mut Sink<'_>,
) -> Result<(), CommandError> {
    let mut events = store.read(id, 1);
    let mut begun = false;
    while let Some(event) = events.next().await {
        let event = event?;
        if !begun {
            begun = true;
            sink.write(&form.begin())?;
        }
        sink.write(&form.event(&event))?;
        if out::stdout_error().is_some() {
            return Ok(());
        }
    }
    sink.write(&form.end())?;
    sink.flush()
}

/// A new file of the user's, or standard output.
struct Sink<'a> {
    file: Option<(std::io::BufWriter<std::fs::File>, &'a Path)>,
}

impl<'a> Sink<'a> {
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

    /// Half an export would look like a whole one.
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
                .hint("name another file, or remove it first")
        }
        _ => CommandError::failed(format!("{} cannot be written: {err}", path.display())),
    })
}
