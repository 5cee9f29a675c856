//! The copy of the workspace for in-place commands, if the kernel has no overlays with which names could be protected.
//! Before a command, changes of the workspace are copied to the copy. After it, the changes in the copy are laid out
//! like the upper directory of an overlay, so that the same code lands both. Every path is opened below the copy and
//! through no symlink, because a command that is still running could create one anywhere.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use windlass_core::gate::is_credential;

use crate::isolated::copy_tree::{self, copy_file, copy_link, is_hidden};
use crate::isolated::parent;
use windlass_host::private::remove_tree;
use windlass_host::sandbox::CommandTree;
use windlass_host::workspace::Root;

/// Maximum entries of a tree.
const MAX_ENTRIES: usize = 400_000;

/// Copies the workspace at `root` into a new directory in `parent`, without the `hidden` paths. The copy is removed on
/// drop.
pub fn copy_workspace(
    root: &Path,
    hidden: Vec<PathBuf>,
    parent: &Path,
) -> Result<Arc<dyn CommandTree>, String> {
    Ok(Arc::new(WorkingCopy::make(root, hidden, parent)?))
}

/// The copy of a workspace, removed on drop.
#[derive(Debug)]
struct WorkingCopy {
    folder: PathBuf,
    tree: PathBuf,
    workspace: Root,
    copy: Root,
    state: Mutex<WorkingCopyState>,
}

#[derive(Debug, Default)]
struct WorkingCopyState {
    /// Paths that are not in the copy.
    hidden: Vec<PathBuf>,
    workspace: Records,
    copy: Records,
    /// Paths that commands changed. Some of them may not have landed.
    changed: BTreeSet<PathBuf>,
}

/// The stat records of every entry of a tree, except for its root.
type Records = BTreeMap<PathBuf, FileRecord>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileRecord {
    pub(crate) kind: FileType,
    mode: u32,
    inode: u64,
    size: i64,
    written: (i64, i64),
    /// No program can set the change time. It is zero for a directory, whose change time changes with every entry.
    pub(crate) changed: (i64, i64),
}

impl FileRecord {
    pub(crate) fn of(stat: &Stat) -> Self {
        let kind = FileType::from_raw_mode(stat.st_mode);
        let folder = kind == FileType::Directory;
        let time = |seconds: i64, nanos: u64| (seconds, nanos.cast_signed());
        Self {
            kind,
            mode: stat.st_mode & 0o7777,
            inode: stat.st_ino,
            size: if folder { 0 } else { stat.st_size },
            written: if folder {
                (0, 0)
            } else {
                time(stat.st_mtime, stat.st_mtime_nsec)
            },
            changed: if folder {
                (0, 0)
            } else {
                time(stat.st_ctime, stat.st_ctime_nsec)
            },
        }
    }

    /// Whether a file of the copy has the same bytes as a file of the workspace, according to the records.
    pub(crate) fn is_copy_of(&self, other: &Self) -> bool {
        (self.kind, self.mode, self.size, self.written)
            == (other.kind, other.mode, other.size, other.written)
            && matches!(self.kind, FileType::RegularFile | FileType::Directory)
    }
}

impl WorkingCopyState {
    /// Hides credentials that were added to the workspace after the copy was made.
    fn hide_new_credentials(&mut self, changed: &BTreeSet<PathBuf>) {
        let new = changed.iter().filter(|path| {
            !self.workspace.contains_key(*path) && is_credential(&path.to_string_lossy())
        });
        let new: Vec<PathBuf> = new.cloned().collect();
        self.hidden.extend(new);
    }
}

