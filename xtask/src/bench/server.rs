//! A server with many sessions, readers and runs, beside the least that a server with the same HTTP stack must do.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::lab::{Lab, Server, Wire};
use super::measure::Spread;
use super::report::{Row, Target, Unit};

/// Sessions that are open, each with one reader.
const SESSIONS: usize = 1_000;
/// Runs at the same time, their steps, and the time that the model needs for an answer.
const RUNS: usize = 200;
const STEPS: &str = "8";
const MODEL_DELAY_MS: &str = "1000";
const RECONNECTS: usize = 10_000;

/// Health, idle sessions, concurrent runs and reconnects.
pub(crate) fn rows(lab: &Lab) -> Result<Vec<Row>> {
    let mut rows = vec![health(lab)?];
    rows.extend(idle(lab)?);
    rows.extend(concurrent_runs(lab)?);
    reconnects(lab)?;
    Ok(rows)
}

fn health(lab: &Lab) -> Result<Row> {
    let model = lab.serve(&["--answer", "Done."])?;
    let server = BenchServer::start(lab, &model)?;
    let floor = Floor::start(lab)?;
    let count = lab.times(5_000).to_string();
    let args = ["--what", "health", "--count", &count];
    let (mut ours, mut least) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        ours.extend(numbers(&server.measure(lab, &args)?, "")?);
        least.extend(numbers(&measure(lab, &floor.url, "", &args)?, "")?);
    }
    let row = Row::new("`GET /healthz`", Unit::Us, Spread::of(ours)?);
    let row = row.floor("one route of the same HTTP stack", Spread::of(least)?);
    Ok(row.target(Target::Ratio(2.0)))
}

fn idle(lab: &Lab) -> Result<[Row; 2]> {
    let model = lab.serve(&["--answer", "Done."])?;
    let server = BenchServer::start(lab, &model)?;
    let pid = server.child.id().to_string();
    let count = lab.times(SESSIONS).to_string();
    let args = ["--what", "idle", "--pid", &pid, "--count", &count];
    let lines = server.measure(lab, &args)?;
    let (memory, cpu) = lines
        .trim()
        .split_once(' ')
        .context("the memory and the processor time are missing")?;
    let memory = Row::new(
        "memory of an idle session with one reader",
        Unit::Kb,
        Spread::of(vec![memory.parse()?])?,
    );
    let cpu = Row::new(
        "processor time of 1,000 idle sessions with readers",
        Unit::Percent,
        Spread::of(vec![cpu.parse()?])?,
    );
    Ok([
        memory.target(Target::Below(60.0)),
        cpu.target(Target::Below(1.0)),
    ])
}

fn concurrent_runs(lab: &Lab) -> Result<[Row; 2]> {
    let model = lab.serve(&["--steps-each", STEPS, "--delay-ms", MODEL_DELAY_MS])?;
    let server = BenchServer::start(lab, &model)?;
    let measure = |count: usize| {
        let count = count.to_string();
        let args = ["--what", "runs", "--model-delay-ms", MODEL_DELAY_MS];
        server.measure(lab, &[&args[..], &["--count", &count]].concat())
    };
    let single = percentile(numbers(&measure(1)?, "")?, 50)?;
    let lines = measure(lab.times(RUNS))?;
    let steps = percentile(numbers(&lines, "")?, 99)?;
    let delays = percentile(numbers(&lines, "delay ")?, 99)?;
    eprintln!(
        "    {} events a second, {} runs",
        numbers(&lines, "rate ")?
            .first()
            .copied()
            .unwrap_or_default()
            .round(),
        lab.times(RUNS)
    );
    let steps = Row::new("a step of 200 concurrent runs, p99", Unit::Ms, steps)
        .floor("the median step of a single run", single)
        .target(Target::Ratio(3.0));
    let delays = Row::new("from the log to a reader, p99", Unit::Ms, delays);
    Ok([steps, delays.target(Target::Below(50.0))])
}

