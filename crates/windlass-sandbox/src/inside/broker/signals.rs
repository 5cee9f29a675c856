//! Sends signals for a command, if Landlock does not restrict them (before version 6). A signal reaches only processes
//! of the command: the descendants of the broker, which adopts every process whose parent exits.

use rustix::process::Pid;

use super::super::notify::{Errno, SuspendedCall};
use super::super::{processes, sys};
use super::{Broker, CallReply};

impl Broker {
    pub(super) fn send_signal(&self, call: &SuspendedCall) -> Result<CallReply, Errno> {
        let [a, b, c, d, ..] = call.args;
        let number = |argument: u64| argument as i32;
        match call.number {
            libc::SYS_kill => self.kill(call, number(a), number(b))?,
            libc::SYS_tkill => self.signal_thread(call, None, number(a), number(b))?,
            libc::SYS_tgkill => self.signal_thread(call, Some(number(a)), number(b), number(c))?,
            // No known program needs a signal with data or to a process group through this call.
            libc::SYS_pidfd_send_signal if c != 0 || d != 0 => return Err(Errno(libc::EPERM)),
            libc::SYS_pidfd_send_signal => {
                let target = process_of_handle(call, number(a))?;
                self.listener.check_waiting(call)?;
                processes::signal(target, number(b))?;
            }
            _ => return Err(Errno(libc::EPERM)),
        }
        Ok(CallReply::Value(0))
    }

    /// Signals one process, a process group, or every process of the command.
    fn kill(&self, call: &SuspendedCall, target: i32, signal: i32) -> Result<(), Errno> {
        let own = processes::status_field(call.pid, "Tgid:").ok_or(Errno(libc::ESRCH))?;
        self.listener.check_waiting(call)?;
        let members = match target {
            1.. => {
                let process = processes::status_field(target, "Tgid:").ok_or(Errno(libc::ESRCH))?;
                return Ok(processes::signal(process, signal)?);
            }
            -1 => processes::descendants()
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

    /// Signals a thread. The kernel has no file descriptor for a thread, so its id could be reused before the signal is
    /// sent. Only for a thread of the calling process, which stays suspended meanwhile, is that safe; for any other
    /// thread the signal goes to its whole process.
    fn signal_thread(
        &self,
        call: &SuspendedCall,
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

/// Lists the processes of the command that are in a process group.
fn members_of(group: i32) -> Vec<i32> {
    processes::descendants()
        .into_iter()
        .filter(|pid| group_of(*pid) == Some(group))
        .collect()
}

fn group_of(pid: i32) -> Option<i32> {
    let group = rustix::process::getpgid(Pid::from_raw(pid)).ok()?;
    Some(group.as_raw_nonzero().get())
}

/// Returns the process that a pidfd of the command refers to.
fn process_of_handle(call: &SuspendedCall, handle: i32) -> Result<i32, Errno> {
    let text = std::fs::read_to_string(format!("/proc/{}/fdinfo/{handle}", call.pid));
    let text = text.map_err(|_| Errno(libc::EBADF))?;
    match processes::field(&text, "Pid:") {
        Some(pid) if pid > 0 => Ok(pid),
        Some(_) => Err(Errno(libc::ESRCH)),
        None => Err(Errno(libc::EBADF)),
    }
}