impl WorkingCopy {
    /// Copies the workspace at `root` into a new directory in `parent`; `hidden` paths are not copied.
    fn make(root: &Path, mut hidden: Vec<PathBuf>, parent: &Path) -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let workspace = Root::open(root).map_err(|err| err.to_string())?;
        hidden.extend(copy_tree::measure(&workspace)?);
        windlass_host::private::remove_abandoned(parent, |folder| drop(remove_tree(folder)));
        let folder = parent.join(format!(
            "{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        ));
        let tree = folder.join("tree");
        windlass_host::private::create_dir(&tree).map_err(|err| err.message)?;
        // Commands see this path, so it must be canonical.
        let tree = tree
            .canonicalize()
            .map_err(|err| format!("{}: {err}", tree.display()))?;
        let copy = Root::open(&tree).map_err(|err| err.to_string())?;
        let made = Self {
            folder,
            tree,
            workspace,
            copy,
            state: Mutex::default(),
        };
        let before = records(&made.workspace)?;
        copy_tree::copy(&made.workspace, &made.tree, &hidden)?;
        *made.state.lock() = WorkingCopyState {
            hidden,
            workspace: before,
            copy: records(&made.copy)?,
            changed: BTreeSet::new(),
        };
        Ok(made)
    }

    /// The record of a path in the copy.
    fn record_at(&self, path: &Path) -> Option<FileRecord> {
        let (parent, name) = parent_of(&self.copy, path).ok()?;
        let stat = rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(FileRecord::of(&stat))
    }

    /// Copies one path from the workspace to the copy. Parents must come before their entries.
    fn update_path(&self, path: &Path, wanted: Option<&FileRecord>) -> std::io::Result<()> {
        let Ok((to, name)) = parent_of(&self.copy, path) else {
            // Its directory is gone, and the path with it.
            return Ok(());
        };
        let there = rustix::fs::statat(&to, name, AtFlags::SYMLINK_NOFOLLOW)
            .ok()
            .map(|stat| FileRecord::of(&stat));
        let (Some(wanted), Ok((from, _))) = (wanted, parent_of(&self.workspace, path)) else {
            return if there.is_some() {
                remove(to.as_fd(), name)
            } else {
                Ok(())
            };
        };
        if there.is_some_and(|there| there.is_copy_of(wanted)) {
            return Ok(());
        }
        let folder = wanted.kind == FileType::Directory;
        if let Some(there) = there
            && !(folder && there.kind == FileType::Directory)
        {
            remove(to.as_fd(), name)?;
        }
        put(from.as_fd(), to.as_fd(), name, wanted)
    }

    /// Copies one changed path to the upper directory; returns it if it was deleted.
    fn take_path(
        &self,
        upper: &Root,
        path: &Path,
        before: &Records,
        now: &Records,
    ) -> std::io::Result<Option<PathBuf>> {
        let record = now.get(path);
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        if record.is_none()
            && above.is_some_and(|above| {
                now.get(above)
                    .is_none_or(|one| one.kind != FileType::Directory)
            })
        {
            // Its whole directory was deleted.
            return Ok(None);
        }
        if record.is_some_and(|record| record.kind == FileType::Socket) {
            // A socket is useless without the process that listens on it, which ends with its command.
            return Ok(None);
        }
        let to = make_parents(upper, path, before, now)?;
        let name = path.file_name().ok_or(std::io::ErrorKind::InvalidInput)?;
        let Some(record) = record else {
            return Ok(Some(path.to_owned()));
        };
        let (from, _) = parent_of(&self.copy, path)?;
        put(from.as_fd(), to.as_fd(), name, record).map(|()| None)
    }
}

impl CommandTree for WorkingCopy {
    fn path(&self) -> &Path {
        &self.tree
    }

    fn update(&self) -> Result<(), String> {
        let mut state = self.state.lock();
        let now = records(&self.workspace)?;
        let mut paths = differences(&state.workspace, &now);
        state.hide_new_credentials(&paths);
        paths.extend(std::mem::take(&mut state.changed));
        for path in paths.iter().filter(|path| !is_hidden(&state.hidden, path)) {
            self.update_path(path, now.get(path))
                .map_err(|err| format!("cannot copy `{}` again: {err}", path.display()))?;
        }
        state.workspace = now;
        state.copy = records(&self.copy)?;
        Ok(())
    }

    fn refresh(&self) -> Result<(), String> {
        let mut state = self.state.lock();
        let now = records(&self.workspace)?;
        let paths = differences(&state.workspace, &now);
        state.hide_new_credentials(&paths);
        for path in paths {
            // A path that is skipped here keeps its old record, so that the next update copies it.
            if !is_hidden(&state.hidden, &path)
                && self.record_at(&path) != state.copy.get(&path).copied()
            {
                continue;
            }
            if !is_hidden(&state.hidden, &path) {
                self.update_path(&path, now.get(&path))
                    .map_err(|err| format!("cannot copy `{}` again: {err}", path.display()))?;
                set(&mut state.copy, &path, self.record_at(&path));
            }
            set(&mut state.workspace, &path, now.get(&path).copied());
        }
        Ok(())
    }

