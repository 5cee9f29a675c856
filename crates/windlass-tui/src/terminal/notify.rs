//! Sequences beside the text: the title of the window, the progress of a task, and the clipboard. The library makes those of
//! notifications. All text in them is sanitized, so that it cannot end a sequence or begin another one.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use windlass_text::sanitize::plain;

use super::capabilities::{Multiplexer, TerminalCapabilities};

/// The greatest text for the clipboard. Terminals ignore sequences of more than about 100,000 bytes.
pub const MAX_CLIPBOARD_BYTES: usize = 74_000;
const MAX_TITLE_CHARS: usize = 120;
/// The longest sequence that screen passes on.
const SCREEN_CHUNK_BYTES: usize = 512;

const ESC: &str = "\x1b";
/// Ends an escape sequence.
const ST: &str = "\x1b\\";
const BELL: &str = "\x07";

/// The progress of a task as a terminal shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskProgress {
    Hidden,
    /// Between 0 and 100.
    Percent(u8),
    /// Working, without a known end.
    Unknown,
    Failed,
    /// Waits for the user.
    Paused,
}

/// Makes the sequences that a terminal supports. An empty result means that it supports none.
#[derive(Debug, Clone)]
pub struct TerminalWriter {
    escape_sequences: bool,
    multiplexer: Option<Multiplexer>,
    progress: bool,
    clipboard: bool,
}

impl TerminalWriter {
    /// A writer for a terminal with these properties.
    #[must_use]
    pub fn new(capabilities: &TerminalCapabilities) -> Self {
        Self {
            escape_sequences: capabilities.escape_sequences,
            multiplexer: capabilities.multiplexer,
            progress: capabilities.progress,
            clipboard: capabilities.clipboard,
        }
    }

    /// Sets the title of the window or pane; an empty title removes it.
    #[must_use]
    pub fn title(&self, title: &str) -> Vec<u8> {
        if !self.escape_sequences {
            return Vec::new();
        }
        // tmux and screen have titles of their own, so the sequence is not passed on.
        format!("{ESC}]2;{}{ST}", one_line(title, MAX_TITLE_CHARS)).into_bytes()
    }

    /// Shows the progress of a task in the task bar or the tab of the terminal.
    #[must_use]
    pub fn progress(&self, progress: TaskProgress) -> Vec<u8> {
        if !self.progress {
            return Vec::new();
        }
        let state = match progress {
            TaskProgress::Hidden => "0;0".to_owned(),
            TaskProgress::Percent(percent) => format!("1;{}", percent.min(100)),
            TaskProgress::Failed => "2;100".to_owned(),
            TaskProgress::Unknown => "3;0".to_owned(),
            TaskProgress::Paused => "4;100".to_owned(),
        };
        self.passed_on(&format!("{ESC}]9;4;{state}{ST}"))
            .into_bytes()
    }

    /// Copies a text to the clipboard of the user's machine, also through a remote connection. `None` if the terminal
    /// has no clipboard, or if the text is longer than [`MAX_CLIPBOARD_BYTES`].
    #[must_use]
    pub fn copy(&self, text: &str) -> Option<Vec<u8>> {
        if !self.clipboard || text.len() > MAX_CLIPBOARD_BYTES {
            return None;
        }
        // The encoded text has no character that could end the sequence.
        let sequence = format!("{ESC}]52;c;{}{ST}", STANDARD.encode(text));
        let passed_on = self.passed_on(&sequence);
        // tmux accepts the plain sequence or passes the wrapped one on, depending on its settings.
        let bytes = match self.multiplexer {
            Some(Multiplexer::Tmux) => sequence + &passed_on,
            _ => passed_on,
        };
        Some(bytes.into_bytes())
    }

    /// Wraps a sequence for the terminal around a multiplexer.
    fn passed_on(&self, sequence: &str) -> String {
        match self.multiplexer {
            _ if sequence.is_empty() => String::new(),
            None => sequence.to_owned(),
            Some(Multiplexer::Tmux) => {
                format!("{ESC}Ptmux;{}{ST}", sequence.replace(ESC, "\x1b\x1b"))
            }
            Some(Multiplexer::Screen) => {
                // The end of the inner sequence would end the outer one.
                let inner = sequence.replace(ST, BELL);
                let (mut rest, mut out) = (inner.as_str(), String::new());
                while !rest.is_empty() {
                    let (chunk, next) = rest.split_at(rest.floor_char_boundary(SCREEN_CHUNK_BYTES));
                    out.push_str(&format!("{ESC}P{chunk}{ST}"));
                    rest = next;
                }
                out
            }
        }
    }
}

/// Printable text without line breaks.
fn one_line(text: &str, max_chars: usize) -> String {
    let start: String = text.chars().take(max_chars).collect();
    plain(&start).replace(['\n', '\t'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "done; \x1b]0;x\x07\u{9c}now\n!";

    fn writer(variables: &[(&str, &str)]) -> TerminalWriter {
        let owned = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let environment: Vec<_> = owned.collect();
        TerminalWriter::new(&TerminalCapabilities::of(&environment, true))
    }

    #[test]
    fn titles_are_one_short_printable_line() {
        let title = writer(&[("TERM", "xterm")]).title(HOSTILE);
        assert_eq!(title, b"\x1b]2;done; ]0;xnow !\x1b\\");
        let long = writer(&[("TERM", "xterm")]).title(&"x".repeat(1_000));
        assert!(long.len() < 200);
        assert!(writer(&[("TERM", "dumb")]).title("x").is_empty());
    }

    #[test]
    fn progress_is_only_for_terminals_that_show_it() {
        let terminal = writer(&[("TERM", "xterm"), ("WT_SESSION", "1")]);
        assert_eq!(
            terminal.progress(TaskProgress::Percent(200)),
            b"\x1b]9;4;1;100\x1b\\"
        );
        assert_eq!(
            terminal.progress(TaskProgress::Hidden),
            b"\x1b]9;4;0;0\x1b\\"
        );
        let other = writer(&[("TERM", "xterm")]);
        assert!(other.progress(TaskProgress::Unknown).is_empty());
    }

    #[test]
    fn the_clipboard_gets_text_of_a_bounded_size() {
        let terminal = writer(&[("TERM", "xterm")]);
        assert_eq!(
            terminal.copy("hé").as_deref(),
            Some(b"\x1b]52;c;aMOp\x1b\\".as_slice())
        );
        assert!(terminal.copy(&"x".repeat(MAX_CLIPBOARD_BYTES)).is_some());
        assert_eq!(terminal.copy(&"x".repeat(MAX_CLIPBOARD_BYTES + 1)), None);
        assert_eq!(writer(&[("TERM", "dumb")]).copy("x"), None);
        let tmux = writer(&[("TERM", "tmux"), ("TMUX", "x")]);
        assert_eq!(
            tmux.copy("h").as_deref(),
            Some(b"\x1b]52;c;aA==\x1b\\\x1bPtmux;\x1b\x1b]52;c;aA==\x1b\x1b\\\x1b\\".as_slice())
        );
    }

    #[test]
    fn screen_gets_long_sequences_in_parts() {
        let screen = writer(&[("TERM", "screen")]);
        let bytes = screen.copy(&"x".repeat(3_000)).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let parts: Vec<&str> = text.split_inclusive("\x1b\\").collect();
        assert!(parts.len() > 7);
        for part in parts {
            assert!(part.starts_with("\x1bP") && part.len() <= SCREEN_CHUNK_BYTES + 4);
        }
    }
}
