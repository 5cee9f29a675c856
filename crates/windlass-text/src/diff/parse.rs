//! Reads diffs in the format of git. Wrong line counts and foreign text are tolerated.

use crate::sanitize::{plain, visible};

/// A diff of several files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ParsedDiff {
    /// The lines before the first file, for example a commit message.
    pub preamble: Vec<String>,
    pub files: Vec<DiffFile>,
}

/// The changes of one file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiffFile {
    /// The path before the change; `None` for a new file.
    pub old_path: Option<String>,
    /// The path after the change; `None` for a removed file.
    pub new_path: Option<String>,
    pub status: DiffFileStatus,
    pub binary: bool,
    pub old_mode: Option<String>,
    pub new_mode: Option<String>,
    pub hunks: Vec<DiffHunk>,
}

/// The kind of the change of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DiffFileStatus {
    #[default]
    Modified,
    Added,
    Removed,
    Renamed,
    Copied,
}

/// Neighbouring changes of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiffHunk {
    /// The number of the first line in the old text.
    pub old_start: u32,
    /// The number of the first line in the new text.
    pub new_start: u32,
    /// The text after the line numbers, usually the name of the function.
    pub section: String,
    pub lines: Vec<DiffLine>,
}

/// One line of a hunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiffLine {
    pub kind: DiffLineKind,
    /// The line number in the old text; `None` for added lines.
    pub old: Option<u32>,
    /// The line number in the new text; `None` for removed lines.
    pub new: Option<u32>,
    /// The line without its sign. Control characters other than tabs and invisible characters are code points.
    pub text: String,
    /// The line is the last of its text and has no newline.
    pub no_newline: bool,
}

/// The role of a line in a diff.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DiffLineKind {
    Context,
    Added,
    Removed,
}

impl DiffFile {
    /// The path to show: the new one, unless the file was removed.
    #[must_use]
    pub fn path(&self) -> &str {
        let path = self.new_path.as_deref().or(self.old_path.as_deref());
        path.unwrap_or_default()
    }

    /// The numbers of added and of removed lines.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        let lines = || self.hunks.iter().flat_map(|hunk| &hunk.lines);
        let count = |kind| lines().filter(|line| line.kind == kind).count();
        (count(DiffLineKind::Added), count(DiffLineKind::Removed))
    }
}

impl ParsedDiff {
    /// Reads a diff. Every text is accepted.
    #[must_use]
    pub fn parse(diff: &str) -> Self {
        let mut reader = DiffReader::default();
        let mut lines = diff.lines().peekable();
        while let Some(line) = lines.next() {
            reader.line(line, lines.peek().copied());
        }
        reader.diff
    }
}

#[derive(Default)]
struct DiffReader {
    diff: ParsedDiff,
    /// Whether the last file has a hunk that may continue.
    in_hunk: bool,
    /// The lines that the header of the hunk announces and that did not come yet.
    old_left: u32,
    new_left: u32,
    old_next: u32,
    new_next: u32,
}

impl DiffReader {
    fn line(&mut self, line: &str, next: Option<&str>) {
        if self.in_hunk && self.hunk_line(line, next) {
            return;
        }
        if let Some(paths) = line.strip_prefix("diff --git ") {
            let (old, new) = header_paths(paths);
            self.begin_file();
            let file = self.file();
            (file.old_path, file.new_path) = (old, new);
        } else if line.starts_with("--- ") && next.is_some_and(|next| next.starts_with("+++ ")) {
            if self
                .diff
                .files
                .last()
                .is_none_or(|file| !file.hunks.is_empty())
            {
                self.begin_file();
            }
            self.file().old_path = path_of(&line[4..], "a/");
        } else if line.starts_with("+++ ") && !self.diff.files.is_empty() {
            let file = self.file();
            file.new_path = path_of(&line[4..], "b/");
            match (&file.old_path, &file.new_path) {
                (None, Some(_)) => file.status = DiffFileStatus::Added,
                (Some(_), None) => file.status = DiffFileStatus::Removed,
                _ => {}
            }
        } else if let Some(header) = line.strip_prefix("@@") {
            self.begin_hunk(header);
        } else if line.starts_with('…') && self.file_has_hunks() {
            // A note in place of the rest.
            self.add_hunk(line);
        } else if self.diff.files.is_empty() {
            self.diff.preamble.push(plain(line).into_owned());
        } else {
            self.file_header(line);
        }
    }

