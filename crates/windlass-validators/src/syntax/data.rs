//! Checks JSON, TOML and YAML with complete parsers.

use saphyr_parser::{Event, Marker, ScalarStyle};
use serde::de::IgnoredAny;

use super::position::{Flaw, line_and_column, number, one_line};
use super::stack_guard::NoVerdict;
use super::toml_version::newer_than_1_0;

/// Checks strict JSON. No value is built, so that deep nesting cannot overflow the stack.
pub(super) fn json(text: &str) -> Vec<Flaw> {
    match serde_json::from_str::<IgnoredAny>(text) {
        Ok(_) => Vec::new(),
        Err(err) => vec![json_flaw(text, &err, 0)],
    }
}

/// Checks one value per line; empty lines are allowed.
pub(super) fn json_lines(text: &str) -> Vec<Flaw> {
    let mut flaws = Vec::new();
    for (before, line) in text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
    {
        if let Err(err) = serde_json::from_str::<IgnoredAny>(line) {
            flaws.push(json_flaw(line, &err, before));
        }
        if flaws.len() >= super::MAX_PER_FILE {
            break;
        }
    }
    flaws
}

/// Checks JSON with comments and trailing commas: both are replaced with spaces, and the rest must be strict JSON.
pub(super) fn jsonc(text: &str) -> Vec<Flaw> {
    json(&without_comments(text))
}

fn json_flaw(text: &str, err: &serde_json::Error, lines_before: usize) -> Flaw {
    // The library counts bytes in the line; a column of 0 is the end of the previous line.
    let line = text
        .split('\n')
        .nth(err.line().saturating_sub(1))
        .unwrap_or_default();
    let upto = err.column().saturating_sub(1).min(line.len());
    let column = line.as_bytes()[..upto]
        .iter()
        .filter(|byte| !matches!(byte, 0x80..=0xbf))
        .count();
    let message = err.to_string();
    let message = message
        .rsplit_once(" at line ")
        .map_or(message.as_str(), |(message, _)| message);
    let hint = match message {
        "expected value" => {
            ": a string in double quotes, a number, `true`, `false`, `null`, `[` or `{`"
        }
        "key must be a string" => " in double quotes",
        "trailing comma" => ": JSON allows none",
        "trailing characters" => " after the end of the value",
        _ => "",
    };
    let (line, message) = (
        number(err.line().max(1) + lines_before),
        format!("{message}{hint}"),
    );
    Flaw {
        line,
        column: number(column + 1),
        message,
        doubtful: false,
    }
}

fn without_comments(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let blank = |out: &mut [u8], from: usize, to: usize| {
        for byte in out[from..to].iter_mut().filter(|byte| **byte != b'\n') {
            *byte = b' ';
        }
    };
    // `comma` is the offset of a comma after a value, with only spaces and comments since.
    let (mut comma, mut value) = (None, false);
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => {
                (comma, value) = (None, true);
                at += 1;
                while at < bytes.len() && !matches!(bytes[at], b'"' | b'\n') {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
            }
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                let end = bytes[at..]
                    .iter()
                    .position(|byte| *byte == b'\n')
                    .map_or(bytes.len(), |len| at + len);
                blank(&mut out, at, end);
                at = end;
                continue;
            }
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                let end = bytes[at + 2..]
                    .windows(2)
                    .position(|pair| pair == b"*/")
                    .map(|len| at + len + 4);
                // An unclosed comment is kept, so that the parser reports it.
                let Some(end) = end else { break };
                blank(&mut out, at, end);
                at = end;
                continue;
            }
            b',' => (comma, value) = (value.then_some(at), false),
            b']' | b'}' => {
                if let Some(comma) = comma.take() {
                    out[comma] = b' ';
                }
                value = true;
            }
            byte if byte.is_ascii_whitespace() => {}
            byte => (comma, value) = (None, !matches!(byte, b'[' | b'{' | b':')),
        }
        at += 1;
    }
    String::from_utf8(out).unwrap_or_else(|_| text.to_owned())
}

/// Checks TOML; `only_1_0` refuses syntax that is new in version 1.1.
pub(super) fn toml(text: &str, only_1_0: bool) -> Result<Vec<Flaw>, NoVerdict> {
    match toml::from_str::<toml::Table>(text) {
        Ok(_) if only_1_0 => {
            let newer = newer_than_1_0(text).map(|(at, why)| Flaw::at(text, at, why));
            Ok(newer.into_iter().collect())
        }
        Ok(_) => Ok(Vec::new()),
        Err(err) if err.message().contains("recursion limit") => {
            Err(NoVerdict("it is nested too deeply to be checked".into()))
        }
        Err(err) => Ok(vec![Flaw::at(
            text,
            err.span().map_or(0, |span| span.start),
            err.message(),
        )]),
    }
}

/// At most this many wrongly indented closing brackets are tolerated.
const MAX_FORGIVEN: usize = 500;

/// Checks all documents of a YAML stream. The specification does not allow a closing bracket at the indentation of its
/// key, but every common parser accepts it, so it is tolerated: the bracket is moved to the right and the text parsed
/// again.
pub(super) fn yaml(text: &str) -> Vec<Flaw> {
    let mut moved = text.to_owned();
    for _ in 0..MAX_FORGIVEN {
        let Some(flaw) = first_of_yaml(&moved) else {
            return Vec::new();
        };
        let start: usize = moved
            .split_inclusive('\n')
            .take(flaw.line.saturating_sub(1) as usize)
            .map(str::len)
            .sum();
        let line = moved[start..].trim_start_matches(' ');
        let forgiven = flaw.message.contains("indentation") && line.starts_with([']', '}']);
        // The line was moved already, so its indentation is not the problem.
        if !forgiven || moved[start..].len() - line.len() > 200 {
            return first_of_yaml(text).into_iter().collect();
        }
        moved.insert_str(start, &" ".repeat(201));
    }
    first_of_yaml(text).into_iter().collect()
}

fn first_of_yaml(text: &str) -> Option<Flaw> {
    let flaw = |mark: &Marker, message: &str| {
        let (last, _) = line_and_column(text, text.len());
        let line = number(mark.line()).clamp(1, last);
        Some(Flaw {
            line,
            column: number(mark.col() + 1),
            message: one_line(message),
            doubtful: false,
        })
    };
    // For each open list `None`, for each open mapping whether a key comes next.
    let mut open: Vec<Option<bool>> = Vec::new();
    for event in saphyr_parser::Parser::new_from_str(text) {
        let (event, span) = match event {
            Ok(event) => event,
            Err(err) => return flaw(err.marker(), err.info()),
        };
        match event {
            Event::SequenceEnd | Event::MappingEnd => drop(open.pop()),
            Event::Scalar(..)
            | Event::Alias(_)
            | Event::SequenceStart(..)
            | Event::MappingStart(..) => {
                let key = open.last_mut().and_then(Option::as_mut);
                let is_key = key.is_some_and(|key| std::mem::replace(key, !*key));
                // The specification allows an empty key, but other parsers do not, and it is always a mistake.
                if is_key
                    && matches!(&event, Event::Scalar(value, ScalarStyle::Plain, 0, None) if value.is_empty())
                {
                    return flaw(&span.start, "a key is missing before this `:`");
                }
                match event {
                    Event::SequenceStart(..) => open.push(None),
                    Event::MappingStart(..) => open.push(Some(true)),
                    _ => {}
                }
            }
            _ => {}
        }
    }
    None
}
