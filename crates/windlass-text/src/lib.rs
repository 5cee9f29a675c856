//! Styled text for terminals and pages: lines of spans with semantic colours, and the ways to make them.
//!
//! The crate is pure: it knows no events, files, terminals or clocks. Views decide where a line is shown.

pub mod ansi;
pub mod diff;
mod encode;
pub mod highlight;
mod line;
pub mod markdown;
pub mod sanitize;
mod theme;
pub mod width;
mod wrap;

pub use encode::{ColorDepth, LineEncoder, encode, encode_into};
pub use line::{Span, StyledLine, TextStyle, Tone};
pub use theme::{ColorTheme, ThemeColor, ThemeError, contrast};
pub use wrap::{align, pad, truncate, truncate_start, wrap, wrap_columns};
