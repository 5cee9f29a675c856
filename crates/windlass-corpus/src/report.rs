//! The results of the cases: one row each, and the totals of each category. Rows arrive here already judged.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// The final state of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The decision was accepted and all post-conditions hold.
    Passed,
    /// The decision was wrong, or a post-condition does not hold.
    Failed,
    /// It needs an interface that the product does not have yet.
    Pending,
    /// It could not be run on this machine.
    NotRun,
}

/// The result of one case.
#[derive(Debug, Clone)]
pub struct Row {
    /// The id of the case.
    pub id: String,
    /// The category of the case.
    pub category: String,
    /// The description of the case.
    pub title: String,
    /// Whether it is everyday work and not an attack.
    pub benign: bool,
    /// Whether it passed, failed or did not run.
    pub state: State,
    /// The decision that was reached; empty if there was none.
    pub decision: String,
    /// The reasons, for everything but a plain pass.
    pub why: Vec<String>,
    /// The duration in milliseconds.
    pub ms: u64,
}

impl Row {
    /// Formats the row as one line of text.
    #[must_use]
    pub fn line(&self) -> String {
        let state = match self.state {
            State::Passed => "passed",
            State::Failed => "FAILED",
            State::Pending => "pending",
            State::NotRun => "not run",
        };
        let mut line = format!(
            "{:<11} {state:<8} {:<10} {}",
            self.id, self.decision, self.title
        );
        if !self.why.is_empty() {
            line.push_str(" | ");
            line.push_str(&shown(&self.why.join("; ")));
        }
        line
    }

    /// Returns the row as JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        let state = match self.state {
            State::Passed => "passed",
            State::Failed => "failed",
            State::Pending => "pending",
            State::NotRun => "not_run",
        };
        json!({
            "id": self.id, "category": self.category, "title": self.title, "benign": self.benign,
            "state": state, "decision": self.decision, "why": self.why, "ms": self.ms,
        })
    }
}

/// Returns a reason on one line without control characters, because reasons quote text from cases.
fn shown(text: &str) -> String {
    const MOST: usize = 1200;
    let safe =
        |c: char| !c.is_control() && !('\u{202a}'..='\u{202e}').contains(&c) && c != '\u{200b}';
    let line: String = text
        .chars()
        .take(MOST)
        .map(|c| if safe(c) { c } else { '·' })
        .collect();
    if text.chars().count() > MOST {
        line + "…"
    } else {
        line
    }
}

/// The counts of one category.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Attacks that were stopped.
    pub stopped: usize,
    /// Attacks that were run.
    pub attacks: usize,
    /// Everyday work that succeeded.
    pub through: usize,
    /// Everyday work that was run.
    pub benign: usize,
}

/// The results of all cases.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The rows in the order of the files.
    pub rows: Vec<Row>,
}

impl Report {
    /// Returns whether everything that ran passed, and at least one case ran.
    #[must_use]
    pub fn passed(&self) -> bool {
        let ran = self
            .rows
            .iter()
            .any(|row| matches!(row.state, State::Passed | State::Failed));
        ran && self.rows.iter().all(|row| row.state != State::Failed)
    }

    /// Counts the cases that ran, by category.
    #[must_use]
    pub fn totals(&self) -> BTreeMap<String, Totals> {
        let mut all: BTreeMap<String, Totals> = BTreeMap::new();
        for row in &self.rows {
            let totals = all.entry(row.category.clone()).or_default();
            let passed = match row.state {
                State::Passed => 1,
                State::Failed => 0,
                State::Pending | State::NotRun => continue,
            };
            let (good, of) = match row.benign {
                true => (&mut totals.through, &mut totals.benign),
                false => (&mut totals.stopped, &mut totals.attacks),
            };
            *good += passed;
            *of += 1;
        }
        all
    }

    /// Formats the totals as text.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut text = String::new();
        let mut sum = Totals::default();
        for (name, totals) in self.totals() {
            let mut parts = Vec::new();
            if totals.attacks > 0 {
                parts.push(format!(
                    "attacks stopped {} of {}",
                    totals.stopped, totals.attacks
                ));
            }
            if totals.benign > 0 {
                parts.push(format!(
                    "benign passed {} of {}",
                    totals.through, totals.benign
                ));
            }
            sum.stopped += totals.stopped;
            sum.attacks += totals.attacks;
            sum.through += totals.through;
            sum.benign += totals.benign;
            if !parts.is_empty() {
                text.push_str(&format!("{name:<22} {}\n", parts.join(", ")));
            }
        }
        text.push_str(&format!(
            "{:<22} attacks stopped {} of {}, benign passed {} of {}\n",
            "all", sum.stopped, sum.attacks, sum.through, sum.benign
        ));
        for (state, word) in [
            (State::Pending, "pending"),
            (State::NotRun, "not run"),
            (State::Failed, "FAILED"),
        ] {
            let names: Vec<&str> = self
                .rows
                .iter()
                .filter(|row| row.state == state)
                .map(|row| row.id.as_str())
                .collect();
            if !names.is_empty() {
                text.push_str(&format!("{word} ({}): {}\n", names.len(), names.join(" ")));
            }
        }
        text
    }

    /// Returns the totals as JSON.
    #[must_use]
    pub fn summary_json(&self) -> Value {
        let totals: serde_json::Map<String, Value> = self
            .totals()
            .into_iter()
            .map(|(name, totals)| {
                let Totals { stopped, attacks, through, benign } = totals;
                let row = json!({ "stopped": stopped, "attacks": attacks, "through": through, "benign": benign });
                (name, row)
            })
            .collect();
        let named = |state: State| -> Vec<&str> {
            self.rows
                .iter()
                .filter(|row| row.state == state)
                .map(|row| row.id.as_str())
                .collect()
        };
        json!({
            "passed": self.passed(), "totals": totals, "failed": named(State::Failed),
            "pending": named(State::Pending), "not_run": named(State::NotRun),
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn row(state: State, benign: bool) -> Row {
        let (id, category) = (
            "x-1".to_owned(),
            if benign { "benign" } else { "paths" }.to_owned(),
        );
        Row {
            id,
            category,
            title: String::new(),
            benign,
            state,
            decision: String::new(),
            why: vec![],
            ms: 0,
        }
    }

    #[test]
    fn a_report_passes_only_when_something_ran_and_nothing_failed() {
        for (states, passes) in [
            (vec![], false),
            (vec![State::Pending, State::NotRun], false),
            (vec![State::Passed, State::Pending], true),
            (vec![State::Passed, State::Failed], false),
        ] {
            let rows = states.iter().map(|state| row(*state, false)).collect();
            assert_eq!(Report { rows }.passed(), passes, "{states:?}");
        }
    }

    #[test]
    fn cases_that_did_not_run_are_listed_and_not_counted() {
        let rows = vec![
            row(State::Passed, false),
            row(State::Failed, true),
            row(State::Pending, false),
        ];
        let report = Report { rows };
        let text = report.summary();
        assert!(
            text.contains("attacks stopped 1 of 1, benign passed 0 of 1"),
            "{text}"
        );
        assert!(text.contains("pending (1): x-1"), "{text}");
    }

    #[test]
    fn a_reason_cannot_drive_a_terminal() {
        let mut row = row(State::Failed, false);
        row.why = vec!["a\u{1b}[2Jb\u{202e}c\nd".to_owned()];
        assert!(row.line().ends_with("| a·[2Jb·c·d"), "{}", row.line());
    }
}
