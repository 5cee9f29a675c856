//! `cargo xtask test`: runs the stages, cheapest first, and prints the time of each. It stops at the first one that
//! fails, with the command that repeats it.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::not_run::{self, NotRun};
use crate::{attacks, cargo, clients, everyday, fuzz_http, install, kit, style};

/// A cargo command that must succeed.
struct TestStage {
    name: &'static str,
    args: &'static [&'static str],
    env: Option<(&'static str, &'static str)>,
}

impl TestStage {
    const fn new(name: &'static str, args: &'static [&'static str]) -> Self {
        Self {
            name,
            args,
            env: None,
        }
    }

    /// Returns the command line that runs it alone.
    fn repeat(&self) -> String {
        let env = self
            .env
            .map(|(name, value)| format!("{name}={value} "))
            .unwrap_or_default();
        format!("{env}cargo {}", self.args.join(" "))
    }
}

// Every stage builds the whole workspace, so that all of them resolve to the same features and share the build.
const FORMAT: TestStage = TestStage::new("format", &["fmt", "--all", "--check"]);
const LAYOUT: TestStage = TestStage::new(
    "layout",
    &[
        "test",
        "--quiet",
        "--workspace",
        "--locked",
        "--test",
        "layout",
    ],
);
const CLIPPY: TestStage = TestStage::new(
    "clippy",
    &[
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--",
        "-D",
        "warnings",
    ],
);
// The corpus is also a test. It is left out here, because it is a stage of its own that prints its totals.
const NEXTEST: TestStage = TestStage::new(
    "tests",
    &[
        "nextest",
        "run",
        "--workspace",
        "--locked",
        "-E",
        "not test(attacks_are_stopped_and_everyday_work_succeeds)",
    ],
);
const TESTS: TestStage = TestStage::new(
    "tests",
    &[
        "test",
        "--workspace",
        "--locked",
        "--lib",
        "--bins",
        "--tests",
        "--",
        "--skip",
        "every_attack_is_stopped",
    ],
);
const DOC_TESTS: TestStage =
    TestStage::new("doc tests", &["test", "--workspace", "--locked", "--doc"]);
const DOCS: TestStage = TestStage {
    name: "docs",
    args: &["doc", "--workspace", "--locked", "--no-deps"],
    env: Some(("RUSTDOCFLAGS", "-Dwarnings")),
};
const LICENCES: TestStage = TestStage::new(
    "licences",
    &["deny", "--locked", "check", "licenses", "bans", "sources"],
);

/// Runs every stage; the conformance kit runs with these agents.
pub(crate) fn run(with: kit::KitAgents) -> Result<()> {
    let root = cargo::root()?;
    let began = Instant::now();
    println!("==> tools");
    install::install_missing()?;
    let tests = if install::has_nextest() {
        NEXTEST
    } else {
        TESTS
    };
    println!("==> style: {}", style::REPEAT);
    let began_style = Instant::now();
    style::run(false)?;
    let style_took = began_style.elapsed();
    let stages = [FORMAT, LAYOUT, CLIPPY, DOC_TESTS, tests, DOCS, LICENCES];
    let mut times = vec![("tools", began_style - began), ("style", style_took)];
    let not_run = NotRun::start(&root)?;
    for (at, stage) in stages.iter().enumerate() {
        println!(
            "==> [{}/{}] {}: {}",
            at + 1,
            stages.len(),
            stage.name,
            stage.repeat()
        );
        let ran = run_stage(stage, &root, &not_run);
        if ran.is_err() {
            print_not_run(&not_run)?;
        }
        let took = ran?;
        println!("    {} ok in {}", stage.name, seconds(took));
        times.push((stage.name, took));
    }
    println!("==> attacks: {}", attacks::REPEAT);
    let began_attacks = Instant::now();
    attacks::run(&root, &[])?;
    times.push(("attacks", began_attacks.elapsed()));
    println!("==> everyday: {}", everyday::REPEAT);
    let began_everyday = Instant::now();
    everyday::sample()?;
    times.push(("everyday", began_everyday.elapsed()));
    println!("==> clients: {}", clients::REPEAT);
    let began_clients = Instant::now();
    clients::run(&root)?;
    times.push(("clients", began_clients.elapsed()));
    println!("==> http fuzz: {}", fuzz_http::REPEAT);
    let began_fuzz = Instant::now();
    fuzz_http::run(&root, &fuzz_http::FuzzOptions::default())?;
    times.push(("http fuzz", began_fuzz.elapsed()));
    println!("==> runtimes: {}", kit::REPEAT);
    let began_kit = Instant::now();
    kit::run(&root, &with.into())?;
    times.push(("runtimes", began_kit.elapsed()));
    println!(
        "==> all {} stages passed in {}",
        stages.len() + 6,
        seconds(began.elapsed())
    );
    for (name, took) in times {
        println!("    {name:<10} {:>8}", seconds(took));
    }
    print_not_run(&not_run)
}

fn print_not_run(not_run: &NotRun) -> Result<()> {
    if let Some(sentence) = not_run.finish()? {
        println!(
            "==> {sentence}\n    every one of them: {}",
            not_run.path().display()
        );
    }
    Ok(())
}

fn run_stage(stage: &TestStage, root: &Path, not_run: &NotRun) -> Result<Duration> {
    let began = Instant::now();
    let mut command = cargo::command(stage.args.iter().copied());
    command
        .current_dir(root)
        .envs(stage.env)
        .env(not_run::VARIABLE, not_run.path());
    let status = command.status().context("cargo could not be started")?;
    if !status.success() {
        bail!(
            "stage `{}` failed after {} ({status})\n  to repeat it: {}",
            stage.name,
            seconds(began.elapsed()),
            stage.repeat()
        );
    }
    Ok(began.elapsed())
}

fn seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}
