//! A session as a folder: prompts, answers, calls and results as files, in the order of their numbers. Names are made
//! of numbers and of what is safe in a name; nothing that is there is written over.

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

/// Bytes of a stored result that are copied at a time.
const PIECE: u64 = 1 << 20;

pub(super) async fn run(
    store: &SessionLog,
    id: &SessionId,
    folder: &Path,
) -> Result<ExitCode, CommandError> {
    // Look before the folder is made, so that a wrong id leaves no trace.
    let mut events = store.read(id, 1);
    let mut next = events.next().await.transpose()?;
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(folder)
        .map_err(|err| match err.kind() {
            std::io::ErrorKind::AlreadyExists => {
                CommandError::usage(format!("{} exists already", folder.display()))
                    .hint("name a folder that is not there; nothing is written over")
            }
            _ => CommandError::failed(format!("{} cannot be made: {err}", folder.display())),
        })?;
    let mut trace = Trace {
        folder,
        store,
        id,
        files: 0,
    };
    while let Some(event) = next {
        trace.event(&event)?;
        next = events.next().await.transpose()?;
    }
    say!("{} files are in {}", trace.files, folder.display());
    Ok(exit::after_output(0))
}

struct Trace<'a> {
    folder: &'a Path,
    store: &'a SessionLog,
    id: &'a SessionId,
    files: u64,
}

impl Trace<'_> {
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
                    .try_for_each(|whole| self.whole(seq, &what, whole))
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
        let mut file = create(&self.folder.join(format!("{seq:06}-{name}")))?;
        file.write_all(text.as_bytes())?;
        self.files += 1;
        Ok(())
    }

    /// The whole of a result that was too large to be said. One that is gone is told, and the rest is still written.
    fn whole(&mut self, seq: u64, what: &str, stored: &ArtifactRef) -> Result<(), CommandError> {
        let artifacts = self.store.artifacts(self.id);
        let mut file = create(&self.folder.join(format!("{seq:06}-{what}-whole.txt")))?;
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
                        "warning: the whole of event {seq} is not there any more: {}",
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

/// What of a tool's name may stand in the name of a file.
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
