//! The modes of the user's terminal: raw input, bracketed paste, and their restoration.
//!
//! The terminal must not stay in these modes if the program ends. [`RawTerminal`] restores them when it is dropped; a
//! [`TerminalRestorer`] does so from a panic hook or a signal task.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, kill_current_process_group};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use super::ScreenSize;

/// Attempts to write to a terminal that accepts no bytes, for example because the user pressed Ctrl-S.
const MAX_WRITE_ATTEMPTS: usize = 10;
const WRITE_WAIT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

const BRACKETED_PASTE_ON: &[u8] = b"\x1b[?2004h";
const FOCUS_EVENTS_ON: &[u8] = b"\x1b[?1004h";
/// Reports keys such as Shift-Enter and Ctrl-I as keys of their own (the protocol of kitty).
const KEYBOARD_ENHANCEMENT_ON: &[u8] = b"\x1b[>1u";
const KEYBOARD_ENHANCEMENT_OFF: &[u8] = b"\x1b[<u";
const FULL_SCREEN_ON: &[u8] = b"\x1b[?1049h";
const FULL_SCREEN_OFF: &[u8] = b"\x1b[?1049l";
const MOUSE_ON: &[u8] = b"\x1b[?1002h\x1b[?1006h";
/// Ends a synchronized update, mouse reports, focus events, bracketed paste and styles, and shows the cursor.
const RESET: &[u8] = b"\x1b[?2026l\x1b[?1006l\x1b[?1002l\x1b[?1004l\x1b[?2004l\x1b[m\x1b[?25h";

/// The optional modes. A terminal without support ignores them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TerminalModes {
    /// Report when the window gets or loses the focus.
    pub focus_events: bool,
    /// Report keys that have no traditional code.
    pub keyboard_enhancement: bool,
}

/// The parts that may be used from other threads. They take no lock and allocate nothing, because a signal or a panic
/// may interrupt any code.
struct TerminalState {
    input: OwnedFd,
    output: OwnedFd,
    original: Termios,
    modes: TerminalModes,
    active: AtomicBool,
    full_screen: AtomicBool,
}

impl TerminalState {
    fn enter(&self) -> io::Result<()> {
        if self.active.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let mut raw = self.original.clone();
        raw.make_raw();
        // `Now` keeps the bytes that the user typed already.
        tcsetattr(&self.input, OptionalActions::Now, &raw)?;
        self.write(BRACKETED_PASTE_ON)?;
        if self.modes.focus_events {
            self.write(FOCUS_EVENTS_ON)?;
        }
        self.push_keyboard_enhancement()
    }

    fn restore(&self) -> io::Result<()> {
        if !self.active.swap(false, Ordering::SeqCst) {
            return Ok(());
        }
        // The modes of the kernel matter most, so an error of the terminal must not prevent their restoration.
        let left = self.leave_full_screen();
        let popped = self.pop_keyboard_enhancement();
        let reset = self.write(RESET);
        tcsetattr(&self.input, OptionalActions::Now, &self.original)?;
        left.and(popped).and(reset)
    }

    fn enter_full_screen(&self, mouse: bool) -> io::Result<()> {
        if !self.full_screen.swap(true, Ordering::SeqCst) {
            self.write(FULL_SCREEN_ON)?;
            // Each of the two screens has modes of the keyboard of its own.
            self.push_keyboard_enhancement()?;
        }
        if mouse {
            self.write(MOUSE_ON)?;
        }
        Ok(())
    }

    fn leave_full_screen(&self) -> io::Result<()> {
        if !self.full_screen.swap(false, Ordering::SeqCst) {
            return Ok(());
        }
        self.pop_keyboard_enhancement()?;
        self.write(b"\x1b[?1006l\x1b[?1002l")?;
        self.write(FULL_SCREEN_OFF)
    }

    fn push_keyboard_enhancement(&self) -> io::Result<()> {
        if self.modes.keyboard_enhancement {
            self.write(KEYBOARD_ENHANCEMENT_ON)?;
        }
        Ok(())
    }