    fn take(&self, upper: &Path) -> Result<Option<BTreeSet<PathBuf>>, String> {
        let mut state = self.state.lock();
        let now = records(&self.copy)?;
        let upper = Root::open(upper).map_err(|err| err.to_string())?;
        let changed: Vec<PathBuf> = differences(&state.copy, &now)
            .into_iter()
            .filter(|path| !is_hidden(&state.hidden, path))
            .collect();
        let mut gone = BTreeSet::new();
        for path in &changed {
            let taken = self.take_path(&upper, path, &state.copy, &now);
            let taken = taken
                .map_err(|err| format!("cannot read `{}` from the copy: {err}", path.display()))?;
            gone.extend(taken);
        }
        state.copy = now;
        let any = !changed.is_empty();
        state.changed.extend(changed);
        Ok(any.then_some(gone))
    }
}

impl Drop for WorkingCopy {
    fn drop(&mut self) {
        let _ = remove_tree(&self.folder);
    }
}

/// The records of everything below a root.
fn records(root: &Root) -> Result<Records, String> {
    let mut records = Records::new();
    let mut open = vec![PathBuf::new()];
    while let Some(dir) = open.pop() {
        // A directory that cannot be listed is skipped; it has a record of its own.
        let Ok((handle, entries)) = root.entries(&dir) else {
            continue;
        };
        for (name, _) in entries {
            let Ok(stat) = rustix::fs::statat(&handle, &name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            let (path, record) = (dir.join(&name), FileRecord::of(&stat));
            if record.kind == FileType::Directory {
                open.push(path.clone());
            }
            records.insert(path, record);
            if records.len() > MAX_ENTRIES {
                return Err(format!("the tree has more than {MAX_ENTRIES} entries"));
            }
        }
    }
    Ok(records)
}

fn set(records: &mut Records, path: &Path, record: Option<FileRecord>) {
    match record {
        Some(record) => drop(records.insert(path.to_owned(), record)),
        None => drop(records.remove(path)),
    }
}

/// Paths whose records differ, sorted, so that parents come first.
fn differences(before: &Records, now: &Records) -> BTreeSet<PathBuf> {
    let changed = now
        .iter()
        .filter(|(path, record)| before.get(*path) != Some(record))
        .map(|(path, _)| path);
    let gone = before.keys().filter(|path| !now.contains_key(*path));
    changed.chain(gone).cloned().collect()
}

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
const NO_LINKS: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

/// Opens the directory that contains a path; also returns the name in it.
pub(crate) fn parent_of<'a>(root: &Root, path: &'a Path) -> std::io::Result<(OwnedFd, &'a OsStr)> {
    let name = path.file_name().ok_or(std::io::ErrorKind::InvalidInput)?;
    let above = rustix::fs::openat2(root.handle(), parent(path), FOLDER, Mode::empty(), NO_LINKS)?;
    Ok((above, name))
}

/// Opens the parent of a path in the upper directory, and creates it with the modes of the copy if it is missing.
fn make_parents(
    upper: &Root,
    path: &Path,
    before: &Records,
    now: &Records,
) -> std::io::Result<OwnedFd> {
    let mut at = upper.handle().try_clone_to_owned()?;
    let mut above = PathBuf::new();
    for name in path.parent().unwrap_or(Path::new("")).iter() {
        above.push(name);
        at = match rustix::fs::openat(&at, name, FOLDER, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => {
                let mode = now
                    .get(&above)
                    .or(before.get(&above))
                    .map_or(0o755, |record| record.mode);
                rustix::fs::mkdirat(&at, name, Mode::RWXU)?;
                let made = rustix::fs::openat(&at, name, FOLDER, Mode::empty())?;
                rustix::fs::fchmod(&made, Mode::from_raw_mode(mode | 0o700))?;
                made
            }
            other => other?,
        };
    }
    Ok(at)
}

/// Copies an entry from one directory to another, where the name must be free or a directory.
pub(crate) fn put(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    name: &OsStr,
    record: &FileRecord,
) -> std::io::Result<()> {
    match record.kind {
        FileType::Directory => {
            match rustix::fs::mkdirat(to, name, Mode::RWXU) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(err) => return Err(err.into()),
            }
            // Use a handle, because a command could replace the directory by a symlink. The owner needs access to add
            // entries.
            let folder = rustix::fs::openat(to, name, FOLDER, Mode::empty())?;
            Ok(rustix::fs::fchmod(
                folder,
                Mode::from_raw_mode(record.mode | 0o700),
            )?)
        }
        FileType::RegularFile => copy_file(from, to, name, &mut true).map(drop),
        FileType::Symlink => copy_link(from, to, name),
        kind @ (FileType::Fifo | FileType::Socket) => {
            Ok(rustix::fs::mknodat(to, name, kind, Mode::RUSR, 0)?)
        }
        _ => Ok(()),
    }
}

