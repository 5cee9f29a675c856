//! What a person or a program sees of a run: three views of the same events. A view decides nothing.

pub(crate) mod ask;
pub(crate) mod json;
mod markdown;
mod progress;
pub(crate) mod style;
pub(crate) mod text;

use windlass::core::event::Event;
use windlass::core::id::SessionId;

use crate::args::{Format, OutputArgs};
use json::{JsonView, StreamView};
use text::TextView;

/// The chosen view.
pub(crate) enum View {
    Text(Box<TextView>),
    Json(Box<JsonView>),
    Stream(StreamView),
}

impl View {
    pub(crate) fn new(
        output: &OutputArgs,
        session: &SessionId,
        structured: bool,
        foreign: Option<&str>,
    ) -> Self {
        match output.format() {
            Format::Text => Self::Text(Box::new(TextView::new(output, session, foreign))),
            Format::Json => Self::Json(Box::new(JsonView::new(session, structured))),
            Format::StreamJson => Self::Stream(StreamView),
        }
    }

    /// Whether deltas and progress are of any use to it.
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

    /// Time for the moving parts, ten times a second on a terminal.
    pub(crate) fn tick(&mut self) {
        if let Self::Text(view) = self {
            view.tick();
        }
    }

    pub(crate) fn ticks(&self) -> bool {
        matches!(self, Self::Text(view) if view.ticks())
    }

    /// Clears the moving parts, so that something else can be printed.
    pub(crate) fn hush(&mut self) {
        if let Self::Text(view) = self {
            view.hush();
        }
    }

    /// A word beside the events, for people.
    pub(crate) fn say(&mut self, text: &str) {
        if let Self::Text(view) = self {
            view.hush();
            crate::out::say!("{}", crate::safe::one_line(text));
        }
    }

    /// Everything was seen.
    pub(crate) fn end(&mut self) {
        match self {
            Self::Text(view) => view.end(),
            Self::Json(view) => view.end(),
            Self::Stream(_) => {}
        }
    }
}
