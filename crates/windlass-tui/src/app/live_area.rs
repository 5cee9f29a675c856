//! The rows below the finished lines: the end of the answer, running calls, checks, the queue, the composer or a panel, and
//! the status line.

use windlass::transcript::first_line;
use windlass_text::{StyledLine, Tone, sanitize, truncate, wrap_columns};

use super::App;
use super::panels::Panel;
use crate::composer::{Composer, InputMode};
use crate::conversation::Conversation;
use crate::screen::DisplayMode;
use crate::status_line::{StatusFacts, status_line};
use crate::terminal::LiveArea;

/// Rows of open parts: the end of the answer and running calls.
const OPEN_ROWS: std::ops::RangeInclusive<usize> = 2..=12;
/// Rows of the composer.
const COMPOSER_ROWS: usize = 10;
/// Queued prompts that are shown.
const QUEUE_ROWS: usize = 3;
/// Rows of a notice below the composer.
const NOTICE_ROWS: usize = 4;
/// Rows of a completion list.
const POPUP_ROWS: usize = 8;

/// The state that the full screen shows.
pub(crate) struct FullView<'a> {
    pub(crate) conversation: &'a Conversation,
    pub(crate) composer: &'a mut Composer,
    pub(super) panel: Option<&'a mut Panel>,
    pub(crate) facts: &'a StatusFacts,
    pub(crate) notice: Option<&'a StyledLine>,
    pub(crate) now_ms: i64,
}

/// The rows of the composer or of a panel, and the position of the cursor.
pub(crate) struct InputRows {
    pub(crate) rows: Vec<StyledLine>,
    pub(crate) cursor: Option<(usize, usize)>,
}

/// The composer with its list, or the panel in its place.
fn input_rows(
    composer: &mut Composer,
    panel: Option<&mut Panel>,
    columns: usize,
    max_rows: usize,
) -> InputRows {
    if let Some(panel) = panel {
        let (rows, cursor) = panel.rows(columns, max_rows);
        let mut shown = Vec::new();
        let mut at = None;
        for (index, row) in rows.iter().enumerate() {
            if let Some((line, column)) = cursor
                && line == index
            {
                at = Some((shown.len(), column));
            }
            shown.extend(wrap_columns(row, columns));
        }
        return InputRows {
            rows: shown,
            cursor: at,
        };
    }
    let view = composer.view(columns, COMPOSER_ROWS.min(max_rows.max(1)));
    let mut rows = view.rows;
    if let Some(indicator) = view.indicator {
        rows.push(StyledLine::of(format!("   {indicator}"), Tone::Muted));
    }
    rows.extend(composer.popup_view(columns, POPUP_ROWS.min(max_rows)));
    InputRows {
        rows,
        cursor: Some(view.cursor),
    }
}

/// The prompts that wait.
fn queue_rows(conversation: &Conversation, columns: usize) -> Vec<StyledLine> {
    let mut rows = Vec::new();
    let waiting = &conversation.queue;
    for prompt in waiting.iter().take(QUEUE_ROWS) {
        let when = if prompt.steer { "next step" } else { "queued" };
        let text = first_line(&sanitize::one_line(&prompt.text), 200);
        let row = StyledLine::of(format!(" ↳ {when}: "), Tone::Muted).with(text, Tone::Text);
        rows.push(truncate(&row, columns));
    }
    if waiting.len() > QUEUE_ROWS {
        let more = waiting.len() - QUEUE_ROWS;
        rows.push(StyledLine::of(
            format!("   … {more} more; /queue lists them"),
            Tone::Muted,
        ));
    }
    rows
}

