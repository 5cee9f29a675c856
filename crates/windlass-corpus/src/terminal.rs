//! Runs the product in a real terminal of 100×30 characters, types into it and reads from it.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use portable_pty::{CommandBuilder, PtySize, native_pty_system};

use crate::child::{ChildResult, ChildWatch, end_tree};
use crate::fixture::CaseFixture;
use crate::locked;
use crate::product::{DrivenProduct, PROMPT};

/// The most bytes of terminal output that are kept.
const MAX_SCREEN: usize = 32 << 20;
/// More questions than any case has.
const MAX_QUESTIONS: usize = 32;
const TICK: Duration = Duration::from_millis(4);

/// The terminal and the answers of its user.
pub(crate) struct TerminalSession<'a> {
    /// With colours and a status line.
    pub(crate) colour: bool,
    /// The answer to every question. `before_answer` runs first.
    pub(crate) answer: &'a str,
    pub(crate) before_answer: &'a dyn Fn() -> Result<(), String>,
}

/// Runs the product in a terminal. Its screen output is in `out`.
pub(crate) fn run(
    product: &DrivenProduct,
    fixture: &CaseFixture,
    mode: &str,
    args: &[String],
    session: &TerminalSession<'_>,
    watch: &ChildWatch<'_>,
) -> Result<ChildResult, String> {
    let cannot = |err: &dyn std::fmt::Display| format!("no terminal: {err}");
    let size = PtySize {
        rows: 30,
        cols: 100,
        pixel_width: 0,
        pixel_height: 0,
    };
    let pair = native_pty_system()
        .openpty(size)
        .map_err(|err| cannot(&err))?;
    let mut command = CommandBuilder::new(product.binary());
    command.args(args);
    command.cwd(&fixture.cwd);
    command.env_clear();
    for (name, value) in product.env(fixture, mode) {
        command.env(name, value);
    }
    command.env("TERM", "xterm-256color");
    if !session.colour {
        command.env("NO_COLOR", "1");
    }
    let began = Instant::now();
    let mut child = pair
        .slave
        .spawn_command(command)
        .map_err(|err| cannot(&err))?;
    drop(pair.slave);
    let mut writer = pair.master.take_writer().map_err(|err| cannot(&err))?;
    let reader = pair.master.try_clone_reader().map_err(|err| cannot(&err))?;
    let (screen, ended) = (
        Arc::<Mutex<Vec<u8>>>::default(),
        Arc::<AtomicBool>::default(),
    );
    read(reader, screen.clone(), ended.clone());
    let pid = child.process_id().unwrap_or(0) as i32;
    let (mut ran, mut looked, mut answered) = (ChildResult::default(), 0, 0);
    let status = loop {
        ran.seen.sample(pid, watch);
        if let Ok(Some(status)) = child.try_wait() {
            break status;
        }
        let shown = locked(&screen).clone();
        if answered < MAX_QUESTIONS
            && let Some(at) = find(&shown[looked..], PROMPT.as_bytes())
            && shown.ends_with(b": ")
        {
            looked += at + PROMPT.len();
            answered += 1;
            (session.before_answer)()?;
            let _ = writer
                .write_all(format!("{}\r", session.answer).as_bytes())
                .and_then(|()| writer.flush());
        }
        if began.elapsed() > watch.deadline && !ran.overdue {
            ran.overdue = true;
            end_tree(pid);
        }
        std::thread::sleep(TICK);
    };
    ran.took = began.elapsed();
    ran.code = status.exit_code() as i32;
    // The last output may still be in the pipe.
    let waited = Instant::now();
    while !ended.load(Ordering::Relaxed) && waited.elapsed() < Duration::from_millis(500) {
        std::thread::sleep(TICK);
    }
    ran.out = String::from_utf8_lossy(&locked(&screen)).into_owned();
    Ok(ran)
}

fn read(mut reader: Box<dyn Read + Send>, screen: Arc<Mutex<Vec<u8>>>, ended: Arc<AtomicBool>) {
    std::thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(length) = reader.read(&mut piece) {
            if length == 0 {
                break;
            }
            let mut screen = locked(&screen);
            if screen.len() < MAX_SCREEN {
                screen.extend_from_slice(&piece[..length]);
            }
        }
        ended.store(true, Ordering::Relaxed);
    });
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}
