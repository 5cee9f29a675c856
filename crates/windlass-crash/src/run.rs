//! Runs all cases: finds the operations of a run without faults, selects those for faults, runs the cases in parallel,
//! and continues past the last known operation until a run ends without a fault.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::case::{self, CaseContext, CaseResult, CrashCase, FaultlessRun, WorkMode};
use crate::op::{Op, OpKind};
use crate::report::{CrashReport, CrashRow};
use crate::scratch::Template;
use crate::supervise::FaultKind;

/// An upper limit for the number of operations of a run.
const MAX_OPS: usize = 100_000;
/// The minimum number of operations of each kind in a sample.
const EACH_KIND: usize = 4;
/// The number of last operations, which are always in a sample.
const LAST: usize = 4;

/// The operations that get a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pick {
    /// All operations, until a run ends before the next one.
    All,
    Only(usize),
    /// Every n-th operation; the seed determines the first.
    Every(usize, u64),
    /// A sample of this size: one of each kind on each kind of file, the last ones, and others by the seed.
    Sample(usize, u64),
}

/// The cases to run, and the way to run them.
#[derive(Debug, Clone)]
pub struct CrashOptions {
    pub binary: PathBuf,
    pub modes: Vec<WorkMode>,
    pub faults: Vec<FaultKind>,
    pub pick: Pick,
    /// The number of parallel cases.
    pub workers: usize,
    /// Keep the scratch directory of each case, and report its path.
    pub keep: bool,
    /// The patches of the task change two files each; a crash between the two leaves a partial patch.
    pub wide_patches: bool,
}

/// A message about a finished case.
#[derive(Debug)]
pub enum CrashProgress<'a> {
    /// A case is finished: its number, and the total as far as it is known.
    Over(usize, usize),
    /// A check failed, or a scratch directory is kept.
    Violation(&'a CrashCase, String),
}

