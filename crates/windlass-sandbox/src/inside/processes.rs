//! The processes of a command, found in `/proc`: how many there are, what they hold, and how all of them are ended where
//! no process namespace does it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal};

use super::sys::{self, Reaped};

/// The parent's end is that of this process.
pub(crate) fn die_with_parent() {
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
}

/// Orphans come to this process.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(
        rustix::process::getpid(),
    ))?)
}

/// How long is waited for what a command left to be gone.
const END_TIME: Duration = Duration::from_secs(2);

/// Kills children of this process until there is none, for a bounded time.
pub(crate) fn end_children(kill: impl Fn()) {
    let until = Instant::now() + END_TIME;
    loop {
        // Also while others still end: some processes start the next one and exit.
        kill();
        let reaped = (0..MOST_REAPED)
            .map(|_| sys::reap())
            .find(|one| !matches!(one, Reaped::One(..)));
        if matches!(reaped, Some(Reaped::Nobody)) || Instant::now() > until {
            return;
        }
        if reaped.is_none() {
            continue;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Kills every process that descends from this one. They are stopped first: a process that forks while others are
/// killed could always be one ahead.
pub(crate) fn kill_family() {
    let (mut known, until) = (0, Instant::now() + STOP_TIME);
    for _ in 0..MOST_STOPS {
        if until < Instant::now() {
            break;
        }
        let all = family();
        signal_all(&all, libc::SIGSTOP);
        if all.len() == known {
            break;
        }
        known = all.len();
    }
    signal_all(&family(), libc::SIGKILL);
}

/// The priority with which the helper was started; commands have it, too.
static USUAL_PRIORITY: OnceLock<i32> = OnceLock::new();

/// Gives this process and the ones that it starts a high priority, where that is allowed: on a busy machine the processes
/// that watch over commands must have their turn.
pub(crate) fn raise_priority() {
    if let Ok(usual) = rustix::process::getpriority_process(None)
        && rustix::process::setpriority_process(None, HIGH_PRIORITY.min(usual)).is_ok()
    {
        let _ = USUAL_PRIORITY.set(usual);
    }
}

/// Gives a process that becomes a command the usual priority back.
pub(crate) fn restore_priority() {
    if let Some(usual) = USUAL_PRIORITY.get() {
        let _ = rustix::process::setpriority_process(None, *usual);
    }
}

const HIGH_PRIORITY: i32 = -20;

/// Gives processes the lowest priority; the ones that they start inherit it.
pub(crate) fn lower_priority(processes: &[i32]) {
    let own = rustix::process::getpid();
    for pid in processes.iter().filter_map(|pid| Pid::from_raw(*pid)) {
        if pid != own {
            // One that is gone needs none.
            let _ = rustix::process::setpriority_process(Some(pid), 19);
        }
    }
}

/// Signals processes that descend from this one. Those that are gone meanwhile need no signal.
pub(crate) fn signal_all(processes: &[i32], number: i32) {
    for pid in processes {
        let _ = signal(*pid, number);
    }
}

/// Signals a process that descends from this one. Its handle is taken before its parents are looked at: if it ends and
/// its number goes to another process, the signal reaches nobody.
pub(crate) fn signal(pid: i32, number: i32) -> io::Result<()> {
    let handle = Pid::from_raw(pid).ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
    let handle: OwnedFd = rustix::process::pidfd_open(handle, PidfdFlags::empty())?;
    if !descends(pid) {
        return Err(io::Error::from_raw_os_error(libc::EPERM));
    }
    sys::signal_by_handle(handle.as_fd(), number)
}

/// Generations between a process and this one; no more processes than that can exist.
const MOST_PARENTS: usize = 10_000;

/// How often the parents of a process are looked up when some of them end meanwhile.
const TRIES: usize = 10;

/// Whether the parents of a process lead to this one. They are read twice: a parent that is still the parent the second
/// time was alive in between, so that what was read of it was read of it and of no later process with its number.
fn descends(pid: i32) -> bool {
    let parents =
        (0..TRIES).find_map(|_| parents(pid).filter(|found| parents(pid).as_ref() == Some(found)));
    parents.and_then(|parents| u32::try_from(*parents.last()?).ok()) == Some(std::process::id())
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

/// A number that the kernel says of a process.
pub(crate) fn status_field(pid: i32, name: &str) -> Option<i32> {
    field(
        &std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?,
        name,
    )
}

/// The number on the line of this name.
pub(crate) fn field<T: FromStr>(text: &str, name: &str) -> Option<T> {
    text.lines()
        .find_map(|line| line.strip_prefix(name))?
        .trim()
        .parse()
        .ok()
}

/// Ended processes that are reaped before anything else is looked at again.
pub(crate) const MOST_REAPED: usize = 10_000;
/// How often processes are stopped until no new one is found.
const MOST_STOPS: usize = 20;
const STOP_TIME: Duration = Duration::from_millis(100);

/// Every process that `/proc` shows.
pub(crate) fn visible() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Handles of one process that are looked at.
const MOST_HANDLES: usize = 4_096;

/// Bytes in files that are only in memory (`memfd_create`), open in these processes, each counted once.
fn memory_files(processes: &[i32]) -> u64 {
    let mut seen = std::collections::HashSet::new();
    let mut bytes = 0_u64;
    for pid in processes {
        let handles = std::fs::read_dir(format!("/proc/{pid}/fd"));
        for handle in handles.into_iter().flatten().flatten().take(MOST_HANDLES) {
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

/// Bytes in System V segments that no process has attached, in the namespace of this process.
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

/// Whether a process waits inside `vfork` for a child that is stopped. The kernel does not stop it there, but it runs no
/// instruction before its child does, and then its own stop signal is first.
pub(crate) fn waits_for_stopped_child(pid: i32, all: &[i32]) -> bool {
    let status = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/status"));
    let Ok(text) = status(pid) else { return false };
    let is_child =
        |child: &&i32| status(**child).is_ok_and(|text| field::<i32>(&text, "PPid:") == Some(pid));
    waits_for_child(&text) && all.iter().filter(is_child).any(|child| is_stopped(*child))
}

/// Whether a process sleeps where signals do not wake it, with a stop signal that waits for it.
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

/// Whether every thread of a process is stopped or has ended. One that is gone is.
pub(crate) fn is_stopped(pid: i32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    threads.into_iter().flatten().flatten().all(|thread| {
        let Ok(stat) = std::fs::read_to_string(thread.path().join("stat")) else {
            return true;
        };
        // The name before the state may hold brackets.
        let state = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.trim_start().chars().next());
        matches!(state, None | Some('T' | 't' | 'Z' | 'X'))
    })
}

/// Whether all processes here together hold more memory than this. What they share counts for each of them first,
/// which is quick and never too little; only when that is too much it is shared out. With a namespace of their own, System V segments
/// are theirs, too.
pub(crate) fn holds_more_than(most: u64, processes: &[i32], own_segments: bool) -> bool {
    let page = rustix::param::page_size() as u64;
    let resident = |pid: i32| -> Option<u64> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
        text.split(' ').nth(1)?.parse().ok()
    };
    // Memory that no process has mapped is held all the same.
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
    // A file in memory that is mapped is in both counts.
    own.saturating_add(shared.max(files))
        .saturating_add(segments)
        > most
}

/// Threads of a process whose children are looked at; the limit on tasks is below it.
const MOST_THREADS: usize = 10_000;

/// The processes that descend from this one, as far as a bounded look finds them.
pub(crate) fn family() -> Vec<i32> {
    family_but(&[])
}

/// The same without some children of this one, and what descends from them.
pub(crate) fn family_but(known: &[i32]) -> Vec<i32> {
    // In a process namespace of its own, this process has another number than in the `/proc` that is there.
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
    // Each thread has its own children.
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    let lists = threads
        .into_iter()
        .flatten()
        .flatten()
        .take(MOST_THREADS)
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
    fn segments_that_nobody_attached_count() {
        let table = "       key      shmid perms       size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      dtime      ctime        rss       swap\n\
                              0          0  1600  536870912     9     9      0     0     0     0     0          0          0          1    4096000       8192\n\
                              0          1  1600  536870912     9     9      2     0     0     0     0          0          0          1    9999999          0\n\
                              0          2  16\n";
        assert_eq!(detached_in(table), 4_104_192);
        assert_eq!(detached_in(""), 0);
        assert_eq!(detached_in("nothing of that kind\n1 2 3\n"), 0);
    }
}
