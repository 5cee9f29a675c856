//! Goes through all runtimes and scenarios, a few at a time, and fills the table.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::locked;
use crate::matrix::{Cell, Matrix};
use crate::product::Product;
use crate::runtime::Runtime;
use crate::scenario::{ATTACKS, SCENARIOS, Scenario, Stage};

/// What to try.
pub struct Options {
    /// The product.
    pub product: Product,
    /// With these runtimes.
    pub runtimes: Vec<Runtime>,
    /// Only these scenarios; all where it is empty.
    pub scenarios: Vec<String>,
    /// What the hostile agent tries, in the place of what every runtime must pass.
    pub attacks: bool,
    /// So many at a time.
    pub jobs: usize,
    /// The hostile agent.
    pub hostile: PathBuf,
    /// Runtimes that cannot work on this machine, by their short names, and why: they are not tried.
    pub missing: Vec<(String, String)>,
}

/// One cell, as soon as it is known.
pub struct Told<'a> {
    /// With whom.
    pub runtime: &'a Runtime,
    /// What.
    pub scenario: &'a Scenario,
    /// How it went.
    pub cell: &'a Cell,
    /// How long it took.
    pub took: Duration,
}

/// Tries everything and tells of each.
///
/// # Errors
/// Where a scenario is named that there is not.
pub fn run(options: &Options, tell: &(dyn Fn(&Told<'_>) + Sync)) -> Result<Matrix, String> {
    let scenarios = chosen(
        if options.attacks { ATTACKS } else { SCENARIOS },
        &options.scenarios,
    )?;
    let all: Vec<(usize, usize)> = (0..scenarios.len())
        .flat_map(|row| (0..options.runtimes.len()).map(move |column| (column, row)))
        .collect();
    let cells: Mutex<Vec<((usize, usize), Cell)>> = Mutex::default();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.clamp(1, 16) {
            scope.spawn(|| {
                while let Some(&(column, row)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (runtime, scenario) = (&options.runtimes[column], scenarios[row]);
                    let stage = Stage {
                        product: &options.product,
                        runtime,
                        hostile: &options.hostile,
                    };
                    let began = Instant::now();
                    let missing = options
                        .missing
                        .iter()
                        .find(|(name, _)| *name == runtime.short());
                    let cell = match missing {
                        Some((_, why)) => {
                            Cell::NotApplicable(format!("not on the machine of this run: {why}"))
                        }
                        None => scenario.judge(&stage),
                    };
                    tell(&Told {
                        runtime,
                        scenario,
                        cell: &cell,
                        took: began.elapsed(),
                    });
                    locked(&cells).push(((column, row), cell));
                }
            });
        }
    });
    let cells = locked(&cells);
    let cell = |column, row| {
        cells
            .iter()
            .find(|(at, _)| *at == (column, row))
            .map(|(_, cell)| cell.clone())
    };
    let lost = || Cell::Fail("the scenario panicked".to_owned());
    Ok(Matrix::new(&options.runtimes, &scenarios, |column, row| {
        cell(column, row).unwrap_or_else(lost)
    }))
}

/// Those of a table that are named, or all of it. A name of the other table is no mistake: its turn is another.
fn chosen(table: &'static [Scenario], names: &[String]) -> Result<Vec<&'static Scenario>, String> {
    let known = || {
        SCENARIOS
            .iter()
            .chain(ATTACKS)
            .map(|scenario| scenario.name)
    };
    if let Some(name) = names
        .iter()
        .find(|name| !known().any(|known| known == name.as_str()))
    {
        return Err(format!(
            "there is no scenario `{name}`; there are: {}",
            known().collect::<Vec<_>>().join(", ")
        ));
    }
    let named =
        |scenario: &&Scenario| names.is_empty() || names.iter().any(|name| name == scenario.name);
    Ok(table.iter().filter(named).collect())
}
