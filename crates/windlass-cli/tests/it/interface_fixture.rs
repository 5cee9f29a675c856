//! The interface in a pseudo-terminal whose screen is emulated: `avt` wraps lines again and has scrollback, `vt100` knows
//! the styles and the modes.

use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, SlavePty, native_pty_system};

use crate::cli_fixture::{BINARY, CliFixture};

/// The longest wait for a text on the screen.
const PATIENCE: Duration = Duration::from_secs(20);
/// The time after which a snapshot that is being written takes the screen as it is.
const UPDATE_PATIENCE: Duration = Duration::from_millis(1_500);

pub(crate) const ENTER: &str = "\r";
pub(crate) const ESC: &str = "\u{1b}";
pub(crate) const UP: &str = "\u{1b}[A";
pub(crate) const DOWN: &str = "\u{1b}[B";
pub(crate) const SHIFT_TAB: &str = "\u{1b}[Z";
pub(crate) const CTRL_C: &str = "\u{3}";
pub(crate) const CTRL_D: &str = "\u{4}";
pub(crate) const CTRL_G: &str = "\u{7}";
pub(crate) const CTRL_T: &str = "\u{14}";
pub(crate) const CTRL_U: &str = "\u{15}";
pub(crate) const CTRL_Z: &str = "\u{1a}";

/// The emulated terminal.
pub(crate) struct Emulator {
    pub(crate) bytes: Vec<u8>,
    /// The part of `bytes` that the emulators have.
    shown: usize,
    pub(crate) flowing: avt::Terminal,
    pub(crate) styled: vt100::Parser,
    /// The time of the last byte.
    pub(crate) last_byte: Instant,
}

impl Emulator {
    fn new(columns: u16, rows: u16) -> Self {
        let size = (columns.into(), rows.into());
        Self {
            bytes: Vec::new(),
            shown: 0,
            flowing: avt::Terminal::with_scrollback(size.0, size.1, None).unwrap(),
            styled: vt100::Parser::new(cells(rows), cells(columns), 0),
            last_byte: Instant::now(),
        }
    }

    /// Shows complete characters outside of an unfinished synchronized update, as a terminal does.
    fn feed(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
        self.last_byte = Instant::now();
        let waiting = &self.bytes[self.shown..];
        let begin = last_position(waiting, b"\x1b[?2026h");
        let end = last_position(waiting, b"\x1b[?2026l");
        let complete = match (begin, end) {
            (Some(begin), None) => begin,
            (Some(begin), Some(end)) if end < begin => begin,
            _ => waiting.len(),
        };
        let complete = match std::str::from_utf8(&waiting[..complete]) {
            Ok(_) => complete,
            Err(err) if err.error_len().is_none() => err.valid_up_to(),
            Err(err) => panic!("the interface wrote invalid UTF-8: {err}"),
        };
        let text = str::from_utf8(&waiting[..complete]).unwrap().to_owned();
        self.flowing.feed(text.as_str());
        self.styled.process(text.as_bytes());
        self.shown += complete;
    }

    /// The rows of the screen.
    pub(crate) fn rows(&self) -> Vec<String> {
        let lines = self.flowing.screen().visible_lines();
        lines
            .map(|line| line.text().trim_end().to_owned())
            .collect()
    }

    pub(crate) fn screen(&self) -> String {
        self.rows().join("\n").trim_end().to_owned()
    }

    /// The lines of the scrollback and the screen; rows that the terminal wrapped are joined.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = vec![String::new()];
        for row in self.flowing.primary_screen().all_lines() {
            let last = lines.last_mut().unwrap();
            *last += &row.text();
            if !row.is_wrapped() {
                *last = last.trim_end().to_owned();
                lines.push(String::new());
            }
        }
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        lines
    }

    pub(crate) fn all(&self) -> String {
        self.lines().join("\n")
    }

    /// Whether the first occurrence of a text on the screen is bold.
    pub(crate) fn is_bold(&self, text: &str) -> bool {
        let screen = self.styled.screen();
        let (_, columns) = screen.size();
        let columns = u16::from(columns);
        screen.rows(0, columns).enumerate().any(|(row, line)| {
            let Some(at) = line.find(text) else {
                return false;
            };
            let column = line[..at].chars().count();
            let cell = screen.cell(row as u16, column as u16);
            cell.is_some_and(vt100::Cell::bold)
        })
    }
}

fn last_position(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).rposition(|window| window == part)
}

type Shared = Arc<(Mutex<Emulator>, Condvar)>;

/// Options of the terminal and the process.
pub(crate) struct UiOptions<'a> {
    pub(crate) columns: u16,
    pub(crate) rows: u16,
    pub(crate) env: &'a [(&'a str, &'a str)],
    pub(crate) args: &'a [&'a str],
    /// Another program than windlass.
    pub(crate) program: Option<&'a str>,
}

