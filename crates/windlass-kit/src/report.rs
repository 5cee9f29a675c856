//! The tables of the documentation: runtimes by scenario and runtimes by capability. The previous file is parsed, so
//! that results that a run did not test are kept. Pure.

use std::collections::BTreeMap;

use crate::claims::{CAPABILITIES, ClaimProof, ClaimStatus, Claims, FEATURES, status};
use crate::facts::FACTS;
use crate::matrix::{Matrix, MatrixCell};
use crate::scenario::{SCENARIOS, Scenario, Theme};

const BEGIN: &str = "<!-- matrix: made by the kit, do not edit -->";
const END: &str = "<!-- /matrix -->";
/// The first header cells of the two kinds of tables.
const RESULTS_HEAD: &str = "runtime";
const CLAIMS_HEAD: &str = "claims of";

/// The results and claims of one runtime.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct RuntimeRow {
    version: String,
    /// The results by scenario.
    cells: BTreeMap<String, MatrixCell>,
    /// The names of claimed capabilities and features.
    claims: Vec<String>,
}

/// The results and claims of all runtimes, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KitReport {
    rows: BTreeMap<String, RuntimeRow>,
}

impl KitReport {
    /// Combines the results of a run with the claims of windlass.
    #[must_use]
    pub fn new(matrix: &Matrix, claims: &[Claims]) -> Self {
        let mut rows: BTreeMap<String, RuntimeRow> = BTreeMap::new();
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

    /// Replaces the tables between the markers of a file, or appends them with markers. Results that were not tested
    /// are kept from the file.
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

    /// Merges a newer report, which takes precedence.
    fn with(mut self, newer: &Self) -> Self {
        for (name, new) in &newer.rows {
            let row = self.rows.entry(name.clone()).or_default();
            row.cells.extend(new.cells.clone());
            row.claims.clone_from(&new.claims);
            row.version.clone_from(&new.version);
        }
        self
    }

    /// Iterates over the claims whose scenario was run and did not prove them: the runtime, and the names of the
    /// claims.
    pub fn unproven(&self) -> impl Iterator<Item = (&str, Vec<&str>)> {
        self.rows.iter().filter_map(|(name, row)| {
            let unproven = |proof: &&ClaimProof| {
                let claimed = row.claims.iter().any(|word| word == proof.word);
                claimed
                    && proof.by.is_some_and(|by| row.cells.contains_key(by))
                    && row.status(proof) == ClaimStatus::Unproven
            };
            let words: Vec<&str> = CAPABILITIES
                .iter()
                .chain(FEATURES)
                .filter(unproven)
                .map(|proof| proof.word)
                .collect();
            (!words.is_empty()).then_some((name.as_str(), words))
        })
    }

    /// Returns the runtimes in the order of the kit's table, followed by the others.
    fn ordered(&self) -> Vec<(&String, &RuntimeRow)> {
        let scratch = |name: &str| {
            FACTS
                .iter()
                .position(|facts| facts.name == name)
                .unwrap_or(FACTS.len())
        };
        let mut rows: Vec<_> = self.rows.iter().collect();
        rows.sort_by_key(|(name, _)| (scratch(name), name.as_str()));
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
                "\n| {RESULTS_HEAD} | version | {} |\n",
                names.join(" | ")
            ));
            text.push_str(&format!("|---|---|{}\n", ":-:|".repeat(names.len())));
            for (name, row) in self.ordered() {
                let cells: Vec<String> = names
                    .iter()
                    .map(|name| format_cell(row.cells.get(*name), &mut reasons))
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
            text.push_str("Reasons for scenarios that do not apply (—):\n\n");
        }
        for (at, reason) in reasons.iter().enumerate() {
            text.push_str(&format!("{}. {reason}\n", at + 1));
        }
        for (title, all) in [
            ("Capabilities", CAPABILITIES),
            ("Control features", FEATURES),
        ] {
            text.push_str(&format!("\n### {title}\n\n{}", self.claimed(all)));
        }
        text
    }

    /// Formats the claims and their status. Claims that no runtime makes have no column.
    fn claimed(&self, all: &[ClaimProof]) -> String {
        let is_claimed = |proof: &&ClaimProof| {
            self.rows
                .values()
                .any(|row| row.claims.iter().any(|word| word == proof.word))
        };
        let all: Vec<&ClaimProof> = all.iter().filter(is_claimed).collect();
        let heads: Vec<String> = all
            .iter()
            .map(|proof| proof.word.replace('_', " "))
            .collect();
        let mut text = format!(
            "| {CLAIMS_HEAD} | {} |\n|---|{}\n",
            heads.join(" | "),
            ":-:|".repeat(all.len())
        );
        for (name, row) in self
            .ordered()
            .into_iter()
            .filter(|(_, row)| !row.claims.is_empty())
        {
            let cell = |proof: &&ClaimProof| match row.claims.iter().any(|word| word == proof.word)
            {
                true => match row.status(proof) {
                    ClaimStatus::Proven => "✓",
                    ClaimStatus::Unproven => "claimed",
                    ClaimStatus::Failed => "FAIL",
                },
                false => "",
            };
            let cells: Vec<&str> = all.iter().map(cell).collect();
            text.push_str(&format!("| `{name}` | {} |\n", cells.join(" | ")));
        }
        let by = |proof: &&ClaimProof| {
            proof
                .by
                .map(|by| format!("{} by **{by}**", proof.word.replace('_', " ")))
        };
        let by: Vec<String> = all.iter().filter_map(by).collect();
        text.push_str(&format!(
            "\n✓ is proven by a scenario that passed: {}. The rest is only claimed.\n",
            by.join(", ")
        ));
        text
    }

    /// Parses the tables of a file; ignores other lines.
    fn read(text: &str) -> Self {
        let reasons: Vec<&str> = text
            .lines()
            .filter_map(|line| numbered(line).map(|(_, reason)| reason))
            .collect();
        let (mut rows, mut heads): (BTreeMap<String, RuntimeRow>, Vec<&str>) =
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
            if [RESULTS_HEAD, CLAIMS_HEAD].contains(first) {
                heads = fields;
                continue;
            }
            let Some((kind, heads)) = heads.split_first() else {
                continue;
            };
            let row = rows.entry(first.trim_matches('`').to_owned()).or_default();
            for (head, field) in heads.iter().zip(rest) {
                match (*kind, *head) {
                    (CLAIMS_HEAD, head) if !field.is_empty() => {
                        row.claims.push(head.replace(' ', "_"))
                    }
                    (RESULTS_HEAD, "version") => row.version = (*field).to_owned(),
                    (RESULTS_HEAD, head) => row
                        .cells
                        .extend(parse_cell(field, &reasons).map(|cell| (head.to_owned(), cell))),
                    _ => {}
                }
            }
        }
        Self { rows }
    }
}

