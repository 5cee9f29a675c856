//! Colour where it is wanted. What is coloured is made safe first, so that only our own escapes pass.

use std::io::IsTerminal;

use crate::safe::plain;

/// A few meanings, not a palette.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Bold,
    Dim,
    Added,
    Removed,
    Place,
    Warning,
}

impl Style {
    fn code(self) -> &'static str {
        match self {
            Self::Bold => "1",
            Self::Dim => "2",
            Self::Added => "32",
            Self::Removed => "31",
            Self::Place => "36",
            Self::Warning => "33",
        }
    }
}

/// Whether to colour what goes to standard error.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint(bool);

impl Paint {
    /// Colour on a terminal, unless `NO_COLOR` or `TERM=dumb` says otherwise.
    pub(crate) fn for_stderr() -> Self {
        Self(std::io::stderr().is_terminal() && capable())
    }

    pub(crate) fn on(self, style: Style, text: &str) -> String {
        let text = plain(text);
        if self.0 {
            format!("\x1b[{}m{text}\x1b[0m", style.code())
        } else {
            text.into_owned()
        }
    }
}

/// Text that goes to a terminal with nothing in it but the colours of [`Paint`].
pub(crate) fn only_colours(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut pieces = text.split("\x1b[");
    out.push_str(&plain(pieces.next().unwrap_or_default()));
    for piece in pieces {
        let code = piece.split_once('m').map(|(code, _)| code);
        if code.is_some_and(|code| matches!(code, "0" | "1" | "2" | "31" | "32" | "33" | "36")) {
            out.push_str("\x1b[");
        }
        out.push_str(&plain(piece));
    }
    out
}

/// Whether the terminal takes escape sequences at all.
pub(crate) fn capable() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// The first line of a text, cut to so many characters.
pub(crate) fn first_line(text: &str, most: usize) -> String {
    let line = plain(text.trim_start().lines().next().unwrap_or_default());
    if line.chars().count() <= most {
        line.into_owned()
    } else {
        line.chars()
            .take(most.saturating_sub(1))
            .chain(['…'])
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_escapes_colour() {
        assert_eq!(
            Paint(true).on(Style::Added, "a\u{1b}[2Jb"),
            "\u{1b}[32ma[2Jb\u{1b}[0m"
        );
    }

    #[test]
    fn lines_are_cut_by_characters() {
        assert_eq!(first_line("äöü\nx", 10), "äöü");
        assert_eq!(first_line("äöüäöü", 4), "äöü…");
    }
}
