//! Runs the product as a child: output with a cap, a deadline, one signal at the right moment, how large it gets.
//! It ends only what it started.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// The most that is kept of one stream.
const MAX_OUTPUT: u64 = 64 << 20;
const TICK: Duration = Duration::from_millis(5);
/// An interpreter, its script and one flag between them.
const FIRST_WORDS: usize = 3;

/// How a child is watched.
pub(crate) struct Watch<'a> {
    pub(crate) deadline: Duration,
    /// Interrupt it, as a person would, once this says so.
    pub(crate) interrupt: Option<&'a (dyn Fn() -> bool + Sync)>,
}

/// What a child came to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Child {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) took: Duration,
    /// It was ended because its time was up.
    pub(crate) overdue: bool,
    /// When it was interrupted, by both clocks.
    pub(crate) interrupted: Option<(Instant, SystemTime)>,
    /// From the interrupt to its end.
    pub(crate) stopped_in: Option<Duration>,
    /// The most memory it had, in bytes.
    pub(crate) memory: u64,
}

/// Runs it to its end, or to its deadline.
pub(crate) fn run(command: Command, watch: &Watch<'_>) -> Result<Child, String> {
    go(command, Stdio::null(), watch, |_, out| Ok(all_of(out)))
}

/// The same, while somebody talks with it over its standard streams. Its input ends when the talk does.
pub(crate) fn talk(
    command: Command,
    watch: &Watch<'_>,
    talk: impl FnOnce(ChildStdin, &mut ChildStdout) -> Result<(), String> + Send,
) -> Result<Child, String> {
    go(command, Stdio::piped(), watch, |input, out| {
        let (Some(input), Some(mut out)) = (input, out) else {
            return Err("it has no streams".to_owned());
        };
        talk(input, &mut out)?;
        Ok(all_of(Some(out)))
    })
}

fn go(
    mut command: Command,
    input: Stdio,
    watch: &Watch<'_>,
    hear: impl FnOnce(Option<ChildStdin>, Option<ChildStdout>) -> Result<String, String> + Send,
) -> Result<Child, String> {
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
        let out = scope.spawn(|| hear(input, out));
        let err = scope.spawn(|| all_of(err));
        let mut ran = Child::default();
        let status = loop {
            ran.memory = ran.memory.max(peak_memory(pid));
            match child.try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) => {}
                Err(_) => break None,
            }
            if ran.interrupted.is_none() && watch.interrupt.is_some_and(|ready| ready()) {
                let _ = Pid::from_raw(pid).map(|pid| kill_process(pid, Signal::INT));
                ran.interrupted = Some((Instant::now(), SystemTime::now()));
            }
            if began.elapsed() > watch.deadline && !ran.overdue {
                ran.overdue = true;
                let _ = Pid::from_raw(pid).map(|pid| kill_process_group(pid, Signal::KILL));
            }
            std::thread::sleep(TICK);
        };
        ran.took = began.elapsed();
        ran.stopped_in = ran.interrupted.map(|(at, _)| at.elapsed());
        ran.code = status.and_then(|status| status.code()).unwrap_or(-1);
        ran.err = err.join().unwrap_or_default();
        ran.out = out
            .join()
            .unwrap_or_else(|_| Err("the talk broke off".to_owned()))
            .map_err(|why| {
                let said: String = ran.err.chars().take(800).collect();
                format!("{program}: {why}; it said: {said}")
            })?;
        Ok(ran)
    })
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

fn peak_memory(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok())
        .unwrap_or(0)
        * 1024
}

/// Processes that name a text in their arguments, environment or folder, each with its arguments; not this one.
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
        let named = contains(&words, text)
            || contains(&bytes("environ"), text)
            || contains(folder.to_string_lossy().as_bytes(), text);
        named.then(|| {
            format!(
                "{pid} {}",
                String::from_utf8_lossy(&words).replace('\0', " ").trim()
            )
        })
    })
    .collect()
}

/// The states of processes that name a text anywhere, by the letter of the kernel.
pub(crate) fn states_of(text: &str) -> Vec<(u32, char)> {
    let state = |line: &String| {
        let pid: u32 = line.split(' ').next()?.parse().ok()?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, rest) = stat.rsplit_once(')')?;
        Some((pid, rest.trim_start().chars().next()?))
    };
    processes_with(text).iter().filter_map(state).collect()
}

/// Ends the processes that name a text anywhere and whose first words hold a name: an agent, not who holds it.
pub(crate) fn end_those_of(text: &str, name: &str) {
    for line in processes_with(text) {
        let (pid, words) = line.split_once(' ').unwrap_or((&line, ""));
        let is_it = words
            .split(' ')
            .take(FIRST_WORDS)
            .any(|word| word.contains(name));
        if let Some(pid) = pid.parse().ok().and_then(Pid::from_raw).filter(|_| is_it) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Whether bytes hold a text.
pub(crate) fn contains(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|window| window == text.as_bytes())
}
