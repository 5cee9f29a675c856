//! Ranges and edits of single vi commands.

use unicode_segmentation::UnicodeSegmentation as _;

use super::edit_log::EditKind;
use super::folds::is_allowed;
use super::motions::{
    WordKind, first_nonblank, left_in_line, line_end, next_word_start, right_in_line,
};
use super::text_buffer::TextBuffer;
use super::vi::MAX_COUNT;

pub(super) fn repeated(
    text: &str,
    pos: usize,
    count: Option<usize>,
    step: impl Fn(&str, usize) -> usize,
) -> usize {
    (0..count.unwrap_or(1).max(1)).fold(pos, |at, _| step(text, at))
}

/// The end of the line that is `count` lines below.
pub(super) fn lines_below(text: &str, pos: usize, count: usize) -> usize {
    let mut end = line_end(text, pos);
    for _ in 0..count {
        if end >= text.len() {
            break;
        }
        end = line_end(text, end + 1);
    }
    end
}

/// The end of the words for `cw`: without the spaces after them, or only spaces if the cursor is on one.
pub(super) fn changed_words(text: &str, pos: usize, kind: WordKind, count: usize) -> usize {
    let end = (0..count.clamp(1, MAX_COUNT)).fold(pos, |at, _| next_word_start(text, at, kind));
    let words = &text[pos..end];
    let is_blank = words.starts_with([' ', '\t']);
    let trimmed = if is_blank && count == 1 {
        words.trim_end_matches('\n')
    } else {
        words.trim_end()
    };
    pos + trimmed.len()
}

/// `dw` on the last word of a line leaves the line break.
pub(super) fn before_line_break(text: &str, low: usize, high: usize) -> usize {
    let range = &text[low..high];
    let kept = range.trim_end().len();
    match range[kept..].find('\n') {
        Some(at) if kept + at > 0 => low + kept + at,
        _ => high,
    }
}

pub(super) fn replace_chars(buffer: &mut TextBuffer, count: usize, c: char) {
    let start = buffer.cursor();
    let end = repeated(buffer.text(), start, Some(count), right_in_line);
    let found = buffer.text()[start..end].graphemes(true).count();
    if found < count || !is_allowed(c) {
        return;
    }
    let new = c.to_string().repeat(count);
    buffer.replace(start..end, &new, EditKind::Other);
    let last = left_in_line(buffer.text(), buffer.cursor());
    buffer.move_to(last);
}

pub(super) fn toggle_case(buffer: &mut TextBuffer, count: usize) {
    let start = buffer.cursor();
    let end = repeated(buffer.text(), start, Some(count), right_in_line);
    let toggled: String = buffer.text()[start..end]
        .chars()
        .flat_map(|c| -> Box<dyn Iterator<Item = char>> {
            if c.is_uppercase() {
                Box::new(c.to_lowercase())
            } else {
                Box::new(c.to_uppercase())
            }
        })
        .collect();
    buffer.replace(start..end, &toggled, EditKind::Other);
}

/// Joins the line with the next one, with one space between them.
pub(super) fn join_lines(buffer: &mut TextBuffer) {
    let text = buffer.text();
    let end = line_end(text, buffer.cursor());
    if end >= text.len() {
        return;
    }
    let next = first_nonblank(text, end + 1);
    let space = if text[..end].ends_with(' ') { "" } else { " " };
    buffer.replace(end..next, space, EditKind::Other);
    buffer.move_to(end);
}
