//! Notifications of the user's terminal: the bell, or a desktop notification by the escape sequence that the terminal
//! supports.
//!
//! ```
//! use std::time::Duration;
//!
//! use windlass::core::event::Event;
//! use windlass::notifications::{TerminalAlert, TerminalSetting};
//! use windlass::settings::Settings;
//!
//! let dir = tempfile::tempdir()?;
//! let alert: Option<TerminalAlert> = TerminalAlert::of(&Settings::none(dir.path()));
//! let event = r#"{"v":2,"seq":7,"at":"2026-11-15T00:00:00.000Z","session":"s1","trace":"t","kind":"session_closed","data":{}}"#;
//! let event: Event = serde_json::from_str(event)?;
//! assert_eq!(alert.and_then(|alert| alert.text(&event, Duration::from_secs(60))), None);
//! assert_eq!(TerminalSetting::default(), TerminalSetting::Auto);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::time::Duration;

use strum::{Display, EnumString, VariantNames};
use windlass_core::event::Event;

use super::{NotificationKind, summary};
use crate::environment::Environment;
use crate::settings::Settings;
use windlass_text::sanitize::plain;

/// Runs that ask or end sooner do not notify: the user still looks at the terminal.
const LEAST_WAIT: Duration = Duration::from_secs(10);
const TITLE: &str = "windlass";
const ESC: &str = "\x1b";
/// Ends an escape sequence.
const ST: &str = "\x1b\\";
const BELL: &str = "\x07";

/// The setting `notify.terminal`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Display, EnumString, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum TerminalSetting {
    /// A bell, and a desktop notification if the terminal supports it.
    #[default]
    Auto,
    Bell,
    Off,
}

/// The escape sequences for desktop notifications.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sequence {
    /// iTerm2, Windows Terminal, WezTerm, Ghostty and others.
    Osc9,
    /// urxvt and foot.
    Osc777,
    /// kitty.
    Osc99,
}

/// The notifications that a terminal supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalAlert {
    sequence: Option<Sequence>,
    /// tmux passes escape sequences on only if they are wrapped.
    in_tmux: bool,
}

impl TerminalAlert {
    /// The notifications by the settings and the environment; `None` if they are off, in CI, and on a terminal without
    /// escape sequences. The caller checks that there is a terminal.
    #[must_use]
    pub fn of(settings: &Settings) -> Option<Self> {
        let setting = settings.layers.text("notify.terminal");
        let setting = setting
            .and_then(|word| word.parse().ok())
            .unwrap_or_default();
        Self::choose(setting, &settings.environment)
    }

    fn choose(setting: TerminalSetting, environment: &Environment) -> Option<Self> {
        let filled = |name: &str| environment.text(name).filter(|value| !value.is_empty());
        let term = filled("TERM").unwrap_or_default();
        if setting == TerminalSetting::Off || filled("CI").is_some() || term == "dumb" {
            return None;
        }
        let program = filled("TERM_PROGRAM").unwrap_or_default();
        // Inside tmux, TERM and TERM_PROGRAM name tmux; these variables still name the terminal around it.
        let around = filled("LC_TERMINAL").unwrap_or_default();
        let sequence = if filled("KITTY_WINDOW_ID").is_some() || term == "xterm-kitty" {
            Some(Sequence::Osc99)
        } else if ["rxvt", "foot"].iter().any(|name| term.starts_with(name)) {
            Some(Sequence::Osc777)
        } else if matches!(
            program.as_str(),
            "iTerm.app" | "WezTerm" | "ghostty" | "WarpTerminal"
        ) || around == "iTerm2"
            || ["WT_SESSION", "ConEmuPID"]
                .iter()
                .any(|name| filled(name).is_some())
        {
            Some(Sequence::Osc9)
        } else {
            None
        };
        Some(Self {
            sequence: sequence.filter(|_| setting == TerminalSetting::Auto),
            in_tmux: filled("TMUX").is_some(),
        })
    }

