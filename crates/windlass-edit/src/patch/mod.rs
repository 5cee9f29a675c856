//! Patches: unified diffs (plain and git), the `*** Begin Patch` format, search/replace blocks, edits as tools take them
//! and whole files, all read into one shape and turned into a plan of whole-file results.
//!
//! The plan is complete before anything is written, so a patch applies to all its files or to none.
//! Never guesses: a hunk that fits two places, or none, is refused with what was expected and what is there.

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

use super::block::Block;
use super::matching::{EditError, listed};
use super::nearest::Nearest;

pub use plan::{Change, Found, Plan};

/// A patch as written: what it wants of each file, in its own order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    /// One entry per file section.
    pub files: Vec<FilePatch>,
    /// What was tolerated while reading, for whoever wrote the patch.
    pub notes: Vec<String>,
}

/// Adds a block to the entry of its file if that is the last one, or to a new entry.
fn push_block(files: &mut Vec<FilePatch>, path: String, block: Block) {
    if let Some(FilePatch {
        op: Op::Update { path: last, .. },
        body: Body::Blocks(blocks),
    }) = files.last_mut()
        && *last == path
    {
        blocks.push(block);
        return;
    }
    files.push(FilePatch {
        op: Op::Update {
            path,
            move_to: None,
        },
        body: Body::Blocks(vec![block]),
    });
}

/// The ways an edit is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `*** Begin Patch` … `*** End Patch`.
    BeginPatch,
    /// A unified diff, plain or as git writes it, with or without line numbers.
    Unified,
    /// A path, then `<<<<<<< SEARCH`, `=======` and `>>>>>>> REPLACE`, any number of times.
    SearchReplace,
    /// JSON with the old and the new text, as edit tools take it; one object or a list.
    ToolEdit,
    /// The whole new text of files: a path and a fenced block each, or JSON of path and text.
    Whole,
}

impl Patch {
    /// Reads a patch, a diff or search/replace blocks, whichever it is. Prose and code fences around it are skipped.
    pub fn parse(text: &str) -> Result<Self, PatchError> {
        Self::parse_about(text, &[])
    }

    /// The same, from a writer who was shown these files; see [`Patch::read`].
    pub fn parse_about(text: &str, known: &[&str]) -> Result<Self, PatchError> {
        let lines = transported(text);
        match (0..lines.len()).find_map(|at| format_at(&lines, at)) {
            Some(format) => Self::read(format, text, known),
            None => Err(PatchError::syntax(
                0,
                "no patch found; start with `*** Begin Patch`, `diff --git`, `--- a/path` and `+++ b/path`, or a path and `<<<<<<< SEARCH`",
            )),
        }
    }

    /// Reads one format. `known` are the files the writer was shown: they tell a path from prose, and the one of a
    /// shortened path or of an edit without a path where there is only one.
    pub fn read(format: Format, text: &str, known: &[&str]) -> Result<Self, PatchError> {
        let lines = transported(text);
        let mut notes = Vec::new();
        let files = match format {
            Format::BeginPatch if begin::is_bare(&lines) && known.len() == 1 => {
                vec![begin::parse_bare(&lines, known[0])?]
            }
            Format::BeginPatch => {
                let start = start_of(&lines, format, "`*** Begin Patch`")?;
                let (files, end) = begin::parse(&lines, start)?;
                // A second patch behind the first would be dropped without a word.
                if let Some(second) =
                    (end + 1..lines.len()).find(|&at| format_at(&lines, at).is_some())
                {
                    return Err(two_patches(second + 1));
                }
                files
            }
            Format::Unified => {
                let start = start_of(
                    &lines,
                    format,
                    "`diff --git`, or `--- a/path` and `+++ b/path`",
                )?;
                unified::parse(&lines, start, &mut notes)?
            }
            Format::SearchReplace => blocks::parse(&lines, known, &mut notes)?,
            Format::ToolEdit => tool_edits::parse(text, known)?,
            Format::Whole => whole::parse(text, known)?,
        };
        if files.is_empty() {
            return Err(PatchError::Nothing);
        }
        Ok(Self { files, notes })
    }

    /// Every path the patch names, each once, in order.
    pub fn paths(&self) -> Vec<&str> {
        let mut paths: Vec<&str> = Vec::new();
        for file in &self.files {
            let named = match &file.op {
                Op::Create { path } | Op::Write { path } | Op::Delete { path } => vec![path],
                Op::Update { path, move_to } => std::iter::once(path).chain(move_to).collect(),
            };
            for path in named {
                if !paths.contains(&path.as_str()) {
                    paths.push(path);
                }
            }
        }
        paths
    }

