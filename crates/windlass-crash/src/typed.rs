//! The command line of the crash harness: reads what was typed, runs, prints the failures as they come and the tables
//! at the end.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use windlass_crash::{Campaign, How, Options, Pick, Tally, Told, Where, run, run_campaign};

/// A line on how far it is after so many cases.
const PROGRESS: usize = 50;

pub(crate) fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match args.get(1).map(String::as_str) {
        Some("campaign") => read_campaign(&args).and_then(|campaign| fight(&campaign)),
        _ => read(&args).and_then(|options| strike(&options)),
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

fn strike(options: &Options) -> Result<bool> {
    let tell = |told: Told<'_>| match told {
        Told::Over(nth, of) if nth.is_multiple_of(PROGRESS) => eprintln!("{nth} of about {of}"),
        Told::Over(..) => {}
        Told::Wrong(case, why) => println!("{} {why}\n  again: {}", case.at, case.repeat()),
    };
    let report = run(options, &tell)?;
    println!("{}", report.table());
    let cases = report
        .failures
        .iter()
        .map(|(case, _)| case.repeat())
        .collect::<std::collections::BTreeSet<_>>();
    match cases.len() {
        0 => println!("everything held"),
        failed => println!("{failed} cases did not hold"),
    }
    Ok(cases.is_empty())
}

fn fight(campaign: &Campaign) -> Result<bool> {
    let tell = |tally: &Tally| {
        println!("{}", tally.line());
        tally.wrong.iter().for_each(|why| println!("  {why}"));
    };
    let tallies = run_campaign(campaign, &tell)?;
    Ok(tallies.iter().all(|tally| tally.wrong.is_empty()))
}

/// A campaign as it was typed; without options it is the long one.
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
                .with_context(|| format!("`{value}` is no number"))
        };
        match word.as_str() {
            "--runs" => {
                let runs = value.split(',').filter(|runs| !runs.is_empty());
                campaign.runs = runs.map(number).collect::<Result<_>>()?;
            }
            "--kills" => campaign.kills = count()?,
            "--saves" => campaign.saves = count()?,
            "--full-disks" => campaign.full_disks = count()?,
            "--seed" => campaign.seed = value.parse().context("the seed is a number")?,
            other => bail!(
                "there is no option `{other}`; there are: --runs --kills --saves --full-disks --seed"
            ),
        }
    }
    Ok(campaign)
}

/// What was typed. The binary comes first: `cargo xtask crash` puts it there.
fn read(args: &[String]) -> Result<Options> {
    let (binary, rest) = args
        .split_first()
        .context("the first word is the path of a windlass binary")?;
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let (places, hows) = (Where::ALL.to_vec(), vec![How::Kill]);
    let mut options = Options {
        binary: PathBuf::from(binary),
        places,
        hows,
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
            "--seed" => seed = value()?.parse().context("the seed is a number")?,
            "--workers" => options.workers = number(value()?)?,
            "--wide-patches" => options.wide_patches = true,
            "--keep" => options.keep = true,
            "--how" => options.hows = value()?.split(',').map(how).collect::<Result<_>>()?,
            "--errors" => {
                let names = value()?;
                let names = if names == "all" {
                    "enospc,eio,erofs"
                } else {
                    names.as_str()
                };
                options.hows = names.split(',').map(how).collect::<Result<_>>()?;
            }
            "--place" => options.places = vec![place(value()?)?],
            other => bail!(
                "there is no option `{other}`; there are: --only --every --seed --how --errors --place --workers --keep --wide-patches"
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
        .with_context(|| format!("`{word}` is no number"))?;
    if number == 0 {
        bail!("counting begins at 1")
    } else {
        Ok(number)
    }
}

fn how(word: &str) -> Result<How> {
    let known = || How::words().collect::<Vec<_>>().join(", ");
    How::of(word).with_context(|| format!("there is no blow `{word}`; there are: {}", known()))
}

fn place(word: &str) -> Result<Where> {
    let found = Where::ALL.into_iter().find(|place| place.word() == word);
    found.with_context(|| format!("there is no place `{word}`; there are: in-place, isolated"))
}
