//! Patches: unified diffs (plain and git), the `*** Begin Patch` format, search/replace blocks, the JSON arguments of
//! edit tools, and whole files. Each format is parsed into a [`Patch`], which is then turned into a [`PatchPlan`] with the
//! whole new content of every file.
//!
//! The plan is complete before anything is written, so a patch applies to all its files or to none.
//! It never guesses: a hunk that fits two places, or none, is refused with the expected and the actual lines.

mod begin;
mod blocks;
mod locate;
mod names;
mod paths;
mod plan;
mod render;
mod tool_edits;
mod unified;
mod whole;

use super::block::EditBlock;
use super::matching::{EditError, list_lines};
use super::nearest::Nearest;

pub use plan::{PatchChange, PatchPlan, PatchedPath};

/// A parsed patch: the requested change of each file, in the order of the patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    /// One entry per file section.
    pub files: Vec<FilePatch>,
    /// Mistakes in the patch that the parser tolerated, to be shown to the author of the patch.
    pub notes: Vec<String>,
}

/// Adds a block to the last entry if that is for the same file, else to a new entry.
fn push_block(files: &mut Vec<FilePatch>, path: String, block: EditBlock) {
    if let Some(FilePatch {
        op: FileOp::Update { path: last, .. },
        body: PatchBody::Blocks(blocks),
    }) = files.last_mut()
        && *last == path
    {
        blocks.push(block);
        return;
    }
    files.push(FilePatch {
        op: FileOp::Update {
            path,
            move_to: None,
        },
        body: PatchBody::Blocks(vec![block]),
    });
}

/// The formats in which an edit can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchFormat {
    /// `*** Begin Patch` … `*** End Patch`.
    BeginPatch,
    /// A unified diff, plain or as git writes it, with or without line numbers.
    Unified,
    /// A path, then `<<<<<<< SEARCH`, `=======` and `>>>>>>> REPLACE`, any number of times.
    SearchReplace,
    /// JSON with the old and the new text, like the arguments of an edit tool; one object or a list.
    ToolEdit,
    /// The whole new text of files: a path and a fenced block each, or JSON of path and text.
    Whole,
}

impl Patch {
    /// Detects whether the text is a patch, a diff or search/replace blocks, and parses it. Prose and code fences around
    /// it are skipped.
    pub fn parse(text: &str) -> Result<Self, PatchError> {
        Self::parse_about(text, &[])
    }

    /// Like [`Patch::parse`], with the files that the author of the patch was shown; see [`Patch::read`].
    pub fn parse_about(text: &str, known: &[&str]) -> Result<Self, PatchError> {
        let lines = patch_lines(text);
        match (0..lines.len()).find_map(|at| format_at(&lines, at)) {
            Some(format) => Self::read(format, text, known),
            None => Err(PatchError::syntax(
                0,
                "no patch found; start with `*** Begin Patch`, `diff --git`, `--- a/path` and `+++ b/path`, or a path and `<<<<<<< SEARCH`",
            )),
        }
    }

    /// Parses a patch of the given format. `known` are the files that the author of the patch was shown. They are used to
    /// tell a path from prose, to complete a shortened path, and, if there is only one, for an edit without a path.
    pub fn read(format: PatchFormat, text: &str, known: &[&str]) -> Result<Self, PatchError> {
        let lines = patch_lines(text);
        let mut notes = Vec::new();
        let files = match format {
            PatchFormat::BeginPatch if begin::is_bare(&lines) && known.len() == 1 => {
                vec![begin::parse_bare(&lines, known[0])?]
            }
            PatchFormat::BeginPatch => {
                let start = start_of(&lines, format, "`*** Begin Patch`")?;
                let (files, end) = begin::parse(&lines, start)?;
                // Without this check, a second patch after the first would be ignored silently.
                if let Some(second) =
                    (end + 1..lines.len()).find(|&at| format_at(&lines, at).is_some())
                {
                    return Err(two_patches(second + 1));
                }
                files
            }
            PatchFormat::Unified => {
                let start = start_of(
                    &lines,
                    format,
                    "`diff --git`, or `--- a/path` and `+++ b/path`",
                )?;
                unified::parse(&lines, start, &mut notes)?
            }
            PatchFormat::SearchReplace => blocks::parse(&lines, known, &mut notes)?,
            PatchFormat::ToolEdit => tool_edits::parse(text, known)?,
            PatchFormat::Whole => whole::parse(text, known)?,
        };
        if files.is_empty() {
            return Err(PatchError::Nothing);
        }
        Ok(Self { files, notes })
    }

    /// Every path in the patch, without duplicates, in order.
    pub fn paths(&self) -> Vec<&str> {
        let mut paths: Vec<&str> = Vec::new();
        for file in &self.files {
            let named = match &file.op {
                FileOp::Create { path } | FileOp::Write { path } | FileOp::Delete { path } => {
                    vec![path]
                }
                FileOp::Update { path, move_to } => std::iter::once(path).chain(move_to).collect(),
            };
            for path in named {
                if !paths.contains(&path.as_str()) {
                    paths.push(path);
                }
            }
        }
        paths
    }

