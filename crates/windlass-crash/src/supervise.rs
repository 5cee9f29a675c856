//! Runs a program, counts its operations on files, and injects a fault at a given one: kills the program, tears the
//! write, or lets the operation fail. Only threads of the program itself count; its children run freely.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal};

use crate::op::{self, Op, OpKind};
use crate::seccomp::{self, ListenEvent, SeccompListener, SyscallNotice, SyscallReply};

/// A run that takes longer is considered hung.
const MAX_RUN_TIME: Duration = Duration::from_secs(60);
/// Processes that still run this long after the program ended were left behind.
const LEAVE_TIME: Duration = Duration::from_secs(10);
/// The interval for checking whether the program ended.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The kind of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// Kill the process before the operation.
    Kill,
    /// Do half of a write, then kill the process; same as `Kill` for other operations.
    Torn,
    /// Let this and all later operations fail with this error number, as on a disk that is full or gone.
    Fail(i32),
    /// Let only this operation fail with this error number.
    FailOnce(i32),
}

/// The words on a command line.
const WORDS: &[(&str, FaultKind)] = &[
    ("kill", FaultKind::Kill),
    ("torn", FaultKind::Torn),
    ("enospc", FaultKind::Fail(libc::ENOSPC)),
    ("eio", FaultKind::Fail(libc::EIO)),
    ("erofs", FaultKind::Fail(libc::EROFS)),
    ("enospc-once", FaultKind::FailOnce(libc::ENOSPC)),
    ("eio-once", FaultKind::FailOnce(libc::EIO)),
    ("erofs-once", FaultKind::FailOnce(libc::EROFS)),
];

impl FaultKind {
    /// Returns the words of all kinds, for messages.
    pub fn words() -> impl Iterator<Item = &'static str> {
        WORDS.iter().map(|(word, _)| *word)
    }

    /// Parses a word of the command line.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        WORDS
            .iter()
            .find(|(known, _)| *known == word)
            .map(|(_, kind)| *kind)
    }

    /// Returns the word for the command line.
    #[must_use]
    pub fn word(self) -> &'static str {
        WORDS
            .iter()
            .find(|(_, kind)| *kind == self)
            .map_or("fail", |(word, _)| word)
    }

    /// Returns whether the fault kills the process.
    #[must_use]
    pub fn kills(self) -> bool {
        matches!(self, Self::Kill | Self::Torn)
    }
}

/// The number of the operation, from 1, and the kind of fault.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FaultPoint {
    pub(crate) at: usize,
    pub(crate) kind: FaultKind,
}

/// The observations of one run.
#[derive(Debug)]
pub(crate) struct SupervisedRun {
    /// All operations on files, in the order of their requests.
    pub(crate) ops: Vec<Op>,
    /// The operation with the fault.
    pub(crate) hit: Option<Op>,
    pub(crate) status: ExitStatus,
    /// The program was killed because it took too long.
    pub(crate) hung: bool,
    /// Processes that were still running at the end.
    pub(crate) left: Vec<String>,
}

/// Runs a program under the filter until it and all its children have ended. Files below `ignored` do not count.
pub(crate) fn run(
    command: &mut Command,
    ignored: &Path,
    fault: Option<FaultPoint>,
) -> Result<SupervisedRun> {
    run_within(command, ignored, fault, LEAVE_TIME)
}

fn run_within(
    command: &mut Command,
    ignored: &Path,
    fault: Option<FaultPoint>,
    leave: Duration,
) -> Result<SupervisedRun> {
    let always = op::always();
    let started = seccomp::start(command, &op::asked(&always));
    let (child, listener) = started.context(
        "cannot start the binary under a seccomp filter with a listener (this needs Linux 5.5 or newer, and no container \
         that forbids seccomp with SECCOMP_FILTER_FLAG_NEW_LISTENER)",
    )?;
    let ignored = format!("{}/", ignored.display());
    let watch = OpSupervisor {
        child,
        listener,
        ignored,
        fault,
        ops: Vec::new(),
        hit: None,
        others: BTreeSet::new(),
        leave,
    };
    watch.supervise()
}

struct OpSupervisor {
    child: Child,
    listener: SeccompListener,
    ignored: String,
    fault: Option<FaultPoint>,
    ops: Vec<Op>,
    hit: Option<Op>,
    /// Processes that the program started.
    others: BTreeSet<u32>,
    /// The time that they may run after the program ended.
    leave: Duration,
}

