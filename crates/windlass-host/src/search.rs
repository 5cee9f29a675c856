//! Finds files by name and lines by content. Honors ignore files, limits the results and returns them in a fixed order.
//! Never follows symlinks, never enters `.git`, and reads only through the handle of the workspace.

mod walk;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use globset::{GlobBuilder, GlobMatcher};
use grep_matcher::{LineTerminator, Matcher};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{
    BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkFinish, SinkMatch,
};
use windlass_core::CancellationToken;
use windlass_core::workspace::{
    FileError, FileErrorKind, FileKind, Files, FindQuery, FoundPaths, GrepLine, GrepQuery, Grepped,
};

pub use self::walk::IgnoreRules;
use self::walk::Walk;
use crate::workspace::{Root, bad_path, from_errno};

/// The maximum length of a displayed line, in bytes.
const MAX_LINE: usize = 500;
/// The number of bytes before the match in a shortened line.
const BEFORE_MATCH: usize = 100;
/// The maximum memory for one line; a file with a longer line is skipped.
const MAX_HEAP: usize = 8 * 1024 * 1024;
/// The maximum number of context lines on each side.
const MAX_CONTEXT: usize = 50;
/// The maximum memory of a compiled pattern.
const MAX_REGEX: usize = 1024 * 1024;

/// The time limit of one search.
const MAX_SEARCH: Duration = Duration::from_secs(30);

/// Finds files and symlinks whose path matches a glob.
pub(crate) fn find(
    root: &Root,
    query: &FindQuery,
    cancel: &CancellationToken,
) -> Result<FoundPaths, FileError> {
    let glob = Glob::new(&query.glob, root)?;
    let mut found = FoundPaths::default();
    let until = Instant::now() + MAX_SEARCH;
    let more = visit(root, &query.under, cancel, |path, under, _| {
        if Instant::now() >= until {
            return Ok(false);
        }
        if !glob.matches(path, under) {
            return Ok(true);
        }
        if found.paths.len() == query.max {
            return Ok(false);
        }
        found.paths.push(path.to_string_lossy().into_owned());
        Ok(true)
    })?;
    found.more = more;
    Ok(found)
}

/// Finds lines that match a pattern.
pub(crate) fn grep(
    root: &Root,
    query: &GrepQuery,
    cancel: &CancellationToken,
) -> Result<Grepped, FileError> {
    grep_until(root, query, cancel, Instant::now() + MAX_SEARCH)
}

fn grep_until(
    root: &Root,
    query: &GrepQuery,
    cancel: &CancellationToken,
    until: Instant,
) -> Result<Grepped, FileError> {
    let matcher = matcher(query)?;
    let glob = query
        .glob
        .as_deref()
        .map(|glob| Glob::new(glob, root))
        .transpose()?;
    let context = query.context.min(MAX_CONTEXT);
    let mut searcher = SearcherBuilder::new()
        .line_terminator(LineTerminator::crlf())
        .line_number(true)
        .before_context(context)
        .after_context(context)
        .heap_limit(Some(MAX_HEAP))
        .binary_detection(BinaryDetection::quit(0))
        .build();
    let mut grepped = Grepped::default();
    let mut left_out = false;
    let mut timed_out = false;
    let more = visit(root, &query.under, cancel, |path, under, kind| {
        if Instant::now() >= until {
            timed_out = true;
            return Ok(false);
        }
        if kind != FileKind::File || glob.as_ref().is_some_and(|glob| !glob.matches(path, under)) {
            return Ok(true);
        }
        // A file that is gone, changed its kind or cannot be read is skipped.
        let Ok((file, _)) = root.open_file(path) else {
            left_out = true;
            return Ok(true);
        };
        let mut hits = Hits {
            matcher: &matcher,
            path,
            lines: Vec::new(),
            matches: 0,
            max: query.max - grepped.matches,
            full: false,
            binary: false,
        };
        let file = Interruptible {
            file,
            cancel,
            until,
        };
        let searched = searcher.search_reader(&matcher, file, &mut hits);
        if cancel.is_cancelled() {
            return Err(cancelled());
        }
        left_out |= searched.is_err();
        if !hits.binary && hits.matches > 0 {
            grepped.files += 1;
            grepped.matches += hits.matches;
            grepped.lines.append(&mut hits.lines);
        }
        Ok(hits.binary || !hits.full)
    })?;
    grepped.more = more || left_out;
    grepped.timed_out = timed_out || Instant::now() >= until;
    Ok(grepped)
}

fn matcher(query: &GrepQuery) -> Result<RegexMatcher, FileError> {
    let mut builder = RegexMatcherBuilder::new();
    builder
        .case_insensitive(query.ignore_case)
        .crlf(true)
        .line_terminator(None)
        .size_limit(MAX_REGEX);
    builder
        .fixed_strings(query.literal)
        .multi_line(true)
        .ban_byte(Some(b'\n'));
    builder.build(&query.pattern).map_err(|err| FileError {
        kind: FileErrorKind::BadInput,
        message: format!(
            "the pattern is not usable: {err}\n(patterns match inside one line and have no look-around or back-references)"
        ),
    })
}

