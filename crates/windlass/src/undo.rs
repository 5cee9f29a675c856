//! Undo and redo of changes to the user's tree. A fold of the log finds the changes that can be undone and the undos that
//! can be redone.
//!
//! ```
//! use windlass::undo::{UndoRecord, UndoableChange, UndoableChanges, UndoTarget};
//!
//! let changes = UndoableChanges::default();
//! let (done, undone): (&[UndoableChange], &[UndoRecord]) = (&changes.done, &changes.undone);
//! assert!(done.is_empty() && undone.is_empty());
//! assert_ne!(UndoTarget::LastRun, UndoTarget::To(7));
//! ```

pub use windlass_transaction::landing::undo::UndoPlan;

mod apply;

use std::collections::{BTreeSet, HashMap, HashSet};

use windlass_core::event::{Event, EventKind};
use windlass_core::id::{CallId, RunId};
use windlass_core::image::Swap;
use windlass_core::terms::Strategy;

pub use self::apply::{
    AppliedUndo, PlannedUndo, UndoOptions, UndoReport, UndoRequest, changes_of_session,
    last_changes, plan_undo, undoable_changes,
};

/// One change of the tree that can be undone, by a call or by a landing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndoableChange {
    /// The number of the event that records the change.
    pub seq: u64,
    pub run: Option<RunId>,
    /// The call that made the change; `None` for a landing.
    pub call: Option<CallId>,
    pub swaps: Vec<Swap>,
    /// The commit that the landing made.
    pub commit: Option<String>,
    /// The number of the event that undid the change, if it is undone.
    pub undone_by: Option<u64>,
}

/// An undo that can be redone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndoRecord {
    /// The number of the event that records the undo.
    pub seq: u64,
    /// The numbers of the events whose changes were undone.
    pub of: Vec<u64>,
    pub swaps: Vec<Swap>,
}

/// All undoable changes of a log, and the undos that can be redone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UndoableChanges {
    /// In the order of the log, including changes that were undone.
    pub done: Vec<UndoableChange>,
    /// In the order of the log. A redo takes the last one.
    pub undone: Vec<UndoRecord>,
    /// All runs of the log, in order.
    pub runs: Vec<RunId>,
    /// The calls of isolated runs whose changes landed, each with the event of the landing.
    landed_calls: Vec<(UndoableChange, u64)>,
    /// Changes of calls in copies that have not landed, by the name of the copy.
    in_copies: HashMap<String, Vec<UndoableChange>>,
    /// The copy of the open run; `None` if it works in place.
    copy: Option<String>,
}

/// Selects the changes to undo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UndoTarget {
    /// The changes of the last run that changed something.
    LastRun,
    Run(RunId),
    Call(CallId),
    /// All changes after the event of this number.
    To(u64),
}

impl UndoableChanges {
    /// Adds the next event of a log.
    pub(crate) fn apply(&mut self, event: &Event) {
        let Some(seq) = event.order.seq() else { return };
        match &event.kind {
            EventKind::FileChanged {
                call,
                swap: Some(swap),
                ..
            } => {
                let change = change(event, seq, call.as_ref(), vec![swap.clone()]);
                match self.copy.clone() {
                    Some(copy) => self.in_copies.entry(copy).or_default().push(change),
                    None => self.done.push(change),
                }
            }
            EventKind::Landed { landed, .. } if !landed.swaps.is_empty() => {
                let mut landing = change(event, seq, None, landed.swaps.clone());
                landing.commit.clone_from(&landed.commit);
                self.done.push(landing);
                self.land_calls(seq, &landed.swaps);
            }
            EventKind::RunStarted { .. } => {
                self.copy = None;
                self.runs.extend(event.run.clone());
            }
            EventKind::TransactionOpened { terms, name } => {
                let name = name.clone().unwrap_or_default();
                self.copy = (terms.strategy != Strategy::InPlace).then_some(name);
            }
            EventKind::Undone {
                of, also, swaps, ..
            } => {
                let of: Vec<u64> = std::iter::once(*of).chain(also.iter().copied()).collect();
                for change in self.all().filter(|change| of.contains(&change.seq)) {
                    change.undone_by = Some(seq);
                }
                self.undone.push(UndoRecord {
                    seq,
                    of,
                    swaps: swaps.clone(),
                });
            }
            EventKind::Redone { of, .. } => {
                self.undone.retain(|undo| undo.seq != *of);
                for change in self.all().filter(|change| change.undone_by == Some(*of)) {
                    change.undone_by = None;
                }
            }
            // Changes before a fork belong to the session that was forked.
            EventKind::Forked { .. } => *self = Self::default(),
            _ => {}
        }
    }

