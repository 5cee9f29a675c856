//! The rows of a diff with line numbers, signs and colours.

use std::ops::Range;

use super::DiffOptions;
use super::parse::{DiffFile, DiffFileStatus, DiffHunk, DiffLine, DiffLineKind, ParsedDiff};
use super::words::{WordBudget, changed_words};
use crate::highlight::{CodeLanguage, Highlighter};
use crate::line::{StyledLine, TextStyle, Tone};
use crate::sanitize::span_text;
use crate::wrap::{align, pad, truncate, truncate_start, wrap_columns};

/// The narrowest gutter of line numbers.
const MIN_GUTTER: usize = 5;
/// The most bytes of a line that are shown.
const MAX_SHOWN: usize = 4_000;

impl ParsedDiff {
    /// Renders one column: removed lines have their old number, all others their new one.
    #[must_use]
    pub fn unified(&self, options: &DiffOptions) -> Vec<StyledLine> {
        self.render(options, |file, hunk, lines, out| {
            let gutter = gutter_of(file);
            for (line, text) in hunk.lines.iter().zip(lines) {
                let number = line.new.filter(|_| line.kind != DiffLineKind::Removed);
                let row = row(number.or(line.old), gutter, line.kind, &text);
                fit(row, options, out);
                if line.no_newline {
                    fit(no_newline(gutter), options, out);
                }
            }
        })
    }

    /// Renders the old text on the left and the new text on the right. Without a width, rows have 160 columns.
    #[must_use]
    pub fn side_by_side(&self, options: &DiffOptions) -> Vec<StyledLine> {
        let width = options.width.unwrap_or(160);
        let side = width.saturating_sub(3) / 2;
        let half = DiffOptions {
            width: Some(side),
            ..options.clone()
        };
        self.render(options, |file, hunk, lines, out| {
            let gutter = gutter_of(file);
            let rows = |at: Option<usize>, old: bool| -> Vec<StyledLine> {
                let Some((line, text)) =
                    at.and_then(|at| Some((hunk.lines.get(at)?, lines.get(at)?)))
                else {
                    return Vec::new();
                };
                let mut rows = Vec::new();
                let number = if old { line.old } else { line.new };
                fit(row(number, gutter, line.kind, text), &half, &mut rows);
                if line.no_newline {
                    rows.push(truncate(&no_newline(gutter), side));
                }
                rows
            };
            for (left, right) in pairs(&hunk.lines) {
                let (left, right) = (rows(left, true), rows(right, false));
                let empty = StyledLine::default();
                for at in 0..left.len().max(right.len()) {
                    let mut row = pad(left.get(at).unwrap_or(&empty), side, Tone::Text);
                    row.push(" │ ", Tone::Line);
                    row.extend(right.get(at).unwrap_or(&empty));
                    out.push(row);
                }
            }
        })
    }

    /// Renders the headers and the texts of all lines; `write` arranges the lines of one hunk.
    fn render(
        &self,
        options: &DiffOptions,
        mut write: impl FnMut(&DiffFile, &DiffHunk, Vec<StyledLine>, &mut Vec<StyledLine>),
    ) -> Vec<StyledLine> {
        let mut out = Vec::new();
        let mut budget = WordBudget::default();
        for line in &self.preamble {
            fit(StyledLine::of(line, Tone::Text), options, &mut out);
        }
        for file in &self.files {
            if options.headers {
                if !out.is_empty() {
                    out.push(StyledLine::default());
                }
                file_header(file, options, &mut out);
            }
            for (at, hunk) in file.hunks.iter().enumerate() {
                if at > 0 || !hunk.section.is_empty() {
                    let mark = format!(
                        "{:>width$}   {}",
                        "⋮",
                        hunk.section,
                        width = gutter_of(file)
                    );
                    let mark = StyledLine::of(mark.trim_end(), Tone::Muted);
                    out.push(
                        options
                            .width
                            .map_or(mark.clone(), |width| truncate(&mark, width)),
                    );
                }
                let texts = texts(file, hunk, options, &mut budget);
                write(file, hunk, texts, &mut out);
            }
        }
        out
    }
}

