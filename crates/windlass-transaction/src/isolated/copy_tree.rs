//! Copies a whole tree, if no overlay is possible: with reflinks if the file system supports them, otherwise byte by
//! byte. The number of files and bytes is limited, and files that cannot be copied are reported.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, SeekFrom, Timespec, Timestamps};

use crate::working_copy::{parent_of, remove};
use windlass_host::workspace::Root;

/// Maximum bytes of a tree that is copied.
pub(super) const MAX_BYTES: u64 = 2 << 30;
/// Maximum files of a tree that is copied.
pub(super) const MAX_FILES: usize = 200_000;
/// Larger files are left out of a copy.
const MAX_FILE: u64 = 1 << 30;
/// Paths that are named one by one.
const MAX_NAMED: usize = 20;

/// The result of copying a tree.
#[derive(Debug, Default)]
pub(crate) struct CopiedTree {
    /// Whether files share blocks with the original (reflinks).
    pub(crate) shared: bool,
    /// Paths that are missing in the copy, with the reason.
    pub(super) missing: Vec<(PathBuf, String)>,
}

/// Checks that a tree is small enough to be copied, and returns the files that are too large.
pub(crate) fn measure(root: &Root) -> Result<Vec<PathBuf>, String> {
    let (mut files, mut bytes) = (0, 0_u64);
    let mut left_out = Vec::new();
    let mut open = vec![PathBuf::from(".")];
    while let Some(dir) = open.pop() {
        let Ok((handle, entries)) = root.entries(&dir) else {
            continue;
        };
        for (name, kind) in entries {
            files += 1;
            match kind {
                FileType::Directory => open.push(dir.join(name)),
                FileType::RegularFile => {
                    let stat = rustix::fs::statat(&handle, &name, AtFlags::SYMLINK_NOFOLLOW);
                    // Holes in sparse files take no space and are not copied.
                    let taken = stat.map_or(0, |stat| {
                        u64::try_from(stat.st_size.min(stat.st_blocks * 512)).unwrap_or(0)
                    });
                    match taken > MAX_FILE {
                        true => left_out.push(dir.strip_prefix(".").unwrap_or(&dir).join(name)),
                        false => bytes += taken,
                    }
                }
                _ => {}
            }
            if files > MAX_FILES || bytes > MAX_BYTES {
                return Err(format!(
                    "the tree is too large to copy (more than {} MB or {MAX_FILES} files)",
                    MAX_BYTES >> 20
                ));
            }
        }
    }
    Ok(left_out)
}

pub(crate) fn left_out_note(path: &Path) -> String {
    format!(
        "`{}` is not in the copy: it is larger than {} MB",
        path.display(),
        MAX_FILE >> 20
    )
}

/// Copies everything below a root into an empty directory. The paths in `hidden` are replaced by placeholders that
/// cannot be opened.
pub(crate) fn copy(root: &Root, to: &Path, hidden: &[PathBuf]) -> Result<CopiedTree, String> {
    let mut copied = CopiedTree::default();
    let mut sharing = true;
    let mut open = vec![PathBuf::from(".")];
    let mut times = Vec::new();
    while let Some(dir) = open.pop() {
        let listed = root.entries(&dir).map_err(|err| err.message);
        let listed = listed.and_then(|(handle, entries)| {
            let stat = rustix::fs::fstat(&handle).map_err(|err| err.to_string())?;
            Ok((handle, entries, stat))
        });
        let (handle, entries, stat) = match listed {
            Ok(listed) => listed,
            Err(why) if dir == Path::new(".") => return Err(why),
            Err(why) => {
                copied.miss(dir, why);
                continue;
            }
        };
        let place = to.join(&dir);
        if dir != Path::new(".") {
            std::fs::create_dir(&place).map_err(|err| full(&place, &err))?;
        }
        let target = open_folder(&place).map_err(|err| full(&place, &err.into()))?;
        for (name, kind) in entries {
            let path = dir.join(&name);
            if is_hidden(hidden, &path) {
                place_blank(&target, &name, kind).map_err(|err| full(&path, &err))?;
                continue;
            }
            let made = match kind {
                FileType::Directory => {
                    open.push(path.clone());
                    Ok(())
                }
                FileType::RegularFile => copy_file(&handle, &target, &name, &mut sharing)
                    .map(|shared| copied.shared |= shared),
                FileType::Symlink => copy_link(&handle, &target, &name),
                FileType::Fifo | FileType::Socket => {
                    let mode = Mode::RUSR | Mode::WUSR;
                    rustix::fs::mknodat(&target, &name, kind, mode, 0).map_err(Into::into)
                }
                _ => Err(std::io::Error::other("it is a device")),
            };
            match made {
                Ok(()) => {}
                Err(err) if err.kind() == std::io::ErrorKind::StorageFull => {
                    return Err(full(&path, &err));
                }
                Err(err) => copied.miss(path, err.to_string()),
            }
        }
        times.push((place, stat));
    }
    // Set modes and times last: adding entries changes the times and may need the permissions.
    for (place, stat) in times.into_iter().rev() {
        // Open each directory again, because a tree may have more directories than a process may have open files.
        let Ok(dir) = open_folder(&place) else {
            continue;
        };
        let _ = rustix::fs::fchmod(&dir, Mode::from_raw_mode(stat.st_mode & 0o7777 | 0o700));
        let _ = rustix::fs::futimens(&dir, &times_of(&stat));
    }
    Ok(copied)
}

/// Whether a relative path is hidden; `path` may begin with `.`.
pub(crate) fn is_hidden(hidden: &[PathBuf], path: &Path) -> bool {
    let path = path.strip_prefix(".").unwrap_or(path);
    hidden.iter().any(|one| path.starts_with(one))
}

