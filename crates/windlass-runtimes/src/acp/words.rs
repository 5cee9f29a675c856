//! Words from outside: cleaned of what would steer a terminal, cut to a length, and put together for a shell.

use std::borrow::Cow;

use windlass_core::shell::quoted;

/// Without control characters but line ends and tabs.
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

/// The beginning of a text, and a word that there was more.
pub(crate) fn clip(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return text.into();
    }
    format!(
        "{}…[{} bytes in all]",
        &text[..text.floor_char_boundary(most)],
        text.len()
    )
    .into()
}

/// A program and its words as one line for a shell. A shell that is given a line is that line.
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

/// The end of a text, so many bytes of it.
pub(crate) fn end_of(text: &str, most: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(most))..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_a_line_and_a_line_stays_one() {
        assert_eq!(shell_line(&["bash", "-lc", "echo hi > a"]), "echo hi > a");
        assert_eq!(
            shell_line(&["echo", "it's", "", "a b"]),
            r"echo 'it'\''s' '' 'a b'"
        );
        assert_eq!(shell_line(&["/bin/sh", "-c", "x", "y"]), "/bin/sh -c x y");
    }

    #[test]
    fn nothing_steers_a_terminal_and_nothing_is_cut_inside_a_letter() {
        assert_eq!(clean("a\u{1b}[2J\r\nb\tc"), "a[2J\nb\tc");
        assert_eq!(clip("äää", 3), "ä…[6 bytes in all]");
        assert_eq!(clip("äää", 6), "äää");
    }
}