    fn begin_file(&mut self) {
        self.in_hunk = false;
        self.diff.files.push(DiffFile::default());
    }

    /// The last file. A hunk without a file gets one without a path.
    fn file(&mut self) -> &mut DiffFile {
        if self.diff.files.is_empty() {
            self.diff.files.push(DiffFile::default());
        }
        let last = self.diff.files.len() - 1;
        &mut self.diff.files[last]
    }

    /// A line between the beginning of a file and its first hunk.
    fn file_header(&mut self, line: &str) {
        let file = self.file();
        let text = |rest: &str| Some(plain(rest.trim()).into_owned());
        for (start, status) in [
            ("new file mode ", DiffFileStatus::Added),
            ("deleted file mode ", DiffFileStatus::Removed),
            ("rename from ", DiffFileStatus::Renamed),
            ("rename to ", DiffFileStatus::Renamed),
            ("copy from ", DiffFileStatus::Copied),
            ("copy to ", DiffFileStatus::Copied),
        ] {
            let Some(rest) = line.strip_prefix(start) else {
                continue;
            };
            file.status = status;
            if start.ends_with("from ") {
                file.old_path = path_of(rest, "");
            } else if start.ends_with("to ") {
                file.new_path = path_of(rest, "");
            } else if status == DiffFileStatus::Added {
                file.old_path = None;
            } else {
                file.new_path = None;
            }
            return;
        }
        if let Some(mode) = line.strip_prefix("old mode ") {
            file.old_mode = text(mode);
        } else if let Some(mode) = line.strip_prefix("new mode ") {
            file.new_mode = text(mode);
        } else if line.starts_with("GIT binary patch")
            || (line.starts_with("Binary files ") && line.ends_with(" differ"))
        {
            file.binary = true;
        }
    }

    /// Begins a hunk with the text after `@@`. Without line numbers, the lines count from 1.
    fn begin_hunk(&mut self, header: &str) {
        let (numbers, section) = header.split_once("@@").unwrap_or((header, ""));
        let has_numbers = numbers.trim_start().starts_with('-');
        let mut words = numbers.split_whitespace();
        let mut range = |sign: char| {
            let word = words.next().and_then(|word| word.strip_prefix(sign));
            let (start, count) =
                word.map_or(("", ""), |word| word.split_once(',').unwrap_or((word, "1")));
            (
                start.parse().unwrap_or(1),
                count.parse().unwrap_or(u32::MAX),
            )
        };
        let ((old_start, old_left), (new_start, new_left)) = (range('-'), range('+'));
        (self.old_left, self.new_left) = (old_left, new_left);
        (self.old_next, self.new_next) = (old_start, new_start);
        self.in_hunk = true;
        // A header without line numbers may have a note for the reader.
        self.add_hunk(match has_numbers {
            true => section,
            false => numbers,
        });
    }

    fn file_has_hunks(&self) -> bool {
        let last = self.diff.files.last();
        last.is_some_and(|file| !file.hunks.is_empty())
    }

    fn add_hunk(&mut self, section: &str) {
        let hunk = DiffHunk {
            old_start: self.old_next,
            new_start: self.new_next,
            section: plain(section.trim()).into_owned(),
            lines: Vec::new(),
        };
        self.file().hunks.push(hunk);
    }

