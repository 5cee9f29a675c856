//! Sessions from files: our own export, and the session files of other agents. What comes in is cleaned of secrets
//! like everything that is logged, and is read twice: once to find what is wrong with it, once to write it. It reads
//! through what the caller opens, and leaves nothing behind when it fails.

mod claude;
mod codex;
mod own;
mod weave;

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

use self::weave::{About, Weave};

/// The longest line that is read; a log holds no longer one.
const MAX_LINE: u64 = 64 << 20;
/// Lines that are looked at to tell what a file is.
const LOOK_AT: usize = 64;

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// Our own export, or our own log.
    Windlass,
    /// A session file of Claude Code.
    Claude,
    /// A rollout file of Codex.
    Codex,
}

impl FileKind {
    /// Its word, as people type it.
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

/// Where sessions go that come from files.
pub struct Importer<'a> {
    /// Where they are kept.
    pub store: &'a dyn SessionStore,
    /// For new ids, and for lines that do not say when they were written.
    pub clock: &'a dyn Clock,
    /// What takes secrets out.
    pub redactor: &'a dyn Redactor,
    /// The version of the program, for the first line of a log that is made here.
    pub program: String,
    /// What the workspace that a file names is here; the session is about that one from now on.
    pub workspace: &'a (dyn Fn(FileKind, &str) -> String + Send + Sync),
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// The session that is there now.
    pub id: SessionId,
    /// What the file was.
    pub kind: FileKind,
    /// The id it had, when that is taken here.
    pub was: Option<String>,
    /// The workspace it is about.
    pub workspace: String,
    /// Events that were written.
    pub events: u64,
    /// Prompts in it.
    pub runs: u64,
    /// Calls that had no result and got one that says so.
    pub interrupted: u64,
    /// What is not part of the conversation and was left out, by kind.
    pub left_out: BTreeMap<String, u64>,
    /// Lines of kinds that nobody here knows, by kind. They are not in the session.
    pub unknown: BTreeMap<String, u64>,
}

/// Why a file could not be taken in. Nothing of it is left behind.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// It could not be read.
    #[error("the file cannot be read: {0}")]
    Read(#[from] io::Error),
    /// A line of it is wrong.
    #[error("line {number}: {what}; nothing was imported")]
    Line {
        /// Counted from 1.
        number: u64,
        /// What is wrong.
        what: String,
    },
    /// A line of it was written by a version with another format.
    #[error(
        "line {number} was written by another version (format {found}, this program reads {VERSION}); export the session \
         again with a version that writes format {VERSION}. Nothing was imported"
    )]
    OtherVersion {
        /// Counted from 1.
        number: u64,
        /// The format it has.
        found: u64,
    },
    /// It is nothing that is known here.
    #[error(
        "this is no session file that is known here: neither an export of ours, nor one of Claude Code, nor one of \
         Codex"
    )]
    NoKind,
    /// There is no conversation in it.
    #[error("there is no prompt in this file; nothing was imported")]
    Nothing,
    /// It could not be kept.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Importer<'_> {
    /// Takes a session in. Without a kind it is told by what the file holds.
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
            FileKind::Windlass => own::import(self, open).await,
            FileKind::Claude => {
                let (about, mut reader) = claude::Reader::plan(open()?)?;
                self.foreign(kind, about, &mut reader, open).await
            }
            FileKind::Codex => {
                let (about, mut reader) = codex::Reader::plan(open()?)?;
                self.foreign(kind, about, &mut reader, open).await
            }
        }
    }

    /// Writes the session of another agent, and takes away what was written when it fails half way.
    async fn foreign(
        &self,
        kind: FileKind,
        about: About,
        reader: &mut dyn Foreign,
        open: &mut OpenFile<'_>,
    ) -> Result<Imported, ImportError> {
        let workspace = (self.workspace)(kind, &about.workspace);
        let (id, writer) = create_session(self.store, self.clock, None).await?;
        let mut pen = Pen::new(self, id.clone(), writer);
        let mut weave = Weave::new(kind, &about, self.clock.now());
        weave.fact(EventKind::SessionOpened {
            workspace: workspace.clone(),
            runtime: kind.word().to_owned(),
            model: about.model.clone(),
            program: self.program.clone(),
        });
        let written = write(reader, about.lines, open, &mut weave, &mut pen).await;
        self.unless_failed(&id, pen, written).await?;
        Ok(Imported {
            id,
            kind,
            was: about.id,
            workspace,
            events: weave.events,
            runs: weave.runs,
            interrupted: weave.interrupted,
            left_out: weave.left_out,
            unknown: weave.unknown,
        })
    }

    /// Half a session is worse than none: it would look whole.
    async fn unless_failed(
        &self,
        id: &SessionId,
        pen: Pen<'_>,
        written: Result<(), ImportError>,
    ) -> Result<(), ImportError> {
        drop(pen);
        if written.is_err() {
            // What failed is told; that it could not be taken away as well would only hide it.
            let _ = self.store.delete(id).await;
        }
        written
    }
}

