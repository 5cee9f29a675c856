//! The machine as the engine, the runtimes and the tools see it: files below one root, processes, stored results. The
//! `host` crate implements these ports; nothing here opens or starts anything.
//!
//! ```
//! use windlass_core::workspace::{FileError, FileErrorKind};
//!
//! let err = FileError::changed("src/lib.rs");
//! assert_eq!(err.kind, FileErrorKind::Changed, "another program wrote it since it was read");
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

/// Files below one root. Paths are relative to the root, or absolute inside it. The kernel resolves every path below
/// the root's handle, so a symlink that is swapped in meanwhile cannot lead outside.
///
/// Methods block for the duration of a small file operation; call them on a blocking thread if the file may be large.
///
/// The port has thirteen methods because each operation has to be resolved below the root as a whole: if a caller built
/// `find` or `grep` from lists and reads, every path would be resolved again, and a race could lead it outside.
pub trait Files: Send + Sync {
    /// The path of the root, for display and for processes.
    fn root(&self) -> &Path;
    /// Globs of paths that no tool may read. No method here returns them.
    fn hidden(&self) -> &[String] {
        &[]
    }
    /// Resolves symlinks (as far as they exist) and `..`. Reads no content.
    fn resolve(&self, path: &str) -> Result<Resolved, FileError>;
    /// Reads a regular file. A file longer than `max` bytes is an error that gives the size.
    fn read(&self, path: &str, max: u64) -> Result<Vec<u8>, FileError>;
    /// Reads up to `len` bytes from `offset`.
    fn read_range(&self, path: &str, offset: u64, len: u64) -> Result<Vec<u8>, FileError>;
    /// The kind, size and mode of a file.
    fn stat(&self, path: &str) -> Result<FileStat, FileError>;
    /// Atomically replaces or creates a regular file (temporary file and rename). Keeps the mode and creates parent
    /// directories.
    fn write(&self, path: &str, bytes: &[u8]) -> Result<(), FileError>;
    /// Writes like [`Files::write`], if the file still has the content that the caller read, or still does not exist
    /// (`None`). Otherwise nothing is written and the error is [`FileErrorKind::Changed`]. The default checks first and
    /// then writes; an implementation whose files have other writers must close that race.
    fn replace(&self, path: &str, read: Option<&[u8]>, bytes: &[u8]) -> Result<(), FileError> {
        let same = match read {
            Some(read) => self
                .read(path, read.len() as u64)
                .is_ok_and(|now| now == read),
            // If there is something that is not a file, the write reports it.
            None => self.stat(path).is_err(),
        };
        if same {
            self.write(path, bytes)
        } else {
            Err(FileError::changed(path))
        }
    }
    /// Removes a regular file or a symlink.
    fn remove(&self, path: &str) -> Result<(), FileError>;
    /// Moves a file and creates parent directories. Fails if the target exists, unless `replace` is true.
    fn rename(&self, from: &str, to: &str, replace: bool) -> Result<(), FileError>;
    /// The entries of a directory, sorted by name, at most `max`.
    fn list(&self, path: &str, max: usize) -> Result<Listing, FileError>;
    /// Files whose path matches, without ignored files.
    fn find(&self, query: &FindQuery, cancel: &CancellationToken) -> Result<FoundPaths, FileError>;
    /// Lines that match, without ignored files.
    fn grep(&self, query: &GrepQuery, cancel: &CancellationToken) -> Result<Grepped, FileError>;
}

/// Grants a call read access to approved paths outside the workspace.
pub trait Outside: Send + Sync {
    /// The same files and, read-only, exactly these resolved paths with everything below them. The judged path is the
    /// one that is opened: a symlink that was put in its place meanwhile is refused.
    fn grant(&self, files: &Arc<dyn Files>, reads: Vec<String>) -> Arc<dyn Files>;
}

/// A path after symlinks and `..` were resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// Relative to the root with symlinks resolved; absolute if it leads outside.
    pub path: String,
    /// Whether it is inside the root.
    pub inside: bool,
    /// The kind of file at the path; `None` if there is nothing.
    pub kind: Option<FileKind>,
}

/// The kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// It is a regular file.
    File,
    /// It is a directory.
    Directory,
    /// A symlink (only if symlinks are not followed).
    Link,
    /// A pipe, socket or device, which is never opened.
    Special,
}

/// Metadata of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStat {
    /// The kind of file.
    pub kind: FileKind,
    /// The size in bytes.
    pub size: u64,
    /// The permission bits of the file.
    pub mode: u32,
}

/// The entries of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The name, kind and size of each entry.
    pub entries: Vec<(String, FileKind, u64)>,
    /// True if there are more entries than the maximum.
    pub more: bool,
    /// True if a rule hides some entries.
    pub kept_back: bool,
}

/// The parameters of a search for files.
#[derive(Debug, Clone, Default)]
pub struct FindQuery {
    /// Directory to start from; empty means the root.
    pub under: String,
    /// Glob for the path; `**` crosses directories. A glob without `/` matches the file name in any directory.
    pub glob: String,
    /// Maximum number of results.
    pub max: usize,
}

