//! Exports a session as one file for each prompt, answer, call and result, numbered in order. File names contain only
//! safe characters.
//!
//! ```
//! use std::io::Write;
//!
//! use windlass::Notices;
//! use windlass::export::export_trace;
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
//! let mut names = Vec::new();
//! let mut create = |name: &str| {
//!     names.push(name.to_owned());
//!     Ok(Box::new(std::io::sink()) as Box<dyn Write + Send>)
//! };
//! let count = export_trace(&store, &session, &mut create, &Notices::default()).await?;
//! assert_eq!(count, names.len() as u64);
//! assert!(names[0].ends_with("-prompt.txt"));
//! # Ok(())
//! # }
//! ```

use std::io::Write;

use futures_util::StreamExt;
use windlass_core::event::{Event, EventKind};
use windlass_core::id::SessionId;
use windlass_core::message::{ArtifactRef, Message, Origin, Part, Role};
use windlass_core::store::SessionStore;
use windlass_core::workspace::Artifacts;
use windlass_host::session_log::SessionLog;

use crate::error::{Error, ErrorKind};
use crate::notices::Notices;

/// Creates a file of the trace by its name.
type CreateFile<'a> = dyn FnMut(&str) -> Result<Box<dyn Write + Send>, Error> + Send + 'a;

/// The number of bytes of an artifact that are copied at a time.
const PIECE: u64 = 1 << 20;

/// Writes a session into files that `create` opens, and returns their number. No file is created if the session cannot
/// be read. A result that is not available any more is reported as a warning.
pub async fn export_trace(
    store: &SessionLog,
    session: &SessionId,
    create: &mut CreateFile<'_>,
    notices: &Notices,
) -> Result<u64, Error> {
    let mut trace = TraceExport {
        create,
        store,
        session,
        notices,
        files: 0,
    };
    let mut events = store.read(session, 1);
    while let Some(event) = events.next().await {
        trace.event(&event?)?;
    }
    Ok(trace.files)
}

struct TraceExport<'a, 'c> {
    create: &'a mut CreateFile<'c>,
    store: &'a SessionLog,
    session: &'a SessionId,
    notices: &'a Notices,
    files: u64,
}

impl TraceExport<'_, '_> {
    fn event(&mut self, event: &Event) -> Result<(), Error> {
        let seq = event.order.seq().unwrap_or_default();
        match &event.kind {
            EventKind::RunStarted { prompt, .. } => self.message(seq, "prompt", prompt),
            EventKind::Said { message, .. } if message.role == Role::Assistant => {
                self.message(seq, "answer", message)
            }
            EventKind::Said { message, .. } if message.origin == Origin::Engine => {
                self.message(seq, "engine", message)
            }
            EventKind::Said { message, .. } => self.message(seq, "person", message),
            EventKind::CallFinished { result, .. } => {
                let what = format!("result-{}", safe(&result.name));
                self.write(seq, &format!("{what}.txt"), &result.text)?;
                result
                    .artifact
                    .iter()
                    .try_for_each(|artifact| self.artifact(seq, &what, artifact))
            }
            EventKind::Compacted { compaction } => {
                self.write(seq, "summary.txt", &compaction.summary)
            }
            EventKind::RunFinished(_) => {
                let text = serde_json::to_string_pretty(event)
                    .map_err(|err| Error::new(ErrorKind::Failed, err.to_string()))?;
                self.write(seq, "end.json", &text)
            }
            _ => Ok(()),
        }
    }

    fn message(&mut self, seq: u64, what: &str, message: &Message) -> Result<(), Error> {
        let text = message.text();
        if !text.is_empty() {
            self.write(seq, &format!("{what}.txt"), &text)?;
        }
        for (at, part) in message.parts.iter().enumerate() {
            match part {
                Part::Reasoning { text, .. } if !text.is_empty() => {
                    self.write(seq, &format!("{what}-reasoning-{at}.txt"), text)?;
                }
                Part::Call(call) => {
                    self.write(
                        seq,
                        &format!("call-{at}-{}.json", safe(&call.name)),
                        &format!("{:#}", call.args),
                    )?;
                }
                Part::Image { media_type, data } => {
                    let text = format!("{media_type}, base64\n{data}\n");
                    self.write(seq, &format!("{what}-image-{at}.txt"), &text)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn write(&mut self, seq: u64, name: &str, text: &str) -> Result<(), Error> {
        let mut file = (self.create)(&format!("{seq:06}-{name}"))?;
        file.write_all(text.as_bytes())?;
        self.files += 1;
        Ok(())
    }

    /// Writes an artifact: the complete result of a call. If it does not exist any more, sends a warning.
    fn artifact(&mut self, seq: u64, what: &str, stored: &ArtifactRef) -> Result<(), Error> {
        let artifacts = self.store.artifacts(self.session);
        let mut file = (self.create)(&format!("{seq:06}-{what}-whole.txt"))?;
        let mut at = 0;
        while at < stored.bytes {
            match artifacts.read(&stored.id, at, PIECE) {
                Ok(piece) if piece.is_empty() => break,
                Ok(piece) => {
                    file.write_all(&piece)?;
                    at += piece.len() as u64;
                }
                Err(err) => {
                    self.notices.warn(&format!(
                        "the complete result of event {seq} is not available any more: {err}"
                    ));
                    break;
                }
            }
        }
        self.files += 1;
        Ok(())
    }
}

/// Converts the name of a tool to a safe file name.
fn safe(name: &str) -> String {
    let fits = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') {
            c
        } else {
            '_'
        }
    };
    name.chars().take(40).map(fits).collect()
}