fn file_header(file: &DiffFile, options: &DiffOptions, out: &mut Vec<StyledLine>) {
    let letter = match file.status {
        DiffFileStatus::Modified => "M",
        DiffFileStatus::Added => "A",
        DiffFileStatus::Removed => "D",
        DiffFileStatus::Renamed => "R",
        DiffFileStatus::Copied => "C",
    };
    let mut path = StyledLine::default();
    let moved = matches!(
        file.status,
        DiffFileStatus::Renamed | DiffFileStatus::Copied
    );
    if let Some(old) = file.old_path.as_deref().filter(|_| moved) {
        path.push(&format!("{old} → "), Tone::Muted);
    }
    path.push(file.path(), Tone::Text.bold());
    let (added, removed) = file.counts();
    let mut counts = StyledLine::default();
    if file.binary {
        counts.push("binary", Tone::Muted);
    } else {
        if added > 0 {
            counts.push(&format!("+{added}"), Tone::Added);
        }
        if removed > 0 {
            let blank = if added > 0 { " " } else { "" };
            counts.push(&format!("{blank}−{removed}"), Tone::Removed);
        }
    }
    if let (Some(old), Some(new)) = (&file.old_mode, &file.new_mode) {
        let blank = if counts.is_empty() { "" } else { "  " };
        counts.push(&format!("{blank}mode {old} → {new}"), Tone::Muted);
    }
    let mut left = StyledLine::of(format!("{letter} "), Tone::Accent);
    let Some(width) = options.width else {
        left.extend(&path);
        left.push("  ", Tone::Text);
        left.extend(&counts);
        return out.push(left);
    };
    // The name of the file matters more than its directory.
    left.extend(&truncate_start(
        &path,
        width.saturating_sub(counts.width() + 4),
    ));
    out.push(align(&left, &counts, width));
}

/// The width of the line numbers of a file.
fn gutter_of(file: &DiffFile) -> usize {
    let last = |hunk: &DiffHunk| {
        let lines = u32::try_from(hunk.lines.len()).unwrap_or(u32::MAX);
        hunk.old_start.max(hunk.new_start).saturating_add(lines)
    };
    let last = file.hunks.last().map_or(0, last);
    (last.max(1).ilog10() as usize + 2).max(MIN_GUTTER)
}

/// The row `  3 │ -text`.
fn row(number: Option<u32>, gutter: usize, kind: DiffLineKind, text: &StyledLine) -> StyledLine {
    let number = number.map_or_else(String::new, |number| number.to_string());
    let (sign, tone) = match kind {
        DiffLineKind::Context => (" ", Tone::Text),
        DiffLineKind::Added => ("+", Tone::Added),
        DiffLineKind::Removed => ("-", Tone::Removed),
    };
    let mut row = StyledLine::of(format!("{number:>gutter$}"), Tone::Muted)
        .with(" │ ", Tone::Line)
        .with(sign, tone)
        .with_indent(gutter + 4);
    row.extend(text);
    row
}

fn no_newline(gutter: usize) -> StyledLine {
    StyledLine::of(" ".repeat(gutter), Tone::Muted)
        .with(" │ ", Tone::Line)
        .with("\\ no newline at the end", Tone::Muted)
}

/// Breaks or cuts a row that is too wide.
fn fit(row: StyledLine, options: &DiffOptions, out: &mut Vec<StyledLine>) {
    match options.width {
        None => out.push(row),
        Some(width) if options.wrap => out.append(&mut wrap_columns(&row, width)),
        Some(width) => out.push(truncate(&row, width)),
    }
}

/// The rows of a hunk as indices of their left and right lines. Removed lines are beside the added lines that follow.
fn pairs(lines: &[DiffLine]) -> Vec<(Option<usize>, Option<usize>)> {
    let mut out = Vec::new();
    for block in blocks(lines) {
        match block {
            ChangeBlock::Context(at) => out.push((Some(at), Some(at))),
            ChangeBlock::Changed(removed, added) => {
                for at in 0..removed.len().max(added.len()) {
                    let inside =
                        |range: &Range<usize>| (at < range.len()).then_some(range.start + at);
                    out.push((inside(&removed), inside(&added)));
                }
            }
        }
    }
    out
}

