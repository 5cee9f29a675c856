//! JSON that is safe for a terminal. Other text is sanitized by [`windlass_text::sanitize`].

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::Formatter;
use windlass_text::sanitize::escaped_json;

/// Serializes a value as one line of JSON that is safe for a terminal.
pub(crate) fn json_line(value: &impl Serialize) -> String {
    let mut line = Vec::new();
    // Writing to memory fails only for values without a JSON form, and all our values have one.
    if write_json(&mut line, value).is_err() {
        line.clear();
    }
    line.push(b'\n');
    String::from_utf8(line).unwrap_or_default()
}

/// Writes a value as JSON. Unsafe characters are escaped, so that no information is lost.
pub(crate) fn write_json(to: impl Write, value: &impl Serialize) -> io::Result<()> {
    value
        .serialize(&mut serde_json::Serializer::with_formatter(to, SafeJson))
        .map_err(io::Error::from)
}

struct SafeJson;

impl Formatter for SafeJson {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        writer.write_all(escaped_json(fragment).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn json_keeps_all_characters_and_escapes_unsafe_ones() {
        let text = "a\u{1b}\u{9b}\u{7f}\u{202e}\u{200b}\u{e0041}\n\"é";
        let line = json_line(&text);
        assert_eq!(
            line,
            "\"a\\u001b\\u009b\\u007f\\u202e\\u200b\\udb40\\udc41\\n\\\"é\"\n"
        );
        assert_eq!(
            serde_json::from_str::<String>(&line).ok().as_deref(),
            Some(text)
        );
    }

    proptest! {
        #[test]
        fn any_text_is_one_safe_line(bytes in prop::collection::vec(any::<u8>(), 0..200), more in ".{0,60}") {
            let text = format!("{}{more}", String::from_utf8_lossy(&bytes));
            let line = json_line(&text);
            prop_assert_eq!(line.lines().count(), 1);
            prop_assert!(line.trim_end().chars().all(windlass_text::sanitize::is_plain), "{:?}", line);
            let back: String = serde_json::from_str(&line).map_err(|err| TestCaseError::fail(err.to_string()))?;
            prop_assert_eq!(back, text);
        }
    }
}
