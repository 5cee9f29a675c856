//! The machine as the engine, the runtimes and the tools see it: files beneath one root, processes, stored results. `host` implements these; nothing here opens or starts anything.
//!
//! ```
//! use windlass_core::workspace::{FileError, FileErrorKind};
//!
//! let err = FileError::changed("src/lib.rs");
//! assert_eq!(err.kind, FileErrorKind::Changed, "somebody else wrote it since it was read");
//! ```

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::enclosure::Enclosure;
use crate::id::ArtifactId;
use crate::message::ArtifactRef;
use crate::{BoxFuture, CancellationToken};

pub use crate::transaction::{
    CallChanges, Changes, CheckState, CheckTree, LandTo, Landed, Landing, Opening, Snapshots,
    Transaction, WorkspaceError, WorkspaceErrorKind, Workspaces,
};

/// Files beneath one root. Paths are workspace-relative, or absolute inside the root; every open is resolved by the
/// kernel beneath the root's handle, so a link that is swapped in between cannot lead out.
///
/// Methods block for the length of a small file operation; call them on a blocking thread when the file may be large.
///
/// The port has thirteen methods because each is one operation that has to be resolved beneath the root as a whole: a
/// find or a grep made of lists and reads by the caller would resolve every path again, and could be led out in between.
pub trait Files: Send + Sync {
    /// Where the root is, for showing and for processes.
    fn root(&self) -> &Path;
    /// Paths that no tool may read, as globs; nothing here shows them.
    fn hidden(&self) -> &[String] {
        &[]
    }
    /// Where a path really leads: links followed as far as they exist, `..` resolved. Touches nothing.
    fn resolve(&self, path: &str) -> Result<Resolved, FileError>;
    /// Up to `max` bytes of a regular file; longer ones are an error that names the size.
    fn read(&self, path: &str, max: u64) -> Result<Vec<u8>, FileError>;
    /// Up to `len` bytes from `offset`.
    fn read_range(&self, path: &str, offset: u64, len: u64) -> Result<Vec<u8>, FileError>;
    /// What is there.
    fn stat(&self, path: &str) -> Result<FileStat, FileError>;
    /// Replaces or creates a regular file at once (temporary file and rename), keeping the mode; makes parents.
    fn write(&self, path: &str, bytes: &[u8]) -> Result<(), FileError>;
    /// The same for a file that still holds the bytes that the caller read, or that was not there (`None`). Where
    /// something else is there, nothing is written and the error is [`FileErrorKind::Changed`]. The default looks first
    /// and then writes; files that others write at the same time need better.
    fn replace(&self, path: &str, read: Option<&[u8]>, bytes: &[u8]) -> Result<(), FileError> {
        let same = match read {
            Some(read) => self
                .read(path, read.len() as u64)
                .is_ok_and(|now| now == read),
            // The write names anything else that is in the way.
            None => self.stat(path).is_err(),
        };
        if same {
            self.write(path, bytes)
        } else {
            Err(FileError::changed(path))
        }
    }
    /// Removes a regular file or a link.
    fn remove(&self, path: &str) -> Result<(), FileError>;
    /// Moves a file; refuses to overwrite unless `replace`. Makes parents.
    fn rename(&self, from: &str, to: &str, replace: bool) -> Result<(), FileError>;
    /// The entries of a directory, sorted by name, at most `max`.
    fn list(&self, path: &str, max: usize) -> Result<Listing, FileError>;
    /// Files whose path matches, honouring ignore files.
    fn find(&self, query: &FindQuery, cancel: &CancellationToken) -> Result<Found, FileError>;
    /// Lines that match, honouring ignore files.
    fn grep(&self, query: &GrepQuery, cancel: &CancellationToken) -> Result<Grepped, FileError>;
}

/// Lets a call read what lies outside the workspace, once that was judged.
pub trait Outside: Send + Sync {
    /// The same files and, for reading alone, exactly these resolved paths and what is below them. What was judged is
    /// what is opened: a link that was put in the way since then is refused.
    fn grant(&self, files: &Arc<dyn Files>, reads: Vec<String>) -> Arc<dyn Files>;
}

/// Where a path leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// Relative to the root with links resolved; absolute when it leads outside.
    pub path: String,
    /// Whether it is inside the root.
    pub inside: bool,
    /// What is there now.
    pub kind: Option<FileKind>,
}

/// What a name refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link (only where links are not followed).
    Link,
    /// A pipe, socket or device: never opened.
    Special,
}

/// Facts about one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStat {
    /// What it is.
    pub kind: FileKind,
    /// Its size.
    pub size: u64,
    /// Its permission bits.
    pub mode: u32,
}

/// Entries of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Name, kind and size.
    pub entries: Vec<(String, FileKind, u64)>,
    /// There are more.
    pub more: bool,
    /// A rule keeps some of them back.
    pub kept_back: bool,
}

/// What to find.
#[derive(Debug, Clone, Default)]
pub struct FindQuery {
    /// Directory to start from; empty is the root.
    pub under: String,
    /// Glob over the path; `**` crosses directories; a glob without `/` matches the file name anywhere.
    pub glob: String,
    /// The most results.
    pub max: usize,
}