/// The result of a search for files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundPaths {
    /// Paths relative to the root, sorted.
    pub paths: Vec<String>,
    /// True if there are more results than the maximum.
    pub more: bool,
}

/// The parameters of a search in files.
#[derive(Debug, Clone, Default)]
pub struct GrepQuery {
    /// File or directory to search; empty means the root.
    pub under: String,
    /// A regular expression (linear time; no look-around, no back-references), or plain text with `literal`.
    pub pattern: String,
    /// Treat the pattern as plain text.
    pub literal: bool,
    /// Match regardless of case.
    pub ignore_case: bool,
    /// Search only paths that match this glob.
    pub glob: Option<String>,
    /// Lines of context before and after each match.
    pub context: usize,
    /// Maximum number of matching lines.
    pub max: usize,
}

/// The result of a search in files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grepped {
    /// Lines ordered by path and line number.
    pub lines: Vec<GrepLine>,
    /// The number of matching lines, without context.
    pub matches: usize,
    /// The number of files with a match.
    pub files: usize,
    /// True if there are more matches than the maximum.
    pub more: bool,
    /// True if the search stopped at its time limit.
    pub timed_out: bool,
}

/// One line of a search result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrepLine {
    /// Path relative to the root.
    pub path: String,
    /// Line number, counted from 1.
    pub line: u64,
    /// The text of the line, shortened if it is very long.
    pub text: String,
    /// True for a match, false for a line of context.
    pub hit: bool,
}

/// An error of a file operation, worded for a model or a user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FileError {
    /// The kind of error, for programs.
    pub kind: FileErrorKind,
    /// A description of the error and, where possible, what to do about it.
    pub message: String,
}

impl FileError {
    /// The error for a file that has changed since the caller read it.
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
    /// There is no file of that name.
    NotFound,
    /// The file exists already.
    Exists,
    /// The path leads out of the workspace.
    Outside,
    /// It is not a regular file, or not a directory, although the operation needs one.
    WrongKind,
    /// The file is larger than the limit.
    TooLarge,
    /// The path or pattern itself is invalid.
    BadInput,
    /// The operating system denied access.
    Permission,
    /// The disk is full.
    Full,
    /// The file has changed since the caller read it.
    Changed,
    /// The operation was cancelled.
    Cancelled,
    /// Any other error of the operating system.
    Io,
}

/// Starts programs for one run. All of them end with the run.
pub trait Processes: Send + Sync {
    /// Runs a shell command until it exits.
    fn run<'a>(
        &'a self,
        command: Command,
        watch: Watch<'a>,
    ) -> BoxFuture<'a, Result<Finished, ProcessError>>;
    /// Starts a command in the background.
    fn start(&self, command: Command) -> Result<JobId, ProcessError>;
    /// The output of a job from `offset` on (at most `max` bytes), and whether the job is still running.
    fn poll(&self, job: &JobId, offset: u64, max: usize) -> Result<JobOutput, ProcessError>;
    /// Ends a job and everything it started.
    fn stop<'a>(&'a self, job: &'a JobId) -> BoxFuture<'a, Result<(), ProcessError>>;
    /// Whether any jobs are running.
    fn has_jobs(&self) -> bool {
        false
    }
    /// Ends all jobs and all foreign agents.
    fn stop_all(&self) -> BoxFuture<'_, ()>;
    /// Ends all jobs, and stops foreign agents until [`Enclosure::resume`]. An agent that cannot be stopped is ended.
    fn pause_agents(&self) -> BoxFuture<'_, ()> {
        self.stop_all()
    }
    /// Opens an enclosure for a foreign agent in this run. If its protection is not available, that is an error, never
    /// a weaker enclosure.
    fn enclose(&self) -> BoxFuture<'_, Result<Arc<dyn Enclosure>, ProcessError>> {
        Box::pin(std::future::ready(Err(ProcessError::no_enclosure())))
    }
}

/// The id of a background job of a run.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct JobId(pub String);

/// A shell command with its limits.
#[derive(Debug, Clone)]
pub struct Command {
    /// The command line for `bash -c`, or for `sh -c` if there is no bash.
    pub line: String,
    /// Working directory relative to the workspace; empty means its root.
    pub workdir: String,
    /// The time after which the command is ended.
    pub timeout: Duration,
    /// Bytes of output kept in memory, from the beginning and the end together.
    pub keep: usize,
    /// Data for its standard input; none if absent.
    pub input: Option<Vec<u8>>,
    /// True if the command was allowed because it only reads. The kernel enforces that where it can.
    pub looks: bool,
}

/// Callbacks and limits while a command runs.
pub struct Watch<'a> {
    /// Called from time to time with the most recent output.
    pub progress: &'a (dyn Fn(&str) + Send + Sync),
    /// Cancels the command and everything it started.
    pub cancel: CancellationToken,
    /// The storage for output that does not fit into memory.
    pub artifacts: Option<&'a dyn Artifacts>,
}

