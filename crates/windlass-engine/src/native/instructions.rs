//! Instruction files: those in the system prompt, whose changes are logged, and those of directories that calls touch, which
//! the model gets once, between two steps. They are only text for the model and never permission rules.

use std::collections::{BTreeSet, HashSet};

use windlass_core::context::Instruction;
use windlass_core::event::EventKind;
use windlass_core::gate::is_credential;
use windlass_core::message::{ErrorCategory, Message, Origin};
use windlass_core::runtime::Job;
use windlass_core::store::StoreError;
use windlass_core::turn::{Planned, Settled};
use windlass_core::workspace::FileKind;

use super::NativeRuntime;

/// Maximum size of an instruction file of a directory, in bytes.
const MAX_FILE: u64 = 16 << 10;
/// Maximum number of these files in one iteration.
const MAX_FILES: usize = 8;
/// Maximum number of directories that are searched in one iteration.
const MAX_SEARCHED: usize = 1_024;
/// The beginning of the message with such a file. Resumed sessions recognise the message by it.
const HEAD: &str = "Instructions of the project for what is below ";

/// The instruction files of a session.
#[derive(Debug, Clone, Default)]
pub struct Instructions {
    /// The files in the system prompt, in their order there. Paths of files in the workspace are relative to it.
    pub files: Vec<Instruction>,
    /// Facts about the moment at which the session was created, appended to the system prompt. They never change within a
    /// session.
    pub opening: String,
    /// Names of instruction files of directories. The first name that exists is used. If empty, there is no search.
    pub names: Vec<String>,
}

impl NativeRuntime {
    /// Returns the system prompt of this run. It has the same bytes as in earlier runs, unless instruction files changed; then
    /// the change is logged.
    pub(super) async fn instruct(&self, job: &Job<'_>) -> Result<String, StoreError> {
        let Instructions { files, opening, .. } = &self.options.instructions;
        let told = job.sink.facts().instructed;
        let (was, opening) = match &told {
            Some((was, opening)) => (was.as_slice(), opening.clone()),
            None => (&[][..], opening.clone()),
        };
        if was != files.as_slice() || (told.is_none() && !opening.is_empty()) {
            let kind = EventKind::Instructed {
                files: files.clone(),
                opening: opening.clone(),
            };
            job.sink.emit(kind).await?;
        }
        if told.is_some() && was != files.as_slice() {
            let text = format!(
                "the instructions changed since the last run, and the new ones apply: {}",
                changed(was, files)
            );
            job.sink
                .emit(EventKind::warned("instructions_changed", text))
                .await?;
        }
        Ok(format!("{}{opening}", self.options.system))
    }
}

/// Describes the differences between two lists of files.
fn changed(was: &[Instruction], now: &[Instruction]) -> String {
    let paths: BTreeSet<&str> = was
        .iter()
        .chain(now)
        .map(|file| file.path.as_str())
        .collect();
    let find = |list: &[Instruction], path: &str| {
        list.iter()
            .find(|file| file.path == path)
            .map(|file| file.hash.clone())
    };
    let row = |path: &str| match (find(was, path), find(now, path)) {
        (Some(_), None) => Some(format!("{path} was removed")),
        (None, Some(_)) => Some(format!("{path} was added")),
        (was, now) if was != now => Some(format!("{path} was changed")),
        _ => None,
    };
    let rows: Vec<String> = paths.into_iter().filter_map(row).collect();
    if rows.is_empty() {
        "their order".into()
    } else {
        rows.join(", ")
    }
}

/// Finds the instruction files of directories that calls touch.
pub(super) struct DirectoryInstructions<'a> {
    known: &'a Instructions,
    /// Paths in the arguments of this step's calls, with the index of the call.
    named: Vec<(usize, String)>,
    searched: HashSet<String>,
    sent: usize,
}

impl<'a> DirectoryInstructions<'a> {
    pub(super) fn new(known: &'a Instructions) -> Self {
        Self {
            known,
            named: Vec::new(),
            searched: HashSet::new(),
            sent: 0,
        }
    }

