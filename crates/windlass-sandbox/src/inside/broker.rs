//! The broker: performs system calls for a command in the tier without namespaces.
//!
//! Landlock restricts which files a command opens, but not everything else: a process under Landlock may still change
//! the mode of any file that the user owns, connect to any Unix socket or local server, and (before version 6) signal
//! any process of the user. Namespaces put all of these out of reach. Without namespaces, a seccomp filter suspends the
//! calls in question (see `notify.rs`), and the broker checks each one and performs it on behalf of the command:
//!
//! - `sockets` creates, binds, connects sockets and makes them listen; `address`, `ports` and `sock_diag` decide which
//!   addresses are allowed.
//! - `attributes` sets modes, owners and times of files.
//! - `terminals` opens the slave end of a pseudoterminal.
//! - `signals` sends signals, if Landlock does not restrict them.
//! - `workers` are threads for calls that may block.
//!
//! The broker reads each argument once, and acts only on file descriptors that it opened itself, so it does not matter
//! what the command changes afterwards.
//!
//! The broker runs in the first process of the command, which is an ancestor of all its processes. Yama, the kernel
//! module that restricts tracing, lets an ancestor read the memory of its descendants.

mod address;
mod attributes;
mod ports;
mod signals;
mod sock_diag;
mod sockets;
mod terminals;
mod workers;

use parking_lot::Mutex;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, ResolveFlags};

pub(crate) use self::ports::Ports;
use self::sock_diag::SockDiag;
use self::sockets::Sockets;
use self::workers::Workers;
use super::notify::{CallListener, Errno, SuspendedCall};
use crate::spec::Net;

/// The most calls, and the longest time, that the broker answers before the first process handles other events.
const MAX_AT_ONCE: usize = 64;
const MAX_TIME_AT_ONCE: Duration = Duration::from_millis(10);

/// The network that a command may use.
#[derive(Clone)]
pub(crate) struct Network {
    pub(crate) net: Net,
    /// Loopback ports where the engine listens for this command.
    pub(crate) engine: Vec<u16>,
    /// Ports on which commands of the same network listen.
    pub(crate) own: Rc<Ports>,
}

/// The rights with which the broker acts for a command.
pub(crate) struct Rights {
    pub(crate) network: Network,
    /// Directories below which attributes may be changed and sockets used. Canonical.
    pub(crate) writable: Vec<PathBuf>,
    /// Paths in `writable` that the command must not access.
    pub(crate) hidden: Vec<PathBuf>,
    /// The Landlock rules of the command.
    pub(crate) ruleset: OwnedFd,
}

/// The answer to a call.
enum CallReply {
    Value(i64),
    /// The call was answered already, or another thread will answer it.
    Elsewhere,
}

/// The broker of one command.
pub(crate) struct Broker {
    listener: Arc<CallListener>,
    rights: Rights,
    sockets: Arc<Mutex<Sockets>>,
    workers: Workers,
    diag: Option<SockDiag>,
}

impl Broker {
    pub(crate) fn new(listener: OwnedFd, rights: Rights) -> Self {
        let (sockets, workers, diag) = (Arc::default(), Workers::default(), SockDiag::open().ok());
        Self {
            listener: Arc::new(CallListener::new(listener)),
            rights,
            sockets,
            workers,
            diag,
        }
    }

    pub(crate) fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Answers the pending calls.
    pub(crate) fn serve(&mut self) {
        let until = Instant::now() + MAX_TIME_AT_ONCE;
        for _ in 0..MAX_AT_ONCE {
            if until < Instant::now() {
                return;
            }
            let Ok(Some(call)) = self.listener.receive() else {
                return;
            };
            match self.perform(&call) {
                Ok(CallReply::Value(value)) => self.listener.answer(call.id, Ok(value)),
                Ok(CallReply::Elsewhere) => {}
                Err(errno) => self.listener.answer(call.id, Err(errno)),
            }
        }
    }

    fn perform(&mut self, call: &SuspendedCall) -> Result<CallReply, Errno> {
        match call.number {
            libc::SYS_socket => self.make_socket(call),
            libc::SYS_connect => self.connect(call),
            libc::SYS_bind => self.bind(call),
            libc::SYS_listen => self.listen(call),
            libc::SYS_kill | libc::SYS_tkill | libc::SYS_tgkill | libc::SYS_pidfd_send_signal => {
                self.send_signal(call)
            }
            libc::SYS_ioctl => self.open_terminal(call),
            _ => self.change_attributes(call).map(|()| CallReply::Value(0)),
        }
    }

    /// Opens what a path of the command leads to. Magic links in `/proc` are refused, because they would lead to the
    /// broker's own files and not to the command's.
    fn open_path(
        &self,
        call: &SuspendedCall,
        base: i32,
        path: &[u8],
        follow: bool,
    ) -> Result<OwnedFd, Errno> {
        let last = if follow {
            OFlags::empty()
        } else {
            OFlags::NOFOLLOW
        };
        let flags = OFlags::PATH | OFlags::CLOEXEC | last;
        let base = match path.first() {
            Some(b'/') => rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?,
            _ if base == libc::AT_FDCWD => handle_of(call, "cwd")?,
            _ => self.open_handle(call, base)?,
        };
        Ok(rustix::fs::openat2(
            base,
            path,
            flags,
            Mode::empty(),
            ResolveFlags::NO_MAGICLINKS,
        )?)
    }

    /// Opens the file that a file descriptor of the command refers to.
    fn open_handle(&self, call: &SuspendedCall, number: i32) -> Result<OwnedFd, Errno> {
        handle_of(call, &format!("fd/{number}")).map_err(|_| Errno(libc::EBADF))
    }

    /// Fails if the file lies outside of the directories that the command may change.
    fn check_writable(&self, handle: BorrowedFd<'_>) -> Result<(), Errno> {
        let stat = rustix::fs::fstat(handle)?;
        if stat.st_nlink == 0
            || path_of(handle)?
                .as_deref()
                .is_none_or(|path| self.is_writable(path))
        {
            return Ok(());
        }
        Err(Errno(libc::EPERM))
    }

    fn is_writable(&self, path: &Path) -> bool {
        // A hidden path that contains a writable directory does not hide it: working copies lie in the engine's own
        // folder, which is hidden.
        let hidden_in = |place: &PathBuf| {
            self.rights
                .hidden
                .iter()
                .any(|hidden| hidden.starts_with(place) && path.starts_with(hidden))
        };
        self.rights
            .writable
            .iter()
            .any(|place| path.starts_with(place) && !hidden_in(place))
    }
}

fn handle_of(call: &SuspendedCall, name: &str) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/{}/{name}", call.pid);
    Ok(rustix::fs::open(
        path,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}

/// Returns the path of an open file as the kernel knows it; `None` for a file without a path, such as a pipe.
fn path_of(handle: BorrowedFd<'_>) -> Result<Option<PathBuf>, Errno> {
    let link = std::fs::read_link(super::overlay::handle_path(handle))?;
    Ok(Some(link).filter(|path| path.is_absolute()))
}
