//! Ending what left its process group on purpose: daemons. They keep the environment they were started with, and in it
//! the mark of their run. Looked for once, at the end of a run; what hides its environment is the sandbox's business.

use rustix::process::Pid;

use super::MARK;

/// How much of an environment is looked at.
const MAX_ENVIRONMENT: usize = 256 * 1024;
/// A daemon may start another while it is looked for.
const PASSES: usize = 10;
/// A process that is just becoming another program shows no environment for a moment, so one look is not enough.
const BETWEEN: std::time::Duration = std::time::Duration::from_millis(5);

/// Kills every process that has the mark.
pub(super) fn end_marked(mark: &str) {
    let entry = format!("{MARK}={mark}\0");
    let mut buffer = vec![0; MAX_ENVIRONMENT];
    let mut quiet = 0;
    for _ in 0..PASSES {
        let Ok(processes) = std::fs::read_dir("/proc") else {
            return;
        };
        let ids = processes
            .flatten()
            .filter_map(|process| process.file_name().to_str()?.parse::<i32>().ok());
        let ended = ids
            .filter_map(Pid::from_raw)
            .filter(|id| end_one(*id, entry.as_bytes(), &mut buffer))
            .count();
        quiet = if ended == 0 { quiet + 1 } else { 0 };
        if quiet == 2 {
            return;
        }
        std::thread::sleep(BETWEEN);
    }
}

fn end_one(id: Pid, entry: &[u8], buffer: &mut [u8]) -> bool {
    use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
    if !has(id, entry, buffer) {
        return false;
    }
    // The handle is on one process for good; the number may have become another's before it was taken.
    let Ok(process) = pidfd_open(id, PidfdFlags::empty()) else {
        return false;
    };
    has(id, entry, buffer) && pidfd_send_signal(&process, Signal::KILL).is_ok()
}

fn has(id: Pid, entry: &[u8], buffer: &mut [u8]) -> bool {
    use std::os::unix::fs::FileExt;
    // Most processes are another's, and then this ends here.
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
