//! Layered settings. Each value has an origin: the file and line, the flag or the environment variable that set it. The
//! caller passes the table of known keys and interprets the values. This module does not read the environment.

mod edit;
mod source;
mod user_dirs;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use windlass_core::workspace::FileErrorKind;

pub use self::edit::{set, unset};
pub use self::user_dirs::Places;

use crate::workspace::{open_regular, read_whole};

/// People write settings files by hand; a larger file is a mistake.
const MAX_FILE: u64 = 1024 * 1024;

/// Returns the text at a path of tables in any TOML document, such as the manifest of a project.
#[must_use]
pub fn text_at(document: &str, path: &[&str]) -> Option<String> {
    let table: toml::Table = toml::from_str(document).ok()?;
    let mut value = table.get(*path.first()?)?;
    for name in &path[1..] {
        value = value.get(name)?;
    }
    value.as_str().map(str::to_owned)
}

/// A setting that the program knows, as the caller's table lists it.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// The dotted name. A part that is `*` stands for any name, as in `prices.*.input`.
    pub name: &'static str,
    pub kind: SettingKind,
    /// A description of one sentence, for `windlass config`.
    pub doc: &'static str,
}

/// The type of a setting's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingKind {
    Text,
    Choice(&'static [&'static str]),
    Integer,
    Number,
    /// A number above zero, or the text `unlimited`.
    Limit,
    Boolean,
    Texts,
}

impl fmt::Display for SettingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text => f.write_str("a text in quotes"),
            Self::Choice(choices) => write!(f, "one of \"{}\"", choices.join("\", \"")),
            Self::Integer => f.write_str("a whole number"),
            Self::Number => f.write_str("a number"),
            Self::Limit => f.write_str("a number above zero, or \"unlimited\""),
            Self::Boolean => f.write_str("true or false"),
            Self::Texts => f.write_str("a list of texts, as in [\"a\", \"b\"]"),
        }
    }
}

/// The value of a setting.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Text(String),
    Integer(i64),
    Number(f64),
    Boolean(bool),
    Texts(Vec<String>),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(edit::to_toml(self).to_string().trim(), f)
    }
}

/// The source of a setting. The variants are in order of precedence; the last one wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SettingsLayer {
    Default,
    User,
    Project,
    /// The project's settings file that is not committed.
    ProjectLocal,
    Environment,
    Flag,
    Managed,
}

/// The layer and the place that set a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingOrigin {
    pub layer: SettingsLayer,
    /// The file and line, the variable or the flag, for display.
    pub place: String,
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place)
    }
}

/// A value of a setting, with its origin.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    pub value: Value,
    pub origin: SettingOrigin,
}

/// A setting or a settings file that is not usable. The text names the place and, for files, quotes the line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

/// All values of all settings, by layer.
#[derive(Debug, Clone)]
pub struct Layers<'a> {
    known: &'a [Key],
    /// By dotted name, in ascending precedence.
    values: BTreeMap<String, Vec<Setting>>,
}

impl<'a> Layers<'a> {
    /// Returns a stack without values, for the given keys.
    #[must_use]
    pub fn new(known: &'a [Key]) -> Self {
        Self {
            known,
            values: BTreeMap::new(),
        }
    }

    /// Adds the values of a settings file. Returns false if the file does not exist.
    pub fn add_file(&mut self, layer: SettingsLayer, path: &Path) -> Result<bool, ConfigError> {
        let Some(text) = read_text(path)? else {
            return Ok(false);
        };
        self.add_text(layer, path, &text)?;
        Ok(true)
    }

    /// Adds the values of a settings file whose text the caller has read already.
    pub fn add_text(
        &mut self,
        layer: SettingsLayer,
        path: &Path,
        text: &str,
    ) -> Result<(), ConfigError> {
        for (name, value, line) in source::parse(self.known, path, text)? {
            let origin = SettingOrigin {
                layer,
                place: format!("{}:{line}", path.display()),
            };
            self.insert(name, Setting { value, origin });
        }
        Ok(())
    }

    /// Adds a value that is given as plain text: by a variable, a flag or a built-in default. `place` names it.
    pub fn add(
        &mut self,
        layer: SettingsLayer,
        name: &str,
        raw: &str,
        place: &str,
    ) -> Result<(), ConfigError> {
        let (name, value) = edit::typed(self.known, name, raw)
            .map_err(|err| ConfigError(format!("{place}: {err}")))?;
        let origin = SettingOrigin {
            layer,
            place: place.to_owned(),
        };
        self.insert(name, Setting { value, origin });
        Ok(())
    }

    fn insert(&mut self, name: String, setting: Setting) {
        let settings = self.values.entry(name).or_default();
        // Within a layer the value that was added last wins, as for a directory of files that are read in order.
        let at = settings.partition_point(|other| other.origin.layer <= setting.origin.layer);
        settings.insert(at, setting);
    }

