//! Looks for secrets that a change adds. The redactor recognises secrets; this file filters out those that existed before
//! the change. A finding contains the place and the kind of secret, never the value.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use windlass_core::validator::{BaseTree, CheckCtx, Finding, Report, ValidatorError};
use windlass_core::workspace::{Change, FileChange, FileErrorKind, Files, Redactor};

use crate::base::{CollectedFindings, ValidatorCheck, each_file, finding_about};

/// A larger file is not scanned; the result is then unverifiable.
const MAX_FILE: u64 = 2 << 20;
/// At most this many findings are reported.
const MAX_FINDINGS: usize = 100;

/// The check that looks for secrets.
pub(crate) struct SecretScan {
    /// Recognises secrets in text.
    pub(crate) redactor: Arc<dyn Redactor>,
}

impl ValidatorCheck for SecretScan {
    async fn check(&self, ctx: &CheckCtx<'_>, time: Duration) -> Result<Report, ValidatorError> {
        let scan = SecretFileScan {
            files: ctx.files.clone(),
            before: ctx.before.clone(),
            redactor: self.redactor.clone(),
        };
        let look = move |change: &FileChange, found: &mut CollectedFindings| match scan.file(change)
        {
            Ok(more) => found.add_flaws(more),
            Err(why) => found.add_unverified([why]),
        };
        each_file(ctx, time, MAX_FINDINGS, look).await
    }
}

struct SecretFileScan {
    files: Arc<dyn Files>,
    before: Arc<dyn BaseTree>,
    redactor: Arc<dyn Redactor>,
}

impl SecretFileScan {
    fn file(&self, change: &FileChange) -> Result<Vec<Finding>, Finding> {
        let bytes = match self.files.read(&change.path, MAX_FILE) {
            Ok(bytes) => bytes,
            Err(err) if matches!(err.kind, FileErrorKind::WrongKind | FileErrorKind::NotFound) => {
                return Ok(Vec::new());
            }
            Err(err) => {
                let why = format!("it was not searched for secrets: {}", err.message);
                return Err(finding_about(&change.path, why));
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
            // A line may occur as often as before the change, at any place.
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
                " (the previous content is not known)"
            };
            left.push(Finding {
                path: change.path.clone(),
                line: u32::try_from(finding.line).unwrap_or(u32::MAX),
                column: 0,
                ..Finding::whole(format!(
                    "this looks like {}{doubt}; remove it and read it from the environment or a secret store",
                    finding.kind
                ))
            });
        }
        Ok(left)
    }

    /// The number of occurrences of each line with a secret, by hash.
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
