//! Colours of HTML, Markdown and diffs, which are read by line and not by word.

use super::LexerState;
use crate::line::{StyledLine, Tone};

/// Colours a line of HTML or XML.
pub(super) fn tags(text: &str, state: LexerState, out: &mut StyledLine) -> LexerState {
    let mut state = state;
    let mut rest = text;
    while !rest.is_empty() {
        match state {
            LexerState::Comment(_) => {
                let end = rest.find("-->").map(|at| at + 3);
                rest = take(out, rest, end.unwrap_or(rest.len()), Tone::Comment);
                if end.is_some() {
                    state = LexerState::Normal;
                }
            }
            LexerState::Tag | LexerState::Text(_) => {
                // The index of a text is that of its quote.
                let quotes = ['"', '\''];
                let inside = match state {
                    LexerState::Text(at) => quotes.get(at).copied(),
                    _ => None,
                };
                if let Some(quote) = inside {
                    let end = rest.find(quote).map(|at| at + 1);
                    rest = take(out, rest, end.unwrap_or(rest.len()), Tone::Literal);
                    if end.is_some() {
                        state = LexerState::Tag;
                    }
                } else if let Some(at) = quotes.iter().position(|quote| rest.starts_with(*quote)) {
                    rest = take(out, rest, 1, Tone::Literal);
                    state = LexerState::Text(at);
                } else if rest.starts_with('>') || rest.starts_with("/>") {
                    let length = 1 + usize::from(rest.starts_with('/'));
                    rest = take(out, rest, length, Tone::Keyword);
                    state = LexerState::Normal;
                } else {
                    let length = rest.find(['"', '\'', '>', '=', ' ']).unwrap_or(rest.len());
                    let tone = if length > 0 {
                        Tone::Function
                    } else {
                        Tone::Text
                    };
                    rest = take(out, rest, length.max(1), tone);
                }
            }
            _ if rest.starts_with("<!--") => state = LexerState::Comment(1),
            _ if is_tag(rest) => {
                let length = rest.find([' ', '>']).unwrap_or(rest.len());
                rest = take(out, rest, length, Tone::Keyword);
                state = LexerState::Tag;
            }
            _ => {
                let first = rest.chars().next().map_or(0, char::len_utf8);
                let length = rest[first..].find('<').map_or(rest.len(), |at| at + first);
                rest = take(out, rest, length, Tone::Text);
            }
        }
    }
    state
}

/// Writes a token and returns the text after it.
fn take<'a>(out: &mut StyledLine, text: &'a str, length: usize, tone: Tone) -> &'a str {
    let (token, rest) = text.split_at(length);
    out.append(token, tone.into(), None);
    rest
}

fn is_tag(text: &str) -> bool {
    let name = text.strip_prefix('<');
    name.is_some_and(|name| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '/' | '!' | '?'))
    })
}

/// Colours a line of Markdown source.
pub(super) fn markdown(text: &str, state: LexerState, out: &mut StyledLine) -> LexerState {
    let trimmed = text.trim_start();
    let fence = trimmed.starts_with("```") || trimmed.starts_with("~~~");
    if fence || state == LexerState::Fence {
        out.append(text, Tone::Literal.into(), None);
        return match (fence, state) {
            (true, LexerState::Fence) => LexerState::Normal,
            _ => LexerState::Fence,
        };
    }
    if trimmed.starts_with('#') {
        out.append(text, Tone::Keyword.bold(), None);
    } else if trimmed.starts_with('>') {
        out.append(text, Tone::Comment.into(), None);
    } else {
        // Every second piece is between two backquotes.
        for (at, piece) in text.split('`').enumerate() {
            let tone = if at % 2 == 1 {
                Tone::Literal
            } else {
                Tone::Text
            };
            if at > 0 {
                out.append("`", Tone::Literal.into(), None);
            }
            out.append(piece, tone.into(), None);
        }
    }
    LexerState::Normal
}

/// Colours a line of a diff.
pub(super) fn diff(text: &str, out: &mut StyledLine) {
    let header = [
        "+++",
        "---",
        "diff ",
        "index ",
        "rename ",
        "new file",
        "deleted file",
        "similarity ",
    ];
    let tone = if header.iter().any(|start| text.starts_with(start)) {
        Tone::Muted
    } else {
        match text.bytes().next() {
            Some(b'+') => Tone::Added,
            Some(b'-') => Tone::Removed,
            Some(b'@') => Tone::Accent,
            _ => Tone::Text,
        }
    };
    out.append(text, tone.into(), None);
}
