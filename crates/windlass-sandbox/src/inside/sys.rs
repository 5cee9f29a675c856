//! System calls that neither the standard library nor rustix wraps. Each function makes one call and states why it is
//! sound.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use seccompiler::sock_filter;

/// Turns a raw result into an `io::Result`.
fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Forks. The caller must have one thread, so that the child can do everything the parent could. Returns the child's
/// process id in the parent.
pub(crate) fn fork() -> io::Result<Option<i32>> {
    // SAFETY: this process has one thread, so no lock can stay locked in the child.
    let pid = checked(unsafe { libc::fork() }.into())?;
    Ok((pid != 0).then_some(pid as i32))
}

/// Forks into new namespaces. Returns the child's process id in the parent.
pub(crate) fn fork_into(namespaces: i32) -> io::Result<Option<i32>> {
    let flags = libc::c_long::from(namespaces | libc::SIGCHLD);
    // `clone3` would be newer, but container profiles reject it because they cannot read its arguments.
    // SAFETY: without a stack and without shared memory this is a fork; the process has one thread.
    let pid = checked(unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) })?;
    Ok((pid != 0).then_some(pid as i32))
}

/// Moves this process into new namespaces.
pub(crate) fn unshare(namespaces: i32) -> io::Result<()> {
    // SAFETY: the process has one thread, and the call takes no pointer.
    checked(unsafe { libc::unshare(namespaces) }.into()).map(drop)
}

/// Sets attributes on a mount, or on all mounts of a tree.
pub(crate) fn mount_setattr(mount: BorrowedFd<'_>, set: u64, recursive: bool) -> io::Result<()> {
    let attr = libc::mount_attr {
        attr_set: set,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is an empty C string, and the struct has the size that is passed.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attr,
            size_of::<libc::mount_attr>(),
        )
    };
    checked(result).map(drop)
}

/// Applies Landlock rules to this process.
pub(crate) fn landlock_restrict(ruleset: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the call takes a file descriptor and a number.
    checked(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) })
        .map(drop)
}

/// Installs a seccomp filter.
pub(crate) fn seccomp(program: &[sock_filter]) -> io::Result<()> {
    install_filter(program, 0).map(drop)
}

/// Installs a seccomp filter and returns the listener for its notifications. Once a notification was received, only a
/// fatal signal interrupts the suspended call, so no call is performed twice.
pub(crate) fn seccomp_listener(program: &[sock_filter]) -> io::Result<OwnedFd> {
    let flags =
        libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    let handle = install_filter(program, flags)?;
    // SAFETY: the kernel created this file descriptor for the caller.
    Ok(unsafe { OwnedFd::from_raw_fd(handle as RawFd) })
}

fn install_filter(program: &[sock_filter], flags: libc::c_ulong) -> io::Result<libc::c_long> {
    let program = libc::sock_fprog {
        len: u16::try_from(program.len())
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?,
        filter: program.as_ptr().cast_mut().cast(),
    };
    // SAFETY: the program lives until the call returns, and the kernel only reads it. Both types of a statement have
    // the kernel's layout.
    checked(unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const program,
        )
    })
}

/// Marks every file descriptor from `first` on as close-on-exec.
pub(crate) fn close_on_exec_from(first: u32) {
    // SAFETY: numbers only; nothing is closed now.
    unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first,
            u32::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        );
    }
}

