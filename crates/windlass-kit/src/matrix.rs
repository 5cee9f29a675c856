//! The results of each scenario with each runtime as a text table, and the table of attacks for the documentation,
//! which has one column. Pure.

use crate::runtime::KitRuntime;
use crate::scenario::Scenario;

/// The result of one scenario with one runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MatrixCell {
    Pass,
    /// The first line is the violation, further lines are details.
    Fail(String),
    /// The reason why the scenario does not apply to the runtime.
    NotApplicable(String),
}

/// The table of all results.
#[derive(Debug, Clone, Default)]
pub struct Matrix {
    /// The name of the table in the markers of a file.
    pub name: &'static str,
    pub runtimes: Vec<String>,
    /// For each scenario its name, its description, and a cell for each runtime.
    pub rows: Vec<(String, String, Vec<MatrixCell>)>,
}

impl Matrix {
    /// Creates the table; `cell` returns the result for a column and row.
    pub(crate) fn new(
        runtimes: &[KitRuntime],
        scenarios: &[&Scenario],
        cell: impl Fn(usize, usize) -> MatrixCell,
    ) -> Self {
        let row = |(row, scenario): (usize, &&Scenario)| {
            let cells = (0..runtimes.len())
                .map(|column| cell(column, row))
                .collect();
            (scenario.name.to_owned(), scenario.about.to_owned(), cells)
        };
        let rows = scenarios.iter().enumerate().map(row).collect();
        let name = if runtimes.iter().any(KitRuntime::is_hostile) {
            "attacks"
        } else {
            "matrix"
        };
        Self {
            name,
            runtimes: runtimes.iter().map(KitRuntime::short).collect(),
            rows,
        }
    }

    /// Iterates over the failures: runtime, scenario and message.
    pub fn failures(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.rows.iter().flat_map(move |(scenario, _, cells)| {
            cells
                .iter()
                .zip(&self.runtimes)
                .filter_map(move |(cell, runtime)| match cell {
                    MatrixCell::Fail(why) => {
                        Some((runtime.as_str(), scenario.as_str(), why.as_str()))
                    }
                    _ => None,
                })
        })
    }

    /// Formats the table as plain text.
    #[must_use]
    pub fn text(&self) -> String {
        let wide = self
            .rows
            .iter()
            .map(|(name, ..)| name.len())
            .max()
            .unwrap_or(0);
        let mut text = format!("{:wide$}", "");
        for runtime in &self.runtimes {
            text.push_str(&format!("  {runtime}"));
        }
        text.push('\n');
        for (name, _, cells) in &self.rows {
            text.push_str(&format!("{name:wide$}"));
            for (cell, runtime) in cells.iter().zip(&self.runtimes) {
                text.push_str(&format!("  {:<1$}", word(cell), runtime.chars().count()));
            }
            text.truncate(text.trim_end().len());
            text.push('\n');
        }
        text
    }

    /// Formats the table as Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut text = format!(
            "| scenario | what must hold | {} |\n",
            self.runtimes.join(" | ")
        );
        text.push_str(&format!(
            "|---|---|{}\n",
            "---|".repeat(self.runtimes.len())
        ));
        for (name, about, cells) in &self.rows {
            let cells: Vec<&str> = cells.iter().map(word).collect();
            text.push_str(&format!("| {name} | {about} | {} |\n", cells.join(" | ")));
        }
        text
    }

    /// Replaces the table between the markers of a file, or appends it with markers.
    #[must_use]
    pub fn into_file(&self, file: &str) -> String {
        let begin = format!("<!-- {}: made by the kit, do not edit -->", self.name);
        let end = format!("<!-- /{} -->", self.name);
        let block = format!("{begin}\n\n{}\n{end}", self.markdown());
        let marks = file
            .find(&begin)
            .and_then(|from| Some((from, file[from..].find(&end)? + from + end.len())));
        match marks {
            Some((from, to)) => format!("{}{block}{}", &file[..from], &file[to..]),
            None => format!("{file}{block}\n"),
        }
    }
}

fn word(cell: &MatrixCell) -> &'static str {
    match cell {
        MatrixCell::Pass => "pass",
        MatrixCell::Fail(_) => "FAIL",
        MatrixCell::NotApplicable(_) => "-",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix() -> Matrix {
        let no = || MatrixCell::NotApplicable("no tools".into());
        let rows = vec![
            (
                "edit".to_owned(),
                "it lands".to_owned(),
                vec![MatrixCell::Pass, no()],
            ),
            (
                "crash".to_owned(),
                "it fails".to_owned(),
                vec![MatrixCell::Fail("why\nmore".into()), no()],
            ),
        ];
        Matrix {
            name: "matrix",
            runtimes: vec!["native".into(), "patch".into()],
            rows,
        }
    }

    #[test]
    fn the_table_is_aligned() {
        assert_eq!(
            matrix().text(),
            "       native  patch\nedit   pass    -\ncrash  FAIL    -\n"
        );
        assert_eq!(
            matrix().failures().collect::<Vec<_>>(),
            [("native", "crash", "why\nmore")]
        );
    }

    #[test]
    fn the_file_keeps_the_text_around_the_markers() {
        let once = matrix().into_file("# Runtimes\n\n");
        assert!(once.contains("| edit | it lands | pass | - |"), "{once}");
        let more = format!("{once}after\n");
        assert_eq!(matrix().into_file(&more), more);
    }
}
