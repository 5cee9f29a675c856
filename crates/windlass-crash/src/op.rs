//! Operations that change files: their system calls, their kinds, and the files that they change. This module reads the
//! memory and the file descriptors of the caller through `/proc`; it changes nothing.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::seccomp::{FilteredCalls, SyscallNotice};

/// The kind of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OpKind {
    /// Writes bytes to a file.
    Write,
    /// Syncs a file or a directory to disk.
    Sync,
    Rename,
    /// A hard link or a symlink.
    Link,
    Unlink,
    Truncate,
    Mkdir,
    /// Creates or truncates a file by opening it.
    Create,
    Mode,
}

impl OpKind {
    /// All kinds, in the order of the tables.
    pub const ALL: [Self; 9] = [
        Self::Write,
        Self::Sync,
        Self::Rename,
        Self::Create,
        Self::Mkdir,
        Self::Unlink,
        Self::Link,
        Self::Truncate,
        Self::Mode,
    ];

    /// Returns the name in tables.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Rename => "rename",
            Self::Link => "link",
            Self::Unlink => "unlink",
            Self::Truncate => "truncate",
            Self::Mkdir => "mkdir",
            Self::Create => "create",
            Self::Mode => "mode",
        }
    }
}

/// One operation on a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Op {
    pub kind: OpKind,
    pub call: &'static str,
    /// The file, from the file descriptors and arguments of the caller.
    pub path: String,
}

/// The arguments that name the file of a call: a file descriptor, a path, or a path relative to a directory.
#[derive(Clone, Copy)]
enum FileArg {
    Handle(usize),
    Path(usize),
    Beneath(usize, usize),
}

use FileArg::{Beneath, Handle, Path};

/// The number, name and kind of each call, and its arguments for the file. A rename is identified by the new name.
const CALLS: &[(i64, &str, OpKind, FileArg)] = &[
    (libc::SYS_write, "write", OpKind::Write, Handle(0)),
    (libc::SYS_pwrite64, "pwrite64", OpKind::Write, Handle(0)),
    (libc::SYS_writev, "writev", OpKind::Write, Handle(0)),
    (libc::SYS_pwritev, "pwritev", OpKind::Write, Handle(0)),
    (libc::SYS_pwritev2, "pwritev2", OpKind::Write, Handle(0)),
    (
        libc::SYS_copy_file_range,
        "copy_file_range",
        OpKind::Write,
        Handle(2),
    ),
    (libc::SYS_sendfile, "sendfile", OpKind::Write, Handle(0)),
    (
        libc::SYS_fallocate,
        "fallocate",
        OpKind::Truncate,
        Handle(0),
    ),
    (
        libc::SYS_ftruncate,
        "ftruncate",
        OpKind::Truncate,
        Handle(0),
    ),
    (libc::SYS_truncate, "truncate", OpKind::Truncate, Path(0)),
    (libc::SYS_fsync, "fsync", OpKind::Sync, Handle(0)),
    (libc::SYS_fdatasync, "fdatasync", OpKind::Sync, Handle(0)),
    (libc::SYS_syncfs, "syncfs", OpKind::Sync, Handle(0)),
    (
        libc::SYS_renameat,
        "renameat",
        OpKind::Rename,
        Beneath(2, 3),
    ),
    (
        libc::SYS_renameat2,
        "renameat2",
        OpKind::Rename,
        Beneath(2, 3),
    ),
    (libc::SYS_linkat, "linkat", OpKind::Link, Beneath(2, 3)),
    (
        libc::SYS_symlinkat,
        "symlinkat",
        OpKind::Link,
        Beneath(1, 2),
    ),
    (
        libc::SYS_unlinkat,
        "unlinkat",
        OpKind::Unlink,
        Beneath(0, 1),
    ),
    (libc::SYS_mkdirat, "mkdirat", OpKind::Mkdir, Beneath(0, 1)),
    (libc::SYS_fchmod, "fchmod", OpKind::Mode, Handle(0)),
    (libc::SYS_fchmodat, "fchmodat", OpKind::Mode, Beneath(0, 1)),
    (libc::SYS_openat2, "openat2", OpKind::Create, Beneath(0, 1)),
    (libc::SYS_openat, "openat", OpKind::Create, Beneath(0, 1)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rename, "rename", OpKind::Rename, Path(1)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_link, "link", OpKind::Link, Path(1)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_symlink, "symlink", OpKind::Link, Path(1)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_unlink, "unlink", OpKind::Unlink, Path(0)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rmdir, "rmdir", OpKind::Unlink, Path(0)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mkdir, "mkdir", OpKind::Mkdir, Path(0)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, "chmod", OpKind::Mode, Path(0)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, "creat", OpKind::Create, Path(0)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, "open", OpKind::Create, Path(0)),
];

