//! Lists the processes of this machine from `/proc`. It kills only processes that carry the marker of a case.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

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

/// Returns the addresses on which a process listens for TCP connections.
pub(crate) fn listening(pid: i32) -> Vec<IpAddr> {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter();
    let sockets: HashSet<String> = files
        .flatten()
        .flatten()
        .filter_map(|file| std::fs::read_link(file.path()).ok())
        .filter_map(|target| {
            let inode = target.to_str()?.strip_prefix("socket:[")?;
            inode.strip_suffix(']').map(str::to_owned)
        })
        .collect();
    ["tcp", "tcp6"]
        .iter()
        .filter_map(|table| std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).ok())
        .flat_map(|table| {
            let rows = table
                .lines()
                .filter_map(|line| listening_row(line, &sockets));
            rows.collect::<Vec<_>>()
        })
        .collect()
}

/// Returns the address in a row of a table of TCP sockets, if it is a listening socket of this set.
fn listening_row(line: &str, sockets: &HashSet<String>) -> Option<IpAddr> {
    const LISTEN: &str = "0A";
    let fields: Vec<&str> = line.split_whitespace().collect();
    if *fields.get(3)? != LISTEN || !sockets.contains(*fields.get(9)?) {
        return None;
    }
    let (address, _) = fields.get(1)?.split_once(':')?;
    // The kernel prints words of 32 bits in the byte order of the machine.
    let mut bytes = Vec::new();
    for word in 0..address.len() / 8 {
        let word = u32::from_str_radix(address.get(word * 8..word * 8 + 8)?, 16).ok()?;
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    match bytes.len() {
        4 => Some(IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        16 => Some(IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?)),
        _ => None,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_sockets_of_this_process_are_found() -> std::io::Result<()> {
        let one = std::net::TcpListener::bind("127.0.0.1:0")?;
        let found = listening(std::process::id() as i32);
        assert!(found.contains(&one.local_addr()?.ip()), "{found:?}");
        Ok(())
    }
}