enum ChangeBlock {
    Context(usize),
    /// Removed lines, and the added lines that follow them.
    Changed(Range<usize>, Range<usize>),
}

fn blocks(lines: &[DiffLine]) -> Vec<ChangeBlock> {
    let mut out = Vec::new();
    let mut at = 0;
    let end_of = |start: usize, kind: DiffLineKind| {
        let same = lines[start..].iter().take_while(|line| line.kind == kind);
        start + same.count()
    };
    while at < lines.len() {
        if lines[at].kind == DiffLineKind::Context {
            out.push(ChangeBlock::Context(at));
            at += 1;
            continue;
        }
        let removed = end_of(at, DiffLineKind::Removed);
        let added = end_of(removed, DiffLineKind::Added);
        out.push(ChangeBlock::Changed(at..removed, removed..added));
        at = added;
    }
    out
}

/// The texts of all lines of a hunk with colours.
fn texts(
    file: &DiffFile,
    hunk: &DiffHunk,
    options: &DiffOptions,
    budget: &mut WordBudget,
) -> Vec<StyledLine> {
    let language = CodeLanguage::of_path(file.path()).filter(|_| options.syntax);
    // The old and the new text are two texts for the highlighter.
    let mut old = language.map(Highlighter::new);
    let mut new = language.map(Highlighter::new);
    let mut out: Vec<StyledLine> = Vec::with_capacity(hunk.lines.len());
    for line in &hunk.lines {
        let end = line.text.floor_char_boundary(MAX_SHOWN);
        let text = span_text(&line.text[..end], 0);
        let colored = |highlighter: &mut Option<Highlighter>| match highlighter {
            Some(highlighter) => highlighter.line(&text),
            None => StyledLine::of(&text, Tone::Text),
        };
        let (mut styled, tone) = match line.kind {
            DiffLineKind::Context => {
                colored(&mut old);
                (colored(&mut new), Tone::Text)
            }
            DiffLineKind::Added => (colored(&mut new), Tone::Added),
            DiffLineKind::Removed => (colored(&mut old), Tone::Removed),
        };
        // Most themes have green literals, which would look like an addition.
        let keeps_literals = line.kind != DiffLineKind::Removed;
        for span in &mut styled.spans {
            let literal = span.style.tone == Tone::Literal;
            if span.style.tone == Tone::Text || (literal && !keeps_literals) {
                span.style.tone = tone;
            }
        }
        if end < line.text.len() {
            let hidden = format!(" … {} more bytes", line.text.len() - end);
            styled.push(&hidden, Tone::Muted);
        }
        out.push(styled);
    }
    if options.words {
        for block in blocks(&hunk.lines) {
            let ChangeBlock::Changed(removed, added) = block else {
                continue;
            };
            for (removed, added) in removed.zip(added) {
                let (old, new) = (out[removed].plain(), out[added].plain());
                let (old, new) = changed_words(&old, &new, budget);
                emphasize(
                    &mut out[removed],
                    &old,
                    Tone::Removed,
                    Tone::RemovedEmphasis,
                );
                emphasize(&mut out[added], &new, Tone::Added, Tone::AddedEmphasis);
            }
        }
    }
    out
}

/// Changes the style of ranges of bytes, which are in order.
fn emphasize(line: &mut StyledLine, ranges: &[Range<usize>], tone: Tone, background: Tone) {
    if ranges.is_empty() {
        return;
    }
    let style = TextStyle {
        background: Some(background),
        ..tone.into()
    };
    let mut out = StyledLine::default().with_indent(line.indent);
    let mut ranges = ranges.iter().cloned().peekable();
    let mut offset = 0;
    for span in &line.spans {
        let end = offset + span.text.len();
        let mut at = offset;
        while at < end {
            while ranges.next_if(|range| range.end <= at).is_some() {}
            let (stop, style) = match ranges.peek() {
                Some(range) if range.start <= at => (range.end.min(end), style),
                Some(range) => (range.start.min(end), span.style),
                None => (end, span.style),
            };
            out.append(&span.text[at - offset..stop - offset], style, None);
            at = stop;
        }
        offset = end;
    }
    *line = out;
}
