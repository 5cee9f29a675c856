//! Walks a workspace in order, without ignored files. Each directory is opened beneath the root's handle, so that a
//! concurrent rename cannot lead out; an ignore file that is not a regular file is never opened.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use windlass_core::CancellationToken;
use windlass_core::workspace::FileKind;

use crate::workspace::{Root, is_draft, is_staging, kind_of};

/// The walk stops after this many entries.
const MAX_VISITED: usize = 2_000_000;
/// A larger ignore file is ignored, in bytes.
const MAX_IGNORE_FILE: u64 = 1024 * 1024;

/// Iterates over the entries below a directory that are not directories, sorted, with their paths relative to the root.
pub(super) struct Walk<'a> {
    root: &'a Root,
    cancel: &'a CancellationToken,
    open: Vec<WalkLevel>,
    visited: usize,
    /// The tree is too large for a complete walk.
    pub(super) cut: bool,
}

/// A directory that is being walked.
struct WalkLevel {
    path: PathBuf,
    entries: std::vec::IntoIter<(OsString, FileKind)>,
    rules: Rc<IgnoreRules>,
}

impl<'a> Walk<'a> {
    /// Walks everything below `start`. The ignore files from the root down to it apply. If they ignore the start
    /// itself, it is walked nevertheless, and only its own ignore files apply.
    pub(super) fn new(root: &'a Root, start: &Path, cancel: &'a CancellationToken) -> Self {
        let mut walk = Self {
            root,
            cancel,
            open: Vec::new(),
            visited: 0,
            cut: false,
        };
        let start: PathBuf = start
            .components()
            .filter(|part| *part != std::path::Component::CurDir)
            .collect();
        let mut above = None;
        let mut dirs: Vec<&Path> = start.ancestors().collect();
        dirs.reverse();
        for (at, dir) in dirs.iter().enumerate().take(dirs.len() - 1) {
            let rules = IgnoreRules::below(above, root, dir, &IgnoreRules::names());
            if rules.ignores(dirs[at + 1], true) {
                above = None;
                break;
            }
            above = Some(Rc::new(rules));
        }
        walk.enter(start, above);
        walk
    }

    fn enter(&mut self, path: PathBuf, above: Option<Rc<IgnoreRules>>) {
        // A directory that is gone or cannot be read is skipped, as other search tools do.
        let Some(entries) = self.list(&path) else {
            return;
        };
        let special: Vec<OsString> = entries
            .iter()
            .filter(|(name, kind)| match name.as_bytes() {
                b".ignore" | b".gitignore" => *kind == FileKind::File,
                name => name == b".git",
            })
            .map(|(name, _)| name.clone())
            .collect();
        let rules = match above {
            Some(above) if special.is_empty() => above,
            above => Rc::new(IgnoreRules::below(above, self.root, &path, &special)),
        };
        self.open.push(WalkLevel {
            path,
            entries: entries.into_iter(),
            rules,
        });
    }

    fn list(&mut self, path: &Path) -> Option<Vec<(OsString, FileKind)>> {
        let (_, mut entries) = self.root.entries(path).ok()?;
        let room = MAX_VISITED - self.visited;
        self.cut |= entries.len() > room;
        entries.truncate(room);
        self.visited += entries.len();
        Some(
            entries
                .into_iter()
                .map(|(name, kind)| (name, kind_of(kind)))
                .collect(),
        )
    }
}

impl Iterator for Walk<'_> {
    type Item = (PathBuf, FileKind);

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(level) = self.open.last_mut() {
            if self.cancel.is_cancelled() {
                return None;
            }
            let Some((name, kind)) = level.entries.next() else {
                self.open.pop();
                continue;
            };
            let path = level.path.join(&name);
            let is_dir = kind == FileKind::Directory;
            let draft = is_draft(&name) && kind == FileKind::File;
            if draft || name == ".git" || is_staging(&name) || level.rules.ignores(&path, is_dir) {
                continue;
            }
            if !is_dir {
                return Some((path, kind));
            }
            let rules = Rc::clone(&level.rules);
            self.enter(path, Some(rules));
        }
        None
    }
}