/// Closes all file descriptors that were inherited from the parent, except the standard ones and those in `keep`.
pub(crate) fn keep_only(keep: &[BorrowedFd<'_>]) {
    let mut numbers: Vec<u32> = keep
        .iter()
        .map(|handle| handle.as_raw_fd().cast_unsigned())
        .collect();
    numbers.sort_unstable();
    let mut first = 3;
    for number in numbers.into_iter().chain([u32::MAX]) {
        if number > first {
            // SAFETY: numbers only. The `OwnedFd` values of the closed descriptors are never dropped here, because this
            // process exits without unwinding.
            unsafe {
                libc::syscall(libc::SYS_close_range, first, number - 1, 0);
            }
        }
        first = first.max(number.saturating_add(1));
    }
}

/// Duplicates a file descriptor to the number `at`, for the program that is executed next.
pub(crate) fn dup_to(handle: RawFd, at: RawFd) -> io::Result<()> {
    // SAFETY: numbers only; the target is stdin, stdout or stderr, which no `OwnedFd` here owns.
    checked(unsafe { libc::dup2(handle, at) }.into()).map(drop)
}

/// Lowers a resource limit of this process and its descendants. A lower limit stays as it is.
pub(crate) fn lower_limit(resource: libc::__rlimit_resource_t, most: u64) {
    let mut now = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: both calls get a struct of the right type.
    unsafe {
        if libc::getrlimit(resource, &raw mut now) == 0 {
            let most = now.rlim_max.min(most);
            let bound = libc::rlimit {
                rlim_cur: now.rlim_cur.min(most),
                rlim_max: most,
            };
            libc::setrlimit(resource, &raw const bound);
        }
    }
}

/// Blocks signals and returns a file descriptor from which they can be read.
pub(crate) fn signal_handle(signals: &[i32]) -> io::Result<OwnedFd> {
    // SAFETY: the library initializes the set before it is used.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, *signal);
        }
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        checked(libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()).into())?;
        let handle = checked(
            libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK).into(),
        )?;
        Ok(OwnedFd::from_raw_fd(handle as RawFd))
    }
}

/// Ignores SIGPIPE, so that a write to a pipe without a reader is an error, as in every Rust program once its `main`
/// runs.
pub(crate) fn ignore_broken_pipes() {
    // SAFETY: the helper has one thread, and no handler is replaced.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

pub(crate) fn reset_signals() {
    // SAFETY: the library initializes the set before it is used, and rejects signal numbers that are out of range.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}

/// Reads one pending signal, if there is one.
pub(crate) fn next_signal(handle: BorrowedFd<'_>) -> Option<i32> {
    // SAFETY: the struct consists of numbers.
    let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::signalfd_siginfo>();
    // SAFETY: at most the size of the struct is read into it.
    let got = unsafe { libc::read(handle.as_raw_fd(), (&raw mut info).cast(), size) };
    (got == size as isize).then_some(info.ssi_signo as i32)
}

/// The result of [`reap`].
pub(crate) enum Reaped {
    /// A child exited: its process id and wait status.
    One(i32, i32),
    /// There are children, and none has exited.
    NotYet,
    /// There are no children.
    NoChildren,
}

/// Reaps any child that exited, without blocking.
pub(crate) fn reap() -> Reaped {
    let mut status = 0;
    // SAFETY: the status goes into a local number.
    match unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) } {
        0 => Reaped::NotYet,
        pid if pid > 0 => Reaped::One(pid, status),
        _ => Reaped::NoChildren,
    }
}

/// Makes the kernel reap children by itself.
pub(crate) fn ignore_children() {
    // SAFETY: numbers only.
    unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
    }
}

/// Waits for one child and returns its wait status.
pub(crate) fn wait_for(pid: i32) -> i32 {
    let mut status = 0;
    // SAFETY: the status goes into a local number.
    while unsafe { libc::waitpid(pid, &raw mut status, 0) } < 0
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
    status
}

/// Signals a process; `-1` means every process of this process namespace but the first.
pub(crate) fn kill(pid: i32, signal: i32) {
    // SAFETY: numbers only.
    unsafe {
        libc::kill(pid, signal);
    }
}

/// Signals a thread of a process.
pub(crate) fn signal_thread(process: i32, thread: i32, signal: i32) -> io::Result<()> {
    // SAFETY: numbers only.
    checked(unsafe { libc::syscall(libc::SYS_tgkill, process, thread, signal) }).map(drop)
}

/// Signals the process that a pidfd refers to.
pub(crate) fn signal_by_handle(process: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    let handle = process.as_raw_fd();
    // SAFETY: numbers only, and no data with the signal.
    checked(unsafe { libc::syscall(libc::SYS_pidfd_send_signal, handle, signal, 0, 0) }).map(drop)
}

