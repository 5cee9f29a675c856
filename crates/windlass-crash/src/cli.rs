//! The command line of the crash harness: parses the arguments, runs the cases, prints violations as they occur and the
//! tables at the end.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use windlass_crash::{
    Campaign, CrashOptions, CrashProgress, FaultKind, Pick, Tally, WorkMode, run, run_campaign,
};

/// A progress line is printed after this many cases.
const PROGRESS: usize = 50;

pub(crate) fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match args.get(1).map(String::as_str) {
        Some("campaign") => {
            read_campaign(&args).and_then(|campaign| run_and_print_campaign(&campaign))
        }
        _ => read(&args).and_then(|options| run_and_print(&options)),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(err) => {
            eprintln!("error: {err:#}");
            ExitCode::FAILURE
        }
    }
}

fn run_and_print(options: &CrashOptions) -> Result<bool> {
    let tell = |told: CrashProgress<'_>| match told {
        CrashProgress::Over(nth, of) if nth.is_multiple_of(PROGRESS) => {
            eprintln!("{nth} of about {of}")
        }
        CrashProgress::Over(..) => {}
        CrashProgress::Violation(case, why) => {
            println!("{} {why}\n  repeat: {}", case.at, case.repeat())
        }
    };
    let report = run(options, &tell)?;
    println!("{}", report.table());
    let cases = report
        .failures
        .iter()
        .map(|(case, _)| case.repeat())
        .collect::<std::collections::BTreeSet<_>>();
    match cases.len() {
        0 => println!("all checks passed"),
        failed => println!("checks failed in {failed} cases"),
    }
    Ok(cases.is_empty())
}

fn run_and_print_campaign(campaign: &Campaign) -> Result<bool> {
    let tell = |tally: &Tally| {
        println!("{}", tally.line());
        tally.wrong.iter().for_each(|why| println!("  {why}"));
    };
    let tallies = run_campaign(campaign, &tell)?;
    Ok(tallies.iter().all(|tally| tally.wrong.is_empty()))
}

/// Parses the arguments of a campaign; without options it is the long one.
fn read_campaign(args: &[String]) -> Result<Campaign> {
    let binary = args.first().map(PathBuf::from).unwrap_or_default();
    let mut campaign = Campaign {
        binary,
        runs: vec![2, 8, 32],
        kills: 500,
        saves: 200,
        full_disks: 200,
        seed: 1,
    };
    let mut words = args.iter().skip(2);
    while let Some(word) = words.next() {
        let value = words.next();
        let value = value.with_context(|| format!("`{word}` needs a value"))?;
        let count = || {
            value
                .parse()
                .with_context(|| format!("`{value}` is not a number"))
        };
        match word.as_str() {
            "--runs" => {
                let runs = value.split(',').filter(|runs| !runs.is_empty());
                campaign.runs = runs.map(number).collect::<Result<_>>()?;
            }
            "--kills" => campaign.kills = count()?,
            "--saves" => campaign.saves = count()?,
            "--full-disks" => campaign.full_disks = count()?,
            "--seed" => campaign.seed = value.parse().context("the seed must be a number")?,
            other => bail!(
                "unknown option `{other}`; the options are: --runs --kills --saves --full-disks --seed"
            ),
        }
    }
    Ok(campaign)
}

/// Parses the arguments. The first one is the binary, which `cargo xtask crash` adds.
fn read(args: &[String]) -> Result<CrashOptions> {
    let (binary, rest) = args
        .split_first()
        .context("the first argument must be the path of a windlass binary")?;
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let (modes, faults) = (WorkMode::ALL.to_vec(), vec![FaultKind::Kill]);
    let mut options = CrashOptions {
        binary: PathBuf::from(binary),
        modes,
        faults,
        pick: Pick::All,
        workers,
        keep: false,
        wide_patches: false,
    };
    let (mut every, mut seed) = (None, 0);
    let mut words = rest.iter();
    while let Some(word) = words.next() {
        let mut value = || {
            words
                .next()
                .with_context(|| format!("`{word}` needs a value"))
        };
        match word.as_str() {
            "--only" => options.pick = Pick::Only(number(value()?)?),
            "--every" => every = Some(number(value()?)?),
            "--seed" => seed = value()?.parse().context("the seed must be a number")?,
            "--workers" => options.workers = number(value()?)?,
            "--wide-patches" => options.wide_patches = true,
            "--keep" => options.keep = true,
            "--how" => {
                options.faults = value()?.split(',').map(fault_kind).collect::<Result<_>>()?
            }
            "--errors" => {
                let names = value()?;
                let names = if names == "all" {
                    "enospc,eio,erofs"
                } else {
                    names.as_str()
                };
                options.faults = names.split(',').map(fault_kind).collect::<Result<_>>()?;
            }
            "--place" => options.modes = vec![place(value()?)?],
            other => bail!(
                "unknown option `{other}`; the options are: --only --every --seed --how --errors --place --workers --keep --wide-patches"
            ),
        }
    }
    if let Some(every) = every {
        options.pick = Pick::Every(every, seed);
    }
    Ok(options)
}

fn number(word: &str) -> Result<usize> {
    let number: usize = word
        .parse()
        .with_context(|| format!("`{word}` is not a number"))?;
    if number == 0 {
        bail!("the number must be at least 1")
    } else {
        Ok(number)
    }
}

fn fault_kind(word: &str) -> Result<FaultKind> {
    let known = || FaultKind::words().collect::<Vec<_>>().join(", ");
    FaultKind::of(word)
        .with_context(|| format!("unknown fault `{word}`; the faults are: {}", known()))
}

fn place(word: &str) -> Result<WorkMode> {
    let found = WorkMode::ALL.into_iter().find(|place| place.word() == word);
    found.with_context(|| format!("unknown place `{word}`; use in-place or isolated"))
}
