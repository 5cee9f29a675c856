//! The processes of a command, found in `/proc`: how many there are, what they hold, and how all of them are ended where
//! no process namespace does it.

use std::time::{Duration, Instant};

use super::sys::{self, Reaped};

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
        all.iter().for_each(|pid| sys::kill(*pid, libc::SIGSTOP));
        if all.len() == known {
            break;
        }
        known = all.len();
    }
    family()
        .into_iter()
        .for_each(|pid| sys::kill(pid, libc::SIGKILL));
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

/// Whether all processes here together hold more memory than this. What they share counts for each of them first,
/// which is quick and never too little; only when that is too much it is shared out.
pub(crate) fn holds_more_than(most: u64, processes: &[i32]) -> bool {
    let page = rustix::param::page_size() as u64;
    let resident = |pid: i32| -> Option<u64> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
        text.split(' ').nth(1)?.parse().ok()
    };
    let processes = || processes.iter().copied();
    if processes()
        .filter_map(resident)
        .sum::<u64>()
        .saturating_mul(page)
        <= most
    {
        return false;
    }
    let own_part = |pid: i32| -> Option<u64> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
        line.trim().trim_end_matches(" kB").parse::<u64>().ok()
    };
    processes()
        .filter_map(own_part)
        .sum::<u64>()
        .saturating_mul(1024)
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
    let children = |pid: i32| -> Vec<i32> {
        // Each thread has its own children.
        let threads = std::fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten()
            .flatten();
        let lists = threads
            .take(MOST_THREADS)
            .map(|thread| std::fs::read_to_string(thread.path().join("children")));
        let text = lists.flatten().collect::<Vec<_>>().join(" ");
        text.split_whitespace()
            .filter_map(|pid| pid.parse().ok())
            .collect()
    };
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
