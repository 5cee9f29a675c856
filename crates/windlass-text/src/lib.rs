//! Styled text for terminals and pages: lines of spans with semantic colours, and the ways to make them.
//!
//! The crate is pure: it knows no events, files, terminals or clocks. Views decide where a line is shown.

mod line;

pub use line::{Span, StyledLine, TextStyle, Tone};
