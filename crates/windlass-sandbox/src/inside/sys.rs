//! The system calls that no crate of ours wraps. Each function is one call and says why it is sound.

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

/// A plain fork. The helper has one thread, so that the child may do whatever the parent might.
pub(crate) fn fork() -> io::Result<Option<i32>> {
    // SAFETY: this process has one thread; nothing can be left locked in the child.
    let pid = checked(unsafe { libc::fork() }.into())?;
    Ok((pid != 0).then_some(pid as i32))
}

/// Forks into new namespaces; the parent gets the number of the child.
pub(crate) fn fork_into(namespaces: i32) -> io::Result<Option<i32>> {
    let flags = libc::c_long::from(namespaces | libc::SIGCHLD);
    // The older call, because container profiles answer the newer one with an error: they cannot read its arguments.
    // SAFETY: without a stack and without shared memory this is a fork; the process has one thread.
    let pid = checked(unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) })?;
    Ok((pid != 0).then_some(pid as i32))
}

/// Leaves the namespaces of the parent.
pub(crate) fn unshare(namespaces: i32) -> io::Result<()> {
    // SAFETY: the process has one thread, and takes no pointer.
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
    // SAFETY: the path is an empty C string, the struct is of the size that is named.
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

/// Binds this process to Landlock rules.
pub(crate) fn landlock_restrict(ruleset: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: a handle and a number.
    checked(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) })
        .map(drop)
}

/// Installs a system call filter.
pub(crate) fn seccomp(program: &[sock_filter]) -> io::Result<()> {
    install_filter(program, 0).map(drop)
}

/// Installs a system call filter whose notifications arrive on the handle that is returned. A received notification
/// is interrupted by fatal signals only, so that no call is performed twice.
pub(crate) fn seccomp_listener(program: &[sock_filter]) -> io::Result<OwnedFd> {
    let flags =
        libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    let handle = install_filter(program, flags)?;
    // SAFETY: the kernel made this handle for us.
    Ok(unsafe { OwnedFd::from_raw_fd(handle as RawFd) })
}

