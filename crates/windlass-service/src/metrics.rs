//! Counters of a service, in the text format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use windlass::core::event::{Event, EventKind};

use crate::service::Service;

/// The upper bounds of the durations of runs and calls, in seconds.
const BOUNDS: [f64; 10] = [
    0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0,
];

/// Durations in ten buckets, from a tenth of a second to four hours.
#[derive(Default)]
pub struct Histogram {
    buckets: [AtomicU64; BOUNDS.len()],
    count: AtomicU64,
    sum_ms: AtomicU64,
}

impl Histogram {
    /// Adds a duration.
    pub fn observe(&self, ms: u64) {
        let seconds = ms as f64 / 1_000.0;
        for (bucket, bound) in self.buckets.iter().zip(BOUNDS) {
            if seconds <= bound {
                bucket.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.sum_ms.fetch_add(ms, Ordering::Relaxed);
    }

    /// Writes the histogram in the text format, with further labels.
    pub fn write(&self, to: &mut String, name: &str, labels: &str) {
        let (comma, braces) = match labels.is_empty() {
            true => ("", String::new()),
            false => (",", format!("{{{labels}}}")),
        };
        for (bucket, bound) in self.buckets.iter().zip(BOUNDS) {
            let count = bucket.load(Ordering::Relaxed);
            let _ = writeln!(to, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {count}");
        }
        let count = self.count.load(Ordering::Relaxed);
        let _ = writeln!(to, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {count}");
        let sum = self.sum_ms.load(Ordering::Relaxed) as f64 / 1_000.0;
        let _ = writeln!(to, "{name}_sum{braces} {sum}");
        let _ = writeln!(to, "{name}_count{braces} {count}");
    }
}

/// The counters.
#[derive(Default)]
pub(crate) struct Metrics {
    started: AtomicU64,
    in_progress: AtomicU64,
    refused: AtomicU64,
    asked: AtomicU64,
    landed: AtomicU64,
    calls: AtomicU64,
    tokens_in: AtomicU64,
    tokens_cached: AtomicU64,
    tokens_out: AtomicU64,
    cost_micros: AtomicU64,
    outcomes: Mutex<BTreeMap<String, u64>>,
    runs: Histogram,
    call_time: Histogram,
}

impl Metrics {
    pub(crate) fn started(&self) {
        self.started.fetch_add(1, Ordering::Relaxed);
        self.in_progress.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn ended(&self) {
        self.in_progress.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn event(&self, event: &Event) {
        let add = |counter: &AtomicU64, value| counter.fetch_add(value, Ordering::Relaxed);
        match &event.kind {
            EventKind::Asked { .. } => drop(add(&self.asked, 1)),
            EventKind::Landed { .. } => drop(add(&self.landed, 1)),
            EventKind::CallFinished { ms, .. } => {
                add(&self.calls, 1);
                self.call_time.observe(*ms);
            }
            EventKind::Spent {
                call, cost_micros, ..
            } => {
                add(&self.tokens_in, call.input);
                add(&self.tokens_cached, call.cache_read);
                add(&self.tokens_out, call.output);
                add(&self.cost_micros, cost_micros.unwrap_or(0));
            }
            EventKind::RunFinished(summary) => {
                let word = summary.outcome.word().to_owned();
                *self.outcomes.lock().entry(word).or_default() += 1;
                self.runs.observe(summary.ms);
            }
            _ => {}
        }
    }
}

impl Service {
    /// The counters in the text format of Prometheus.
    #[must_use]
    pub fn metrics_text(&self) -> String {
        let metrics = &self.0.metrics;
        let (running, waiting) = self.0.scheduler.counts();
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut text = String::new();
        let mut counter = |name: &str, help: &str, kind: &str, value: String| {
            let _ = writeln!(
                text,
                "# HELP windlass_{name} {help}\n# TYPE windlass_{name} {kind}\nwindlass_{name} {value}"
            );
        };
        let dollars = |micros: u64| (micros as f64 / 1e6).to_string();
        counter(
            "runs_started_total",
            "Runs that were started.",
            "counter",
            value(&metrics.started).to_string(),
        );
        counter(
            "runs_in_progress",
            "Runs in progress.",
            "gauge",
            value(&metrics.in_progress).to_string(),
        );
        counter(
            "sessions_running",
            "Sessions that hold a slot.",
            "gauge",
            running.to_string(),
        );
        counter(
            "sessions_waiting",
            "Sessions that wait for a slot.",
            "gauge",
            waiting.to_string(),
        );
        counter(
            "prompts_refused_total",
            "Queued prompts that could not run.",
            "counter",
            value(&metrics.refused).to_string(),
        );
        counter(
            "asks_total",
            "Questions to a person.",
            "counter",
            value(&metrics.asked).to_string(),
        );
        counter(
            "landings_total",
            "Landings.",
            "counter",
            value(&metrics.landed).to_string(),
        );
        counter(
            "calls_total",
            "Tool calls.",
            "counter",
            value(&metrics.calls).to_string(),
        );
        counter(
            "cost_usd_total",
            "Cost of model calls in US dollars.",
            "counter",
            dollars(value(&metrics.cost_micros)),
        );
        counter(
            "reserved_usd",
            "Cost reserved by runs in progress.",
            "gauge",
            dollars(self.0.spending.reserved()),
        );
        text.push_str("# HELP windlass_tokens_total Tokens of model calls.\n# TYPE windlass_tokens_total counter\n");
        for (kind, counter) in [
            ("input", &metrics.tokens_in),
            ("cached", &metrics.tokens_cached),
            ("output", &metrics.tokens_out),
        ] {
            let _ = writeln!(
                text,
                "windlass_tokens_total{{kind=\"{kind}\"}} {}",
                value(counter)
            );
        }
        text.push_str("# HELP windlass_runs_finished_total Runs by outcome.\n# TYPE windlass_runs_finished_total counter\n");
        for (outcome, count) in metrics.outcomes.lock().iter() {
            let _ = writeln!(
                text,
                "windlass_runs_finished_total{{outcome=\"{outcome}\"}} {count}"
            );
        }
        text.push_str("# HELP windlass_run_seconds Durations of runs.\n# TYPE windlass_run_seconds histogram\n");
        metrics.runs.write(&mut text, "windlass_run_seconds", "");
        text.push_str("# HELP windlass_call_seconds Durations of tool calls.\n# TYPE windlass_call_seconds histogram\n");
        metrics
            .call_time
            .write(&mut text, "windlass_call_seconds", "");
        text
    }
}
