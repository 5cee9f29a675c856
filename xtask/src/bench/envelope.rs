//! What the envelope costs the agents of others: rows from `windlass-kit speed`, which runs each of them through windlass
//! and bare in turn. Without the agents there are no rows.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::lab::Lab;
use super::measure::Spread;
use super::report::{Row, Target, Unit};
use crate::agents;

/// A hundred steps of each agent, and how soon an interrupt ends it.
pub(crate) fn rows(lab: &Lab) -> Result<Vec<Row>> {
    let Some(installed) = agents::installed_already()? else {
        eprintln!("    not measured: the agents are not installed; `cargo xtask agents` does that");
        return Ok(Vec::new());
    };
    let mut command = Command::new(lab.binary("windlass-kit"));
    command
        .arg("speed")
        .arg("--windlass")
        .arg(lab.binary("windlass"))
        .env("PATH", installed.path);
    command.arg("--installed").arg(installed.folder);
    command.args(["--times", &lab.times(10).to_string()]);
    command.args(
        agents::CERTIFIED
            .iter()
            .flat_map(|agent| ["--runtime", agent]),
    );
    let output = command
        .output()
        .context("windlass-kit could not be started")?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8_lossy(&output.stdout);
    let mut rows = Vec::new();
    for agent in agents::CERTIFIED {
        let beside = |what: &str, title: &str, floor| -> Result<Row> {
            let row = Row::new(
                &format!("{agent}: {title}"),
                Unit::Ms,
                column(&text, what, agent, 0)?,
            );
            Ok(row.floor(floor, column(&text, what, agent, 1)?))
        };
        rows.push(
            beside("whole", "a run of 100 shell steps", "the same agent bare")?
                .target(Target::Ratio(1.05)),
        );
        rows.push(beside("steps", "the steps of it", "the same agent bare")?);
        for (what, title) in [
            ("cancel-thinking", "the model thinks"),
            ("cancel-command", "a command runs"),
        ] {
            let title = format!("{agent}: from a cancel while {title} to the terminal event");
            let row = Row::new(&title, Unit::Ms, column(&text, what, agent, 0)?);
            rows.push(row.target(Target::Below(1000.0)));
        }
    }
    Ok(rows)
}

/// One column of the lines of one kind about one agent.
fn column(text: &str, what: &str, agent: &str, at: usize) -> Result<Spread> {
    let figure = |line: &str| {
        let mut words = line.split(' ');
        let named = words.next() == Some(what) && words.next() == Some(agent);
        words.nth(at).filter(|_| named)?.parse().ok()
    };
    Spread::of(text.lines().filter_map(figure).collect())
        .with_context(|| format!("{agent}: no line says `{what}`"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_the_lines_of_an_agent_count_for_it() {
        let text = "load 0.10\nwhole codex 30.0 20.0\nwhole opencode 1.0 1.0\nwhole codex 10.0 40.0\nsteps codex 5.0 6.0\n";
        assert_eq!(
            column(text, "whole", "codex", 0).unwrap(),
            Spread {
                min: 10.0,
                median: 30.0
            }
        );
        assert_eq!(
            column(text, "whole", "codex", 1).unwrap(),
            Spread {
                min: 20.0,
                median: 40.0
            }
        );
        assert!(column(text, "whole", "claude-code", 0).is_err());
    }
}
