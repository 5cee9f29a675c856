//! Paths in patches: unquoting, prefixes, and the rules for every path.
//!
//! A path is unquoted before it is checked, so that an escape sequence cannot hide a forbidden path.

use super::PatchError;

/// Parses a path at the start of `text`: C-quoted, or plain up to a tab or a time stamp. Returns the path and the rest.
pub(super) fn take(text: &str) -> Result<(String, &str), String> {
    match text.strip_prefix('"') {
        Some(quoted) => unquote(quoted),
        None => {
            let end = text
                .find('\t')
                .or_else(|| time_at(text))
                .unwrap_or(text.len());
            Ok((text[..end].trim_end().to_owned(), &text[end..]))
        }
    }
}

/// The offset of a time stamp that follows a path after a space, as in `a.txt 2024-01-31 12:00:00`.
fn time_at(text: &str) -> Option<usize> {
    let shape = b" 0000-00-00 00:00";
    text.as_bytes().windows(shape.len()).position(|window| {
        window.iter().zip(shape).all(|(byte, wanted)| {
            if *wanted == b'0' {
                byte.is_ascii_digit()
            } else {
                byte == wanted
            }
        })
    })
}

/// Unescapes a C-quoted string up to its closing quote. `text` starts after the opening quote. Returns also the rest.
fn unquote(text: &str) -> Result<(String, &str), String> {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    loop {
        match bytes.get(at) {
            None => return Err("a quoted path has no closing quote".into()),
            Some(b'"') => break,
            Some(b'\\') => {
                let (byte, used) = escape(&bytes[at + 1..])?;
                out.push(byte);
                at += 1 + used;
            }
            Some(&byte) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    let path = String::from_utf8(out).map_err(|_| "a quoted path is not UTF-8".to_owned())?;
    Ok((path, &text[at + 1..]))
}

fn escape(rest: &[u8]) -> Result<(u8, usize), String> {
    let simple = |byte| Ok((byte, 1));
    match rest {
        [b'a', ..] => simple(7),
        [b'b', ..] => simple(8),
        [b't', ..] => simple(b'\t'),
        [b'n', ..] => simple(b'\n'),
        [b'v', ..] => simple(11),
        [b'f', ..] => simple(12),
        [b'r', ..] => simple(b'\r'),
        [b'"', ..] => simple(b'"'),
        [b'\\', ..] => simple(b'\\'),
        [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] => {
            Ok(((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'), 3))
        }
        _ => Err("a quoted path has an invalid escape sequence".into()),
    }
}

/// Normalises a path, or returns the rule that it breaks.
pub(super) fn check(path: &str) -> Result<String, PatchError> {
    let forbid = |message: &str| {
        Err(PatchError::Forbidden {
            path: format!("{path:?}"),
            message: message.into(),
        })
    };
    if path.chars().any(char::is_control) {
        return forbid("a path in a patch may not have control characters");
    }
    if path.starts_with('/') || path.starts_with('~') {
        return forbid("a path in a patch must be relative to the workspace");
    }
    let parts: Vec<&str> = path
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .collect();
    if parts.contains(&"..") {
        return forbid("a path in a patch may not go up with `..`");
    }
    if parts.is_empty() || path.ends_with('/') {
        return forbid("a patch must name a file");
    }
    Ok(parts.join("/"))
}

/// Removes the `a/` and `b/` prefixes of a diff, if both paths have one.
pub(super) fn strip_prefixes<'a>(old: &'a str, new: &'a str) -> (&'a str, &'a str) {
    // `git diff` writes other letters with `diff.mnemonicPrefix`.
    const LETTERS: [(char, char); 6] = [
        ('a', 'b'),
        ('i', 'w'),
        ('c', 'i'),
        ('c', 'w'),
        ('o', 'w'),
        ('b', 'a'),
    ];
    let strip = |path: &'a str, letter: char| {
        path.strip_prefix(letter)
            .and_then(|rest| rest.strip_prefix('/'))
    };
    for (left, right) in LETTERS {
        match (old, new) {
            (NULL, new) => {
                if let Some(rest) = strip(new, right) {
                    return (NULL, rest);
                }
            }
            (old, NULL) => {
                if let Some(rest) = strip(old, left) {
                    return (rest, NULL);
                }
            }
            _ => {
                if let (Some(old), Some(new)) = (strip(old, left), strip(new, right)) {
                    return (old, new);
                }
            }
        }
    }
    (old, new)
}

/// The path that stands for "no file" in a diff.
pub(super) const NULL: &str = "/dev/null";

/// The two paths of a `diff --git` line. Returns `None` for two different unquoted paths: paths may contain spaces, so it
/// is unclear where the first one ends. In that case the rename lines of the patch name them.
pub(super) fn git_header(rest: &str) -> Result<Option<(String, String)>, String> {
    if rest.starts_with('"') || rest.ends_with('"') {
        let (old, rest) = if rest.starts_with('"') {
            take(rest)?
        } else {
            let at = rest
                .find(" \"")
                .ok_or("a `diff --git` line needs two paths")?;
            (rest[..at].to_owned(), &rest[at..])
        };
        let (new, _) = take(rest.trim_start())?;
        return Ok(Some((old, new)));
    }
    let same = |at: usize| {
        let (old, new) = (&rest[..at], &rest[at + 1..]);
        let (old_name, new_name) = strip_prefixes(old, new);
        old_name == new_name
    };
    let middle = rest
        .match_indices(' ')
        .map(|(at, _)| at)
        .find(|&at| same(at));
    Ok(middle.map(|at| (rest[..at].to_owned(), rest[at + 1..].to_owned())))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn quoted_paths_are_unquoted_with_octal_escapes() {
        assert_eq!(
            take(r#""a/\056env" x"#).unwrap(),
            ("a/.env".to_owned(), " x")
        );
        assert_eq!(take(r#""na\303\257ve\t\"\\""#).unwrap().0, "naïve\t\"\\");
        assert_eq!(take("a/b c\t2024-01-01").unwrap().0, "a/b c");
        assert_eq!(
            take("a/b c 2024-01-01 10:00:00.0 +0000").unwrap().0,
            "a/b c"
        );
        assert_eq!(
            take("notes 2024-01-01.md").unwrap().0,
            "notes 2024-01-01.md"
        );
        for bad in [
            r#""open"#,
            r#""\q""#,
            r#""\777""#,
            r#""\38"#,
            r#""\377""#,
            "\"\\",
        ] {
            assert!(take(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn paths_that_leave_the_workspace_are_refused() {
        assert_eq!(check("./src//lib.rs").unwrap(), "src/lib.rs");
        for bad in [
            "",
            ".",
            "/etc/passwd",
            "a/../../b",
            "..",
            "~/x",
            "a\nb",
            "a\0b",
            "dir/",
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn prefixes_are_stripped_only_in_pairs() {
        assert_eq!(strip_prefixes("a/x", "b/x"), ("x", "x"));
        assert_eq!(strip_prefixes("a/x", "a/x"), ("a/x", "a/x"));
        assert_eq!(strip_prefixes(NULL, "b/x"), (NULL, "x"));
        assert_eq!(strip_prefixes("i/x", "w/x"), ("x", "x"));
        assert_eq!(strip_prefixes("src/x", "src/x"), ("src/x", "src/x"));
    }

    #[test]
    fn git_lines_name_both_paths() {
        assert_eq!(
            git_header("a/x y b/x y").unwrap(),
            Some(("a/x y".into(), "b/x y".into()))
        );
        assert_eq!(
            git_header(r#""a/\303\251" "b/\303\251""#).unwrap(),
            Some(("a/é".into(), "b/é".into()))
        );
        assert_eq!(
            git_header(r#"a/x "b/\303\251""#).unwrap(),
            Some(("a/x".into(), "b/é".into()))
        );
        assert_eq!(git_header("a/x b/y").unwrap(), None);
    }
}
