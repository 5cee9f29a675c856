//! Random cases that users meet: many runs in one workspace, a kill at a random operation of a run, a landing, an undo or
//! a redo, saves of files beside a run, and real disks that fill up at every point. Each part counts its cases and names
//! everything that did not hold.

mod full_disk;
mod kills;
mod many;
mod oracle;
mod saves;
mod task;

use std::path::PathBuf;

use anyhow::{Context as _, Result};

/// The size of a campaign.
#[derive(Debug, Clone)]
pub struct Campaign {
    /// The windlass binary.
    pub binary: PathBuf,
    /// The numbers of runs that work in one workspace at once.
    pub runs: Vec<usize>,
    /// Kills.
    pub kills: usize,
    /// Saves of files beside runs.
    pub saves: usize,
    /// Disks that are too small, each by another amount.
    pub full_disks: usize,
    /// The seed of everything that is random.
    pub seed: u64,
}

/// The result of one part of a campaign.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// The part, in words.
    pub part: String,
    /// Its cases.
    pub cases: usize,
    /// Counts of what happened in them, for the reader.
    pub seen: String,
    /// Everything that did not hold.
    pub wrong: Vec<String>,
}

impl Tally {
    /// Its line.
    #[must_use]
    pub fn line(&self) -> String {
        let (part, cases, seen) = (&self.part, self.cases, &self.seen);
        format!("{part}: {cases} cases, {} wrong ({seen})", self.wrong.len())
    }
}

/// Does all parts; `tell` hears of each when it is over.
pub fn run_campaign(campaign: &Campaign, tell: &dyn Fn(&Tally)) -> Result<Vec<Tally>> {
    let binary = campaign
        .binary
        .canonicalize()
        .with_context(|| format!("no binary at {}", campaign.binary.display()))?;
    let mut random = Random(campaign.seed);
    let mut tallies = Vec::new();
    let mut take = |tally: Tally| {
        tell(&tally);
        tallies.push(tally);
    };
    for &runs in &campaign.runs {
        for place in crate::Where::ALL {
            take(many::run(&binary, place, runs)?);
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

/// Numbers by splitmix64: the same for the same seed.
struct Random(u64);

impl Random {
    /// A number below `end`.
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % end.max(1) as u64).unwrap_or(0)
    }
}