/// Reads the file of another agent for the second time, line by line.
trait Foreign: Send {
    /// Takes one line.
    fn line(&mut self, number: u64, line: &Value, weave: &mut Weave);
}

async fn write(
    reader: &mut dyn Foreign,
    last: u64,
    open: &mut OpenFile<'_>,
    weave: &mut Weave,
    pen: &mut Pen<'_>,
) -> Result<(), ImportError> {
    let mut lines = Lines::new(open()?);
    while let Some((number, line)) = lines.next()?
        && number <= last
    {
        weave.at_line(number);
        reader.line(number, &line, weave);
        pen.write_all(weave.take()).await?;
    }
    if weave.runs == 0 {
        return Err(ImportError::Nothing);
    }
    weave.finish();
    pen.write_all(weave.take()).await?;
    pen.sync().await
}

/// Writes events into the new log.
struct Pen<'a> {
    importer: &'a Importer<'a>,
    id: SessionId,
    writer: Box<dyn LogWriter>,
    trace: TraceId,
    seq: u64,
}

impl<'a> Pen<'a> {
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

    async fn write_all(&mut self, facts: Vec<weave::Fact>) -> Result<(), ImportError> {
        for weave::Fact { at, run, kind } in facts {
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

    /// Writes an event without secrets.
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

/// The lines of a file as JSON, one at a time, with their numbers. Empty ones are passed over.
struct Lines {
    file: Box<dyn BufRead + Send>,
    number: u64,
    buffer: Vec<u8>,
}

impl Lines {
    fn new(file: Box<dyn BufRead + Send>) -> Self {
        Self {
            file,
            number: 0,
            buffer: Vec::new(),
        }
    }

    /// The next line as it stands.
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

/// What a file is, by its first lines that say so.
fn detect(file: Box<dyn BufRead + Send>) -> Result<Option<FileKind>, ImportError> {
    let mut lines = Lines::new(file);
    for _ in 0..LOOK_AT {
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

/// A text member.
fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}

/// When a line was written, where it says so.
fn timestamp(line: &Value) -> Option<Timestamp> {
    serde_json::from_value(line.get("timestamp")?.clone()).ok()
}

#[cfg(test)]
#[path = "import_tests.rs"]
mod tests;

/// The number of a field; 0 where there is none.
fn number(value: &Value, key: &str) -> u64 {
    value.get(key).and_then(Value::as_u64).unwrap_or(0)
}

/// The values of a list; none where there is no list.
fn items<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    let list = value.get(key).and_then(Value::as_array);
    list.into_iter().flatten()
}

/// The text of a piece, as a part of a message.
fn words(piece: &Value) -> Part {
    let text = text(piece, "text").unwrap_or_default().to_owned();
    Part::Text { text }
}
