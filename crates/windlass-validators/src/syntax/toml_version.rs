//! Finds syntax that is new in TOML 1.1 in a text that is valid TOML 1.1. The tools of Rust and Python support only 1.0.

/// The offset of the first use of new syntax, and a message.
pub(super) fn newer_than_1_0(text: &str) -> Option<(usize, &'static str)> {
    const BREAK: &str = "in TOML 1.0 an inline table must be on one line";
    const COMMA: &str = "in TOML 1.0 an inline table may not end with a comma";
    let bytes = text.as_bytes();
    let (mut open, mut comma) = (Vec::new(), None);
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let in_table = open.last() == Some(&b'{');
        match byte {
            b'"' | b'\'' => {
                let (end, newer) = string(bytes, at);
                if let Some(place) = newer {
                    return Some((place, "TOML 1.0 does not have this escape sequence"));
                }
                (comma, at) = (None, end);
                continue;
            }
            b'#' => {
                let rest = &bytes[at..];
                at += rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
                continue;
            }
            b'{' | b'[' => open.push(*byte),
            b'}' if in_table && comma.is_some() => return comma.map(|at| (at, COMMA)),
            b'}' | b']' => drop(open.pop()),
            b'\n' if in_table => return Some((at, BREAK)),
            _ => {}
        }
        comma = match byte {
            b',' => Some(at),
            b' ' | b'\t' => comma,
            _ => None,
        };
        at += 1;
    }
    None
}

/// The end of the string that begins at `start`, and the first escape sequence in it that is new in 1.1.
fn string(bytes: &[u8], start: usize) -> (usize, Option<usize>) {
    let quote = bytes[start];
    let long = bytes[start..].starts_with(&[quote; 3]);
    let width = if long { 3 } else { 1 };
    let mut at = start + width;
    let mut newer = None;
    while at < bytes.len() {
        if quote == b'"' && bytes[at] == b'\\' {
            if matches!(bytes.get(at + 1), Some(b'e' | b'x')) {
                newer = newer.or(Some(at));
            }
            at += 2;
        } else if bytes[at..].starts_with(&[quote; 3][..width]) {
            // Up to two quotes may directly precede the three that end the string.
            let more = bytes[at + width..].iter().take_while(|b| **b == quote);
            let more = if long { more.take(2).count() } else { 0 };
            return (at + width + more, newer);
        } else {
            at += 1;
        }
    }
    (bytes.len(), newer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, newer: bool) {
        assert_eq!(newer_than_1_0(text).is_some(), newer, "{text}");
    }

    #[test]
    fn only_new_syntax_is_found() {
        check("a = { b = 1,\n c = 2 }\n", true);
        check("a = { b = 1, }\n", true);
        check("a = \"\\e[0m\"\n", true);
        check("a = \"\"\"\\x41\"\"\"\n", true);
        check("a = { b = [\n1,\n] }\n", false);
        check("a = [{ b = 1 },\n { b = 2 },\n]\n", false);
        check("a = { b = \",}\" } # {\n[t]\nb = '{'\n", false);
        check("a = '\\e'\nb = \"\\\\e\"\nc = \"\"\"{\n,}\"\"\"\"\n", false);
        check("a = ''''x'''\nb = { c = 1 }\n", false);
    }
}
