//! Imports sessions from files: exports of Windlass and the session files of other agents. Secrets are removed, as from
//! everything that is logged. A file is read twice: once to check it, once to write the session. The caller opens the
//! file; if the import fails, no session is left behind.

mod claude;
mod codex;
mod event_builder;
mod windlass_export;

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read};

use serde_json::Value;
use windlass_core::clock::{Clock, Timestamp};
use windlass_core::event::{Event, EventKind, Order, VERSION};
use windlass_core::id::{SessionId, TraceId};
use windlass_core::message::Part;
use windlass_core::redact::clean_event;
use windlass_core::store::{LogWriter, SessionStore, StoreError, StoreErrorKind, create_session};
use windlass_core::workspace::Redactor;

use self::event_builder::{EventBuilder, SourceSummary};

/// The maximum length of a line in bytes; a session log has the same limit.
const MAX_LINE: u64 = 64 << 20;
/// The number of lines that are examined to detect the kind of a file.
const DETECTION_LINES: usize = 64;

/// The kinds of session files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// An export or a session log of Windlass.
    Windlass,
    /// A session file of Claude Code.
    Claude,
    /// A rollout file of Codex.
    Codex,
}

impl FileKind {
    /// The name of the kind, as users type it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Windlass => "windlass",
            Self::Claude => "claude",
            Self::Codex => "codex",
        }
    }
}

/// Opens the file, from its beginning each time.
pub type OpenFile<'a> = dyn FnMut() -> io::Result<Box<dyn BufRead + Send>> + Send + 'a;

/// The dependencies of an import.
pub struct Importer<'a> {
    /// The store that gets the new session.
    pub store: &'a dyn SessionStore,
    /// Provides new ids, and the time for lines without a timestamp.
    pub clock: &'a dyn Clock,
    /// Removes secrets from events.
    pub redactor: &'a dyn Redactor,
    /// The version of the program, for the first line of the new log.
    pub program: String,
    /// Maps the workspace path in a file to the one on this machine, which is stored in the session.
    pub workspace: &'a (dyn Fn(FileKind, &str) -> String + Send + Sync),
}

/// The result of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// The id of the new session.
    pub id: SessionId,
    /// The kind of the file.
    pub kind: FileKind,
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

/// Why an import failed. No session is left behind.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file could not be read.
    #[error("the file cannot be read: {0}")]
    Read(#[from] io::Error),
    /// A line is invalid.
    #[error("line {number}: {what}; nothing was imported")]
    Line {
        /// The line number, from 1.
        number: u64,
        /// A description of the error.
        what: String,
    },
    /// A line was written by a version with another format.
    #[error(
        "line {number} was written by another version (format {found}, this program reads {VERSION}); export the session \
         again with a version that writes format {VERSION}. Nothing was imported"
    )]
    OtherVersion {
        /// The line number, from 1.
        number: u64,
        /// The format version of the line.
        found: u64,
    },
    /// The kind of the file was not recognised.
    #[error(
        "this is not a known session file: neither an export of windlass, nor a session file of Claude Code or Codex"
    )]
    NoKind,
    /// The file contains no conversation.
    #[error("there is no prompt in this file; nothing was imported")]
    Nothing,
    /// The session could not be written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Importer<'_> {
    /// Imports a session. Without a kind, it is detected from the content of the file.
    pub async fn import(
        &self,
        open: &mut OpenFile<'_>,
        kind: Option<FileKind>,
    ) -> Result<Imported, ImportError> {
        let kind = match kind {
            Some(kind) => kind,
            None => detect(open()?)?.ok_or(ImportError::NoKind)?,
        };
        match kind {
            FileKind::Windlass => windlass_export::import(self, open).await,
            FileKind::Claude => {
                let (source, mut reader) = claude::ClaudeReader::plan(open()?)?;
                self.foreign(kind, source, &mut reader, open).await
            }
            FileKind::Codex => {
                let (source, mut reader) = codex::CodexReader::plan(open()?)?;
                self.foreign(kind, source, &mut reader, open).await
            }
        }
    }

    /// Writes the session of another agent; if that fails, the incomplete session is deleted.
    async fn foreign(
        &self,
        kind: FileKind,
        source: SourceSummary,
        reader: &mut dyn ForeignReader,
        open: &mut OpenFile<'_>,
    ) -> Result<Imported, ImportError> {
        let workspace = (self.workspace)(kind, &source.workspace);
        let (id, writer) = create_session(self.store, self.clock, None).await?;
        let mut session = SessionWriter::new(self, id.clone(), writer);
        let mut builder = EventBuilder::new(kind, &source, self.clock.now());
        builder.add(EventKind::SessionOpened {
            workspace: workspace.clone(),
            runtime: kind.word().to_owned(),
            model: source.model.clone(),
            program: self.program.clone(),
        });
        let written = write(reader, source.lines, open, &mut builder, &mut session).await;
        self.delete_if_failed(&id, session, written).await?;
        Ok(Imported {
            id,
            kind,
            was: source.id,
            workspace,
            events: builder.events,
            runs: builder.runs,
            interrupted: builder.interrupted,
            left_out: builder.left_out,
            unknown: builder.unknown,
        })
    }

    /// Deletes the session if writing it failed: an incomplete session would look complete.
    async fn delete_if_failed(
        &self,
        id: &SessionId,
        session: SessionWriter<'_>,
        written: Result<(), ImportError>,
    ) -> Result<(), ImportError> {
        drop(session);
        if written.is_err() {
            // The first error is returned; an error of the deletion would only hide it.
            let _ = self.store.delete(id).await;
        }
        written
    }
}

