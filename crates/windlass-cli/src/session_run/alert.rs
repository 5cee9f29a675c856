//! Calls the user back to the terminal when a run asks or ends after a while.

use std::io::IsTerminal;
use std::time::Instant;

use windlass::core::event::Event;
use windlass::notifications::TerminalAlert;
use windlass::settings::Settings;

use crate::args::OutputArgs;

/// The notifications of the terminal during a run; off if standard error is not a terminal, and with `--quiet`.
pub(crate) struct RunAlert {
    terminal: Option<TerminalAlert>,
    since: Instant,
}

impl RunAlert {
    pub(crate) fn new(settings: &Settings, output: &OutputArgs) -> Self {
        let watched = std::io::stderr().is_terminal() && !output.quiet;
        Self {
            terminal: watched.then(|| TerminalAlert::of(settings)).flatten(),
            since: Instant::now(),
        }
    }

    /// The user has just started a run or typed something.
    pub(crate) fn restart(&mut self) {
        self.since = Instant::now();
    }

    pub(crate) fn event(&self, event: &Event) {
        if let Some(terminal) = &self.terminal
            && let Some(text) = terminal.text(event, self.since.elapsed())
        {
            crate::out::alert(&text);
        }
    }
}
