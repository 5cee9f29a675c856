//! The properties of the user's terminal, derived from the environment. Nothing is asked of the terminal, because an
//! answer would arrive late or never.

use std::time::Duration;

use windlass_text::ColorDepth;

use super::RowReflow;

/// tmux tells its programs about a resize up to 250 milliseconds late, and a remote connection delays it, too.
const LATE_RESIZE_PAUSE: Duration = Duration::from_millis(300);
const RESIZE_PAUSE: Duration = Duration::from_millis(120);
/// After several resizes at once, the place of the cursor in terminals made with xterm.js is unknown. They report each
/// resize at once.
const SHORT_RESIZE_PAUSE: Duration = Duration::from_millis(15);

/// Terminals that show 24-bit colours and support the keyboard protocol of kitty; prefixes of `TERM`.
const MODERN_TERMS: &[&str] = &[
    "xterm-kitty",
    "xterm-ghostty",
    "ghostty",
    "foot",
    "alacritty",
    "wezterm",
];

/// A program between this one and the user's terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Multiplexer {
    Tmux,
    Screen,
}

/// The properties of a terminal that matter for what is written to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TerminalCapabilities {
    pub colors: ColorDepth,
    /// Whether escape sequences work at all. Without them only plain lines can be shown.
    pub escape_sequences: bool,
    /// Whether updates are marked as synchronized. Terminals without support ignore the mark.
    pub synchronized: bool,
    pub reflow: RowReflow,
    /// The time without a resize after which the size is stable.
    pub resize_pause: Duration,
    /// Whether the locale can show characters outside of ASCII.
    pub unicode: bool,
    /// Whether the terminal reports keys such as Shift-Enter if it is asked to.
    pub keyboard_enhancement: bool,
    pub multiplexer: Option<Multiplexer>,
    /// Whether the terminal shows the progress of a task, for example in the task bar.
    pub progress: bool,
    /// Whether the terminal can copy to the clipboard of the user's machine.
    pub clipboard: bool,
    /// Whether the program runs on another machine than the terminal.
    pub is_remote: bool,
}

impl TerminalCapabilities {
    /// The properties by the variables of the environment. `is_terminal` says whether the output is a terminal.
    #[must_use]
    pub fn of(environment: &[(String, String)], is_terminal: bool) -> Self {
        let variables = Variables { environment };
        let term = variables.text("TERM");
        let escape_sequences = is_terminal && !matches!(term, "" | "dumb");
        let is_console = term == "linux";
        let multiplexer = variables.multiplexer();
        let is_remote = ["SSH_CONNECTION", "SSH_TTY"]
            .iter()
            .any(|name| variables.has(name));
        Self {
            colors: match escape_sequences {
                true => variables.colors(),
                false => ColorDepth::None,
            },
            escape_sequences,
            synchronized: escape_sequences && !is_console,
            reflow: variables.reflow(),
            resize_pause: match variables.reflow() {
                _ if multiplexer.is_some() || is_remote => LATE_RESIZE_PAUSE,
                RowReflow::AllRowsMoveCursor => SHORT_RESIZE_PAUSE,
                RowReflow::AllRows | RowReflow::NoRow => RESIZE_PAUSE,
            },
            unicode: variables.unicode(),
            keyboard_enhancement: escape_sequences && variables.is_modern(),
            multiplexer,
            progress: escape_sequences && variables.shows_progress(),
            clipboard: escape_sequences && !is_console,
            is_remote,
        }
    }
}

struct Variables<'a> {
    environment: &'a [(String, String)],
}

