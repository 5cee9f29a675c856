//! Diffs as styled lines: one column with line numbers, or the old and the new text side by side.

mod parse;
mod rows;
mod words;

pub use parse::{DiffFile, DiffFileStatus, DiffHunk, DiffLine, DiffLineKind, ParsedDiff};

use crate::line::StyledLine;

/// The layout of a rendered diff.
#[derive(Debug, Clone)]
pub struct DiffOptions {
    /// The width in columns; `None` leaves lines as long as they are.
    pub width: Option<usize>,
    /// Whether lines that are wider than `width` are broken; otherwise they are cut with `…`.
    pub wrap: bool,
    /// Whether each file begins with a line that shows its path and the number of changed lines.
    pub headers: bool,
    /// Whether code has the colours of its language.
    pub syntax: bool,
    /// Whether changed words within a pair of lines are emphasised.
    pub words: bool,
}

impl Default for DiffOptions {
    fn default() -> Self {
        Self {
            width: None,
            wrap: true,
            headers: true,
            syntax: true,
            words: true,
        }
    }
}

impl DiffOptions {
    /// The default layout with a width in columns.
    #[must_use]
    pub fn with_width(width: usize) -> Self {
        Self {
            width: Some(width),
            ..Self::default()
        }
    }
}

/// Renders a diff in the format of git. Text that is no diff is shown as it is.
#[must_use]
pub fn unified(diff: &str, options: &DiffOptions) -> Vec<StyledLine> {
    ParsedDiff::parse(diff).unified(options)
}

/// Renders the old text on the left and the new text on the right of `width` columns.
#[must_use]
pub fn side_by_side(diff: &str, width: usize) -> Vec<StyledLine> {
    ParsedDiff::parse(diff).side_by_side(&DiffOptions::with_width(width))
}

#[cfg(test)]
mod tests;
