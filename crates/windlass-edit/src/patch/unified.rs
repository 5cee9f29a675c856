//! Parses unified diffs, plain and from git, and tolerates common mistakes of models: wrong line counts, blank context
//! lines without the leading space, prose and fences around the diff.
//!
//! File modes other than that of a regular file, symlinks, binary patches and copies are refused.

use super::paths::{self, NULL};
use super::{FileOp, FilePatch, HunkLine, PatchBody, PatchError, PatchHunk};

pub(super) fn parse(
    lines: &[&str],
    start: usize,
    notes: &mut Vec<String>,
) -> Result<Vec<FilePatch>, PatchError> {
    let mut reader = UnifiedReader {
        lines,
        at: start,
        notes,
    };
    let mut files = Vec::new();
    while reader.at < lines.len() {
        if reader.line().starts_with("diff --git ") {
            files.push(reader.git_file()?);
        } else if reader.file_header_at(reader.at) {
            files.push(reader.plain_file()?);
        } else if reader.line().starts_with("@@ -") {
            return Err(reader
                .error("a hunk without `---` and `+++` lines before it; name the file".into()));
        } else if reader.line().trim() == super::begin::BEGIN {
            return Err(super::two_patches(reader.at + 1));
        } else {
            reader.at += 1;
        }
    }
    Ok(files)
}

struct UnifiedReader<'a> {
    lines: &'a [&'a str],
    at: usize,
    notes: &'a mut Vec<String>,
}

/// The information in the lines between `diff --git` and `---`.
#[derive(Default)]
struct GitHeader {
    created: bool,
    deleted: bool,
    rename_from: Option<String>,
    rename_to: Option<String>,
    /// The first rule that the lines break.
    refusal: Option<String>,
}