    /// Adds a line to the hunk, or returns false if it does not belong to the hunk.
    fn hunk_line(&mut self, line: &str, next: Option<&str>) -> bool {
        let complete = self.old_left == 0 && self.new_left == 0;
        let begins_file =
            line.starts_with("--- ") && next.is_some_and(|next| next.starts_with("+++ "));
        let signature = line == "-- ";
        if (complete && (begins_file || signature)) || (begins_file && self.old_left == u32::MAX) {
            self.in_hunk = false;
            return false;
        }
        let (kind, text) = match line.as_bytes().first() {
            Some(b' ') => (DiffLineKind::Context, &line[1..]),
            Some(b'+') => (DiffLineKind::Added, &line[1..]),
            Some(b'-') => (DiffLineKind::Removed, &line[1..]),
            // Some programs remove the blank of an empty context line.
            None if !complete && self.old_left != u32::MAX => (DiffLineKind::Context, ""),
            Some(b'\\') => {
                let hunk = self.file().hunks.last_mut();
                if let Some(last) = hunk.and_then(|hunk| hunk.lines.last_mut()) {
                    last.no_newline = true;
                }
                return true;
            }
            _ => {
                self.in_hunk = false;
                return false;
            }
        };
        let old = (kind != DiffLineKind::Added).then_some(self.old_next);
        let new = (kind != DiffLineKind::Removed).then_some(self.new_next);
        if old.is_some() {
            self.old_next = self.old_next.saturating_add(1);
            self.old_left = step(self.old_left);
        }
        if new.is_some() {
            self.new_next = self.new_next.saturating_add(1);
            self.new_left = step(self.new_left);
        }
        let line = DiffLine {
            kind,
            old,
            new,
            text: visible(text).into_owned(),
            no_newline: false,
        };
        if let Some(hunk) = self.file().hunks.last_mut() {
            hunk.lines.push(line);
        }
        true
    }
}

/// One line less, unless the number is unknown.
fn step(left: u32) -> u32 {
    if left == u32::MAX {
        left
    } else {
        left.saturating_sub(1)
    }
}

/// The paths of `a/x b/x`. Paths with blanks are ambiguous; later lines of the header correct them.
fn header_paths(text: &str) -> (Option<String>, Option<String>) {
    let middle = if let Some(quoted) = text.strip_prefix('"') {
        quoted.find("\" ").map(|at| at + 2)
    } else {
        // Both paths are equal unless the file was renamed, and the header of a renamed file names both again.
        let middle = text.len() / 2;
        let same = text.is_char_boundary(middle) && text[middle..].starts_with(" b/");
        same.then_some(middle).or_else(|| text.find(" b/"))
    };
    match middle {
        Some(at) => (path_of(&text[..at], "a/"), path_of(&text[at..], "b/")),
        None => (path_of(text, "a/"), path_of(text, "a/")),
    }
}

/// The path without its prefix; `None` for `/dev/null`.
fn path_of(text: &str, prefix: &str) -> Option<String> {
    let text = text.trim();
    let path = match text.strip_prefix('"') {
        Some(quoted) => unquoted(quoted),
        None => text.split('\t').next().unwrap_or_default().to_owned(),
    };
    if path == "/dev/null" {
        return None;
    }
    let path = path.strip_prefix(prefix).unwrap_or(&path);
    Some(crate::sanitize::one_line(path).into_owned())
}

/// The path within quotes, in which git writes unusual bytes as `\303` or `\n`.
fn unquoted(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes().peekable();
    while let Some(byte) = rest.next() {
        match byte {
            b'"' => break,
            b'\\' => match rest.next() {
                Some(digit @ b'0'..=b'7') => {
                    let mut value = u32::from(digit - b'0');
                    for _ in 0..2 {
                        let Some(digit) = rest.next_if(|byte| matches!(byte, b'0'..=b'7')) else {
                            break;
                        };
                        value = value * 8 + u32::from(digit - b'0');
                    }
                    bytes.push(value as u8);
                }
                Some(b'n') => bytes.push(b'\n'),
                Some(b't') => bytes.push(b'\t'),
                Some(other) => bytes.push(other),
                None => {}
            },
            other => bytes.push(other),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