/// Files that were found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Relative to the root, sorted.
    pub paths: Vec<String>,
    /// There are more.
    pub more: bool,
}

/// What to grep for.
#[derive(Debug, Clone, Default)]
pub struct GrepQuery {
    /// File or directory to look in; empty is the root.
    pub under: String,
    /// A regular expression (linear time; no look-around, no back-references), or a plain text with `literal`.
    pub pattern: String,
    /// Take the pattern as it is.
    pub literal: bool,
    /// Ignore case.
    pub ignore_case: bool,
    /// Only paths that match this glob.
    pub glob: Option<String>,
    /// Lines of context on both sides.
    pub context: usize,
    /// The most matching lines.
    pub max: usize,
}

/// Lines that were found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grepped {
    /// In path and line order.
    pub lines: Vec<GrepLine>,
    /// Matching lines, context not counted.
    pub matches: usize,
    /// Files with a match.
    pub files: usize,
    /// There are more.
    pub more: bool,
    /// The search took too long and stopped.
    pub timed_out: bool,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrepLine {
    /// Relative to the root.
    pub path: String,
    /// Counted from 1.
    pub line: u64,
    /// The line, cut when very long.
    pub text: String,
    /// It matches (else it is context).
    pub hit: bool,
}

/// Why a file operation failed. Written to be passed on to a model or a person.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FileError {
    /// What to match on.
    pub kind: FileErrorKind,
    /// What happened and, where there is one, what to do.
    pub message: String,
}

impl FileError {
    /// The error of a path that is not what the caller read.
    #[must_use]
    pub fn changed(path: &str) -> Self {
        Self {
            kind: FileErrorKind::Changed,
            message: format!(
                "{path} was changed by another program since it was read; nothing was written. Read it again, then \
                 repeat the edit"
            ),
        }
    }
}

/// Kinds of file errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileErrorKind {
    /// Nothing of that name.
    NotFound,
    /// It is there already.
    Exists,
    /// It leads out of the workspace.
    Outside,
    /// Not a regular file, or not a directory, where one is needed.
    WrongKind,
    /// Larger than the bound.
    TooLarge,
    /// The path or pattern itself is not acceptable.
    BadInput,
    /// The system refuses.
    Permission,
    /// No space is left.
    Full,
    /// It is not what the caller read.
    Changed,
    /// Stopped by a cancel.
    Cancelled,
    /// Anything else from the system.
    Io,
}

/// Starts programs for one run. All of them are gone when the run is.
pub trait Processes: Send + Sync {
    /// Runs a shell command to its end.
    fn run<'a>(
        &'a self,
        command: Command,
        watch: Watch<'a>,
    ) -> BoxFuture<'a, Result<Finished, ProcessError>>;
    /// Starts a command that goes on beside the run.
    fn start(&self, command: Command) -> Result<JobId, ProcessError>;
    /// Output of a job from `offset` on (at most `max` bytes), and whether it still runs.
    fn poll(&self, job: &JobId, offset: u64, max: usize) -> Result<JobOutput, ProcessError>;
    /// Ends a job and everything it started.
    fn stop<'a>(&'a self, job: &'a JobId) -> BoxFuture<'a, Result<(), ProcessError>>;
    /// Whether jobs are running.
    fn has_jobs(&self) -> bool {
        false
    }
    /// Ends all jobs, and all agents that are not ours.
    fn stop_all(&self) -> BoxFuture<'_, ()>;
    /// Ends all jobs, and stops agents that are not ours until [`Enclosure::resume`]: nothing of them runs any more. One
    /// that cannot be stopped is ended.
    fn pause_agents(&self) -> BoxFuture<'_, ()> {
        self.stop_all()
    }
    /// The place of an agent that is not ours, where this run has one. What cannot be had is an error, never a weaker
    /// place.
    fn enclose(&self) -> BoxFuture<'_, Result<Arc<dyn Enclosure>, ProcessError>> {
        Box::pin(std::future::ready(Err(ProcessError::no_enclosure())))
    }
}

/// A background job of a run.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct JobId(pub String);

/// A shell command.
#[derive(Debug, Clone)]
pub struct Command {
    /// For `bash -c`, or `sh -c` where there is no bash.
    pub line: String,
    /// Directory inside the workspace; empty is the root.
    pub workdir: String,
    /// After that it is ended.
    pub timeout: Duration,
    /// Bytes kept in memory from the beginning and the end together.
    pub keep: usize,
    /// What it reads from standard input; nothing when absent.
    pub input: Option<Vec<u8>>,
    /// It was let through because it only looks, and is held to it where the kernel can.
    pub looks: bool,
}

