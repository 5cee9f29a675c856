//! Functions for untrusted text: remove control characters, limit the length, and quote for a shell.

use std::borrow::Cow;

use windlass_core::shell::quoted;

/// Removes control characters except line ends and tabs.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    let steers = |c: char| c.is_control() && c != '\n' && c != '\t';
    if text.contains(steers) {
        text.chars()
            .filter(|c| !steers(*c))
            .collect::<String>()
            .into()
    } else {
        text.into()
    }
}

/// The beginning of a text, with a note about the total length if it was cut.
pub(crate) fn clip(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return text.into();
    }
    format!(
        "{}…[{} bytes in total]",
        &text[..text.floor_char_boundary(most)],
        text.len()
    )
    .into()
}

/// A program and its arguments as one line for a shell. `bash -c LINE` becomes LINE.
pub(crate) fn shell_line(words: &[&str]) -> String {
    if let [shell, flags, line] = words {
        let shell = shell.rsplit('/').next().unwrap_or_default();
        if matches!(shell, "sh" | "bash" | "zsh" | "dash") && matches!(*flags, "-c" | "-lc" | "-cl")
        {
            return (*line).to_owned();
        }
    }
    words
        .iter()
        .map(|word| quoted(word))
        .collect::<Vec<_>>()
        .join(" ")
}

/// The last bytes of a text, at most `most`.
pub(crate) fn end_of(text: &str, most: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(most))..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_quoted_and_a_shell_line_is_unwrapped() {
        assert_eq!(shell_line(&["bash", "-lc", "echo hi > a"]), "echo hi > a");
        assert_eq!(
            shell_line(&["echo", "it's", "", "a b"]),
            r"echo 'it'\''s' '' 'a b'"
        );
        assert_eq!(shell_line(&["/bin/sh", "-c", "x", "y"]), "/bin/sh -c x y");
    }

    #[test]
    fn control_characters_are_removed_and_characters_stay_whole() {
        assert_eq!(clean("a\u{1b}[2J\r\nb\tc"), "a[2J\nb\tc");
        assert_eq!(clip("äää", 3), "ä…[6 bytes in total]");
        assert_eq!(clip("äää", 6), "äää");
    }
}
