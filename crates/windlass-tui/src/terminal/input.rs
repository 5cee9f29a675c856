//! Events of the terminal: keys, pastes, resizes and the focus.

use std::collections::VecDeque;
use std::io::{self, PipeReader, PipeWriter};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use crossterm::event::{Event, KeyEvent, KeyEventKind, MouseEvent};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::stdio::stdin;
use rustix::termios::tcgetwinsize;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::error::SendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::ScreenSize;

/// The greatest size of a paste in bytes. The rest is cut.
pub const MAX_PASTE_BYTES: usize = 8 << 20;

/// An event of the terminal.
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

/// Events that wait for their reader. Keys wait in the terminal after that.
const MAX_WAITING_EVENTS: usize = 64;
/// The wait for more keys after some have arrived. Without a wait, crossterm would not look for keys.
const READ_WAIT: Duration = Duration::from_millis(1);
/// The longest wait for the thread to stop. It does not stop in the middle of an incomplete key sequence.
const STOP_WAIT: Duration = Duration::from_millis(200);

type EventResult = io::Result<TerminalEvent>;

/// Events that were read before a drop, for the next reader. The process has one terminal.
static UNREAD: Mutex<VecDeque<TerminalEvent>> = Mutex::new(VecDeque::new());

/// Waits for events of the terminal of the process. Without an event it uses no CPU time.
///
/// Drop it before another program uses the terminal, and create it again afterwards. The drop waits until nothing reads
/// from the terminal any more, so that the other program gets all keys; keys that were read before are kept for the next
/// reader. Only one may exist at a time.
///
/// A thread waits for keys, and reads them only when some have arrived. The event stream of crossterm is not used: after
/// its drop, its thread may still take keys from the other program, and it uses a whole processor after the terminal is
/// gone.
pub struct TerminalEvents {
    events: Receiver<EventResult>,
    resizes: Option<Signal>,
    /// Closing it ends the thread.
    stop: Option<PipeWriter>,
    /// Gets the event that the thread could not send.
    stopped: mpsc::Receiver<Option<TerminalEvent>>,
    unread: VecDeque<TerminalEvent>,
}

impl TerminalEvents {
    /// Begins to read. It must be called in a tokio runtime. The first event tells of errors.
    #[must_use]
    pub fn new() -> Self {
        let (sender, events) = channel(MAX_WAITING_EVENTS);
        let (stopped_sender, stopped) = mpsc::channel();
        let started = start_thread(sender.clone(), stopped_sender);
        let resizes = signal(SignalKind::window_change());
        let mut terminal_events = Self {
            events,
            resizes: None,
            stop: None,
            stopped,
            unread: std::mem::take(&mut UNREAD.lock().unwrap_or_else(PoisonError::into_inner)),
        };
        match (started, resizes) {
            (Ok(stop), Ok(resizes)) => {
                terminal_events.stop = Some(stop);
                terminal_events.resizes = Some(resizes);
            }
            (Err(err), _) | (_, Err(err)) => {
                // The queue is empty, so there is space.
                let _ = sender.try_send(Err(err));
            }
        }
        terminal_events
    }

    /// The next event; `None` if the terminal is gone. Dropping the future loses no event.
    pub async fn next(&mut self) -> Option<EventResult> {
        if let Some(event) = self.unread.pop_front() {
            return Some(Ok(event));
        }
        let Some(resizes) = &mut self.resizes else {
            return self.events.recv().await;
        };
        tokio::select! {
            biased;
            Some(()) = resizes.recv() => {
                let (columns, rows) = match tcgetwinsize(stdin()) {
                    Ok(size) => (size.ws_col, size.ws_row),
                    Err(err) => return Some(Err(err.into())),
                };
                Some(Ok(TerminalEvent::Resize(ScreenSize::new(columns.into(), rows.into()))))
            }
            event = self.events.recv() => event,
        }
    }
}

impl Default for TerminalEvents {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for TerminalEvents {
    fn drop(&mut self) {
        self.events.close();
        while let Ok(event) = self.events.try_recv() {
            self.unread.extend(event);
        }
        // The thread ends when this descriptor is closed.
        if self.stop.take().is_some() {
            let last = self.stopped.recv_timeout(STOP_WAIT);
            self.unread.extend(last.ok().flatten());
        }
        let mut unread = UNREAD.lock().unwrap_or_else(PoisonError::into_inner);
        unread.extend(self.unread.drain(..).take(2 * MAX_WAITING_EVENTS));
    }
}

/// Starts the thread; closing the result ends it.
fn start_thread(
    events: Sender<EventResult>,
    stopped: mpsc::Sender<Option<TerminalEvent>>,
) -> io::Result<PipeWriter> {
    let (watched, stop) = io::pipe()?;
    std::thread::Builder::new()
        .name("terminal-input".to_owned())
        .spawn(move || {
            let unsent = read_events(&watched, &events).unwrap_or_else(|err| {
                // Without a reader the error does not matter.
                let _ = events.blocking_send(Err(err));
                None
            });
            // The reader may be gone after its longest wait.
            let _ = stopped.send(unsent);
        })?;
    Ok(stop)
}

/// Sends events until the other end of `stop` is closed, or the terminal is gone. Returns an event without a reader.
fn read_events(
    stop: &PipeReader,
    events: &Sender<EventResult>,
) -> io::Result<Option<TerminalEvent>> {
    loop {
        // Events that crossterm has read already do not make the descriptor readable.
        while crossterm::event::poll(READ_WAIT)? {
            let event = match crossterm::event::read()? {
                // The signal tells of resizes without a key.
                Event::Resize(..) => None,
                event => convert(event),
            };
            if let Some(event) = event
                && let Err(SendError(event)) = events.blocking_send(Ok(event))
            {
                return Ok(event.ok());
            }
        }
        let mut ready = [
            PollFd::from_borrowed_fd(stdin(), PollFlags::IN),
            PollFd::new(stop, PollFlags::IN),
        ];
        match poll(&mut ready, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(err) => return Err(err.into()),
        }
        let [input, stop] = ready.map(|fd| fd.revents());
        let is_gone = input.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL);
        if is_gone || !stop.is_empty() {
            return Ok(None);
        }
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
