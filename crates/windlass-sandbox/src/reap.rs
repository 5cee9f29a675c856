//! Waits for a process that is about to exit, with a time limit.

use std::process::Child;
use std::time::Duration;

/// Reaps a process if it exits within this time. When a parent exits before it has reaped a child, the child goes to
/// the init process, and in a container that often reaps nothing.
pub fn reap_within(process: &mut Child, time: Duration) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    let pid = i32::try_from(process.id()).ok().and_then(Pid::from_raw);
    let Some(Ok(handle)) = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) else {
        return;
    };
    let timeout = Timespec::try_from(time).ok();
    let exited = poll(&mut [PollFd::new(&handle, PollFlags::IN)], timeout.as_ref());
    if exited.is_ok_and(|ready| ready > 0) {
        let _ = process.wait();
    }
}