impl Default for UiOptions<'_> {
    fn default() -> Self {
        Self {
            columns: 80,
            rows: 24,
            env: &[],
            args: &[],
            program: None,
        }
    }
}

/// A process in a pseudo-terminal.
pub(crate) struct Ui {
    writer: Box<dyn Write + Send>,
    shared: Shared,
    child: Box<dyn Child + Send + Sync>,
    master: Option<Box<dyn MasterPty + Send>>,
    /// Keeps the terminal open after the end of the process.
    _slave: Box<dyn SlavePty + Send>,
    data: PathBuf,
}

impl Ui {
    /// Opens `windlass chat` with a script at 80×24.
    pub(crate) fn chat(fixture: &CliFixture, script: &str) -> Self {
        Self::chat_sized(fixture, script, (80, 24), &[])
    }

    pub(crate) fn chat_sized(
        fixture: &CliFixture,
        script: &str,
        (columns, rows): (u16, u16),
        more: &[&str],
    ) -> Self {
        let script = fixture.script(script);
        let args = [&["chat", "--script", &script], more].concat();
        let options = UiOptions {
            columns,
            rows,
            args: &args,
            ..UiOptions::default()
        };
        let ui = Self::start(fixture, &options);
        ui.wait("ask for a change");
        ui
    }