/// How to follow a command.
pub struct Watch<'a> {
    /// Called now and then with the newest output.
    pub progress: &'a (dyn Fn(&str) + Send + Sync),
    /// Ends the command and everything it started.
    pub cancel: CancellationToken,
    /// Where output goes that does not fit in memory.
    pub artifacts: Option<&'a dyn Artifacts>,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// How.
    pub end: ProcessEnd,
    /// Standard output and error in the order they came; the middle is left out when it is long.
    pub output: String,
    /// Bytes written in all.
    pub total_bytes: u64,
    /// The whole output, when it did not fit (up to the artifact cap).
    pub artifact: Option<ArtifactRef>,
    /// How long it took.
    pub took: Duration,
    /// Hosts that it was not allowed to reach.
    pub refused: Vec<String>,
    /// Why its changes are not in the workspace, and where they are kept; `None` where they are.
    pub not_landed: Option<String>,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum ProcessEnd {
    /// By itself.
    Exited {
        /// Its exit code.
        code: i32,
    },
    /// By a signal that was not ours.
    Signalled {
        /// Which.
        signal: i32,
    },
    /// We ended it when its time was up.
    TimedOut,
    /// We ended it on request.
    Cancelled,
}

impl ProcessEnd {
    /// In a few words.
    #[must_use]
    pub fn in_words(self) -> String {
        match self {
            Self::Exited { code } => format!("exit code {code}"),
            Self::Signalled { signal } => format!("signal {signal}"),
            Self::TimedOut => "out of time".to_owned(),
            Self::Cancelled => "cancelled".to_owned(),
        }
    }
}

/// What a job wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobOutput {
    /// From the offset on.
    pub text: String,
    /// Where to go on reading.
    pub next_offset: u64,
    /// How it ended; `None` while it runs.
    pub end: Option<ProcessEnd>,
}

/// Why a program could not be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ProcessError(pub String);

impl ProcessError {
    /// There is no place here for an agent that is not ours.
    #[must_use]
    pub fn no_enclosure() -> Self {
        Self(
            "an agent that is not ours only works on a copy of the tree, in the kernel sandbox: run it isolated \
             (`--isolated`, without `--in-place` and `--sandbox full`)"
                .to_owned(),
        )
    }
}

/// One changed file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileChange {
    /// Relative to the root.
    pub path: String,
    /// What happened to it.
    pub change: Change,
    /// Lines added; absent where they were not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added: Option<u32>,
    /// Lines removed; absent where they were not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<u32>,
    /// A unified diff, unless it would be too long or the file is not text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

impl FileChange {
    /// The lines added and removed, as in `+3 -1`; nothing where they were not counted.
    #[must_use]
    pub fn line_counts(&self) -> String {
        match (self.added, self.removed) {
            (Some(added), Some(removed)) => format!("+{added} -{removed}"),
            _ => String::new(),
        }
    }
}

/// What happened to a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It is new.
    Created,
    /// Its bytes are others.
    Modified,
    /// It is gone.
    Deleted,
    /// It was elsewhere before.
    MovedFrom(String),
}

/// Results too large to be said in full.
pub trait Artifacts: Send + Sync {
    /// Stores bytes under a new id; what is over the cap is cut and counted.
    fn put(&self, bytes: &[u8]) -> Result<ArtifactRef, ArtifactError>;
    /// Opens an artifact to be written piece by piece.
    fn create(&self) -> Result<Box<dyn ArtifactWriter>, ArtifactError>;
    /// Up to `len` bytes from `offset`.
    fn read(&self, id: &ArtifactId, offset: u64, len: u64) -> Result<Vec<u8>, ArtifactError>;
}

/// An artifact that is being written.
pub trait ArtifactWriter: Send {
    /// Appends; bytes over the cap are counted and dropped.
    fn write(&mut self, bytes: &[u8]) -> Result<(), ArtifactError>;
    /// Ends it.
    fn finish(self: Box<Self>) -> Result<ArtifactRef, ArtifactError>;
}

/// Why an artifact could not be stored or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ArtifactError(pub String);

/// How the words begin that stand in the place of a secret. Distinctive: a write that contains them is refused,
/// because it would put them where the secret was.
pub const REDACTED: &str = concat!("[redacted", " by windlass");

/// Takes secrets out of text, once, when it enters the history.
pub trait Redactor: Send + Sync {
    /// The text without secrets; borrowed when there was none.
    fn redact<'a>(&self, text: &'a str) -> std::borrow::Cow<'a, str>;
    /// How much of the beginning of a text may be shown when more of it is to come: what follows may be the start of
    /// a secret whose end is not there yet.
    fn settled(&self, text: &str) -> usize {
        text.len()
    }
    /// Where a text holds what looks like a secret; never the value.
    fn scan(&self, _text: &str) -> Vec<KeyFinding> {
        Vec::new()
    }
}

/// Something in a text that looks like a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFinding {
    /// Counted from 1.
    pub line: usize,
    /// What it looks like, in words.
    pub kind: &'static str,
}

/// A redactor that knows no secrets.
#[derive(Debug, Default, Clone, Copy)]
pub struct NoSecrets;

impl Redactor for NoSecrets {
    fn redact<'a>(&self, text: &'a str) -> std::borrow::Cow<'a, str> {
        text.into()
    }
}
