//! The tables of the documentation: runtime by scenario and runtime by capability. What a run did not try stays as it was
//! written before, so the file itself is read back. Pure.

use std::collections::BTreeMap;

use crate::claims::{CAPABILITIES, Claims, FEATURES, Shown, Shows, shown};
use crate::facts::FACTS;
use crate::matrix::{Cell, Matrix};
use crate::scenario::{SCENARIOS, Scenario, Theme};

const BEGIN: &str = "<!-- matrix: made by the kit, do not edit -->";
const END: &str = "<!-- /matrix -->";
/// The first words of the two kinds of tables.
const TRIED: &str = "runtime";
const CLAIMED: &str = "claims of";

/// Everything that is known of one runtime.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Row {
    version: String,
    /// By scenario.
    cells: BTreeMap<String, Cell>,
    /// Capabilities and features that it is said to have.
    claims: Vec<String>,
}

/// All runtimes, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    rows: BTreeMap<String, Row>,
}

impl Report {
    /// What a run came to, with what windlass says of the runtimes.
    #[must_use]
    pub fn new(matrix: &Matrix, claims: &[Claims]) -> Self {
        let mut rows: BTreeMap<String, Row> = BTreeMap::new();
        for (at, runtime) in matrix.runtimes.iter().enumerate() {
            let row = rows.entry(runtime.clone()).or_default();
            for (scenario, _, cells) in &matrix.rows {
                row.cells
                    .extend(cells.get(at).map(|cell| (scenario.clone(), cell.clone())));
            }
            if let Some(claims) = claims.iter().find(|claims| claims.name == *runtime) {
                row.claims.clone_from(&claims.words);
                row.version = claims.version.clone().unwrap_or_default();
            }
        }
        Self { rows }
    }

    /// A file with these tables between its marks, where what was not tried is as it was before; without marks they
    /// come at its end.
    #[must_use]
    pub fn into_file(&self, file: &str) -> String {
        let marks = file
            .find(BEGIN)
            .and_then(|from| Some((from, file[from..].find(END)? + from + END.len())));
        let before = marks.map_or_else(Self::default, |(from, to)| Self::read(&file[from..to]));
        let block = format!("{BEGIN}\n\n{}\n{END}", before.with(self).markdown());
        match marks {
            Some((from, to)) => format!("{}{block}{}", &file[..from], &file[to..]),
            None => format!("{file}{block}\n"),
        }
    }

    /// Both; what is newer counts.
    fn with(mut self, newer: &Self) -> Self {
        for (name, new) in &newer.rows {
            let row = self.rows.entry(name.clone()).or_default();
            row.cells.extend(new.cells.clone());
            row.claims.clone_from(&new.claims);
            row.version.clone_from(&new.version);
        }
        self
    }

    /// Claims that no passed scenario shows: the runtime, and their words.
    pub fn unshown(&self) -> impl Iterator<Item = (&str, Vec<&str>)> {
        self.rows.iter().filter_map(|(name, row)| {
            let unshown = |shows: &&Shows| {
                let claimed = row.claims.iter().any(|word| word == shows.word);
                claimed
                    && shows.by.is_some_and(|by| row.cells.contains_key(by))
                    && row.shown(shows) == Shown::No
            };
            let words: Vec<&str> = CAPABILITIES
                .iter()
                .chain(FEATURES)
                .filter(unshown)
                .map(|shows| shows.word)
                .collect();
            (!words.is_empty()).then_some((name.as_str(), words))
        })
    }

    /// Runtimes in the order of the kit's own table, others behind them.
    fn ordered(&self) -> Vec<(&String, &Row)> {
        let place = |name: &str| {
            FACTS
                .iter()
                .position(|facts| facts.name == name)
                .unwrap_or(FACTS.len())
        };
        let mut rows: Vec<_> = self.rows.iter().collect();
        rows.sort_by_key(|(name, _)| (place(name), name.as_str()));
        rows
    }