/// Calls `each` with every file and symlink below `under`, in order, until it returns false. The paths are relative to
/// the root, and to `under`. Returns true if `each` stopped the walk, or if the tree is too large for a complete walk.
fn visit(
    root: &Root,
    under: &str,
    cancel: &CancellationToken,
    mut each: impl FnMut(&Path, &Path, FileKind) -> Result<bool, FileError>,
) -> Result<bool, FileError> {
    let given = if under.is_empty() { "." } else { under };
    let start = root.resolve(given)?;
    if !start.inside {
        // Opening it returns the usual error.
        root.open_directory(given)?;
        return Err(bad_path("it is not inside the workspace"));
    }
    let start_path = PathBuf::from(&start.path);
    match start.kind {
        Some(FileKind::Directory) => {}
        Some(kind) => {
            let name = start_path
                .file_name()
                .map(PathBuf::from)
                .unwrap_or_default();
            return each(&start_path, &name, kind).map(|go_on| !go_on);
        }
        None => return Err(from_errno(Path::new(given), rustix::io::Errno::NOENT)),
    }
    let mut walk = Walk::new(root, &start_path, cancel);
    for (path, kind) in walk.by_ref() {
        let under = path.strip_prefix(&start_path).unwrap_or(&path);
        if kind != FileKind::Special && !each(&path, under, kind)? {
            return Ok(true);
        }
    }
    if cancel.is_cancelled() {
        Err(cancelled())
    } else {
        Ok(walk.cut)
    }
}

/// A glob over paths; without a slash it applies to the file name only.
struct Glob {
    matcher: GlobMatcher,
    name_only: bool,
}

impl Glob {
    fn new(text: &str, root: &Root) -> Result<Self, FileError> {
        let inside = root
            .root()
            .to_str()
            .and_then(|root| text.strip_prefix(root)?.strip_prefix('/'));
        let text = inside.or(text.strip_prefix("./")).unwrap_or(text);
        if text.starts_with('/') || text.split('/').any(|part| part == "..") {
            return Err(FileError {
                kind: FileErrorKind::Outside,
                message: format!(
                    "the glob {text} leads out of the workspace; write it relative to the workspace"
                ),
            });
        }
        let glob = GlobBuilder::new(text)
            .literal_separator(true)
            .backslash_escape(true)
            .build();
        let glob = glob.map_err(|err| FileError {
            kind: FileErrorKind::BadInput,
            message: format!("the glob is not usable: {err}"),
        })?;
        Ok(Self {
            matcher: glob.compile_matcher(),
            name_only: !text.contains('/'),
        })
    }

    /// Matches the path below the searched directory, or the path from the root: a model may mean either.
    fn matches(&self, path: &Path, under: &Path) -> bool {
        if self.name_only {
            return path
                .file_name()
                .is_some_and(|name| self.matcher.is_match(name));
        }
        self.matcher.is_match(under) || self.matcher.is_match(path)
    }
}

/// Collects the lines of one file.
struct Hits<'a> {
    matcher: &'a RegexMatcher,
    path: &'a Path,
    lines: Vec<GrepLine>,
    matches: usize,
    max: usize,
    full: bool,
    binary: bool,
}

impl Hits<'_> {
    fn push(&mut self, line: Option<u64>, bytes: &[u8], hit: bool) {
        self.lines.push(GrepLine {
            path: self.path.to_string_lossy().into_owned(),
            line: line.unwrap_or(0),
            text: shown(bytes, hit.then_some(self.matcher)),
            hit,
        });
    }
}

impl Sink for Hits<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        if self.matches == self.max {
            self.full = true;
            return Ok(false);
        }
        self.matches += 1;
        self.push(found.line_number(), found.bytes(), true);
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> io::Result<bool> {
        self.push(context.line_number(), context.bytes(), false);
        Ok(true)
    }

    fn finish(&mut self, _: &Searcher, finish: &SinkFinish) -> io::Result<()> {
        self.binary = finish.binary_byte_offset().is_some();
        Ok(())
    }
}

/// Returns a line as text, without its line end, shortened around the match if it is very long.
fn shown(line: &[u8], matcher: Option<&RegexMatcher>) -> String {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.len() <= MAX_LINE {
        return String::from_utf8_lossy(line).into_owned();
    }
    let at = matcher
        .and_then(|matcher| matcher.find(line).ok().flatten())
        .map_or(0, |found| found.start());
    let from = if at + BEFORE_MATCH > MAX_LINE {
        at - BEFORE_MATCH.min(at)
    } else {
        0
    };
    let to = (from + MAX_LINE).min(line.len());
    let piece = String::from_utf8_lossy(&line[from..to]);
    let piece = piece.trim_matches('\u{fffd}');
    let (before, after) = (
        if from > 0 { "…" } else { "" },
        if to < line.len() { "…" } else { "" },
    );
    format!("{before}{piece}{after}")
}

/// A reader that fails when the search is cancelled or reaches its deadline.
struct Interruptible<'a> {
    file: File,
    cancel: &'a CancellationToken,
    until: Instant,
}

impl Read for Interruptible<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.cancel.is_cancelled() {
            return Err(io::Error::other("cancelled"));
        }
        if Instant::now() >= self.until {
            return Err(io::Error::other("the search timed out"));
        }
        self.file.read(buf)
    }
}

fn cancelled() -> FileError {
    FileError {
        kind: FileErrorKind::Cancelled,
        message: "the search was cancelled".to_owned(),
    }
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