/// The second pass over the file of another agent, line by line.
trait ForeignReader: Send {
    /// Processes one line and adds its events to the builder.
    fn line(&mut self, number: u64, line: &Value, builder: &mut EventBuilder);
}

async fn write(
    reader: &mut dyn ForeignReader,
    last: u64,
    open: &mut OpenFile<'_>,
    builder: &mut EventBuilder,
    session: &mut SessionWriter<'_>,
) -> Result<(), ImportError> {
    let mut lines = JsonLineReader::new(open()?);
    while let Some((number, line)) = lines.next()?
        && number <= last
    {
        builder.at_line(number);
        reader.line(number, &line, builder);
        session.write_all(builder.take()).await?;
    }
    if builder.runs == 0 {
        return Err(ImportError::Nothing);
    }
    builder.finish();
    session.write_all(builder.take()).await?;
    session.sync().await
}

/// Writes events to the log of the new session.
struct SessionWriter<'a> {
    importer: &'a Importer<'a>,
    id: SessionId,
    writer: Box<dyn LogWriter>,
    trace: TraceId,
    seq: u64,
}

impl<'a> SessionWriter<'a> {
    fn new(importer: &'a Importer<'a>, id: SessionId, writer: Box<dyn LogWriter>) -> Self {
        let trace = TraceId::fresh(importer.clock.entropy(), importer.clock.entropy());
        Self {
            importer,
            id,
            writer,
            trace,
            seq: 0,
        }
    }

    async fn write_all(
        &mut self,
        events_to_write: Vec<event_builder::UnnumberedEvent>,
    ) -> Result<(), ImportError> {
        for event_builder::UnnumberedEvent { at, run, kind } in events_to_write {
            self.write(Event {
                v: VERSION,
                order: Order::Durable { seq: self.seq + 1 },
                at,
                session: self.id.clone(),
                run,
                trace: self.trace.clone(),
                kind,
            })
            .await?;
        }
        Ok(())
    }

    /// Removes secrets from an event and writes it.
    async fn write(&mut self, mut event: Event) -> Result<(), ImportError> {
        clean_event(self.importer.redactor, &mut event.kind);
        let line = serde_json::to_string(&event).map_err(|err| {
            StoreError::new(
                StoreErrorKind::Io,
                format!("an event could not be written as JSON: {err}"),
            )
        })?;
        self.writer.append(&event, &line).await?;
        self.seq += 1;
        Ok(())
    }

    async fn sync(&mut self) -> Result<(), ImportError> {
        Ok(self.writer.sync().await?)
    }
}

/// Reads the lines of a file as JSON, one at a time, with their numbers. Empty lines are skipped.
struct JsonLineReader {
    file: Box<dyn BufRead + Send>,
    number: u64,
    buffer: Vec<u8>,
}

impl JsonLineReader {
    fn new(file: Box<dyn BufRead + Send>) -> Self {
        Self {
            file,
            number: 0,
            buffer: Vec::new(),
        }
    }

    /// The next line that is not empty, unparsed.
    fn next_raw(&mut self) -> Result<Option<(u64, &[u8])>, ImportError> {
        loop {
            self.buffer.clear();
            let read = self
                .file
                .by_ref()
                .take(MAX_LINE + 1)
                .read_until(b'\n', &mut self.buffer)?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            if read as u64 > MAX_LINE {
                return Err(wrong(self.number, "it is longer than 64 MiB"));
            }
            if !self.buffer.trim_ascii().is_empty() {
                return Ok(Some((self.number, self.buffer.trim_ascii())));
            }
        }
    }

    fn next(&mut self) -> Result<Option<(u64, Value)>, ImportError> {
        let Some((number, line)) = self.next_raw()? else {
            return Ok(None);
        };
        match serde_json::from_slice::<Value>(line) {
            Ok(value) if value.is_object() => Ok(Some((number, value))),
            Ok(_) => Err(wrong(number, "it is not a JSON object")),
            Err(err) => Err(wrong(number, &format!("it is not JSON: {err}"))),
        }
    }
}

fn wrong(number: u64, what: &str) -> ImportError {
    ImportError::Line {
        number,
        what: what.to_owned(),
    }
}

/// Detects the kind of a file by the fields of its first lines.
fn detect(file: Box<dyn BufRead + Send>) -> Result<Option<FileKind>, ImportError> {
    let mut lines = JsonLineReader::new(file);
    for _ in 0..DETECTION_LINES {
        let Some((_, line)) = lines.next()? else {
            break;
        };
        let has = |key: &str| line.get(key).is_some();
        if has("v") && has("kind") && has("session") {
            return Ok(Some(FileKind::Windlass));
        }
        if has("payload") && has("type") {
            return Ok(Some(FileKind::Codex));
        }
        if has("type") && (has("sessionId") || has("parentUuid") || has("leafUuid")) {
            return Ok(Some(FileKind::Claude));
        }
    }
    Ok(None)
}

/// The string in a field.
fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}

/// The timestamp of a line, if it has one.
fn timestamp(line: &Value) -> Option<Timestamp> {
    serde_json::from_value(line.get("timestamp")?.clone()).ok()
}

#[cfg(test)]
#[path = "import_tests.rs"]
mod tests;

/// The number in a field, or 0.
fn number(value: &Value, key: &str) -> u64 {
    value.get(key).and_then(Value::as_u64).unwrap_or(0)
}

/// The values of the list in a field; none if there is no list.
fn items<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    let list = value.get(key).and_then(Value::as_array);
    list.into_iter().flatten()
}

/// The `text` field of a content block as a part of a message.
fn text_part(piece: &Value) -> Part {
    let text = text(piece, "text").unwrap_or_default().to_owned();
    Part::Text { text }
}
