//! Measures the overhead of the envelope: runs a real agent with a hundred steps through windlass and without it,
//! alternately, against the same scripted model. Also measures the time from an interrupt to the end of a run. It has
//! no thresholds.

mod bare;
mod one_shot;
mod table;

pub use table::table;

use std::time::{Duration, Instant};

use crate::holds;
use crate::product::{Product, RunRequest};
use crate::runtime::KitRuntime;
use crate::scratch_dir::ScratchDir;
use windlass_scripted::{Move, RecordedRequest, Script, Server};

/// The settings of a measurement.
pub struct Speed {
    pub product: Product,
    /// The number of commands that the model requests in one run, one per step.
    pub steps: usize,
    /// The number of measured pairs of runs, after one warm-up pair.
    pub times: usize,
    /// The baseline of the comparison.
    pub floor: Floor,
}

/// The way in which the agent runs without windlass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Floor {
    /// The same protocol, with a loop that allows every call.
    #[default]
    Protocol,
    /// The agent's own command for one prompt, with approvals off.
    OneShot,
}

/// The measurements of one run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SpeedSample {
    /// From the start of the process to its exit.
    pub whole: Duration,
    /// From the first model request to the last.
    pub steps: Duration,
    /// The CPU time of the process and the children that it waited for. Through windlass this is only windlass itself,
    /// because no process outside the sandbox waits for those inside.
    pub cpu: Duration,
    /// The number of work requests.
    pub requests: usize,
    /// The size of the last request.
    pub bytes: usize,
}

/// The measurements of one runtime.
#[derive(Debug, Clone)]
pub struct Measured {
    /// The short name of the runtime.
    pub name: String,
    /// Each run through windlass with its bare run, in chronological order.
    pub pairs: Vec<(SpeedSample, SpeedSample)>,
    /// From an interrupt while the model is thinking to the terminal event.
    pub cancel_thinking: Vec<Duration>,
    /// From an interrupt while a command runs to the terminal event.
    pub cancel_command: Vec<Duration>,
}

impl Speed {
    /// Measures one runtime, and passes each pair to `tell`.
    ///
    /// # Errors
    /// If a run does not complete all its steps.
    pub fn measure(
        &self,
        runtime: &KitRuntime,
        tell: &dyn Fn(&(SpeedSample, SpeedSample)),
    ) -> Result<Measured, String> {
        let mut pairs = Vec::new();
        for at in 0..=self.times {
            // The order alternates, so that neither always benefits from the caches that the other filled.
            let pair = if at % 2 == 0 {
                let bare = bare(runtime, self.steps, self.floor)?;
                (self.through(runtime)?, bare)
            } else {
                (
                    self.through(runtime)?,
                    bare(runtime, self.steps, self.floor)?,
                )
            };
            if at > 0 {
                tell(&pair);
                pairs.push(pair);
            }
        }
        let cancels =
            |cancel: &dyn Fn() -> Result<Duration, String>| -> Result<Vec<Duration>, String> {
                (0..self.times).map(|_| cancel()).collect()
            };
        Ok(Measured {
            name: runtime.short(),
            pairs,
            cancel_thinking: cancels(&|| self.cancel(runtime, |_| Move::Hang, |_, work| work > 0))?,
            cancel_command: cancels(&|| {
                let sleep =
                    |scratch: &ScratchDir| Move::Shell(format!("sleep {}", scratch.seconds));
                self.cancel(runtime, sleep, |scratch, _| scratch.has_sleeper())
            })?,
        })
    }

    /// Measures a run through windlass.
    fn through(&self, runtime: &KitRuntime) -> Result<SpeedSample, String> {
        let (scratch, server) = set_up(self.steps)?;
        let (before, most) = (children_cpu(), (self.steps * 2).to_string());
        let ask = RunRequest::flags(&["--max-steps", &most, "--max-tokens", "unlimited"]);
        let ran = self.product.run(runtime, &scratch, &server, &ask)?;
        let cpu = children_cpu().saturating_sub(before);
        holds(ran.child.code == 0, || {
            format!("`{runtime}` through windlass: {}", ran.summary())
        })?;
        sample(ran.child.took, cpu, &server, self.steps)
    }

