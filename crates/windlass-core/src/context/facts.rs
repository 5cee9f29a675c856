//! Facts about past work that a summary lists: files, commands, checks, results of runs. They are computed from the log
//! and never taken from a model's text. Every list has a maximum length; entries beyond it are counted.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::context::Instruction;
use crate::event::{Event, EventKind};
use crate::id::CallId;
use crate::message::Role;
use crate::outcome::RunSummary;
use crate::validator::Judgement;
use crate::workspace::ProcessEnd;

/// Maximum files in a list. The oldest are dropped first.
const MAX_FILES: usize = 200;
/// Maximum commands, checks and runs in a list.
const MAX_ROWS: usize = 30;
/// Maximum bytes of a command or a prompt.
const MAX_LINE: usize = 200;
/// Maximum bytes of the last answer.
const MAX_ANSWER: usize = 2_000;
/// Maximum open calls that are tracked.
const MAX_OPEN: usize = 256;

/// A record of the work in a session.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct WorkRecord {
    /// Files that were changed, most recent last.
    pub changed: VecDeque<ChangedFile>,
    /// Files that calls named without changing them, most recent last.
    pub looked_at: VecDeque<String>,
    /// The number of files that were dropped from these lists.
    pub more_files: u64,
    /// The most recent commands.
    pub commands: VecDeque<ExecutedCommand>,
    /// The last verdict of each validator.
    pub checks: VecDeque<(String, Judgement)>,
    /// The most recent runs: the beginning of the prompt, and the outcome.
    pub runs: VecDeque<(String, String)>,
    /// The number of steps so far.
    pub steps: u64,
    /// The beginning of the model's last answer.
    pub answer: String,
    /// The notes that the model took in this session.
    pub notes: String,
    /// The instruction files that the model was given, and the facts stated at the start of the session; `None` before
    /// the first instruction.
    pub instructed: Option<(Vec<Instruction>, String)>,
    /// The model and the total input tokens of the last call that the vendor reported. `None` after a compaction.
    pub reported: Option<(String, u64)>,
    /// Calls that have not finished, with the path that each one names.
    pub(crate) open: VecDeque<(CallId, String)>,
}

/// A changed file with its line counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedFile {
    /// Path relative to the workspace.
    pub path: String,
    /// Lines added by all changes together.
    pub added: u64,
    /// Lines removed by all changes together.
    pub removed: u64,
}

/// A command that was run by a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutedCommand {
    /// The first line of the command, shortened.
    pub command: String,
    /// The exit of the process; `None` while it is unknown.
    pub end: Option<ProcessEnd>,
    call: CallId,
}

impl WorkRecord {
    /// Updates the facts with one durable event.
    pub fn apply(&mut self, event: &Event) {
        match &event.kind {
            EventKind::RunStarted { prompt, .. } => {
                let begun = (line(&prompt.text(), MAX_LINE), "not ended".to_owned());
                push(&mut self.runs, MAX_ROWS, begun);
            }
            EventKind::RunFinished(RunSummary { outcome, .. }) => {
                if let Some(run) = self.runs.back_mut() {
                    run.1 = outcome.word().to_owned();
                }
                self.open.clear();
            }
            EventKind::Said { message, .. } if message.role == Role::Assistant => {
                self.steps += 1;
                // An answer can be megabytes long; its beginning is enough.
                let text = message.text_start(MAX_ANSWER);
                if !text.trim().is_empty() {
                    self.answer = clip(text.trim(), MAX_ANSWER);
                }
            }
            EventKind::CallStarted { call, .. } => {
                let named = call.args.get("path").and_then(|path| path.as_str());
                if let Some(path) = named.filter(|path| !path.is_empty() && path.len() <= 4_096) {
                    push(&mut self.open, MAX_OPEN, (call.id.clone(), path.to_owned()));
                }
            }
            EventKind::CallFinished { result, .. } => {
                let at = self.open.iter().position(|(id, _)| *id == result.id);
                if let Some((_, path)) = at.and_then(|at| self.open.remove(at))
                    && result.error.is_none()
                {
                    self.saw(path);
                }
            }
            EventKind::FileChanged { change, .. } => {
                self.touched(
                    &change.path,
                    u64::from(change.added.unwrap_or_default()),
                    u64::from(change.removed.unwrap_or_default()),
                );
            }
            EventKind::CommandStarted { call, command } => {
                let ran = ExecutedCommand {
                    command: line(command, MAX_LINE),
                    end: None,
                    call: call.clone(),
                };
                push(&mut self.commands, MAX_ROWS, ran);
            }
            EventKind::CommandFinished { call, end, .. } => {
                if let Some(ran) = self.commands.iter_mut().rev().find(|ran| ran.call == *call) {
                    ran.end = Some(*end);
                }
            }
            EventKind::Validated {
                validator, report, ..
            } => {
                self.checks.retain(|(name, _)| name != validator);
                push(
                    &mut self.checks,
                    MAX_ROWS,
                    (validator.clone(), report.judgement),
                );
            }
            EventKind::Spent {
                model,
                call,
                estimated: false,
                ..
            } => self.reported = Some((model.clone(), call.total_input())),
            EventKind::Compacted { .. } => self.reported = None,
            EventKind::Noted { text } => self.notes.clone_from(text),
            EventKind::Instructed { files, opening } => {
                self.instructed = Some((files.clone(), opening.clone()))
            }
            _ => {}
        }
    }

    fn saw(&mut self, path: String) {
        if position(&self.changed, |file| &file.path, &path).is_some() {
            return;
        }
        forget(&mut self.looked_at, &path);
        self.more_files += u64::from(push(&mut self.looked_at, MAX_FILES, path));
    }

    fn touched(&mut self, path: &str, added: u64, removed: u64) {
        forget(&mut self.looked_at, path);
        let at = position(&self.changed, |file| &file.path, path);
        let before = at.and_then(|at| self.changed.remove(at));
        let (more, less) = before.map_or((0, 0), |before| (before.added, before.removed));
        let changed = ChangedFile {
            path: path.to_owned(),
            added: added + more,
            removed: removed + less,
        };
        self.more_files += u64::from(push(&mut self.changed, MAX_FILES, changed));
    }
}

/// The position of a path in a list, searched from the most recent one on.
fn position<T>(list: &VecDeque<T>, path_of: fn(&T) -> &String, path: &str) -> Option<usize> {
    // Paths of one project often have the same length and beginning: compare their ends before all of their bytes.
    let end = |path: &str| path.as_bytes().last_chunk::<8>().copied();
    let wanted = (path.len(), end(path));
    list.iter().rposition(|item| {
        let known = path_of(item);
        (known.len(), end(known)) == wanted && known == path
    })
}

/// Removes a path from a list, which contains it at most once.
fn forget(list: &mut VecDeque<String>, path: &str) {
    if let Some(at) = position(list, |known| known, path) {
        list.remove(at);
    }
}

/// Appends an item. Returns whether the oldest item had to be dropped.
fn push<T>(to: &mut VecDeque<T>, most: usize, one: T) -> bool {
    let full = to.len() >= most;
    if full {
        to.pop_front();
    }
    to.push_back(one);
    full
}

/// The first line, shortened to `most` bytes.
fn line(text: &str, most: usize) -> String {
    let first = text.trim().lines().next().unwrap_or_default();
    if first.len() < text.trim().len() {
        clip(&format!("{first} …"), most)
    } else {
        clip(first, most)
    }
}

/// Shortens a text to `most` bytes.
pub(super) fn clip(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    format!("{} …", &text[..text.floor_char_boundary(most)])
}
