//! Runs Bandit, a scanner for insecure Python, on the Python files of a change. It is a separate program: if it is
//! missing, the result is unverifiable. [`bandit_install`] returns the command that installs it into a virtual
//! environment.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Deserialize;
use windlass_core::shell::quoted;
use windlass_core::validator::{CheckCtx, Finding, Judgement, Report, ValidatorError};
use windlass_core::workspace::{Change, FileChange, Finished, ProcessEnd};

use crate::base::{CollectedFindings, ValidatorCheck, finding_about};
use crate::command::{cut_short, not_started, proof, run};
use crate::language::Language;
use crate::syntax::one_line;

/// The version that [`bandit_install`] installs.
pub const BANDIT_VERSION: &str = "1.9.4";
/// At most this many files are scanned.
const MAX_FILES: usize = 200;
/// At most this many findings are reported.
const MAX_FINDINGS: usize = 40;

/// The check that runs Bandit.
pub(crate) struct Bandit {
    /// The path of the program; `None` uses the one on `PATH`.
    pub(crate) program: Option<String>,
}

/// Globs of the settings that the verdict depends on.
pub(crate) const SETTINGS: &[&str] = &[
    "**/.bandit",
    "**/bandit.yaml",
    "pyproject.toml",
    "setup.cfg",
];

/// Describes the installation of a scanner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstallPlan {
    /// The version that is installed.
    pub version: &'static str,
    /// The command line that installs it; it needs the network.
    pub line: String,
    /// The path of the installed program.
    pub program: String,
}

/// The installation of Bandit into a virtual environment in `folder`, which the command creates.
#[must_use]
pub fn bandit_install(folder: &str) -> InstallPlan {
    let folder = folder.trim_end_matches('/');
    let line = format!(
        "python3 -m venv {} && {} install --disable-pip-version-check --quiet bandit=={BANDIT_VERSION}",
        quoted(folder),
        quoted(&format!("{folder}/bin/pip")),
    );
    InstallPlan {
        version: BANDIT_VERSION,
        line,
        program: format!("{folder}/bin/bandit"),
    }
}

impl ValidatorCheck for Bandit {
    async fn check(&self, ctx: &CheckCtx<'_>, time: Duration) -> Result<Report, ValidatorError> {
        let python = |change: &&FileChange| {
            change.change != Change::Deleted
                && Language::of(&change.path, b"") == Some(Language::Python)
        };
        let changes: Vec<&FileChange> = ctx.changes.iter().filter(python).collect();
        if changes.is_empty() {
            return Ok(Report::pass());
        }
        let line = line(self.program.as_deref().unwrap_or("bandit"), &changes);
        let ended = match run(ctx, &line, None, time).await {
            Ok(ended) => ended,
            Err(err) => return Ok(not_started("bandit", &err)),
        };
        let mut report = judge(&ended, &changes, time);
        if changes.len() > MAX_FILES && report.judgement == Judgement::Pass {
            let left = changes.len() - MAX_FILES;
            report = Report::unverifiable(format!(
                "{left} of the changed Python files were not checked"
            ));
        }
        report.proof = proof(&line, &ended);
        if self.program.is_some() {
            report.proof.version = Some(BANDIT_VERSION.to_owned());
        }
        Ok(report)
    }
}

/// The command line. Severity starts at medium, as low is mostly `assert` in tests. `nosec` comments are ignored, because
/// the run may have written them; issues that existed before the change are filtered by line.
fn line(program: &str, changes: &[&FileChange]) -> String {
    let mut line = format!("{} -q -f json -ll --ignore-nosec", quoted(program));
    for change in changes.iter().take(MAX_FILES) {
        line.push(' ');
        // `./` keeps a file name that begins with a dash from being parsed as an option.
        line.push_str(&quoted(&format!("./{}", change.path)));
    }
    line
}

#[derive(Debug, Deserialize)]
struct BanditReport {
    #[serde(default)]
    errors: Vec<BanditReadError>,
    #[serde(default)]
    results: Vec<BanditIssue>,
}

#[derive(Debug, Deserialize)]
struct BanditReadError {
    filename: String,
    reason: String,
}

#[derive(Debug, Deserialize)]
struct BanditIssue {
    filename: String,
    line_number: u32,
    #[serde(default)]
    col_offset: i64,
    issue_severity: String,
    issue_text: String,
    test_id: String,
}

fn judge(ended: &Finished, changes: &[&FileChange], time: Duration) -> Report {
    if let Some(why) = cut_short("bandit", ended.end, time) {
        return Report::unverifiable(why);
    }
    let missing = matches!(ended.end, ProcessEnd::Exited { code: 126 | 127 });
    if missing || ended.output.contains("No module named bandit") {
        let install = bandit_install("DIR").line;
        return Report::unverifiable(format!(
            "bandit is not installed; install it with `{install}`"
        ));
    }
    let begins = ended.output.find('{').unwrap_or(ended.output.len());
    let objects = serde_json::Deserializer::from_str(&ended.output[begins..]);
    let Some(Ok(output)) = objects.into_iter::<BanditReport>().next() else {
        let mut tail: Vec<char> = ended.output.chars().rev().take(300).collect();
        tail.reverse();
        let tail = one_line(&String::from_iter(tail));
        return Report::unverifiable(format!("bandit gave no readable report: {tail}"));
    };
    let clean = |path: &str| path.trim_start_matches("./").to_owned();
    let mut found = CollectedFindings::new(MAX_FINDINGS);
    found.add_flaws(output.results.into_iter().filter_map(|issue| {
        let path = clean(&issue.filename);
        let added = changes
            .iter()
            .find(|change| change.path == path)
            .and_then(|change| added_lines(change));
        if added.is_some_and(|lines| !lines.contains(&issue.line_number)) {
            return None;
        }
        let severity = issue.issue_severity.to_lowercase();
        let message = format!("{} ({}, {severity})", issue.issue_text, issue.test_id);
        Some(Finding {
            path,
            line: issue.line_number,
            column: u32::try_from(issue.col_offset.saturating_add(1)).unwrap_or_default(),
            ..Finding::whole(one_line(&message))
        })
    }));
    found.add_unverified(output.errors.into_iter().map(|unread| {
        let why = format!("bandit could not read it: {}", one_line(&unread.reason));
        finding_about(&clean(&unread.filename), why)
    }));
    found.report()
}

/// The numbers of the lines that a change added, from its diff; `None` if there is no diff.
fn added_lines(change: &FileChange) -> Option<BTreeSet<u32>> {
    let mut lines = BTreeSet::new();
    let mut at = 0_u32;
    for line in change.diff.as_deref()?.lines() {
        if let Some(hunk) = line.strip_prefix("@@ ") {
            let plus = hunk.split(' ').find_map(|word| word.strip_prefix('+'))?;
            at = plus.split(',').next()?.parse().ok()?;
        } else if at > 0 {
            match line.as_bytes().first() {
                Some(b'+') => {
                    lines.insert(at);
                    at += 1;
                }
                Some(b'-' | b'\\') => {}
                _ => at += 1,
            }
        }
    }
    Some(lines)
}

#[cfg(test)]
#[path = "bandit_tests.rs"]
mod tests;