    /// Computes what every file would be afterwards. `read` is asked for each path the patch names.
    pub fn plan(&self, read: impl FnMut(&str) -> Found) -> Result<Plan, PatchError> {
        plan::plan(self, read)
    }
}

/// A path as a patch may write it, in its plain form: unquoted first and then held to the rules, so that an escape cannot
/// hide what it names.
pub fn plain_path(text: &str) -> Result<String, PatchError> {
    let (path, rest) =
        paths::take(text.trim()).map_err(|message| PatchError::syntax(0, message))?;
    if !rest.trim().is_empty() {
        return Err(PatchError::syntax(0, format!("{text:?} is not one path")));
    }
    paths::check(&path)
}

/// The lines of a patch. Where every line ends in `\r\n`, that is how the patch came and says nothing about files;
/// where only some do, the `\r` stays, because those lines of the files have it.
fn transported(text: &str) -> Vec<&str> {
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

fn start_of(lines: &[&str], format: Format, how: &str) -> Result<usize, PatchError> {
    let found = (0..lines.len()).find(|&at| format_at(lines, at) == Some(format));
    found.ok_or_else(|| PatchError::syntax(0, format!("no patch found; start with {how}")))
}

fn format_at(lines: &[&str], at: usize) -> Option<Format> {
    let line = lines[at];
    if line.trim() == begin::BEGIN {
        return Some(Format::BeginPatch);
    }
    if blocks::opens(line) {
        return Some(Format::SearchReplace);
    }
    let next = |ahead: usize| lines.get(at + ahead).copied().unwrap_or_default();
    let pair = line.starts_with("--- ") && next(1).starts_with("+++ ");
    (line.starts_with("diff --git ") || pair).then_some(Format::Unified)
}

/// What a patch wants of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePatch {
    /// The kind of change and the paths, checked to be relative and inside.
    pub op: Op,
    /// What happens to the text.
    pub body: Body,
}

/// How the text of a file changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// Hunks with the lines around them, in the order of the file.
    Hunks(Vec<Hunk>),
    /// Texts by texts, one after another.
    Blocks(Vec<Block>),
    /// This is the whole text.
    Whole(String),
}

/// The kind of change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// A file that must not exist yet, or must be empty.
    Create {
        /// Where.
        path: String,
    },
    /// A file that may exist or not, and has the new text afterwards.
    Write {
        /// Where.
        path: String,
    },
    /// A file that must exist, perhaps under another name afterwards.
    Update {
        /// Where it is.
        path: String,
        /// Where it goes.
        move_to: Option<String>,
    },
    /// A file that must exist and goes away.
    Delete {
        /// Where.
        path: String,
    },
}

/// One change of text with what surrounds it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hunk {
    /// First old line by the header of a unified diff, from 1.
    pub old_start: Option<usize>,
    /// The `@@` lines of the Begin Patch format: lines that come before the change, outermost first.
    pub under: Vec<String>,
    /// What a unified diff says behind its line numbers: a line above the change, perhaps shortened. It only decides
    /// between equal places.
    pub section: Option<String>,
    /// The lines.
    pub lines: Vec<HunkLine>,
    /// The hunk says that it ends at the end of the file.
    pub at_end: bool,
    /// `\ No newline at end of file` was said of the old text.
    pub old_open: bool,
    /// `\ No newline at end of file` was said of the new text.
    pub new_open: bool,
    /// Some lines were written with `\r`, so the hunk itself says how its new lines end.
    pub says_endings: bool,
}

impl Hunk {
    /// Takes one line by its first character. Old lines are compared without endings, so they lose a `\r`;
    /// a new line keeps it.
    fn push(&mut self, prefix: u8, text: &str) {
        let bare = text.strip_suffix('\r').unwrap_or(text);
        self.says_endings |= bare.len() < text.len();
        self.lines.push(match prefix {
            b'-' => HunkLine::Remove(bare.to_owned()),
            b'+' => HunkLine::Add(text.to_owned()),
            _ => HunkLine::Keep(bare.to_owned()),
        });
    }

    /// Whether it adds or removes a line.
    fn changes(&self) -> bool {
        let keeps = |line: &HunkLine| matches!(line, HunkLine::Keep(_));
        !self.lines.iter().all(keeps)
    }
}

