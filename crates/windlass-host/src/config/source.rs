//! Parses one settings file and checks it against the table of known keys. Each error shows file, line and column.

use std::ops::Range;
use std::path::Path;

use toml_edit::{Document, Item, TableLike};

use super::edit::from_toml;
use super::{ConfigError, Key, Value, nearest};

/// The longest part of a line, in characters, that an error quotes.
const MAX_PRINTED_CHARS: usize = 160;

/// Returns the values of a file: dotted name, value and line.
pub(super) fn parse(
    known: &[Key],
    path: &Path,
    text: &str,
) -> Result<Vec<(String, Value, usize)>, ConfigError> {
    let document =
        Document::parse(text).map_err(|err| error_at(path, text, err.span(), err.message()))?;
    let mut reader = SettingsReader {
        known,
        path,
        text,
        found: Vec::new(),
    };
    reader.table(document.as_table(), "")?;
    Ok(reader.found)
}

struct SettingsReader<'a> {
    known: &'a [Key],
    path: &'a Path,
    text: &'a str,
    found: Vec<(String, Value, usize)>,
}

impl SettingsReader<'_> {
    fn table(&mut self, table: &dyn TableLike, prefix: &str) -> Result<(), ConfigError> {
        for (part, item) in table.iter() {
            let name = joined(prefix, part);
            let at = table.get_key_value(part).and_then(|(key, _)| key.span());
            match (find(self.known, &name), item.as_table_like()) {
                (None, Some(below)) if leads_somewhere(self.known, &name) => {
                    self.table(below, &name)?
                }
                (None, _) => {
                    return Err(error_at(
                        self.path,
                        self.text,
                        at,
                        &unknown(self.known, &name),
                    ));
                }
                (Some(key), _) => self.value(key, name, item, at)?,
            }
        }
        Ok(())
    }

    fn value(
        &mut self,
        key: &Key,
        name: String,
        item: &Item,
        at: Option<Range<usize>>,
    ) -> Result<(), ConfigError> {
        let span = item.span().or(at);
        let value = item.as_value().and_then(|value| from_toml(key.kind, value));
        let Some(value) = value else {
            let message = format!("`{name}` must be {}", key.kind);
            return Err(error_at(self.path, self.text, span, &message));
        };
        let line = span.map_or(1, |span| line_and_column(self.text, span.start).0);
        self.found.push((name, value, line));
        Ok(())
    }
}

/// Returns the key of a dotted name that the user typed, and the name in its canonical form.
pub(super) fn lookup<'a>(known: &'a [Key], typed: &str) -> Result<(String, &'a Key), String> {
    let parts =
        toml_edit::Key::parse(typed).map_err(|_| format!("`{}` is not a key", printable(typed)))?;
    let name = parts
        .iter()
        .fold(String::new(), |prefix, part| joined(&prefix, part.get()));
    match find(known, &name) {
        Some(key) => Ok((name, key)),
        None => Err(unknown(known, &name)),
    }
}

/// Joins a dotted name. Quotes a part that has characters other than letters, digits, `-` and `_`.
fn joined(prefix: &str, part: &str) -> String {
    let key = toml_edit::Key::new(part);
    let part = key.display_repr();
    if prefix.is_empty() {
        part.into_owned()
    } else {
        format!("{prefix}.{part}")
    }
}

fn find<'a>(known: &'a [Key], name: &str) -> Option<&'a Key> {
    let parts = split(name);
    known.iter().find(|key| {
        let pattern: Vec<_> = key.name.split('.').collect();
        pattern.len() == parts.len() && begins(&pattern, &parts)
    })
}

/// Returns whether a known key lies below this name.
fn leads_somewhere(known: &[Key], name: &str) -> bool {
    let parts = split(name);
    known.iter().any(|key| {
        let pattern: Vec<_> = key.name.split('.').collect();
        pattern.len() > parts.len() && begins(&pattern, &parts)
    })
}

fn begins(pattern: &[&str], parts: &[String]) -> bool {
    pattern
        .iter()
        .zip(parts)
        .all(|(pattern, part)| *pattern == "*" || pattern == part)
}

fn split(name: &str) -> Vec<String> {
    let parts = toml_edit::Key::parse(name).unwrap_or_default();
    parts.iter().map(|part| part.get().to_owned()).collect()
}

fn unknown(known: &[Key], name: &str) -> String {
    let hint = match nearest(name, known.iter().map(|key| key.name)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`windlass config` lists the keys".to_owned(),
    };
    format!("unknown key `{}`; {hint}", printable(name))
}

/// Returns an error that quotes the line and marks the span below it.
fn error_at(path: &Path, text: &str, span: Option<Range<usize>>, message: &str) -> ConfigError {
    let span = span.unwrap_or(0..0);
    let (line, column) = line_and_column(text, span.start);
    let content = text
        .split('\n')
        .nth(line - 1)
        .unwrap_or_default()
        .trim_end_matches('\r');
    let marks = text
        .get(span)
        .map_or(1, |it| {
            it.lines().next().unwrap_or_default().chars().count()
        })
        .max(1);
    let room = MAX_PRINTED_CHARS.saturating_sub(column - 1).max(1);
    let margin = " ".repeat(line.to_string().len());
    let before: String = content
        .chars()
        .take(column - 1)
        .map(|it| if it == '\t' { '\t' } else { ' ' })
        .collect();
    let marks = "^".repeat(marks.min(room));
    ConfigError(format!(
        "{}:{line}:{column}: {message}\n{margin} |\n{line} | {}\n{margin} | {before}{marks}",
        path.display(),
        printable(content),
    ))
}

/// Returns the line and column of a byte offset, both from 1.
fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at.min(text.len())).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    (
        before.matches('\n').count() + 1,
        before[line_start..].chars().count() + 1,
    )
}

/// Shortens text from outside and replaces its control characters.
pub(super) fn printable(text: &str) -> String {
    let safe = |it: char| {
        if it.is_control() && it != '\t' {
            '\u{fffd}'
        } else {
            it
        }
    };
    text.chars().take(MAX_PRINTED_CHARS).map(safe).collect()
}