/// The rules in the ignore files of one directory, and of those above it.
pub struct IgnoreRules {
    above: Option<Rc<IgnoreRules>>,
    ignore: Option<Gitignore>,
    gitignore: Option<Gitignore>,
    exclude: Option<Gitignore>,
    /// A repository begins here: git's ignore files above it belong to another one.
    repository: bool,
}

impl IgnoreRules {
    /// Returns the names that contain or affect rules.
    #[must_use]
    pub fn names() -> [OsString; 3] {
        [".ignore", ".gitignore", ".git"].map(OsString::from)
    }

    /// Returns the rules of the root.
    pub fn of(root: &Root) -> Rc<Self> {
        Rc::new(Self::below(None, root, Path::new(""), &Self::names()))
    }

    /// Returns the rules of a directory inside this one.
    pub fn inside(self: &Rc<Self>, root: &Root, dir: &Path) -> Rc<Self> {
        let above = Some(Rc::clone(self));
        Rc::new(Self::below(above, root, dir, &Self::names()))
    }

    /// Returns the rules of a directory that contains these of the relevant names.
    pub fn below(above: Option<Rc<Self>>, root: &Root, dir: &Path, names: &[OsString]) -> Self {
        let has = |name: &str| names.iter().any(|found| found == name);
        let read = |name: &str| {
            has(name)
                .then(|| read_rules(root, dir, &dir.join(name)))
                .flatten()
        };
        let git = dir.join(".git");
        // `.git` is a directory in a clone, and a file in a worktree or a submodule.
        let repository =
            has(".git") && (root.open_dir(&git).is_ok() || root.open_file(&git).is_ok());
        let exclude = repository
            .then(|| read_rules(root, dir, &git.join("info/exclude")))
            .flatten();
        Self {
            above,
            ignore: read(".ignore"),
            gitignore: read(".gitignore"),
            exclude,
            repository,
        }
    }

    /// Returns whether a path in this directory, or below it, is ignored.
    #[must_use]
    pub fn ignores(&self, path: &Path, is_dir: bool) -> bool {
        let levels = || std::iter::successors(Some(self), |level| level.above.as_deref());
        // The directories of the repository that contains the path.
        let count = levels()
            .position(|level| level.repository)
            .map_or(usize::MAX, |at| at + 1);
        let own = || levels().take(count);
        let ignores = levels().filter_map(|level| level.ignore.as_ref());
        let gitignores = own().filter_map(|level| level.gitignore.as_ref());
        let excludes = own().filter_map(|level| level.exclude.as_ref());
        let mut all = ignores.chain(gitignores).chain(excludes).peekable();
        if all.peek().is_none() {
            return false;
        }
        let path = Path::new("/").join(path);
        let rule =
            all.find_map(|file| Some(file.matched(&path, is_dir)).filter(|rule| !rule.is_none()));
        rule.is_some_and(|rule| rule.is_ignore())
    }
}

fn read_rules(root: &Root, dir: &Path, path: &Path) -> Option<Gitignore> {
    let (file, stat) = root
        .open_file(path)
        .ok()
        .filter(|(_, stat)| stat.size <= MAX_IGNORE_FILE)?;
    let mut bytes = Vec::new();
    file.take(MAX_IGNORE_FILE).read_to_end(&mut bytes).ok()?;
    if stat.size == 0 {
        return None;
    }
    let mut builder = GitignoreBuilder::new(Path::new("/").join(dir));
    let text = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&bytes);
    for line in text.split(|byte| *byte == b'\n') {
        // A line that is not a pattern is skipped, as in git.
        if let Ok(line) = std::str::from_utf8(line) {
            let _ = builder.add_line(None, line.strip_suffix('\r').unwrap_or(line));
        }
    }
    // Git creates a file with comments only in each repository; it has no rules.
    builder.build().ok().filter(|rules| !rules.is_empty())
}