/// Runs all cases; calls `report_progress` after each.
pub fn run(
    options: &CrashOptions,
    report_progress: &(dyn Fn(CrashProgress<'_>) + Sync),
) -> Result<CrashReport> {
    // Runs start in other directories, so the path must be absolute; a missing binary is reported here.
    let binary = options
        .binary
        .canonicalize()
        .with_context(|| format!("no binary at {}", options.binary.display()))?;
    let runs = rustix::fs::access(&binary, rustix::fs::Access::EXEC_OK).is_ok() && binary.is_file();
    ensure!(runs, "{} is not an executable file", binary.display());
    let template = Template::new(options.wide_patches)?;
    let mut report = CrashReport::default();
    for &mode in &options.modes {
        let expected = FaultlessRun::find(&binary, &template, mode)?;
        let context = CaseContext {
            binary: &binary,
            template: &template,
            expected: &expected,
            keep: options.keep,
        };
        for &fault in &options.faults {
            let began = Instant::now();
            let mut ops: BTreeMap<OpKind, usize> = BTreeMap::new();
            expected
                .ops
                .iter()
                .for_each(|op| *ops.entry(op.kind).or_default() += 1);
            let mut row = CrashRow::new(mode, fault, expected.events, ops);
            for done in run_cases(options, mode, fault, &context, report_progress)? {
                row.take(&done);
                report.fail(&done);
            }
            row.took = began.elapsed();
            report.rows.push(row);
        }
    }
    report
        .failures
        .sort_by_key(|(case, _)| (case.mode.word(), case.fault.word(), case.at));
    Ok(report)
}

/// Runs all cases of one mode and one kind of fault, several in parallel.
fn run_cases(
    options: &CrashOptions,
    mode: WorkMode,
    fault: FaultKind,
    context: &CaseContext<'_>,
    report_progress: &(dyn Fn(CrashProgress<'_>) + Sync),
) -> Result<Vec<CaseResult>> {
    let wanted = picked(options.pick, &context.expected.ops);
    let (next, over) = (AtomicUsize::new(0), AtomicUsize::new(MAX_OPS));
    let all: Mutex<Vec<Result<CaseResult>>> = Mutex::default();
    let work = || {
        loop {
            let nth = next.fetch_add(1, Ordering::SeqCst);
            let at = match &wanted {
                Some(wanted) => wanted.get(nth).copied(),
                None => Some(nth + 1).filter(|at| *at < over.load(Ordering::SeqCst)),
            };
            let Some(at) = at else { return };
            let done = case::run(CrashCase { at, fault, mode }, context);
            if let Ok(done) = &done {
                if done.hit.is_none() {
                    over.fetch_min(at, Ordering::SeqCst);
                }
                report_progress(CrashProgress::Over(
                    nth + 1,
                    wanted.as_ref().map_or(context.expected.ops.len(), Vec::len),
                ));
                if let Some(kept) = &done.kept {
                    report_progress(CrashProgress::Violation(
                        &done.case,
                        format!("kept in {}", kept.display()),
                    ));
                }
                for (wrong, why) in &done.wrong {
                    report_progress(CrashProgress::Violation(
                        &done.case,
                        format!("{}: {why}", wrong.word()),
                    ));
                }
            } else {
                over.store(0, Ordering::SeqCst);
            }
            all.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(done);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..options.workers.max(1) {
            scope.spawn(work);
        }
    });
    all.into_inner()
        .unwrap_or_else(PoisonError::into_inner)
        .into_iter()
        .collect()
}

/// Returns the numbers of the selected operations, from 1; `None` for all.
fn picked(pick: Pick, ops: &[Op]) -> Option<Vec<usize>> {
    match pick {
        Pick::All => None,
        Pick::Only(at) => Some(vec![at]),
        Pick::Every(every, seed) => {
            let every = every.max(1);
            let first = usize::try_from(seed % every as u64).unwrap_or(0);
            Some((1 + first..=ops.len()).step_by(every).collect())
        }
        Pick::Sample(most, seed) => Some(sample(most, seed, ops)),
    }
}

/// Selects one of each kind on each kind of file, the last ones, and random ones until there are enough.
fn sample(most: usize, seed: u64, ops: &[Op]) -> Vec<usize> {
    let mut seen = BTreeSet::new();
    let mut chosen: BTreeSet<usize> = (ops.len().saturating_sub(LAST)..ops.len())
        .map(|at| at + 1)
        .collect();
    // From the end, because all runs share the beginning, which would fill the sample.
    for (at, op) in ops.iter().enumerate().rev() {
        if seen.insert((op.kind, class(&op.path))) {
            chosen.insert(at + 1);
        }
    }
    // Threads change the order a little, so that a single fault may miss its kind.
    let kinds: BTreeSet<OpKind> = ops.iter().map(|op| op.kind).collect();
    for kind in kinds {
        let own: Vec<usize> = (1..=ops.len())
            .filter(|at| ops[at - 1].kind == kind)
            .collect();
        let missing = EACH_KIND.saturating_sub(own.iter().filter(|at| chosen.contains(at)).count());
        chosen.extend((1..=missing).map(|nth| own[nth * (own.len() - 1) / (missing + 1)]));
    }
    let mut state = seed;
    while chosen.len() < most.min(ops.len()) {
        // One step of splitmix64; any good generator works.
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let range = ops.len() as u64;
        chosen.insert(usize::try_from((mixed ^ (mixed >> 31)) % range).unwrap_or(0) + 1);
    }
    chosen.into_iter().collect()
}

/// Returns the part of the stored files that a path belongs to.
fn class(path: &str) -> &'static str {
    let classes = [
        ("/sessions/", "session"),
        ("/undo/journals/", "journal"),
        ("/undo/contents/", "contents"),
        ("/transactions/", "transaction"),
        ("/boxes/", "boxes"),
        ("~/project", "project"),
        ("~/home", "home"),
    ];
    classes
        .iter()
        .find(|(part, _)| path.contains(part))
        .map_or("copy", |(_, class)| class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_each_kind_and_the_last_and_is_reproducible() {
        let op = |kind, path: &str| Op {
            kind,
            call: "call",
            path: path.to_owned(),
        };
        let mut ops = vec![op(OpKind::Write, "~/home/a/sessions/x/events.jsonl"); 50];
        ops[20] = op(OpKind::Rename, "~/project/a");
        ops[21] = op(OpKind::Write, "~/project/a");
        let chosen = sample(10, 1, &ops);
        assert_eq!(chosen.len(), 10);
        assert!(
            [21, 22, 47, 48, 49, 50]
                .iter()
                .all(|at| chosen.contains(at)),
            "{chosen:?}"
        );
        assert_eq!(chosen, sample(10, 1, &ops));
        assert_ne!(chosen, sample(10, 2, &ops));
        assert_eq!(picked(Pick::Every(20, 5), &ops), Some(vec![6, 26, 46]));
        assert_eq!(
            (picked(Pick::Only(7), &ops), picked(Pick::All, &ops)),
            (Some(vec![7]), None)
        );
    }
}
