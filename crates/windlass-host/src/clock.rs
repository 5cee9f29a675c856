//! Time and chance of this machine. Nothing else in the product asks the system for either.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use windlass_core::BoxFuture;
use windlass_core::clock::{Clock, Timestamp};

/// The system's clock.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    /// A clock whose monotonic time starts now.
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
        // A clock set before 1970 counts backwards from there.
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

/// A random number from the system's own source.
#[must_use]
pub fn random_u64() -> u64 {
    // Without the system's source (a strict system-call filter) the standard library's own seeds still give
    // distinct names; every use that must be exclusive opens with O_EXCL.
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