/// Returns whether a process has this id; a zombie counts.
pub(crate) fn exists(pid: i32) -> bool {
    // SAFETY: numbers only; no signal is sent.
    unsafe { libc::kill(pid, 0) == 0 }
}

/// Exits at once, without running destructors or exit handlers that were inherited from the parent.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: the call takes a number and does not return.
    unsafe { libc::_exit(code) }
}

/// Brings up the loopback of this network namespace.
pub(crate) fn loopback_up() -> io::Result<()> {
    // SAFETY: the request holds a name that ends with a zero, and flags; the socket is closed at the end.
    unsafe {
        let socket =
            checked(libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0).into())?;
        let socket = OwnedFd::from_raw_fd(socket as RawFd);
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        checked(libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request).into())
            .map(drop)
    }
}

/// Replaces this process by a program; returns only on failure.
pub(crate) fn exec(path: &CString, argv: &[CString], env: &[CString]) -> io::Error {
    let pointers = |list: &[CString]| -> Vec<*const libc::c_char> {
        list.iter()
            .map(|item| item.as_ptr())
            .chain([std::ptr::null()])
            .collect()
    };
    let (argv, env) = (pointers(argv), pointers(env));
    // SAFETY: both lists end with a null pointer and live until the call returns.
    unsafe {
        libc::execve(path.as_ptr(), argv.as_ptr(), env.as_ptr());
    }
    io::Error::last_os_error()
}

/// Waits for the next notification and receives it.
pub(crate) fn notification(listener: BorrowedFd<'_>) -> io::Result<libc::seccomp_notif> {
    // SAFETY: all fields are numbers; the kernel requires them to be zero.
    let mut one: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: this request fills this struct.
    unsafe { listener_request(listener, libc::SECCOMP_IOCTL_NOTIF_RECV, &mut one) }.map(|()| one)
}

/// Makes a request to a notification listener.
///
/// # Safety
/// `T` is the struct that the kernel reads and writes for this request.
unsafe fn listener_request<T>(
    listener: BorrowedFd<'_>,
    request: libc::Ioctl,
    with: &mut T,
) -> io::Result<()> {
    // SAFETY: the caller guarantees that the struct fits, and it lives until the call returns.
    let done = unsafe { libc::ioctl(listener.as_raw_fd(), request, &raw mut *with) };
    checked(done.into()).map(drop)
}

/// Answers a notification with a value or an error number.
pub(crate) fn answer(
    listener: BorrowedFd<'_>,
    id: u64,
    result: Result<i64, i32>,
) -> io::Result<()> {
    let (val, error) = match result {
        Ok(value) => (value, 0),
        Err(errno) => (0, -errno),
    };
    respond(listener, id, val, error, 0)
}

/// Answers a notification with "continue": the kernel performs the call.
pub(crate) fn let_through(listener: BorrowedFd<'_>, id: u64) -> io::Result<()> {
    let flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
    respond(listener, id, 0, 0, flags)
}

fn respond(listener: BorrowedFd<'_>, id: u64, val: i64, error: i32, flags: u32) -> io::Result<()> {
    let mut response = libc::seccomp_notif_resp {
        id,
        val,
        error,
        flags,
    };
    // SAFETY: this request reads this struct.
    unsafe { listener_request(listener, libc::SECCOMP_IOCTL_NOTIF_SEND, &mut response) }
}

/// Adds a file descriptor to the suspended process and answers its call with the number there.
pub(crate) fn give_handle(
    listener: BorrowedFd<'_>,
    id: u64,
    handle: BorrowedFd<'_>,
    close_on_exec: bool,
) -> io::Result<()> {
    let mut request = libc::seccomp_notif_addfd {
        id,
        flags: libc::SECCOMP_ADDFD_FLAG_SEND as u32,
        srcfd: handle.as_raw_fd().cast_unsigned(),
        newfd: 0,
        newfd_flags: if close_on_exec {
            libc::O_CLOEXEC.cast_unsigned()
        } else {
            0
        },
    };
    // SAFETY: this request reads this struct.
    unsafe { listener_request(listener, libc::SECCOMP_IOCTL_NOTIF_ADDFD, &mut request) }
}

