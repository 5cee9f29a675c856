//! Signals, where Landlock does not hold them (before version 6). A signal reaches processes of the command and no
//! others: those that descend from the broker, which adopts every process whose parent ends.

use std::os::fd::{AsFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags};

use super::super::notify::{Call, Errno};
use super::super::{processes, sys};
use super::{Broker, Reply};

/// Generations between a process and the broker; no more processes than that can exist.
const MOST_PARENTS: usize = 10_000;

/// How often the parents of a process are looked up when some of them end meanwhile.
const TRIES: usize = 10;

impl Broker {
    pub(super) fn send_signal(&self, call: &Call) -> Result<Reply, Errno> {
        let [a, b, c, d, ..] = call.args;
        let number = |argument: u64| argument as i32;
        match call.number {
            libc::SYS_kill => self.kill(call, number(a), number(b))?,
            libc::SYS_tkill => self.signal_thread(call, None, number(a), number(b))?,
            libc::SYS_tgkill => self.signal_thread(call, Some(number(a)), number(b), number(c))?,
            // A signal that carries data, or that goes to a whole group, is not needed by anything that is known.
            libc::SYS_pidfd_send_signal if c != 0 || d != 0 => return Err(Errno(libc::EPERM)),
            libc::SYS_pidfd_send_signal => {
                let target = process_of_handle(call, number(a))?;
                if !self.listener.is_waiting(call.id) {
                    return Err(Errno(libc::EINTR));
                }
                signal_process(target, number(b))?;
            }
            _ => return Err(Errno(libc::EPERM)),
        }
        Ok(Reply::Value(0))
    }

    /// One process, all of a group, or every process of the command.
    fn kill(&self, call: &Call, target: i32, signal: i32) -> Result<(), Errno> {
        let own = status_field(call.pid, "Tgid:").ok_or(Errno(libc::ESRCH))?;
        if !self.listener.is_waiting(call.id) {
            return Err(Errno(libc::EINTR));
        }
        let members = match target {
            1.. => {
                let process = status_field(target, "Tgid:").ok_or(Errno(libc::ESRCH))?;
                return signal_process(process, signal);
            }
            -1 => processes::family()
                .into_iter()
                .filter(|pid| *pid != own)
                .collect(),
            0 => members_of(group_of(own).ok_or(Errno(libc::ESRCH))?),
            i32::MIN => return Err(Errno(libc::ESRCH)),
            group => members_of(-group),
        };
        let results: Vec<_> = members
            .into_iter()
            .map(|pid| signal_process(pid, signal))
            .collect();
        match results.iter().find(|result| result.is_ok()) {
            Some(_) => Ok(()),
            None => Err(results
                .into_iter()
                .find_map(Result::err)
                .unwrap_or(Errno(libc::ESRCH))),
        }
    }

    /// A thread. The kernel has no handle of a thread, so that only one of the calling process, which cannot end
    /// unnoticed, is signalled by its number; for another process the signal goes to the process.
    fn signal_thread(
        &self,
        call: &Call,
        process: Option<i32>,
        thread: i32,
        signal: i32,
    ) -> Result<(), Errno> {
        if thread <= 0 || process.is_some_and(|process| process <= 0) {
            return Err(Errno(libc::EINVAL));
        }
        let (own, target) = (
            status_field(call.pid, "Tgid:"),
            status_field(thread, "Tgid:"),
        );
        let target = target.filter(|target| process.is_none_or(|process| process == *target));
        let target = target.ok_or(Errno(libc::ESRCH))?;
        if own != Some(target) {
            return signal_process(target, signal);
        }
        if !self.listener.is_waiting(call.id) {
            return Err(Errno(libc::EINTR));
        }
        Ok(sys::signal_thread(target, thread, signal)?)
    }
}

/// Signals a process of the command. Its handle is taken before its parents are looked at: if it ends and its number
/// goes to another process, the signal reaches nobody.
fn signal_process(pid: i32, signal: i32) -> Result<(), Errno> {
    let handle = Pid::from_raw(pid).ok_or(Errno(libc::ESRCH))?;
    let handle: OwnedFd = rustix::process::pidfd_open(handle, PidfdFlags::empty())?;
    if !descends_from_broker(pid) {
        return Err(Errno(libc::EPERM));
    }
    Ok(sys::signal_by_handle(handle.as_fd(), signal)?)
}

/// Whether the parents of a process lead to this one. They are read twice: a parent that is still the parent the second
/// time was alive in between, so that what was read of it was read of it and of no later process with its number.
fn descends_from_broker(pid: i32) -> bool {
    (0..TRIES)
        .find_map(|_| parents(pid).filter(|found| parents(pid).as_ref() == Some(found)))
        .is_some_and(|found| {
            let own = std::process::id();
            found
                .last()
                .is_some_and(|last| u32::try_from(*last) == Ok(own))
        })
}

/// The parents of a process, up to this process or to the first one; none when one ended meanwhile.
fn parents(pid: i32) -> Option<Vec<i32>> {
    let own = i32::try_from(std::process::id()).ok()?;
    let mut found = Vec::new();
    let mut at = pid;
    while at != own && at > 1 && found.len() < MOST_PARENTS {
        at = status_field(at, "PPid:")?;
        found.push(at);
    }
    Some(found)
}

/// The processes of the command in a group.
fn members_of(group: i32) -> Vec<i32> {
    processes::family()
        .into_iter()
        .filter(|pid| group_of(*pid) == Some(group))
        .collect()
}

fn group_of(pid: i32) -> Option<i32> {
    let group = rustix::process::getpgid(Pid::from_raw(pid)).ok()?;
    Some(group.as_raw_nonzero().get())
}

/// The process that a handle of the command stands for.
fn process_of_handle(call: &Call, handle: i32) -> Result<i32, Errno> {
    let text = std::fs::read_to_string(format!("/proc/{}/fdinfo/{handle}", call.pid));
    let text = text.map_err(|_| Errno(libc::EBADF))?;
    match field(&text, "Pid:") {
        Some(pid) if pid > 0 => Ok(pid),
        Some(_) => Err(Errno(libc::ESRCH)),
        None => Err(Errno(libc::EBADF)),
    }
}

fn status_field(pid: i32, name: &str) -> Option<i32> {
    field(
        &std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?,
        name,
    )
}

fn field(text: &str, name: &str) -> Option<i32> {
    text.lines()
        .find_map(|line| line.strip_prefix(name))?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_descend_and_others_do_not() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("started");
        let pid = i32::try_from(child.id()).expect("a number");
        assert!(descends_from_broker(pid));
        assert!(!descends_from_broker(1));
        assert!(!descends_from_broker(
            std::os::unix::process::parent_id().cast_signed()
        ));
        assert_eq!(signal_process(1, 0), Err(Errno(libc::EPERM)));
        assert_eq!(signal_process(pid, libc::SIGKILL), Ok(()));
        child.wait().expect("ended");
        assert_eq!(signal_process(pid, 0), Err(Errno(libc::ESRCH)));
    }
}