    /// Remembers the paths in the arguments of a step's calls.
    pub(super) fn note_paths(&mut self, calls: &[Planned]) {
        if self.known.names.is_empty() || self.sent >= MAX_FILES {
            return;
        }
        let run = calls
            .iter()
            .enumerate()
            .filter(|(_, one)| one.refuse.is_none());
        let paths =
            run.filter_map(|(at, one)| Some((at, one.call.args.get("path")?.as_str()?.to_owned())));
        self.named = paths.collect();
    }

    /// Sends the model the instruction files that it does not have yet. The paths of denied calls are skipped.
    pub(super) async fn send_new(
        &mut self,
        job: &Job<'_>,
        results: &[Settled],
    ) -> Result<(), StoreError> {
        let was_denied = |at: usize| {
            let error = results.get(at).and_then(|settled| settled.result.error);
            matches!(error, Some(ErrorCategory::Denied | ErrorCategory::Blocked))
        };
        for (at, path) in std::mem::take(&mut self.named) {
            if was_denied(at) {
                continue;
            }
            for dir in self.directories(job, &path) {
                if self.sent >= MAX_FILES || self.searched.len() >= MAX_SEARCHED {
                    return Ok(());
                }
                if self.searched.insert(dir.clone())
                    && let Some(text) = self.message_for(job, &dir)
                {
                    self.sent += 1;
                    job.sink
                        .emit(EventKind::said(Message::internal(text)))
                        .await?;
                }
            }
        }
        Ok(())
    }

    /// The directories above a path of the workspace, the outermost first. The system prompt has the files of the root.
    fn directories(&self, job: &Job<'_>, path: &str) -> Vec<String> {
        let Ok(resolved) = job.files.resolve(path) else {
            return Vec::new();
        };
        if !resolved.inside {
            return Vec::new();
        }
        let ends = resolved
            .path
            .match_indices('/')
            .map(|(at, _)| &resolved.path[..at]);
        ends.filter(|dir| !dir.is_empty() && !self.searched.contains(*dir))
            .map(str::to_owned)
            .collect()
    }

    fn message_for(&self, job: &Job<'_>, dir: &str) -> Option<String> {
        let path = self
            .known
            .names
            .iter()
            .map(|name| format!("{dir}/{name}"))
            .find(|path| may_be_sent(job, path))?;
        if self.known.files.iter().any(|file| file.path == path) || was_sent(job, &path) {
            return None;
        }
        let text = job
            .files
            .read(&path, MAX_FILE)
            .ok()
            .and_then(|bytes| String::from_utf8(bytes).ok());
        match text {
            Some(text) if text.trim().is_empty() => None,
            Some(text) => Some(format!(
                "{HEAD}{dir}/, from {path}. They take precedence over those of the directories above.\n\n{text}"
            )),
            None => Some(format!(
                "{HEAD}{dir}/ are in {path}, which is too large or not text; read what you need of it."
            )),
        }
    }
}

/// True if the path is a file that the model may get: a symlink must not reveal a file that calls cannot read.
fn may_be_sent(job: &Job<'_>, path: &str) -> bool {
    job.files
        .stat(path)
        .is_ok_and(|stat| stat.kind == FileKind::File)
        && job
            .files
            .resolve(path)
            .is_ok_and(|target| target.inside && !is_credential(&target.path))
}

/// True if the messages still contain the file.
fn was_sent(job: &Job<'_>, path: &str) -> bool {
    let (from, within) = (format!(", from {path}."), format!(" are in {path},"));
    let history = job.sink.history();
    history
        .iter()
        .filter(|entry| entry.origin == Origin::Engine)
        .any(|entry| {
            let text = entry.text();
            text.starts_with(HEAD)
                && text
                    .lines()
                    .next()
                    .is_some_and(|line| line.contains(&from) || line.contains(&within))
        })
}
