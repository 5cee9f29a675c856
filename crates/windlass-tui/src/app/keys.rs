//! The meaning of keys outside of the composer.

use std::io;
use std::time::{Duration, Instant};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::panels::Panel;
use super::{App, now_ms};
use crate::composer::ComposerOutcome;
use crate::screen::DisplayMode;
use crate::terminal::input::{PastedText, TerminalEvents};

/// Two presses of the same key within this time belong together.
const TWICE: Duration = Duration::from_millis(800);

/// A key of the interface, for the help.
pub(crate) struct AppKey {
    pub(crate) keys: &'static str,
    pub(crate) help: &'static str,
}

/// The keys of the interface besides those of the composer.
pub(crate) const APP_KEYS: &[AppKey] = &[
    AppKey {
        keys: "Esc",
        help: "stop the run in progress",
    },
    AppKey {
        keys: "Esc Esc",
        help: "choose an earlier point and go back to it",
    },
    AppKey {
        keys: "Tab",
        help: "while a run works: queue the prompt for after it, or send it to the run",
    },
    AppKey {
        keys: "Shift-Tab",
        help: "change the approval mode: plan, ask, edit, auto",
    },
    AppKey {
        keys: "Alt-1 … Alt-4, PgUp, PgDn",
        help: "full screen: choose the pane, scroll",
    },
    AppKey {
        keys: "Alt-M",
        help: "full screen: select with the terminal instead of here",
    },
    AppKey {
        keys: "Ctrl-T",
        help: "switch between inline and full screen",
    },
    AppKey {
        keys: "Ctrl-L",
        help: "print the conversation again",
    },
    AppKey {
        keys: "Ctrl-Z",
        help: "stop windlass until `fg`",
    },
    AppKey {
        keys: "Ctrl-C Ctrl-C",
        help: "quit",
    },
];

