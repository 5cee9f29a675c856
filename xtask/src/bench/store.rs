//! Long sessions on disk: appending beside a plain write of the same bytes, resuming beside a plain search for line ends,
//! listing, a log of a gibibyte, and many short sessions. The logs are made once and go with the lab.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::lab::Lab;
use super::measure::Spread;
use super::report::{Row, Target, Unit};
use super::rows::{cpu, rss, wall};

const EVENTS: &str = "100000";
const SESSIONS: &str = "20000";
const GIBIBYTE: &str = "1073741824";

/// Appending, resuming and listing 100,000 events, and a log of a gibibyte.
pub(crate) fn rows(lab: &Lab) -> Result<Vec<Row>> {
    let long = Store::open(lab, "long")?;
    let made = long.figures(&["--what", "make", "--events", EVENTS])?;
    let append = Row::new(
        "appending 1,000 events, without a sync",
        Unit::Ms,
        column(&made, 0)?,
    );
    let append = append
        .floor("a plain write of the same bytes", column(&made, 1)?)
        .target(Target::Below(50.0));
    let times = lab.times(20).to_string();
    let resumed = long.figures(&["--what", "resume", "--events", EVENTS, "--times", &times])?;
    let resume = Row::new("resuming 100,000 events", Unit::Ms, column(&resumed, 0)?);
    let resume = resume.floor(
        "finding the line ends of the same bytes",
        column(&resumed, 1)?,
    );
    let listed = long.figures(&["--what", "list", "--times", &times])?;
    let list = Row::new("listing it", Unit::Ms, column(&listed, 0)?).target(Target::Below(10.0));
    let mut rows = vec![append, resume.target(Target::Below(300.0)), list];
    rows.extend(giant(lab)?);
    rows.extend(many(lab)?);
    Ok(rows)
}

/// A log of a gibibyte: its end is opened at once, and all of it is read in little memory.
fn giant(lab: &Lab) -> Result<Vec<Row>> {
    let giant = Store::open(lab, "giant")?;
    giant.figures(&["--what", "make", "--bytes", GIBIBYTE])?;
    let samples = |what: &str, times: usize| -> Result<Vec<_>> {
        (0..times)
            .map(|_| lab.once(&mut giant.command(&["--what", what])))
            .collect()
    };
    let tail = samples("tail", lab.times(20))?;
    let read = samples("read", lab.times(10).min(3))?;
    giant.figures(&["--what", "save"])?;
    let load = samples("load", lab.times(10))?;
    Ok(vec![
        Row::new(
            "opening a log of 1 GiB and reading its end",
            Unit::Ms,
            wall(&tail)?,
        )
        .target(Target::Below(50.0)),
        Row::new("peak memory for it", Unit::Mb, rss(&tail)?).target(Target::Below(25.0)),
        Row::new("CPU for resuming it with a snapshot", Unit::Ms, cpu(&load)?)
            .target(Target::Below(1_000.0)),
        Row::new("peak memory for resuming it", Unit::Mb, rss(&load)?).target(Target::Below(40.0)),
        Row::new("reading all of it", Unit::Ms, wall(&read)?),
        Row::new("peak memory for that", Unit::Mb, rss(&read)?).target(Target::Below(25.0)),
    ])
}

/// Lists and searches of many short sessions, with the cache that the first list and the first search wrote.
fn many(lab: &Lab) -> Result<Vec<Row>> {
    // The data directory of the program under test.
    let many = Store::open(lab, "windlass")?;
    many.figures(&["--what", "many", "--sessions", SESSIONS])?;
    let ours = |args: &[&str]| {
        let mut command = lab.program("windlass");
        command.env("XDG_DATA_HOME", lab.dir()).arg("sessions");
        command.args(args);
        command
    };
    let list = || ours(&["list", "-n", SESSIONS]);
    // The hit is in one session, of the middle.
    let search = || ours(&["search", "parser of case 010000"]);
    let first_list = lab.once(&mut list())?;
    let first_search = lab.once(&mut search())?;
    let stat = || many.command(&["--what", "stat"]);
    let times = lab.times(20);
    let mut rows = vec![
        Row::new(
            "listing 20,000 sessions without a cache",
            Unit::Ms,
            wall(&[first_list])?,
        ),
        Row::new(
            "searching them without a cache",
            Unit::Ms,
            wall(&[first_search])?,
        ),
    ];
    for (name, sample) in [
        ("listing 20,000 sessions", lab.alternate(times, list, stat)?),
        ("searching them", lab.alternate(times, search, stat)?),
    ] {
        let (ours, floor) = sample;
        rows.push(
            Row::new(name, Unit::Ms, wall(&ours)?)
                .floor("looking at the log of each", wall(&floor)?)
                .target(Target::Below(50.0)),
        );
        rows.push(
            Row::new("peak memory for it", Unit::Mb, rss(&ours)?).target(Target::Below(40.0)),
        );
    }
    Ok(rows)
}

/// One directory of sessions.
struct Store<'a> {
    lab: &'a Lab,
    dir: PathBuf,
}

impl<'a> Store<'a> {
    fn open(lab: &'a Lab, name: &str) -> Result<Self> {
        let dir = lab.dir().join(name);
        std::fs::create_dir(&dir).context("there is no place for a long session")?;
        Ok(Self { lab, dir })
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.lab.program("store-speed");
        command.args(args).arg("--dir").arg(&self.dir);
        command
    }

    /// The lines of figures that the program prints.
    fn figures(&self, args: &[&str]) -> Result<Vec<Vec<f64>>> {
        let output = self
            .command(args)
            .output()
            .context("store-speed could not be started")?;
        ensure!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let figures = |line: &str| {
            line.split(' ')
                .map(str::parse)
                .collect::<Result<Vec<f64>, _>>()
        };
        text.lines()
            .map(|line| figures(line).with_context(|| format!("`{line}` is no line of figures")))
            .collect()
    }
}

fn column(lines: &[Vec<f64>], at: usize) -> Result<Spread> {
    Spread::of(
        lines
            .iter()
            .filter_map(|line| line.get(at).copied())
            .collect(),
    )
}
