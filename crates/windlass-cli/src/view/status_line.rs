//! The status line at the bottom of a terminal: step, tokens, cost, elapsed time and current activity.

use std::io::{IsTerminal, Write};
use std::time::Instant;

use windlass::transcript::{dollars, thousands};
use windlass_text::sanitize::one_line;
use windlass_text::width::prefix;

use super::style::supports_escapes;

/// The status line. It is disabled if standard error is not a terminal.
pub(crate) struct StatusLine {
    enabled: bool,
    shown: bool,
    began: Instant,
    frame: usize,
    pub(crate) activity: String,
    /// The run is over: the line is not drawn any more.
    pub(crate) ended: bool,
    /// A model call is in progress that `steps` does not include yet.
    pub(crate) calls_model: bool,
    /// The number of finished model calls.
    pub(crate) steps: u32,
    pub(crate) tokens: u64,
    /// In millionths of a US dollar.
    pub(crate) cost_micros: u64,
}

const FRAMES: [char; 4] = ['⠋', '⠙', '⠸', '⠴'];

impl StatusLine {
    pub(crate) fn new(quiet: bool) -> Self {
        let enabled = !quiet && std::io::stderr().is_terminal() && supports_escapes();
        Self {
            enabled,
            shown: false,
            began: Instant::now(),
            frame: 0,
            activity: "starting".into(),
            ended: false,
            calls_model: true,
            steps: 0,
            tokens: 0,
            cost_micros: 0,
        }
    }

    pub(crate) fn enabled(&self) -> bool {
        self.enabled
    }

    pub(crate) fn draw(&mut self) {
        if !self.enabled || self.ended {
            return;
        }
        self.frame = (self.frame + 1) % FRAMES.len();
        let seconds = self.began.elapsed().as_secs();
        let line = format!(
            "{} step {} · {} tokens · {} · {}:{:02} · {}",
            FRAMES[self.frame],
            self.step(),
            thousands(self.tokens),
            dollars(self.cost_micros),
            seconds / 60,
            seconds % 60,
            one_line(&self.activity),
        );
        // A line of all columns would wrap.
        let (line, _) = prefix(&line, columns() - 1);
        self.shown = true;
        let mut err = std::io::stderr().lock();
        let _ = write!(err, "\r\x1b[2K\x1b[2m{line}\x1b[0m").and_then(|()| err.flush());
    }

    /// The number of the current step; while calls and checks run, that of the last model call.
    fn step(&self) -> u32 {
        self.steps
            .saturating_add(u32::from(self.calls_model))
            .max(1)
    }

    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let mut err = std::io::stderr().lock();
            let _ = write!(err, "\r\x1b[2K").and_then(|()| err.flush());
        }
    }
}

/// The width of the terminal in columns, at least 20.
pub(crate) fn columns() -> usize {
    rustix::termios::tcgetwinsize(std::io::stderr())
        .map_or(80, |size| usize::from(size.ws_col).max(20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_counted_while_its_model_call_runs_and_not_during_the_checks() {
        let check = |steps: u32, calls_model: bool, expect: u32| {
            let status = StatusLine {
                steps,
                calls_model,
                ..StatusLine::new(true)
            };
            assert_eq!(status.step(), expect);
        };
        check(0, true, 1);
        check(1, false, 1);
        check(1, true, 2);
        check(0, false, 1);
    }
}
