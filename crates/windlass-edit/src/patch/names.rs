//! Finds file names in the text that models write above a block: with Markdown around them, in a heading, after a label.
//!
//! A line counts as a file name only if it is unlikely to be anything else; prose is never read as a path.

use super::{PatchError, paths};

/// A file name found on a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FoundName {
    /// The line is a known file, or looks like a path.
    Sure(String),
    /// A single word that may or may not be a file name.
    Maybe(String),
}

/// The file name that makes up a line, without Markdown and labels around it.
pub(super) fn on_line(line: &str, known: &[&str]) -> Option<FoundName> {
    let name = strip_markup(line);
    if known.contains(&name) {
        return Some(FoundName::Sure(name.to_owned()));
    }
    if !is_word(name) {
        return None;
    }
    let sure =
        name.contains('/') || name.trim_start_matches('.').contains('.') || name.starts_with('.');
    Some(if sure {
        FoundName::Sure(name.to_owned())
    } else {
        FoundName::Maybe(name.to_owned())
    })
}

/// The file name in the text after an opening fence, as in "```rust src/lib.rs".
pub(super) fn on_fence(info: &str, known: &[&str]) -> Option<String> {
    let words: Vec<&str> = info
        .split([' ', ':', '='])
        .map(strip_markup)
        .filter(|word| !word.is_empty())
        .collect();
    let named = |word: &&&str| known.contains(*word) || (is_word(word) && word.contains('/'));
    words.iter().find(named).map(|word| (*word).to_owned())
}

/// The known files that occur in the text.
pub(super) fn mentioned<'a>(lines: &[&str], known: &[&'a str]) -> Vec<&'a str> {
    let token = |character: char| character.is_alphanumeric() || "._-/\\".contains(character);
    let named = |line: &str, name: &str| {
        line.match_indices(name).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let mut after = line[at + name.len()..].chars();
            let (next, then) = (after.next(), after.next());
            // A full stop after the name may end the sentence.
            let ends = next.is_none_or(|next| !token(next))
                || (next == Some('.') && then.is_none_or(|then| !token(then)));
            before.is_none_or(|before| !token(before)) && ends
        })
    };
    known
        .iter()
        .copied()
        .filter(|name| lines.iter().any(|line| named(line, name)))
        .collect()
}

/// Completes and checks a path. If `name` is not a known file and exactly one known file ends with it, that is meant.
pub(super) fn resolve(name: &str, known: &[&str]) -> Result<String, PatchError> {
    let path = paths::check(name)?;
    if known.contains(&path.as_str()) {
        return Ok(path);
    }
    let tail = format!("/{path}");
    let mut longer = known.iter().filter(|known| known.ends_with(&tail));
    if let (Some(only), None) = (longer.next(), longer.next()) {
        return Ok((*only).to_owned());
    }
    // Models copy `path/to/` from examples and append the real path.
    if let Some(rest) = path
        .strip_prefix("path/to/")
        .filter(|rest| known.contains(rest))
        && !known.iter().any(|known| known.starts_with("path/to/"))
    {
        return Ok(rest.to_owned());
    }
    Ok(path)
}

/// Parses a code fence: its character (backtick or tilde), their number, and the text after them.
pub(super) fn fence(line: &str) -> Option<(char, usize, &str)> {
    let line = line.trim();
    let mark = line
        .chars()
        .next()
        .filter(|mark| matches!(mark, '`' | '~'))?;
    let count = line
        .chars()
        .take_while(|character| *character == mark)
        .count();
    let info = line[count..].trim();
    (count >= 3 && !info.contains('`')).then_some((mark, count, info))
}

/// Opening and closing tags that models use instead of a fence when the text itself contains backticks.
pub(super) const TAGS: [(&str, &str); 5] = [
    ("<source>", "</source>"),
    ("<code>", "</code>"),
    ("<pre>", "</pre>"),
    ("<codeblock>", "</codeblock>"),
    ("<sourcecode>", "</sourcecode>"),
];

/// Whether a line is a fence or a tag that opens or closes a block.
pub(super) fn is_delimiter(line: &str) -> bool {
    let line = line.trim();
    fence(line).is_some()
        || TAGS
            .iter()
            .any(|(opening, closing)| line == *opening || line == *closing)
}

fn strip_markup(line: &str) -> &str {
    const AROUND: &[char] = &['`', '*', '_', '"', '\'', '[', ']', '<', '>', ' ', '\t'];
    let mut name = line.trim();
    loop {
        let mut next = name
            .trim_matches(AROUND)
            .trim_end_matches([':', ','])
            .trim_start_matches('#');
        for label in [
            "//",
            "- ",
            "File:",
            "file:",
            "Filename:",
            "filename:",
            "Path:",
            "path:",
            "FILE:",
        ] {
            next = next.strip_prefix(label).unwrap_or(next);
        }
        if next == name {
            return name;
        }
        name = next;
    }
}

fn is_word(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 300
        && name.chars().any(char::is_alphanumeric)
        && !name.contains("://")
        && !name.contains(|character: char| {
            character.is_whitespace() || "<>|\"*?()`{};=,".contains(character)
        })
        && !name.ends_with(['.', '!'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expect: Option<&str>) {
        let found = on_line(line, &["my file.txt", "_init_"]).map(|name| match name {
            FoundName::Sure(name) => name,
            FoundName::Maybe(name) => format!("{name}?"),
        });
        assert_eq!(found.as_deref(), expect, "{line}");
    }

    #[test]
    fn markup_and_labels_are_stripped() {
        for line in [
            "src/a.rs",
            "`src/a.rs`",
            "**src/a.rs**:",
            "### `src/a.rs`",
            "File: src/a.rs",
            "# src/a.rs",
            "// src/a.rs",
        ] {
            check(line, Some("src/a.rs"));
        }
        check("my file.txt", Some("my file.txt"));
        check(".gitignore", Some(".gitignore"));
        check("Makefile", Some("Makefile?"));
    }

    #[test]
    fn prose_is_not_a_file_name() {
        for line in [
            "",
            "...",
            "Here is the change:",
            "Done.",
            "see https://example.invalid/a.rs",
            "a = b.c;",
            "----",
        ] {
            check(line, None);
        }
    }

    #[test]
    fn a_mention_is_a_whole_name() {
        let known = ["a.txt", "b.txt"];
        assert_eq!(mentioned(&["now `a.txt`."], &known), ["a.txt"]);
        assert_eq!(mentioned(&["in a.txt and b.txt"], &known), known);
        assert_eq!(mentioned(&["aa.txt x/a.txt a.txt.bak"], &known), [""; 0]);
    }
}
