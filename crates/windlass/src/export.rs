//! Writes the events of a session as JSON lines, Markdown, an HTML page or an audit log, or as one file for each message,
//! call and result. An export reads and writes one event at a time.
//!
//! ```
//! use windlass::export::{SessionExporter, TranscriptFormat, export_session};
//! use windlass::machine::SessionLog;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (work, data) = (tempfile::tempdir()?, tempfile::tempdir()?);
//! # let model = windlass_testing::ScriptedProvider::new([windlass_testing::says("hello")]);
//! # let windlass = windlass::Windlass::without_settings(work.path(), data.path())?
//! #     .provider(std::sync::Arc::new(model), "scripted");
//! # let session = windlass.run("greet me").await?.session;
//! let store = SessionLog::new(windlass.settings().places.sessions_dir());
//! let mut page = Vec::new();
//! export_session(&store, &session, TranscriptFormat::Html, &mut page).await?;
//! assert!(String::from_utf8(page)?.contains("greet me"));
//! assert!(TranscriptFormat::Jsonl.is_json() && !TranscriptFormat::Html.is_json());
//!
//! // The events may also come from elsewhere.
//! let (mut exporter, mut text) = (SessionExporter::new(TranscriptFormat::Markdown, &session), Vec::new());
//! exporter.begin(&mut text)?;
//! # let events: Vec<windlass::core::event::Event> = Vec::new();
//! for event in &events {
//!     exporter.event(event, &mut text)?;
//! }
//! exporter.end(&mut text)?;
//! # Ok(())
//! # }
//! ```

mod audit;
mod html;
mod markdown;
mod trace;

use std::io::{self, Write};

use futures_util::StreamExt;
use serde::Serialize;
use windlass_core::event::Event;
use windlass_core::id::SessionId;
use windlass_core::store::SessionStore;
use windlass_host::session_log::SessionLog;

use self::html::HtmlExport;
use self::markdown::MarkdownExport;
use crate::error::Error;
use crate::transcript::Transcript;
use windlass_text::sanitize::plain;

pub use self::trace::export_trace;

/// The format of an export as one text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TranscriptFormat {
    /// The events as JSON, one per line.
    Jsonl,
    /// The conversation as Markdown.
    Markdown,
    /// The conversation as one self-contained page.
    Html,
    /// Decisions, answers, commands and changes as JSON lines, with hashes and sizes in place of content.
    Audit,
}

impl TranscriptFormat {
    /// Whether the text consists of lines of JSON.
    #[must_use]
    pub fn is_json(self) -> bool {
        matches!(self, Self::Jsonl | Self::Audit)
    }
}

/// Renders the events of one session in one format. Each call writes complete UTF-8 text in at most one piece.
pub struct SessionExporter(FormatState);

enum FormatState {
    Jsonl,
    Markdown(MarkdownExport),
    Html(Box<HtmlExport>),
    Audit(Transcript),
}

impl SessionExporter {
    /// An export of this session. The caller then calls [`Self::begin`], [`Self::event`] for each event, and
    /// [`Self::end`].
    #[must_use]
    pub fn new(format: TranscriptFormat, session: &SessionId) -> Self {
        Self(match format {
            TranscriptFormat::Jsonl => FormatState::Jsonl,
            TranscriptFormat::Markdown => FormatState::Markdown(MarkdownExport::default()),
            TranscriptFormat::Html => FormatState::Html(Box::new(HtmlExport::new(session))),
            TranscriptFormat::Audit => FormatState::Audit(Transcript::default()),
        })
    }

    /// Writes the beginning of the text.
    pub fn begin(&self, to: &mut (dyn Write + Send)) -> io::Result<()> {
        match &self.0 {
            FormatState::Html(page) => write_text(&page.begin(), to),
            _ => Ok(()),
        }
    }

    /// Writes the next event of the log.
    pub fn event(&mut self, event: &Event, to: &mut (dyn Write + Send)) -> io::Result<()> {
        match &mut self.0 {
            FormatState::Jsonl => write_line(event, to),
            // Users view Markdown files in terminals, too.
            FormatState::Markdown(text) => write_text(&plain(&text.event(event)), to),
            FormatState::Html(page) => write_text(&page.event(event), to),
            FormatState::Audit(transcript) => match audit::row(event, &transcript.line(event)) {
                Some(row) => write_line(&row, to),
                None => Ok(()),
            },
        }
    }

    /// Writes the end of the text, after the last event.
    pub fn end(&mut self, to: &mut (dyn Write + Send)) -> io::Result<()> {
        match &mut self.0 {
            FormatState::Html(page) => write_text(&page.end(), to),
            _ => Ok(()),
        }
    }
}

fn write_line(value: &impl Serialize, to: &mut (dyn Write + Send)) -> io::Result<()> {
    let mut line = serde_json::to_string(value)?;
    line.push('\n');
    write_text(&line, to)
}

fn write_text(text: &str, to: &mut (dyn Write + Send)) -> io::Result<()> {
    match text {
        "" => Ok(()),
        text => to.write_all(text.as_bytes()),
    }
}

/// Writes a session. If the session cannot be read, nothing is written before the first readable event.
pub async fn export_session(
    store: &SessionLog,
    session: &SessionId,
    format: TranscriptFormat,
    to: &mut (dyn Write + Send),
) -> Result<(), Error> {
    let mut exporter = SessionExporter::new(format, session);
    let mut events = store.read(session, 1);
    let mut next = events.next().await.transpose()?;
    if next.is_some() {
        exporter.begin(to)?;
    }
    while let Some(event) = next {
        exporter.event(&event, to)?;
        next = events.next().await.transpose()?;
    }
    exporter.end(to)?;
    Ok(to.flush()?)
}