    fn markdown(&self) -> String {
        let mut reasons: Vec<&str> = Vec::new();
        let mut text = String::new();
        for (theme, title) in Theme::TITLES {
            let scenarios: Vec<&Scenario> = SCENARIOS
                .iter()
                .filter(|scenario| scenario.theme == *theme)
                .collect();
            text.push_str(&format!("### {title}\n\n"));
            for scenario in &scenarios {
                text.push_str(&format!("- **{}**: {}\n", scenario.name, scenario.about));
            }
            let names: Vec<&str> = scenarios.iter().map(|scenario| scenario.name).collect();
            text.push_str(&format!(
                "\n| {TRIED} | version | {} |\n",
                names.join(" | ")
            ));
            text.push_str(&format!("|---|---|{}\n", ":-:|".repeat(names.len())));
            for (name, row) in self.ordered() {
                let cells: Vec<String> = names
                    .iter()
                    .map(|name| tried(row.cells.get(*name), &mut reasons))
                    .collect();
                text.push_str(&format!(
                    "| `{name}` | {} | {} |\n",
                    row.version,
                    cells.join(" | ")
                ));
            }
            text.push('\n');
        }
        if !reasons.is_empty() {
            text.push_str("Not tried (—), because:\n\n");
        }
        for (at, reason) in reasons.iter().enumerate() {
            text.push_str(&format!("{}. {reason}\n", at + 1));
        }
        for (title, all) in [
            ("What each can do", CAPABILITIES),
            ("How each is held and steered", FEATURES),
        ] {
            text.push_str(&format!("\n### {title}\n\n{}", self.claimed(all)));
        }
        text
    }

    /// What is claimed, and what the scenarios showed of it. Only what somebody claims has a column.
    fn claimed(&self, all: &[Shows]) -> String {
        let anybody = |shows: &&Shows| {
            self.rows
                .values()
                .any(|row| row.claims.iter().any(|word| word == shows.word))
        };
        let all: Vec<&Shows> = all.iter().filter(anybody).collect();
        let heads: Vec<String> = all
            .iter()
            .map(|shows| shows.word.replace('_', " "))
            .collect();
        let mut text = format!(
            "| {CLAIMED} | {} |\n|---|{}\n",
            heads.join(" | "),
            ":-:|".repeat(all.len())
        );
        for (name, row) in self
            .ordered()
            .into_iter()
            .filter(|(_, row)| !row.claims.is_empty())
        {
            let cell = |shows: &&Shows| match row.claims.iter().any(|word| word == shows.word) {
                true => match row.shown(shows) {
                    Shown::Yes => "✓",
                    Shown::No => "claimed",
                    Shown::Fails => "FAIL",
                },
                false => "",
            };
            let cells: Vec<&str> = all.iter().map(cell).collect();
            text.push_str(&format!("| `{name}` | {} |\n", cells.join(" | ")));
        }
        let by = |shows: &&Shows| {
            shows
                .by
                .map(|by| format!("{} by **{by}**", shows.word.replace('_', " ")))
        };
        let by: Vec<String> = all.iter().filter_map(by).collect();
        text.push_str(&format!(
            "\n✓ is shown by a scenario that passed: {}. The rest is claimed.\n",
            by.join(", ")
        ));
        text
    }

    /// The tables of a file, as far as they can be read.
    fn read(text: &str) -> Self {
        let reasons: Vec<&str> = text
            .lines()
            .filter_map(|line| numbered(line).map(|(_, reason)| reason))
            .collect();
        let (mut rows, mut heads): (BTreeMap<String, Row>, Vec<&str>) =
            (BTreeMap::new(), Vec::new());
        for line in text.lines() {
            let Some(line) = line
                .strip_prefix("| ")
                .and_then(|line| line.strip_suffix('|'))
            else {
                continue;
            };
            let fields: Vec<&str> = line.split('|').map(str::trim).collect();
            let Some((first, rest)) = fields.split_first() else {
                continue;
            };
            if [TRIED, CLAIMED].contains(first) {
                heads = fields;
                continue;
            }
            let Some((kind, heads)) = heads.split_first() else {
                continue;
            };
            let row = rows.entry(first.trim_matches('`').to_owned()).or_default();
            for (head, field) in heads.iter().zip(rest) {
                match (*kind, *head) {
                    (CLAIMED, head) if !field.is_empty() => row.claims.push(head.replace(' ', "_")),
                    (TRIED, "version") => row.version = (*field).to_owned(),
                    (TRIED, head) => row
                        .cells
                        .extend(was(field, &reasons).map(|cell| (head.to_owned(), cell))),
                    _ => {}
                }
            }
        }
        Self { rows }
    }
}

impl Row {
    fn shown(&self, shows: &Shows) -> Shown {
        shown(shows.by.and_then(|by| self.cells.get(by)))
    }
}

/// A cell in a table; what was not tried has the number of its reason.
fn tried<'a>(cell: Option<&'a Cell>, reasons: &mut Vec<&'a str>) -> String {
    match cell {
        Some(Cell::Pass) => "✓".to_owned(),
        Some(Cell::Fail(_)) => "FAIL".to_owned(),
        Some(Cell::NotApplicable(why)) => {
            let known = reasons.iter().position(|reason| *reason == why.as_str());
            let at = known.unwrap_or_else(|| {
                reasons.push(why);
                reasons.len() - 1
            });
            format!("— {}", at + 1)
        }
        None => String::new(),
    }
}

