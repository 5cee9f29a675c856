//! Kills daemons, which left their process group on purpose. A daemon keeps the environment that it was started with,
//! and with it the mark of its run. The search runs once, at the end of a run. Without a sandbox, a process that clears
//! its environment is not found.

use rustix::process::Pid;

use super::MARK;

/// The number of bytes that are searched in the environment of a process.
const MAX_ENVIRONMENT: usize = 256 * 1024;
/// A daemon may start another one during the search, so the search is repeated.
const MAX_PASSES: usize = 10;
/// During exec a process shows no environment for a moment, so one pass is not enough.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(5);

/// Kills each process that has the mark in its environment.
pub(super) fn kill_marked(mark: &str) {
    let entry = format!("{MARK}={mark}\0");
    let mut buffer = vec![0; MAX_ENVIRONMENT];
    let mut quiet = 0;
    for _ in 0..MAX_PASSES {
        let Ok(processes) = std::fs::read_dir("/proc") else {
            return;
        };
        let ids = processes
            .flatten()
            .filter_map(|process| process.file_name().to_str()?.parse::<i32>().ok());
        let ended = ids
            .filter_map(Pid::from_raw)
            .filter(|id| kill_one(*id, entry.as_bytes(), &mut buffer))
            .count();
        quiet = if ended == 0 { quiet + 1 } else { 0 };
        if quiet == 2 {
            return;
        }
        std::thread::sleep(PAUSE);
    }
}

fn kill_one(id: Pid, entry: &[u8], buffer: &mut [u8]) -> bool {
    use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
    if !has_entry(id, entry, buffer) {
        return false;
    }
    // A pidfd refers to one process only. The id may have been reused before the pidfd was opened, so the mark is
    // checked again.
    let Ok(process) = pidfd_open(id, PidfdFlags::empty()) else {
        return false;
    };
    has_entry(id, entry, buffer) && pidfd_send_signal(&process, Signal::KILL).is_ok()
}

fn has_entry(id: Pid, entry: &[u8], buffer: &mut [u8]) -> bool {
    use std::os::unix::fs::FileExt;
    // This fails for the processes of other users.
    let Ok(file) = std::fs::File::open(format!("/proc/{}/environ", id.as_raw_nonzero())) else {
        return false;
    };
    let mut len = 0;
    while len < buffer.len() {
        match file.read_at(&mut buffer[len..], len as u64) {
            Ok(0) | Err(_) => break,
            Ok(n) => len += n,
        }
    }
    let environment = &buffer[..len];
    let mut found = memchr::memmem::find_iter(environment, entry);
    found.any(|at| at == 0 || environment[at - 1] == 0)
}