    /// Measures the time from an interrupt to the terminal event.
    fn cancel(
        &self,
        runtime: &KitRuntime,
        first: impl Fn(&ScratchDir) -> Move,
        ready: impl Fn(&ScratchDir, usize) -> bool + Sync,
    ) -> Result<Duration, String> {
        let scratch = ScratchDir::new()?;
        let server = serve(&scratch, vec![first(&scratch)])?;
        let interrupt = || ready(&scratch, work(&server).len());
        let ran = self.product.run(
            runtime,
            &scratch,
            &server,
            &RunRequest {
                interrupt: Some(&interrupt),
                ..RunRequest::default()
            },
        )?;
        holds(ran.outcome() == "cancelled", || {
            format!("`{runtime}` was interrupted: {}", ran.summary())
        })?;
        ran.cancelled_in()
    }
}

/// Measures a run without windlass.
///
/// # Errors
/// If it does not complete all its steps.
pub fn bare(runtime: &KitRuntime, steps: usize, floor: Floor) -> Result<SpeedSample, String> {
    let (scratch, server) = set_up(steps)?;
    let before = children_cpu();
    let ran = match floor {
        Floor::Protocol => bare::run(runtime, &scratch, &server)?,
        Floor::OneShot => one_shot::run(runtime, &scratch, &server)?,
    };
    sample(
        ran.took,
        children_cpu().saturating_sub(before),
        &server,
        steps,
    )
}

fn set_up(steps: usize) -> Result<(ScratchDir, Server), String> {
    let scratch = ScratchDir::new()?;
    // Every command is different, because agents stop when they detect a loop. Agents must not consider it harmless, so
    // that they ask before it.
    let mut moves: Vec<Move> = (1..steps)
        .map(|step| Move::Shell(format!("test {step} -gt 0")))
        .collect();
    // A run without changes would fail.
    moves.push(Move::Shell("echo done > done.txt".to_owned()));
    moves.push(Move::Say("All steps are done.".to_owned()));
    let server = serve(&scratch, moves)?;
    Ok((scratch, server))
}

fn serve(scratch: &ScratchDir, moves: Vec<Move>) -> Result<Server, String> {
    Server::start(Script::new(&scratch.work(), moves))
        .map_err(|err| format!("the model server cannot listen: {err}"))
}

fn work(server: &Server) -> Vec<RecordedRequest> {
    server.seen().into_iter().filter(|seen| seen.work).collect()
}

fn sample(
    whole: Duration,
    cpu: Duration,
    server: &Server,
    steps: usize,
) -> Result<SpeedSample, String> {
    let seen = work(server);
    let at: Vec<Instant> = seen.iter().map(|seen| seen.at).collect();
    holds(at.len() > steps, || {
        format!("the model got {} requests for {steps} steps", at.len())
    })?;
    let span = at
        .first()
        .zip(at.last())
        .map(|(first, last)| last.duration_since(*first));
    Ok(SpeedSample {
        whole,
        steps: span.unwrap_or_default(),
        cpu,
        requests: at.len(),
        bytes: seen.last().map_or(0, |seen| seen.bytes),
    })
}

/// Returns the CPU time of all reaped children, including their own reaped children.
fn children_cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name in parentheses may contain spaces and parentheses.
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .map_or("", |(_, rest)| rest)
        .split_whitespace()
        .collect();
    let ticks = |at: usize| {
        fields
            .get(at)
            .and_then(|field| field.parse::<u64>().ok())
            .unwrap_or(0)
    };
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Duration::from_micros((ticks(13) + ticks(14)) * 1_000_000 / per_second)
}

/// Returns the load average of the last minute. Measurements on a loaded machine are not valid.
#[must_use]
pub fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace()
        .next()
        .unwrap_or("unknown")
        .to_owned()
}