/// Removes an entry with everything in it.
pub(crate) fn remove(dir: BorrowedFd<'_>, name: &OsStr) -> std::io::Result<()> {
    let place = Path::new("/proc/self/fd")
        .join(dir.as_raw_fd().to_string())
        .join(name);
    match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
        Err(rustix::io::Errno::ISDIR | rustix::io::Errno::PERM) => std::fs::remove_dir_all(place),
        Err(rustix::io::Errno::NOENT) => Ok(()),
        other => Ok(other?),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};

    struct WorkingCopyFixture {
        _dir: tempfile::TempDir,
        base: PathBuf,
        copy: WorkingCopy,
    }

    impl WorkingCopyFixture {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let base = dir.path().canonicalize().unwrap();
            for folder in ["ws/src/deep", "copies"] {
                fs::create_dir_all(base.join(folder)).unwrap();
            }
            for (path, text) in [
                ("ws/a", "a"),
                ("ws/src/b", "b"),
                ("ws/src/deep/c", "c"),
                ("ws/.env", "KEY=planted"),
            ] {
                fs::write(base.join(path), text).unwrap();
            }
            symlink("a", base.join("ws/link")).unwrap();
            let copy =
                WorkingCopy::make(&base.join("ws"), vec![".env".into()], &base.join("copies"))
                    .unwrap();
            Self {
                _dir: dir,
                base,
                copy,
            }
        }

        fn upper(&self) -> PathBuf {
            let upper = self.base.join("upper");
            let _ = fs::remove_dir_all(&upper);
            fs::create_dir(&upper).unwrap();
            upper
        }
    }

    #[test]
    fn hidden_files_are_not_in_the_copy() {
        let fixture = WorkingCopyFixture::new();
        let blank = fixture.copy.path().join(".env");
        assert!(blank.symlink_metadata().unwrap().file_type().is_socket());
        assert!(fs::read(&blank).is_err());
        fs::remove_file(&blank).unwrap();
        fs::write(&blank, "mine").unwrap();
        assert_eq!(
            fixture.copy.take(&fixture.upper()).unwrap(),
            None,
            "a placeholder of a hidden file is not copied"
        );
    }

    #[test]
    fn changes_are_laid_out_like_an_upper_directory() {
        let fixture = WorkingCopyFixture::new();
        let tree = fixture.copy.path().to_owned();
        fs::write(tree.join("src/b"), "B").unwrap();
        fs::write(tree.join("new"), "n").unwrap();
        fs::remove_file(tree.join("a")).unwrap();
        fs::remove_dir_all(tree.join("src/deep")).unwrap();
        fs::remove_file(tree.join("link")).unwrap();
        fs::create_dir_all(tree.join("link/x")).unwrap();
        let upper = fixture.upper();
        let gone = fixture.copy.take(&upper).unwrap().unwrap();
        assert_eq!(
            gone.iter()
                .map(|path| path.to_str().unwrap())
                .collect::<Vec<_>>(),
            ["a", "src/deep"]
        );
        assert_eq!(fs::read_to_string(upper.join("src/b")).unwrap(), "B");
        assert_eq!(fs::read_to_string(upper.join("new")).unwrap(), "n");
        assert!(upper.join("link/x").is_dir());
        // Nothing lands in this test, so the next update resets everything.
        fixture.copy.update().unwrap();
        assert_eq!(fs::read_to_string(tree.join("a")).unwrap(), "a");
        assert_eq!(fs::read_to_string(tree.join("src/deep/c")).unwrap(), "c");
        assert_eq!(fs::read_link(tree.join("link")).unwrap(), Path::new("a"));
        assert!(!tree.join("new").exists());
    }

    #[test]
    fn the_copy_follows_the_workspace() {
        let fixture = WorkingCopyFixture::new();
        let (ws, tree) = (fixture.base.join("ws"), fixture.copy.path().to_owned());
        fs::write(ws.join("a"), "changed").unwrap();
        fs::remove_dir_all(ws.join("src")).unwrap();
        fs::write(ws.join("src"), "now a file").unwrap();
        fs::create_dir(ws.join("dir")).unwrap();
        fs::write(ws.join("dir/x"), "x").unwrap();
        fs::set_permissions(ws.join("dir/x"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(ws.join(".env"), "KEY=other").unwrap();
        fs::write(ws.join("id_rsa"), "planted").unwrap();
        fixture.copy.update().unwrap();
        assert!(
            !tree.join("id_rsa").exists(),
            "a credential that was added later is not copied either"
        );
        assert_eq!(fs::read_to_string(tree.join("a")).unwrap(), "changed");
        assert_eq!(fs::read_to_string(tree.join("src")).unwrap(), "now a file");
        assert_eq!(
            fs::metadata(tree.join("dir/x"))
                .unwrap()
                .permissions()
                .mode()
                & 0o777,
            0o755
        );
        assert!(fs::read(tree.join(".env")).is_err());
        assert_eq!(
            fixture.copy.take(&fixture.upper()).unwrap(),
            None,
            "an update is no change of a command"
        );
    }

    #[test]
    fn a_refresh_leaves_alone_what_a_program_changed_in_the_copy() {
        let fixture = WorkingCopyFixture::new();
        let (ws, tree) = (fixture.base.join("ws"), fixture.copy.path().to_owned());
        fs::write(tree.join("src/b"), "of the job").unwrap();
        let open = fs::File::open(tree.join("a")).unwrap();
        fs::write(ws.join("a"), "of the user").unwrap();
        fs::write(ws.join("src/b"), "of the user").unwrap();
        fs::write(ws.join("new"), "of the user").unwrap();
        fs::remove_dir_all(ws.join("src/deep")).unwrap();
        fs::write(ws.join("id_rsa"), "planted").unwrap();
        fixture.copy.refresh().unwrap();
        assert_eq!(std::io::read_to_string(open).unwrap(), "a");
        let read = |name: &str| fs::read_to_string(tree.join(name)).unwrap();
        assert_eq!(
            (read("a"), read("src/b"), read("new")),
            (
                "of the user".into(),
                "of the job".into(),
                "of the user".into()
            )
        );
        assert!(!tree.join("src/deep").exists() && !tree.join("id_rsa").exists());
        let upper = fixture.upper();
        assert_eq!(fixture.copy.take(&upper).unwrap(), Some(BTreeSet::new()));
        assert_eq!(
            fs::read_to_string(upper.join("src/b")).unwrap(),
            "of the job"
        );
        assert!(!upper.join("a").exists() && !upper.join("new").exists());
        fixture.copy.update().unwrap();
        assert_eq!(read("src/b"), "of the user");
    }

    #[test]
    fn nothing_is_written_through_a_link_that_a_command_left() {
        let fixture = WorkingCopyFixture::new();
        let (ws, tree) = (fixture.base.join("ws"), fixture.copy.path().to_owned());
        fs::create_dir(fixture.base.join("out")).unwrap();
        fs::remove_dir_all(tree.join("src")).unwrap();
        symlink(fixture.base.join("out"), tree.join("src")).unwrap();
        fs::write(ws.join("src/b"), "changed").unwrap();
        fixture.copy.update().unwrap();
        assert_eq!(fs::read_dir(fixture.base.join("out")).unwrap().count(), 0);
    }

    #[test]
    fn the_copy_goes_when_it_is_dropped() {
        let fixture = WorkingCopyFixture::new();
        let path = fixture.copy.path().to_owned();
        drop(fixture.copy);
        assert!(!path.exists());
    }
}