    /// All changes, including those of single calls whose run landed.
    fn all(&mut self) -> impl Iterator<Item = &mut UndoableChange> {
        let calls = self.landed_calls.iter_mut().map(|(change, _)| change);
        self.done.iter_mut().chain(calls)
    }

    /// Records that the changes of calls in the copy are now in the tree, if their paths landed.
    fn land_calls(&mut self, landing: u64, landed: &[Swap]) {
        let paths: HashSet<&str> = landed.iter().map(|swap| swap.path.as_str()).collect();
        let copy = self.copy.clone().unwrap_or_default();
        let calls = self.in_copies.remove(&copy).unwrap_or_default();
        let is_in = |call: &UndoableChange| {
            let mut swaps = call.swaps.iter();
            swaps.any(|swap| paths.contains(swap.path.as_str()))
        };
        let calls = calls.into_iter().filter(is_in);
        self.landed_calls.extend(calls.map(|call| (call, landing)));
    }

    /// The swaps of a change, followed by the undos of single calls of that landing. Undoing all of them in reverse
    /// order restores the tree.
    pub(crate) fn standing_swaps(&self, change: &UndoableChange) -> Vec<Swap> {
        let calls = self.landed_calls.iter();
        let calls = calls.filter(|(_, landing)| *landing == change.seq);
        let undos: BTreeSet<u64> = calls.filter_map(|(call, _)| call.undone_by).collect();
        let undos = self.undone.iter().filter(|undo| undos.contains(&undo.seq));
        let undone = undos.flat_map(|undo| undo.swaps.clone());
        change.swaps.iter().cloned().chain(undone).collect()
    }

    /// The changes of a call that are in the tree, made in place or by a landing that was not undone.
    fn of_call(&self, call: &CallId) -> Vec<&UndoableChange> {
        let stands = |seq: u64| {
            let mut landings = self.done.iter().filter(|change| change.seq == seq);
            landings.any(|landing| landing.undone_by.is_none())
        };
        let landed = self.landed_calls.iter();
        let landed = landed.filter(|(_, landing)| stands(*landing));
        let all = self.done.iter().chain(landed.map(|(change, _)| change));
        all.filter(|change| change.call.as_ref() == Some(call) && change.undone_by.is_none())
            .collect()
    }

    /// Whether a later run changed nothing. The user may have meant that run, and not the one that would be undone. Later
    /// runs that were undone are ignored.
    fn is_passed_over(&self, run: Option<&RunId>) -> bool {
        let changed = |run: &&RunId| self.done.iter().any(|done| done.run.as_ref() == Some(run));
        let after = self.runs.iter().rev();
        let mut after = after.take_while(|later| Some(*later) != run);
        after.any(|later| !changed(&later))
    }

    /// The selected changes that are not undone, in the order of the log.
    #[must_use]
    pub(crate) fn find(&self, wanted: &UndoTarget) -> Vec<&UndoableChange> {
        let standing = || self.done.iter().filter(|change| change.undone_by.is_none());
        match wanted {
            UndoTarget::LastRun => match standing().next_back() {
                Some(last) => standing().filter(|change| change.run == last.run).collect(),
                None => Vec::new(),
            },
            UndoTarget::Run(run) => standing()
                .filter(|change| change.run.as_ref() == Some(run))
                .collect(),
            UndoTarget::Call(call) => self.of_call(call),
            UndoTarget::To(seq) => standing().filter(|change| change.seq > *seq).collect(),
        }
    }
}

