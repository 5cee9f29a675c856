//! Lists the processes of this machine from `/proc`. It kills only processes that carry the marker of a case.

use std::collections::{HashMap, HashSet};

use rustix::process::{Pid, Signal, kill_process};

/// A process as `/proc` describes it.
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    /// The controlling terminal; 0 means none.
    pub(crate) tty: i64,
    pub(crate) name: String,
}

fn pids() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Lists every process of this machine.
pub(crate) fn all() -> Vec<Process> {
    pids().filter_map(read).collect()
}

fn read(pid: i32) -> Option<Process> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain anything, even spaces and parentheses.
    let (from, to) = (text.find('(')?, text.rfind(')')?);
    let rest: Vec<&str> = text[to + 1..].split_whitespace().collect();
    let (parent, tty) = (rest.get(1)?.parse().ok()?, rest.get(4)?.parse().ok()?);
    Some(Process {
        pid,
        parent,
        tty,
        name: text[from + 1..to].to_owned(),
    })
}

/// Returns the program that a process runs.
pub(crate) fn program(pid: i32) -> Option<std::path::PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// Returns all descendants of a process.
pub(crate) fn descendants(of: i32, all: &[Process]) -> HashSet<i32> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for process in all {
        children
            .entry(process.parent)
            .or_default()
            .push(process.pid);
    }
    let (mut found, mut open) = (HashSet::new(), vec![of]);
    while let Some(pid) = open.pop() {
        for child in children.get(&pid).into_iter().flatten() {
            if found.insert(*child) {
                open.push(*child);
            }
        }
    }
    found
}

/// Returns the peak memory of a process, in bytes.
pub(crate) fn peak_memory(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok())
        .unwrap_or(0)
        * 1024
}

/// Lists processes whose arguments contain a text, without this one.
pub(crate) fn with_argument(text: &str) -> Vec<i32> {
    containing("cmdline", text)
}

/// Lists processes that were started with a text in their environment, without this one.
pub(crate) fn with_environment(text: &str) -> Vec<i32> {
    containing("environ", text)
}

fn containing(file: &str, text: &str) -> Vec<i32> {
    let own = std::process::id() as i32;
    let found = |pid: &i32| {
        let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        *pid != own
            && bytes
                .windows(text.len())
                .any(|window| window == text.as_bytes())
    };
    pids().filter(found).collect()
}

/// Kills a process with SIGKILL.
pub(crate) fn kill(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, Signal::KILL);
    }
}
