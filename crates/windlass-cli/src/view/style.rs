//! Colours for terminals. Text is sanitized before it is coloured, so that only the escapes of this module remain.

use std::io::IsTerminal;

use windlass::transcript::Severity;

use crate::sanitize::plain;

/// The role of a text, which determines its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Bold,
    Dim,
    Added,
    Removed,
    Accent,
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
            Self::Accent => "36",
            Self::Warning => "33",
        }
    }
}

/// Colours text if the output supports it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint(bool);

impl Paint {
    /// Enables colours if standard error is a terminal, unless `NO_COLOR` or `TERM=dumb` is set.
    pub(crate) fn for_stderr() -> Self {
        Self(std::io::stderr().is_terminal() && supports_escapes())
    }

    /// Enables colours if standard output is a terminal, unless `NO_COLOR` or `TERM=dumb` is set.
    pub(crate) fn for_stdout() -> Self {
        Self(std::io::stdout().is_terminal() && supports_escapes())
    }

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

/// Removes all escape sequences except the colours of [`Paint`].
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

/// Whether the environment allows escape sequences.
pub(crate) fn supports_escapes() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_in_the_text_are_removed() {
        assert_eq!(
            Paint(true).on(Style::Added, "a\u{1b}[2Jb"),
            "\u{1b}[32ma[2Jb\u{1b}[0m"
        );
    }
}