/// The result of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// The exit status of the command.
    pub end: ProcessEnd,
    /// Standard output and error in the order of arrival. The middle is omitted if the output is long.
    pub output: String,
    /// Bytes of output in total.
    pub total_bytes: u64,
    /// The whole output (up to the artifact limit), if it did not fit into memory.
    pub artifact: Option<ArtifactRef>,
    /// Duration of the command.
    pub took: Duration,
    /// Hosts that the sandbox refused to connect to.
    pub refused: Vec<String>,
    /// The reason why its changes are not in the workspace, and where they are kept; `None` if they are in the
    /// workspace.
    pub not_landed: Option<String>,
}

/// The end of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum ProcessEnd {
    /// The process exited by itself.
    Exited {
        /// The exit status of the process.
        code: i32,
    },
    /// A signal that was not ours ended the process.
    Signalled {
        /// The number of the signal.
        signal: i32,
    },
    /// We ended the process at its timeout.
    TimedOut,
    /// We ended the process on request.
    Cancelled,
}

impl ProcessEnd {
    /// A short description for people and models.
    #[must_use]
    pub fn in_words(self) -> String {
        match self {
            Self::Exited { code } => format!("exit code {code}"),
            Self::Signalled { signal } => format!("signal {signal}"),
            Self::TimedOut => "timed out".to_owned(),
            Self::Cancelled => "cancelled".to_owned(),
        }
    }
}

/// The output of a background job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobOutput {
    /// The output from the given offset on.
    pub text: String,
    /// The offset at which to continue reading.
    pub next_offset: u64,
    /// The end of the job; `None` while it is running.
    pub end: Option<ProcessEnd>,
}

/// An error in starting or running a program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ProcessError(pub String);

impl ProcessError {
    /// The error for a workspace without enclosures.
    #[must_use]
    pub fn no_enclosure() -> Self {
        Self(
            "a foreign agent needs an isolated copy and the kernel sandbox: run it isolated \
                   (`--isolated`, without `--in-place` and `--sandbox full`)"
                .to_owned(),
        )
    }
}

/// One changed file of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileChange {
    /// Path relative to the root of the workspace.
    pub path: String,
    /// The kind of change.
    pub change: Change,
    /// Lines added; absent if they were not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added: Option<u32>,
    /// Lines removed; absent if they were not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<u32>,
    /// A unified diff, unless it would be too long or the file is not text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

impl FileChange {
    /// The lines added and removed, such as `+3 -1`; empty if they were not counted.
    #[must_use]
    pub fn line_counts(&self) -> String {
        match (self.added, self.removed) {
            (Some(added), Some(removed)) => format!("+{added} -{removed}"),
            _ => String::new(),
        }
    }
}

/// The kind of change of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// The file is new.
    Created,
    /// The content of the file changed.
    Modified,
    /// The file was deleted.
    Deleted,
    /// The file was moved from this path.
    MovedFrom(String),
}

/// The storage for results that are too large for a message.
pub trait Artifacts: Send + Sync {
    /// Stores bytes under a new id. Bytes beyond the limit are counted and dropped.
    fn put(&self, bytes: &[u8]) -> Result<ArtifactRef, ArtifactError>;
    /// Opens an artifact that is written piece by piece.
    fn create(&self) -> Result<Box<dyn ArtifactWriter>, ArtifactError>;
    /// Reads up to `len` bytes from `offset`.
    fn read(&self, id: &ArtifactId, offset: u64, len: u64) -> Result<Vec<u8>, ArtifactError>;
}

/// An artifact that is being written.
pub trait ArtifactWriter: Send {
    /// Appends bytes. Those beyond the limit are counted and dropped.
    fn write(&mut self, bytes: &[u8]) -> Result<(), ArtifactError>;
    /// Completes the artifact and returns a reference to it.
    fn finish(self: Box<Self>) -> Result<ArtifactRef, ArtifactError>;
}

/// An error in storing or reading an artifact.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ArtifactError(pub String);

/// The beginning of the text that replaces a secret. It is distinctive, because a write that contains it is refused: it
/// would overwrite the secret in the file.
pub const REDACTED: &str = concat!("[redacted", " by windlass");

/// Removes secrets from text once, when it enters the history.
pub trait Redactor: Send + Sync {
    /// The text without secrets; borrowed if there was none.
    fn redact<'a>(&self, text: &'a str) -> std::borrow::Cow<'a, str>;
    /// The length of the prefix that may be shown while the text is still streaming. The rest may be the beginning of a
    /// secret whose end has not arrived.
    fn settled(&self, text: &str) -> usize {
        text.len()
    }
    /// The places in a text that look like secrets, without their values.
    fn scan(&self, _text: &str) -> Vec<KeyFinding> {
        Vec::new()
    }
}

/// A place in a text that looks like a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFinding {
    /// Line number, counted from 1.
    pub line: usize,
    /// The kind of secret, in words.
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
