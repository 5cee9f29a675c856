//! Exports a session as a directory with one file for each prompt, answer, call and result, numbered in order. File names
//! contain only safe characters. Existing files are not overwritten.

use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::ExitCode;

use futures_util::StreamExt;
use windlass::core::event::{Event, EventKind};
use windlass::core::id::SessionId;
use windlass::core::message::{ArtifactRef, Message, Origin, Part, Role};
use windlass::core::store::SessionStore;
use windlass::core::workspace::Artifacts;
use windlass::machine::SessionLog;

use super::export::create;
use crate::command_error::CommandError;
use crate::exit;
use crate::out::say;
use crate::sanitize::message;

/// The number of bytes of an artifact that are copied at a time.
const PIECE: u64 = 1 << 20;

pub(super) async fn run(
    store: &SessionLog,
    id: &SessionId,
    dir: &Path,
) -> Result<ExitCode, CommandError> {
    // Read the first event before creating the directory, so that a wrong id leaves no directory.
    let mut events = store.read(id, 1);
    let mut next = events.next().await.transpose()?;
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(dir)
        .map_err(|err| match err.kind() {
            std::io::ErrorKind::AlreadyExists => {
                CommandError::usage(format!("{} exists already", dir.display())).hint(
                    "name a directory that does not exist; existing files are not overwritten",
                )
            }
            _ => CommandError::failed(format!("cannot create {}: {err}", dir.display())),
        })?;
    let mut trace = TraceExport {
        dir,
        store,
        id,
        files: 0,
    };
    while let Some(event) = next {
        trace.event(&event)?;
        next = events.next().await.transpose()?;
    }
    say!("wrote {} files to {}", trace.files, dir.display());
    Ok(exit::after_output(0))
}

struct TraceExport<'a> {
    dir: &'a Path,
    store: &'a SessionLog,
    id: &'a SessionId,
    files: u64,
}

impl TraceExport<'_> {
    fn event(&mut self, event: &Event) -> Result<(), CommandError> {
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
                    .map_err(|err| CommandError::failed(err.to_string()))?;
                self.write(seq, "end.json", &text)
            }
            _ => Ok(()),
        }
    }

    fn message(&mut self, seq: u64, what: &str, message: &Message) -> Result<(), CommandError> {
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

    fn write(&mut self, seq: u64, name: &str, text: &str) -> Result<(), CommandError> {
        let mut file = create(&self.dir.join(format!("{seq:06}-{name}")))?;
        file.write_all(text.as_bytes())?;
        self.files += 1;
        Ok(())
    }

    /// Writes an artifact: the complete result of a call. If it does not exist any more, prints a warning.
    fn artifact(&mut self, seq: u64, what: &str, stored: &ArtifactRef) -> Result<(), CommandError> {
        let artifacts = self.store.artifacts(self.id);
        let mut file = create(&self.dir.join(format!("{seq:06}-{what}-whole.txt")))?;
        let mut at = 0;
        while at < stored.bytes {
            match artifacts.read(&stored.id, at, PIECE) {
                Ok(piece) if piece.is_empty() => break,
                Ok(piece) => {
                    file.write_all(&piece)?;
                    at += piece.len() as u64;
                }
                Err(err) => {
                    say!(
                        "warning: the complete result of event {seq} is not available any more: {}",
                        message(&err.to_string())
                    );
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