    /// Computes the new content of every file. `read` is called once for each path in the patch.
    pub fn plan(&self, read: impl FnMut(&str) -> PatchedPath) -> Result<PatchPlan, PatchError> {
        plan::plan(self, read)
    }
}

/// Unquotes and normalises a path from a patch, and checks that it stays inside the workspace. It is unquoted before it
/// is checked, so that an escape sequence cannot hide a forbidden path.
pub fn plain_path(text: &str) -> Result<String, PatchError> {
    let (path, rest) =
        paths::take(text.trim()).map_err(|message| PatchError::syntax(0, message))?;
    if !rest.trim().is_empty() {
        return Err(PatchError::syntax(0, format!("{text:?} is not one path")));
    }
    paths::check(&path)
}

/// Splits a patch into lines. If every line ends in `\r\n`, the endings come from the transport and the `\r` is removed.
/// If only some do, the `\r` is kept, because it is part of these lines of the file.
fn patch_lines(text: &str) -> Vec<&str> {
    let breaks = text.matches('\n').count();
    let uniform = breaks > 0 && text.matches("\r\n").count() == breaks;
    let plain = |line: &'_ str| -> usize {
        if uniform || line == "\r" {
            line.strip_suffix('\r').unwrap_or(line).len()
        } else {
            line.len()
        }
    };
    text.split('\n').map(|line| &line[..plain(line)]).collect()
}

fn two_patches(line: usize) -> PatchError {
    let message =
        "a second patch starts here; put all files into one, or send them one by one".into();
    PatchError::Syntax { line, message }
}

fn start_of(lines: &[&str], format: PatchFormat, marker: &str) -> Result<usize, PatchError> {
    let found = (0..lines.len()).find(|&at| format_at(lines, at) == Some(format));
    found.ok_or_else(|| PatchError::syntax(0, format!("no patch found; start with {marker}")))
}

fn format_at(lines: &[&str], at: usize) -> Option<PatchFormat> {
    let line = lines[at];
    if line.trim() == begin::BEGIN {
        return Some(PatchFormat::BeginPatch);
    }
    if blocks::opens(line) {
        return Some(PatchFormat::SearchReplace);
    }
    let next = |ahead: usize| lines.get(at + ahead).copied().unwrap_or_default();
    let pair = line.starts_with("--- ") && next(1).starts_with("+++ ");
    (line.starts_with("diff --git ") || pair).then_some(PatchFormat::Unified)
}

/// The requested change of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePatch {
    /// The operation and its paths.
    pub op: FileOp,
    /// The change of the text; for a deletion, hunks that must match the whole file, or none.
    pub body: PatchBody,
}

/// The change of the text of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PatchBody {
    /// Hunks with the lines around them, in the order of the file.
    Hunks(Vec<PatchHunk>),
    /// Search/replace blocks, applied in order.
    Blocks(Vec<EditBlock>),
    /// The whole new text of the file.
    Whole(String),
}

/// The operation on a file. All paths are relative and stay inside the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileOp {
    /// Create a file; it must not exist yet, or must be empty.
    Create {
        /// The path of the new file.
        path: String,
    },
    /// Write the whole text of a file, which may or may not exist.
    Write {
        /// The path of the file.
        path: String,
    },
    /// Change an existing file, and optionally rename it.
    Update {
        /// The path of the existing file.
        path: String,
        /// The new path, if the file is renamed.
        move_to: Option<String>,
    },
    /// Delete an existing file.
    Delete {
        /// The path of the existing file.
        path: String,
    },
}

/// A change of consecutive lines together with the unchanged lines around them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PatchHunk {
    /// The first old line (from 1) according to the header of a unified diff.
    pub old_start: Option<usize>,
    /// The `@@` lines of the Begin Patch format: lines of the file above the change, such as the enclosing class and
    /// function, outermost first.
    pub headers: Vec<String>,
    /// The text after the line numbers of a unified hunk header: a line above the change, possibly shortened. It is only
    /// used to choose between equal places.
    pub section: Option<String>,
    /// Unchanged, removed and added lines in the order of the patch.
    pub lines: Vec<HunkLine>,
    /// The hunk is marked as the end of the file.
    pub at_end: bool,
    /// `\ No newline at end of file` follows a line of the old text.
    pub old_lacks_newline: bool,
    /// `\ No newline at end of file` follows a line of the new text.
    pub new_lacks_newline: bool,
    /// Some lines end in `\r`, so added lines are written with exactly the endings of the hunk.
    pub explicit_endings: bool,
}

impl PatchHunk {
    /// Adds a line; `prefix` is its first character in the patch. Old lines are compared without endings, so a `\r` is
    /// removed from them; an added line keeps it.
    fn push(&mut self, prefix: u8, text: &str) {
        let bare = text.strip_suffix('\r').unwrap_or(text);
        self.explicit_endings |= bare.len() < text.len();
        self.lines.push(match prefix {
            b'-' => HunkLine::Remove(bare.to_owned()),
            b'+' => HunkLine::Add(text.to_owned()),
            _ => HunkLine::Keep(bare.to_owned()),
        });
    }

