//! Events of the terminal: keys, pastes, resizes and the focus.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;

use crossterm::event::{Event, EventStream, KeyEvent, KeyEventKind, MouseEvent};
use futures_core::Stream;

use super::ScreenSize;

/// The greatest size of a paste in bytes. The rest is cut.
pub const MAX_PASTE_BYTES: usize = 8 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TerminalEvent {
    /// A key was pressed or repeats.
    Key(KeyEvent),
    Paste(PastedText),
    Resize(ScreenSize),
    /// The window got the focus (`true`) or lost it.
    Focus(bool),
    /// Only in the full screen with mouse reports.
    Mouse(MouseEvent),
}

/// A pasted text with `\n` as line ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastedText {
    /// If the paste was cut, the last line says so.
    pub text: String,
    /// The number of bytes that were cut.
    pub omitted: usize,
}

impl PastedText {
    fn new(raw: &str) -> Self {
        // Terminals send a carriage return for each line end of the clipboard.
        let mut text = raw.replace("\r\n", "\n").replace('\r', "\n");
        let end = text.floor_char_boundary(MAX_PASTE_BYTES);
        let omitted = text.len() - end;
        if omitted > 0 {
            text.truncate(end);
            text.push_str(&format!("\n[{omitted} bytes of the paste were cut]"));
        }
        Self { text, omitted }
    }
}

/// Waits for events of the terminal of the process. Without an event it uses no CPU time.
///
/// Drop it before another program uses the terminal, and create it again afterwards. Keys that were read before the
/// drop are kept and become events of the next one. Only one may exist at a time.
pub struct TerminalEvents {
    stream: EventStream,
}

impl TerminalEvents {
    #[must_use]
    pub fn new() -> Self {
        Self {
            stream: EventStream::new(),
        }
    }

    /// The next event; `None` if the terminal is gone. Dropping the future loses no event.
    pub async fn next(&mut self) -> Option<io::Result<TerminalEvent>> {
        loop {
            match poll_fn(|context| Pin::new(&mut self.stream).poll_next(context)).await? {
                Ok(event) => {
                    if let Some(event) = convert(event) {
                        return Some(Ok(event));
                    }
                }
                // The drop of an earlier stream leaves one such error behind.
                Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
                Err(err) => return Some(Err(err)),
            }
        }
    }
}

impl Default for TerminalEvents {
    fn default() -> Self {
        Self::new()
    }
}

/// Events without meaning, such as the release of a key, become `None`.
fn convert(event: Event) -> Option<TerminalEvent> {
    match event {
        Event::Key(key) if key.kind == KeyEventKind::Release => None,
        Event::Key(key) => Some(TerminalEvent::Key(key)),
        Event::Paste(text) => Some(TerminalEvent::Paste(PastedText::new(&text))),
        Event::Resize(columns, rows) => Some(TerminalEvent::Resize(ScreenSize::new(
            columns.into(),
            rows.into(),
        ))),
        Event::FocusGained => Some(TerminalEvent::Focus(true)),
        Event::FocusLost => Some(TerminalEvent::Focus(false)),
        Event::Mouse(mouse) => Some(TerminalEvent::Mouse(mouse)),
    }
}

#[cfg(test)]
mod tests {
    use crossterm::event::{KeyCode, KeyModifiers};

    use super::*;

    #[test]
    fn pastes_have_unix_line_ends() {
        let paste = PastedText::new("a\r\nb\rc\n\r\n");
        assert_eq!((paste.text.as_str(), paste.omitted), ("a\nb\nc\n\n", 0));
    }

    #[test]
    fn a_large_paste_is_cut_between_characters_and_says_so() {
        let paste = PastedText::new(&format!("a{}", "é".repeat(MAX_PASTE_BYTES / 2)));
        assert_eq!(paste.omitted, 2);
        assert!(paste.text.ends_with("é\n[2 bytes of the paste were cut]"));
    }

    #[test]
    fn releases_of_keys_are_dropped() {
        let mut key = KeyEvent::new(KeyCode::Char('a'), KeyModifiers::NONE);
        assert_eq!(convert(Event::Key(key)), Some(TerminalEvent::Key(key)));
        key.kind = KeyEventKind::Repeat;
        assert_eq!(convert(Event::Key(key)), Some(TerminalEvent::Key(key)));
        key.kind = KeyEventKind::Release;
        assert_eq!(convert(Event::Key(key)), None);
    }

    #[test]
    fn sizes_and_focus_are_converted() {
        let size = ScreenSize::new(80, 24);
        assert_eq!(
            convert(Event::Resize(80, 24)),
            Some(TerminalEvent::Resize(size))
        );
        let focus = convert(Event::FocusLost);
        assert_eq!(focus, Some(TerminalEvent::Focus(false)));
    }
}