fn install_filter(program: &[sock_filter], flags: libc::c_ulong) -> io::Result<libc::c_long> {
    let program = libc::sock_fprog {
        len: u16::try_from(program.len())
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?,
        filter: program.as_ptr().cast_mut().cast(),
    };
    // SAFETY: the program lives until the call returns, and the kernel only reads it. Both structs of a statement have
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

/// Every handle from a number on is closed when the next program starts.
pub(crate) fn close_on_start(first: u32) {
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

/// Closes every handle but the standard ones and those named: what the parent holds is none of this process's concern.
pub(crate) fn keep_only(keep: &[BorrowedFd<'_>]) {
    let mut numbers: Vec<u32> = keep
        .iter()
        .map(|handle| handle.as_raw_fd().cast_unsigned())
        .collect();
    numbers.sort_unstable();
    let mut first = 3;
    for number in numbers.into_iter().chain([u32::MAX]) {
        if number > first {
            // SAFETY: numbers only. The owners of what is closed belong to the parent and are never dropped here,
            // because this process ends without unwinding.
            unsafe {
                libc::syscall(libc::SYS_close_range, first, number - 1, 0);
            }
        }
        first = first.max(number.saturating_add(1));
    }
}

/// Puts a handle at a number, for the program that is started next.
pub(crate) fn place(handle: RawFd, at: RawFd) -> io::Result<()> {
    // SAFETY: numbers only; the target is standard input, output or error, which nothing here owns.
    checked(unsafe { libc::dup2(handle, at) }.into()).map(drop)
}

/// Bounds a resource of this process and all it starts. A lower bound that is there already stays.
pub(crate) fn limit(resource: libc::__rlimit_resource_t, most: u64) {
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

/// Blocks signals and gives a handle that reads them.
pub(crate) fn signal_handle(signals: &[i32]) -> io::Result<OwnedFd> {
    // SAFETY: the set is made by the library before it is used.
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

/// Unblocks all signals and gives them back their usual meaning, for a program that is started next.
/// A write to a pipe without a reader is an error, as in every Rust program once its `main` runs.
pub(crate) fn ignore_broken_pipes() {
    // SAFETY: the helper has one thread, and no handler is replaced.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

pub(crate) fn usual_signals() {
    // SAFETY: the set is made by the library before it is used; signal numbers out of range are refused by it.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}

/// One signal from a signal handle, if there is one.
pub(crate) fn next_signal(handle: BorrowedFd<'_>) -> Option<i32> {
    // SAFETY: plain numbers.
    let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::signalfd_siginfo>();
    // SAFETY: at most one struct is read into one struct.
    let got = unsafe { libc::read(handle.as_raw_fd(), (&raw mut info).cast(), size) };
    (got == size as isize).then_some(info.ssi_signo as i32)
}

/// What became of a child.
pub(crate) enum Reaped {
    /// One ended: its number and status.
    One(i32, i32),
    /// None ended, and some are there.
    NotYet,
    /// There is none.
    Nobody,
}

/// Any child that ended.
pub(crate) fn reap() -> Reaped {
    let mut status = 0;
    // SAFETY: the status goes into a local number.
    match unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) } {
        0 => Reaped::NotYet,
        pid if pid > 0 => Reaped::One(pid, status),
        _ => Reaped::Nobody,
    }
}

/// Children are gone when they end, without being waited for.
pub(crate) fn forget_children() {
    // SAFETY: numbers only.
    unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
    }
}

/// Waits for one child.
pub(crate) fn wait_for(pid: i32) -> i32 {
    let mut status = 0;
    // SAFETY: the status goes into a local number.
    while unsafe { libc::waitpid(pid, &raw mut status, 0) } < 0
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
    status
}

/// Signals a process; `-1` is every process of this process namespace but the first.
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

/// Signals the process that a handle stands for.
pub(crate) fn signal_by_handle(process: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    let handle = process.as_raw_fd();
    // SAFETY: numbers only, and no data with the signal.
    checked(unsafe { libc::syscall(libc::SYS_pidfd_send_signal, handle, signal, 0, 0) }).map(drop)
}

/// Whether there is a process of this number, also one that has ended and was not waited for.
pub(crate) fn is_there(pid: i32) -> bool {
    // SAFETY: numbers only; no signal is sent.
    unsafe { libc::kill(pid, 0) == 0 }
}

/// Ends this process at once, without running anything of the parent's.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(code) }
}

/// Brings the loopback of this network namespace up.
pub(crate) fn loopback_up() -> io::Result<()> {
    // SAFETY: the request holds a name that ends with a zero and flags; the socket is closed at the end.
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

/// Replaces this process by a program; only returns when it cannot.
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

/// Takes the next notification; waits for one.
pub(crate) fn notification(listener: BorrowedFd<'_>) -> io::Result<libc::seccomp_notif> {
    // SAFETY: all fields are plain numbers; the kernel demands that they are zero.
    let mut one: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the struct is the one that this request fills.
    unsafe { of_listener(listener, libc::SECCOMP_IOCTL_NOTIF_RECV, &mut one) }.map(|()| one)
}

/// A request to the listener of notifications.
///
/// # Safety
/// `T` is the struct that the kernel reads and writes for this request.
unsafe fn of_listener<T>(
    listener: BorrowedFd<'_>,
    request: libc::Ioctl,
    with: &mut T,
) -> io::Result<()> {
    // SAFETY: the caller says that the struct fits, and it lives until the call returns.
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

/// Has the kernel perform the call.
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
    // SAFETY: the struct is the one that this request reads.
    unsafe { of_listener(listener, libc::SECCOMP_IOCTL_NOTIF_SEND, &mut response) }
}

/// Puts a handle into the process that waits, and answers its call with the handle's number there.
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
    // SAFETY: the struct is the one that this request reads.
    unsafe { of_listener(listener, libc::SECCOMP_IOCTL_NOTIF_ADDFD, &mut request) }
}

/// Whether the call of a notification still waits.
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

/// A socket.
pub(crate) fn socket(family: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: numbers only; the kernel made the handle for us.
    let handle =
        checked(unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) }.into())?;
    // SAFETY: as above.
    Ok(unsafe { OwnedFd::from_raw_fd(handle as RawFd) })
}

/// Connects a socket to an address in the kernel's own form.
pub(crate) fn connect(socket: BorrowedFd<'_>, address: &[u8]) -> io::Result<()> {
    let len = address.len() as libc::socklen_t;
    // SAFETY: the kernel reads as many bytes as it is told, which are there.
    checked(unsafe { libc::connect(socket.as_raw_fd(), address.as_ptr().cast(), len) }.into())
        .map(drop)
}

/// Binds a socket to an address in the kernel's own form.
pub(crate) fn bind(socket: BorrowedFd<'_>, address: &[u8]) -> io::Result<()> {
    let len = address.len() as libc::socklen_t;
    // SAFETY: the kernel reads as many bytes as it is told, which are there.
    checked(unsafe { libc::bind(socket.as_raw_fd(), address.as_ptr().cast(), len) }.into())
        .map(drop)
}

/// The address that a socket is bound to, in the kernel's own form.
pub(crate) fn bound_to(socket: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    let mut address = vec![0_u8; size_of::<libc::sockaddr_storage>()];
    let mut len = address.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most as many bytes as there are, and says how many.
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

/// Opens the other end of a terminal that `/dev/ptmx` made.
pub(crate) fn other_end(terminal: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let (locked, flags) = (0_i32, libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC);
    // SAFETY: the request reads one number.
    checked(
        unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSPTLCK, &raw const locked) }.into(),
    )?;
    // SAFETY: a handle and numbers; the kernel made the new handle for us.
    let handle =
        checked(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCGPTPEER, flags) }.into())?;
    // SAFETY: as above.
    Ok(unsafe { OwnedFd::from_raw_fd(handle as RawFd) })
}

/// Sets the times of what a handle is, also of a symlink; none is now.
pub(crate) fn set_times(
    handle: BorrowedFd<'_>,
    times: Option<&[libc::timespec; 2]>,
) -> io::Result<()> {
    let times = times.map_or(std::ptr::null(), |times| times.as_ptr());
    // SAFETY: the path is an empty C string; the times are two or none.
    checked(
        unsafe { libc::utimensat(handle.as_raw_fd(), c"".as_ptr(), times, libc::AT_EMPTY_PATH) }
            .into(),
    )
    .map(drop)
}

/// Numbers that this process and those it forks read and write together.
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
        // SAFETY: a new mapping of its own; it is zeroed and aligned to a page.
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
        // SAFETY: so many numbers were mapped, and they stay as long as this value does.
        unsafe { std::slice::from_raw_parts(self.first, self.count) }
    }
}

impl Drop for SharedNumbers {
    fn drop(&mut self) {
        // SAFETY: this is the whole mapping, and nobody borrows from it any more.
        unsafe {
            libc::munmap(self.first.cast_mut().cast(), self.count * size_of::<u64>());
        }
    }
}
