//! The one moving line at the bottom of a terminal: step, tokens, cost, elapsed, what is going on.

use std::io::{IsTerminal, Write};
use std::time::Instant;

use unicode_width::UnicodeWidthChar;
use windlass::transcript::{dollars, thousands};

use super::style::capable;
use crate::safe::one_line;

/// The status line; silent when standard error is no terminal.
pub(crate) struct Progress {
    enabled: bool,
    shown: bool,
    began: Instant,
    frame: usize,
    /// What is going on.
    pub(crate) doing: String,
    /// The run is over: nothing moves any more.
    pub(crate) ended: bool,
    /// A model call is under way, which is not among the steps yet; otherwise calls or checks run.
    pub(crate) asks_model: bool,
    /// Model calls so far.
    pub(crate) steps: u32,
    /// Tokens so far.
    pub(crate) tokens: u64,
    /// Micro-USD so far.
    pub(crate) cost_micros: u64,
}

const FRAMES: [char; 4] = ['⠋', '⠙', '⠸', '⠴'];

impl Progress {
    pub(crate) fn new(quiet: bool) -> Self {
        let enabled = !quiet && std::io::stderr().is_terminal() && capable();
        Self {
            enabled,
            shown: false,
            began: Instant::now(),
            frame: 0,
            doing: "starting".into(),
            ended: false,
            asks_model: true,
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
            one_line(&self.doing),
        );
        let line = fit(&line, columns());
        self.shown = true;
        let mut err = std::io::stderr().lock();
        let _ = write!(err, "\r\x1b[2K\x1b[2m{line}\x1b[0m").and_then(|()| err.flush());
    }

    /// The step that is going on, or was the last one while calls and checks run.
    fn step(&self) -> u32 {
        self.steps.saturating_add(u32::from(self.asks_model)).max(1)
    }

    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let mut err = std::io::stderr().lock();
            let _ = write!(err, "\r\x1b[2K").and_then(|()| err.flush());
        }
    }
}

/// The columns of the terminal.
pub(crate) fn columns() -> usize {
    rustix::termios::tcgetwinsize(std::io::stderr())
        .map_or(80, |size| usize::from(size.ws_col).max(20))
}

/// As much of a line as fits, one column short so that nothing wraps.
fn fit(line: &str, columns: usize) -> String {
    let mut used = 0;
    let mut out = String::new();
    for c in line.chars() {
        used += c.width().unwrap_or(0);
        if used >= columns {
            break;
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_counted_while_its_model_call_runs_and_not_during_the_checks() {
        let check = |steps: u32, asks_model: bool, expect: u32| {
            let progress = Progress {
                steps,
                asks_model,
                ..Progress::new(true)
            };
            assert_eq!(progress.step(), expect);
        };
        check(0, true, 1);
        check(1, false, 1);
        check(1, true, 2);
        check(0, false, 1);
    }

    #[test]
    fn a_line_fits_by_columns_not_by_characters() {
        assert_eq!(fit("漢字漢字", 6), "漢字");
        assert_eq!(fit("abc", 80), "abc");
    }
}
