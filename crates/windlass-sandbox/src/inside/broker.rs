//! The broker of a command without namespaces. Calls that Landlock does not judge are suspended by a filter and
//! performed here on behalf of the command: sockets are made, bound and connected (`sockets`), modes, owners and times
//! of files are set (`attributes`), the second end of a terminal is opened (`terminals`), and signals are sent where
//! Landlock does not hold them (`signals`). Arguments are read from the command's memory once, and everything is done on
//! handles of the broker's own, so that nothing the command changes afterwards matters.
//!
//! The broker is the first process of the command. It is an ancestor of everything in it, which is what the kernel
//! demands of a process that reads another's memory where Yama restricts tracing.

mod address;
mod attributes;
mod diag;
mod ports;
mod signals;
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

use self::diag::Diag;
pub(crate) use self::ports::Ports;
use self::sockets::Sockets;
use self::workers::Workers;
use super::notify::{Call, Errno, Listener};
use crate::spec::Net;

/// Calls that are answered before the broker looks at anything else again, and for how long.
const MOST_AT_ONCE: usize = 64;
const LONGEST_AT_ONCE: Duration = Duration::from_millis(10);

/// The network that a command may use.
#[derive(Clone)]
pub(crate) struct Network {
    pub(crate) net: Net,
    /// Ports on loopback where the engine listens for this command.
    pub(crate) engine: Vec<u16>,
    /// Ports that commands of the same network listen on.
    pub(crate) own: Rc<Ports>,
}

/// What a command may do through the broker.
pub(crate) struct Rights {
    pub(crate) network: Network,
    /// Directories below which attributes may be changed and sockets used. Canonical.
    pub(crate) writable: Vec<PathBuf>,
    /// Paths in them that are out of reach all the same.
    pub(crate) hidden: Vec<PathBuf>,
    /// The Landlock rules of the command.
    pub(crate) fence: OwnedFd,
}

/// How a call is answered.
enum Reply {
    Value(i64),
    /// It was answered already, or another thread will.
    Elsewhere,
}

/// The broker of one command.
pub(crate) struct Broker {
    listener: Arc<Listener>,
    rights: Rights,
    sockets: Arc<Mutex<Sockets>>,
    workers: Workers,
    diag: Option<Diag>,
}

impl Broker {
    pub(crate) fn new(listener: OwnedFd, rights: Rights) -> Self {
        let (sockets, workers, diag) = (Arc::default(), Workers::default(), Diag::open().ok());
        Self {
            listener: Arc::new(Listener::new(listener)),
            rights,
            sockets,
            workers,
            diag,
        }
    }

    pub(crate) fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Answers the calls that wait.
    pub(crate) fn serve(&mut self) {
        let until = Instant::now() + LONGEST_AT_ONCE;
        for _ in 0..MOST_AT_ONCE {
            if until < Instant::now() {
                return;
            }
            let Ok(Some(call)) = self.listener.receive() else {
                return;
            };
            match self.perform(&call) {
                Ok(Reply::Value(value)) => self.listener.answer(call.id, Ok(value)),
                Ok(Reply::Elsewhere) => {}
                Err(errno) => self.listener.answer(call.id, Err(errno)),
            }
        }
    }

    fn perform(&mut self, call: &Call) -> Result<Reply, Errno> {
        match call.number {
            libc::SYS_socket => self.make_socket(call),
            libc::SYS_connect => self.connect(call),
            libc::SYS_bind => self.bind(call),
            libc::SYS_listen => self.listen(call),
            libc::SYS_kill | libc::SYS_tkill | libc::SYS_tgkill | libc::SYS_pidfd_send_signal => {
                self.send_signal(call)
            }
            libc::SYS_ioctl => self.open_terminal(call),
            _ => self.change_attributes(call).map(|()| Reply::Value(0)),
        }
    }

    /// Takes hold of what a path of the command leads to. Magic links of `/proc` lead to the broker's own files and not
    /// to the command's, so they are refused.
    fn open_path(
        &self,
        call: &Call,
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

    /// Takes hold of what a handle of the command is.
    fn open_handle(&self, call: &Call, number: i32) -> Result<OwnedFd, Errno> {
        handle_of(call, &format!("fd/{number}")).map_err(|_| Errno(libc::EBADF))
    }

    /// Refuses what lies outside of the directories that the command may change.
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
        // A hidden path around a directory that may be changed does not hide it: copies lie in a folder of the engine's.
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

fn handle_of(call: &Call, name: &str) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/{}/{name}", call.pid);
    Ok(rustix::fs::open(
        path,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}

/// The path of a handle as the kernel knows it; none for what has no place in the file system, such as a pipe.
fn path_of(handle: BorrowedFd<'_>) -> Result<Option<PathBuf>, Errno> {
    let link = std::fs::read_link(super::layer::handle_path(handle))?;
    Ok(Some(link).filter(|path| path.is_absolute()))
}
