//! What the model is told beside the messages: which instruction files are behind the system prompt, so that a change
//! of them is said, and the instruction files of directories that calls come into, told once. Text, never a rule.

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

/// The largest instruction file that is told on the way, in bytes.
const MAX_FILE: u64 = 16 << 10;
/// How many of them in one iteration.
const MAX_FILES: usize = 8;
/// Directories that are looked into in one iteration.
const MAX_LOOKED: usize = 1_024;
/// How the engine's word about such a file begins.
const HEAD: &str = "Instructions of the project for what is below ";

/// What is behind a system prompt.
#[derive(Debug, Clone, Default)]
pub struct Instructions {
    /// The files that are in it, in the order they are told; those of the workspace by their path in it.
    pub files: Vec<Instruction>,
    /// Facts of the moment a session is opened, which go behind the system prompt. A session keeps the ones it has.
    pub opening: String,
    /// Names of instruction files, the first one that is there counts; none means that nobody looks for them.
    pub names: Vec<String>,
}

impl NativeRuntime {
    /// The system prompt of this run: the same bytes as in the runs before, unless instruction files were changed, which
    /// is said then.
    pub(super) async fn instruct(&self, job: &Job<'_>) -> Result<String, StoreError> {
        let Instructions { files, opening, .. } = &self.options.instructions;
        let told = job.outlet.facts().instructed;
        let (was, opening) = match &told {
            Some((was, opening)) => (was.as_slice(), opening.clone()),
            None => (&[][..], opening.clone()),
        };
        if was != files.as_slice() || (told.is_none() && !opening.is_empty()) {
            let kind = EventKind::Instructed {
                files: files.clone(),
                opening: opening.clone(),
            };
            job.outlet.emit(kind).await?;
        }
        if told.is_some() && was != files.as_slice() {
            let text = format!(
                "instructions changed since the last run, and count as they are now: {}",
                changed(was, files)
            );
            job.outlet
                .emit(EventKind::warned("instructions_changed", text))
                .await?;
        }
        Ok(format!("{}{opening}", self.options.system))
    }
}

/// The files that are not what they were, in words.
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
        (Some(_), None) => Some(format!("{path} is gone")),
        (None, Some(_)) => Some(format!("{path} is new")),
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

/// Instruction files of directories that calls come into.
pub(super) struct Nearby<'a> {
    known: &'a Instructions,
    /// Paths that the calls of this step name, by their place among the calls.
    named: Vec<(usize, String)>,
    looked: HashSet<String>,
    told: usize,
}

impl<'a> Nearby<'a> {
    pub(super) fn new(known: &'a Instructions) -> Self {
        Self {
            known,
            named: Vec::new(),
            looked: HashSet::new(),
            told: 0,
        }
    }

    /// Takes down what the calls of a step name.
    pub(super) fn note(&mut self, calls: &[Planned]) {
        if self.known.names.is_empty() || self.told >= MAX_FILES {
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

    /// Tells the model what it does not know yet, between two steps. Where a call may not go, nothing is told either.
    pub(super) async fn tell(
        &mut self,
        job: &Job<'_>,
        results: &[Settled],
    ) -> Result<(), StoreError> {
        let kept_out = |at: usize| {
            let error = results.get(at).and_then(|settled| settled.result.error);
            matches!(error, Some(ErrorCategory::Denied | ErrorCategory::Blocked))
        };
        for (at, path) in std::mem::take(&mut self.named) {
            if kept_out(at) {
                continue;
            }
            for dir in self.directories(job, &path) {
                if self.told >= MAX_FILES || self.looked.len() >= MAX_LOOKED {
                    return Ok(());
                }
                if self.looked.insert(dir.clone())
                    && let Some(text) = self.found(job, &dir)
                {
                    self.told += 1;
                    job.outlet
                        .emit(EventKind::said(Message::internal(text)))
                        .await?;
                }
            }
        }
        Ok(())
    }

    /// The directories above a path of the workspace, the outermost first. The root's own are in the system prompt.
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
        ends.filter(|dir| !dir.is_empty() && !self.looked.contains(*dir))
            .map(str::to_owned)
            .collect()
    }

    fn found(&self, job: &Job<'_>, dir: &str) -> Option<String> {
        let path = self
            .known
            .names
            .iter()
            .map(|name| format!("{dir}/{name}"))
            .find(|path| is_told_from(job, path))?;
        if self.known.files.iter().any(|file| file.path == path) || is_told(job, &path) {
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
                "{HEAD}{dir}/, from {path}. They count there over those of the directories above.\n\n{text}"
            )),
            None => Some(format!(
                "{HEAD}{dir}/ are in {path}, which is too large or not text; read what you need of it."
            )),
        }
    }
}

/// Whether there is a file that may be told: a link in its place must not show what a call may not read.
fn is_told_from(job: &Job<'_>, path: &str) -> bool {
    job.files
        .stat(path)
        .is_ok_and(|stat| stat.kind == FileKind::File)
        && job
            .files
            .resolve(path)
            .is_ok_and(|leads| leads.inside && !is_credential(&leads.path))
}

/// Whether the model still has it from before.
fn is_told(job: &Job<'_>, path: &str) -> bool {
    let (from, within) = (format!(", from {path}."), format!(" are in {path},"));
    let history = job.outlet.history();
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
