//! The time and randomness of this machine. The rest of the product uses only these.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use windlass_core::BoxFuture;
use windlass_core::clock::{Clock, Timestamp};

/// A clock that reads the system's time.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    /// Returns a clock whose monotonic time starts now.
    #[must_use]
    pub fn new() -> Self {
        Self {
            started: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let now = SystemTime::now();
        // Times before 1970 are negative.
        let millis = match now.duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            Err(before) => {
                i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |millis| -millis)
            }
        };
        Timestamp::from_millis(millis)
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }

    fn sleep(&self, how_long: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(how_long))
    }

    fn entropy(&self) -> u64 {
        random_u64()
    }
}

/// Returns a random number from the system's generator.
#[must_use]
pub fn random_u64() -> u64 {
    // If the system's generator fails (because of a strict system-call filter), the seeds of the standard library still
    // give distinct names; each use that must be exclusive opens with `O_EXCL`.
    getrandom::u64().unwrap_or_else(|_| RandomState::new().build_hasher().finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_in_this_century_and_never_goes_back() {
        let clock = SystemClock::new();
        assert!(clock.now() > Timestamp::from_millis(1_700_000_000_000));
        let (first, second) = (clock.monotonic(), clock.monotonic());
        assert!(first <= second);
        assert_ne!(clock.entropy(), clock.entropy());
    }
}