/// `open` creates or truncates a file with these flags. `openat2` has its flags in memory, so the supervisor reads them
/// there.
const MAKES: u64 = (libc::O_CREAT | libc::O_TRUNC) as u64;
const OPENS: &[(i64, u32, u32)] = &[
    (libc::SYS_openat, 2, MAKES as u32),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1, MAKES as u32),
];
/// The maximum length of a path.
const PATH_MAX: usize = 4096;

/// Returns the calls that are intercepted with any arguments.
pub(crate) fn always() -> Vec<i64> {
    let by_bits = |call: i64| OPENS.iter().any(|(open, ..)| *open == call);
    CALLS
        .iter()
        .map(|(number, ..)| *number)
        .filter(|number| !by_bits(*number))
        .collect()
}

/// Returns all calls that are intercepted.
pub(crate) fn asked(always: &[i64]) -> FilteredCalls<'_> {
    FilteredCalls {
        always,
        with_bits: OPENS,
    }
}

impl Op {
    /// Returns the operation of a call; `None` if it is not about a file but about a pipe, a socket, a device or
    /// `/proc`.
    pub(crate) fn of(notice: &SyscallNotice) -> Option<Self> {
        let (number, call, kind, names) =
            *CALLS.iter().find(|(number, ..)| *number == notice.number)?;
        let (caller, args) = (notice.thread, &notice.args);
        if number == libc::SYS_openat2 && word_at(caller, args[2])? & MAKES == 0 {
            return None;
        }
        let path = match names {
            Handle(at) => handle(caller, args[at])?,
            Path(at) => join("", &text_at(caller, args[at])?),
            Beneath(dir, at) => {
                let path = text_at(caller, args[at])?;
                if path.starts_with('/') {
                    path
                } else {
                    join(&directory(caller, args[dir])?, &path)
                }
            }
        };
        let is_file = path.starts_with('/')
            && !["/dev/", "/proc/", "/sys/"]
                .iter()
                .any(|not| path.starts_with(not));
        is_file.then_some(Self { kind, call, path })
    }
}

impl std::fmt::Display for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.call, self.path)
    }
}

fn join(dir: &str, path: &str) -> String {
    format!("{}/{path}", dir.trim_end_matches('/'))
}

fn handle(caller: u32, fd: u64) -> Option<String> {
    let link = std::fs::read_link(format!("/proc/{caller}/fd/{}", fd as i32)).ok()?;
    link.into_os_string().into_string().ok()
}

fn directory(caller: u32, fd: u64) -> Option<String> {
    if fd as i32 != libc::AT_FDCWD {
        return handle(caller, fd);
    }
    std::fs::read_link(format!("/proc/{caller}/cwd"))
        .ok()?
        .into_os_string()
        .into_string()
        .ok()
}

/// Reads memory of the caller; returns fewer bytes if the mapping ends earlier.
pub(crate) fn memory(caller: u32, at: u64, length: usize) -> Option<Vec<u8>> {
    let file = File::open(format!("/proc/{caller}/mem")).ok()?;
    let mut bytes = vec![0; length];
    let mut have = 0;
    while have < length {
        // A read across the end of a mapping fails as a whole, so read page by page.
        let from = at.checked_add(have as u64)?;
        let to_page = PATH_MAX - (from as usize % PATH_MAX);
        let upto = length.min(have + to_page);
        match file.read_at(&mut bytes[have..upto], from) {
            Ok(0) | Err(_) => break,
            Ok(got) => have += got,
        }
    }
    bytes.truncate(have);
    (have > 0 || length == 0).then_some(bytes)
}

/// The maximum number of slices in one vectored write.
const MAX_SLICES: usize = 1024;

/// Reads the memory of a vectored write of the caller: `count` pairs of an address and a length are at `at`.
pub(crate) fn vectored_memory(caller: u32, at: u64, count: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for nth in 0..count.min(MAX_SLICES) as u64 {
        let slice = at.checked_add(16 * nth)?;
        let (base, length) = (word_at(caller, slice)?, word_at(caller, slice + 8)?);
        bytes.extend(memory(caller, base, usize::try_from(length).ok()?)?);
    }
    Some(bytes)
}

fn word_at(caller: u32, at: u64) -> Option<u64> {
    Some(u64::from_le_bytes(memory(caller, at, 8)?.try_into().ok()?))
}

fn text_at(caller: u32, at: u64) -> Option<String> {
    let file = File::open(format!("/proc/{caller}/mem")).ok()?;
    let mut bytes = vec![0; 256];
    loop {
        let to_page = PATH_MAX - (at as usize % PATH_MAX);
        let first = bytes.len().min(to_page);
        let mut got = file.read_at(&mut bytes[..first], at).ok()?;
        if got == first && first < bytes.len() {
            got += file
                .read_at(&mut bytes[first..], at + first as u64)
                .unwrap_or(0);
        }
        if let Some(end) = bytes[..got].iter().position(|byte| *byte == 0) {
            bytes.truncate(end);
            return String::from_utf8(bytes).ok();
        }
        if bytes.len() >= PATH_MAX {
            return None;
        }
        bytes.resize(PATH_MAX, 0);
    }
}
