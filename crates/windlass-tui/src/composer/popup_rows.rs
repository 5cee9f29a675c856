//! Rows of lists: columns, the mark of the selected row, and the visible part of a long list.

use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;
use windlass_text::{StyledLine, TextStyle, Tone};

use super::glyphs::single_line;

/// Columns of the widest first column.
const MAX_LABEL: usize = 48;

/// One row of a list before it is cut to the width.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ListRow {
    pub(super) label: String,
    /// Characters of the label that the filter matched, by their number.
    pub(super) matched: Vec<u32>,
    /// Further columns, which are muted.
    pub(super) details: Vec<String>,
}

/// The part of a list of `count` rows that is visible in `room` rows, with the selected one.
pub(super) fn visible(count: usize, selected: usize, room: usize, top: usize) -> Range<usize> {
    let room = room.min(count);
    let lowest = (selected + 1).saturating_sub(room);
    let start = top.max(lowest).min(selected).min(count - room);
    start..start + room
}

/// The widths of the label and of each detail, so that columns are aligned.
pub(super) fn column_widths(rows: &[ListRow], width: usize) -> Vec<usize> {
    let mut widths: Vec<usize> = Vec::new();
    for row in rows {
        let columns = std::iter::once(&row.label).chain(&row.details);
        for (column, text) in columns.enumerate() {
            let wide = text.width().min(MAX_LABEL);
            match widths.get_mut(column) {
                Some(known) => *known = wide.max(*known),
                None => widths.push(wide),
            }
        }
    }
    if let Some(label) = widths.first_mut() {
        *label = (*label).min(width.saturating_sub(3).max(1));
    }
    widths
}

/// Draws one row. The selected row has a mark and a background.
pub(super) fn draw(row: &ListRow, widths: &[usize], width: usize, is_selected: bool) -> StyledLine {
    let background = is_selected.then_some(Tone::Raised);
    let style = |tone: Tone| TextStyle {
        background,
        ..TextStyle::from(tone)
    };
    let label_style = style(if is_selected {
        Tone::Accent
    } else {
        Tone::Text
    });
    let mut line = StyledLine::default();
    let mut left = width;
    let mark = single_line(if is_selected { " › " } else { "   " }, left);
    left = left.saturating_sub(mark.width());
    line = line.with(mark, style(Tone::Accent));
    let label_width = widths.first().copied().unwrap_or(left).min(left);
    let shown = single_line(&row.label, label_width);
    let mut used = shown.width();
    for (text, is_matched) in split_matched(&shown, &row.matched) {
        let bold = TextStyle {
            bold: is_matched,
            ..label_style
        };
        line = line.with(text, bold);
    }
    for (detail, column) in row.details.iter().zip(1..) {
        if detail.is_empty() {
            continue;
        }
        let start = widths.iter().take(column).sum::<usize>() + 2 * column;
        let gap = start.saturating_sub(used).max(2);
        if used + gap >= left {
            break;
        }
        let is_last = column == row.details.len();
        let room = left - used - gap;
        let room = if is_last {
            room
        } else {
            room.min(widths.get(column).copied().unwrap_or(room))
        };
        let text = single_line(detail, room);
        used += gap + text.width();
        line = line
            .with(" ".repeat(gap), style(Tone::Muted))
            .with(text, style(Tone::Muted));
    }
    if is_selected && used < left {
        line = line.with(" ".repeat(left - used), style(Tone::Text));
    }
    line
}

/// A muted line below a list.
pub(super) fn hint(text: &str, width: usize) -> StyledLine {
    StyledLine::of(single_line(&format!("   {text}"), width), Tone::Muted)
}

fn split_matched(text: &str, matched: &[u32]) -> Vec<(String, bool)> {
    let mut parts: Vec<(String, bool)> = Vec::new();
    let mut number = 0_u32;
    for cluster in text.graphemes(true) {
        let chars = u32::try_from(cluster.chars().count()).unwrap_or(1);
        let is_matched = matched
            .iter()
            .any(|at| (number..number + chars).contains(at));
        number += chars;
        match parts.last_mut() {
            Some((part, state)) if *state == is_matched => part.push_str(cluster),
            _ => parts.push((cluster.to_owned(), is_matched)),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selected_row_is_visible() {
        for count in 0..12 {
            for room in 0..12 {
                for selected in 0..count {
                    for top in 0..14 {
                        let range = visible(count, selected, room, top);
                        assert!(range.end <= count && range.len() == room.min(count));
                        assert!(room == 0 || range.contains(&selected));
                    }
                }
            }
        }
    }

    #[test]
    fn rows_are_never_wider_than_the_terminal() {
        let row = ListRow {
            label: "a漢字 name\u{1b}[2J".to_owned(),
            matched: vec![0, 2],
            details: vec!["ärg".to_owned(), "a long summary of it".to_owned()],
        };
        for width in 0..80 {
            let rows = std::slice::from_ref(&row);
            let widths = column_widths(rows, width);
            for is_selected in [false, true] {
                let line = draw(&row, &widths, width, is_selected);
                assert!(line.width() <= width, "{width}: {:?}", line.plain());
                assert!(!line.plain().contains('\u{1b}'));
            }
        }
    }
}
