//! The screen in its three display modes: inline in the scrollback of the terminal, full screen, and plain lines.

use std::io::{self, Stdout, Write};
use std::time::Instant;

use windlass_text::{ColorTheme, LineEncoder, StyledLine, Tone};

use crate::conversation::{BlockKind, EventBlock};
use crate::terminal::capabilities::TerminalCapabilities;
use crate::terminal::notify::{TaskProgress, TerminalWriter};
use crate::terminal::session::{RawTerminal, TerminalModes, TerminalRestorer};
use crate::terminal::{InlineOptions, InlineScreen, LiveArea, ScreenSize};

/// The way in which the state is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DisplayMode {
    /// Finished lines go into the scrollback; a small area below them is live.
    #[default]
    Inline,
    /// Panes on the alternate screen.
    Full,
    /// Labelled lines for screen readers and simple terminals. Nothing moves except the line of the composer.
    Plain,
}

impl DisplayMode {
    /// The name of the mode, as in the settings.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Full => "full",
            Self::Plain => "plain",
        }
    }

    /// The mode of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Inline, Self::Full, Self::Plain]
            .into_iter()
            .find(|mode| mode.word() == name)
    }
}

/// Options of the screen.
pub(crate) struct ScreenOptions {
    pub(crate) theme: ColorTheme,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) display: DisplayMode,
}

/// The terminal of the user.
pub(crate) struct Screen {
    terminal: RawTerminal,
    inline: InlineScreen<Stdout>,
    pub(crate) mode: DisplayMode,
    capabilities: TerminalCapabilities,
    writer: TerminalWriter,
    theme: ColorTheme,
    /// The time at which the size is stable again after a resize.
    settles_at: Option<Instant>,
    progress: TaskProgress,
    /// Blocks that were finished during the full screen, for the scrollback.
    held: Vec<EventBlock>,
}

impl Screen {
    pub(crate) fn open(options: ScreenOptions) -> io::Result<Self> {
        let capabilities = TerminalCapabilities::of(&options.environment, true);
        let modes = TerminalModes {
            focus_events: true,
            keyboard_enhancement: capabilities.keyboard_enhancement,
        };
        let terminal = RawTerminal::enter(io::stdin(), io::stdout(), modes)?;
        let size = terminal.size();
        let inline = inline_screen(&options.theme, &capabilities, size);
        Ok(Self {
            terminal,
            inline,
            mode: match options.display {
                DisplayMode::Plain => DisplayMode::Plain,
                _ => DisplayMode::Inline,
            },
            writer: TerminalWriter::new(&capabilities),
            capabilities,
            theme: options.theme,
            settles_at: None,
            progress: TaskProgress::Hidden,
            held: Vec::new(),
        })
    }

    /// Restores the terminal from a panic hook or a signal task.
    pub(crate) fn restorer(&self) -> TerminalRestorer {
        self.terminal.restorer()
    }

    pub(crate) fn size(&self) -> ScreenSize {
        self.terminal.size()
    }

    /// The columns that rows of the live area may have.
    pub(crate) fn columns(&self) -> usize {
        self.inline.live_columns()
    }

    pub(crate) fn theme(&self) -> &ColorTheme {
        &self.theme
    }

    /// Whether times in the live area change while nothing else happens.
    pub(crate) fn shows_time(&self) -> bool {
        self.mode != DisplayMode::Plain
    }

    /// Takes over the size of the terminal. The next draw waits until it is stable.
    pub(crate) fn resize(&mut self) {
        self.inline.resize(self.terminal.size());
        if self.inline.is_settling() {
            self.settles_at = Some(Instant::now() + self.capabilities.resize_pause);
        }
    }

    /// The time of the next draw after a resize.
    pub(crate) fn settles_at(&self) -> Option<Instant> {
        self.settles_at
    }

    /// Uses another theme for what is drawn from now on.
    pub(crate) fn set_theme(&mut self, theme: ColorTheme) -> io::Result<()> {
        self.inline.clear()?;
        self.inline = inline_screen(&theme, &self.capabilities, self.terminal.size());
        self.theme = theme;
        Ok(())
    }

    /// Keeps blocks for the scrollback while the full screen is shown.
    pub(crate) fn hold(&mut self, blocks: Vec<EventBlock>) {
        self.held.extend(blocks);
    }

    /// Prints finished blocks above the live area with the next [`Self::draw`].
    pub(crate) fn commit(&mut self, blocks: Vec<EventBlock>) -> io::Result<()> {
        let held = std::mem::take(&mut self.held);
        for block in held.into_iter().chain(blocks) {
            let lines = match self.mode {
                DisplayMode::Plain => labelled(block),
                _ => block.lines,
            };
            self.inline.commit(lines)?;
        }
        Ok(())
    }

