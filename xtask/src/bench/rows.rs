//! What is measured, one function per group of rows; each says what it promises and what it found.

use std::process::Command;

use anyhow::{Context as _, Result};

use super::lab::{Arrival, Lab, Server, Wire};
use super::measure::{Sample, Spread};
use super::report::{Row, Target, Unit};

const MB: f64 = 1e6;
/// What a run without tools stands beside.
pub(super) const ONE_EXCHANGE: &str = "one exchange, one file, one sync";
/// The most memory a run may hold.
const MAX_RSS_MB: f64 = 25.0;
/// One answer of this many bytes, in pieces of four.
const FLOOD: &str = "2000000";

/// Cold start.
pub(crate) fn start(lab: &Lab) -> Result<Vec<Row>> {
    let version = || {
        let mut command = lab.program("windlass");
        command.arg("--version");
        command
    };
    let (ours, floor) = lab.alternate(lab.times(300), version, || lab.program("floor-empty"))?;
    let row = Row::new("cold start of `--version`", Unit::Ms, wall(&ours)?)
        .floor("an empty program", wall(&floor)?);
    Ok(vec![row.target(Target::Ratio(2.0))])
}

/// A run without tools.
pub(crate) fn one_shot(lab: &Lab) -> Result<Vec<Row>> {
    let server = lab.serve(&["--answer", "Nothing has to be done."])?;
    let mut seen = 0;
    lab.once(&mut lab.windlass(&server, Wire::Messages))?;
    let bytes = server.arrivals(&mut seen, 1)?[0].bytes.to_string();
    let floor = || floor_exchange(lab, &server, &bytes);
    let (ours, floor) = lab.alternate(
        lab.times(200),
        || lab.windlass(&server, Wire::Messages),
        floor,
    )?;
    let (ours, floor) = (wall(&ours)?, wall(&floor)?);
    let row = |name| Row::new(name, Unit::Ms, ours).floor(ONE_EXCHANGE, floor);
    let whole = row("run without tools").target(Target::Ratio(2.0));
    Ok(vec![
        whole,
        row("the same, all of it").target(Target::Below(10.0)),
    ])
}

/// The floor of a run without tools.
pub(super) fn floor_exchange(lab: &Lab, server: &Server, bytes: &str) -> Command {
    let mut command = lab.program("floor-exchange");
    command.args([
        "--url",
        &server.url(Wire::Messages),
        "--file",
        &lab.scratch(),
        "--bytes",
        bytes,
    ]);
    command
}

/// A hundred steps, each one shell command.
pub(crate) fn hundred_steps(lab: &Lab) -> Result<Vec<Row>> {
    let found = steps(lab, 100, lab.times(20))?;
    let row = Row::new(
        "a shell step, over 100 steps",
        Unit::Ms,
        per_step(&found.ours)?,
    )
    .floor("the same HTTP, fork and one sync", per_step(&found.floor)?);
    Ok(vec![row.target(Target::Ratio(1.5))])
}

/// Starting a program in the kernel sandbox.
pub(crate) fn sandbox(lab: &Lab) -> Result<Vec<Row>> {
    let (workspace, home) = (lab.dir().join("workspace"), lab.dir().join("home"));
    let mut command = lab.program("sandbox-speed");
    command
        .arg("--helper")
        .arg(lab.binary("windlass"))
        .arg("--workspace")
        .arg(&workspace)
        .arg("--home")
        .arg(&home);
    let output = command
        .args(["--times", &lab.times(300).to_string()])
        .output();
    let output = output.context("sandbox-speed could not be started")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let column = |at: usize| -> Vec<f64> {
        text.lines()
            .filter_map(|line| line.split(' ').nth(at)?.parse().ok())
            .collect()
    };
    let plain = Spread::of(column(0))
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    let row = |name, at| -> Result<Row> {
        Ok(Row::new(name, Unit::Ms, Spread::of(column(at))?)
            .floor("the same program plainly", plain))
    };
    let mut rows = vec![
        row("a program in the sandbox", 1)?.target(Target::Ratio(3.0)),
        row("the first one, with making the sandbox", 2)?.target(Target::Over(10.0)),
    ];
    if !column(3).is_empty() {
        rows.push(row("for comparison: bubblewrap", 3)?);
    }
    let found = steps_with(lab, 100, lab.times(20), &[])?;
    let step = Row::new(
        "a shell step in the sandbox, over 100 steps",
        Unit::Ms,
        per_step(&found.ours)?,
    );
    rows.push(
        step.floor("the same HTTP, fork and one sync", per_step(&found.floor)?)
            .target(Target::Ratio(3.0)),
    );
    Ok(rows)
}

