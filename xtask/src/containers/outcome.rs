//! Parses the output of a row and compares it with the table.

use super::rows::Expect;

/// The exit code of a command that refuses to run without a sandbox.
const REFUSED: i32 = 8;
/// The exit code of `timeout` for a command that it killed.
const TIMED_OUT: i32 = 124;
/// The number of output lines of a failed step that are printed.
const LAST_LINES: usize = 4;
const LINE_WIDTH: usize = 240;

/// A command of a row.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RowStep<'a> {
    pub(super) name: &'a str,
    /// `None` if the row ended before the command did.
    pub(super) code: Option<i32>,
    pub(super) output: &'a str,
}

/// The sandbox tier that windlass reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReportedTier {
    Namespaces,
    Broker,
    Landlock,
    None,
}

/// The names of the tiers in the line that `demo` prints. The first name in the line is the tier; the rest of the line
/// may name others ("broker: this kernel gives no namespaces").
const TIERS: &[(&str, ReportedTier)] = &[
    ("namespaces", ReportedTier::Namespaces),
    ("broker", ReportedTier::Broker),
    ("landlock", ReportedTier::Landlock),
    ("none", ReportedTier::None),
];
/// The possible prefixes of that line.
const ISOLATION: &[&str] = &["isolation:", "sandbox:"];

/// Splits the output at the lines that `inside.sh` prints around each command.
pub(super) fn steps(output: &str) -> Vec<RowStep<'_>> {
    let parts = output.split("\n== begin ").skip(1);
    parts
        .filter_map(|part| {
            let (name, rest) = part.split_once('\n')?;
            let end = format!("\n== end {name} ");
            let (output, code) = match rest.split_once(end.as_str()) {
                Some((output, code)) => (
                    output,
                    code.lines()
                        .next()
                        .and_then(|code| code.trim().parse().ok()),
                ),
                None => (rest, None),
            };
            Some(RowStep { name, code, output })
        })
        .collect()
}

/// Returns the line in which windlass reports its isolation.
pub(super) fn isolation_line(output: &str) -> Option<&str> {
    output.lines().map(str::trim).find(|line| {
        let line = line.to_lowercase();
        ISOLATION.iter().any(|start| line.starts_with(start))
    })
}

pub(super) fn tier(line: &str) -> Option<ReportedTier> {
    let line = line.to_lowercase();
    let places = TIERS
        .iter()
        .filter_map(|(word, tier)| line.find(word).map(|at| (at, *tier)));
    places.min_by_key(|(at, _)| *at).map(|(_, tier)| tier)
}

