//! The prompt for the model after an iteration that did not pass.

use std::collections::{BTreeSet, VecDeque};

use crate::validator::Finding;

/// Maximum findings that are listed.
const MAX_FINDINGS: usize = 50;
/// Maximum earlier findings that are repeated, so that the next iteration does not reintroduce them.
const MAX_EARLIER: usize = 20;
/// Maximum characters of the request that are repeated. The whole request is in the conversation.
const MAX_REQUEST: usize = 4_000;
/// Maximum paths that are named in one message.
const MAX_NAMED: usize = 20;

/// Writes the prompt of the next iteration.
pub(super) fn retry_prompt(
    request: &str,
    validator: &str,
    findings: &[Finding],
    now: &BTreeSet<String>,
    earlier: &VecDeque<BTreeSet<String>>,
) -> String {
    let mut text = format!(
        "The checks do not pass yet. Fix this:\n{}\n",
        listed(validator, findings)
    );
    let gone = |line: &&String| !now.contains(*line);
    let before: BTreeSet<&String> = earlier.iter().flatten().filter(gone).collect();
    if !before.is_empty() {
        text.push_str("\nEarlier tries failed with this; do not bring it back:\n");
        for line in before.iter().take(MAX_EARLIER) {
            text.push_str(&format!("- {line}\n"));
        }
    }
    let cut = request
        .char_indices()
        .nth(MAX_REQUEST)
        .map_or(request.len(), |(at, _)| at);
    text.push_str("\nThe request was:\n");
    text.push_str(&request[..cut]);
    if cut < request.len() {
        text.push_str(" …");
    }
    text
}

/// The findings of a validator as a list.
pub(super) fn listed(validator: &str, findings: &[Finding]) -> String {
    let mut text = format!("{validator}:");
    for finding in findings.iter().take(MAX_FINDINGS) {
        text.push_str(&format!("\n- {finding}"));
    }
    let left_out = findings.len().saturating_sub(MAX_FINDINGS);
    if left_out > 0 {
        text.push_str(&format!("\n- and {left_out} more"));
    }
    text
}

/// A list of paths for a sentence: the first ones, and the number of further ones.
#[must_use]
pub fn paths_in_words(paths: &[String]) -> String {
    let mut text = paths
        .iter()
        .take(MAX_NAMED)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    if paths.len() > MAX_NAMED {
        text.push_str(&format!(" and {} more", paths.len() - MAX_NAMED));
    }
    text
}
