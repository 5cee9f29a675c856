//! Time as a value and as a port, so that a test never waits. Nothing here reads a clock: the `host` crate does, and
//! tests bring their own implementation.
//!
//! ```
//! use windlass_core::clock::Timestamp;
//!
//! let at = Timestamp::from_millis(1_000);
//! assert_eq!(at.to_string(), "1970-01-01T00:00:01.000Z");
//! ```

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::BoxFuture;

/// A point in time in whole milliseconds, written as RFC 3339 in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Converts milliseconds since 1970; out-of-range values are clamped.
    #[must_use]
    pub fn from_millis(millis: i64) -> Self {
        let min = jiff::Timestamp::MIN.as_millisecond();
        let max = jiff::Timestamp::MAX.as_millisecond();
        Self(millis.clamp(min, max))
    }

    /// The time in milliseconds since 1970.
    #[must_use]
    pub fn as_millis(self) -> i64 {
        self.0
    }

    /// A sortable form for ids: `20261115-031445`.
    #[must_use]
    pub fn compact(self) -> String {
        let zoned = self.jiff().to_zoned(jiff::tz::TimeZone::UTC);
        format!(
            "{:04}{:02}{:02}-{:02}{:02}{:02}",
            zoned.year(),
            zoned.month(),
            zoned.day(),
            zoned.hour(),
            zoned.minute(),
            zoned.second()
        )
    }

    fn jiff(self) -> jiff::Timestamp {
        jiff::Timestamp::from_millisecond(self.0).unwrap_or(jiff::Timestamp::UNIX_EPOCH)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", self.jiff())
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, ser: S) -> Result<S::Ok, S::Error> {
        ser.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(de)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl FromStr for Timestamp {
    type Err = jiff::Error;
    fn from_str(text: &str) -> Result<Self, jiff::Error> {
        Ok(Self(text.parse::<jiff::Timestamp>()?.as_millisecond()))
    }
}

impl JsonSchema for Timestamp {
    fn schema_name() -> Cow<'static, str> {
        "Timestamp".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "date-time" })
    }
}

/// The clock of this machine, and its source of randomness (for ids and jitter).
pub trait Clock: Send + Sync {
    /// The wall clock, for display only. Durations are differences of [`Clock::monotonic`].
    fn now(&self) -> Timestamp;
    /// The time since some fixed moment. It never goes back.
    fn monotonic(&self) -> Duration;
    /// Completes after this duration. Dropping the future cancels the wait.
    fn sleep(&self, how_long: Duration) -> BoxFuture<'_, ()>;
    /// Returns 64 unpredictable bits.
    fn entropy(&self) -> u64;
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_have_three_decimals_and_round_trip() {
        let at = Timestamp::from_millis(1_794_711_285_007);
        let text = serde_json::to_string(&at).unwrap();
        assert_eq!(text, "\"2026-11-15T02:54:45.007Z\"");
        assert_eq!(serde_json::from_str::<Timestamp>(&text).unwrap(), at);
        assert_eq!(at.compact(), "20261115-025445");
    }

    #[test]
    fn absurd_times_are_clamped_not_fatal() {
        let _ = Timestamp::from_millis(i64::MAX).to_string();
        let _ = Timestamp::from_millis(i64::MIN).compact();
    }
}
