//! Fields of JSON objects from outside: what is missing or of another type is nothing.

use serde_json::Value;

/// The text of a field; empty where there is none.
pub(crate) fn text<'a>(from: &'a Value, key: &str) -> &'a str {
    some_text(from, key).unwrap_or_default()
}

/// The text of a field.
pub(crate) fn some_text<'a>(from: &'a Value, key: &str) -> Option<&'a str> {
    from.get(key)?.as_str()
}

/// The number of a field; 0 where there is none.
pub(crate) fn number(from: &Value, key: &str) -> u64 {
    from.get(key).and_then(Value::as_u64).unwrap_or_default()
}