/// Returns whether the call of a notification is still suspended.
pub(crate) fn is_waiting(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the request reads one number.
    unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_ID_VALID,
            &raw const id,
        ) == 0
    }
}

/// Creates a socket; always close-on-exec.
pub(crate) fn socket(family: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: numbers only; the kernel creates the file descriptor for the caller.
    let handle =
        checked(unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) }.into())?;
    // SAFETY: as above.
    Ok(unsafe { OwnedFd::from_raw_fd(handle as RawFd) })
}

/// Connects a socket to an address in the kernel's format.
pub(crate) fn connect(socket: BorrowedFd<'_>, address: &[u8]) -> io::Result<()> {
    let len = address.len() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes, which exist.
    checked(unsafe { libc::connect(socket.as_raw_fd(), address.as_ptr().cast(), len) }.into())
        .map(drop)
}

/// Binds a socket to an address in the kernel's format.
pub(crate) fn bind(socket: BorrowedFd<'_>, address: &[u8]) -> io::Result<()> {
    let len = address.len() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes, which exist.
    checked(unsafe { libc::bind(socket.as_raw_fd(), address.as_ptr().cast(), len) }.into())
        .map(drop)
}

/// Returns the address that a socket is bound to, in the kernel's format.
pub(crate) fn bound_to(socket: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    let mut address = vec![0_u8; size_of::<libc::sockaddr_storage>()];
    let mut len = address.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most as many bytes as there are, and returns their number.
    checked(
        unsafe {
            libc::getsockname(
                socket.as_raw_fd(),
                address.as_mut_ptr().cast(),
                &raw mut len,
            )
        }
        .into(),
    )?;
    address.truncate(len as usize);
    Ok(address)
}

/// Unlocks a pseudoterminal that `/dev/ptmx` created and opens its slave end.
pub(crate) fn slave_end(terminal: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let (locked, flags) = (0_i32, libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC);
    // SAFETY: the request reads one number.
    checked(
        unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSPTLCK, &raw const locked) }.into(),
    )?;
    // SAFETY: a file descriptor and numbers; the kernel creates the new descriptor for the caller.
    let handle =
        checked(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCGPTPEER, flags) }.into())?;
    // SAFETY: as above.
    Ok(unsafe { OwnedFd::from_raw_fd(handle as RawFd) })
}

/// Sets the times of an open file, which may be a symlink; `None` means now.
pub(crate) fn set_times(
    handle: BorrowedFd<'_>,
    times: Option<&[libc::timespec; 2]>,
) -> io::Result<()> {
    let times = times.map_or(std::ptr::null(), |times| times.as_ptr());
    // SAFETY: the path is an empty C string; `times` points to two structs or is null.
    checked(
        unsafe { libc::utimensat(handle.as_raw_fd(), c"".as_ptr(), times, libc::AT_EMPTY_PATH) }
            .into(),
    )
    .map(drop)
}

/// Numbers in memory that this process shares with the processes it forks.
pub(crate) struct SharedNumbers {
    first: *const std::sync::atomic::AtomicU64,
    count: usize,
}

impl SharedNumbers {
    pub(crate) fn new(count: usize) -> io::Result<Self> {
        let (access, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
        );
        // SAFETY: this creates a new mapping, which is zeroed and aligned to a page.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                count * size_of::<u64>(),
                access,
                flags,
                -1,
                0,
            )
        };
        match at == libc::MAP_FAILED {
            true => Err(io::Error::last_os_error()),
            false => Ok(Self {
                first: at.cast(),
                count,
            }),
        }
    }

    pub(crate) fn all(&self) -> &[std::sync::atomic::AtomicU64] {
        // SAFETY: `count` numbers were mapped, and the mapping lives as long as this value.
        unsafe { std::slice::from_raw_parts(self.first, self.count) }
    }
}

impl Drop for SharedNumbers {
    fn drop(&mut self) {
        // SAFETY: this is the whole mapping, and nothing borrows from it any more.
        unsafe {
            libc::munmap(self.first.cast_mut().cast(), self.count * size_of::<u64>());
        }
    }
}
