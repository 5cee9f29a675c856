//! Runs the product as a child and watches it: output with a cap, a deadline, how large it gets, what it starts.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::census;

/// The most that is kept of one stream.
const MAX_OUTPUT: u64 = 96 << 20;
const TICK: Duration = Duration::from_millis(4);

/// How a child is run and what is watched.
pub(crate) struct Watch<'a> {
    pub(crate) deadline: Duration,
    /// Text that must be in nobody's arguments.
    pub(crate) argument: Option<String>,
    /// Count what it starts.
    pub(crate) processes: bool,
    /// Send this signal once this says so.
    pub(crate) signal: Option<(Signal, &'a dyn Fn() -> bool)>,
}

impl Default for Watch<'_> {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(60),
            argument: None,
            processes: false,
            signal: None,
        }
    }
}

/// What a child came to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) took: Duration,
    /// It was ended because its time was up.
    pub(crate) overdue: bool,
    /// From the signal to the end, when there was one.
    pub(crate) stopped_in: Option<Duration>,
    pub(crate) seen: Seen,
}

/// What was seen while it ran.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    /// The most memory the engine had, in bytes.
    pub(crate) memory: u64,
    /// The most processes it had at once.
    pub(crate) processes: usize,
    /// Somebody's arguments held the text.
    pub(crate) argument: bool,
    /// Names of children that had a controlling terminal.
    pub(crate) with_terminal: Vec<String>,
}

impl Seen {
    /// One look at a running engine.
    pub(crate) fn look(&mut self, pid: i32, watch: &Watch<'_>) {
        self.memory = self.memory.max(census::peak_memory(pid));
        if let Some(text) = &watch.argument {
            self.argument |= !census::with_argument(text).is_empty();
        }
        if watch.processes {
            let all = census::all();
            let own = all
                .iter()
                .find(|process| process.pid == pid)
                .map(|process| process.name.clone());
            let below = census::descendants(pid, &all);
            self.processes = self.processes.max(below.len());
            for process in all
                .iter()
                .filter(|process| below.contains(&process.pid) && process.tty != 0)
            {
                // A helper of the engine has the engine's name or runs the engine's program until it becomes the command.
                let ours = Some(&process.name) == own.as_ref()
                    || census::program(process.pid) == census::program(pid);
                if !ours && !self.with_terminal.contains(&process.name) {
                    self.with_terminal.push(process.name.clone());
                }
            }
        }
    }
}

/// Runs it to its end, or to its deadline.
pub(crate) fn run(mut command: Command, watch: &Watch<'_>) -> Result<Ran, String> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let program = command.get_program().to_string_lossy().into_owned();
    let began = Instant::now();
    let mut child = command
        .spawn()
        .map_err(|err| format!("{program} cannot be started: {err}"))?;
    let pid = child.id() as i32;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    std::thread::scope(|scope| {
        let out = scope.spawn(|| all_of(out));
        let err = scope.spawn(|| all_of(err));
        let mut ran = Ran::default();
        let mut told: Option<Instant> = None;
        let status = loop {
            ran.seen.look(pid, watch);
            match child.try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) => {}
                Err(_) => break None,
            }
            if let Some((signal, ready)) = watch.signal
                && told.is_none()
                && ready()
            {
                let _ = Pid::from_raw(pid).map(|pid| kill_process(pid, signal));
                told = Some(Instant::now());
            }
            if began.elapsed() > watch.deadline && !ran.overdue {
                ran.overdue = true;
                end_tree(pid);
            }
            std::thread::sleep(TICK);
        };
        ran.took = began.elapsed();
        ran.stopped_in = told.map(|told| told.elapsed());
        ran.code = status.and_then(|status| status.code()).unwrap_or(-1);
        ran.out = out.join().unwrap_or_default();
        ran.err = err.join().unwrap_or_default();
        Ok(ran)
    })
}

/// Ends a process with everything below it.
pub(crate) fn end_tree(pid: i32) {
    let below = census::descendants(pid, &census::all());
    census::end(pid);
    below.into_iter().for_each(census::end);
}

/// What a pipe says, up to the cap; the rest is read and dropped, so that nobody blocks.
fn all_of(pipe: Option<impl Read>) -> String {
    let mut all = Vec::new();
    if let Some(mut pipe) = pipe {
        let _ = pipe.by_ref().take(MAX_OUTPUT).read_to_end(&mut all);
        let _ = std::io::copy(&mut pipe, &mut std::io::sink());
    }
    String::from_utf8_lossy(&all).into_owned()
}