impl<'a> Variables<'a> {
    /// The value of a variable; an empty text if it is not set.
    fn text(&self, name: &str) -> &'a str {
        let found = self.environment.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value)
    }

    fn has(&self, name: &str) -> bool {
        !self.text(name).is_empty()
    }

    fn program(&self) -> &'a str {
        self.text("TERM_PROGRAM")
    }

    fn multiplexer(&self) -> Option<Multiplexer> {
        let term = self.text("TERM");
        // `TERM` is passed to remote machines, where `TMUX` is not set.
        if self.has("TMUX") || term.starts_with("tmux") {
            Some(Multiplexer::Tmux)
        } else if self.has("STY") || term.starts_with("screen") {
            Some(Multiplexer::Screen)
        } else {
            None
        }
    }

    fn is_modern(&self) -> bool {
        let term = self.text("TERM");
        let by_term = MODERN_TERMS.iter().any(|known| term.starts_with(known));
        let by_program = matches!(self.program(), "iTerm.app" | "WezTerm" | "ghostty");
        by_term || by_program || self.has("KITTY_WINDOW_ID")
    }

    fn colors(&self) -> ColorDepth {
        let term = self.text("TERM");
        if self.has("NO_COLOR") {
            return ColorDepth::None;
        }
        if term == "linux" {
            return ColorDepth::Ansi16;
        }
        let many = term.contains("256color") || self.program() == "Apple_Terminal";
        // screen passes the variables of the terminal on, but not its 24-bit colours.
        if self.multiplexer() == Some(Multiplexer::Screen) {
            return match many {
                true => ColorDepth::Ansi256,
                false => ColorDepth::Ansi16,
            };
        }
        let colorterm = self.text("COLORTERM").to_ascii_lowercase();
        let announced = matches!(colorterm.as_str(), "truecolor" | "24bit");
        if announced || term.contains("direct") || self.is_modern() || self.has("WT_SESSION") {
            ColorDepth::TrueColor
        } else if many {
            ColorDepth::Ansi256
        } else {
            ColorDepth::Ansi16
        }
    }

    fn reflow(&self) -> RowReflow {
        let term = self.text("TERM");
        if self.multiplexer().is_some() {
            RowReflow::AllRows
        } else if matches!(self.program(), "vscode" | "Hyper") {
            RowReflow::AllRowsMoveCursor
        } else if self.has("XTERM_VERSION") || term == "linux" || term.starts_with("st-") {
            RowReflow::NoRow
        } else {
            RowReflow::AllRows
        }
    }

    /// The first of these variables that is set names the locale. Without one, most terminals still use UTF-8.
    fn unicode(&self) -> bool {
        let names = ["LC_ALL", "LC_CTYPE", "LANG"];
        match names.into_iter().find(|name| self.has(name)) {
            Some(name) => {
                let locale = self.text(name).to_ascii_lowercase();
                locale.contains("utf-8") || locale.contains("utf8")
            }
            None => self.text("TERM") != "linux",
        }
    }

    /// Other terminals would show the progress as the text of a notification.
    fn shows_progress(&self) -> bool {
        self.has("WT_SESSION") || self.has("ConEmuPID") || self.program() == "ghostty"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> TerminalCapabilities {
        let owned = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        TerminalCapabilities::of(&owned.collect::<Vec<_>>(), true)
    }

    #[track_caller]
    fn colors(variables: &[(&str, &str)], expect: ColorDepth) {
        assert_eq!(of(variables).colors, expect, "{variables:?}");
    }

    #[test]
    fn colors_follow_the_announcements() {
        let xterm = ("TERM", "xterm-256color");
        colors(&[], ColorDepth::None);
        colors(
            &[("TERM", "dumb"), ("COLORTERM", "truecolor")],
            ColorDepth::None,
        );
        colors(&[("TERM", "xterm")], ColorDepth::Ansi16);
        colors(
            &[("TERM", "linux"), ("COLORTERM", "truecolor")],
            ColorDepth::Ansi16,
        );
        colors(&[xterm], ColorDepth::Ansi256);
        colors(&[xterm, ("COLORTERM", "truecolor")], ColorDepth::TrueColor);
        colors(&[xterm, ("COLORTERM", "24BIT")], ColorDepth::TrueColor);
        colors(&[xterm, ("COLORTERM", "yes")], ColorDepth::Ansi256);
        colors(&[xterm, ("WT_SESSION", "1")], ColorDepth::TrueColor);
        colors(&[("TERM", "xterm-kitty")], ColorDepth::TrueColor);
        colors(&[("TERM", "xterm-direct")], ColorDepth::TrueColor);
        colors(
            &[("TERM", "xterm-kitty"), ("NO_COLOR", "1")],
            ColorDepth::None,
        );
        colors(&[xterm, ("NO_COLOR", "")], ColorDepth::Ansi256);
        let screen = ("TERM", "screen-256color");
        colors(&[screen, ("COLORTERM", "truecolor")], ColorDepth::Ansi256);
        colors(
            &[
                screen,
                ("TMUX", "/tmp/tmux,1,0"),
                ("COLORTERM", "truecolor"),
            ],
            ColorDepth::TrueColor,
        );
    }

    #[test]
    fn a_pipe_gets_no_escape_sequences() {
        let environment = [("TERM".to_owned(), "xterm-kitty".to_owned())];
        let pipe = TerminalCapabilities::of(&environment, false);
        assert!(!pipe.escape_sequences && !pipe.synchronized && !pipe.clipboard);
        assert_eq!(pipe.colors, ColorDepth::None);
    }

    #[track_caller]
    fn reflow(variables: &[(&str, &str)], expect: RowReflow) {
        assert_eq!(of(variables).reflow, expect, "{variables:?}");
    }

    #[test]
    fn the_innermost_terminal_wraps_the_rows() {
        reflow(&[("TERM", "xterm-256color")], RowReflow::AllRows);
        reflow(&[("XTERM_VERSION", "XTerm(390)")], RowReflow::NoRow);
        reflow(&[("TERM", "linux")], RowReflow::NoRow);
        reflow(&[("TERM_PROGRAM", "vscode")], RowReflow::AllRowsMoveCursor);
        let inside = [("XTERM_VERSION", "XTerm(390)"), ("TMUX", "/tmp/tmux,1,0")];
        reflow(&inside, RowReflow::AllRows);
    }

    #[test]
    fn tmux_and_remote_machines_report_a_resize_late() {
        let pause = |variables: &[(&str, &str)]| of(variables).resize_pause;
        assert_eq!(pause(&[("TERM", "xterm")]), RESIZE_PAUSE);
        assert_eq!(pause(&[("TERM", "tmux-256color")]), LATE_RESIZE_PAUSE);
        let remote = of(&[("TERM", "xterm"), ("SSH_TTY", "/dev/pts/1")]);
        assert_eq!(
            (remote.resize_pause, remote.is_remote),
            (LATE_RESIZE_PAUSE, true)
        );
    }

    #[track_caller]
    fn unicode(variables: &[(&str, &str)], expect: bool) {
        assert_eq!(of(variables).unicode, expect, "{variables:?}");
    }

    #[test]
    fn the_locale_decides_about_unicode() {
        unicode(&[("LANG", "de_DE.UTF-8")], true);
        unicode(&[("LANG", "C.utf8")], true);
        unicode(&[("LANG", "C")], false);
        unicode(&[("LC_ALL", "POSIX"), ("LANG", "de_DE.UTF-8")], false);
        unicode(&[("LC_ALL", ""), ("LC_CTYPE", "UTF-8")], true);
        unicode(&[], true);
        unicode(&[("TERM", "linux")], false);
    }

    #[test]
    fn multiplexers_are_recognized_also_on_remote_machines() {
        let of = |variables: &[(&str, &str)]| of(variables).multiplexer;
        assert_eq!(of(&[("TERM", "tmux-256color")]), Some(Multiplexer::Tmux));
        assert_eq!(
            of(&[("TERM", "screen"), ("TMUX", "x")]),
            Some(Multiplexer::Tmux)
        );
        assert_eq!(
            of(&[("TERM", "screen.xterm-256color")]),
            Some(Multiplexer::Screen)
        );
        assert_eq!(of(&[("TERM", "xterm")]), None);
    }

    #[test]
    fn keys_and_progress_need_known_terminals() {
        let kitty = of(&[("TERM", "xterm-kitty")]);
        assert!(kitty.keyboard_enhancement && !kitty.progress);
        let windows = of(&[("TERM", "xterm-256color"), ("WT_SESSION", "1")]);
        assert!(!windows.keyboard_enhancement && windows.progress);
        let iterm = of(&[("TERM", "xterm-256color"), ("TERM_PROGRAM", "iTerm.app")]);
        assert!(iterm.keyboard_enhancement && !iterm.progress);
    }
}