impl RuntimeRow {
    fn status(&self, proof: &ClaimProof) -> ClaimStatus {
        status(proof.by.and_then(|by| self.cells.get(by)))
    }
}

/// Formats a cell of a table; a scenario that does not apply has the number of its reason.
fn format_cell<'a>(cell: Option<&'a MatrixCell>, reasons: &mut Vec<&'a str>) -> String {
    match cell {
        Some(MatrixCell::Pass) => "✓".to_owned(),
        Some(MatrixCell::Fail(_)) => "FAIL".to_owned(),
        Some(MatrixCell::NotApplicable(why)) => {
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

/// Parses a cell of a table; returns `None` if it is empty.
fn parse_cell(field: &str, reasons: &[&str]) -> Option<MatrixCell> {
    match field {
        "✓" => Some(MatrixCell::Pass),
        "FAIL" => Some(MatrixCell::Fail("it failed in an earlier run".to_owned())),
        field => {
            let number: usize = field.strip_prefix("— ")?.parse().ok()?;
            let reason = reasons.get(number.checked_sub(1)?)?;
            Some(MatrixCell::NotApplicable((*reason).to_owned()))
        }
    }
}

/// Parses a line of a numbered list.
fn numbered(line: &str) -> Option<(usize, &str)> {
    let (number, rest) = line.split_once(". ")?;
    Some((number.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no(why: &str) -> MatrixCell {
        MatrixCell::NotApplicable(why.to_owned())
    }

    /// Returns the report of a run with these runtimes and two scenarios.
    fn run(cells: &[(&str, MatrixCell, MatrixCell)], claims: &[(&str, &[&str])]) -> KitReport {
        let row = |name: &str, cells: Vec<MatrixCell>| (name.to_owned(), String::new(), cells);
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
        KitReport::new(&matrix, &claims.collect::<Vec<_>>())
    }

    #[track_caller]
    fn check(file: &str, line: &str) {
        assert!(
            file.lines().any(|known| known == line),
            "{line} is not in\n{file}"
        );
    }

    #[test]
    fn rows_are_runtimes_and_reasons_follow_the_tables() {
        let report = run(
            &[
                ("patch", no("no tools"), no("no memory")),
                ("native", MatrixCell::Pass, MatrixCell::Fail("why".into())),
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
    fn writing_a_file_again_changes_nothing() {
        let report = run(
            &[
                ("native", MatrixCell::Pass, no("because 1. it is so")),
                ("acp:fixture", no("no tools"), MatrixCell::Pass),
            ],
            &[("native", &["shell", "streaming_text"])],
        );
        let once = format!("{}after\n", report.into_file("# Runtimes\n\n"));
        assert_eq!(report.into_file(&once), once);
        assert_eq!(KitReport::default().into_file(&once), once);
    }

    #[test]
    fn a_partial_run_changes_only_its_own_cells() {
        let before = run(
            &[
                ("native", MatrixCell::Pass, MatrixCell::Pass),
                ("codex", no("no tools"), MatrixCell::Pass),
            ],
            &[],
        );
        let file = before.into_file("");
        let newer = run(
            &[("codex", MatrixCell::Pass, no("no memory"))],
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
    fn a_claim_whose_scenario_did_not_pass_is_unproven() {
        let report = run(
            &[("codex", no("no tools"), MatrixCell::Pass)],
            &[("codex", &["shell", "resume", "fork"])],
        );
        assert_eq!(
            report.unproven().collect::<Vec<_>>(),
            [("codex", vec!["shell"])]
        );
    }
}
