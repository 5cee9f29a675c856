//! `cargo xtask everyday`: ordinary tasks of development through the built binary, each in an isolated run and in
//! place, in the sandbox tier that the machine has. The tasks are tables in `xtask/everyday`. A task that this machine
//! cannot do, with or without windlass, is counted as not run, with the reason.

mod attempt;
mod elsewhere;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use self::attempt::{Attempt, Outcome};
use self::table::Task;
use crate::without::Feature;
use crate::{cargo, unknown};

const KNOWN: &[&str] = &[
    "--only",
    "--sample",
    "--list",
    "--without",
    "--uid",
    "--binary",
    "--jobs",
];
/// Tasks at a time; most of them wait for a process most of the time.
const JOBS: usize = 2;

/// Isolated runs first, because they are the default.
const MODES: &[Mode] = &[Mode::Isolated, Mode::InPlace];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Mode {
    Isolated,
    InPlace,
}

impl Mode {
    const fn name(self) -> &'static str {
        match self {
            Self::Isolated => "isolated",
            Self::InPlace => "in place",
        }
    }
}

/// The parsed command line.
#[derive(Debug, Default)]
struct Options {
    only: Option<String>,
    /// Only the tasks that are marked for the sample.
    sample: bool,
    list: bool,
    /// Kernel features that are switched off for the tasks.
    without: Vec<Feature>,
    /// The user that runs the tasks; the current one if none is given.
    uid: Option<u32>,
    /// A binary that is built already; then cargo is not needed.
    binary: Option<PathBuf>,
    jobs: Option<usize>,
}

impl Options {
    fn parse(args: &[String]) -> Result<Self> {
        let mut options = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--sample" => options.sample = true,
                "--list" => options.list = true,
                "--only" => options.only = Some(value()?.to_lowercase()),
                "--without" => options.without.push(Feature::parse(value()?)?),
                "--uid" => options.uid = Some(value()?.parse().context("--uid needs a number")?),
                "--binary" => options.binary = Some(PathBuf::from(value()?)),
                "--jobs" => options.jobs = Some(value()?.parse().context("--jobs needs a number")?),
                other => bail!("{}", unknown("option", other, KNOWN.iter().copied())),
            }
        }
        Ok(options)
    }

    fn picks(&self, task: &Task) -> bool {
        let named = self
            .only
            .as_ref()
            .is_none_or(|text| task.name.to_lowercase().contains(text));
        named && (task.sample || !self.sample)
    }
}

/// As it is typed to run the stage of `cargo xtask test` alone; the stage does so in both tiers.
pub(crate) const REPEAT: &str = "cargo xtask everyday --sample [--without namespaces]";

/// A few tasks in the tier that the machine has, and in the one without namespaces.
pub(crate) fn sample() -> Result<()> {
    let run = |args: &[&str]| run(&args.iter().map(|&arg| arg.to_owned()).collect::<Vec<_>>());
    run(&["--sample"])?;
    if cfg!(target_os = "linux") {
        run(&["--sample", "--without", "namespaces"])
    } else {
        Ok(())
    }
}

/// Runs the tasks that were asked for; fails if one of them fails.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let options = Options::parse(args)?;
    let tasks: Vec<Task> = table::all()?
        .into_iter()
        .filter(|task| options.picks(task))
        .collect();
    if tasks.is_empty() {
        bail!("no task has this text in its name; `cargo xtask everyday --list` prints the names");
    }
    if options.list {
        tasks.iter().for_each(|task| println!("{}", task.name));
        return Ok(());
    }
    let binary = match &options.binary {
        // Tasks run in folders of their own.
        Some(binary) => binary
            .canonicalize()
            .with_context(|| format!("there is no {}", binary.display()))?,
        None => built(&cargo::root()?)?,
    };
    if !options.without.is_empty() || options.uid.is_some() {
        return elsewhere::run(&options, &binary);
    }
    let began = Instant::now();
    let attempts = run_all(&tasks, &binary, options.jobs.unwrap_or(JOBS).max(1));
    report(&attempts, began.elapsed().as_secs_f64())
}

fn built(repository: &Path) -> Result<PathBuf> {
    Ok(cargo::build(repository, &["-p", "windlass-cli"])?.join("windlass"))
}

