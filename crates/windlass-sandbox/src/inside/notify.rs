//! Seccomp user notification: the kernel suspends a system call of the command and asks this process for its result.
//! A call that is judged is answered with a value or an error, never let through: the kernel would read the command's
//! memory a second time, and the command could have changed it in between.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::event::{PollFd, PollFlags, Timespec};

use super::sys;

/// The longest path that is read from a command's memory; the kernel's own limit.
const MAX_PATH: usize = 4096;
/// No page is smaller, and larger ones end where some of these do.
const PAGE: usize = 4096;

/// The handle on which suspended calls arrive.
pub(crate) struct Listener(OwnedFd);

/// A suspended call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) id: u64,
    /// The thread that made it.
    pub(crate) pid: i32,
    pub(crate) number: i64,
    pub(crate) args: [u64; 6],
}

/// An error number, as the command sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

impl From<io::Error> for Errno {
    fn from(err: io::Error) -> Self {
        Self(err.raw_os_error().unwrap_or(libc::EPERM))
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(err: rustix::io::Errno) -> Self {
        Self(err.raw_os_error())
    }
}

impl Listener {
    pub(crate) fn new(handle: OwnedFd) -> Self {
        Self(handle)
    }

    /// The next suspended call; none when no call waits.
    pub(crate) fn receive(&self) -> io::Result<Option<Call>> {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut waiting = [PollFd::new(&self.0, PollFlags::IN)];
        if rustix::event::poll(&mut waiting, Some(&now))? == 0
            || !waiting[0].revents().contains(PollFlags::IN)
        {
            return Ok(None);
        }
        match sys::notification(self.0.as_fd()) {
            Ok(one) => Ok(Some(Call {
                id: one.id,
                pid: one.pid.cast_signed(),
                number: i64::from(one.data.nr),
                args: one.data.args,
            })),
            // The thread was killed in between.
            Err(err) if err.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(err) => Err(err),
        }
    }

    /// Lets the thread go on with this result. A thread that was killed meanwhile needs none.
    pub(crate) fn answer(&self, id: u64, result: Result<i64, Errno>) {
        let _ = sys::answer(self.0.as_fd(), id, result.map_err(|errno| errno.0));
    }

    /// Lets the kernel perform the call, by the command's own rights. Only for calls that need no judgement.
    pub(crate) fn let_through(&self, id: u64) {
        let _ = sys::let_through(self.0.as_fd(), id);
    }

    /// Puts a handle into the command's process and lets the call return its number.
    pub(crate) fn give(
        &self,
        id: u64,
        handle: BorrowedFd<'_>,
        close_on_exec: bool,
    ) -> io::Result<()> {
        sys::give_handle(self.0.as_fd(), id, handle, close_on_exec)
    }

    /// Refuses a call whose thread does not wait any more. Checked after reading its memory: the number of a thread that
    /// was killed may belong to another process by then.
    pub(crate) fn check_waiting(&self, call: &Call) -> Result<(), Errno> {
        match sys::is_waiting(self.0.as_fd(), call.id) {
            true => Ok(()),
            false => Err(Errno(libc::EINTR)),
        }
    }

    /// Reads `len` bytes of the command's memory, once.
    pub(crate) fn read(&self, call: &Call, address: u64, len: usize) -> Result<Vec<u8>, Errno> {
        let mut bytes = vec![0; len];
        memory(call)?
            .read_exact_at(&mut bytes, address)
            .map_err(|_| Errno(libc::EFAULT))?;
        self.check_waiting(call).map(|()| bytes)
    }

    /// Reads a path from the command's memory, once.
    pub(crate) fn read_path(&self, call: &Call, address: u64) -> Result<Vec<u8>, Errno> {
        let memory = memory(call)?;
        let mut path = Vec::new();
        while path.len() < MAX_PATH {
            let at = address.wrapping_add(path.len() as u64);
            // The path may end right before a page that cannot be read.
            let len = PAGE - (at as usize & (PAGE - 1));
            let mut piece = vec![0; len.min(MAX_PATH - path.len())];
            memory
                .read_exact_at(&mut piece, at)
                .map_err(|_| Errno(libc::EFAULT))?;
            if let Some(end) = piece.iter().position(|byte| *byte == 0) {
                path.extend_from_slice(&piece[..end]);
                return self.check_waiting(call).map(|()| path);
            }
            path.extend_from_slice(&piece);
        }
        Err(Errno(libc::ENAMETOOLONG))
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Listener({})", self.0.as_raw_fd())
    }
}

fn memory(call: &Call) -> Result<File, Errno> {
    // A process that made itself undumpable cannot be read, so its call cannot be performed for it.
    File::open(format!("/proc/{}/mem", call.pid)).map_err(|_| Errno(libc::EPERM))
}