impl<'a> UnifiedReader<'a> {
    fn line(&self) -> &'a str {
        self.lines.get(self.at).copied().unwrap_or_default()
    }

    fn error(&self, message: String) -> PatchError {
        PatchError::syntax(self.at, message)
    }

    /// Whether the `---` and `+++` lines of a file start at line `at`.
    fn file_header_at(&self, at: usize) -> bool {
        let line = |at: usize| self.lines.get(at).copied().unwrap_or_default();
        line(at).starts_with("--- ") && line(at + 1).starts_with("+++ ")
    }

    fn git_file(&mut self) -> Result<FilePatch, PatchError> {
        let declared = paths::git_header(&self.line()["diff --git ".len()..])
            .map_err(|message| self.error(message))?;
        self.at += 1;
        let header = self.git_header_lines()?;
        let named = if self.file_header_at(self.at) {
            Some(self.names()?)
        } else {
            None
        };
        let (old, new) = named
            .clone()
            .or_else(|| declared.clone())
            .or_else(|| header.rename_pair())
            .unwrap_or_default();
        let (old, new) = paths::strip_prefixes(&old, &new);
        let (mut old, mut new) = (old.to_owned(), new.to_owned());
        if let (None, Some((from, to))) = (&named, header.rename_pair()) {
            (old, new) = (from, to);
        }
        let shown = &(if new == NULL { &old } else { &new }).clone();
        if let Some(message) = header.refusal {
            return Err(PatchError::Forbidden {
                path: shown.to_owned(),
                message,
            });
        }
        if let Some((from, to)) = declared {
            let (from, to) = paths::strip_prefixes(&from, &to);
            let agrees = (old == from || old == NULL) && (new == to || new == NULL);
            if !agrees {
                return Err(contradiction(
                    shown,
                    &format!(
                        "`diff --git` names {from} and {to}, the lines below name {old} and {new}"
                    ),
                ));
            }
        }
        if header.created && named.is_none() {
            old = NULL.into();
        }
        if header.deleted && named.is_none() {
            new = NULL.into();
        }
        if (header.created && old != NULL) || (header.deleted && new != NULL) {
            return Err(contradiction(
                shown,
                "the mode line and the `---`/`+++` lines disagree about whether the file exists",
            ));
        }
        let renamed = header.rename_from.is_some() || header.rename_to.is_some();
        if renamed
            && (header.rename_from.as_deref() != Some(&old)
                || header.rename_to.as_deref() != Some(&new))
        {
            return Err(contradiction(
                shown,
                "the rename lines and the other paths disagree",
            ));
        }
        self.finish(&old, &new, renamed, named.is_some())
    }

    fn plain_file(&mut self) -> Result<FilePatch, PatchError> {
        let (old, new) = self.names()?;
        let (old, new) = paths::strip_prefixes(&old, &new);
        self.finish(old, new, false, true)
    }

    fn finish(
        &mut self,
        old: &str,
        new: &str,
        renamed: bool,
        named: bool,
    ) -> Result<FilePatch, PatchError> {
        let op = match (old, new) {
            (NULL, NULL) => return Err(self.error("both paths are /dev/null".into())),
            (NULL, new) => FileOp::Create {
                path: paths::check(new)?,
            },
            (old, NULL) => FileOp::Delete {
                path: paths::check(old)?,
            },
            (old, new) => {
                let (path, to) = (paths::check(old)?, paths::check(new)?);
                if path != to && !renamed {
                    return Err(contradiction(
                        &to,
                        &format!(
                            "`---` names {path} and `+++` names {to}; a rename needs `rename from` and `rename to`"
                        ),
                    ));
                }
                FileOp::Update {
                    move_to: (path != to).then_some(to),
                    path,
                }
            }
        };
        while self.line().is_empty()
            && self
                .lines
                .get(self.at + 1)
                .is_some_and(|next| next.starts_with("@@"))
        {
            self.at += 1;
        }
        let mut hunks = Vec::new();
        while self.line().starts_with("@@") {
            let number = hunks.len() + 1;
            hunks.push(self.hunk(number)?);
        }
        let empty = match &op {
            FileOp::Update { move_to, .. } => move_to.is_none(),
            // Git writes a new empty file without `---` and `+++` lines.
            FileOp::Create { .. } | FileOp::Write { .. } => named,
            FileOp::Delete { .. } => false,
        };
        if hunks.is_empty() && empty {
            return Err(self.error(
                "a file without hunks; each starts with `@@ -line,count +line,count @@`".into(),
            ));
        }
        Ok(FilePatch {
            op,
            body: PatchBody::Hunks(hunks),
        })
    }

    /// The unquoted paths of the `---` and `+++` lines.
    fn names(&mut self) -> Result<(String, String), PatchError> {
        let mut name = || {
            let (path, _) =
                paths::take(&self.line()[4..]).map_err(|message| self.error(message))?;
            self.at += 1;
            Ok(path)
        };
        Ok((name()?, name()?))
    }

    fn git_header_lines(&mut self) -> Result<GitHeader, PatchError> {
        let mut found = GitHeader::default();
        while self.at < self.lines.len() && !self.file_header_at(self.at) {
            let line = self.line();
            let name = |text: &str| {
                paths::take(text)
                    .map(|(path, _)| path)
                    .map_err(|message| self.error(message))
            };
            if let Some(mode) = line.strip_prefix("new file mode ") {
                found.created = true;
                found.refuse(mode_rule(mode, "created"));
            } else if let Some(mode) = line.strip_prefix("deleted file mode ") {
                found.deleted = true;
                // An executable file may be deleted; a symlink may not, because it is not text.
                found.refuse(mode_rule(mode, "deleted").filter(|_| mode.trim() != "100755"));
            } else if line.starts_with("old mode ") || line.starts_with("new mode ") {
                found.refuse(Some(
                    "a patch may not change the mode of a file; leave the mode lines out".into(),
                ));
            } else if let Some(path) = line.strip_prefix("rename from ") {
                found.rename_from = Some(name(path)?);
            } else if let Some(path) = line.strip_prefix("rename to ") {
                found.rename_to = Some(name(path)?);
            } else if line.starts_with("copy from ") || line.starts_with("copy to ") {
                found.refuse(Some(
                    "a patch may not copy files; add the new file with its lines".into(),
                ));
            } else if line.starts_with("GIT binary patch")
                || (line.starts_with("Binary files ") && line.ends_with(" differ"))
            {
                found.refuse(Some(
                    "binary patches are not applied; write the file by a command instead".into(),
                ));
            } else if let Some(index) = line.strip_prefix("index ") {
                let mode = index.rsplit_once(' ').map_or("", |(_, mode)| mode);
                found.refuse(
                    mode_rule(mode, "changed").filter(|_| mode != "100755" && !mode.is_empty()),
                );
            } else if !line.starts_with("similarity index ")
                && !line.starts_with("dissimilarity index ")
            {
                break;
            }
            self.at += 1;
        }
        Ok(found)
    }

    fn hunk(&mut self, number: usize) -> Result<PatchHunk, PatchError> {
        let header = self.line();
        let Some(HunkHeader {
            start,
            old_count,
            new_count,
            section,
        }) = header_of(header)
        else {
            return Err(self.error(format!(
                "{header:?} is not a hunk header; expected `@@ -line,count +line,count @@`"
            )));
        };
        self.at += 1;
        let mut hunk = PatchHunk {
            old_start: start,
            section,
            ..PatchHunk::default()
        };
        let (mut old_left, mut new_left) = (old_count, new_count);
        let mut bare = 0;
        while self.at < self.lines.len() {
            let line = self.line();
            let counted = old_left == Some(0) && new_left == Some(0);
            if self.ends_hunk(line, counted, (old_left, new_left)) {
                break;
            }
            bare = if line.is_empty() { bare + 1 } else { 0 };
            let prefix = line.bytes().next().unwrap_or(b' ');
            let (old, new) = match prefix {
                b'\\' => {
                    mark_missing_newline(&mut hunk);
                    self.at += 1;
                    continue;
                }
                b'-' => (1, 0),
                b'+' => (0, 1),
                _ => (1, 1),
            };
            let text = match prefix {
                b'\t' => line,
                _ => line.get(1..).unwrap_or_default(),
            };
            hunk.push(prefix, text);
            old_left = old_left.map(|left| left - old);
            new_left = new_left.map(|left| left - new);
            self.at += 1;
        }
        if old_count.is_none() {
            // Without counts, blank lines at the end separate the hunk from the text that follows.
            hunk.lines.truncate(hunk.lines.len() - bare);
        }
        if old_left.is_some_and(|left| left != 0) || new_left.is_some_and(|left| left != 0) {
            self.refuse_stray_lines(number)?;
            // After a hunk with wrong counts, blank lines are more likely a separator than context.
            hunk.lines.truncate(hunk.lines.len() - bare);
            self.notes.push(format!(
                "hunk {number} ending at line {} of the patch does not have the line counts that `{header}` states",
                self.at
            ));
        }
        if !hunk.changes() {
            return Err(self.error(format!(
                "hunk {number} has no line that starts with `-` or `+`"
            )));
        }
        Ok(hunk)
    }

    /// Whether the line no longer belongs to the hunk. The counts of the header decide as long as they can; once they
    /// are used up or turn out to be wrong, the form of the line decides.
    fn ends_hunk(&self, line: &str, counted: bool, left: (Option<i64>, Option<i64>)) -> bool {
        if line.starts_with('\\') {
            return false;
        }
        // A line that begins with a tab is a context line without its leading space.
        let body = line.is_empty() || line.starts_with([' ', '+', '-', '\t']);
        if !body {
            return true;
        }
        if self.file_header_at(self.at) {
            // A removed line `-- …` and an added line `++ …` look like a file header. They are part of the hunk only if
            // the counts say that exactly these two lines are left.
            let hunk_follows = self
                .lines
                .get(self.at + 2)
                .is_some_and(|next| next.starts_with("@@"));
            return counted || (hunk_follows && left != (Some(1), Some(1)));
        }
        counted
            && (line.starts_with("-- ")
                || line.starts_with('\t')
                || (line.is_empty() && !self.changes_follow_blank()))
    }

    /// Whether changed lines follow the blank line, so that it belongs to a hunk whose counts are too low.
    fn changes_follow_blank(&self) -> bool {
        let next = self.lines[self.at..]
            .iter()
            .find(|line| !line.is_empty())
            .copied()
            .unwrap_or_default();
        // "- " starts a list item in the prose below the patch; "--" starts a file header or a mail signature.
        next.starts_with('+')
            || (next.starts_with('-') && !next.starts_with("- ") && !next.starts_with("--"))
    }

    /// Called when a hunk with wrong counts ended at a line that is not a hunk line. If changed lines follow before
    /// another hunk or file starts, that line lost its prefix, and continuing would drop the changes silently.
    fn refuse_stray_lines(&self, number: usize) -> Result<(), PatchError> {
        for at in self.at..self.lines.len() {
            let line = self.lines[at];
            let starts_something = line.starts_with("@@")
                || line.starts_with("diff --git ")
                || line.trim_start().starts_with("```")
                || line.starts_with("-- ")
                || self.file_header_at(at);
            if starts_something {
                return Ok(());
            }
            if line.starts_with(['+', '-']) {
                return Err(self.error(format!(
                    "{:?} in hunk {number} does not start with ` `, `-` or `+`, and changes follow it; give every line its prefix",
                    self.line()
                )));
            }
        }
        Ok(())
    }
}