/// Replaces a path in a copy by a placeholder.
pub(crate) fn hide(tree: &Path, path: &Path) -> Result<(), String> {
    let failed =
        |err: std::io::Error| format!("cannot hide `{}` in the copy: {err}", path.display());
    let tree = Root::open(tree).map_err(|err| err.to_string())?;
    // A command of an earlier run may have put a symlink into the path; then the path is not in the copy.
    let Ok((parent, name)) = parent_of(&tree, path) else {
        return Ok(());
    };
    let Ok(stat) = rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) else {
        return Ok(());
    };
    remove(parent.as_fd(), name).map_err(failed)?;
    place_blank(&parent, name, FileType::from_raw_mode(stat.st_mode)).map_err(failed)
}

/// Creates a placeholder for a hidden path. For a file it is a socket without a listener: not even root can open it,
/// and git skips it. For a directory it is an empty directory.
fn place_blank(dir: impl AsFd, name: &OsStr, kind: FileType) -> std::io::Result<()> {
    match kind {
        FileType::Directory => Ok(rustix::fs::mkdirat(dir, name, Mode::RUSR | Mode::XUSR)?),
        _ => Ok(rustix::fs::mknodat(
            dir,
            name,
            FileType::Socket,
            Mode::empty(),
            0,
        )?),
    }
}

impl CopiedTree {
    fn miss(&mut self, path: PathBuf, why: String) {
        if self.missing.len() < MAX_NAMED {
            self.missing.push((path, why));
        }
    }
}

fn open_folder(path: &Path) -> rustix::io::Result<std::os::fd::OwnedFd> {
    rustix::fs::open(
        path,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

pub(crate) fn copy_link(from: impl AsFd, to: impl AsFd, name: &OsStr) -> std::io::Result<()> {
    let target = rustix::fs::readlinkat(from, name, Vec::new())?;
    Ok(rustix::fs::symlinkat(target.as_c_str(), to, name)?)
}

pub(crate) fn copy_file(
    from: impl AsFd,
    to: impl AsFd,
    name: &OsStr,
    sharing: &mut bool,
) -> std::io::Result<bool> {
    let read = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let source = File::from(rustix::fs::openat(from, name, read, Mode::empty())?);
    let stat = rustix::fs::fstat(&source)?;
    let write = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let target = File::from(rustix::fs::openat(
        to,
        name,
        write,
        Mode::from_raw_mode(0o600),
    )?);
    let shared = *sharing && share(&target, &source);
    if !shared {
        *sharing = false;
        copy_data(&source, &target, stat.st_size)?;
    }
    rustix::fs::fchmod(&target, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
    rustix::fs::futimens(&target, &times_of(&stat))?;
    Ok(shared)
}

/// Copies the data of a file and skips its holes.
fn copy_data(source: &File, target: &File, size: i64) -> std::io::Result<()> {
    let size = u64::try_from(size).unwrap_or(0);
    let mut at = 0;
    while at < size {
        let data = match rustix::fs::seek(source, SeekFrom::Data(at)) {
            Ok(data) => data,
            // The rest of the file is a hole.
            Err(rustix::io::Errno::NXIO) => break,
            // The file system does not report holes.
            Err(_) => at,
        };
        let end = rustix::fs::seek(source, SeekFrom::Hole(data))
            .unwrap_or(size)
            .max(data + 1);
        rustix::fs::seek(source, SeekFrom::Start(data))?;
        rustix::fs::seek(target, SeekFrom::Start(data))?;
        std::io::copy(&mut source.take(end - data), &mut &*target)?;
        at = end;
    }
    target.set_len(size)
}

fn share(target: &File, source: &File) -> bool {
    rustix::fs::ioctl_ficlone(target, source).is_ok()
}

pub(crate) fn times_of(stat: &rustix::fs::Stat) -> Timestamps {
    let time = |tv_sec: i64, nsec: u64| Timespec {
        tv_sec,
        tv_nsec: nsec.cast_signed(),
    };
    Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
    }
}

fn full(path: &Path, err: &std::io::Error) -> String {
    format!(
        "cannot copy the tree: `{}`: {err}; free some disk space",
        path.display()
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;

    /// The limit applies to a whole process, so the copy runs in a child process.
    #[test]
    fn a_tree_may_have_more_directories_than_a_process_may_have_open_files() {
        const INSIDE: &str = "WINDLASS_TEST_FEW_FILES";
        const SELF: &str = "isolated::copy_tree::tests::a_tree_may_have_more_directories_than_a_process_may_have_open_files";
        if std::env::var_os(INSIDE).is_none() {
            let mut child = std::process::Command::new("sh");
            child.args(["-c", "ulimit -n 128 && exec \"$0\" --exact \"$1\""]);
            child
                .arg(std::env::current_exe().unwrap())
                .arg(SELF)
                .env(INSIDE, "1");
            let done = child.output().unwrap();
            let output = String::from_utf8_lossy(&done.stdout);
            assert!(
                done.status.success() && output.contains("1 passed"),
                "{output}"
            );
            return;
        }
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for n in 0..200 {
            std::fs::create_dir(from.path().join(format!("d{n}"))).unwrap();
        }
        std::fs::write(from.path().join("d7/a.txt"), "a").unwrap();
        let copied = copy(&Root::open(from.path()).unwrap(), to.path(), &[]);
        assert_eq!(copied.unwrap().missing, []);
        assert_eq!(
            std::fs::read_to_string(to.path().join("d7/a.txt")).unwrap(),
            "a"
        );
    }
}