    /// Prints lines again, for example after the user cleared the screen.
    pub(crate) fn reprint(&mut self, lines: Vec<StyledLine>) -> io::Result<()> {
        self.inline.reprint(lines)
    }

    pub(crate) fn draw(&mut self, live: &LiveArea) -> io::Result<()> {
        if self.terminal.size() != self.inline.size() {
            self.resize();
        }
        if self.settles_at.is_some_and(|at| Instant::now() >= at) {
            self.settles_at = None;
            self.inline.settle();
        }
        self.inline.draw(live)
    }

    pub(crate) fn enter_full_screen(&mut self, mouse: bool) -> io::Result<()> {
        self.inline.clear()?;
        self.terminal.enter_full_screen(mouse)
    }

    pub(crate) fn leave_full_screen(&mut self) -> io::Result<()> {
        self.terminal.leave_full_screen()?;
        self.resize();
        Ok(())
    }

    /// Lets the terminal report the mouse in the full screen, or select text itself.
    pub(crate) fn set_mouse(&mut self, reported: bool) {
        self.write(match reported {
            true => b"\x1b[?1002h\x1b[?1006h",
            false => b"\x1b[?1006l\x1b[?1002l",
        });
    }

    /// Restores the terminal for another program. [`Self::resume`] ends it.
    pub(crate) fn leave(&mut self) -> io::Result<()> {
        self.inline.clear()?;
        self.terminal.leave()
    }

    pub(crate) fn resume(&mut self) -> io::Result<()> {
        self.terminal.resume()?;
        self.resize();
        Ok(())
    }

    /// Stops the process as Ctrl-Z does in other programs.
    pub(crate) fn suspend(&mut self) -> io::Result<()> {
        self.inline.clear()?;
        self.terminal.suspend()
    }

    /// Removes the live area and restores the terminal.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.inline.clear()?;
        self.set_progress(TaskProgress::Hidden);
        self.write(&self.writer.title(""));
        self.terminal.leave()
    }

    /// Writes the bell or a notification of the terminal.
    pub(crate) fn alert(&mut self, sequence: &str) {
        self.write(sequence.as_bytes());
    }

    /// Sets the title of the window.
    pub(crate) fn set_title(&mut self, title: &str) {
        self.write(&self.writer.title(title));
    }

    /// Shows in the task bar whether a run works or waits for the user.
    pub(crate) fn set_progress(&mut self, progress: TaskProgress) {
        if progress != self.progress {
            self.progress = progress;
            self.write(&self.writer.progress(progress));
        }
    }

    /// Copies a text to the clipboard of the user's machine. Returns whether the terminal can do that.
    pub(crate) fn copy(&mut self, text: &str) -> bool {
        let bytes = self.writer.copy(text);
        if let Some(bytes) = &bytes {
            self.write(bytes);
        }
        bytes.is_some()
    }

    /// Writes a control sequence. A terminal that is gone is found by the next draw.
    fn write(&mut self, bytes: &[u8]) {
        let out = self.inline.output();
        let _ = out.write_all(bytes).and_then(|()| out.flush());
    }
}

fn inline_screen(
    theme: &ColorTheme,
    capabilities: &TerminalCapabilities,
    size: ScreenSize,
) -> InlineScreen<Stdout> {
    let (theme, depth) = (theme.clone(), capabilities.colors);
    let encode = move |line: &StyledLine, out: &mut String| {
        LineEncoder::new(&theme, depth).line(out, line);
    };
    let options = InlineOptions {
        reflow: capabilities.reflow,
        synchronized: capabilities.synchronized,
        ..InlineOptions::new(Box::new(encode))
    };
    InlineScreen::new(io::stdout(), size, options)
}

/// The lines of a block with a label that says who speaks, for screen readers.
fn labelled(block: EventBlock) -> Vec<StyledLine> {
    let label = match block.kind {
        BlockKind::Prompt => "You:",
        BlockKind::Answer => "Agent:",
        BlockKind::Call => "Call:",
        BlockKind::Check => "Checks:",
        BlockKind::Landing => "Result:",
        BlockKind::Note => "Note:",
    };
    let mut lines = block.lines;
    if let Some(first) = lines.iter_mut().find(|line| !line.is_empty()) {
        let mut labelled = StyledLine::of(label, Tone::Muted).with_indent(first.indent);
        labelled.extend(first);
        *first = labelled;
    }
    lines
}
