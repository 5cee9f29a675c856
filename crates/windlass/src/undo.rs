//! Changes of the user's own tree that can be undone, and undos that can be redone: a fold of the log, and how
//! one of them is applied.
//!
//! ```
//! use windlass::undo::{Undo, UndoableChange, UndoableChanges, Wanted};
//!
//! let changes = UndoableChanges::default();
//! let (done, undone): (&[UndoableChange], &[Undo]) = (&changes.done, &changes.undone);
//! assert!(done.is_empty() && undone.is_empty());
//! assert_ne!(Wanted::LastRun, Wanted::To(7));
//! ```

pub use windlass_transaction::landing::undo::Plan;

mod apply;

use windlass_core::event::{Event, EventKind};
use windlass_core::id::{CallId, RunId};
use windlass_core::image::Swap;

pub use self::apply::{PlannedUndo, UndoRequest, plan_undo, undoable_changes};

/// One change of the tree that can be undone: by a call, or by a landing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndoableChange {
    /// The event that tells of it.
    pub seq: u64,
    /// The run it belongs to.
    pub run: Option<RunId>,
    /// The call that did it; none for a landing.
    pub call: Option<CallId>,
    /// What it changed.
    pub swaps: Vec<Swap>,
    /// The commit that was made of it.
    pub commit: Option<String>,
    /// It was taken back, by the event of this number.
    pub undone_by: Option<u64>,
}

/// Something that was taken back and can be done again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undo {
    /// The event that tells of it.
    pub seq: u64,
    /// The events it took back.
    pub of: Vec<u64>,
    /// What it changed.
    pub swaps: Vec<Swap>,
}

/// Every undoable change of a log, and which of them were undone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UndoableChanges {
    /// In the order it was done.
    pub done: Vec<UndoableChange>,
    /// What can be done again, the last one first to be.
    pub undone: Vec<Undo>,
    /// Every run of the log, in order.
    pub runs: Vec<RunId>,
}

/// What is to be taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// The last run that changed something.
    LastRun,
    /// This run.
    Run(RunId),
    /// This call.
    Call(CallId),
    /// Everything after this event.
    To(u64),
}

impl UndoableChanges {
    /// Takes one more event in.
    pub(crate) fn apply(&mut self, event: &Event) {
        let Some(seq) = event.order.seq() else { return };
        match &event.kind {
            EventKind::FileChanged {
                call,
                swap: Some(swap),
                ..
            } => {
                self.add(event, seq, Some(call), vec![swap.clone()]);
            }
            EventKind::Landed { landed, .. } if !landed.swaps.is_empty() => {
                self.add(event, seq, None, landed.swaps.clone());
                if let Some(last) = self.done.last_mut() {
                    last.commit.clone_from(&landed.commit);
                }
            }
            EventKind::RunStarted { .. } => self.runs.extend(event.run.clone()),
            EventKind::Undone {
                of, also, swaps, ..
            } => {
                let of: Vec<u64> = std::iter::once(*of).chain(also.iter().copied()).collect();
                for change in self
                    .done
                    .iter_mut()
                    .filter(|change| of.contains(&change.seq))
                {
                    change.undone_by = Some(seq);
                }
                self.undone.push(Undo {
                    seq,
                    of,
                    swaps: swaps.clone(),
                });
            }
            EventKind::Redone { of, .. } => {
                self.undone.retain(|undo| undo.seq != *of);
                for change in self
                    .done
                    .iter_mut()
                    .filter(|change| change.undone_by == Some(*of))
                {
                    change.undone_by = None;
                }
            }
            // What was done before belongs to the session this one was forked from.
            EventKind::Forked { .. } => *self = Self::default(),
            _ => {}
        }
    }

    fn add(&mut self, event: &Event, seq: u64, call: Option<&CallId>, swaps: Vec<Swap>) {
        self.done.push(UndoableChange {
            seq,
            run: event.run.clone(),
            call: call.cloned(),
            swaps,
            commit: None,
            undone_by: None,
        });
    }

    /// Whether a later run changed nothing, so that undoing this one is perhaps not what was meant. A later run that was
    /// undone does not count.
    fn is_passed_over(&self, run: Option<&RunId>) -> bool {
        let changed = |run: &&RunId| self.done.iter().any(|done| done.run.as_ref() == Some(run));
        let after = self.runs.iter().rev();
        let mut after = after.take_while(|later| Some(*later) != run);
        after.any(|later| !changed(&later))
    }

    /// What is wanted and not taken back yet, in the order it was done.
    #[must_use]
    pub(crate) fn find(&self, wanted: &Wanted) -> Vec<&UndoableChange> {
        let standing = || self.done.iter().filter(|change| change.undone_by.is_none());
        match wanted {
            Wanted::LastRun => match standing().next_back() {
                Some(last) => standing().filter(|change| change.run == last.run).collect(),
                None => Vec::new(),
            },
            Wanted::Run(run) => standing()
                .filter(|change| change.run.as_ref() == Some(run))
                .collect(),
            Wanted::Call(call) => standing()
                .filter(|change| change.call.as_ref() == Some(call))
                .collect(),
            Wanted::To(seq) => standing().filter(|change| change.seq > *seq).collect(),
        }
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
                call: CallId(call.into()),
                change,
                swap: Some(swap(path)),
            },
        )
    }

    #[test]
    fn what_stands_is_found_by_run_by_call_and_to_an_event() {
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
        let seqs = |changes: &UndoableChanges, wanted: Wanted| {
            changes
                .find(&wanted)
                .iter()
                .map(|change| change.seq)
                .collect::<Vec<_>>()
        };
        assert_eq!(seqs(&changes, Wanted::LastRun), [9]);
        assert_eq!(seqs(&changes, Wanted::Run(RunId::nth(1))), [3, 4]);
        assert_eq!(seqs(&changes, Wanted::Call(CallId("b".into()))), [4]);
        assert_eq!(seqs(&changes, Wanted::To(3)), [4, 9]);
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
        assert_eq!(seqs(&changes, Wanted::LastRun), [3]);
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
        assert_eq!(seqs(&changes, Wanted::LastRun), [9]);
        assert_eq!(
            (seqs(&changes, Wanted::To(0)).len(), changes.undone.len()),
            (3, 0)
        );
    }
}