/// A thousand steps: whether a step gets slower, and memory.
pub(crate) fn thousand_steps(lab: &Lab) -> Result<Vec<Row>> {
    let found = steps(lab, 1_000, lab.times(5))?;
    let windows = [
        ("a step around step 10", 5, 15),
        ("around step 100", 95, 105),
        ("around step 1,000", 990, 1_000),
    ];
    let mut rows = Vec::new();
    for (name, from, to) in windows {
        let (ours, floor) = (
            around(&found.ours, from, to)?,
            around(&found.floor, from, to)?,
        );
        rows.push(Row::new(name, Unit::Ms, ours).floor("the same bytes", floor));
    }
    let (ours, floor) = (growth(&found.ours)?, growth(&found.floor)?);
    // The floor sends the same bytes, so its growth is what they explain. A tenth of a step is noise.
    let explained = 1.5 * floor.min.max(0.0) + 0.1 * around(&found.ours, 5, 15)?.min;
    rows.push(
        Row::new("growth of a step from 10 to 1,000", Unit::Ms, ours)
            .floor("the same bytes", floor)
            .target(Target::Explained(explained)),
    );
    let rss = Row::new(
        "peak memory at 1,000 steps",
        Unit::Mb,
        rss(&found.our_samples)?,
    )
    .floor("the minimal loop", rss(&found.floor_samples)?);
    rows.push(rss.target(Target::Below(MAX_RSS_MB)));
    Ok(rows)
}

/// One long answer in small pieces, on both wires.
pub(crate) fn flood(lab: &Lab) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for wire in [Wire::Messages, Wire::Chat] {
        let server = lab.serve(&["--flood", FLOOD])?;
        let drain = || {
            let name = if wire == Wire::Chat {
                "chat"
            } else {
                "messages"
            };
            let mut command = lab.program("floor-drain");
            command.args([
                "--url",
                &server.url(wire),
                "--wire",
                name,
                "--least",
                "20000000",
            ]);
            command
        };
        let flooded = || {
            let mut command = lab.windlass(&server, wire);
            // A longer answer than was asked for is cut.
            command.env("WINDLASS_MAX_OUTPUT", FLOOD);
            command
        };
        let (ours, floor) = lab.alternate(lab.times(10), flooded, drain)?;
        let title = wire.title();
        let cpu_row = Row::new(
            &format!("CPU for 500,000 deltas, {title}"),
            Unit::Ms,
            cpu(&ours)?,
        );
        rows.push(
            cpu_row
                .floor("draining the same bytes", cpu(&floor)?)
                .target(Target::Ratio(10.0)),
        );
        let rss_row = Row::new(
            &format!("peak memory for it, {title}"),
            Unit::Mb,
            rss(&ours)?,
        );
        rows.push(
            rss_row
                .floor("draining the same bytes", rss(&floor)?)
                .target(Target::Below(MAX_RSS_MB)),
        );
    }
    Ok(rows)
}

/// Reading streams: 100 MB of text-only events, in each protocol. 200 MB a second are half a second for them.
pub(crate) fn decode(lab: &Lab) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (name, title) in [
        ("messages", "Messages"),
        ("chat", "Chat Completions"),
        ("responses", "Responses"),
        ("gemini", "generateContent"),
        ("ollama", "Ollama"),
    ] {
        let mut command = lab.program("decode-speed");
        command.args(["--protocol", name, "--times", &lab.times(20).to_string()]);
        let output = command
            .output()
            .context("decode-speed could not be started")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let pairs: Vec<(f64, f64)> = text
            .lines()
            .filter_map(|line| {
                line.split_once(' ')
                    .and_then(|(ours, floor)| Some((ours.parse().ok()?, floor.parse().ok()?)))
            })
            .collect();
        let (ours, floor) = pairs.into_iter().unzip();
        let row = Row::new(
            &format!("decoding 100 MB of {title}"),
            Unit::Ms,
            Spread::of(ours)?,
        );
        rows.push(
            row.floor("finding its line ends", Spread::of(floor)?)
                .target(Target::Below(500.0)),
        );
    }
    Ok(rows)
}

