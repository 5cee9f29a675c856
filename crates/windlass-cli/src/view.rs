//! The output of a run in three formats: text, one JSON object, or a stream of events. A view makes no decisions.

pub(crate) mod ask;
pub(crate) mod json;
mod status_line;
pub(crate) mod style;
pub(crate) mod text;

use windlass::core::event::Event;
use windlass::core::id::SessionId;
use windlass_text::sanitize::one_line;

use crate::args::{OutputArgs, OutputFormat};
use json::{JsonView, StreamView};
use text::TextView;

/// The view of the output format that the user chose.
pub(crate) enum RunView {
    Text(Box<TextView>),
    Json(Box<JsonView>),
    Stream(StreamView),
}

impl RunView {
    pub(crate) fn new(
        output: &OutputArgs,
        session: &SessionId,
        structured: bool,
        foreign: Option<&str>,
    ) -> Self {
        match output.format() {
            OutputFormat::Text => Self::Text(Box::new(TextView::new(output, session, foreign))),
            OutputFormat::Json => Self::Json(Box::new(JsonView::new(session, structured))),
            OutputFormat::StreamJson => Self::Stream(StreamView),
        }
    }

    /// Whether the view displays deltas and progress.
    pub(crate) fn wants_live(&self) -> bool {
        match self {
            Self::Text(view) => view.wants_live(),
            Self::Json(_) => false,
            Self::Stream(_) => true,
        }
    }

    pub(crate) fn event(&mut self, event: &Event) {
        match self {
            Self::Text(view) => view.event(event),
            Self::Json(view) => view.event(event),
            Self::Stream(view) => view.event(event),
        }
    }

    /// Redraws the status line. The caller calls this ten times a second if [`Self::ticks`].
    pub(crate) fn tick(&mut self) {
        if let Self::Text(view) = self {
            view.tick();
        }
    }

    pub(crate) fn ticks(&self) -> bool {
        matches!(self, Self::Text(view) if view.ticks())
    }

    /// Clears the status line, so that the caller can print.
    pub(crate) fn clear_status(&mut self) {
        if let Self::Text(view) = self {
            view.clear_status();
        }
    }

    /// Prints a remark that is not an event, in the text view only.
    pub(crate) fn remark(&mut self, text: &str) {
        if let Self::Text(view) = self {
            view.clear_status();
            crate::out::say!("{}", one_line(text));
        }
    }

    /// Prints the rest of the output after the last event.
    pub(crate) fn end(&mut self) {
        match self {
            Self::Text(view) => view.end(),
            Self::Json(view) => view.end(),
            Self::Stream(_) => {}
        }
    }
}