    pub(crate) fn start(fixture: &CliFixture, options: &UiOptions<'_>) -> Self {
        let pair = native_pty_system()
            .openpty(pty_size(options.columns, options.rows))
            .unwrap();
        let mut command = CommandBuilder::new(options.program.unwrap_or(BINARY));
        command.args(options.args);
        command.cwd(fixture.work());
        command.env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap());
        command.env("HOME", fixture.home());
        command.env("TERM", "xterm-256color");
        command.env("LANG", "C.UTF-8");
        for (name, value) in options.env {
            command.env(name, value);
        }
        let child = pair.slave.spawn_command(command).unwrap();
        let mut reader = pair.master.try_clone_reader().unwrap();
        let emulator = Emulator::new(options.columns, options.rows);
        let shared: Shared = Arc::new((Mutex::new(emulator), Condvar::new()));
        let seen = shared.clone();
        std::thread::spawn(move || {
            let mut piece = [0; 16 << 10];
            while let Ok(n) = reader.read(&mut piece) {
                if n == 0 {
                    break;
                }
                seen.0.lock().feed(&piece[..n]);
                seen.1.notify_all();
            }
        });
        Self {
            writer: pair.master.take_writer().unwrap(),
            shared,
            child,
            master: Some(pair.master),
            _slave: pair.slave,
            data: fixture.home().join(".local/share/windlass"),
        }
    }

    pub(crate) fn emulator(&self) -> MutexGuard<'_, Emulator> {
        self.shared.0.lock()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.process_id().unwrap()
    }

    /// Waits until the emulated terminal fulfils a condition.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, mut condition: impl FnMut(&Emulator) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        let mut emulator = self.emulator();
        while !condition(&emulator) {
            let timed_out = self
                .shared
                .1
                .wait_until(&mut emulator, deadline)
                .timed_out();
            assert!(
                !timed_out,
                "{what} never came; the terminal shows:\n{}",
                emulator.all()
            );
        }
    }

    /// Waits until a text is on the screen.
    #[track_caller]
    pub(crate) fn wait(&self, text: &str) {
        self.until(&format!("{text:?}"), |emulator| {
            emulator.screen().contains(text)
        });
    }

    /// Whether a text appears on the screen within half a second.
    pub(crate) fn shows_soon(&self, text: &str) -> bool {
        let deadline = Instant::now() + Duration::from_millis(500);
        let mut emulator = self.emulator();
        while !emulator.screen().contains(text) {
            if self
                .shared
                .1
                .wait_until(&mut emulator, deadline)
                .timed_out()
            {
                return false;
            }
        }
        true
    }

    /// Whether the draft on disk has a text within a second.
    pub(crate) fn drafts_soon(&self, text: &str) -> bool {
        let began = Instant::now();
        while !self.draft().contains(text) {
            if began.elapsed() > Duration::from_secs(1) {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    #[track_caller]
    pub(crate) fn wait_gone(&self, text: &str) {
        self.until(&format!("a screen without {text:?}"), |emulator| {
            !emulator.screen().contains(text)
        });
    }

    /// Waits until the scrollback and the screen have a text this many times.
    #[track_caller]
    pub(crate) fn wait_times(&self, text: &str, times: usize) {
        self.until(&format!("{times} × {text:?}"), |emulator| {
            emulator.all().matches(text).count() >= times
        });
    }

    /// Waits until no run is in progress: the status line has the facts of the next run. A prompt that was just sent may
    /// not have begun yet.
    #[track_caller]
    pub(crate) fn wait_idle(&self) {
        self.until("the end of the run", |emulator| {
            let rows = emulator.rows();
            let last = rows.iter().rev().find(|row| !row.is_empty());
            last.is_some_and(|row| {
                !row.starts_with([' ', '●', '‖']) || !row[1..].starts_with(['●', '‖'])
            })
        });
    }

    pub(crate) fn keys(&mut self, keys: &str) {
        self.writer.write_all(keys.as_bytes()).unwrap();
        self.writer.flush().unwrap();
    }

    /// Types a line and submits it, after the composer shows it.
    #[track_caller]
    pub(crate) fn submit(&mut self, text: &str) {
        self.keys(text);
        self.wait(&format!(" > {text}"));
        self.keys(ENTER);
    }

    /// Types a command and closes its completion list, so that Enter runs it.
    #[track_caller]
    pub(crate) fn command(&mut self, text: &str) {
        self.keys(text);
        self.wait(&format!(" > {text}"));
        self.keys(ENTER);
        self.until("an empty composer", |emulator| {
            !emulator.screen().contains(&format!("\n > {text}"))
        });
    }

    /// Waits until the panel of an ask takes keys, and presses one.
    #[track_caller]
    pub(crate) fn answer(&mut self, key: &str) {
        self.wait_armed();
        self.keys(key);
    }

    /// Waits until the keys of the panel are bold: then it takes them.
    #[track_caller]
    pub(crate) fn wait_armed(&self) {
        self.until("a panel that takes keys", |emulator| {
            emulator.is_bold("y once") || emulator.is_bold("y land")
        });
    }

    /// Pastes a text as terminals do.
    pub(crate) fn paste(&mut self, text: &str) {
        self.keys(&format!("\u{1b}[200~{text}\u{1b}[201~"));
    }

    /// Changes the size of the terminal and of the emulators.
    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        let mut emulator = self.emulator();
        emulator.flowing.resize(columns.into(), rows.into());
        emulator
            .styled
            .screen_mut()
            .set_size(cells(rows), cells(columns));
        let master = self.master.as_ref().unwrap();
        master.resize(pty_size(columns, rows)).unwrap();
    }

    pub(crate) fn master(&self) -> &dyn MasterPty {
        self.master.as_deref().unwrap()
    }

    /// Closes the terminal, as a terminal window does.
    pub(crate) fn close_terminal(&mut self) {
        self.master = None;
        self.writer = Box::new(std::io::sink());
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.pid().cast_signed()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for the end of the process.
    #[track_caller]
    pub(crate) fn ends(&mut self) -> u32 {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.exit_code();
            }
            assert!(
                began.elapsed() < PATIENCE,
                "the process does not end:\n{}",
                self.emulator().all()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Leaves the interface and checks that it restored the terminal.
    #[track_caller]
    pub(crate) fn quit(mut self) -> String {
        self.keys(CTRL_U);
        self.keys("/quit");
        self.wait(" > /quit");
        self.keys(ENTER);
        assert_eq!(self.ends(), 0, "{}", self.emulator().all());
        self.until("a restored terminal", |emulator| {
            modes_left_on(&emulator.bytes).is_empty()
        });
        self.emulator().all()
    }

    /// The text of the draft on disk.
    pub(crate) fn draft(&self) -> String {
        let dir = self.data.join("terminal/drafts");
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        // Drafts are written into temporary files first.
        let paths = entries.map(|entry| entry.path());
        let paths = paths.filter(|path| path.extension().is_some_and(|ending| ending == "json"));
        paths
            .filter_map(|path| std::fs::read_to_string(path).ok())
            .collect()
    }

    /// Compares the screen with a snapshot. Waits until it is equal, because several updates may lead to it.
    #[track_caller]
    pub(crate) fn snapshot(&self, name: &str) {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/snapshots");
        let path = format!("{dir}/it__interface_fixture__{name}.snap");
        let stored = std::fs::read_to_string(path).unwrap_or_default();
        // The text follows a header between two lines of dashes.
        let wanted = stored.splitn(3, "---\n").nth(2).unwrap_or_default().trim();
        let patience = match std::env::var_os("INSTA_UPDATE") {
            Some(_) => UPDATE_PATIENCE,
            None => PATIENCE / 4,
        };
        let deadline = Instant::now() + patience;
        let mut emulator = self.emulator();
        let shown = loop {
            let shown = masked(&emulator.screen());
            if shown.trim() == wanted || Instant::now() >= deadline {
                break shown;
            }
            let _ = self.shared.1.wait_until(&mut emulator, deadline);
        };
        drop(emulator);
        insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => true }, {
            insta::assert_snapshot!(name, shown);
        });
    }
}

impl Drop for Ui {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn cells(count: u16) -> NonZeroU16 {
    NonZeroU16::new(count).unwrap()
}

fn pty_size(columns: u16, rows: u16) -> PtySize {
    PtySize {
        rows,
        cols: columns,
        pixel_width: 0,
        pixel_height: 0,
    }
}

/// Private modes that were switched on and not off again, without the cursor, which is on by default.
pub(crate) fn modes_left_on(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let mut on: Vec<String> = Vec::new();
    let mut keyboard = 0;
    for part in text.split("\u{1b}[").skip(1) {
        let Some(end) = part.find(|c: char| ('@'..='~').contains(&c)) else {
            continue;
        };
        let (parameters, last) = (&part[..end], &part[end..=end]);
        match (parameters.strip_prefix('?'), last) {
            (Some("25"), "h") => on.retain(|mode| mode != "hidden cursor"),
            (Some("25"), "l") => on.push("hidden cursor".to_owned()),
            (Some(mode), "h") => on.push(mode.to_owned()),
            (Some(mode), "l") => on.retain(|one| one != mode),
            _ if parameters.starts_with('>') && last == "u" => keyboard += 1,
            _ if parameters.starts_with('<') && last == "u" => keyboard -= 1,
            _ => {}
        }
    }
    if keyboard != 0 {
        on.push(format!("keyboard {keyboard}"));
    }
    on
}

/// The text with `…` for times, dates, ids and temporary paths.
pub(crate) fn masked(screen: &str) -> String {
    let rows = screen.lines().map(|row| {
        let words: Vec<&str> = row.split(' ').collect();
        let mut masked: Vec<String> = Vec::new();
        let mut at = 0;
        while at < words.len() {
            let word = words[at];
            let unit = words.get(at + 1).copied().unwrap_or_default();
            let number = word.parse::<f64>().is_ok();
            if number && ["s", "ms"].contains(&unit.trim_end_matches([',', ')'])) {
                masked.push(format!("{{time}}{}", unit.trim_start_matches(['m', 's'])));
                at += 2;
                continue;
            }
            masked.push(masked_word(word));
            at += 1;
        }
        let row = masked.join(" ").trim_end().to_owned();
        // Running times are shown from the first second on.
        if let Some(call) = row.strip_prefix(" ○ ") {
            return format!(" ○ {}", call.trim_end_matches("{time}").trim_end());
        }
        if let (true, Some(at)) = (row.starts_with(" ● "), row.find(" · step ")) {
            let facts = row[at..].split("  ").filter(|part| !part.is_empty());
            return format!(" ● …{}", facts.collect::<Vec<_>>().join("  "));
        }
        // A narrow status line has no room for the step.
        if row.starts_with(" ● ") && row.contains("  $") {
            return " ● …".to_owned();
        }
        // A right-aligned part moves with the width of the masked words.
        if row.ends_with("{time}") && row.contains('…') {
            let begin: String = row.chars().take(16).collect();
            return format!("{begin}…  {{time}}");
        }
        match row.contains('{') {
            true => {
                let text = row.trim_start();
                let parts = text.split("  ").map(str::trim);
                let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
                format!("{}{}", &row[..row.len() - text.len()], parts.join("  "))
            }
            false => row,
        }
    });
    rows.collect::<Vec<_>>().join("\n")
}

fn masked_word(word: &str) -> String {
    let hex = |text: &str, least: usize| {
        text.len() >= least && text.chars().all(|c| c.is_ascii_hexdigit())
    };
    let digits = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    let bare = word.trim_end_matches(['`', '.', '…', ',', ':', ';']);
    let parts: Vec<&str> = bare.trim_start_matches('`').split('-').collect();
    match parts.as_slice() {
        [day, time, id] if digits(day) && digits(time) && hex(id, 4) => "{session}".to_owned(),
        [year, month, day] if year.len() == 4 && digits(year) && digits(month) && digits(day) => {
            "{date}".to_owned()
        }
        [adjective, noun, number]
            if digits(number)
                && [adjective, noun].iter().all(|part| {
                    !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase())
                }) =>
        {
            "{copy}".to_owned()
        }
        [one] if hex(one, 7) && one.chars().any(|c| c.is_ascii_digit()) => "{hash}".to_owned(),
        [one] if one.len() == 5 && one.split(':').all(digits) => "{clock}".to_owned(),
        _ if word.contains("/tmp/") => "{path}".to_owned(),
        _ => word.to_owned(),
    }
}
