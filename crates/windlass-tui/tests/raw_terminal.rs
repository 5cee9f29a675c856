//! The modes of a pseudo-terminal before, during and after a session.

#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::io::Read;

use portable_pty::{MasterPty, PtySize, native_pty_system};
use rustix::termios::{LocalModes, OutputModes, tcgetattr};
use windlass_tui::terminal::{RawTerminal, ScreenSize, TerminalModes};

struct TestTerminal {
    master: Box<dyn MasterPty + Send>,
    reader: Box<dyn Read + Send>,
    device: File,
    // The terminal exists while this end is open.
    _slave: Box<dyn portable_pty::SlavePty + Send>,
}

impl TestTerminal {
    fn open() -> Self {
        let size = PtySize {
            rows: 30,
            cols: 90,
            ..PtySize::default()
        };
        let pair = native_pty_system().openpty(size).unwrap();
        let name = pair.master.tty_name().unwrap();
        let device = File::options().read(true).write(true).open(name).unwrap();
        Self {
            reader: pair.master.try_clone_reader().unwrap(),
            master: pair.master,
            device,
            _slave: pair.slave,
        }
    }

    fn enter(&self, modes: TerminalModes) -> RawTerminal {
        RawTerminal::enter(&self.device, &self.device, modes).unwrap()
    }

    fn is_raw(&self) -> bool {
        let state = tcgetattr(&self.device).unwrap();
        let cooked = LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        let raw = !state.local_modes.intersects(cooked);
        assert_eq!(raw, !state.output_modes.contains(OutputModes::OPOST));
        raw
    }

    /// The bytes that were written, up to and including the end.
    fn written(&mut self, end: &str) -> String {
        let mut bytes = Vec::new();
        while !bytes.ends_with(end.as_bytes()) {
            let mut byte = [0];
            self.reader.read_exact(&mut byte).unwrap();
            bytes.extend(byte);
        }
        String::from_utf8(bytes).unwrap()
    }
}

const RESET: &str = "\x1b[?2026l\x1b[?1006l\x1b[?1002l\x1b[?1004l\x1b[?2004l\x1b[m\x1b[?25h";

#[test]
fn dropping_restores_the_terminal() {
    let mut terminal = TestTerminal::open();
    assert!(!terminal.is_raw());
    let raw = terminal.enter(TerminalModes::default());
    assert!(terminal.is_raw());
    assert_eq!(terminal.written("2004h"), "\x1b[?2004h");
    drop(raw);
    assert!(!terminal.is_raw());
    assert_eq!(terminal.written("25h"), RESET);
}

#[test]
fn optional_modes_are_switched_on_and_off() {
    let mut terminal = TestTerminal::open();
    let raw = terminal.enter(TerminalModes {
        focus_events: true,
        keyboard_enhancement: true,
    });
    assert_eq!(terminal.written(">1u"), "\x1b[?2004h\x1b[?1004h\x1b[>1u");
    drop(raw);
    assert_eq!(terminal.written("25h"), format!("\x1b[<u{RESET}"));
}

#[test]
fn leaving_and_resuming_are_idempotent() {
    let mut terminal = TestTerminal::open();
    let raw = terminal.enter(TerminalModes::default());
    raw.leave().unwrap();
    raw.leave().unwrap();
    assert!(!terminal.is_raw());
    raw.resume().unwrap();
    raw.resume().unwrap();
    assert!(terminal.is_raw());
    raw.leave().unwrap();
    drop(raw);
    let written = terminal.written("25h") + &terminal.written("25h");
    assert_eq!(written, format!("\x1b[?2004h{RESET}").repeat(2));
}

#[test]
fn a_restorer_works_once_and_from_another_thread() {
    let mut terminal = TestTerminal::open();
    let raw = terminal.enter(TerminalModes::default());
    let restorer = raw.restorer();
    std::thread::spawn(move || {
        restorer.restore_now();
        restorer.restore_now();
    })
    .join()
    .unwrap();
    assert!(!terminal.is_raw());
    drop(raw);
    assert_eq!(terminal.written("25h"), format!("\x1b[?2004h{RESET}"));
}

#[test]
fn a_panic_hook_restores_the_full_screen_too() {
    let mut terminal = TestTerminal::open();
    let raw = terminal.enter(TerminalModes::default());
    raw.enter_full_screen(true).unwrap();
    raw.restorer().restore_now();
    assert!(!terminal.is_raw());
    let expect = format!(
        "\x1b[?2004h\x1b[?1049h\x1b[?1002h\x1b[?1006h\x1b[?1006l\x1b[?1002l\x1b[?1049l{RESET}"
    );
    assert_eq!(terminal.written("25h"), expect);
}

#[test]
fn typed_bytes_survive_the_switch_to_raw_mode() {
    let terminal = TestTerminal::open();
    use std::io::Write as _;
    let mut writer = terminal.master.take_writer().unwrap();
    writer.write_all(b"early\n").unwrap();
    let raw = terminal.enter(TerminalModes::default());
    let mut bytes = [0; 5];
    (&terminal.device).read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"early");
    drop(raw);
}

#[test]
fn the_size_is_the_one_of_the_terminal() {
    let terminal = TestTerminal::open();
    let raw = terminal.enter(TerminalModes::default());
    assert_eq!(raw.size(), ScreenSize::new(90, 30));
    let size = PtySize {
        rows: 0,
        cols: 0,
        ..PtySize::default()
    };
    terminal.master.resize(size).unwrap();
    assert_eq!(raw.size(), ScreenSize::new(80, 24));
}
