//! Changes one value in a settings file. Every other byte of the file, including comments, stays the same.

use std::path::Path;

use toml_edit::{DocumentMut, Item, Table};

use super::{ConfigError, Key, SettingKind, Value, read_text, source};
use crate::workspace::write_whole;

/// Sets one key in a settings file to a value that is given as plain text. Creates the file if it does not exist.
pub fn set(path: &Path, known: &[Key], name: &str, raw: &str) -> Result<(), ConfigError> {
    let (name, value) = typed(known, name, raw).map_err(ConfigError)?;
    edit(path, known, &name, |table, last| {
        let fresh = to_toml(&value);
        match table.get_mut(last).and_then(Item::as_value_mut) {
            // Keeps the whitespace and the comment around the old value.
            Some(old) => {
                let decor = old.decor().clone();
                *old = fresh;
                *old.decor_mut() = decor;
            }
            None => {
                table.insert(last, Item::Value(fresh));
            }
        }
    })
}

/// Removes one key from a settings file; a key that is not set is not an error.
pub fn unset(path: &Path, known: &[Key], name: &str) -> Result<(), ConfigError> {
    let (name, _) = source::lookup(known, name).map_err(ConfigError)?;
    edit(path, known, &name, |table, last| {
        table.remove(last);
    })
}

fn edit(
    path: &Path,
    known: &[Key],
    name: &str,
    change: impl FnOnce(&mut dyn toml_edit::TableLike, &str),
) -> Result<(), ConfigError> {
    let text = read_text(path)?.unwrap_or_default();
    // Do not write to a file that has an error; report the error first.
    source::parse(known, path, &text)?;
    let mut document: DocumentMut = text
        .parse()
        .map_err(|err: toml_edit::TomlError| ConfigError(format!("{}: {err}", path.display())))?;
    let parts = toml_edit::Key::parse(name).unwrap_or_default();
    let Some((last, above)) = parts.split_last() else {
        return Ok(());
    };
    let mut table: &mut dyn toml_edit::TableLike = document.as_table_mut();
    for part in above {
        let below = table.entry(part.get()).or_insert_with(|| {
            let mut fresh = Table::new();
            fresh.set_implicit(true);
            Item::Table(fresh)
        });
        table = below.as_table_like_mut().ok_or_else(|| {
            ConfigError(format!(
                "{}: `{}` is a value and not a table",
                path.display(),
                source::printable(part.get())
            ))
        })?;
    }
    change(table, last.get());
    if let Some(dir) = path.parent() {
        crate::private::create_dir(dir).map_err(|err| ConfigError(err.message))?;
    }
    write_whole(path, document.to_string().as_bytes(), 0o644)
        .map_err(|err| ConfigError(err.message))
}

/// Returns the value of a TOML value if it has the type of the key.
pub(super) fn from_toml(kind: SettingKind, value: &toml_edit::Value) -> Option<Value> {
    use toml_edit::Value as Toml;
    let value = match value {
        Toml::String(text) => Value::Text(text.value().clone()),
        Toml::Integer(number) => Value::Integer(*number.value()),
        Toml::Float(number) => Value::Number(*number.value()),
        Toml::Boolean(yes) => Value::Boolean(*yes.value()),
        Toml::Array(items) => Value::Texts(
            items
                .iter()
                .map(|item| item.as_str().map(str::to_owned))
                .collect::<Option<_>>()?,
        ),
        Toml::Datetime(_) | Toml::InlineTable(_) => return None,
    };
    fits(kind, &value).then_some(value)
}

/// Parses a key and its value as the user typed them. Returns the name in its canonical form.
pub(super) fn typed(known: &[Key], name: &str, raw: &str) -> Result<(String, Value), String> {
    let (name, key) = source::lookup(known, name)?;
    match from_plain(key.kind, raw) {
        Some(value) => Ok((name, value)),
        None => {
            let shown = source::printable(raw);
            Err(format!("`{name}` must be {}, not `{shown}`", key.kind))
        }
    }
}

/// Parses a value as the user typed it on a command line or set it in a variable.
fn from_plain(kind: SettingKind, raw: &str) -> Option<Value> {
    let number = || {
        raw.parse()
            .map(Value::Integer)
            .or_else(|_| raw.parse().map(Value::Number))
            .ok()
    };
    let value = match kind {
        SettingKind::Text | SettingKind::Choice(_) => Value::Text(raw.to_owned()),
        SettingKind::Integer | SettingKind::Number => number()?,
        SettingKind::Limit if raw == "unlimited" => Value::Text(raw.to_owned()),
        SettingKind::Limit => number()?,
        SettingKind::Boolean => Value::Boolean(raw.parse().ok()?),
        // Accept a list with commas, or in the syntax of a settings file.
        SettingKind::Texts => match raw.parse::<toml_edit::Value>() {
            Ok(list @ toml_edit::Value::Array(_)) => from_toml(kind, &list)?,
            _ => Value::Texts(
                raw.split(',')
                    .map(|it| it.trim().to_owned())
                    .filter(|it| !it.is_empty())
                    .collect(),
            ),
        },
    };
    fits(kind, &value).then_some(value)
}

fn fits(kind: SettingKind, value: &Value) -> bool {
    match (kind, value) {
        (SettingKind::Text, Value::Text(_))
        | (SettingKind::Integer | SettingKind::Number, Value::Integer(_))
        | (SettingKind::Boolean, Value::Boolean(_))
        | (SettingKind::Texts, Value::Texts(_)) => true,
        (SettingKind::Choice(choices), Value::Text(text)) => choices.contains(&text.as_str()),
        (SettingKind::Number, Value::Number(number)) => number.is_finite(),
        (SettingKind::Limit, Value::Integer(number)) => *number > 0,
        (SettingKind::Limit, Value::Number(number)) => number.is_finite() && *number > 0.0,
        (SettingKind::Limit, Value::Text(text)) => text == "unlimited",
        _ => false,
    }
}

pub(super) fn to_toml(value: &Value) -> toml_edit::Value {
    match value {
        Value::Text(text) => text.into(),
        Value::Integer(number) => (*number).into(),
        Value::Number(number) => (*number).into(),
        Value::Boolean(yes) => (*yes).into(),
        Value::Texts(texts) => texts.iter().collect::<toml_edit::Array>().into(),
    }
}