    /// Whether the hunk adds or removes a line.
    fn changes(&self) -> bool {
        let keeps = |line: &HunkLine| matches!(line, HunkLine::Keep(_));
        !self.lines.iter().all(keeps)
    }
}

/// One line of a hunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HunkLine {
    /// An unchanged line, which is in both texts.
    Keep(String),
    /// A line that is only in the old text.
    Remove(String),
    /// A line that is only in the new text.
    Add(String),
}

/// Why a patch cannot be parsed or applied. None of these cases changes anything.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The text is not a valid patch of its format.
    #[error("the patch does not parse at its line {line}: {message}")]
    Syntax {
        /// The line of the patch, from 1.
        line: usize,
        /// The mistake, and the text that was expected instead.
        message: String,
    },
    /// The patch requests a change that patches are not allowed to make.
    #[error("{path}: {message}")]
    Forbidden {
        /// The path as the patch writes it.
        path: String,
        /// The rule that the patch breaks.
        message: String,
    },
    /// The patch changes nothing.
    #[error("the patch changes nothing")]
    Nothing,
    /// A file to change does not exist.
    #[error(
        "{path} does not exist; to create it, use `*** Add File`, `--- /dev/null` or an empty SEARCH"
    )]
    NotFound {
        /// The path that was looked up.
        path: String,
    },
    /// A file to create exists already.
    #[error("{path} exists already; update it, or delete it first")]
    Exists {
        /// The path of the existing file.
        path: String,
    },
    /// A file cannot be changed as text.
    #[error("{path}: {message}")]
    Unusable {
        /// The path of the file.
        path: String,
        /// The reason, for example that the file is binary.
        message: String,
    },
    /// A search/replace block cannot be applied.
    #[error("{path}: block {block}: {}", .problem.to_string().replace("`old`", "the text to replace").replace("`new`", "the new text"))]
    Block {
        /// The file that the block is for.
        path: String,
        /// Number of the block in its file, from 1.
        block: usize,
        /// The reason why the block was refused.
        problem: EditError,
    },
    /// A hunk cannot be applied.
    #[error("{path}: hunk {hunk} {problem}")]
    Hunk {
        /// The file that the hunk is for.
        path: String,
        /// Number of the hunk in its file, from 1.
        hunk: usize,
        /// The reason why the hunk was refused.
        problem: Box<HunkProblem>,
    },
}

impl PatchError {
    /// `line` is counted from 0.
    fn syntax(line: usize, message: impl Into<String>) -> Self {
        Self::Syntax {
            line: line + 1,
            message: message.into(),
        }
    }

    /// `hunk` is counted from 1.
    fn hunk(path: &str, hunk: usize, problem: HunkProblem) -> Self {
        Self::Hunk {
            path: path.to_owned(),
            hunk,
            problem: Box::new(problem),
        }
    }
}

/// Why a hunk cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HunkProblem {
    /// Its old lines are not in the file.
    #[error("does not fit; it expects\n{}\n{}", .expected, nearest_or_none(.nearest))]
    Missing {
        /// The old lines of the hunk, prepared for display.
        expected: String,
        /// The most similar text in the file.
        nearest: Option<Nearest>,
    },
    /// Its old lines are in the file more than once, and nothing in the patch decides which place is meant.
    #[error("fits {} places (lines {}); add surrounding lines until it fits one", .lines.len(), list_lines(.lines, .lines.len()))]
    Ambiguous {
        /// The lines (from 1) at which the hunk fits.
        lines: Vec<usize>,
    },
    /// It fits only before the place of the previous hunk.
    #[error(
        "belongs at line {line}, before the hunk in front of it; put the hunks in the order of the file"
    )]
    OutOfOrder {
        /// The line (from 1) at which the hunk fits.
        line: usize,
    },
    /// Its `@@` line is not in the file.
    #[error("is under `@@ {header}`, but the file has no such line{}", nearest_suffix(.nearest))]
    HeaderMissing {
        /// The text after `@@`.
        header: String,
        /// The most similar line of the file.
        nearest: Option<Nearest>,
    },
    /// It only adds lines, and nothing in the patch determines their place.
    #[error("has no old lines, so its place cannot be checked; add the lines around it")]
    NoContext,
    /// It has old lines, although the file is to be created.
    #[error("has old lines, but the file is to be created; every line must start with `+`")]
    OldLinesInNewFile,
    /// The file is to be deleted, but has more lines than the hunks remove.
    #[error(
        "leaves lines of a file that is to be deleted; the file has more than the patch removes"
    )]
    LeavesLines,
}

fn nearest_or_none(nearest: &Option<Nearest>) -> String {
    nearest.as_ref().map_or_else(
        || "nothing in the file resembles it".to_owned(),
        ToString::to_string,
    )
}

fn nearest_suffix(nearest: &Option<Nearest>) -> String {
    nearest
        .as_ref()
        .map_or_else(String::new, |nearest| format!("; {nearest}"))
}