/// What the meter adds to the model traffic of a foreign agent. A twentieth of a core is 50 ms of each second.
pub(crate) fn meter(lab: &Lab) -> Result<Vec<Row>> {
    let mut command = lab.program("meter-speed");
    command.args([
        "--times",
        &lab.times(500).to_string(),
        "--streams",
        &lab.times(20).to_string(),
    ]);
    let output = command
        .output()
        .context("meter-speed could not be started")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let column = |name: &str, at: usize| -> Result<Spread> {
        let lines = text.lines().filter_map(|line| {
            line.strip_prefix(name)?
                .trim()
                .split(' ')
                .nth(at)?
                .parse()
                .ok()
        });
        Spread::of(lines.collect())
            .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let row = |title, name, target| -> Result<Row> {
        let row = Row::new(title, Unit::Ms, column(name, 0)?)
            .floor("a plain TCP relay", column(name, 1)?);
        Ok(row.target(target))
    };
    Ok(vec![
        row("first byte through the meter", "first ", Target::Over(1.0))?,
        row(
            "CPU of the meter for a second at 2 MB/s",
            "second ",
            Target::Below(50.0),
        )?,
    ])
}

/// The program on disk.
pub(crate) fn size(lab: &Lab) -> Result<Vec<Row>> {
    let bytes = |name| -> Result<Spread> {
        let about =
            std::fs::metadata(lab.binary(name)).with_context(|| format!("cannot find {name}"))?;
        Spread::of(vec![about.len() as f64 / MB])
    };
    let row = Row::new(
        "the program on disk, stripped",
        Unit::Mb,
        bytes("windlass")?,
    );
    Ok(vec![
        row.floor("the minimal loop", bytes("floor-loop")?)
            .target(Target::Below(45.0)),
    ])
}

/// Runs of many steps, with the arrival of every request.
struct Steps {
    ours: Vec<Vec<Arrival>>,
    floor: Vec<Vec<Arrival>>,
    our_samples: Vec<Sample>,
    floor_samples: Vec<Sample>,
}

fn per_step(runs: &[Vec<Arrival>]) -> Result<Spread> {
    let times = runs
        .iter()
        .map(|run| span(run) as f64 / 1e6 / (run.len() - 1) as f64);
    Spread::of(times.collect())
}

/// Steps of the engine itself, without a sandbox around its commands.
fn steps(lab: &Lab, steps: usize, times: usize) -> Result<Steps> {
    steps_with(lab, steps, times, &["--sandbox", "full"])
}

fn steps_with(lab: &Lab, steps: usize, times: usize, flags: &[&str]) -> Result<Steps> {
    let count = steps.to_string();
    let server = lab.serve(&["--steps", &count])?;
    let mut found = Steps {
        ours: Vec::new(),
        floor: Vec::new(),
        our_samples: Vec::new(),
        floor_samples: Vec::new(),
    };
    let mut seen = 0;
    for _ in 0..times {
        found
            .our_samples
            .push(lab.once(lab.windlass(&server, Wire::Messages).args(flags))?);
        let ours = server.arrivals(&mut seen, steps + 1)?;
        found
            .floor_samples
            .push(lab.once(&mut floor_loop(lab, &server, &count, &ours))?);
        found.floor.push(server.arrivals(&mut seen, steps + 1)?);
        found.ours.push(ours);
    }
    Ok(found)
}

/// The floor that sends as many bytes in each request as we did.
fn floor_loop(lab: &Lab, server: &Server, steps: &str, ours: &[Arrival]) -> Command {
    let (first, last) = (
        ours.first().map_or(0, |at| at.bytes),
        ours.last().map_or(0, |at| at.bytes),
    );
    let per_step = last.saturating_sub(first) / (ours.len().max(2) as u64 - 1);
    let mut command = lab.program("floor-loop");
    command.args([
        "--url",
        &server.url(Wire::Messages),
        "--file",
        &lab.scratch(),
        "--steps",
        steps,
    ]);
    command.args([
        "--first-bytes",
        &first.to_string(),
        "--step-bytes",
        &per_step.to_string(),
    ]);
    command
}

/// The time from the first request to the last.
fn span(run: &[Arrival]) -> u64 {
    let at = |arrival: Option<&Arrival>| arrival.map_or(0, |arrival| arrival.at);
    at(run.last()).saturating_sub(at(run.first()))
}

/// How long the steps from one number to another took, over all runs, in milliseconds.
fn around(runs: &[Vec<Arrival>], from: usize, to: usize) -> Result<Spread> {
    let mut times = Vec::new();
    for run in runs {
        let window = run
            .get(from - 1..=to)
            .context("a run was shorter than it should be")?;
        times.extend(window.windows(2).map(|pair| span(pair) as f64 / 1e6));
    }
    Spread::of(times)
}

/// How much longer a step takes at the end than at the beginning.
fn growth(runs: &[Vec<Arrival>]) -> Result<Spread> {
    let (early, late) = (around(runs, 5, 15)?, around(runs, 990, 1_000)?);
    Ok(Spread {
        min: late.min - early.min,
        median: late.median - early.median,
    })
}

pub(super) fn wall(samples: &[Sample]) -> Result<Spread> {
    Spread::of(
        samples
            .iter()
            .map(|sample| sample.wall.as_secs_f64() * 1e3)
            .collect(),
    )
}

pub(super) fn cpu(samples: &[Sample]) -> Result<Spread> {
    Spread::of(
        samples
            .iter()
            .map(|sample| sample.cpu.as_secs_f64() * 1e3)
            .collect(),
    )
}

pub(super) fn rss(samples: &[Sample]) -> Result<Spread> {
    Spread::of(
        samples
            .iter()
            .map(|sample| sample.rss as f64 / MB)
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_window_is_the_steps_it_names() {
        // Step n is from request n to request n + 1 and takes n milliseconds here.
        let mut at = 0;
        let run: Vec<Arrival> = (1..=21_u64)
            .map(|step| {
                let arrival = Arrival { at, bytes: 0 };
                at += step * 1_000_000;
                arrival
            })
            .collect();
        assert_eq!(
            around(&[run.clone(), run.clone()], 5, 15).unwrap(),
            Spread {
                min: 5.0,
                median: 10.0
            }
        );
        assert!(around(&[run], 15, 25).is_err());
    }
}
