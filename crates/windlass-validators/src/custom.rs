//! A validator program that the user provides: a command that reads the changes as JSON and answers with a verdict as
//! JSON. An answer that violates this contract is unverifiable, never a pass.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass_core::validator::{CheckCtx, Finding, Judgement, Report, ValidatorError};
use windlass_core::workspace::{Change, Finished, ProcessEnd};

use crate::base::ValidatorCheck;
use crate::command::{cut_short, not_started, proof, run};
use crate::output::without_escapes;

/// At most this many findings are kept.
const MAX_FINDINGS: usize = 200;
/// At most this many lines are tried as the start of the JSON answer.
const MAX_TRIES: usize = 2_000;

/// Runs a validator program.
pub(crate) struct CustomCheck {
    /// The command line, for the shell.
    pub(crate) line: String,
}

/// The JSON object that the command reads from stdin.
#[derive(Debug, Serialize)]
struct CustomRequest<'a> {
    root: &'a str,
    changes: Vec<RequestedChange<'a>>,
}

#[derive(Debug, Serialize)]
struct RequestedChange<'a> {
    path: &'a str,
    change: &'a Change,
}

/// The JSON object that the command writes to stdout.
#[derive(Debug, Deserialize)]
struct CustomAnswer {
    verdict: String,
    #[serde(default)]
    findings: Vec<Finding>,
}

impl ValidatorCheck for CustomCheck {
    async fn check(&self, ctx: &CheckCtx<'_>, time: Duration) -> Result<Report, ValidatorError> {
        let root = ctx.files.root().to_string_lossy();
        let changes = ctx.changes.iter().map(|change| RequestedChange {
            path: &change.path,
            change: &change.change,
        });
        let request = CustomRequest {
            root: &root,
            changes: changes.collect(),
        };
        let mut input =
            serde_json::to_vec(&request).map_err(|err| ValidatorError(err.to_string()))?;
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
        Ok(verdict) => verdict,
        Err(why) => return contract_violation(line, &why, ended),
    };
    let mut findings: Vec<_> = answer
        .findings
        .into_iter()
        .take(MAX_FINDINGS)
        .map(|found| finding(found, root))
        .collect();
    if findings.is_empty() && judgement != Judgement::Pass {
        findings.push(Finding::whole(format!(
            "`{line}` answered `{}` without a finding that says why",
            answer.verdict
        )));
    }
    Report::new(judgement, findings)
}

/// The verdict of the command, or the way in which it violated the contract.
fn verdict(ended: &Finished) -> Result<(Judgement, CustomAnswer), String> {
    let code = match ended.end {
        ProcessEnd::Exited { code: 126 | 127 } => return Err("could not be run".to_owned()),
        ProcessEnd::Exited { code } => code,
        ProcessEnd::Signalled { signal } => return Err(format!("was killed by signal {signal}")),
        ProcessEnd::TimedOut | ProcessEnd::Cancelled => return Err("was killed".to_owned()),
    };
    let object = last_object(&without_escapes(&ended.output))
        .ok_or_else(|| format!("gave no JSON object as its answer (exit code {code})"))?;
    let answer: CustomAnswer = serde_json::from_value(object)
        .map_err(|err| format!("gave an answer that violates the contract: {err}"))?;
    let judgement = match answer.verdict.as_str() {
        "pass" if code != 0 => {
            let why = format!("answered `pass` but exited with code {code}");
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
        // The program cannot decide this: it does not see the tree before the change.
        preexisting: false,
        ..found
    }
}

/// The report for a command that violated the contract, with the last lines of its output, which may explain why.
fn contract_violation(line: &str, what: &str, ended: &Finished) -> Report {
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

/// The last JSON object that starts at the beginning of a line.
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
