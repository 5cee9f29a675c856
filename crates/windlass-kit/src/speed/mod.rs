//! What the envelope costs: a hundred steps of a real agent through windlass beside the same agent bare, in turn, against
//! the same scripted model; and how soon an interrupt ends a run. It judges nothing; whoever reads the table does.

mod bare;
mod one_shot;
mod table;

pub use table::table;

use std::time::{Duration, Instant};

use crate::holds;
use crate::place::Place;
use crate::product::{Ask, Product};
use crate::runtime::Runtime;
use windlass_scripted::{Move, RecordedRequest, Script, Server};

/// What to measure.
pub struct Speed {
    /// The product.
    pub product: Product,
    /// Commands that the model asks for in one run, each in a step of its own.
    pub steps: usize,
    /// How often each is run, after one run each that is not counted.
    pub times: usize,
    /// The program that windlass is compared with.
    pub floor: Floor,
}

/// The agent without windlass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Floor {
    /// The same protocol, driven by a loop that says yes.
    #[default]
    Protocol,
    /// Its own command for one prompt, with approvals off.
    OneShot,
}

/// What one run took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// From the start of the program to its end.
    pub whole: Duration,
    /// From the first request to the model to the last.
    pub steps: Duration,
    /// Processor time that the kernel counts for the program and what it waited for. Through windlass this is windlass
    /// alone, because nobody outside the sandbox waits for what runs in it.
    pub cpu: Duration,
    /// Requests of the work.
    pub asked: usize,
    /// Bytes of the last one.
    pub bytes: usize,
}

/// What one runtime took.
#[derive(Debug, Clone)]
pub struct Measured {
    /// Its short name.
    pub name: String,
    /// Through windlass and bare, in the order of time.
    pub pairs: Vec<(Sample, Sample)>,
    /// From an interrupt while the model thinks to the terminal event.
    pub cancel_thinking: Vec<Duration>,
    /// The same while a command runs.
    pub cancel_command: Vec<Duration>,
}

impl Speed {
    /// Measures one runtime, and tells what came of each pair.
    ///
    /// # Errors
    /// Where a run does not come to its end with all its steps.
    pub fn measure(
        &self,
        runtime: &Runtime,
        tell: &dyn Fn(&(Sample, Sample)),
    ) -> Result<Measured, String> {
        let mut pairs = Vec::new();
        for at in 0..=self.times {
            // Who comes first changes, so that neither always finds what the other left warm.
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
                let sleep = |place: &Place| Move::Shell(format!("sleep {}", place.seconds));
                self.cancel(runtime, sleep, |place, _| place.has_sleeper())
            })?,
        })
    }

    /// A run through windlass.
    fn through(&self, runtime: &Runtime) -> Result<Sample, String> {
        let (place, server) = stage(self.steps)?;
        let (before, most) = (children_cpu(), (self.steps * 2).to_string());
        let ask = Ask::flags(&["--max-steps", &most, "--max-tokens", "unlimited"]);
        let ran = self.product.run(runtime, &place, &server, &ask)?;
        let cpu = children_cpu().saturating_sub(before);
        holds(ran.child.code == 0, || {
            format!("`{runtime}` through windlass: {}", ran.shown())
        })?;
        sample(ran.child.took, cpu, &server, self.steps)
    }

    /// From an interrupt to the terminal event.
    fn cancel(
        &self,
        runtime: &Runtime,
        first: impl Fn(&Place) -> Move,
        ready: impl Fn(&Place, usize) -> bool + Sync,
    ) -> Result<Duration, String> {
        let place = Place::new()?;
        let server = serve(&place, vec![first(&place)])?;
        let interrupt = || ready(&place, work(&server).len());
        let ran = self.product.run(
            runtime,
            &place,
            &server,
            &Ask {
                interrupt: Some(&interrupt),
                ..Ask::default()
            },
        )?;
        holds(ran.outcome() == "cancelled", || {
            format!("`{runtime}` was interrupted: {}", ran.shown())
        })?;
        ran.cancelled_in()
    }
}

/// A run of the agent alone.
///
/// # Errors
/// Where it does not come to its end with all its steps.
pub fn bare(runtime: &Runtime, steps: usize, floor: Floor) -> Result<Sample, String> {
    let (place, server) = stage(steps)?;
    let before = children_cpu();
    let ran = match floor {
        Floor::Protocol => bare::run(runtime, &place, &server)?,
        Floor::OneShot => one_shot::run(runtime, &place, &server)?,
    };
    sample(
        ran.took,
        children_cpu().saturating_sub(before),
        &server,
        steps,
    )
}

fn stage(steps: usize) -> Result<(Place, Server), String> {
    let place = Place::new()?;
    // Every line is another, because agents stop when they seem to run in a circle; and it is none that agents take as
    // harmless without asking.
    let mut moves: Vec<Move> = (1..steps)
        .map(|step| Move::Shell(format!("test {step} -gt 0")))
        .collect();
    // A run that changes nothing has not done its work.
    moves.push(Move::Shell("echo done > done.txt".to_owned()));
    moves.push(Move::Say("All steps are done.".to_owned()));
    let server = serve(&place, moves)?;
    Ok((place, server))
}

fn serve(place: &Place, moves: Vec<Move>) -> Result<Server, String> {
    Server::start(Script::new(&place.work(), moves))
        .map_err(|err| format!("the model server cannot listen: {err}"))
}

fn work(server: &Server) -> Vec<RecordedRequest> {
    server.seen().into_iter().filter(|seen| seen.work).collect()
}

fn sample(whole: Duration, cpu: Duration, server: &Server, steps: usize) -> Result<Sample, String> {
    let seen = work(server);
    let at: Vec<Instant> = seen.iter().map(|seen| seen.at).collect();
    holds(at.len() > steps, || {
        format!("the model was asked {} times for {steps} steps", at.len())
    })?;
    let span = at
        .first()
        .zip(at.last())
        .map(|(first, last)| last.duration_since(*first));
    Ok(Sample {
        whole,
        steps: span.unwrap_or_default(),
        cpu,
        asked: at.len(),
        bytes: seen.last().map_or(0, |seen| seen.bytes),
    })
}

/// Processor time of all children that have ended and were waited for, and of theirs.
fn children_cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name in parentheses may hold anything.
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

/// The load of the machine over the last minute, as the kernel says it; what is measured beside a load is no figure.
#[must_use]
pub fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace()
        .next()
        .unwrap_or("unknown")
        .to_owned()
}