impl GitHeader {
    fn refuse(&mut self, refusal: Option<String>) {
        if self.refusal.is_none() {
            self.refusal = refusal;
        }
    }

    fn rename_pair(&self) -> Option<(String, String)> {
        Some((self.rename_from.clone()?, self.rename_to.clone()?))
    }
}

fn contradiction(path: &str, message: &str) -> PatchError {
    PatchError::Forbidden {
        path: path.to_owned(),
        message: message.to_owned(),
    }
}

/// The reason why a patch may not touch a file of this mode.
fn mode_rule(mode: &str, what: &str) -> Option<String> {
    match mode.trim() {
        "100644" => None,
        "100755" => Some(format!(
            "an executable file (mode 100755) may not be {what} by a patch; set the bit by a command"
        )),
        "120000" => Some(format!(
            "a symbolic link (mode 120000) may not be {what} by a patch"
        )),
        "160000" => Some(format!(
            "a submodule (mode 160000) may not be {what} by a patch"
        )),
        other => Some(format!(
            "a file of mode {other:?} may not be {what} by a patch"
        )),
    }
}

/// A parsed hunk header; everything is `None` for a bare `@@`.
#[derive(Default)]
struct HunkHeader {
    start: Option<usize>,
    old_count: Option<i64>,
    new_count: Option<i64>,
    section: Option<String>,
}

