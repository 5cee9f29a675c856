//! Signals, where Landlock does not hold them (before version 6). A signal reaches processes of the command and no
//! others: those that descend from the broker, which adopts every process whose parent ends.

use rustix::process::Pid;

use super::super::notify::{Call, Errno};
use super::super::{processes, sys};
use super::{Broker, Reply};

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
                self.listener.check_waiting(call)?;
                processes::signal(target, number(b))?;
            }
            _ => return Err(Errno(libc::EPERM)),
        }
        Ok(Reply::Value(0))
    }

    /// One process, all of a group, or every process of the command.
    fn kill(&self, call: &Call, target: i32, signal: i32) -> Result<(), Errno> {
        let own = processes::status_field(call.pid, "Tgid:").ok_or(Errno(libc::ESRCH))?;
        self.listener.check_waiting(call)?;
        let members = match target {
            1.. => {
                let process = processes::status_field(target, "Tgid:").ok_or(Errno(libc::ESRCH))?;
                return Ok(processes::signal(process, signal)?);
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
            .map(|pid| processes::signal(pid, signal))
            .collect();
        match results.iter().find(|result| result.is_ok()) {
            Some(_) => Ok(()),
            None => Err(results
                .into_iter()
                .find_map(Result::err)
                .map_or(Errno(libc::ESRCH), Errno::from)),
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
            processes::status_field(call.pid, "Tgid:"),
            processes::status_field(thread, "Tgid:"),
        );
        let target = target.filter(|target| process.is_none_or(|process| process == *target));
        let target = target.ok_or(Errno(libc::ESRCH))?;
        if own != Some(target) {
            return Ok(processes::signal(target, signal)?);
        }
        self.listener.check_waiting(call)?;
        Ok(sys::signal_thread(target, thread, signal)?)
    }
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
    match processes::field(&text, "Pid:") {
        Some(pid) if pid > 0 => Ok(pid),
        Some(_) => Err(Errno(libc::ESRCH)),
        None => Err(Errno(libc::EBADF)),
    }
}