impl OpSupervisor {
    fn supervise(mut self) -> Result<SupervisedRun> {
        let (began, mut ended, mut hung) = (Instant::now(), None, false);
        let mut left = Vec::new();
        loop {
            match self
                .listener
                .next(POLL_INTERVAL)
                .context("cannot receive seccomp notifications")?
            {
                ListenEvent::Over => break,
                ListenEvent::SyscallNotice(notice) => self.answer(&notice)?,
                ListenEvent::Nothing => {}
            }
            if ended.is_none() && self.child.try_wait()?.is_some() {
                ended = Some(Instant::now());
            }
            if ended.is_none() && !hung && began.elapsed() > MAX_RUN_TIME {
                hung = true;
                self.child.kill()?;
            }
            if ended.is_some_and(|ended| ended.elapsed() > self.leave) {
                left = self.kill_others();
                break;
            }
        }
        let status = self.child.wait()?;
        Ok(SupervisedRun {
            ops: self.ops,
            hit: self.hit,
            status,
            hung,
            left,
        })
    }

    fn answer(&mut self, notice: &SyscallNotice) -> Result<()> {
        let main = self.child.id();
        if !Path::new(&format!("/proc/{main}/task/{}", notice.thread)).exists() {
            self.others.insert(notice.thread);
            return Ok(self.listener.reply(notice.id, SyscallReply::Continue)?);
        }
        let Some(op) = Op::of(notice).filter(|op| !op.path.starts_with(&self.ignored)) else {
            return Ok(self.listener.reply(notice.id, SyscallReply::Continue)?);
        };
        self.ops.push(op.clone());
        let number = self.ops.len();
        let reply = match self.fault {
            Some(FaultPoint {
                at,
                kind: FaultKind::Kill | FaultKind::Torn,
            }) if number > at => return Ok(()),
            Some(FaultPoint { at, kind }) if number == at => {
                self.hit = Some(op.clone());
                match kind {
                    FaultKind::Kill => return self.kill(),
                    FaultKind::Torn => {
                        tear(main, notice, &op);
                        return self.kill();
                    }
                    FaultKind::Fail(errno) | FaultKind::FailOnce(errno) => {
                        reply_with(errno, op.kind)
                    }
                }
            }
            Some(FaultPoint {
                at,
                kind: FaultKind::Fail(errno),
            }) if number > at => reply_with(errno, op.kind),
            _ => SyscallReply::Continue,
        };
        Ok(self.listener.reply(notice.id, reply)?)
    }

    /// Kills the program while the call waits, so that the call is never executed. Later calls get no reply.
    fn kill(&mut self) -> Result<()> {
        self.child.kill().context("cannot kill the program")
    }