    fn pop_keyboard_enhancement(&self) -> io::Result<()> {
        if self.modes.keyboard_enhancement {
            self.write(KEYBOARD_ENHANCEMENT_OFF)?;
        }
        Ok(())
    }

    fn write(&self, mut bytes: &[u8]) -> io::Result<()> {
        let mut attempts = 0;
        while !bytes.is_empty() {
            match rustix::io::write(&self.output, bytes) {
                Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if attempts < MAX_WRITE_ATTEMPTS => {
                    attempts += 1;
                    let output = PollFd::new(&self.output, PollFlags::OUT);
                    // An error of the wait shows in the next attempt.
                    let _ = poll(&mut [output], Some(&WRITE_WAIT));
                }
                Err(err) => return Err(err.into()),
            }
        }
        Ok(())
    }
}

/// A terminal in raw mode. Dropping it restores the terminal.
pub struct RawTerminal {
    state: Arc<TerminalState>,
}

impl RawTerminal {
    /// Saves the state of a terminal and switches it to raw mode. Both descriptors are of the same terminal.
    pub fn enter(input: impl AsFd, output: impl AsFd, modes: TerminalModes) -> io::Result<Self> {
        let original = tcgetattr(&input)?;
        let terminal = Self {
            state: Arc::new(TerminalState {
                input: input.as_fd().try_clone_to_owned()?,
                output: output.as_fd().try_clone_to_owned()?,
                original,
                modes,
                active: AtomicBool::new(false),
                full_screen: AtomicBool::new(false),
            }),
        };
        terminal.state.enter()?;
        Ok(terminal)
    }

    /// A handle for panic hooks and for tasks that wait for SIGTERM and SIGHUP.
    #[must_use]
    pub fn restorer(&self) -> TerminalRestorer {
        TerminalRestorer {
            state: Arc::clone(&self.state),
        }
    }

    /// The current size; 80x24 if the terminal does not know it. Asking is cheap: ask before each draw, because the
    /// event of a resize arrives later than the resize.
    #[must_use]
    pub fn size(&self) -> ScreenSize {
        match tcgetwinsize(&self.state.output) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                ScreenSize::new(size.ws_col.into(), size.ws_row.into())
            }
            _ => ScreenSize::new(80, 24),
        }
    }

    /// Restores the terminal for another program, such as an editor. [`RawTerminal::resume`] ends it.
    pub fn leave(&self) -> io::Result<()> {
        self.state.restore()
    }

    /// Restores the terminal and stops the process group, as Ctrl-Z does in other programs. Call
    /// [`RawTerminal::resume`] when SIGCONT arrives, or after about 100 milliseconds: without job control the kernel
    /// ignores the signal, and SIGCONT never arrives.
    pub fn suspend(&self) -> io::Result<()> {
        self.state.restore()?;
        // The group includes programs that started this one, such as the launcher of a package manager.
        kill_current_process_group(Signal::TSTP)?;
        Ok(())
    }

    /// Switches to raw mode again. Does nothing if the terminal is in raw mode.
    pub fn resume(&self) -> io::Result<()> {
        self.state.enter()
    }

    /// Shows the alternate screen. With `mouse`, the terminal reports clicks, drags and the wheel instead of selecting
    /// text.
    pub fn enter_full_screen(&self, mouse: bool) -> io::Result<()> {
        self.state.enter_full_screen(mouse)
    }

    /// Shows the screen with the scrollback again. Does nothing if it is shown.
    pub fn leave_full_screen(&self) -> io::Result<()> {
        self.state.leave_full_screen()
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // A terminal that is gone needs no restoration.
        let _ = self.state.restore();
    }
}

/// Restores the terminal from anywhere.
#[derive(Clone)]
pub struct TerminalRestorer {
    state: Arc<TerminalState>,
}

impl TerminalRestorer {
    /// Restores the terminal if it is in raw mode. It only makes system calls, so it may run in a signal handler.
    pub fn restore_now(&self) {
        // There is nothing else to try.
        let _ = self.state.restore();
    }
}
