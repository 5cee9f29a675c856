//! Operations that change files: which system calls they are, what kind they are of, and what file they are about.
//! It reads the memory and the handles of the caller through `/proc`; it changes nothing.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::seccomp::{Asked, Notice};

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Bytes into a file.
    Write,
    /// Bytes, or a directory, to the disk.
    Sync,
    /// A name moves.
    Rename,
    /// A second name, or a symbolic link.
    Link,
    /// A name goes.
    Unlink,
    /// A file gets another length.
    Truncate,
    /// A directory comes.
    Mkdir,
    /// A file comes, or is emptied, by opening it.
    Create,
    /// Rights change.
    Mode,
}

impl Kind {
    /// All of them, in the order of tables.
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

    /// Its name in tables.
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
    /// What it does.
    pub kind: Kind,
    /// The system call.
    pub call: &'static str,
    /// The file, as the caller's handles and arguments name it.
    pub path: String,
}

/// How a call names its file: by a handle, or by a path, beneath a handle or not.
#[derive(Clone, Copy)]
enum Names {
    Handle(usize),
    Path(usize),
    Beneath(usize, usize),
}

use Names::{Beneath, Handle, Path};

/// Number, name, kind, and how it names its file. A rename is about the name that comes.
const CALLS: &[(i64, &str, Kind, Names)] = &[
    (libc::SYS_write, "write", Kind::Write, Handle(0)),
    (libc::SYS_pwrite64, "pwrite64", Kind::Write, Handle(0)),
    (libc::SYS_writev, "writev", Kind::Write, Handle(0)),
    (libc::SYS_pwritev, "pwritev", Kind::Write, Handle(0)),
    (libc::SYS_pwritev2, "pwritev2", Kind::Write, Handle(0)),
    (
        libc::SYS_copy_file_range,
        "copy_file_range",
        Kind::Write,
        Handle(2),
    ),
    (libc::SYS_sendfile, "sendfile", Kind::Write, Handle(0)),
    (libc::SYS_fallocate, "fallocate", Kind::Truncate, Handle(0)),
    (libc::SYS_ftruncate, "ftruncate", Kind::Truncate, Handle(0)),
    (libc::SYS_truncate, "truncate", Kind::Truncate, Path(0)),
    (libc::SYS_fsync, "fsync", Kind::Sync, Handle(0)),
    (libc::SYS_fdatasync, "fdatasync", Kind::Sync, Handle(0)),
    (libc::SYS_syncfs, "syncfs", Kind::Sync, Handle(0)),
    (libc::SYS_renameat, "renameat", Kind::Rename, Beneath(2, 3)),
    (
        libc::SYS_renameat2,
        "renameat2",
        Kind::Rename,
        Beneath(2, 3),
    ),
    (libc::SYS_linkat, "linkat", Kind::Link, Beneath(2, 3)),
    (libc::SYS_symlinkat, "symlinkat", Kind::Link, Beneath(1, 2)),
    (libc::SYS_unlinkat, "unlinkat", Kind::Unlink, Beneath(0, 1)),
    (libc::SYS_mkdirat, "mkdirat", Kind::Mkdir, Beneath(0, 1)),
    (libc::SYS_fchmod, "fchmod", Kind::Mode, Handle(0)),
    (libc::SYS_fchmodat, "fchmodat", Kind::Mode, Beneath(0, 1)),
    (libc::SYS_openat2, "openat2", Kind::Create, Beneath(0, 1)),
    (libc::SYS_openat, "openat", Kind::Create, Beneath(0, 1)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rename, "rename", Kind::Rename, Path(1)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_link, "link", Kind::Link, Path(1)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_symlink, "symlink", Kind::Link, Path(1)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_unlink, "unlink", Kind::Unlink, Path(0)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rmdir, "rmdir", Kind::Unlink, Path(0)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mkdir, "mkdir", Kind::Mkdir, Path(0)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, "chmod", Kind::Mode, Path(0)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, "creat", Kind::Create, Path(0)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, "open", Kind::Create, Path(0)),
];

/// Opening comes or empties a file with these; `openat2` keeps its flags in memory, so the supervisor looks there.
const MAKES: u64 = (libc::O_CREAT | libc::O_TRUNC) as u64;
const OPENS: &[(i64, u32, u32)] = &[
    (libc::SYS_openat, 2, MAKES as u32),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1, MAKES as u32),
];
/// The longest path that is read.
const PATH_MAX: usize = 4096;

/// The numbers of the calls that the kernel asks about whatever their arguments are.
pub(crate) fn always() -> Vec<i64> {
    let by_bits = |call: i64| OPENS.iter().any(|(open, ..)| *open == call);
    CALLS
        .iter()
        .map(|(number, ..)| *number)
        .filter(|number| !by_bits(*number))
        .collect()
}

/// What the kernel asks about.
pub(crate) fn asked(always: &[i64]) -> Asked<'_> {
    Asked {
        always,
        with_bits: OPENS,
    }
}

impl Op {
    /// The operation behind a call; none when it is about no file: a pipe, a socket, a device, the kernel's own.
    pub(crate) fn of(notice: &Notice) -> Option<Self> {
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

/// Bytes of the caller's memory; fewer where it ends.
pub(crate) fn memory(caller: u32, at: u64, length: usize) -> Option<Vec<u8>> {
    let file = File::open(format!("/proc/{caller}/mem")).ok()?;
    let mut bytes = vec![0; length];
    let mut have = 0;
    while have < length {
        // A read across the end of what is mapped fails as a whole, so it goes page by page.
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