    /// Kills the processes that were left behind, and returns their command lines.
    fn kill_others(&self) -> Vec<String> {
        let mut left = Vec::new();
        for &other in &self.others {
            let Ok(line) = std::fs::read(format!("/proc/{other}/cmdline")) else {
                continue;
            };
            let words = String::from_utf8_lossy(&line).replace('\0', " ");
            left.push(format!("{other} {}", words.trim()));
            let pid = i32::try_from(other).ok().and_then(Pid::from_raw);
            if let Some(pid) = pid {
                // An error means that the process has just ended.
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
        if left.is_empty() {
            vec!["a process that changed no file".to_owned()]
        } else {
            left
        }
    }
}

/// A full disk still permits removing names and changing permissions.
fn reply_with(errno: i32, kind: OpKind) -> SyscallReply {
    let frees = matches!(kind, OpKind::Unlink | OpKind::Mode);
    if errno == libc::ENOSPC && frees {
        SyscallReply::Continue
    } else {
        SyscallReply::Fail(errno)
    }
}

/// Does half of a write for the caller. The lines of a log are vectored writes. Other calls are not executed at all.
fn tear(main: u32, notice: &SyscallNotice, op: &Op) {
    let [fd, from, length, offset, ..] = notice.args;
    let length = usize::try_from(length).unwrap_or(0);
    let bytes = match op.call {
        "write" | "pwrite64" => op::memory(notice.thread, from, length),
        "writev" => op::vectored_memory(notice.thread, from, length),
        _ => return,
    };
    let Some(mut bytes) = bytes else {
        return;
    };
    bytes.truncate(bytes.len() / 2);
    let pid = i32::try_from(main).ok().and_then(Pid::from_raw);
    let Some(Ok(process)) = pid.map(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()))
    else {
        return;
    };
    let Ok(file) = rustix::process::pidfd_getfd(process, fd as i32, PidfdGetfdFlags::empty())
    else {
        return;
    };
    // If the descriptor is not writable, nothing is written, and it is a plain kill.
    let _ = if op.call == "pwrite64" {
        rustix::io::pwrite(&file, &bytes, offset)
    } else {
        rustix::io::write(&file, &bytes)
    };
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use windlass_needs::{Need, lacks};

    use super::*;

    /// Runs a shell that writes two lines to one file: it opens two files and makes two writes. The operations of its
    /// child do not count.
    #[track_caller]
    fn check(fault: Option<(usize, FaultKind)>, ops: &str, expect: Option<&str>) {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", "echo once > file; echo twice >> file; touch child"])
            .current_dir(dir.path());
        command.stderr(std::process::Stdio::null());
        let fault = fault.map(|(at, kind)| FaultPoint { at, kind });
        let seen = run(&mut command, Path::new("/nowhere"), fault).unwrap();
        let kinds: Vec<&str> = seen.ops.iter().map(|op| op.kind.word()).collect();
        assert_eq!(kinds.join(" "), ops);
        assert!(
            seen.ops.iter().all(|op| op.path.ends_with("/file")),
            "{:?}",
            seen.ops
        );
        assert_eq!(
            std::fs::read_to_string(dir.path().join("file"))
                .ok()
                .as_deref(),
            expect
        );
        assert_eq!(
            seen.status.code().is_none(),
            fault.is_some_and(|fault| fault.kind.kills())
        );
        assert!(seen.hit.is_some() == fault.is_some() && seen.left.is_empty() && !seen.hung);
    }

    #[test]
    fn each_operation_of_the_program_itself_is_counted_and_can_fail() {
        if lacks(Need::Notifications) {
            return;
        }
        check(None, "create write create write", Some("once\ntwice\n"));
        check(Some((1, FaultKind::Kill)), "create", None);
        check(Some((2, FaultKind::Kill)), "create write", Some(""));
        check(
            Some((4, FaultKind::Kill)),
            "create write create write",
            Some("once\n"),
        );
        check(
            Some((2, FaultKind::FailOnce(libc::EIO))),
            "create write create write",
            Some("twice\n"),
        );
        check(
            Some((2, FaultKind::Fail(libc::ENOSPC))),
            "create write create",
            Some(""),
        );
    }

    #[test]
    fn a_torn_write_writes_half_of_the_bytes() {
        if lacks(Need::Notifications) || lacks(Need::PidfdGetfd) {
            return;
        }
        check(
            Some((4, FaultKind::Torn)),
            "create write create write",
            Some("once\ntwi"),
        );
    }

    const VECTORED_FILE: &str = "WINDLASS_TEST_VECTORED_FILE";

    #[test]
    #[ignore = "the program of the test below, which starts it"]
    fn a_program_with_a_vectored_write() {
        use std::io::{IoSlice, Write as _};
        let Some(path) = std::env::var_os(VECTORED_FILE) else {
            return;
        };
        let mut file = std::fs::File::create(path).unwrap();
        let slices = [IoSlice::new(b"first "), IoSlice::new(b"second")];
        assert_eq!(file.write_vectored(&slices).unwrap(), 12);
    }

    #[test]
    fn a_torn_vectored_write_writes_half_of_the_bytes() {
        if lacks(Need::Notifications) || lacks(Need::PidfdGetfd) {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--ignored", "--exact"])
            .arg("supervise::tests::a_program_with_a_vectored_write")
            .env(VECTORED_FILE, &path)
            .stdout(std::process::Stdio::null());
        let fault = FaultPoint {
            at: 2,
            kind: FaultKind::Torn,
        };
        let seen = run(&mut command, Path::new("/nowhere"), Some(fault)).unwrap();
        assert_eq!(seen.hit.map(|op| op.call), Some("writev"));
        assert_eq!(std::fs::read(&path).unwrap(), b"first ");
    }

    #[test]
    fn processes_left_running_are_reported_and_killed() {
        if lacks(Need::Notifications) {
            return;
        }
        let mut command = Command::new("/bin/sh");
        command.args([
            "-c",
            "(echo here > /dev/null; exec sleep 1000) & echo > /dev/null",
        ]);
        let seen = run_within(
            &mut command,
            Path::new("/nowhere"),
            None,
            Duration::from_millis(300),
        )
        .unwrap();
        assert_eq!(seen.left.len(), 1, "{:?}", seen.left);
        assert!(seen.left[0].ends_with("sleep 1000"), "{:?}", seen.left);
    }
}