/// The line that says what the text in the composer will do, if it is no prompt.
fn mode_row(composer: &Composer, queues: bool, runs: bool) -> Option<StyledLine> {
    let (text, tone) = match composer.input_mode() {
        InputMode::Shell => ("runs in your own shell, without the sandbox", Tone::Warn),
        InputMode::Note => ("is added to the notes of the session", Tone::Accent),
        InputMode::Command => return None,
        InputMode::Prompt if runs && queues => (
            "enter queues it for after this run · tab sends it to the run",
            Tone::Accent,
        ),
        InputMode::Prompt if runs && !composer.is_empty() => (
            "enter sends it to the run at its next step · tab queues it",
            Tone::Muted,
        ),
        InputMode::Prompt => return None,
    };
    Some(StyledLine::of(format!("   {text}"), tone))
}

impl App {
    /// The live area of the inline and the plain mode.
    pub(super) fn live_area(&mut self, now_ms: i64) -> LiveArea {
        let columns = self.screen.columns().max(1);
        let height = self.screen.size().rows;
        let plain = self.screen.mode == DisplayMode::Plain;
        let runs = self
            .conversation
            .run
            .as_ref()
            .is_some_and(|run| !run.paused);
        let mode = mode_row(&self.composer, self.queues, runs);
        let input = input_rows(
            &mut self.composer,
            self.panel.as_mut(),
            columns,
            height.saturating_sub(4),
        );
        if plain {
            return LiveArea {
                rows: input.rows,
                cursor: input.cursor,
            };
        }
        let queue = queue_rows(&self.conversation, columns);
        let checks = &self.conversation.checks;
        let judging = runs && !checks.rows.is_empty();
        // A notice is too important to be cut: it says what the user can do.
        let notice: Vec<StyledLine> = match &self.notice {
            Some(notice) => wrap_columns(notice, columns)
                .into_iter()
                .take(NOTICE_ROWS)
                .collect(),
            None => Vec::new(),
        };
        let below = 2 + notice.len() + usize::from(mode.is_some());
        let fixed = input.rows.len() + queue.len() + below + 1 + usize::from(judging);
        let free = height.saturating_sub(fixed + 1);
        let limit = (height / 3)
            .clamp(*OPEN_ROWS.start(), *OPEN_ROWS.end())
            .min(free);
        let mut rows = open_rows(&self.conversation, now_ms, columns, limit);
        if judging {
            rows.push(truncate(&checks.line(), columns));
        }
        rows.extend(queue);
        // Space between the conversation and the composer.
        rows.push(StyledLine::default());
        rows.push(StyledLine::of("─".repeat(columns), Tone::Line));
        let cursor = input.cursor.map(|(row, column)| (rows.len() + row, column));
        rows.extend(input.rows);
        rows.extend(mode.map(|row| truncate(&row, columns)));
        rows.extend(notice);
        rows.push(status_line(
            &self.conversation,
            &self.facts,
            now_ms,
            columns,
        ));
        LiveArea { rows, cursor }
    }
}

/// The last rows of the open parts.
fn open_rows(
    conversation: &Conversation,
    now_ms: i64,
    columns: usize,
    limit: usize,
) -> Vec<StyledLine> {
    let lines = conversation.open_lines(now_ms);
    let mut rows: Vec<StyledLine> = Vec::new();
    for line in lines.iter().rev() {
        let wrapped = wrap_columns(line, columns);
        for row in wrapped.into_iter().rev() {
            if rows.len() == limit {
                rows.reverse();
                return rows;
            }
            rows.push(row);
        }
    }
    rows.reverse();
    rows
}

impl FullView<'_> {
    /// The composer or the panel, for a width.
    pub(crate) fn input(&mut self, columns: usize, max_rows: usize) -> InputRows {
        input_rows(self.composer, self.panel.as_deref_mut(), columns, max_rows)
    }

    /// The open parts of the conversation.
    pub(crate) fn open(&self, columns: usize, limit: usize) -> Vec<StyledLine> {
        open_rows(self.conversation, self.now_ms, columns, limit)
    }

    pub(crate) fn status(&self, columns: usize) -> StyledLine {
        status_line(self.conversation, self.facts, self.now_ms, columns)
    }

    pub(crate) fn queue(&self, columns: usize) -> Vec<StyledLine> {
        queue_rows(self.conversation, columns)
    }
}
