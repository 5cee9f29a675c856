//! Runs a program, counts its operations on files, and strikes at the one it was told: kills it, tears the write, or
//! lets the operation fail. Only threads of the program itself count; what it starts goes on freely.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal};

use crate::op::{self, Kind, Op};
use crate::seccomp::{self, Came, Listener, Notice, Reply};

/// A run that takes longer hangs.
const LONGEST: Duration = Duration::from_secs(60);
/// What is still there so long after the program ended was left behind.
const LEAVE: Duration = Duration::from_secs(10);
/// How often the program's end is looked for while nothing happens.
const TURN: Duration = Duration::from_millis(20);

/// What happens at an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// The process is killed before it.
    Kill,
    /// Half of a write is done, then the process is killed; other operations as with `Kill`.
    Torn,
    /// It and all that follow fail with this error number, as on a disk that is full or gone.
    Fail(i32),
    /// It alone fails with this error number.
    FailOnce(i32),
}

/// The words for it on a command line.
const WORDS: &[(&str, How)] = &[
    ("kill", How::Kill),
    ("torn", How::Torn),
    ("enospc", How::Fail(libc::ENOSPC)),
    ("eio", How::Fail(libc::EIO)),
    ("erofs", How::Fail(libc::EROFS)),
    ("enospc-once", How::FailOnce(libc::ENOSPC)),
    ("eio-once", How::FailOnce(libc::EIO)),
    ("erofs-once", How::FailOnce(libc::EROFS)),
];

impl How {
    /// Every word that is known.
    pub fn words() -> impl Iterator<Item = &'static str> {
        WORDS.iter().map(|(word, _)| *word)
    }

    /// Reads a word.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        WORDS
            .iter()
            .find(|(known, _)| *known == word)
            .map(|(_, how)| *how)
    }

    /// Its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        WORDS
            .iter()
            .find(|(_, how)| *how == self)
            .map_or("fail", |(word, _)| word)
    }

    /// Whether the process ends by it.
    #[must_use]
    pub fn kills(self) -> bool {
        matches!(self, Self::Kill | Self::Torn)
    }
}

/// Where to strike, counted from 1, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Blow {
    pub(crate) at: usize,
    pub(crate) how: How,
}

/// What was seen of one run.
#[derive(Debug)]
pub(crate) struct Seen {
    /// All operations on files, in the order in which they were asked for.
    pub(crate) ops: Vec<Op>,
    /// The operation that was struck.
    pub(crate) hit: Option<Op>,
    pub(crate) status: ExitStatus,
    /// It had to be ended because it took too long.
    pub(crate) hung: bool,
    /// What was still running when nothing should be.
    pub(crate) left: Vec<String>,
}

/// Runs a program under the filter until it and all it started have ended. Files below `apart` do not count.
pub(crate) fn run(command: &mut Command, apart: &Path, blow: Option<Blow>) -> Result<Seen> {
    run_within(command, apart, blow, LEAVE)
}

fn run_within(
    command: &mut Command,
    apart: &Path,
    blow: Option<Blow>,
    leave: Duration,
) -> Result<Seen> {
    let always = op::always();
    let started = seccomp::start(command, &op::asked(&always));
    let (child, listener) = started.context(
        "the binary could not be started under a seccomp filter with a listener (Linux 5.5 or newer, and no container \
         that forbids seccomp with SECCOMP_FILTER_FLAG_NEW_LISTENER)",
    )?;
    let apart = format!("{}/", apart.display());
    let watch = Watch {
        child,
        listener,
        apart,
        blow,
        ops: Vec::new(),
        hit: None,
        others: BTreeSet::new(),
        leave,
    };
    watch.through()
}

struct Watch {
    child: Child,
    listener: Listener,
    apart: String,
    blow: Option<Blow>,
    ops: Vec<Op>,
    hit: Option<Op>,
    /// Processes that the program started.
    others: BTreeSet<u32>,
    /// How long they may stay after its end.
    leave: Duration,
}

impl Watch {
    fn through(mut self) -> Result<Seen> {
        let (began, mut ended, mut hung) = (Instant::now(), None, false);
        let mut left = Vec::new();
        loop {
            match self
                .listener
                .next(TURN)
                .context("the kernel does not ask any more")?
            {
                Came::Over => break,
                Came::Notice(notice) => self.answer(&notice)?,
                Came::Nothing => {}
            }
            if ended.is_none() && self.child.try_wait()?.is_some() {
                ended = Some(Instant::now());
            }
            if ended.is_none() && !hung && began.elapsed() > LONGEST {
                hung = true;
                self.child.kill()?;
            }
            if ended.is_some_and(|ended| ended.elapsed() > self.leave) {
                left = self.end_others();
                break;
            }
        }
        let status = self.child.wait()?;
        Ok(Seen {
            ops: self.ops,
            hit: self.hit,
            status,
            hung,
            left,
        })
    }

