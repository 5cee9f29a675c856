//! Identifiers as newtypes, so that a call id is never mistaken for a session id. An id from outside is checked once,
//! here; no other code builds paths or keys from raw text.
//!
//! ```
//! use windlass_core::id::{RunId, SessionId};
//!
//! assert_eq!(RunId::nth(3).as_str(), "r3");
//! assert!("../../etc".parse::<SessionId>().is_err(), "an id never is a path");
//! ```

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// The error for a text that is not a valid id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{given}` is not a valid {what} id: use 1 to {max} of the characters a-z, A-Z, 0-9, `-`, `_` and `.`, starting with a letter or digit"
)]
pub struct IdError {
    what: &'static str,
    given: String,
    max: usize,
}

fn check(what: &'static str, text: &str, max: usize) -> Result<(), IdError> {
    let head = text
        .bytes()
        .next()
        .is_some_and(|b| b.is_ascii_alphanumeric());
    // One pass without a search for `..`: each event of a log has three ids.
    let mut dots = 0;
    let body = text.bytes().all(|b| {
        dots = if b == b'.' { dots + 1 } else { 0 };
        dots < 2 && (b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
    });
    if head && body && text.len() <= max {
        return Ok(());
    }
    // The text may be hostile, and the message repeats it: keep it short and printable.
    let given: String = text
        .chars()
        .take(80)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    Err(IdError { what, given, max })
}

macro_rules! safe_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        pub struct $name(String);

        impl $name {
            /// Maximum length in bytes.
            pub const MAX: usize = 64;
            /// The id as text; safe as a single path component.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                check($what, text, Self::MAX)?;
                Ok(Self(text.to_owned()))
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
                let text = Cow::<str>::deserialize(de)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                // No two dots in a row.
                schemars::json_schema!({
                    "type": "string",
                    "maxLength": Self::MAX,
                    "pattern": r"^[A-Za-z0-9](?:\.?[A-Za-z0-9_-])*\.?$",
                })
            }
        }
    };
}

safe_id!(
    /// The id of a session, which is one durable event log about one workspace.
    SessionId, "session");
safe_id!(
    /// The id of a run, which is one user prompt to its end. It is unique inside its session.
    RunId, "run");
safe_id!(
    /// The id of one question to a person.
    AskId, "ask");
safe_id!(
    /// The id of a stored tool result that was too large for the message.
    ArtifactId, "artifact");
safe_id!(
    /// The id that links the events of one run to traces in other systems: 32 hexadecimal digits.
    TraceId, "trace");

/// The id of one tool call. The model or its vendor chose the text, so it is only compared and repeated, and never used
/// as a path.
#[derive(
    Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct CallId(pub String);

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for CallId {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl SessionId {
    /// A new session's id: sortable by time to the millisecond, short enough to type. Of the six last digits, three are
    /// the millisecond and three are random.
    #[must_use]
    pub fn fresh(now: crate::clock::Timestamp, entropy: u64) -> Self {
        let millis = now.as_millis().rem_euclid(1000);
        Self(format!(
            "{}-{millis:03x}{:03x}",
            now.compact(),
            entropy & 0xfff
        ))
    }
}

impl RunId {
    /// The n-th run of a session, counted from 1.
    #[must_use]
    pub fn nth(n: u64) -> Self {
        Self(format!("r{n}"))
    }
}

impl AskId {
    /// The n-th ask of a session, with entropy so that an answer meant for another session does not fit.
    #[must_use]
    pub fn nth(n: u64, entropy: u64) -> Self {
        Self(format!("a{n}-{:08x}", entropy & 0xffff_ffff))
    }
}

impl ArtifactId {
    /// The artifact made at this point of the log.
    #[must_use]
    pub fn nth(n: u64, entropy: u64) -> Self {
        Self(format!("f{n}-{:08x}", entropy & 0xffff_ffff))
    }
}

impl TraceId {
    /// A trace id from 128 bits of entropy.
    #[must_use]
    pub fn fresh(high: u64, low: u64) -> Self {
        Self(format!("{high:016x}{low:016x}"))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_id(text: &str, ok: bool) {
        assert_eq!(text.parse::<SessionId>().is_ok(), ok, "{text:?}");
        assert_eq!(
            serde_json::from_value::<SessionId>(text.into()).is_ok(),
            ok,
            "{text:?} through serde"
        );
    }

    #[test]
    fn ids_of_sessions_sort_by_time() {
        let id = |millis, entropy| {
            let now = crate::clock::Timestamp::from_millis(millis);
            SessionId::fresh(now, entropy).to_string()
        };
        assert_eq!(id(1, 0xabc_def), "19700101-000000-001def");
        assert!(id(1, u64::MAX) < id(2, 0) && id(999, u64::MAX) < id(1_000, 0));
    }

    #[test]
    fn ids_that_could_leave_a_folder_are_rejected() {
        for bad in [
            "",
            ".",
            "..",
            "../x",
            "a/b",
            "a\\b",
            "a..b",
            "-a",
            ".a",
            "a\0",
            "a b",
            "é",
            &"a".repeat(65),
        ] {
            check_id(bad, false);
        }
        for good in ["a", "20261115-031445-7f3a9c", "A.b_c-1", &"a".repeat(64)] {
            check_id(good, true);
        }
    }

    #[test]
    fn the_error_shows_no_control_characters() {
        let text = "\u{1b}[31m".parse::<SessionId>().unwrap_err().to_string();
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}