/// One line of a hunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HunkLine {
    /// In both texts.
    Keep(String),
    /// Only in the old text.
    Remove(String),
    /// Only in the new text.
    Add(String),
}

/// Why a patch cannot be read or applied. Nothing is changed in any of these cases.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The text is not a patch of either format.
    #[error("the patch does not parse at its line {line}: {message}")]
    Syntax {
        /// Line of the patch, from 1.
        line: usize,
        /// What is wrong and what would be right.
        message: String,
    },
    /// The patch asks for something that patches may not do.
    #[error("{path}: {message}")]
    Forbidden {
        /// The file.
        path: String,
        /// The rule.
        message: String,
    },
    /// The patch changes nothing.
    #[error("the patch changes nothing")]
    Nothing,
    /// A file to change is not there.
    #[error(
        "{path} does not exist; to create it, use `*** Add File`, `--- /dev/null` or an empty SEARCH"
    )]
    NotFound {
        /// The file.
        path: String,
    },
    /// A file to create is there already.
    #[error("{path} exists already; update it, or delete it first")]
    Exists {
        /// The file.
        path: String,
    },
    /// A file cannot be changed as text.
    #[error("{path}: {message}")]
    Unusable {
        /// The file.
        path: String,
        /// Why.
        message: String,
    },
    /// A block does not fit.
    #[error("{path}: block {block}: {}", .problem.to_string().replace("`old`", "the text to replace").replace("`new`", "the new text"))]
    Block {
        /// The file.
        path: String,
        /// Number of the block in its file, from 1.
        block: usize,
        /// What is wrong with it.
        problem: EditError,
    },
    /// A hunk does not fit.
    #[error("{path}: hunk {hunk} {problem}")]
    Hunk {
        /// The file.
        path: String,
        /// Number of the hunk in its file, from 1.
        hunk: usize,
        /// What is wrong with it.
        problem: Box<HunkProblem>,
    },
}

impl PatchError {
    /// The line is from 0.
    fn syntax(line: usize, message: impl Into<String>) -> Self {
        Self::Syntax {
            line: line + 1,
            message: message.into(),
        }
    }

    /// The number is from 1.
    fn hunk(path: &str, hunk: usize, problem: HunkProblem) -> Self {
        Self::Hunk {
            path: path.to_owned(),
            hunk,
            problem: Box::new(problem),
        }
    }
}

/// What is wrong with a hunk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HunkProblem {
    /// Its old lines are not in the file.
    #[error("does not fit; it expects\n{}\n{}", .expected, near(.nearest))]
    Missing {
        /// The old lines of the hunk.
        expected: String,
        /// What comes closest.
        nearest: Option<Nearest>,
    },
    /// Its old lines are in the file more than once, and nothing says which place is meant.
    #[error("fits {} places (lines {}); add surrounding lines until it fits one", .lines.len(), listed(.lines, .lines.len()))]
    Ambiguous {
        /// Where it fits.
        lines: Vec<usize>,
    },
    /// Its place is before that of the hunk before it.
    #[error(
        "belongs at line {line}, before the hunk in front of it; put the hunks in the order of the file"
    )]
    OutOfOrder {
        /// Where it fits.
        line: usize,
    },
    /// Its `@@` line is not in the file.
    #[error("is under `@@ {header}`, but the file has no such line{}", after(.nearest))]
    HeaderMissing {
        /// The text after `@@`.
        header: String,
        /// What comes closest.
        nearest: Option<Nearest>,
    },
    /// It only adds, and nothing says where.
    #[error("has no old lines, so its place cannot be checked; add the lines around it")]
    NoContext,
    /// It removes or keeps lines of a file that is to be created.
    #[error("has old lines, but the file is to be created; every line must start with `+`")]
    OldLinesInNewFile,
    /// A deletion that leaves something.
    #[error(
        "leaves lines of a file that is to be deleted; the file has more than the patch removes"
    )]
    LeavesLines,
}

fn near(nearest: &Option<Nearest>) -> String {
    nearest.as_ref().map_or_else(
        || "nothing in the file resembles it".to_owned(),
        ToString::to_string,
    )
}

fn after(nearest: &Option<Nearest>) -> String {
    nearest
        .as_ref()
        .map_or_else(String::new, |nearest| format!("; {nearest}"))
}
