//! Looks for secrets that a change adds. What a secret looks like is the redactor's knowledge; here is only what was
//! not there before. A finding says where and what kind, never the value.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use windlass_core::validator::{Before, CheckCtx, Finding, Report, ValidatorError};
use windlass_core::workspace::{Change, FileChange, FileErrorKind, Files, Redactor};

use crate::base::{Check, Found, about, each_file};

/// The longest file that is read.
const MAX_FILE: u64 = 2 << 20;
/// The most findings in all.
const MAX_FINDINGS: usize = 100;

/// Looks for secrets.
pub(crate) struct SecretScan {
    /// Knows what a secret looks like.
    pub(crate) redactor: Arc<dyn Redactor>,
}

impl Check for SecretScan {
    async fn check(&self, ctx: &CheckCtx<'_>, time: Duration) -> Result<Report, ValidatorError> {
        let scan = Scan {
            files: ctx.files.clone(),
            before: ctx.before.clone(),
            redactor: self.redactor.clone(),
        };
        let look = move |change: &FileChange, found: &mut Found| match scan.file(change) {
            Ok(more) => found.wrong(more),
            Err(why) => found.unsure([why]),
        };
        each_file(ctx, time, MAX_FINDINGS, look).await
    }
}

struct Scan {
    files: Arc<dyn Files>,
    before: Arc<dyn Before>,
    redactor: Arc<dyn Redactor>,
}

impl Scan {
    fn file(&self, change: &FileChange) -> Result<Vec<Finding>, Finding> {
        let bytes = match self.files.read(&change.path, MAX_FILE) {
            Ok(bytes) => bytes,
            Err(err) if matches!(err.kind, FileErrorKind::WrongKind | FileErrorKind::NotFound) => {
                return Ok(Vec::new());
            }
            Err(err) => {
                let why = format!("it was not searched for secrets: {}", err.message);
                return Err(about(&change.path, why));
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
                ..Finding::whole(format!(
                    "this looks like {}{doubt}; take it out and read it from the environment or a secret store",
                    finding.kind
                ))
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

#[cfg(test)]
#[path = "secrets_tests.rs"]
mod tests;
