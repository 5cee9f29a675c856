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
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

use jiff::civil::{Date, Time};
use jiff::tz::Offset;
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
        match read_own_form(text) {
            Some(at) => Ok(at),
            None => Ok(Self(text.parse::<jiff::Timestamp>()?.as_millisecond())),
        }
    }
}

/// Reads a time in the form in which [`Timestamp`] writes it. Every event of a log has one, and the parser for all forms
/// takes several times as long.
fn read_own_form(text: &str) -> Option<Timestamp> {
    const FORM: &[u8; 24] = b"0000-00-00T00:00:00.000Z";
    let text: &[u8; 24] = text.as_bytes().try_into().ok()?;
    let fits = |(form, byte): (&u8, &u8)| match form {
        b'0' => byte.is_ascii_digit(),
        form => form == byte,
    };
    if !FORM.iter().zip(text).all(fits) {
        return None;
    }
    let digit = |byte: &u8| (byte - b'0').cast_signed();
    let two = |at: usize| digit(&text[at]) * 10 + digit(&text[at + 1]);
    let number = |range: Range<usize>| {
        let digits = text[range].iter().map(digit);
        digits.fold(0_i16, |number, digit| number * 10 + i16::from(digit))
    };
    let date = Date::new(number(0..4), two(5), two(8)).ok()?;
    let nanos = i32::from(number(20..23)) * 1_000_000;
    let time = Time::new(two(11), two(14), two(17), nanos).ok()?;
    let at = Offset::UTC.to_timestamp(date.to_datetime(time)).ok()?;
    Some(Timestamp(at.as_millisecond()))
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
    fn both_parsers_agree() {
        let general = |text: &str| {
            text.parse::<jiff::Timestamp>()
                .ok()
                .map(|at| at.as_millisecond())
        };
        for days in -700_000..2_900_000_i64 {
            if days % 97 == 0 {
                let at = Timestamp::from_millis(days * 86_400_000 + days.rem_euclid(86_399_999));
                assert_eq!(at.to_string().parse().ok(), Some(at));
            }
        }
        for text in [
            "2024-02-29T00:00:00.000Z",
            "2023-02-29T00:00:00.000Z",
            "2026-11-15T24:00:00.000Z",
            "2026-11-15T23:59:60.000Z",
            "2026-13-15T00:00:00.000Z",
            "2026-11-15T00:00:00.00aZ",
            "2026-11-15T00:00:00.0001",
            "2026-11-15T02:00:00+01:0",
            "2026-11-15T02:00:00+01:00",
            "0000-01-01T00:00:00.000Z",
            "9999-12-31T23:59:59.999Z",
        ] {
            assert_eq!(
                text.parse().ok().map(Timestamp::as_millis),
                general(text),
                "{text}"
            );
        }
    }

    #[test]
    fn absurd_times_are_clamped_not_fatal() {
        let _ = Timestamp::from_millis(i64::MAX).to_string();
        let _ = Timestamp::from_millis(i64::MIN).compact();
    }
}
