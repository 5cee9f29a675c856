//! Limits the requests of each token, by a bucket that refills with time.

use std::collections::HashMap;
use std::time::Instant;

use parking_lot::Mutex;
use windlass_service::{Problem, ProblemCode};

/// Maximum number of callers whose buckets are kept.
const MAX_CALLERS: usize = 10_000;
/// A bucket holds the requests of this number of seconds.
const BURST_SECONDS: f64 = 5.0;

/// The buckets of all callers.
pub(crate) struct RateLimits {
    per_second: f64,
    buckets: Mutex<HashMap<String, (f64, Instant)>>,
}

impl RateLimits {
    pub(crate) fn new(per_second: u32) -> Self {
        Self {
            per_second: f64::from(per_second.max(1)),
            buckets: Mutex::default(),
        }
    }

    /// Takes one request from the bucket of a caller.
    pub(crate) fn take(&self, caller: &str) -> Result<(), Problem> {
        self.take_at(caller, Instant::now())
    }

    fn take_at(&self, caller: &str, now: Instant) -> Result<(), Problem> {
        let full = self.per_second * BURST_SECONDS;
        let mut buckets = self.buckets.lock();
        if buckets.len() >= MAX_CALLERS {
            buckets.clear();
        }
        let (left, at) = buckets.entry(caller.to_owned()).or_insert((full, now));
        let passed = now.saturating_duration_since(*at).as_secs_f64();
        *left = (*left + passed * self.per_second).min(full);
        *at = now;
        if *left < 1.0 {
            return Err(Problem::new(
                ProblemCode::TooManyRequests,
                format!(
                    "this token sends more than {} requests per second",
                    self.per_second
                ),
            )
            .hint("send fewer requests; one event stream replaces polling")
            .retry_after(1));
        }
        *left -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_bucket_refills() {
        let limits = RateLimits::new(2);
        let start = Instant::now();
        for _ in 0..10 {
            limits.take_at("a", start).unwrap();
        }
        assert!(limits.take_at("a", start).is_err());
        limits.take_at("b", start).unwrap();
        limits
            .take_at("a", start + Duration::from_millis(600))
            .unwrap();
        assert!(
            limits
                .take_at("a", start + Duration::from_millis(700))
                .is_err()
        );
    }
}
