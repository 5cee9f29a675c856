//! Paths as text, for events and journals in JSON. A path is written as it is, except that a name that is not UTF-8 is
//! written like git does: in double quotes, with an octal escape for each byte that is not printable ASCII. The mapping
//! is one-to-one: every path has exactly one text, and every text belongs to exactly one path.
//!
//! ```
//! use windlass_core::path_text::{from_text, to_text};
//!
//! assert_eq!(to_text(b"docs/b\xffd.txt"), r#"docs/"b\377d.txt""#);
//! assert_eq!(&*from_text(r#"docs/"b\377d.txt""#), b"docs/b\xffd.txt");
//! assert_eq!(to_text("docs/ü.txt".as_bytes()), "docs/ü.txt");
//! ```

use std::borrow::Cow;

/// Encodes a path as text.
#[must_use]
pub fn to_text(path: &[u8]) -> String {
    if let Ok(text) = std::str::from_utf8(path)
        && !text.contains('"')
    {
        return text.to_owned();
    }
    let names = path.split(|byte| *byte == b'/').map(name_to_text);
    names.collect::<Vec<_>>().join("/")
}

/// Decodes the text of a path.
#[must_use]
pub fn from_text(text: &str) -> Cow<'_, [u8]> {
    if !text.contains('"') {
        return Cow::Borrowed(text.as_bytes());
    }
    let names = text
        .split('/')
        .map(|name| unquoted(name).unwrap_or_else(|| name.into()));
    let names: Vec<Vec<u8>> = names.collect();
    Cow::Owned(names.join(&b'/'))
}

fn name_to_text(name: &[u8]) -> String {
    match std::str::from_utf8(name) {
        // A name that looks like a quoted one has to be quoted itself.
        Ok(text) if unquoted(text).is_none() => text.to_owned(),
        _ => quoted(name),
    }
}

fn quoted(name: &[u8]) -> String {
    let mut text = String::from("\"");
    for byte in name {
        match byte {
            b'"' | b'\\' => text.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => text.push(char::from(*byte)),
            _ => text.push_str(&format!("\\{byte:03o}")),
        }
    }
    text.push('"');
    text
}

/// The name inside the quotes; `None` if the text is not the quoted form of a name that needs quoting.
fn unquoted(text: &str) -> Option<Vec<u8>> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    let mut name = Vec::with_capacity(inner.len());
    let mut rest = inner.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = match (first, tail) {
            (b'\\', [byte @ (b'"' | b'\\'), rest @ ..]) => {
                name.push(*byte);
                rest
            }
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', rest @ ..]) => {
                name.push((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'));
                rest
            }
            (b'\\' | b'"', _) => return None,
            (byte, rest) => {
                name.push(*byte);
                rest
            }
        };
    }
    // Each name has one spelling: a text that `quoted` would not produce is a literal name.
    let needed = match std::str::from_utf8(&name) {
        Ok(text) => unquoted(text).is_some(),
        Err(_) => true,
    };
    (needed && !name.contains(&b'/') && quoted(&name) == text).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(path: &[u8], text: &str) {
        assert_eq!(to_text(path), text);
        assert_eq!(&*from_text(text), path);
    }

    #[test]
    fn only_names_that_need_it_are_quoted() {
        check(b"a/b c/\xc3\xbc", "a/b c/ü");
        check(b"a/\xff\n/c", r#"a/"\377\012"/c"#);
        check(br#"a/"said"/c"#, r#"a/"said"/c"#);
        check(br#"a\b"c"#, r#"a\b"c"#);
        check(br#""\377""#, r#""\"\\377\"""#);
        check(br#""\"\\377\"""#, r#""\"\\\"\\\\377\\\"\"""#);
        check(b"\"\xff", r#""\"\377""#);
    }

    proptest! {
        #[test]
        fn every_path_comes_back(path in prop::collection::vec(prop_oneof![Just(b'"'), Just(b'\\'), Just(b'3'), Just(b'7'), Just(0xff), any::<u8>()], 0..24)) {
            let text = to_text(&path);
            prop_assert_eq!(&*from_text(&text), &path[..]);
        }

        #[test]
        fn every_text_is_the_text_of_its_path(text in r#"[a/"\\3 7ü]{0,16}"#) {
            prop_assert_eq!(to_text(&from_text(&text)), text);
        }
    }
}
