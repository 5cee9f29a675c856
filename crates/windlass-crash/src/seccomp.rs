//! The seccomp filter that asks a supervisor before each system call that changes files, and the listener that receives
//! the notifications. Linux has no safe interface for it, so this is the only file with unsafe code; it makes no
//! decisions.
#![allow(unsafe_code)]

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xC000_00B7;

/// The offsets of the number, the architecture and the arguments of a call in the filter's input.
const NUMBER_AT: u32 = 0;
const ARCH_AT: u32 = 4;
const ARGS_AT: u32 = 16;

/// The timeout for the listener to arrive after the program was started.
const HANDLE_WAIT: Duration = Duration::from_secs(10);

/// A system call that waits for a reply.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SyscallNotice {
    pub(crate) id: u64,
    /// The thread that makes the call.
    pub(crate) thread: u32,
    pub(crate) number: i64,
    pub(crate) args: [u64; 6],
}

/// The reply to a waiting call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SyscallReply {
    /// Let the kernel execute it.
    Continue,
    /// Fail with this error number instead.
    Fail(i32),
}

/// The result of waiting for a call.
#[derive(Debug)]
pub(crate) enum ListenEvent {
    SyscallNotice(SyscallNotice),
    Nothing,
    /// No process with the filter is left.
    Over,
}

/// The calls that are intercepted: by number alone, or only if an argument has one of these bits.
pub(crate) struct FilteredCalls<'a> {
    pub(crate) always: &'a [i64],
    /// The number of the call, the index of the argument, and the bits.
    pub(crate) with_bits: &'a [(i64, u32, u32)],
}

/// The handle that receives notifications.
#[derive(Debug)]
pub(crate) struct SeccompListener(OwnedFd);

impl SeccompListener {
    /// Waits for the next call, with a timeout.
    pub(crate) fn next(&self, wait: Duration) -> io::Result<ListenEvent> {
        let mut polled = [PollFd::new(&self.0, PollFlags::IN)];
        let wait = Timespec {
            tv_sec: wait.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: wait.subsec_nanos().into(),
        };
        match poll(&mut polled, Some(&wait)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(ListenEvent::Nothing),
            Ok(_) => {}
            Err(err) => return Err(err.into()),
        }
        let flags = polled[0].revents();
        if !flags.contains(PollFlags::IN) {
            return Ok(if flags.contains(PollFlags::HUP) {
                ListenEvent::Over
            } else {
                ListenEvent::Nothing
            });
        }
        // SAFETY: the kernel requires zeros, and all fields are numbers.
        let mut notice: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the request takes exactly this structure, which lives for the whole call.
        let got = unsafe {
            libc::ioctl(
                self.0.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_RECV,
                &raw mut notice,
            )
        };
        if got < 0 {
            let err = io::Error::last_os_error();
            // The caller ended between the poll and here.
            let gone = matches!(err.raw_os_error(), Some(libc::ENOENT | libc::EINTR));
            return if gone {
                Ok(ListenEvent::Nothing)
            } else {
                Err(err)
            };
        }
        let libc::seccomp_notif { id, pid, data, .. } = notice;
        Ok(ListenEvent::SyscallNotice(SyscallNotice {
            id,
            thread: pid,
            number: data.nr.into(),
            args: data.args,
        }))
    }

    /// Replies to a call. A call whose thread is gone needs no reply.
    pub(crate) fn reply(&self, id: u64, reply: SyscallReply) -> io::Result<()> {
        // SAFETY: all fields are numbers.
        let mut answer: libc::seccomp_notif_resp = unsafe { std::mem::zeroed() };
        answer.id = id;
        match reply {
            SyscallReply::Continue => answer.flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32,
            SyscallReply::Fail(errno) => answer.error = -errno,
        }
        // SAFETY: the request takes exactly this structure, which lives for the whole call.
        let sent = unsafe {
            libc::ioctl(
                self.0.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_SEND,
                &raw mut answer,
            )
        };
        match sent {
            0.. => Ok(()),
            _ => match io::Error::last_os_error() {
                err if err.raw_os_error() == Some(libc::ENOENT) => Ok(()),
                err => Err(err),
            },
        }
    }
}