fn change(event: &Event, seq: u64, call: Option<&CallId>, swaps: Vec<Swap>) -> UndoableChange {
    UndoableChange {
        seq,
        run: event.run.clone(),
        call: call.cloned(),
        swaps,
        commit: None,
        undone_by: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::clock::Timestamp;
    use windlass_core::event::{Order, VERSION};
    use windlass_core::id::{SessionId, TraceId};
    use windlass_core::image::Image;
    use windlass_core::workspace::{Change, FileChange, Landed};

    fn swap(path: &str) -> Swap {
        Swap {
            path: path.into(),
            before: Image::Absent,
            after: Image::Link { target: "x".into() },
        }
    }

    fn event(seq: u64, run: u64, kind: EventKind) -> Event {
        let at = Timestamp::from_millis(0);
        let (session, trace) = (SessionId::fresh(at, 1), TraceId::fresh(1, 2));
        Event {
            v: VERSION,
            order: Order::Durable { seq },
            at,
            session,
            run: Some(RunId::nth(run)),
            trace,
            kind,
        }
    }

    fn changed(seq: u64, run: u64, call: &str, path: &str) -> Event {
        let change = FileChange {
            path: path.into(),
            change: Change::Created,
            added: Some(0),
            removed: Some(0),
            diff: None,
        };
        event(
            seq,
            run,
            EventKind::FileChanged {
                call: Some(CallId(call.into())),
                change,
                swap: Some(swap(path)),
            },
        )
    }

    #[test]
    fn changes_are_found_by_run_by_call_and_after_an_event() {
        let mut changes = UndoableChanges::default();
        let landed = Landed {
            swaps: vec![swap("l")],
            ..Landed::default()
        };
        let events = [
            changed(3, 1, "a", "1"),
            changed(4, 1, "b", "2"),
            event(
                9,
                2,
                EventKind::Landed {
                    landed,
                    tree_hash: None,
                },
            ),
        ];
        events.iter().for_each(|event| changes.apply(event));
        let seqs = |changes: &UndoableChanges, wanted: UndoTarget| {
            changes
                .find(&wanted)
                .iter()
                .map(|change| change.seq)
                .collect::<Vec<_>>()
        };
        assert_eq!(seqs(&changes, UndoTarget::LastRun), [9]);
        assert_eq!(seqs(&changes, UndoTarget::Run(RunId::nth(1))), [3, 4]);
        assert_eq!(seqs(&changes, UndoTarget::Call(CallId("b".into()))), [4]);
        assert_eq!(seqs(&changes, UndoTarget::To(3)), [4, 9]);
        changes.apply(&event(
            10,
            2,
            EventKind::Undone {
                of: 9,
                also: vec![4],
                files: vec![],
                swaps: vec![swap("l")],
            },
        ));
        assert_eq!(seqs(&changes, UndoTarget::LastRun), [3]);
        assert_eq!(changes.undone.last().map(|undo| undo.seq), Some(10));
        changes.apply(&event(
            11,
            2,
            EventKind::Redone {
                of: 10,
                files: vec![],
                swaps: vec![],
            },
        ));
        assert_eq!(seqs(&changes, UndoTarget::LastRun), [9]);
        assert_eq!(
            (
                seqs(&changes, UndoTarget::To(0)).len(),
                changes.undone.len()
            ),
            (3, 0)
        );
    }

    #[test]
    fn a_call_of_an_isolated_run_can_be_undone_once_its_run_landed() {
        let mut changes = UndoableChanges::default();
        let opened = |seq, run, strategy, name: &str| {
            let terms = windlass_core::terms::Terms::unconfined(strategy);
            let name = Some(name.to_owned());
            event(seq, run, EventKind::TransactionOpened { terms, name })
        };
        let landed = |seq, run, paths: &[&str]| {
            let landed = Landed {
                swaps: paths.iter().map(|path| swap(path)).collect(),
                ..Landed::default()
            };
            let tree_hash = None;
            event(seq, run, EventKind::Landed { landed, tree_hash })
        };
        let seqs = |changes: &UndoableChanges, call: &str| {
            let found = changes.find(&UndoTarget::Call(CallId(call.into())));
            found.iter().map(|change| change.seq).collect::<Vec<_>>()
        };
        changes.apply(&opened(2, 1, Strategy::Overlay, "one"));
        changes.apply(&changed(3, 1, "a", "1"));
        changes.apply(&changed(4, 1, "b", "2"));
        changes.apply(&changed(5, 1, "b", "reverted"));
        assert_eq!(seqs(&changes, "b"), [0; 0], "nothing landed yet");
        // Another copy lands first; then the kept one.
        changes.apply(&opened(6, 2, Strategy::Overlay, "two"));
        changes.apply(&landed(7, 2, &["other"]));
        assert_eq!(seqs(&changes, "b"), [0; 0]);
        changes.apply(&opened(8, 3, Strategy::Overlay, "one"));
        changes.apply(&landed(9, 3, &["1", "2"]));
        assert_eq!(
            (seqs(&changes, "a"), seqs(&changes, "b")),
            (vec![3], vec![4])
        );
        let run = |changes: &UndoableChanges| changes.find(&UndoTarget::LastRun).len();
        assert_eq!(run(&changes), 1, "the run is one landing");
        let undo = |of| event(20, 3, EventKind::undone(of, vec![], vec![]));
        changes.apply(&undo(4));
        assert_eq!((seqs(&changes, "b"), run(&changes)), (vec![], 1));
        changes.apply(&event(21, 3, EventKind::redone(20, vec![])));
        assert_eq!(seqs(&changes, "b"), [4]);
        changes.apply(&undo(9));
        assert_eq!(seqs(&changes, "b"), [0; 0], "it was undone with its run");
    }
}
