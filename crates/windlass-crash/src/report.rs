//! Counts the results of all cases and formats the tables. This module is pure.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::case::{CaseResult, CrashCase, Violation, WorkMode};
use crate::op::OpKind;
use crate::supervise::FaultKind;

/// All cases of one mode and one kind of fault.
#[derive(Debug, Clone)]
pub struct CrashRow {
    pub mode: WorkMode,
    pub fault: FaultKind,
    /// The number of durable events in the run without faults.
    pub events: usize,
    /// The number of operations in the run without faults, by kind.
    pub ops: BTreeMap<OpKind, usize>,
    /// The number of faults that hit an operation, by its kind.
    pub hits_by_kind: BTreeMap<OpKind, usize>,
    /// The number of calls that were marked as interrupted, over all cases.
    pub interrupted: usize,
    /// The number of resumes, over all cases.
    pub resumes: usize,
    /// The number of cases with a violation.
    pub wrong: BTreeMap<Violation, usize>,
    pub took: Duration,
}

/// The results of all cases.
#[derive(Debug, Clone, Default)]
pub struct CrashReport {
    /// One for each mode and kind of fault.
    pub rows: Vec<CrashRow>,
    /// The violations, each with its case.
    pub failures: Vec<(CrashCase, String)>,
}

impl CrashRow {
    pub(crate) fn new(
        mode: WorkMode,
        fault: FaultKind,
        events: usize,
        ops: BTreeMap<OpKind, usize>,
    ) -> Self {
        let (hits_by_kind, wrong) = (BTreeMap::new(), BTreeMap::new());
        Self {
            mode,
            fault,
            events,
            ops,
            hits_by_kind,
            interrupted: 0,
            resumes: 0,
            wrong,
            took: Duration::ZERO,
        }
    }

    pub(crate) fn take(&mut self, done: &CaseResult) {
        if let Some(op) = &done.hit {
            *self.hits_by_kind.entry(op.kind).or_default() += 1;
        }
        self.interrupted += done.interrupted;
        self.resumes += done.resumes;
        let mut kinds: Vec<Violation> = done.wrong.iter().map(|(wrong, _)| *wrong).collect();
        kinds.sort_unstable();
        kinds.dedup();
        for wrong in kinds {
            *self.wrong.entry(wrong).or_default() += 1;
        }
    }

    /// Returns the number of faults that hit an operation.
    #[must_use]
    pub fn hits(&self) -> usize {
        self.hits_by_kind.values().sum()
    }
}

impl CrashReport {
    pub(crate) fn fail(&mut self, done: &CaseResult) {
        let hit = done
            .hit
            .as_ref()
            .map_or_else(|| "nothing".to_owned(), ToString::to_string);
        for (wrong, why) in &done.wrong {
            self.failures
                .push((done.case, format!("{}: {why} (hit: {hit})", wrong.word())));
        }
    }

    /// Returns the tables in Markdown.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = String::from(
            "| mode | fault | events | operations | hits | resumes | marked interrupted |",
        );
        for wrong in Violation::ALL {
            text.push_str(&format!(" {} |", wrong.word()));
        }
        text.push_str(" time |\n|---|---|");
        text.push_str(&"---:|".repeat(6 + Violation::ALL.len()));
        for row in &self.rows {
            let ops: usize = row.ops.values().sum();
            text.push_str(&format!(
                "\n| {} | {} | {} |",
                row.mode.word(),
                row.fault.word(),
                row.events
            ));
            text.push_str(&format!(
                " {ops} | {} | {} | {} |",
                row.hits(),
                row.resumes,
                row.interrupted
            ));
            for wrong in Violation::ALL {
                text.push_str(&format!(
                    " {} |",
                    row.wrong.get(&wrong).copied().unwrap_or(0)
                ));
            }
            text.push_str(&format!(" {:.0} s |", row.took.as_secs_f64()));
        }
        text.push_str("\n\n| mode | fault |");
        OpKind::ALL
            .iter()
            .for_each(|kind| text.push_str(&format!(" {} |", kind.word())));
        text.push_str(&format!("\n|---|---|{}", "---:|".repeat(OpKind::ALL.len())));
        for row in &self.rows {
            text.push_str(&format!("\n| {} | {} |", row.mode.word(), row.fault.word()));
            for kind in OpKind::ALL {
                let (hits_by_kind, ops) = (
                    row.hits_by_kind.get(&kind).unwrap_or(&0),
                    row.ops.get(&kind).unwrap_or(&0),
                );
                text.push_str(&format!(" {hits_by_kind} of {ops} |"));
            }
        }
        text.push('\n');
        text
    }
}