    fn answer(&mut self, notice: &Notice) -> Result<()> {
        let main = self.child.id();
        if !Path::new(&format!("/proc/{main}/task/{}", notice.thread)).exists() {
            self.others.insert(notice.thread);
            return Ok(self.listener.reply(notice.id, Reply::GoOn)?);
        }
        let Some(op) = Op::of(notice).filter(|op| !op.path.starts_with(&self.apart)) else {
            return Ok(self.listener.reply(notice.id, Reply::GoOn)?);
        };
        self.ops.push(op.clone());
        let number = self.ops.len();
        let reply = match self.blow {
            Some(Blow {
                at,
                how: How::Kill | How::Torn,
            }) if number > at => return Ok(()),
            Some(Blow { at, how }) if number == at => {
                self.hit = Some(op.clone());
                match how {
                    How::Kill => return self.kill(),
                    How::Torn => {
                        tear(main, notice, &op);
                        return self.kill();
                    }
                    How::Fail(errno) | How::FailOnce(errno) => reply_with(errno, op.kind),
                }
            }
            Some(Blow {
                at,
                how: How::Fail(errno),
            }) if number > at => reply_with(errno, op.kind),
            _ => Reply::GoOn,
        };
        Ok(self.listener.reply(notice.id, reply)?)
    }

    /// Ends the program while the call waits, so that it is never done. Nothing of it is answered any more.
    fn kill(&mut self) -> Result<()> {
        self.child.kill().context("the program could not be killed")
    }

    /// Ends what was left behind, and says what it was.
    fn end_others(&self) -> Vec<String> {
        let mut left = Vec::new();
        for &other in &self.others {
            let Ok(line) = std::fs::read(format!("/proc/{other}/cmdline")) else {
                continue;
            };
            let words = String::from_utf8_lossy(&line).replace('\0', " ");
            left.push(format!("{other} {}", words.trim()));
            let pid = i32::try_from(other).ok().and_then(Pid::from_raw);
            if let Some(pid) = pid {
                // One that has just ended needs no end.
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
        if left.is_empty() {
            vec!["something that changed no file".to_owned()]
        } else {
            left
        }
    }
}

/// A disk that is full still lets go of names and rights.
fn reply_with(errno: i32, kind: Kind) -> Reply {
    let frees = matches!(kind, Kind::Unlink | Kind::Mode);
    if errno == libc::ENOSPC && frees {
        Reply::GoOn
    } else {
        Reply::Fail(errno)
    }
}

/// Does half of a write in the caller's place. What is no plain write is left undone.
fn tear(main: u32, notice: &Notice, op: &Op) {
    let [fd, from, length, offset, ..] = notice.args;
    if !matches!(op.call, "write" | "pwrite64") {
        return;
    }
    let half = usize::try_from(length).unwrap_or(0) / 2;
    let Some(bytes) = op::memory(notice.thread, from, half) else {
        return;
    };
    let pid = i32::try_from(main).ok().and_then(Pid::from_raw);
    let Some(Ok(process)) = pid.map(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()))
    else {
        return;
    };
    let Ok(file) = rustix::process::pidfd_getfd(process, fd as i32, PidfdGetfdFlags::empty())
    else {
        return;
    };
    // A handle without a place for it writes nothing, and then it is a plain kill.
    let _ = if op.call == "write" {
        rustix::io::write(&file, &bytes)
    } else {
        rustix::io::pwrite(&file, &bytes, offset)
    };
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use windlass_needs::{Need, lacks};

    use super::*;

    /// A shell that writes two lines into one file: two files are opened for it, and two writes are made. What its
    /// child does counts for nothing.
    #[track_caller]
    fn check(blow: Option<(usize, How)>, ops: &str, expect: Option<&str>) {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", "echo once > file; echo twice >> file; touch child"])
            .current_dir(dir.path());
        command.stderr(std::process::Stdio::null());
        let blow = blow.map(|(at, how)| Blow { at, how });
        let seen = run(&mut command, Path::new("/nowhere"), blow).unwrap();
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
            blow.is_some_and(|blow| blow.how.kills())
        );
        assert!(seen.hit.is_some() == blow.is_some() && seen.left.is_empty() && !seen.hung);
    }

    #[test]
    fn each_operation_of_the_program_itself_is_counted_and_can_be_struck() {
        if lacks(Need::Notifications) {
            return;
        }
        check(None, "create write create write", Some("once\ntwice\n"));
        check(Some((1, How::Kill)), "create", None);
        check(Some((2, How::Kill)), "create write", Some(""));
        check(
            Some((4, How::Kill)),
            "create write create write",
            Some("once\n"),
        );
        check(
            Some((2, How::FailOnce(libc::EIO))),
            "create write create write",
            Some("twice\n"),
        );
        check(
            Some((2, How::Fail(libc::ENOSPC))),
            "create write create",
            Some(""),
        );
    }

    #[test]
    fn half_of_a_write_is_made_in_its_place() {
        if lacks(Need::Notifications) || lacks(Need::PidfdGetfd) {
            return;
        }
        check(
            Some((4, How::Torn)),
            "create write create write",
            Some("once\ntwi"),
        );
    }

    #[test]
    fn what_is_left_running_is_told_and_ended() {
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
