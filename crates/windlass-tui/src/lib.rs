//! The terminal interface: it shows the events of sessions and passes prompts and answers on.
//!
//! [`run`] opens it. The same [`conversation`] is shown in three display modes: inline in the scrollback of the terminal, full
//! screen, and plain lines. Every effect is an operation of the service, in this process or on a server ([`Backend`]).

mod app;
mod ask_panel;
mod backend;
pub mod composer;
pub mod conversation;
mod editor;
mod full_screen;
mod line_input;
mod screen;
mod shell;
mod status_line;
pub mod terminal;

pub use app::{AttachFiles, SessionChoice, TuiEnd, TuiOptions, run};
pub use backend::{Backend, EventSource, OperationError, SourceItem};
pub use screen::DisplayMode;
pub use status_line::StatusFacts;
pub use terminal::session::TerminalRestorer;
