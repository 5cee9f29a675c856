//! Goes through all blows: finds the operations of a run without one, picks which are struck, does them side by side,
//! and goes on past the last until a run ends without having been struck.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::case::{self, Case, Done, Expected, Ground, Where};
use crate::op::{Kind, Op};
use crate::place::Template;
use crate::report::{Report, Row};
use crate::supervise::How;

/// No run has so many operations.
const MOST: usize = 100_000;
/// A sample holds so many operations of each kind, where there are so many.
const EACH_KIND: usize = 4;
/// The last operations, which a sample always holds.
const LAST: usize = 4;

/// Which operations are struck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pick {
    /// Every one, until a run ends without reaching it.
    All,
    /// Exactly this one.
    Only(usize),
    /// Every so many-th, from a beginning that the seed says.
    Every(usize, u64),
    /// So many: one of each kind on each kind of file, the last ones, and others by the seed.
    Sample(usize, u64),
}

/// What is to be done.
#[derive(Debug, Clone)]
pub struct Options {
    /// The windlass binary.
    pub binary: PathBuf,
    /// Where runs work.
    pub places: Vec<Where>,
    /// What happens to them.
    pub hows: Vec<How>,
    /// At which operations.
    pub pick: Pick,
    /// How many cases at a time.
    pub workers: usize,
    /// Leave the scratch directory of each case, and say where it is.
    pub keep: bool,
    /// Patches of the task change two files each; a crash between the two leaves a part of it.
    pub wide_patches: bool,
}

/// What is told while it goes on.
#[derive(Debug)]
pub enum Told<'a> {
    /// A case is over; so many of so many are, as far as that is known.
    Over(usize, usize),
    /// Something did not hold, or is kept.
    Wrong(&'a Case, String),
}

/// Does everything; `tell` hears of each case as soon as it is over.
pub fn run(options: &Options, tell: &(dyn Fn(Told<'_>) + Sync)) -> Result<Report> {
    // The whole path: runs start in other directories, and what cannot be started must show here.
    let binary = options
        .binary
        .canonicalize()
        .with_context(|| format!("no binary at {}", options.binary.display()))?;
    let runs = rustix::fs::access(&binary, rustix::fs::Access::EXEC_OK).is_ok() && binary.is_file();
    ensure!(
        runs,
        "{} is no program that can be started",
        binary.display()
    );
    let template = Template::new(options.wide_patches)?;
    let mut report = Report::default();
    for &place in &options.places {
        let expected = Expected::find(&binary, &template, place)?;
        let ground = Ground {
            binary: &binary,
            template: &template,
            expected: &expected,
            keep: options.keep,
        };
        for &how in &options.hows {
            let began = Instant::now();
            let mut ops: BTreeMap<Kind, usize> = BTreeMap::new();
            expected
                .ops
                .iter()
                .for_each(|op| *ops.entry(op.kind).or_default() += 1);
            let mut row = Row::new(place, how, expected.events, ops);
            for done in blows(options, place, how, &ground, tell)? {
                row.take(&done);
                report.fail(&done);
            }
            row.took = began.elapsed();
            report.rows.push(row);
        }
    }
    report
        .failures
        .sort_by_key(|(case, _)| (case.place.word(), case.how.word(), case.at));
    Ok(report)
}

/// All cases of one place and one kind of blow, several at a time.
fn blows(
    options: &Options,
    place: Where,
    how: How,
    ground: &Ground<'_>,
    tell: &(dyn Fn(Told<'_>) + Sync),
) -> Result<Vec<Done>> {
    let wanted = picked(options.pick, &ground.expected.ops);
    let (next, over) = (AtomicUsize::new(0), AtomicUsize::new(MOST));
    let all: Mutex<Vec<Result<Done>>> = Mutex::default();
    let work = || {
        loop {
            let nth = next.fetch_add(1, Ordering::SeqCst);
            let at = match &wanted {
                Some(wanted) => wanted.get(nth).copied(),
                None => Some(nth + 1).filter(|at| *at < over.load(Ordering::SeqCst)),
            };
            let Some(at) = at else { return };
            let done = case::run(Case { at, how, place }, ground);
            if let Ok(done) = &done {
                if done.hit.is_none() {
                    over.fetch_min(at, Ordering::SeqCst);
                }
                tell(Told::Over(
                    nth + 1,
                    wanted.as_ref().map_or(ground.expected.ops.len(), Vec::len),
                ));
                if let Some(kept) = &done.kept {
                    tell(Told::Wrong(
                        &done.case,
                        format!("kept in {}", kept.display()),
                    ));
                }
                for (wrong, why) in &done.wrong {
                    tell(Told::Wrong(&done.case, format!("{}: {why}", wrong.word())));
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

/// The numbers of the operations to strike, counted from 1; none for all.
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

/// One of each kind on each kind of file, the last ones, and then by the seed until there are enough.
fn sample(most: usize, seed: u64, ops: &[Op]) -> Vec<usize> {
    let mut seen = BTreeSet::new();
    let mut chosen: BTreeSet<usize> = (ops.len().saturating_sub(LAST)..ops.len())
        .map(|at| at + 1)
        .collect();
    // From the end, so that the beginning, which every run shares, does not take all the places.
    for (at, op) in ops.iter().enumerate().rev() {
        if seen.insert((op.kind, class(&op.path))) {
            chosen.insert(at + 1);
        }
    }
    // Threads make the order vary a little: one blow alone can miss its kind.
    let kinds: BTreeSet<Kind> = ops.iter().map(|op| op.kind).collect();
    for kind in kinds {
        let own: Vec<usize> = (1..=ops.len())
            .filter(|at| ops[at - 1].kind == kind)
            .collect();
        let missing = EACH_KIND.saturating_sub(own.iter().filter(|at| chosen.contains(at)).count());
        chosen.extend((1..=missing).map(|nth| own[nth * (own.len() - 1) / (missing + 1)]));
    }
    let mut state = seed;
    while chosen.len() < most.min(ops.len()) {
        // A step of splitmix64: any good spread does.
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let range = ops.len() as u64;
        chosen.insert(usize::try_from((mixed ^ (mixed >> 31)) % range).unwrap_or(0) + 1);
    }
    chosen.into_iter().collect()
}

/// Which part of what is kept a path belongs to.
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
    fn a_sample_holds_each_kind_and_the_last_and_is_the_same_every_time() {
        let op = |kind, path: &str| Op {
            kind,
            call: "call",
            path: path.to_owned(),
        };
        let mut ops = vec![op(Kind::Write, "~/home/a/sessions/x/events.jsonl"); 50];
        ops[20] = op(Kind::Rename, "~/project/a");
        ops[21] = op(Kind::Write, "~/project/a");
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
