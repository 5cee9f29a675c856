//! Finds the processes of a command in `/proc`, counts them and their memory, and kills all of them where there is no
//! process namespace.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal};

use super::sys::{self, Reaped};

/// Makes the kernel kill this process when its parent exits.
pub(crate) fn die_with_parent() {
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
}

/// Makes this process the parent of descendants whose own parent exits.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(
        rustix::process::getpid(),
    ))?)
}

/// The timeout for killing the processes that a command left.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Kills and reaps children until none is left, for a bounded time.
pub(crate) fn end_children(kill: impl Fn()) {
    let until = Instant::now() + END_TIMEOUT;
    loop {
        // Repeat this while others still exit: some processes fork the next one and exit.
        kill();
        let reaped = (0..MAX_REAPED)
            .map(|_| sys::reap())
            .find(|one| !matches!(one, Reaped::One(..)));
        if matches!(reaped, Some(Reaped::NoChildren)) || Instant::now() > until {
            return;
        }
        if reaped.is_none() {
            continue;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Kills every descendant of this process. They are stopped first, because a process that forks while the others are
/// killed could always be one ahead.
pub(crate) fn kill_descendants() {
    let (mut known, until) = (0, Instant::now() + STOP_TIMEOUT);
    for _ in 0..MAX_STOPS {
        if until < Instant::now() {
            break;
        }
        let all = descendants();
        signal_all(&all, libc::SIGSTOP);
        if all.len() == known {
            break;
        }
        known = all.len();
    }
    signal_all(&descendants(), libc::SIGKILL);
}

/// The priority with which the helper was started; commands get it back.
static USUAL_PRIORITY: OnceLock<i32> = OnceLock::new();

/// Gives this process and its future children a high priority, if that is allowed, so that the processes that enforce
/// limits run even on a busy machine.
pub(crate) fn raise_priority() {
    if let Ok(usual) = rustix::process::getpriority_process(None)
        && rustix::process::setpriority_process(None, HIGH_PRIORITY.min(usual)).is_ok()
    {
        let _ = USUAL_PRIORITY.set(usual);
    }
}

/// Restores the original priority, for a process that becomes a command.
pub(crate) fn restore_priority() {
    if let Some(usual) = USUAL_PRIORITY.get() {
        let _ = rustix::process::setpriority_process(None, *usual);
    }
}

const HIGH_PRIORITY: i32 = -20;

/// Gives processes the lowest priority; their future children inherit it.
pub(crate) fn lower_priority(processes: &[i32]) {
    let own = rustix::process::getpid();
    for pid in processes.iter().filter_map(|pid| Pid::from_raw(*pid)) {
        if pid != own {
            // The process may be gone.
            let _ = rustix::process::setpriority_process(Some(pid), 19);
        }
    }
}

/// Signals descendants of this process, ignoring those that are gone.
pub(crate) fn signal_all(processes: &[i32], number: i32) {
    for pid in processes {
        let _ = signal(*pid, number);
    }
}

/// Signals a descendant of this process. It opens the pidfd before it checks the ancestors: if the process exits and
/// another one gets its id, the signal reaches no process.
pub(crate) fn signal(pid: i32, number: i32) -> io::Result<()> {
    let handle = Pid::from_raw(pid).ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
    let handle: OwnedFd = rustix::process::pidfd_open(handle, PidfdFlags::empty())?;
    if !descends(pid) {
        return Err(io::Error::from_raw_os_error(libc::EPERM));
    }
    sys::signal_by_handle(handle.as_fd(), number)
}

/// The most generations between a process and this one; there cannot be more processes than that.
const MAX_PARENTS: usize = 10_000;

/// The most attempts to read the ancestors, if one of them exits meanwhile.
const TRIES: usize = 10;

/// Returns whether a process is a descendant of this one. Reads the ancestors twice: if the second reading is the same,
/// every ancestor was alive between the two, so no id belonged to another process.
fn descends(pid: i32) -> bool {
    let parents =
        (0..TRIES).find_map(|_| parents(pid).filter(|found| parents(pid).as_ref() == Some(found)));
    parents.and_then(|parents| u32::try_from(*parents.last()?).ok()) == Some(std::process::id())
}

/// Lists the ancestors of a process, up to this process or to init; `None` if one exits meanwhile.
fn parents(pid: i32) -> Option<Vec<i32>> {
    let own = i32::try_from(std::process::id()).ok()?;
    let mut found = Vec::new();
    let mut at = pid;
    while at != own && at > 1 && found.len() < MAX_PARENTS {
        at = status_field(at, "PPid:")?;
        found.push(at);
    }
    Some(found)
}

/// Reads a number from `/proc/PID/status`.
pub(crate) fn status_field(pid: i32, name: &str) -> Option<i32> {
    field(
        &std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?,
        name,
    )
}

/// Parses the rest of the line that begins with `name`.
pub(crate) fn field<T: FromStr>(text: &str, name: &str) -> Option<T> {
    text.lines()
        .find_map(|line| line.strip_prefix(name))?
        .trim()
        .parse()
        .ok()
}

/// The most exited processes that are reaped in one go.
pub(crate) const MAX_REAPED: usize = 10_000;
/// The most rounds of stopping processes until no new one is found.
const MAX_STOPS: usize = 20;
const STOP_TIMEOUT: Duration = Duration::from_millis(100);

/// Lists every process that `/proc` shows.
pub(crate) fn visible() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The most file descriptors that are read per process.
const MAX_HANDLES: usize = 4_096;

/// Adds up the bytes of `memfd_create` files that these processes have open, each file once.
fn memory_files(processes: &[i32]) -> u64 {
    let mut seen = std::collections::HashSet::new();
    let mut bytes = 0_u64;
    for pid in processes {
        let handles = std::fs::read_dir(format!("/proc/{pid}/fd"));
        for handle in handles.into_iter().flatten().flatten().take(MAX_HANDLES) {
            let path = handle.path();
            let is_memory = std::fs::read_link(&path)
                .is_ok_and(|link| link.as_os_str().as_bytes().starts_with(b"/memfd:"));
            if !is_memory {
                continue;
            }
            if let Ok(stat) = rustix::fs::stat(&path)
                && seen.insert((stat.st_dev, stat.st_ino))
            {
                bytes = bytes.saturating_add(stat.st_blocks.cast_unsigned().saturating_mul(512));
            }
        }
    }
    bytes
}

/// Adds up the bytes of System V segments that no process has attached, in this IPC namespace.
fn detached_segments() -> u64 {
    let text = std::fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    detached_in(&text)
}

fn detached_in(table: &str) -> u64 {
    let mut lines = table.lines();
    let titles: Vec<&str> = lines
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let column = |title: &str| titles.iter().position(|one| *one == title);
    let (Some(attached), Some(held), Some(swapped)) =
        (column("nattch"), column("rss"), column("swap"))
    else {
        return 0;
    };
    let bytes = lines.filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        (number(attached)? == 0).then(|| number(held)?.checked_add(number(swapped)?))?
    });
    bytes.fold(0, u64::saturating_add)
}

/// Returns whether a process waits inside `vfork` for a stopped child. SIGSTOP does not stop it there, but it cannot
/// run before its child does, and then the pending SIGSTOP comes first.
pub(crate) fn waits_for_stopped_child(pid: i32, all: &[i32]) -> bool {
    let status = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/status"));
    let Ok(text) = status(pid) else { return false };
    let is_child =
        |child: &&i32| status(**child).is_ok_and(|text| field::<i32>(&text, "PPid:") == Some(pid));
    waits_for_child(&text) && all.iter().filter(is_child).any(|child| is_stopped(*child))
}

/// Returns whether a process is in an uninterruptible sleep with SIGSTOP pending.
fn waits_for_child(status: &str) -> bool {
    const STOP: u64 = 1 << (libc::SIGSTOP - 1);
    let pending = |name| {
        field::<String>(status, name)
            .and_then(|bits| u64::from_str_radix(&bits, 16).ok())
            .is_some_and(|bits| bits & STOP != 0)
    };
    field::<String>(status, "State:").is_some_and(|state| state.starts_with('D'))
        && (pending("ShdPnd:") || pending("SigPnd:"))
}

/// Returns whether every thread of a process is stopped or has exited, or the process is gone.
pub(crate) fn is_stopped(pid: i32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    threads.into_iter().flatten().flatten().all(|thread| {
        let Ok(stat) = std::fs::read_to_string(thread.path().join("stat")) else {
            return true;
        };
        // The process name before the state may contain parentheses.
        let state = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.trim_start().chars().next());
        matches!(state, None | Some('T' | 't' | 'Z' | 'X'))
    })
}