/// The cell that a field was made from; none where it is empty.
fn was(field: &str, reasons: &[&str]) -> Option<Cell> {
    match field {
        "✓" => Some(Cell::Pass),
        "FAIL" => Some(Cell::Fail("it failed in an earlier run".to_owned())),
        field => {
            let number: usize = field.strip_prefix("— ")?.parse().ok()?;
            let reason = reasons.get(number.checked_sub(1)?)?;
            Some(Cell::NotApplicable((*reason).to_owned()))
        }
    }
}

/// A line of a numbered list.
fn numbered(line: &str) -> Option<(usize, &str)> {
    let (number, rest) = line.split_once(". ")?;
    Some((number.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no(why: &str) -> Cell {
        Cell::NotApplicable(why.to_owned())
    }

    /// A run of these runtimes with one cell each for two scenarios.
    fn run(cells: &[(&str, Cell, Cell)], claims: &[(&str, &[&str])]) -> Report {
        let row = |name: &str, cells: Vec<Cell>| (name.to_owned(), String::new(), cells);
        let matrix = Matrix {
            name: "matrix",
            runtimes: cells.iter().map(|(name, ..)| (*name).to_owned()).collect(),
            rows: vec![
                row(
                    "command",
                    cells.iter().map(|(_, first, _)| first.clone()).collect(),
                ),
                row(
                    "resume",
                    cells.iter().map(|(_, _, second)| second.clone()).collect(),
                ),
            ],
        };
        let claims = claims.iter().map(|(name, words)| Claims {
            name: (*name).to_owned(),
            version: Some("1.0".to_owned()),
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            missing: None,
            ..Claims::default()
        });
        Report::new(&matrix, &claims.collect::<Vec<_>>())
    }

    #[track_caller]
    fn check(file: &str, line: &str) {
        assert!(
            file.lines().any(|known| known == line),
            "{line} is not in\n{file}"
        );
    }

    #[test]
    fn rows_are_runtimes_and_reasons_stand_below() {
        let report = run(
            &[
                ("patch", no("no tools"), no("no memory")),
                ("native", Cell::Pass, Cell::Fail("why".into())),
            ],
            &[("native", &["shell", "resume", "fork"])],
        );
        let file = report.into_file("# Runtimes\n\n");
        check(
            &file,
            "| `native` | 1.0 |  |  |  |  |  |  | ✓ |  |  | FAIL |  |  |  |",
        );
        check(
            &file,
            "| `patch` |  |  |  |  |  |  |  | — 1 |  |  | — 2 |  |  |  |",
        );
        check(&file, "2. no memory");
        check(&file, "| claims of | resume | fork |");
        check(&file, "| `native` | FAIL | claimed |");
        check(&file, "| `native` | ✓ |");
        assert!(file.find("| `native`") < file.find("| `patch`"));
    }

    #[test]
    fn a_file_that_is_written_again_is_the_same() {
        let report = run(
            &[
                ("native", Cell::Pass, no("because 1. it is so")),
                ("acp:fixture", no("no tools"), Cell::Pass),
            ],
            &[("native", &["shell", "streaming_text"])],
        );
        let once = format!("{}after\n", report.into_file("# Runtimes\n\n"));
        assert_eq!(report.into_file(&once), once);
        assert_eq!(Report::default().into_file(&once), once);
    }

    #[test]
    fn a_partial_run_changes_its_own_cells_alone() {
        let before = run(
            &[
                ("native", Cell::Pass, Cell::Pass),
                ("codex", no("no tools"), Cell::Pass),
            ],
            &[],
        );
        let file = before.into_file("");
        let newer = run(
            &[("codex", Cell::Pass, no("no memory"))],
            &[("codex", &["shell"])],
        )
        .into_file(&file);
        check(
            &newer,
            "| `native` |  |  |  |  |  |  |  | ✓ |  |  | ✓ |  |  |  |",
        );
        check(
            &newer,
            "| `codex` | 1.0 |  |  |  |  |  |  | ✓ |  |  | — 1 |  |  |  |",
        );
        check(&newer, "1. no memory");
        assert!(!newer.contains("no tools"), "{newer}");
    }

    #[test]
    fn a_claim_whose_scenario_did_not_pass_is_named() {
        let report = run(
            &[("codex", no("no tools"), Cell::Pass)],
            &[("codex", &["shell", "resume", "fork"])],
        );
        assert_eq!(
            report.unshown().collect::<Vec<_>>(),
            [("codex", vec!["shell"])]
        );
    }
}
