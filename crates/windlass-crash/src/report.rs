//! Counts what came of all blows and makes the table of it. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::case::{Case, Done, Where, Wrong};
use crate::op::Kind;
use crate::supervise::How;

/// All blows of one kind in one place.
#[derive(Debug, Clone)]
pub struct Row {
    /// Where the runs worked.
    pub place: Where,
    /// What happened to them.
    pub how: How,
    /// Durable events of the run without a blow.
    pub events: usize,
    /// Operations of the run without a blow, by kind.
    pub ops: BTreeMap<Kind, usize>,
    /// Blows that met an operation, by its kind.
    pub struck: BTreeMap<Kind, usize>,
    /// Calls that were marked as interrupted, over all blows.
    pub interrupted: usize,
    /// Commands that went on after a blow.
    pub resumes: usize,
    /// Cases in which something did not hold.
    pub wrong: BTreeMap<Wrong, usize>,
    /// How long it took.
    pub took: Duration,
}

/// Everything that was done.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// One for each place and kind of blow.
    pub rows: Vec<Row>,
    /// What did not hold, with the case.
    pub failures: Vec<(Case, String)>,
}

impl Row {
    pub(crate) fn new(place: Where, how: How, events: usize, ops: BTreeMap<Kind, usize>) -> Self {
        let (struck, wrong) = (BTreeMap::new(), BTreeMap::new());
        Self {
            place,
            how,
            events,
            ops,
            struck,
            interrupted: 0,
            resumes: 0,
            wrong,
            took: Duration::ZERO,
        }
    }

    pub(crate) fn take(&mut self, done: &Done) {
        if let Some(op) = &done.hit {
            *self.struck.entry(op.kind).or_default() += 1;
        }
        self.interrupted += done.interrupted;
        self.resumes += done.resumes;
        let mut kinds: Vec<Wrong> = done.wrong.iter().map(|(wrong, _)| *wrong).collect();
        kinds.sort_unstable();
        kinds.dedup();
        for wrong in kinds {
            *self.wrong.entry(wrong).or_default() += 1;
        }
    }

    /// Blows that met an operation.
    #[must_use]
    pub fn blows(&self) -> usize {
        self.struck.values().sum()
    }
}

impl Report {
    pub(crate) fn fail(&mut self, done: &Done) {
        let hit = done
            .hit
            .as_ref()
            .map_or_else(|| "nothing".to_owned(), ToString::to_string);
        for (wrong, why) in &done.wrong {
            self.failures.push((
                done.case,
                format!("{}: {why} (struck: {hit})", wrong.word()),
            ));
        }
    }

    /// The tables, as Markdown.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = String::from(
            "| place | blow | events | operations | blows | resumes | marked interrupted |",
        );
        for wrong in Wrong::ALL {
            text.push_str(&format!(" {} |", wrong.word()));
        }
        text.push_str(" time |\n|---|---|");
        text.push_str(&"---:|".repeat(6 + Wrong::ALL.len()));
        for row in &self.rows {
            let ops: usize = row.ops.values().sum();
            text.push_str(&format!(
                "\n| {} | {} | {} |",
                row.place.word(),
                row.how.word(),
                row.events
            ));
            text.push_str(&format!(
                " {ops} | {} | {} | {} |",
                row.blows(),
                row.resumes,
                row.interrupted
            ));
            for wrong in Wrong::ALL {
                text.push_str(&format!(
                    " {} |",
                    row.wrong.get(&wrong).copied().unwrap_or(0)
                ));
            }
            text.push_str(&format!(" {:.0} s |", row.took.as_secs_f64()));
        }
        text.push_str("\n\n| place | blow |");
        Kind::ALL
            .iter()
            .for_each(|kind| text.push_str(&format!(" {} |", kind.word())));
        text.push_str(&format!("\n|---|---|{}", "---:|".repeat(Kind::ALL.len())));
        for row in &self.rows {
            text.push_str(&format!("\n| {} | {} |", row.place.word(), row.how.word()));
            for kind in Kind::ALL {
                let (struck, ops) = (
                    row.struck.get(&kind).unwrap_or(&0),
                    row.ops.get(&kind).unwrap_or(&0),
                );
                text.push_str(&format!(" {struck} of {ops} |"));
            }
        }
        text.push('\n');
        text
    }
}