/// Returns one sentence for each difference from the table.
pub(super) fn wrong(steps: &[RowStep<'_>], expect: Expect) -> Vec<String> {
    let demo = steps.iter().find(|step| step.name == "demo");
    let said = demo
        .and_then(|step| isolation_line(step.output))
        .and_then(tier);
    let mut wrong: Vec<String> = ["version", "demo", "doctor", "sandbox", "run", "landed"]
        .into_iter()
        .filter_map(|name| wrong_code(steps, name, expect, said))
        .collect();
    match said {
        None => wrong.push("`demo` does not say its isolation".to_owned()),
        Some(tier) if !matches(tier, expect) => {
            wrong.push(format!("`demo` says {tier:?}, expected {expect:?}"))
        }
        Some(_) => {}
    }
    wrong
}

fn wrong_code(
    steps: &[RowStep<'_>],
    name: &str,
    expect: Expect,
    said: Option<ReportedTier>,
) -> Option<String> {
    let held = !matches!(said, Some(ReportedTier::None | ReportedTier::Landlock));
    let refuses = expect == Expect::Refusal || (expect == Expect::Anything && !held);
    let wanted = match name {
        "sandbox" | "run" if refuses => REFUSED,
        // A refused run lands nothing.
        "landed" if refuses => 1,
        _ => 0,
    };
    let Some(step) = steps.iter().find(|step| step.name == name) else {
        return Some(format!("`{name}` was not reached"));
    };
    match step.code {
        Some(code) if code == wanted => None,
        Some(TIMED_OUT) => Some(format!(
            "`{name}` did not end in time:\n{}",
            last_lines(step.output)
        )),
        Some(code) => Some(format!(
            "`{name}`: exit code {code}, expected {wanted}:\n{}",
            last_lines(step.output)
        )),
        None => Some(format!(
            "`{name}` did not end:\n{}",
            last_lines(step.output)
        )),
    }
}

fn matches(tier: ReportedTier, expect: Expect) -> bool {
    match expect {
        Expect::Namespaces => tier == ReportedTier::Namespaces,
        Expect::Broker => tier == ReportedTier::Broker,
        Expect::Either => matches!(tier, ReportedTier::Namespaces | ReportedTier::Broker),
        Expect::Refusal => matches!(tier, ReportedTier::None | ReportedTier::Landlock),
        Expect::Anything => true,
    }
}

pub(super) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
    last.iter()
        .map(|line| {
            format!(
                "        {}\n",
                line.chars().take(LINE_WIDTH).collect::<String>()
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the output of a row whose commands exit with these codes.
    fn output(isolation: &str, codes: &[(&str, i32)]) -> String {
        let mut text = String::new();
        for (name, code) in codes {
            let line = if *name == "demo" { isolation } else { "output" };
            text.push_str(&format!(
                "\n== begin {name}\n{line}\n\n== end {name} {code}\n"
            ));
        }
        text
    }

    const ALL_PASS: &[(&str, i32)] = &[
        ("version", 0),
        ("demo", 0),
        ("doctor", 0),
        ("sandbox", 0),
        ("run", 0),
        ("landed", 0),
    ];
    const REFUSES: &[(&str, i32)] = &[
        ("version", 0),
        ("demo", 0),
        ("doctor", 0),
        ("sandbox", 8),
        ("run", 8),
        ("landed", 1),
    ];

    #[track_caller]
    fn check(isolation: &str, codes: &[(&str, i32)], expect: Expect, says: &[&str]) {
        let output = output(isolation, codes);
        let found = wrong(&steps(&output), expect);
        assert_eq!(found.len(), says.len(), "{found:?}");
        assert!(
            found
                .iter()
                .zip(says)
                .all(|(found, says)| found.contains(says)),
            "{found:?}"
        );
    }

    #[test]
    fn a_row_passes_only_as_the_table_says() {
        check("isolation: namespaces", ALL_PASS, Expect::Namespaces, &[]);
        check(
            "isolation: broker, no namespaces here",
            ALL_PASS,
            Expect::Broker,
            &[],
        );
        check("isolation: broker", ALL_PASS, Expect::Either, &[]);
        check(
            "isolation: broker",
            ALL_PASS,
            Expect::Namespaces,
            &["says Broker"],
        );
        check("isolation: none", REFUSES, Expect::Refusal, &[]);
        check(
            "isolation: none",
            ALL_PASS,
            Expect::Refusal,
            &["`sandbox`: exit code 0", "`run`", "`landed`"],
        );
        check("isolation: none", REFUSES, Expect::Anything, &[]);
        check("isolation: broker", ALL_PASS, Expect::Anything, &[]);
        check(
            "isolation: broker",
            REFUSES,
            Expect::Anything,
            &["`sandbox`: exit code 8", "`run`", "`landed`"],
        );
        check(
            "nothing",
            ALL_PASS,
            Expect::Either,
            &["does not say its isolation"],
        );
        check(
            "isolation: broker",
            &ALL_PASS[..5],
            Expect::Broker,
            &["`landed` was not reached"],
        );
    }

    #[test]
    fn a_command_that_was_cut_off_has_no_code() {
        let output = "\n== begin demo\nstarted\n";
        assert_eq!(
            steps(output),
            [RowStep {
                name: "demo",
                code: None,
                output: "started\n"
            }]
        );
    }
}
