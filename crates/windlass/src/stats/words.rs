//! Statistics in words, for people.
//!
//! ```
//! use windlass::stats::{CallStats, Stats, describe_calls, describe_cost, describe_duration, describe_tokens, total_lines};
//!
//! let lines = total_lines(&Stats::default());
//! assert_eq!(lines[0], ("sessions", "0".to_owned()));
//! assert_eq!(describe_calls(&CallStats::default()), "0 calls, 0 failed, 0 denied, 0 ms (longest 0 ms)");
//! assert_eq!(describe_tokens(&Default::default()), "0 in, 0 out");
//! assert_eq!(describe_cost(0, true), "price unknown");
//! assert_eq!(describe_duration(1_500), "1.5 s");
//! ```

use std::collections::BTreeMap;

use windlass_core::budget::Usage;

use super::{CallStats, Stats, cache_hits};
use crate::transcript::dollars;

/// The totals as names and values.
#[must_use]
pub fn total_lines(stats: &Stats) -> Vec<(&'static str, String)> {
    let sum = &stats.total;
    let spent = &sum.spent;
    let mut lines = vec![
        ("sessions", stats.sessions.to_string()),
        ("runs", format!("{}{}", stats.runs.len(), outcomes(stats))),
        (
            "time",
            format!(
                "{}, of which models {} and calls {}",
                describe_duration(sum.ms),
                describe_duration(sum.model_ms),
                describe_duration(sum.calls.ms)
            ),
        ),
        (
            "steps",
            format!("{} in {} iterations", spent.steps, spent.iterations),
        ),
        ("tokens", describe_tokens(&spent.usage)),
        ("cost", describe_cost(spent.cost_micros, spent.unpriced)),
        ("calls", describe_calls(&sum.calls)),
        (
            "commands",
            format!(
                "{}, {} failed, {}",
                sum.commands.count,
                sum.commands.failed,
                describe_duration(sum.commands.ms)
            ),
        ),
        (
            "waits",
            format!(
                "{} for {}",
                sum.waits.count,
                describe_duration(sum.waits.ms)
            ),
        ),
        (
            "asks",
            format!(
                "{}, {} answered by a person, {} pending; answers took {}",
                sum.asks.count,
                sum.asks.by_person,
                sum.asks.open,
                describe_duration(sum.asks.ms)
            ),
        ),
        (
            "checks",
            format!(
                "{}: {} passed, {} failed, {} undecided; {}",
                sum.checks.count,
                sum.checks.passed,
                sum.checks.failed,
                sum.checks.unverifiable,
                describe_duration(sum.checks.ms)
            ),
        ),
        (
            "files",
            format!(
                "{} changed (+{} -{})",
                stats.files.len(),
                sum.added,
                sum.removed
            ),
        ),
    ];
    if spent.estimated {
        lines.push((
            "note",
            "some token counts are estimates, because the server reported none".to_owned(),
        ));
    }
    if sum.refused_connections > 0 {
        lines.push((
            "network",
            format!("{} connections refused", sum.refused_connections),
        ));
    }
    lines
}

/// Counts the runs by outcome.
fn outcomes(stats: &Stats) -> String {
    let mut words: BTreeMap<&str, u64> = BTreeMap::new();
    for run in &stats.runs {
        *words
            .entry(run.outcome.as_deref().unwrap_or("open"))
            .or_default() += 1;
    }
    let words: Vec<String> = words
        .iter()
        .map(|(word, count)| format!("{count} {word}"))
        .collect();
    if words.is_empty() {
        String::new()
    } else {
        format!(" ({})", words.join(", "))
    }
}

/// The tokens of model calls, and the share that came from a cache.
#[must_use]
pub fn describe_tokens(usage: &Usage) -> String {
    let hits = cache_hits(usage).map_or_else(String::new, |hits| {
        format!(" ({:.0} % from a cache)", hits * 100.0)
    });
    format!("{} in{hits}, {} out", usage.total_input(), usage.output)
}

/// Numbers of calls by result, and their duration.
#[must_use]
pub fn describe_calls(calls: &CallStats) -> String {
    let mut text = format!(
        "{} calls, {} failed, {} denied",
        calls.count, calls.failed, calls.denied
    );
    if calls.interrupted > 0 {
        text.push_str(&format!(", {} interrupted", calls.interrupted));
    }
    format!(
        "{text}, {} (longest {})",
        describe_duration(calls.ms),
        describe_duration(calls.longest_ms)
    )
}

/// A cost in micro-USD. `unpriced` states that further calls have no known price.
#[must_use]
pub fn describe_cost(micros: u64, unpriced: bool) -> String {
    let known = dollars(micros);
    match (unpriced, micros) {
        (false, _) => known,
        (true, 0) => "price unknown".to_owned(),
        (true, _) => format!("{known} plus calls of unknown price"),
    }
}

/// A duration in milliseconds, in words.
#[must_use]
pub fn describe_duration(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..120_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        _ => format!("{} min {} s", ms / 60_000, ms / 1_000 % 60),
    }
}
