//! The colours of the text view: those of the user's terminal.

use std::io::IsTerminal;

use windlass::transcript::Severity;
use windlass_text::{ColorDepth, ColorTheme, StyledLine, TextStyle, Tone, encode_into};

/// The colours for standard error: none unless it is a terminal, or if `NO_COLOR` or `TERM=dumb` is set.
pub(crate) fn stderr_colors() -> ColorDepth {
    colors(std::io::stderr().is_terminal())
}

/// The colours for standard output: none unless it is a terminal, or if `NO_COLOR` or `TERM=dumb` is set.
pub(crate) fn stdout_colors() -> ColorDepth {
    colors(std::io::stdout().is_terminal())
}

fn colors(terminal: bool) -> ColorDepth {
    // The theme of the terminal has only its sixteen colours.
    match terminal && supports_escapes() {
        true => ColorDepth::Ansi16,
        false => ColorDepth::None,
    }
}

/// Whether the environment allows escape sequences.
pub(crate) fn supports_escapes() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// The style of a line of the transcript.
pub(crate) fn style_of(severity: Severity) -> TextStyle {
    match severity {
        Severity::Info => Tone::Muted,
        Severity::Success => Tone::Ok,
        Severity::Warning => Tone::Warn,
        Severity::Failure => Tone::Bad,
    }
    .into()
}

/// The lines as text for an output, with newlines between them. No other escape sequences than those of the styles remain.
pub(crate) fn encoded(lines: &[StyledLine], colors: ColorDepth) -> String {
    let theme = ColorTheme::terminal();
    let mut out = String::new();
    for (at, line) in lines.iter().enumerate() {
        if at > 0 {
            out.push('\n');
        }
        encode_into(&mut out, line, &theme, colors);
    }
    out
}
