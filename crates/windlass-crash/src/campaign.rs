//! Random cases that users meet: many runs in one workspace, a kill at a random operation of a run, a landing, an undo
//! or a redo, saves of files during a run, and real disks that fill up at each point. Each part counts its cases and
//! lists all violations.

mod full_disk;
mod kills;
mod oracle;
mod parallel_runs;
mod saves;
mod task;

use std::path::PathBuf;

use anyhow::{Context as _, Result};

/// The size of a campaign.
#[derive(Debug, Clone)]
pub struct Campaign {
    pub binary: PathBuf,
    /// The numbers of parallel runs in one workspace.
    pub runs: Vec<usize>,
    pub kills: usize,
    /// The number of files that an editor saves during runs.
    pub saves: usize,
    /// The number of disks that are too small, each by another amount.
    pub full_disks: usize,
    /// The seed for all random numbers.
    pub seed: u64,
}

/// The result of one part of a campaign.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// The name of the part.
    pub part: String,
    pub cases: usize,
    /// A summary of the cases, for people.
    pub seen: String,
    pub wrong: Vec<String>,
}

impl Tally {
    /// Returns the summary line.
    #[must_use]
    pub fn line(&self) -> String {
        let (part, cases, seen) = (&self.part, self.cases, &self.seen);
        format!("{part}: {cases} cases, {} wrong ({seen})", self.wrong.len())
    }
}

/// Runs all parts; calls `report` after each.
pub fn run_campaign(campaign: &Campaign, report: &dyn Fn(&Tally)) -> Result<Vec<Tally>> {
    let binary = campaign
        .binary
        .canonicalize()
        .with_context(|| format!("no binary at {}", campaign.binary.display()))?;
    let mut random = Random(campaign.seed);
    let mut tallies = Vec::new();
    let mut take = |tally: Tally| {
        report(&tally);
        tallies.push(tally);
    };
    for &runs in &campaign.runs {
        for mode in crate::WorkMode::ALL {
            take(parallel_runs::run(&binary, mode, runs)?);
        }
    }
    if campaign.kills > 0 {
        take(kills::run(&binary, campaign.kills, &mut random)?);
    }
    if campaign.saves > 0 {
        take(saves::run(&binary, campaign.saves, &mut random)?);
    }
    if campaign.full_disks > 0 {
        full_disk::run(&binary, campaign.full_disks, &mut take)?;
    }
    Ok(tallies)
}

/// Random numbers by splitmix64, reproducible by the seed.
struct Random(u64);

impl Random {
    /// Returns a number below `end`.
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % end.max(1) as u64).unwrap_or(0)
    }
}
