//! Colour where it is wanted, and untrusted text made safe for a terminal.

use std::io::IsTerminal;

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
        if self.0 { format!("\x1b[{}m{text}\x1b[0m", style.code()) } else { text.to_owned() }
    }
}

/// Whether the terminal takes escape sequences at all.
pub(crate) fn capable() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Untrusted text, made safe for a terminal: no escape sequences, no control characters but newline and tab, no
/// characters that turn the direction of writing.
pub(crate) fn plain(text: &str) -> String {
    text.chars().filter(|c| safe(*c)).collect()
}

fn safe(c: char) -> bool {
    match c {
        '\n' | '\t' => true,
        // Characters that turn the direction of writing, that have no width, or that only tag others.
        '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{200b}'..='\u{200f}' | '\u{61c}' | '\u{feff}' => false,
        '\u{e0000}'..='\u{e007f}' => false,
        c => !c.is_control(),
    }
}

/// The same for what a person is asked to approve: what is taken out leaves a mark, so that nothing hides.
pub(crate) fn marked(text: &str) -> String {
    text.chars().map(|c| if safe(c) { c } else { '\u{fffd}' }).collect()
}

/// The first line of a text, cut to so many characters.
pub(crate) fn first_line(text: &str, most: usize) -> String {
    let line = plain(text.trim_start().lines().next().unwrap_or_default());
    if line.chars().count() <= most { line } else { line.chars().take(most.saturating_sub(1)).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_a_model_says_can_drive_a_terminal() {
        let hostile = "a\u{1b}[31mb\u{1b}]0;title\u{7}c\rd\u{9b}2Je\u{7f}f\u{202e}g\u{0}h\ti\nj";
        let safe = plain(hostile);
        assert_eq!(safe, "a[31mb]0;titlecd2Jefgh\ti\nj");
    }

    #[test]
    fn what_is_approved_hides_nothing() {
        assert_eq!(marked("rm a\rls\u{200b}\u{202e}"), "rm a\u{fffd}ls\u{fffd}\u{fffd}");
    }

    #[test]
    fn lines_are_cut_by_characters() {
        assert_eq!(first_line("äöü\nx", 10), "äöü");
        assert_eq!(first_line("äöüäöü", 4), "äöü…");
    }
}