/// Returns whether these processes together use more memory than `most`. First adds up their resident sizes, which is
/// quick but counts shared memory once per process. Only if that is too much, it reads proportional sizes, which are
/// slow. With an IPC namespace of their own, System V segments are counted as well.
pub(crate) fn holds_more_than(most: u64, processes: &[i32], own_segments: bool) -> bool {
    let page = rustix::param::page_size() as u64;
    let resident = |pid: i32| -> Option<u64> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
        text.split(' ').nth(1)?.parse().ok()
    };
    // Memory that no process has mapped is in use all the same.
    let files = memory_files(processes);
    let segments = if own_segments { detached_segments() } else { 0 };
    let unmapped = files.saturating_add(segments);
    let processes = || processes.iter().copied();
    let resident = processes().filter_map(resident).sum::<u64>();
    if resident.saturating_mul(page).saturating_add(unmapped) <= most {
        return false;
    }
    let own_part = |pid: i32| -> Option<(u64, u64)> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
        let bytes = |title: &str| -> Option<u64> {
            let line = text.lines().find_map(|line| line.strip_prefix(title))?;
            let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
            kilobytes.checked_mul(1024)
        };
        let shared = bytes("Pss_Shmem:").unwrap_or_default();
        Some((bytes("Pss:")?.saturating_sub(shared), shared))
    };
    let (own, shared) = processes()
        .filter_map(own_part)
        .fold((0_u64, 0_u64), |(own, shared), (more, mapped)| {
            (own.saturating_add(more), shared.saturating_add(mapped))
        });
    // A mapped `memfd` file is in both counts.
    own.saturating_add(shared.max(files))
        .saturating_add(segments)
        > most
}

