//! The figures as a Markdown table, and the document that holds it. It measures nothing.

use std::path::Path;

use anyhow::{Context as _, Result};

use super::measure::Spread;

const BEGIN: &str = "<!-- measured: begin -->";
const END: &str = "<!-- measured: end -->";

/// What a figure must reach.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Target {
    /// At most this many times its floor.
    Ratio(f64),
    /// Below this, in the row's own unit.
    Below(f64),
    /// At most this, which is what the bytes explain.
    Explained(f64),
    /// At most this more than its floor, in the row's own unit.
    Over(f64),
}

/// What a figure counts, and so which of many measurements is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Milliseconds. The minimum is compared: other work of the machine can only add to it.
    Ms,
    /// Microseconds. The minimum is compared.
    Us,
    /// Kilobytes. The median counts.
    Kb,
    /// Megabytes. The median counts.
    Mb,
    /// Percent of one core. The median counts.
    Percent,
}

impl Unit {
    fn judged(self, spread: Spread) -> f64 {
        match self {
            Self::Ms | Self::Us => spread.min,
            Self::Kb | Self::Mb | Self::Percent => spread.median,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Ms => "ms",
            Self::Us => "µs",
            Self::Kb => "kB",
            Self::Mb => "MB",
            Self::Percent => "%",
        }
    }
}

/// One figure beside its floor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    what: String,
    unit: Unit,
    ours: Spread,
    floor: Option<(&'static str, Spread)>,
    target: Option<Target>,
}

impl Row {
    /// A figure of ours.
    pub(crate) fn new(what: &str, unit: Unit, ours: Spread) -> Self {
        Self {
            what: what.to_owned(),
            unit,
            ours,
            floor: None,
            target: None,
        }
    }

    /// What it stands beside.
    pub(crate) fn floor(self, what: &'static str, floor: Spread) -> Self {
        Self {
            floor: Some((what, floor)),
            ..self
        }
    }

    /// What it must reach.
    pub(crate) fn target(self, target: Target) -> Self {
        Self {
            target: Some(target),
            ..self
        }
    }

    /// It has a target and does not reach it.
    pub(crate) fn missed(&self) -> bool {
        match self.target {
            None => false,
            Some(Target::Ratio(most)) => self.ratio().is_none_or(|ratio| ratio > most),
            Some(Target::Below(limit)) => self.unit.judged(self.ours) >= limit,
            Some(Target::Explained(most)) => self.unit.judged(self.ours) > most,
            Some(Target::Over(most)) => self.floor.is_none_or(|(_, floor)| {
                self.unit.judged(self.ours) - self.unit.judged(floor) > most
            }),
        }
    }

    fn ratio(&self) -> Option<f64> {
        let (_, floor) = self.floor?;
        let (ours, floor) = (self.unit.judged(self.ours), self.unit.judged(floor));
        (floor > 0.0).then(|| ours / floor)
    }

    fn line(&self) -> String {
        let unit = self.unit.word();
        let floor = match &self.floor {
            Some((what, floor)) => format!("{} ({what})", figures(*floor, unit)),
            None => "–".to_owned(),
        };
        // A quotient of two growths near nothing says nothing.
        let ratio = self
            .ratio()
            .filter(|_| !matches!(self.target, Some(Target::Explained(_))));
        let ratio = ratio.map_or("–".to_owned(), |ratio| format!("{ratio:.2}×"));
        let target = match self.target {
            None => "–".to_owned(),
            Some(Target::Ratio(most)) => format!("≤ {most}×"),
            Some(Target::Below(limit)) => format!("< {limit} {unit}"),
            Some(Target::Explained(most)) => format!("≤ {most:.2} {unit}, what the bytes explain"),
            Some(Target::Over(most)) => format!("≤ {most} {unit} more"),
        };
        let verdict = match (self.target, self.missed()) {
            (None, _) => "",
            (Some(_), false) => "pass",
            (Some(_), true) => "**miss**",
        };
        format!(
            "| {} | {} | {floor} | {ratio} | {target} | {verdict} |\n",
            self.what,
            figures(self.ours, unit)
        )
    }
}

fn figures(spread: Spread, unit: &str) -> String {
    if (spread.min - spread.median).abs() < 0.005 {
        return format!("{:.2} {unit}", spread.median);
    }
    format!("{:.2} / {:.2} {unit}", spread.min, spread.median)
}

/// The table.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "| what | windlass (min / median) | floor (min / median) | ratio | target | |\n\
         |---|--:|--:|--:|---|---|\n",
    );
    text.extend(rows.iter().map(Row::line));
    text
}

/// Puts the table and the machine between the marks of the document.
pub(crate) fn write(path: &Path, table: &str, machine: &str) -> Result<()> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let text = between_marks(&text, &format!("{table}\n{machine}"))
        .with_context(|| format!("{} lost its marks `{BEGIN}` and `{END}`", path.display()))?;
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn between_marks(text: &str, new: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{new}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(median: f64) -> Spread {
        Spread {
            min: median,
            median,
        }
    }

    #[track_caller]
    fn check(row: Row, expect: &str) {
        assert_eq!(row.line().trim_end(), expect);
    }

    #[test]
    fn a_figure_stands_beside_its_floor_and_is_judged() {
        let row = || {
            Row::new(
                "start",
                Unit::Ms,
                Spread {
                    min: 1.5,
                    median: 1.9,
                },
            )
            .floor("nothing", spread(0.75))
        };
        check(
            row(),
            "| start | 1.50 / 1.90 ms | 0.75 ms (nothing) | 2.00× | – |  |",
        );
        check(
            row().target(Target::Ratio(2.0)),
            "| start | 1.50 / 1.90 ms | 0.75 ms (nothing) | 2.00× | ≤ 2× | pass |",
        );
        check(
            row().target(Target::Below(1.2)),
            "| start | 1.50 / 1.90 ms | 0.75 ms (nothing) | 2.00× | < 1.2 ms | **miss** |",
        );
        check(
            row().target(Target::Explained(1.4)),
            "| start | 1.50 / 1.90 ms | 0.75 ms (nothing) | – | ≤ 1.40 ms, what the bytes explain | **miss** |",
        );
        let memory = Row::new(
            "memory",
            Unit::Mb,
            Spread {
                min: 20.0,
                median: 25.0,
            },
        );
        check(
            memory.target(Target::Below(25.0)),
            "| memory | 20.00 / 25.00 MB | – | – | < 25 MB | **miss** |",
        );
    }

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let text = format!("a\n{BEGIN}\nold\n{END}\nz\n");
        assert_eq!(
            between_marks(&text, "new"),
            Some(format!("a\n{BEGIN}\nnew\n{END}\nz\n"))
        );
        assert_eq!(between_marks("a", "new"), None);
    }
}
