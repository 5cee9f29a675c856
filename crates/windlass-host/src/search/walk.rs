//! Walking a workspace in order, without what ignore files name. Every directory is opened beneath the root's handle,
//! so that nothing swapped in between leads out; an ignore file that is no regular file is never opened.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use windlass_core::CancellationToken;
use windlass_core::workspace::FileKind;

use crate::workspace::{Root, is_draft, is_staging, kind_of};

/// A tree with more entries is looked at only so far.
const MAX_VISITED: usize = 2_000_000;
/// A longer ignore file is not one: it is passed over.
const MAX_IGNORE_FILE: u64 = 1024 * 1024;

/// The entries below a directory that are no directories themselves, sorted, with their paths relative to the root.
pub(super) struct Walk<'a> {
    root: &'a Root,
    cancel: &'a CancellationToken,
    open: Vec<Level>,
    visited: usize,
    /// The tree is too large to be looked at in full.
    pub(super) cut: bool,
}

/// A directory that is being walked.
struct Level {
    path: PathBuf,
    entries: std::vec::IntoIter<(OsString, FileKind)>,
    rules: Rc<Rules>,
}

impl<'a> Walk<'a> {
    /// Everything below `start`. The ignore files above it count, up to the root; when they name the start itself, it
    /// was asked for all the same, and its own alone count.
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
            let rules = Rules::below(above, root, dir, &Rules::names());
            if rules.ignores(dirs[at + 1], true) {
                above = None;
                break;
            }
            above = Some(Rc::new(rules));
        }
        walk.enter(start, above);
        walk
    }

    fn enter(&mut self, path: PathBuf, above: Option<Rc<Rules>>) {
        // A directory that may not be read or went away is left out, as every search tool does.
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
            above => Rc::new(Rules::below(above, self.root, &path, &special)),
        };
        self.open.push(Level {
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

/// What the ignore files of one directory say, and of those above it.
pub struct Rules {
    above: Option<Rc<Rules>>,
    ignore: Option<Gitignore>,
    gitignore: Option<Gitignore>,
    exclude: Option<Gitignore>,
    /// A repository begins here: git's ignore files above it are about another one.
    repository: bool,
}

impl Rules {
    /// Every name that matters.
    #[must_use]
    pub fn names() -> [OsString; 3] {
        [".ignore", ".gitignore", ".git"].map(OsString::from)
    }

    /// The rules of the root.
    pub fn of(root: &Root) -> Rc<Self> {
        Rc::new(Self::below(None, root, Path::new(""), &Self::names()))
    }

    /// The rules of a directory that lies in this one.
    pub fn inside(self: &Rc<Self>, root: &Root, dir: &Path) -> Rc<Self> {
        let above = Some(Rc::clone(self));
        Rc::new(Self::below(above, root, dir, &Self::names()))
    }

    /// The rules of a directory, which has these of the names that matter.
    pub fn below(above: Option<Rc<Self>>, root: &Root, dir: &Path, names: &[OsString]) -> Self {
        let has = |name: &str| names.iter().any(|found| found == name);
        let read = |name: &str| {
            has(name)
                .then(|| read_rules(root, dir, &dir.join(name)))
                .flatten()
        };
        let git = dir.join(".git");
        // A directory in a clone, a file in a worktree or a submodule.
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

    /// Whether a path in this directory, or below it, is ignored.
    #[must_use]
    pub fn ignores(&self, path: &Path, is_dir: bool) -> bool {
        let levels = || std::iter::successors(Some(self), |level| level.above.as_deref());
        // The levels of the repository that the path is in.
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
        let said =
            all.find_map(|file| Some(file.matched(&path, is_dir)).filter(|said| !said.is_none()));
        said.is_some_and(|said| said.is_ignore())
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
        // A line that is no pattern says nothing, as in git.
        if let Ok(line) = std::str::from_utf8(line) {
            let _ = builder.add_line(None, line.strip_suffix('\r').unwrap_or(line));
        }
    }
    // One with nothing but remarks, as git makes it for every repository, says nothing.
    builder.build().ok().filter(|rules| !rules.is_empty())
}