/// Parses `@@ -line,count +line,count @@ section`. Without numbers, the text is the section: `@@ fn name @@`.
fn header_of(header: &str) -> Option<HunkHeader> {
    let inner = header.strip_prefix("@@")?;
    let (inner, after) = inner.split_once("@@").unwrap_or((inner, ""));
    let named =
        |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty() && text != "...");
    let inner = inner.trim();
    if inner.is_empty() || !inner.starts_with('-') {
        return Some(HunkHeader {
            section: named(inner).or_else(|| named(after)),
            ..HunkHeader::default()
        });
    }
    let (old, new) = inner.split_once(' ')?;
    let range = |text: &str| -> Option<(usize, i64)> {
        let (start, count) = text.split_once(',').unwrap_or((text, "1"));
        // The counts are compared with the lines of a patch in memory, so 32 bits are enough.
        Some((
            start.parse::<u32>().ok()? as usize,
            i64::from(count.parse::<u32>().ok()?),
        ))
    };
    // Models that do not count lines write `@@ -... +... @@`.
    if !inner.bytes().any(|byte| byte.is_ascii_digit()) {
        return Some(HunkHeader {
            section: named(after),
            ..HunkHeader::default()
        });
    }
    let (start, old_count) = range(old.strip_prefix('-')?)?;
    let (_, new_count) = range(new.trim().strip_prefix('+')?)?;
    Some(HunkHeader {
        start: Some(start),
        old_count: Some(old_count),
        new_count: Some(new_count),
        section: named(after),
    })
}

/// Handles `\ No newline at end of file`, which is about the line before it.
fn mark_missing_newline(hunk: &mut PatchHunk) {
    match hunk.lines.last() {
        Some(HunkLine::Remove(_)) => hunk.old_lacks_newline = true,
        Some(HunkLine::Add(_)) => hunk.new_lacks_newline = true,
        Some(HunkLine::Keep(_)) => {
            hunk.old_lacks_newline = true;
            hunk.new_lacks_newline = true;
        }
        None => {}
    }
}