    /// Returns the value with the highest precedence.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Setting> {
        self.values.get(name).and_then(|settings| settings.last())
    }

    /// Returns all values of a key, in descending precedence.
    pub fn stack(&self, name: &str) -> impl Iterator<Item = &Setting> {
        self.values.get(name).into_iter().flatten().rev()
    }

    /// Returns each key that has a value, with its effective value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Setting)> {
        self.values
            .iter()
            .filter_map(|(name, settings)| Some((name.as_str(), settings.last()?)))
    }

    /// Returns the effective value of a key if it is text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        match &self.get(name)?.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the effective value of a key if it is an integer.
    #[must_use]
    pub fn integer(&self, name: &str) -> Option<i64> {
        match self.get(name)?.value {
            Value::Integer(number) => Some(number),
            _ => None,
        }
    }

    /// Returns the effective value of a key if it is a number. An integer is converted.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<f64> {
        match self.get(name)?.value {
            Value::Integer(number) => Some(number as f64),
            Value::Number(number) => Some(number),
            _ => None,
        }
    }

    /// Returns the effective value of a key if it is a boolean.
    #[must_use]
    pub fn boolean(&self, name: &str) -> Option<bool> {
        match self.get(name)?.value {
            Value::Boolean(yes) => Some(yes),
            _ => None,
        }
    }

    /// Returns the effective value of a key if it is a list.
    #[must_use]
    pub fn texts(&self, name: &str) -> Option<&[String]> {
        match &self.get(name)?.value {
            Value::Texts(texts) => Some(texts),
            _ => None,
        }
    }
}

/// Returns the key of that name, or an error that suggests the key that was probably meant.
pub fn known<'a>(keys: &'a [Key], name: &str) -> Result<&'a Key, ConfigError> {
    source::lookup(keys, name)
        .map(|(_, key)| key)
        .map_err(ConfigError)
}

/// Returns the known name that is most similar to the typed one, if it is similar enough to be a typing error.
#[must_use]
pub fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed: String = typed.chars().take(200).collect();
    let far = (typed.chars().count() / 3).max(2);
    let letters = typed.chars().count();
    known
        .into_iter()
        // Both are lower bounds of the edit distance that are cheaper to compute.
        .filter(|name| name.chars().count().abs_diff(letters) <= far)
        .filter(|name| least_edits(&typed, name) <= far)
        .map(|name| (strsim::damerau_levenshtein(&typed, name), name))
        .filter(|(distance, _)| *distance <= far)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Returns a lower bound of the edit distance: one edit changes how often letters occur by at most two. Only ASCII is
/// counted.
fn least_edits(one: &str, other: &str) -> usize {
    let mut surplus = [0_i32; 128];
    for (text, count) in [(one, 1), (other, -1)] {
        for byte in text.bytes().filter(u8::is_ascii) {
            surplus[usize::from(byte)] += count;
        }
    }
    let changed: u32 = surplus.iter().map(|count| count.unsigned_abs()).sum();
    changed.div_ceil(2) as usize
}

/// Returns the administrator's files below a directory, in ascending precedence: `config.toml`, then `conf.d/*.toml`.
pub fn managed_files(dir: &Path) -> Result<Vec<PathBuf>, ConfigError> {
    let mut files = vec![dir.join("config.toml")];
    let parts = dir.join("conf.d");
    let entries = match std::fs::read_dir(&parts) {
        Ok(entries) => entries,
        Err(err) if err.kind() == std::io::ErrorKind::NotFound => return Ok(files),
        Err(err) => {
            return Err(ConfigError(format!(
                "cannot read {}: {err}",
                parts.display()
            )));
        }
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry
            .map_err(|err| ConfigError(format!("cannot read {}: {err}", parts.display())))?
            .path();
        if path
            .extension()
            .is_some_and(|extension| extension == "toml")
        {
            found.push(path);
        }
    }
    found.sort_unstable();
    files.append(&mut found);
    Ok(files)
}

/// Returns the text of a settings file, or `None` if there is no such file.
fn read_text(path: &Path) -> Result<Option<String>, ConfigError> {
    let (file, stat) = match open_regular(path) {
        Ok(opened) => opened,
        Err(err) if err.kind == FileErrorKind::NotFound => return Ok(None),
        Err(err) => return Err(ConfigError(format!("settings file {err}"))),
    };
    let bytes = read_whole(file, stat.size, MAX_FILE, path)
        .map_err(|err| ConfigError(format!("settings file {err}")))?;
    let text = String::from_utf8(bytes);
    text.map(Some).map_err(|_| {
        ConfigError(format!(
            "settings file {} is not UTF-8 text",
            path.display()
        ))
    })
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
