//! Fields of untrusted JSON objects. A field that is missing or of another type is treated as absent.

use serde_json::Value;

/// The text of a field; empty if it is absent.
pub(crate) fn text<'a>(from: &'a Value, key: &str) -> &'a str {
    some_text(from, key).unwrap_or_default()
}

pub(crate) fn some_text<'a>(from: &'a Value, key: &str) -> Option<&'a str> {
    from.get(key)?.as_str()
}

/// The number of a field; 0 if it is absent.
pub(crate) fn number(from: &Value, key: &str) -> u64 {
    from.get(key).and_then(Value::as_u64).unwrap_or_default()
}

/// The values of a list; none if it is absent.
pub(crate) fn items<'a>(from: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    from.get(key)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

/// The texts of a list of content blocks, one per line.
pub(crate) fn texts(from: &Value, key: &str) -> String {
    items(from, key)
        .filter_map(|block| some_text(block, "text"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// The beginning of a tool's output, limited to the size that is logged.
pub(crate) fn clipped(text: String) -> String {
    const MAX_RESULT: usize = 50_000;
    if text.len() <= MAX_RESULT {
        return text;
    }
    format!("{}\n[…]", &text[..text.floor_char_boundary(MAX_RESULT)])
}

/// The name of an enum variant in settings.
pub(crate) fn word(choice: impl serde::Serialize) -> String {
    let word = serde_json::to_value(choice).unwrap_or_default();
    word.as_str().unwrap_or_default().to_owned()
}
