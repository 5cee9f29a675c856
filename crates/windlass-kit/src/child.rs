//! Runs the product as a child process, with a limit on its output, a deadline, and an interrupt on a condition, and
//! measures its memory. It kills only processes that it started.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// The maximum size of the kept output of one stream, in bytes.
const MAX_OUTPUT: u64 = 64 << 20;
const TICK: Duration = Duration::from_millis(5);
/// The arguments that may name the agent's program: an interpreter, one flag and a script.
const PROGRAM_ARGS: usize = 3;

/// The deadline and the interrupt of a child process.
pub(crate) struct WatchOptions<'a> {
    pub(crate) deadline: Duration,
    /// Sends SIGINT, as a user would, once this returns true.
    pub(crate) interrupt: Option<&'a (dyn Fn() -> bool + Sync)>,
}

/// The result of a child process.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChildRun {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) took: Duration,
    /// The process was killed at the deadline.
    pub(crate) overdue: bool,
    /// The time of the interrupt, by both clocks.
    pub(crate) interrupted: Option<(Instant, SystemTime)>,
    /// The time from the interrupt to the exit.
    pub(crate) stopped_in: Option<Duration>,
    /// The peak resident memory, in bytes.
    pub(crate) memory: u64,
}

/// Runs a command until it exits, or until the deadline.
pub(crate) fn run(command: Command, watch: &WatchOptions<'_>) -> Result<ChildRun, String> {
    run_with(command, Stdio::null(), watch, |_, out| Ok(all_of(out)))
}

/// Runs a command while `talk` exchanges messages over its stdin and stdout. Its stdin closes when `talk` returns.
pub(crate) fn talk(
    command: Command,
    watch: &WatchOptions<'_>,
    talk: impl FnOnce(ChildStdin, &mut ChildStdout) -> Result<(), String> + Send,
) -> Result<ChildRun, String> {
    run_with(command, Stdio::piped(), watch, |input, out| {
        let (Some(input), Some(mut out)) = (input, out) else {
            return Err("the process has no stdin and stdout".to_owned());
        };
        talk(input, &mut out)?;
        Ok(all_of(Some(out)))
    })
}

fn run_with(
    mut command: Command,
    input: Stdio,
    watch: &WatchOptions<'_>,
    exchange: impl FnOnce(Option<ChildStdin>, Option<ChildStdout>) -> Result<String, String> + Send,
) -> Result<ChildRun, String> {
    command
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let program = command.get_program().to_string_lossy().into_owned();
    let began = Instant::now();
    let mut child = command
        .spawn()
        .map_err(|err| format!("{program} cannot be started: {err}"))?;
    let pid = child.id() as i32;
    let (input, out, err) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    std::thread::scope(|scope| {
        let out = scope.spawn(|| exchange(input, out));
        let err = scope.spawn(|| all_of(err));
        let mut run = ChildRun::default();
        let status = loop {
            run.memory = run.memory.max(peak_memory(pid));
            match child.try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) => {}
                Err(_) => break None,
            }
            if run.interrupted.is_none() && watch.interrupt.is_some_and(|ready| ready()) {
                let _ = Pid::from_raw(pid).map(|pid| kill_process(pid, Signal::INT));
                run.interrupted = Some((Instant::now(), SystemTime::now()));
            }
            if began.elapsed() > watch.deadline && !run.overdue {
                run.overdue = true;
                let _ = Pid::from_raw(pid).map(|pid| kill_process_group(pid, Signal::KILL));
            }
            std::thread::sleep(TICK);
        };
        run.took = began.elapsed();
        run.stopped_in = run.interrupted.map(|(at, _)| at.elapsed());
        run.code = status.and_then(|status| status.code()).unwrap_or(-1);
        run.err = err.join().unwrap_or_default();
        run.out = out
            .join()
            .unwrap_or_else(|_| Err("the exchange panicked".to_owned()))
            .map_err(|why| {
                let stderr: String = run.err.chars().take(800).collect();
                format!("{program}: {why}; stderr: {stderr}")
            })?;
        Ok(run)
    })
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

fn peak_memory(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok())
        .unwrap_or(0)
        * 1024
}

/// Lists the processes that contain a text in their arguments, environment or working directory, each as its pid and
/// arguments. Omits this process.
pub(crate) fn processes_with(text: &str) -> Vec<String> {
    let own = std::process::id();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| *pid != own);
    pids.filter_map(|pid| {
        let bytes = |file: &str| std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let words = bytes("cmdline");
        let folder = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
        let matches = contains(&words, text)
            || contains(&bytes("environ"), text)
            || contains(folder.to_string_lossy().as_bytes(), text);
        matches.then(|| {
            format!(
                "{pid} {}",
                String::from_utf8_lossy(&words).replace('\0', " ").trim()
            )
        })
    })
    .collect()
}

/// Returns the kernel's state letter of each process that contains a text, as in [`processes_with`].
pub(crate) fn states_of(text: &str) -> Vec<(u32, char)> {
    let state = |line: &String| {
        let pid: u32 = line.split(' ').next()?.parse().ok()?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, rest) = stat.rsplit_once(')')?;
        Some((pid, rest.trim_start().chars().next()?))
    };
    processes_with(text).iter().filter_map(state).collect()
}

/// Kills the processes that contain a text and whose first arguments contain a name: the agent, not its supervisor.
pub(crate) fn kill_agent(text: &str, name: &str) {
    for line in processes_with(text) {
        let (pid, words) = line.split_once(' ').unwrap_or((&line, ""));
        let is_agent = words
            .split(' ')
            .take(PROGRAM_ARGS)
            .any(|word| word.contains(name));
        if let Some(pid) = pid
            .parse()
            .ok()
            .and_then(Pid::from_raw)
            .filter(|_| is_agent)
        {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Returns whether the bytes contain a text.
pub(crate) fn contains(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|window| window == text.as_bytes())
}