/// Starts a program under the filter. The program must exist and be executable: an `exec` that fails would wait for a
/// reply that no thread can give yet.
pub(crate) fn start(
    command: &mut Command,
    asked: &FilteredCalls<'_>,
) -> io::Result<(Child, SeccompListener)> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_read_timeout(Some(HANDLE_WAIT))?;
    let filter = filter(asked);
    let length =
        u16::try_from(filter.len()).map_err(|_| io::Error::other("the filter is too long"))?;
    // SAFETY: between fork and exec the closure makes system calls only, on memory that was prepared before the fork.
    unsafe {
        command.pre_exec(move || {
            let program = libc::sock_fprog {
                len: length,
                filter: filter.as_ptr().cast_mut(),
            };
            install(&program).and_then(|listener| hand_over(&theirs, &listener))
        });
    }
    let mut child = command.spawn()?;
    match take_over(&ours) {
        Ok(listener) => Ok((child, listener)),
        Err(err) => {
            child.kill()?;
            child.wait()?;
            Err(err)
        }
    }
}

/// Installs the filter in the calling process. Without privileges, the kernel demands that the process can never gain
/// more of them.
fn install(program: &libc::sock_fprog) -> io::Result<OwnedFd> {
    use std::os::fd::FromRawFd;
    // SAFETY: all arguments are numbers.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    // SAFETY: the program and its instructions live for the whole call; the kernel copies them.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            program,
        )
    };
    match i32::try_from(fd) {
        // SAFETY: the kernel has just created it, and no other code knows it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

fn hand_over(to: &UnixStream, listener: &OwnedFd) -> io::Result<()> {
    use std::os::fd::AsFd;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let handles = [listener.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&handles));
    let sent = rustix::net::sendmsg(to, &[IoSlice::new(b"!")], &mut control, SendFlags::NOSIGNAL);
    if sent.is_err() {
        // SAFETY: the filter is active, so an error could not be written; the missing handle reports it.
        unsafe { libc::_exit(127) }
    }
    Ok(())
}

fn take_over(from: &UnixStream) -> io::Result<SeccompListener> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    rustix::net::recvmsg(
        from,
        &mut [IoSliceMut::new(&mut byte)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let handle = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut handles) => handles.next(),
        _ => None,
    });
    handle
        .map(SeccompListener)
        .ok_or_else(|| io::Error::other("the started process did not send its listener"))
}

fn filter(asked: &FilteredCalls<'_>) -> Vec<libc::sock_filter> {
    let load = |at: u32| instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, at);
    let equal =
        |value: u32, no: u8| instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, no, value);
    let bits = |value: u32, no: u8| {
        instruction(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, 0, no, value)
    };
    let answer = |with: u32| instruction(libc::BPF_RET | libc::BPF_K, 0, 0, with);
    let (ask, allow) = (
        answer(libc::SECCOMP_RET_USER_NOTIF),
        answer(libc::SECCOMP_RET_ALLOW),
    );
    let number = |call: i64| u32::try_from(call).unwrap_or(u32::MAX);
    let mut filter = vec![
        load(ARCH_AT),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, 0, ARCH),
        allow,
    ];
    filter.push(load(NUMBER_AT));
    for &call in asked.always {
        filter.extend([equal(number(call), 1), ask]);
    }
    for &(call, arg, wanted) in asked.with_bits {
        // Numbers are little endian on both architectures: the low half comes first.
        filter.extend([
            equal(number(call), 4),
            load(ARGS_AT + 8 * arg),
            bits(wanted, 1),
            ask,
            allow,
        ]);
    }
    filter.push(allow);
    filter
}

fn instruction(code: u32, yes: u8, no: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: yes,
        jf: no,
        k,
    }
}