fn reconnects(lab: &Lab) -> Result<()> {
    let model = lab.serve(&["--steps-each", "40"])?;
    let server = BenchServer::start(lab, &model)?;
    let count = lab.times(RECONNECTS).to_string();
    let line = server.measure(lab, &["--what", "reconnects", "--count", &count])?;
    ensure!(
        line.starts_with("0 0 "),
        "reconnects lost and repeated events: {line}"
    );
    eprintln!("    {count} reconnects lost and repeated nothing");
    Ok(())
}

/// A server under test; it ends with this value.
struct BenchServer {
    child: Child,
    url: String,
    token: String,
}

impl BenchServer {
    fn start(lab: &Lab, model: &Server) -> Result<Self> {
        let config = lab.dir().join("home/config/windlass");
        std::fs::create_dir_all(&config)?;
        let text = format!(
            "approval = \"auto\"\nmodel = \"anthropic/scripted-bench\"\nmax_tokens = \"unlimited\"\n[providers.anthropic]\nbase_url = \"{}\"\n",
            model.url(Wire::Messages)
        );
        std::fs::write(config.join("config.toml"), text)?;
        let runs = RUNS.to_string();
        let mut child = lab
            .program("windlass")
            .args(["serve", "--port", "0", "--max-requests", "1000000"])
            .args(["--max-runs", &runs])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("the server does not start")?;
        let stderr = child.stderr.take().context("the server has no output")?;
        let mut lines = BufReader::new(stderr).lines();
        let mut said = Vec::new();
        let url = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let url = line.strip_prefix("listening on ").map(str::to_owned);
            said.push(line);
            url
        });
        // The pipe must not fill up.
        std::thread::spawn(move || lines.for_each(drop));
        let token = lab.dir().join("home/data/windlass/server/token");
        Ok(Self {
            url: url.with_context(|| format!("the server did not start: {}", said.join("\n")))?,
            token: std::fs::read_to_string(token)?.trim().to_owned(),
            child,
        })
    }

    fn measure(&self, lab: &Lab, args: &[&str]) -> Result<String> {
        measure(lab, &self.url, &self.token, args)
    }
}

impl Drop for BenchServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The least server.
struct Floor {
    child: Child,
    url: String,
}

impl Floor {
    fn start(lab: &Lab) -> Result<Self> {
        let mut child = lab
            .program("floor-hello")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("the floor does not start")?;
        let mut line = String::new();
        let stdout = child.stdout.take().context("the floor has no output")?;
        BufReader::new(stdout.take(100)).read_line(&mut line)?;
        Ok(Self {
            url: format!("http://127.0.0.1:{}", line.trim()),
            child,
        })
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn measure(lab: &Lab, url: &str, token: &str, args: &[&str]) -> Result<String> {
    let mut command: Command = lab.program("server-speed");
    command.args(args).args(["--url", url]);
    if !token.is_empty() {
        command.args(["--token", token]);
    }
    let output = command.output().context("server-speed does not start")?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The numbers of the lines with a prefix; without one, of the lines that are only a number.
fn numbers(lines: &str, prefix: &str) -> Result<Vec<f64>> {
    let numbers: Vec<f64> = lines
        .lines()
        .filter_map(|line| line.strip_prefix(prefix)?.parse().ok())
        .collect();
    ensure!(!numbers.is_empty(), "nothing was measured");
    Ok(numbers)
}

/// The number below which this percentage of the numbers is, as the only figure.
fn percentile(mut numbers: Vec<f64>, percent: usize) -> Result<Spread> {
    numbers.sort_by(f64::total_cmp);
    let at = (numbers.len() * percent / 100).min(numbers.len().saturating_sub(1));
    Spread::of(numbers.get(at).copied().into_iter().collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_selected_by_prefix_and_percentiles_are_ranks() {
        let lines = "1.5\ndelay 7\n2.5\nrate 100\n";
        assert_eq!(numbers(lines, "").unwrap(), [1.5, 2.5]);
        assert_eq!(numbers(lines, "delay ").unwrap(), [7.0]);
        assert!(numbers(lines, "absent ").is_err());
        let hundred: Vec<f64> = (0..100).map(f64::from).collect();
        assert_eq!(percentile(hundred, 99).unwrap().median, 99.0);
    }
}
