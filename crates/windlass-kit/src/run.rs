//! Runs all scenarios with all runtimes, several at a time, and collects the results.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::locked;
use crate::matrix::{Matrix, MatrixCell};
use crate::product::Product;
use crate::runtime::KitRuntime;
use crate::scenario::{ATTACKS, SCENARIOS, Scenario, ScenarioContext};

/// The selection of tests.
pub struct TestSelection {
    pub product: Product,
    pub runtimes: Vec<KitRuntime>,
    /// The names of scenarios; all if it is empty.
    pub scenarios: Vec<String>,
    /// Runs the attacks of the hostile agent instead of the scenarios.
    pub attacks: bool,
    /// The number of scenarios that run at a time.
    pub jobs: usize,
    /// The path of the hostile agent.
    pub hostile: PathBuf,
    /// Runtimes that cannot run on this machine, by their short names, and the reasons. They are skipped.
    pub missing: Vec<(String, String)>,
}

/// The result of one scenario with one runtime, reported as soon as it is known.
pub struct CellResult<'a> {
    pub runtime: &'a KitRuntime,
    pub scenario: &'a Scenario,
    pub cell: &'a MatrixCell,
    pub took: Duration,
}

/// Runs everything and passes each result to `report`.
///
/// # Errors
/// If a scenario is unknown.
pub fn run(
    options: &TestSelection,
    report: &(dyn Fn(&CellResult<'_>) + Sync),
) -> Result<Matrix, String> {
    let scenarios = chosen(
        if options.attacks { ATTACKS } else { SCENARIOS },
        &options.scenarios,
    )?;
    let all: Vec<(usize, usize)> = (0..scenarios.len())
        .flat_map(|row| (0..options.runtimes.len()).map(move |column| (column, row)))
        .collect();
    let cells: Mutex<Vec<((usize, usize), MatrixCell)>> = Mutex::default();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.clamp(1, 16) {
            scope.spawn(|| {
                while let Some(&(column, row)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (runtime, scenario) = (&options.runtimes[column], scenarios[row]);
                    let context = ScenarioContext {
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
                        Some((_, why)) => MatrixCell::NotApplicable(format!(
                            "not installed on the machine of this run: {why}"
                        )),
                        None => scenario.run(&context),
                    };
                    report(&CellResult {
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
    let lost = || MatrixCell::Fail("the scenario panicked".to_owned());
    Ok(Matrix::new(&options.runtimes, &scenarios, |column, row| {
        cell(column, row).unwrap_or_else(lost)
    }))
}

/// Returns the named scenarios of a table, or all. A name of the other table is not an error, because both tables may
/// run with the same names.
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
            "unknown scenario `{name}`; known are: {}",
            known().collect::<Vec<_>>().join(", ")
        ));
    }
    let named =
        |scenario: &&Scenario| names.is_empty() || names.iter().any(|name| name == scenario.name);
    Ok(table.iter().filter(named).collect())
}
