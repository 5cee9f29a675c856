//! Seccomp user notification: lets a process perform system calls for another one.
//!
//! A filter (see `filter.rs`) answers a call with `SECCOMP_RET_USER_NOTIF`. The kernel then suspends the calling thread
//! and queues a notification on the *listener*, a file descriptor that was returned when the filter was installed. The
//! supervising process (here the first process of the command) receives the notification with the call's number and
//! arguments and answers with a return value, an error number, or "continue", which makes the kernel perform the call
//! as usual.
//!
//! Two races matter. First, arguments that are pointers must be read from the memory of the suspended process
//! (`/proc/PID/mem`), and another thread of it can change that memory at any time. So each argument is read once, and a
//! call that is judged is never answered with "continue": the kernel would read the memory a second time. The
//! supervising process performs the call itself and answers with the result. Secondly, the suspended thread may be
//! killed and its id may be reused. So after reading from `/proc/PID`, [`CallListener::check_waiting`] asks the kernel
//! whether this very call is still suspended; only then was the right process read.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::event::{PollFd, PollFlags, Timespec};

use super::sys;

/// The longest path that is read; it is the kernel's own limit.
const MAX_PATH: usize = 4096;
/// The smallest page size. Larger pages end at a multiple of it.
const PAGE: usize = 4096;

/// The file descriptor on which suspended calls arrive.
pub(crate) struct CallListener(OwnedFd);

/// A suspended system call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SuspendedCall {
    pub(crate) id: u64,
    /// The id of the thread that made the call.
    pub(crate) pid: i32,
    pub(crate) number: i64,
    pub(crate) args: [u64; 6],
}

/// An error number for the command.
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

impl CallListener {
    pub(crate) fn new(handle: OwnedFd) -> Self {
        Self(handle)
    }

    /// Returns the next suspended call, or `None` if there is none.
    pub(crate) fn receive(&self) -> io::Result<Option<SuspendedCall>> {
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
            Ok(one) => Ok(Some(SuspendedCall {
                id: one.id,
                pid: one.pid.cast_signed(),
                number: i64::from(one.data.nr),
                args: one.data.args,
            })),
            // The thread was killed between the two calls.
            Err(err) if err.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(err) => Err(err),
        }
    }

    /// Resumes the thread with this result. If it was killed meanwhile, the kernel ignores the answer.
    pub(crate) fn answer(&self, id: u64, result: Result<i64, Errno>) {
        let _ = sys::answer(self.0.as_fd(), id, result.map_err(|errno| errno.0));
    }

    /// Makes the kernel perform the call with the command's own rights. Only for calls that need no judgement.
    pub(crate) fn let_through(&self, id: u64) {
        let _ = sys::let_through(self.0.as_fd(), id);
    }

    /// Adds a file descriptor to the command's process and makes the call return its number.
    pub(crate) fn give(
        &self,
        id: u64,
        handle: BorrowedFd<'_>,
        close_on_exec: bool,
    ) -> io::Result<()> {
        sys::give_handle(self.0.as_fd(), id, handle, close_on_exec)
    }

    /// Fails if the call is not suspended any more. Must be called after reading from `/proc/PID`, because the id of a
    /// killed thread may belong to another process by then.
    pub(crate) fn check_waiting(&self, call: &SuspendedCall) -> Result<(), Errno> {
        match sys::is_waiting(self.0.as_fd(), call.id) {
            true => Ok(()),
            false => Err(Errno(libc::EINTR)),
        }
    }

    /// Reads `len` bytes of the command's memory.
    pub(crate) fn read(
        &self,
        call: &SuspendedCall,
        address: u64,
        len: usize,
    ) -> Result<Vec<u8>, Errno> {
        let mut bytes = vec![0; len];
        memory(call)?
            .read_exact_at(&mut bytes, address)
            .map_err(|_| Errno(libc::EFAULT))?;
        self.check_waiting(call).map(|()| bytes)
    }

    /// Reads a path from the command's memory.
    pub(crate) fn read_path(&self, call: &SuspendedCall, address: u64) -> Result<Vec<u8>, Errno> {
        let memory = memory(call)?;
        let mut path = Vec::new();
        while path.len() < MAX_PATH {
            let at = address.wrapping_add(path.len() as u64);
            // Read page by page: the page after the path may not be readable.
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

impl AsFd for CallListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl std::fmt::Debug for CallListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CallListener({})", self.0.as_raw_fd())
    }
}

fn memory(call: &SuspendedCall) -> Result<File, Errno> {
    // The memory of a process that made itself undumpable cannot be read, so its call cannot be performed for it.
    File::open(format!("/proc/{}/mem", call.pid)).map_err(|_| Errno(libc::EPERM))
}