/// The most threads of a process whose children are read; the limit on tasks is lower.
const MAX_THREADS: usize = 10_000;

/// Lists the descendants of this process, up to a limit.
pub(crate) fn descendants() -> Vec<i32> {
    descendants_except(&[])
}

/// Lists the descendants of this process, without some of its children and their descendants.
pub(crate) fn descendants_except(known: &[i32]) -> Vec<i32> {
    // If `/proc` belongs to another process namespace, this process has another id there.
    let own = std::fs::read_link("/proc/self")
        .ok()
        .and_then(|link| link.to_str()?.parse().ok());
    let mut found = own.map(children).unwrap_or_default();
    found.retain(|pid| !known.contains(pid));
    let mut at = 0;
    while at < found.len() && found.len() < 10_000 {
        let more = children(found[at]);
        found.extend(more);
        at += 1;
    }
    found
}

fn children(pid: i32) -> Vec<i32> {
    // Each thread has its own list of children.
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    let lists = threads
        .into_iter()
        .flatten()
        .flatten()
        .take(MAX_THREADS)
        .map(|thread| std::fs::read_to_string(thread.path().join("children")));
    let text = lists.flatten().collect::<Vec<_>>().join(" ");
    text.split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_inside_vfork_is_known_by_its_state_and_signal() {
        let check = |state: &str, shared: &str, expect: bool| {
            let status = format!(
                "Name:\tsh\nState:\t{state}\nPPid:\t7\nSigPnd:\t0000000000000000\nShdPnd:\t{shared}\n"
            );
            assert_eq!(waits_for_child(&status), expect, "{status}");
        };
        check("D (disk sleep)", "0000000000040000", true);
        check("D (disk sleep)", "0000000000000000", false);
        check("S (sleeping)", "0000000000040000", false);
        assert!(!waits_for_child(""));
    }

    #[test]
    fn a_process_is_stopped_when_all_its_threads_are() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("started");
        let pid = i32::try_from(child.id()).expect("a number");
        assert!(!is_stopped(pid));
        sys::kill(pid, libc::SIGSTOP);
        while !is_stopped(pid) {
            std::thread::yield_now();
        }
        child.kill().expect("killed");
        child.wait().expect("ended");
        assert!(is_stopped(pid), "one that is gone does not run");
    }

    #[test]
    fn children_are_signalled_and_others_are_not() {
        let code = |result: io::Result<()>| result.err().and_then(|err| err.raw_os_error());
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("started");
        let pid = i32::try_from(child.id()).expect("a number");
        assert!(descends(pid));
        assert!(!descends(1) && !descends(std::os::unix::process::parent_id().cast_signed()));
        assert_eq!(code(signal(1, 0)), Some(libc::EPERM));
        assert_eq!(code(signal(pid, libc::SIGKILL)), None);
        child.wait().expect("ended");
        assert_eq!(code(signal(pid, 0)), Some(libc::ESRCH));
    }

    #[test]
    fn detached_segments_are_counted() {
        let table = "       key      shmid perms       size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      dtime      ctime        rss       swap\n\
                              0          0  1600  536870912     9     9      0     0     0     0     0          0          0          1    4096000       8192\n\
                              0          1  1600  536870912     9     9      2     0     0     0     0          0          0          1    9999999          0\n\
                              0          2  16\n";
        assert_eq!(detached_in(table), 4_104_192);
        assert_eq!(detached_in(""), 0);
        assert_eq!(detached_in("nothing of that kind\n1 2 3\n"), 0);
    }
}