/// Every task in both modes, `jobs` at a time, in the order of the table.
fn run_all(tasks: &[Task], binary: &Path, jobs: usize) -> Vec<Attempt> {
    let pairs: Vec<(&Task, Mode)> = tasks
        .iter()
        .flat_map(|task| MODES.iter().map(move |mode| (task, *mode)))
        .collect();
    let (next, found) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some((at, (task, mode))) = take(&next, &pairs) {
                    let attempt = attempt::run(task, mode, binary);
                    if let Outcome::Failed(why) = &attempt.outcome {
                        println!(
                            "FAILED   {} ({}, {}): {}",
                            task.name,
                            mode.name(),
                            attempt.tier,
                            why.trim_end()
                        );
                    }
                    found
                        .lock()
                        .unwrap_or_else(std::sync::PoisonError::into_inner)
                        .insert(at, attempt);
                }
            });
        }
    });
    found
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .into_values()
        .collect()
}

fn take<T: Copy>(next: &AtomicUsize, all: &[T]) -> Option<(usize, T)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    all.get(at).map(|item| (at, *item))
}

/// How many attempts of a tier and mode had which outcome.
#[derive(Debug, Default, PartialEq, Eq)]
struct Totals {
    passed: usize,
    failed: usize,
    not_run: usize,
}

fn report(attempts: &[Attempt], seconds: f64) -> Result<()> {
    let mut reasons: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for attempt in attempts {
        if let Outcome::NotRun(why) = &attempt.outcome {
            reasons.entry(why).or_default().insert(&attempt.task);
        }
    }
    for (why, tasks) in reasons {
        println!(
            "not run  {}: {why}",
            tasks.into_iter().collect::<Vec<_>>().join(", ")
        );
    }
    for ((tier, mode), totals) in totals(attempts) {
        let Totals {
            passed,
            failed,
            not_run,
        } = totals;
        println!(
            "{tier}, {}: {passed} passed, {failed} failed, {not_run} not run",
            mode.name()
        );
    }
    let failed = attempts
        .iter()
        .filter(|attempt| matches!(attempt.outcome, Outcome::Failed(_)))
        .count();
    println!("{} attempts in {seconds:.0} s", attempts.len());
    if failed > 0 {
        bail!("{failed} attempts failed; `cargo xtask everyday --only TEXT` repeats some of them");
    }
    Ok(())
}

/// An attempt that did not run has no tier of its own and counts in the first one that there is.
fn totals(attempts: &[Attempt]) -> BTreeMap<(&str, Mode), Totals> {
    let known = attempts
        .iter()
        .map(|attempt| attempt.tier.as_str())
        .find(|tier| !tier.is_empty())
        .unwrap_or("no tier");
    let mut all: BTreeMap<(&str, Mode), Totals> = BTreeMap::new();
    for attempt in attempts {
        let tier = if attempt.tier.is_empty() {
            known
        } else {
            &attempt.tier
        };
        let totals = all.entry((tier, attempt.mode)).or_default();
        match attempt.outcome {
            Outcome::Passed => totals.passed += 1,
            Outcome::Failed(_) => totals.failed += 1,
            Outcome::NotRun(_) => totals.not_run += 1,
        }
    }
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn attempt(tier: &str, mode: Mode, outcome: Outcome) -> Attempt {
        Attempt {
            task: "t".to_owned(),
            mode,
            tier: tier.to_owned(),
            outcome,
        }
    }

    #[test]
    fn attempts_are_counted_by_tier_and_mode() {
        let all = [
            attempt("", Mode::InPlace, Outcome::NotRun("needs x".to_owned())),
            attempt("broker", Mode::InPlace, Outcome::Passed),
            attempt("broker", Mode::Isolated, Outcome::Failed("why".to_owned())),
        ];
        let totals = totals(&all);
        assert_eq!(
            totals[&("broker", Mode::InPlace)],
            Totals {
                passed: 1,
                failed: 0,
                not_run: 1
            }
        );
        assert_eq!(
            totals[&("broker", Mode::Isolated)],
            Totals {
                passed: 0,
                failed: 1,
                not_run: 0
            }
        );
        assert!(
            report(&all, 1.0)
                .unwrap_err()
                .to_string()
                .contains("1 attempts failed")
        );
    }

    #[test]
    fn options_are_checked() {
        let parse =
            |line: &str| Options::parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert!(
            parse("--smaple")
                .unwrap_err()
                .to_string()
                .contains("did you mean `--sample`?")
        );
        assert!(
            parse("--without namespace")
                .unwrap_err()
                .to_string()
                .contains("did you mean `namespaces`?")
        );
        assert!(
            parse("--only")
                .unwrap_err()
                .to_string()
                .contains("needs a value")
        );
        let options = parse("--without namespaces --uid 7 --sample").unwrap();
        assert_eq!(
            (options.without, options.uid, options.sample),
            (vec![Feature::Namespaces], Some(7), true)
        );
    }
}
