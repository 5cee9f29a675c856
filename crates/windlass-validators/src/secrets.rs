//! Looks for secrets that a change adds. What a secret looks like is the redactor's knowledge; here is only what was
//! not there before. A finding says where and what kind, never the value.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use windlass_core::BoxFuture;
use windlass_core::validator::{
    Before, CheckCtx, Finding, Judgement, Proof, Report, Validator, ValidatorError,
};
use windlass_core::workspace::{Change, FileChange, FileErrorKind, Files, Redactor};

/// The longest file that is read.
const MAX_FILE: u64 = 2 << 20;
/// The most findings in all.
const MAX_FINDINGS: usize = 100;

/// Looks for secrets.
#[derive(Clone)]
pub struct SecretScan {
    /// Its name.
    pub name: String,
    /// Whether its fail stops the landing.
    pub blocking: bool,
    /// How long it may take.
    pub timeout: Duration,
    /// Knows what a secret looks like.
    pub redactor: Arc<dyn Redactor>,
}

impl Validator for SecretScan {
    fn name(&self) -> &str {
        &self.name
    }

    fn blocking(&self) -> bool {
        self.blocking
    }

    fn deadline(&self) -> Duration {
        self.timeout
    }

    fn check<'a>(&'a self, ctx: &'a CheckCtx<'a>) -> BoxFuture<'a, Result<Report, ValidatorError>> {
        let scan = Scan {
            files: ctx.files.clone(),
            before: ctx.before.clone(),
            redactor: self.redactor.clone(),
        };
        let (changes, cancel) = (ctx.changes.to_vec(), ctx.cancel.clone());
        let time = self.timeout.min(ctx.deadline);
        Box::pin(async move {
            let work = move || {
                let started = Instant::now();
                let (mut found, mut unsure) = (Vec::new(), Vec::new());
                for change in changes
                    .iter()
                    .filter(|change| change.change != Change::Deleted)
                {
                    if cancel.is_cancelled() || started.elapsed() > time {
                        unsure.push(Finding::whole(format!(
                            "it was ended before {} was looked at",
                            change.path
                        )));
                        break;
                    }
                    match scan.file(change) {
                        Ok(more) => found.extend(more),
                        Err(why) => unsure.push(why),
                    }
                }
                report(found, unsure)
            };
            let said = tokio::task::spawn_blocking(work).await;
            said.map_err(|err| ValidatorError(format!("the search for secrets failed: {err}")))
        })
    }
}

struct Scan {
    files: Arc<dyn Files>,
    before: Arc<dyn Before>,
    redactor: Arc<dyn Redactor>,
}

impl Scan {
    fn file(&self, change: &FileChange) -> Result<Vec<Finding>, Finding> {
        let about = |message: String| Finding {
            path: change.path.clone(),
            line: 0,
            column: 0,
            message,
        };
        let bytes = match self.files.read(&change.path, MAX_FILE) {
            Ok(bytes) => bytes,
            Err(err) if matches!(err.kind, FileErrorKind::WrongKind | FileErrorKind::NotFound) => {
                return Ok(Vec::new());
            }
            Err(err) => {
                return Err(about(format!(
                    "it was not searched for secrets: {}",
                    err.message
                )));
            }
        };
        let text = String::from_utf8_lossy(&bytes);
        let found = self.redactor.scan(&text);
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let was = match &change.change {
            Change::MovedFrom(from) => from,
            _ => &change.path,
        };
        let (mut old, known) = match self.before.read(was, MAX_FILE) {
            Ok(before) => (
                self.lines(&String::from_utf8_lossy(&before.unwrap_or_default())),
                true,
            ),
            Err(_) => (HashMap::new(), false),
        };
        let lines: Vec<&str> = text.lines().collect();
        let mut left = Vec::new();
        for finding in found {
            let line = lines
                .get(finding.line.saturating_sub(1))
                .copied()
                .unwrap_or_default();
            // As often as it was there before, it may be there now, wherever it went.
            if let Some(count) = old
                .get_mut(&key(finding.kind, line))
                .filter(|count| **count > 0)
            {
                *count -= 1;
                continue;
            }
            let doubt = if known {
                ""
            } else {
                " (what was there before is not known)"
            };
            left.push(Finding {
                path: change.path.clone(),
                line: u32::try_from(finding.line).unwrap_or(u32::MAX),
                column: 0,
                message: format!(
                    "this looks like {}{doubt}; take it out and read it from the environment or a secret store",
                    finding.kind
                ),
            });
        }
        Ok(left)
    }

    /// How often each line with a secret was there, by hash.
    fn lines(&self, text: &str) -> HashMap<[u8; 32], usize> {
        let lines: Vec<&str> = text.lines().collect();
        let mut counts = HashMap::new();
        for finding in self.redactor.scan(text) {
            let line = lines
                .get(finding.line.saturating_sub(1))
                .copied()
                .unwrap_or_default();
            *counts.entry(key(finding.kind, line)).or_default() += 1;
        }
        counts
    }
}

fn key(kind: &str, line: &str) -> [u8; 32] {
    *blake3::hash(format!("{kind}\n{}", line.trim()).as_bytes()).as_bytes()
}

fn report(mut found: Vec<Finding>, unsure: Vec<Finding>) -> Report {
    let judgement = match (found.is_empty(), unsure.is_empty()) {
        (false, _) => Judgement::Fail,
        (true, false) => Judgement::Unverifiable,
        (true, true) => Judgement::Pass,
    };
    found.extend(unsure);
    found.truncate(MAX_FINDINGS);
    let proof = Proof {
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        ..Proof::default()
    };
    Report {
        judgement,
        findings: found,
        proof,
    }
}

#[cfg(test)]
#[path = "secrets_tests.rs"]
mod tests;