impl App {
    /// Applies a key.
    pub(super) async fn key(
        &mut self,
        key: KeyEvent,
        input: &mut Option<TerminalEvents>,
    ) -> io::Result<()> {
        let now = now_ms();
        self.last_key_ms = now;
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('z') if control => return self.suspend(input).await,
            KeyCode::Char('m') if key.modifiers.contains(KeyModifiers::ALT) => {
                if let Some(full) = &mut self.full {
                    full.mouse = !full.mouse;
                    self.screen.set_mouse(full.mouse);
                    return Ok(());
                }
            }
            KeyCode::Char('t') if control => return self.toggle_full_screen(),
            KeyCode::Char('l') if control => return self.print_again(),
            _ => {}
        }
        if let Some(full) = &mut self.full
            && full.key(key)
        {
            return Ok(());
        }
        if self.panel_key(key, now) {
            return Ok(());
        }
        match key.code {
            KeyCode::BackTab => self.next_mode(),
            KeyCode::Tab if self.can_queue() => self.queues = !self.queues,
            KeyCode::Esc if !self.composer.has_popup() => self.escape(key),
            KeyCode::Enter if self.is_paused() && self.composer.is_empty() => self.resume_paused(),
            _ => return self.composer_key(key, input).await,
        }
        Ok(())
    }

    fn is_paused(&self) -> bool {
        let run = self.conversation.run.as_ref();
        run.is_some_and(|run| run.paused) && self.conversation.asks.is_empty()
    }

    /// Whether Tab decides about the prompt instead of completing a word.
    fn can_queue(&self) -> bool {
        self.conversation.run.is_some() && !self.composer.has_popup()
    }

    fn escape(&mut self, key: KeyEvent) {
        // In vi mode, Esc leaves the insert mode first.
        if self.composer.key(key) == ComposerOutcome::Handled {
            return;
        }
        let twice = self.last_esc.is_some_and(|last| last.elapsed() < TWICE);
        self.last_esc = Some(Instant::now());
        let runs = self
            .conversation
            .run
            .as_ref()
            .is_some_and(|run| !run.paused);
        if runs {
            // Several presses stop the run; they do not go back, too.
            self.last_esc = None;
            self.interrupt();
        } else if twice && self.composer.is_empty() {
            self.last_esc = None;
            self.choose_point();
        }
    }

    async fn composer_key(
        &mut self,
        key: KeyEvent,
        input: &mut Option<TerminalEvents>,
    ) -> io::Result<()> {
        match self.composer.key(key) {
            ComposerOutcome::Ignored | ComposerOutcome::Handled => {}
            ComposerOutcome::Submit(submission) => self.submit(submission),
            ComposerOutcome::OpenEditor(text) => self.edit_outside(text, input).await?,
            ComposerOutcome::Cleared => {
                self.notice = Some(super::reports::remark("cleared; ↑ brings the text back"));
            }
            ComposerOutcome::Interrupt => {
                let twice = self
                    .last_interrupt
                    .is_some_and(|last| last.elapsed() < TWICE * 2);
                if twice {
                    self.quit = true;
                } else {
                    self.last_interrupt = Some(Instant::now());
                    let text = match self.conversation.run.is_some() {
                        true => {
                            "press Ctrl-C again to quit; the run pauses and `windlass resume` continues it · Esc stops it"
                        }
                        false => "press Ctrl-C again to quit",
                    };
                    self.notice = Some(super::reports::remark(text));
                }
            }
            ComposerOutcome::Quit => self.quit = true,
        }
        Ok(())
    }

    pub(super) fn paste(&mut self, pasted: PastedText) {
        self.last_key_ms = now_ms();
        if pasted.omitted > 0 {
            self.warn(format!(
                "the paste was cut: {} bytes are missing; put it into a file and name it with @",
                pasted.omitted
            ));
        }
        match &mut self.panel {
            Some(Panel::Picker(picker)) => return picker.paste(pasted.text),
            Some(Panel::Key(field)) => return field.paste(&pasted.text),
            Some(Panel::Ask(panel)) if panel.is_armed(now_ms()) => {
                if panel.paste(&pasted.text) {
                    return;
                }
            }
            Some(Panel::Ask(_)) | None => {}
        }
        let _ = self.composer.paste(pasted.text);
    }

    /// Stops the process until the shell continues it.
    async fn suspend(&mut self, input: &mut Option<TerminalEvents>) -> io::Result<()> {
        self.hide_full_screen()?;
        *input = None;
        self.screen.suspend()?;
        // SIGTSTP takes effect before this returns, unless the shell has no job control.
        tokio::time::sleep(Duration::from_millis(100)).await;
        self.screen.resume()?;
        *input = Some(TerminalEvents::new());
        Ok(())
    }

    /// Edits the text of the composer in the user's editor.
    async fn edit_outside(
        &mut self,
        text: String,
        input: &mut Option<TerminalEvents>,
    ) -> io::Result<()> {
        self.hide_full_screen()?;
        *input = None;
        self.screen.leave()?;
        let edited = crate::editor::edit(&text, &self.options.environment).await;
        self.screen.resume()?;
        *input = Some(TerminalEvents::new());
        match edited {
            Ok(text) => self.composer.set_text(&text),
            Err(error) => self.warn(error),
        }
        Ok(())
    }

    fn toggle_full_screen(&mut self) -> io::Result<()> {
        match self.full.is_some() {
            true => self.hide_full_screen(),
            false => {
                self.show_full_screen();
                Ok(())
            }
        }
    }

    /// Prints the kept conversation again below what is on the screen, from the log.
    fn print_again(&mut self) -> io::Result<()> {
        if self.full.is_some() {
            return Ok(());
        }
        let lines: Vec<_> = self
            .conversation
            .blocks()
            .flat_map(|block| block.lines.iter().cloned())
            .collect();
        self.screen.reprint(lines)
    }

    /// Shows the panes of the full screen.
    pub(super) fn show_full_screen(&mut self) {
        if self.full.is_some() {
            return;
        }
        match crate::full_screen::FullScreen::open(&mut self.screen) {
            Ok(full) => self.full = Some(full),
            Err(err) => self.warn(format!("the full screen cannot be shown: {err}")),
        }
    }

    pub(super) fn hide_full_screen(&mut self) -> io::Result<()> {
        if self.full.take().is_some() {
            self.screen.leave_full_screen()?;
        }
        Ok(())
    }

    /// Shows the state in another mode.
    pub(super) fn set_display(&mut self, mode: DisplayMode) -> io::Result<()> {
        match mode {
            DisplayMode::Full => self.show_full_screen(),
            mode => {
                self.hide_full_screen()?;
                self.screen.mode = mode;
            }
        }
        Ok(())
    }
}
