//! Probes for single system calls.
#![allow(
    unsafe_code,
    reason = "no crate that is small enough for a test helper has these calls"
)]

use std::io;
use std::os::fd::AsRawFd as _;

/// The flag that makes `landlock_create_ruleset` return the version.
const VERSION: libc::c_uint = 1;

pub(crate) fn landlock() -> Result<(), String> {
    // SAFETY: with this flag the kernel reads no memory.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<u8>(),
            0_usize,
            VERSION,
        )
    };
    if version >= 1 {
        Ok(())
    } else {
        Err(format!(
            "landlock_create_ruleset: {}",
            io::Error::last_os_error()
        ))
    }
}

/// Tries it on a new thread, because a filter cannot be removed from the thread that installed it.
pub(crate) fn notifications() -> Result<(), String> {
    let tried = std::thread::spawn(|| install_listener().map_err(|err| format!("seccomp: {err}")));
    tried
        .join()
        .unwrap_or_else(|_| Err("the thread of the probe panicked".to_owned()))
}

fn install_listener() -> io::Result<()> {
    const ALLOW_ALL: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let mut code = [libc::sock_filter {
        code: ALLOW_ALL,
        jt: 0,
        jf: 0,
        k: libc::SECCOMP_RET_ALLOW,
    }];
    let program = libc::sock_fprog {
        len: 1,
        filter: code.as_mut_ptr(),
    };
    // SAFETY: the call only takes privileges away from this thread.
    let alone = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    if alone != 0 {
        return Err(io::Error::last_os_error());
    }
    let listener = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    // SAFETY: the program and its code live until the call returns; the kernel keeps a copy.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            listener,
            &raw const program,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just created this descriptor, and no other code knows it.
    unsafe { libc::close(fd as libc::c_int) };
    Ok(())
}

/// Duplicates a descriptor of this process itself. That shows whether the call exists, not whether it is permitted
/// between two processes.
pub(crate) fn pidfd_getfd() -> Result<(), String> {
    let null = std::fs::File::open("/dev/null").map_err(|err| format!("/dev/null: {err}"))?;
    // SAFETY: the call takes two numbers.
    let process = unsafe { libc::syscall(libc::SYS_pidfd_open, std::process::id(), 0) };
    if process < 0 {
        return Err(format!("pidfd_open: {}", io::Error::last_os_error()));
    }
    // SAFETY: the call takes three numbers.
    let taken = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process, null.as_raw_fd(), 0) };
    let error = io::Error::last_os_error();
    for fd in [process, taken].into_iter().filter(|fd| *fd >= 0) {
        // SAFETY: the calls above have just created it, and no other code knows it.
        unsafe { libc::close(fd as libc::c_int) };
    }
    if taken >= 0 {
        Ok(())
    } else {
        Err(error.to_string())
    }
}

pub(crate) fn socket_diag() -> Result<(), String> {
    // SAFETY: the call takes three numbers.
    let fd = unsafe {
        libc::socket(
            libc::AF_NETLINK,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC,
            libc::NETLINK_SOCK_DIAG,
        )
    };
    if fd < 0 {
        return Err(format!("socket: {}", io::Error::last_os_error()));
    }
    // SAFETY: the call has just created this descriptor, and no other code knows it.
    unsafe { libc::close(fd) };
    Ok(())
}
