//! A validator that somebody else wrote: a command that is told the changes as JSON and answers with a verdict as
//! JSON. What does not keep to that is no verdict, and never a pass.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass_core::validator::{CheckCtx, Finding, Judgement, Report, ValidatorError};
use windlass_core::workspace::{Change, Finished, ProcessEnd};

use crate::base::Check;
use crate::command::{cut_short, not_started, proof, run};
use crate::output::without_escapes;

/// The most findings.
const MAX_FINDINGS: usize = 200;
/// How many lines are tried as the beginning of an answer.
const MAX_TRIES: usize = 2_000;

/// Runs a command that keeps to the contract.
pub(crate) struct Custom {
    /// The command line.
    pub(crate) line: String,
}

/// What the command is told.
#[derive(Debug, Serialize)]
struct Asked<'a> {
    root: &'a str,
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
    findings: Vec<Finding>,
}

impl Check for Custom {
    async fn check(&self, ctx: &CheckCtx<'_>, time: Duration) -> Result<Report, ValidatorError> {
        let root = ctx.files.root().to_string_lossy();
        let changes = ctx.changes.iter().map(|change| AskedChange {
            path: &change.path,
            change: &change.change,
        });
        let asked = Asked {
            root: &root,
            changes: changes.collect(),
        };
        let mut input =
            serde_json::to_vec(&asked).map_err(|err| ValidatorError(err.to_string()))?;
        input.push(b'\n');
        Ok(match run(ctx, &self.line, Some(input), time).await {
            Ok(ended) => Report {
                proof: proof(&self.line, &ended),
                ..judge(&self.line, &ended, time, &root)
            },
            Err(err) => not_started(&self.line, &err),
        })
    }
}

fn judge(line: &str, ended: &Finished, time: Duration, root: &str) -> Report {
    if let Some(why) = cut_short(line, ended.end, time) {
        return Report::unverifiable(why);
    }
    let (judgement, answer) = match verdict(ended) {
        Ok(said) => said,
        Err(why) => return broken(line, &why, ended),
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

/// What it said, or how it failed to keep to the contract.
fn verdict(ended: &Finished) -> Result<(Judgement, Answer), String> {
    let code = match ended.end {
        ProcessEnd::Exited { code: 126 | 127 } => return Err("could not be run".to_owned()),
        ProcessEnd::Exited { code } => code,
        ProcessEnd::Signalled { signal } => return Err(format!("was ended by signal {signal}")),
        ProcessEnd::TimedOut | ProcessEnd::Cancelled => return Err("was ended".to_owned()),
    };
    let said = last_object(&without_escapes(&ended.output))
        .ok_or_else(|| format!("gave no JSON object as its answer (exit code {code})"))?;
    let answer: Answer = serde_json::from_value(said)
        .map_err(|err| format!("gave an answer that does not keep to the contract: {err}"))?;
    let judgement = match answer.verdict.as_str() {
        "pass" if code != 0 => {
            let why = format!("said pass and ended with exit code {code}: that is no verdict");
            return Err(why);
        }
        "pass" => Judgement::Pass,
        "fail" => Judgement::Fail,
        "unverifiable" => Judgement::Unverifiable,
        other => {
            let why = format!("gave the verdict `{other}`; it must be pass, fail or unverifiable");
            return Err(why);
        }
    };
    Ok((judgement, answer))
}

fn finding(found: Finding, root: &str) -> Finding {
    let inner = found.path.strip_prefix(root).unwrap_or(&found.path);
    let path = inner.trim_start_matches('/').trim_start_matches("./");
    let path = path.to_owned();
    let shown = |c: &char| !c.is_control() || *c == '\n';
    let message = found.message.chars().filter(shown).take(1_000).collect();
    Finding {
        path,
        message,
        // Only a look at the tree of before can say that.
        preexisting: false,
        ..found
    }
}

/// It did not keep to the contract; what it wrote last may say why.
fn broken(line: &str, what: &str, ended: &Finished) -> Report {
    let text = without_escapes(&ended.output);
    let lines = text.lines().rev().filter(|line| !line.trim().is_empty());
    let mut tail: Vec<_> = lines.take(5).collect();
    tail.reverse();
    let tail: String = match tail.is_empty() {
        true => String::new(),
        false => "; it wrote: "
            .chars()
            .chain(tail.join("\n").chars().take(600))
            .collect(),
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
