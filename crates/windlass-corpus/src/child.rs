//! Runs the product as a child process and watches it: output with a limit, a deadline, its memory, and the processes
//! it starts.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::processes;

/// The most bytes that are kept of one stream.
const MAX_OUTPUT: u64 = 96 << 20;
const TICK: Duration = Duration::from_millis(4);

/// The deadline of a child, and the observations to make while it runs.
pub(crate) struct ChildWatch<'a> {
    pub(crate) deadline: Duration,
    /// Text that must not occur in the arguments of any process.
    pub(crate) argument: Option<String>,
    /// Count the processes that it starts.
    pub(crate) processes: bool,
    /// Send this signal once the function returns true.
    pub(crate) signal: Option<(Signal, &'a dyn Fn() -> bool)>,
}

impl Default for ChildWatch<'_> {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(60),
            argument: None,
            processes: false,
            signal: None,
        }
    }
}

/// The result of a child.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChildResult {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) took: Duration,
    /// It was killed at its deadline.
    pub(crate) overdue: bool,
    /// The time from the signal to the end, if a signal was sent.
    pub(crate) stopped_in: Option<Duration>,
    pub(crate) seen: ChildObservations,
}

/// Observations while the child ran.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChildObservations {
    /// The peak memory of the engine, in bytes.
    pub(crate) memory: u64,
    /// The most processes at a time.
    pub(crate) processes: usize,
    /// The arguments of some process contained the text.
    pub(crate) argument: bool,
    /// Names of children that had a controlling terminal.
    pub(crate) with_terminal: Vec<String>,
}

impl ChildObservations {
    /// Takes one sample of a running engine.
    pub(crate) fn sample(&mut self, pid: i32, watch: &ChildWatch<'_>) {
        self.memory = self.memory.max(processes::peak_memory(pid));
        if let Some(text) = &watch.argument {
            self.argument |= !processes::with_argument(text).is_empty();
        }
        if watch.processes {
            let all = processes::all();
            let own = all
                .iter()
                .find(|process| process.pid == pid)
                .map(|process| process.name.clone());
            let below = processes::descendants(pid, &all);
            self.processes = self.processes.max(below.len());
            for process in all
                .iter()
                .filter(|process| below.contains(&process.pid) && process.tty != 0)
            {
                // A helper of the engine has the engine's name, or runs the engine's program until it executes the
                // command.
                let ours = Some(&process.name) == own.as_ref()
                    || processes::program(process.pid) == processes::program(pid);
                if !ours && !self.with_terminal.contains(&process.name) {
                    self.with_terminal.push(process.name.clone());
                }
            }
        }
    }
}

/// Runs the child to its end, or kills it at its deadline.
pub(crate) fn run(mut command: Command, watch: &ChildWatch<'_>) -> Result<ChildResult, String> {
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
        let mut ran = ChildResult::default();
        let mut told: Option<Instant> = None;
        let status = loop {
            ran.seen.sample(pid, watch);
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

/// Kills a process and all its descendants.
pub(crate) fn end_tree(pid: i32) {
    let below = processes::descendants(pid, &processes::all());
    processes::kill(pid);
    below.into_iter().for_each(processes::kill);
}

/// Reads a pipe up to the limit. The rest is read and dropped, so that the writer does not block.
fn all_of(pipe: Option<impl Read>) -> String {
    let mut all = Vec::new();
    if let Some(mut pipe) = pipe {
        let _ = pipe.by_ref().take(MAX_OUTPUT).read_to_end(&mut all);
        let _ = std::io::copy(&mut pipe, &mut std::io::sink());
    }
    String::from_utf8_lossy(&all).into_owned()
}
