//! Colour where it is wanted. What is coloured is made safe first, so that only our own escapes pass.

use std::io::IsTerminal;

use windlass::transcript::Severity;

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

impl From<Severity> for Style {
    fn from(severity: Severity) -> Self {
        match severity {
            Severity::Info => Self::Dim,
            Severity::Success => Self::Added,
            Severity::Warning => Self::Warning,
            Severity::Failure => Self::Removed,
        }
    }
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

    /// The same for standard output.
    pub(crate) fn for_stdout() -> Self {
        Self(std::io::stdout().is_terminal() && capable())
    }

    /// No colour.
    pub(crate) fn none() -> Self {
        Self(false)
    }

    #[cfg(test)]
    pub(crate) fn always() -> Self {
        Self(true)
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
}
