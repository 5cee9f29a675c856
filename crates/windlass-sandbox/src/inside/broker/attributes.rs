//! Modes, owners and times of files. Landlock does not restrict these calls, so the broker performs them, but only on
//! files in directories that the command may change.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Gid, Mode, Uid};

use super::super::filter::FCHMODAT2;
use super::super::notify::{Errno, SuspendedCall};
use super::super::overlay::handle_path;
use super::super::sys;
use super::Broker;

/// Paths under which a program finds its own file descriptors.
const OWN_HANDLES: [&[u8]; 2] = [b"/proc/self/fd/", b"/dev/fd/"];

/// The file that a call names.
struct NamedFile {
    base: i32,
    /// The address of the path in the command's memory; `None` if the call is about `base` itself.
    path: Option<u64>,
    follow: bool,
    /// An empty path means `base`.
    may_be_empty: bool,
}

impl NamedFile {
    fn handle(number: u64) -> Self {
        Self {
            base: number as i32,
            path: None,
            follow: true,
            may_be_empty: false,
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn path(path: u64, follow: bool) -> Self {
        Self {
            base: libc::AT_FDCWD,
            path: Some(path),
            follow,
            may_be_empty: false,
        }
    }

    fn at(base: u64, path: u64, flags: u64) -> Self {
        let flags = flags as i32;
        Self {
            base: base as i32,
            path: Some(path),
            follow: flags & libc::AT_SYMLINK_NOFOLLOW == 0,
            may_be_empty: flags & libc::AT_EMPTY_PATH != 0,
        }
    }
}

impl Broker {
    pub(super) fn change_attributes(&self, call: &SuspendedCall) -> Result<(), Errno> {
        let [a, b, c, d, e, _] = call.args;
        match call.number {
            libc::SYS_fchmod => self.set_mode(call, &NamedFile::handle(a), b),
            libc::SYS_fchmodat => self.set_mode(call, &NamedFile::at(a, b, 0), c),
            FCHMODAT2 => self.set_mode(call, &NamedFile::at(a, b, d), c),
            libc::SYS_fchown => self.set_owner(call, &NamedFile::handle(a), b, c),
            libc::SYS_fchownat => self.set_owner(call, &NamedFile::at(a, b, e), c, d),
            libc::SYS_utimensat => {
                let named = if b == 0 {
                    NamedFile::handle(a)
                } else {
                    NamedFile::at(a, b, d)
                };
                self.set_times(call, &named, c, TimeFormat::Nanoseconds)
            }
            _ => self.change_by_older_call(call),
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn change_by_older_call(&self, call: &SuspendedCall) -> Result<(), Errno> {
        let [a, b, c, ..] = call.args;
        match call.number {
            libc::SYS_chmod => self.set_mode(call, &NamedFile::path(a, true), b),
            libc::SYS_chown => self.set_owner(call, &NamedFile::path(a, true), b, c),
            libc::SYS_lchown => self.set_owner(call, &NamedFile::path(a, false), b, c),
            libc::SYS_utimes => {
                self.set_times(call, &NamedFile::path(a, true), b, TimeFormat::Microseconds)
            }
            libc::SYS_utime => {
                self.set_times(call, &NamedFile::path(a, true), b, TimeFormat::Seconds)
            }
            libc::SYS_futimesat if b == 0 => {
                self.set_times(call, &NamedFile::handle(a), c, TimeFormat::Microseconds)
            }
            libc::SYS_futimesat => {
                self.set_times(call, &NamedFile::at(a, b, 0), c, TimeFormat::Microseconds)
            }
            _ => Err(Errno(libc::ENOSYS)),
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn change_by_older_call(&self, _: &SuspendedCall) -> Result<(), Errno> {
        Err(Errno(libc::ENOSYS))
    }

    /// Opens the file if the command may change it.
    fn open_named(&self, call: &SuspendedCall, named: &NamedFile) -> Result<OwnedFd, Errno> {
        let path = named
            .path
            .map(|address| self.listener.read_path(call, address))
            .transpose()?;
        let number = path.as_deref().and_then(own_handle);
        let file = match (&path, number) {
            (None, _) => self.open_handle(call, named.base)?,
            (_, Some(number)) if named.follow => self.open_handle(call, number)?,
            (Some(path), _)
                if path.is_empty() && named.may_be_empty && named.base != libc::AT_FDCWD =>
            {
                self.open_handle(call, named.base)?
            }
            (Some(path), _) if path.is_empty() && !named.may_be_empty => {
                return Err(Errno(libc::ENOENT));
            }
            (Some(path), _) if path.is_empty() => {
                self.open_path(call, libc::AT_FDCWD, b".", true)?
            }
            (Some(path), _) => self.open_path(call, named.base, path, named.follow)?,
        };
        self.check_writable(file.as_fd())?;
        Ok(file)
    }

    fn set_mode(&self, call: &SuspendedCall, named: &NamedFile, mode: u64) -> Result<(), Errno> {
        let file = self.open_named(call, named)?;
        let (mode, kind) = (
            mode as u32 & 0o7777,
            FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode),
        );
        if kind == FileType::Symlink {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        Ok(rustix::fs::chmod(
            handle_path(file.as_fd()),
            Mode::from_raw_mode(mode),
        )?)
    }

    fn set_owner(
        &self,
        call: &SuspendedCall,
        named: &NamedFile,
        user: u64,
        group: u64,
    ) -> Result<(), Errno> {
        let file = self.open_named(call, named)?;
        // The largest number means "leave this owner unchanged".
        let given = |id: u64| Some(id as u32).filter(|id| *id != u32::MAX);
        Ok(rustix::fs::chownat(
            file,
            "",
            given(user).map(Uid::from_raw),
            given(group).map(Gid::from_raw),
            AtFlags::EMPTY_PATH,
        )?)
    }

    fn set_times(
        &self,
        call: &SuspendedCall,
        named: &NamedFile,
        times: u64,
        format: TimeFormat,
    ) -> Result<(), Errno> {
        let times = match times {
            0 => None,
            address => Some(format.parse(&self.listener.read(call, address, format.len())?)),
        };
        let file = self.open_named(call, named)?;
        Ok(sys::set_times(file.as_fd(), times.as_ref())?)
    }
}

/// Parses the number in a path such as `/proc/self/fd/3`.
fn own_handle(path: &[u8]) -> Option<i32> {
    let number = OWN_HANDLES
        .iter()
        .find_map(|place| path.strip_prefix(*place))?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// The format in which a call passes an access time and a modification time.
#[derive(Clone, Copy)]
enum TimeFormat {
    /// Two pairs of seconds and nanoseconds.
    Nanoseconds,
    /// Two pairs of seconds and microseconds.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    Microseconds,
    /// Two numbers of seconds.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    Seconds,
}

impl TimeFormat {
    fn len(self) -> usize {
        match self {
            Self::Nanoseconds | Self::Microseconds => 32,
            Self::Seconds => 16,
        }
    }

    fn parse(self, bytes: &[u8]) -> [libc::timespec; 2] {
        let number = |at: usize| {
            bytes
                .get(at * 8..at * 8 + 8)
                .and_then(|bytes| bytes.try_into().ok())
        };
        let number = |at: usize| number(at).map_or(0, i64::from_ne_bytes);
        let time = |seconds, nanos| libc::timespec {
            tv_sec: seconds,
            tv_nsec: nanos,
        };
        match self {
            Self::Nanoseconds => [time(number(0), number(1)), time(number(2), number(3))],
            Self::Microseconds => {
                let nanos = |at| number(at).saturating_mul(1_000);
                [time(number(0), nanos(1)), time(number(2), nanos(3))]
            }
            Self::Seconds => [time(number(0), 0), time(number(1), 0)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_names_its_own_handles() {
        assert_eq!(own_handle(b"/proc/self/fd/3"), Some(3));
        assert_eq!(own_handle(b"/dev/fd/12"), Some(12));
        for other in [
            &b"/proc/self/fd/"[..],
            b"/proc/self/fd/x",
            b"/proc/1/fd/3",
            b"3",
            b"/dev/fd/3/x",
        ] {
            assert_eq!(own_handle(other), None);
        }
    }
}
