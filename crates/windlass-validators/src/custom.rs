//! A validator that somebody else wrote: a command that is told the changes as JSON and answers with a verdict as
//! JSON. What does not keep to that is no verdict, and never a pass.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass_core::BoxFuture;
use windlass_core::validator::{CheckCtx, Finding, Judgement, Report, Validator, ValidatorError};
use windlass_core::workspace::{Change, Finished, ProcessEnd};

use crate::command::{cut_short, proof, run};
use crate::judges::Judges;
use crate::output::without_escapes;

/// The most findings.
const MAX_FINDINGS: usize = 200;
/// How many lines are tried as the beginning of an answer.
const MAX_TRIES: usize = 2_000;

/// Runs a command that keeps to the contract.
#[derive(Debug, Clone)]
pub struct Custom {
    /// Its name.
    pub name: String,
    /// The command line.
    pub line: String,
    /// Whether its fail stops the landing.
    pub blocking: bool,
    /// How long it may take.
    pub timeout: Duration,
    /// Whether it may change what would land.
    pub fixes: bool,
    /// The paths that its verdict hangs on.
    pub judges: Judges,
}

/// What the command is told.
#[derive(Debug, Serialize)]
struct Asked<'a> {
    root: String,
    changes: Vec<AskedChange<'a>>,
}

#[derive(Debug, Serialize)]
struct AskedChange<'a> {
    path: &'a str,
    change: &'a Change,
}

/// What it answers.
#[derive(Debug, Deserialize)]
struct Answer {
    verdict: String,
    #[serde(default)]
    findings: Vec<AnswerFinding>,
}

#[derive(Debug, Deserialize)]
struct AnswerFinding {
    #[serde(default)]
    path: String,
    #[serde(default)]
    line: u32,
    #[serde(default)]
    column: u32,
    message: String,
}

impl Validator for Custom {
    fn name(&self) -> &str {
        &self.name
    }

    fn blocking(&self) -> bool {
        self.blocking
    }

    fn fixes(&self) -> bool {
        self.fixes
    }

    fn deadline(&self) -> Duration {
        self.timeout
    }

    fn judges(&self, path: &str) -> bool {
        self.judges.holds(path)
    }

    fn check<'a>(&'a self, ctx: &'a CheckCtx<'a>) -> BoxFuture<'a, Result<Report, ValidatorError>> {
        Box::pin(async move {
            let root = ctx.files.root().to_string_lossy().into_owned();
            let changes = ctx.changes.iter().map(|change| AskedChange {
                path: &change.path,
                change: &change.change,
            });
            let asked = Asked {
                root: root.clone(),
                changes: changes.collect(),
            };
            let mut input =
                serde_json::to_vec(&asked).map_err(|err| ValidatorError(err.to_string()))?;
            input.push(b'\n');
            let time = self.timeout.min(ctx.deadline);
            let ended = match run(ctx, &self.line, Some(input), time).await {
                Ok(ended) => ended,
                Err(err) => {
                    return Ok(Report::unverifiable(format!(
                        "`{}` could not be started: {err}",
                        self.line
                    )));
                }
            };
            let mut report = judge(&self.line, &ended, time, &root);
            report.proof = proof(&self.line, &ended);
            Ok(report)
        })
    }
}

fn judge(line: &str, ended: &Finished, time: Duration, root: &str) -> Report {
    if let Some(why) = cut_short(line, ended.end, time) {
        return Report::unverifiable(why);
    }
    let code = match ended.end {
        ProcessEnd::Exited { code } => code,
        ProcessEnd::Signalled { signal } => {
            return broken(line, &format!("was ended by signal {signal}"), ended);
        }
        ProcessEnd::TimedOut | ProcessEnd::Cancelled => return broken(line, "was ended", ended),
    };
    if matches!(code, 126 | 127) {
        return broken(line, "could not be run", ended);
    }
    let answer = match last_object(&without_escapes(&ended.output)) {
        None => {
            return broken(
                line,
                &format!("gave no JSON object as its answer (exit code {code})"),
                ended,
            );
        }
        Some(value) => match serde_json::from_value::<Answer>(value) {
            Ok(answer) => answer,
            Err(err) => {
                return broken(
                    line,
                    &format!("gave an answer that does not keep to the contract: {err}"),
                    ended,
                );
            }
        },
    };
    let judgement = match answer.verdict.as_str() {
        "pass" if code != 0 => {
            return broken(
                line,
                &format!("said pass and ended with exit code {code}: that is no verdict"),
                ended,
            );
        }
        "pass" => Judgement::Pass,
        "fail" => Judgement::Fail,
        "unverifiable" => Judgement::Unverifiable,
        other => {
            let why = format!("gave the verdict `{other}`; it must be pass, fail or unverifiable");
            return broken(line, &why, ended);
        }
    };
    let mut findings: Vec<_> = answer
        .findings
        .into_iter()
        .take(MAX_FINDINGS)
        .map(|found| finding(found, root))
        .collect();
    if findings.is_empty() && judgement != Judgement::Pass {
        findings.push(Finding::whole(format!(
            "`{line}` said {} and did not say why",
            answer.verdict
        )));
    }
    Report::new(judgement, findings)
}

fn finding(found: AnswerFinding, root: &str) -> Finding {
    let inner = found
        .path
        .strip_prefix(root)
        .filter(|_| !root.is_empty())
        .unwrap_or(&found.path);
    let path = inner
        .trim_start_matches('/')
        .trim_start_matches("./")
        .to_owned();
    let message = found
        .message
        .chars()
        .filter(|c| !c.is_control() || *c == '\n')
        .take(1_000)
        .collect();
    Finding {
        path,
        line: found.line,
        column: found.column,
        message,
    }
}

/// It did not keep to the contract; what it wrote last may say why.
fn broken(line: &str, what: &str, ended: &Finished) -> Report {
    let text = without_escapes(&ended.output);
    let tail: Vec<_> = text
        .lines()
        .rev()
        .filter(|line| !line.trim().is_empty())
        .take(5)
        .collect();
    let tail = tail.into_iter().rev().collect::<Vec<_>>().join("\n");
    let tail: String = if tail.is_empty() {
        tail
    } else {
        format!("; it wrote: {}", tail.chars().take(600).collect::<String>())
    };
    Report::unverifiable(format!("`{line}` {what}{tail}"))
}

/// The last object that begins a line.
fn last_object(text: &str) -> Option<serde_json::Value> {
    let mut last = None;
    let mut at = 0;
    let mut tries = 0;
    while at < text.len() && tries < MAX_TRIES {
        let rest = &text[at..];
        let begins = rest.trim_start_matches([' ', '\t']);
        if begins.starts_with('{') {
            tries += 1;
            let mut values =
                serde_json::Deserializer::from_str(begins).into_iter::<serde_json::Value>();
            if let Some(Ok(value)) = values.next() {
                at += rest.len() - begins.len() + values.byte_offset();
                last = Some(value);
                continue;
            }
        }
        at += rest.find('\n').map_or(rest.len(), |len| len + 1);
    }
    last
}

#[cfg(test)]
#[path = "custom_tests.rs"]
mod tests;