    /// The bytes for the terminal when this event happens, if it notifies. `waited` is the time since the user started the run
    /// or typed something.
    #[must_use]
    pub fn text(&self, event: &Event, waited: Duration) -> Option<String> {
        let kind = NotificationKind::of(event)?;
        if kind == NotificationKind::Landed || waited <= LEAST_WAIT {
            return None;
        }
        Some(self.bytes(&summary(&event.kind)))
    }

    fn bytes(&self, summary: &str) -> String {
        // No character of the text may end the sequence or start another one.
        let text = plain(summary).replace(['\n', '\t'], " ");
        let sequence = match self.sequence {
            None => String::new(),
            Some(Sequence::Osc9) => format!("{ESC}]9;{TITLE}: {text}{ST}"),
            Some(Sequence::Osc777) => format!("{ESC}]777;notify;{TITLE};{text}{ST}"),
            Some(Sequence::Osc99) => {
                format!(
                    "{ESC}]99;i={TITLE}:d=0;{TITLE}{ST}{ESC}]99;i={TITLE}:d=1:p=body;{text}{ST}"
                )
            }
        };
        let sequence = match self.in_tmux && !sequence.is_empty() {
            true => format!("{ESC}Ptmux;{}{ST}", sequence.replace(ESC, "\x1b\x1b")),
            false => sequence,
        };
        format!("{BELL}{sequence}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(setting: TerminalSetting, variables: &[(&str, &str)], expect: Option<&str>) {
        let mut environment = Environment::empty();
        for (name, value) in variables {
            environment = environment.with(name, value);
        }
        let alert = TerminalAlert::choose(setting, &environment);
        let bytes = alert.map(|alert| alert.bytes("done; \x1b]0;x\x07\u{9c}now\n!"));
        assert_eq!(bytes.as_deref(), expect, "{setting} {variables:?}");
    }

    #[test]
    fn each_terminal_gets_its_sequence() {
        use TerminalSetting::{Auto, Bell, Off};
        let osc9 = "\x07\x1b]9;windlass: done; ]0;xnow !\x1b\\";
        let osc777 = "\x07\x1b]777;notify;windlass;done; ]0;xnow !\x1b\\";
        let osc99 = "\x07\x1b]99;i=windlass:d=0;windlass\x1b\\\x1b]99;i=windlass:d=1:p=body;done; ]0;xnow !\x1b\\";
        check(Auto, &[("TERM_PROGRAM", "iTerm.app")], Some(osc9));
        check(
            Auto,
            &[("WT_SESSION", "1"), ("TERM", "xterm-256color")],
            Some(osc9),
        );
        check(Auto, &[("TERM", "rxvt-unicode-256color")], Some(osc777));
        check(Auto, &[("TERM", "foot")], Some(osc777));
        check(Auto, &[("TERM", "xterm-kitty")], Some(osc99));
        check(
            Auto,
            &[("TERM", "xterm-256color"), ("KITTY_WINDOW_ID", "1")],
            Some(osc99),
        );
        check(Auto, &[("TERM", "xterm-256color")], Some("\x07"));
        check(Bell, &[("TERM", "xterm-kitty")], Some("\x07"));
        check(Off, &[("TERM", "xterm-kitty")], None);
        check(
            Auto,
            &[("TERM", "dumb"), ("TERM_PROGRAM", "iTerm.app")],
            None,
        );
        check(Auto, &[("TERM", "xterm-kitty"), ("CI", "true")], None);
    }

    #[test]
    fn tmux_gets_the_sequence_wrapped_and_the_bell_alone() {
        let tmux = [
            ("TMUX", "/tmp/tmux,1,0"),
            ("TERM", "tmux-256color"),
            ("TERM_PROGRAM", "tmux"),
        ];
        check(TerminalSetting::Auto, &tmux, Some("\x07"));
        let around = [tmux.as_slice(), &[("LC_TERMINAL", "iTerm2")]].concat();
        check(
            TerminalSetting::Auto,
            &around,
            Some("\x07\x1bPtmux;\x1b\x1b]9;windlass: done; ]0;xnow !\x1b\x1b\\\x1b\\"),
        );
    }
}
