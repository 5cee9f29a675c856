//! Settings in layers with an origin for every value: which file and line, flag or variable said it.
//! Which keys exist is the caller's table; what they mean is the caller's business. Nothing here looks at the
//! environment.

mod edit;
mod places;
mod source;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use windlass_core::workspace::FileErrorKind;

pub use self::edit::{set, unset};
pub use self::places::Places;

use crate::workspace::{open_regular, read_whole};

/// A settings file is read by people; a larger one is a mistake.
const MAX_FILE: u64 = 1024 * 1024;

/// One setting that exists.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Its dotted name; a part that is `*` stands for any name, as in `prices.*.input`.
    pub name: &'static str,
    /// What its value must be.
    pub kind: Kind,
    /// What it does, in one sentence.
    pub doc: &'static str,
}

/// What the value of a setting must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// One of these texts.
    Choice(&'static [&'static str]),
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// A number above zero, or the text `unlimited`.
    Limit,
    /// `true` or `false`.
    Boolean,
    /// A list of texts.
    Texts,
}

impl fmt::Display for Kind {
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
    /// A text.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// A number.
    Number(f64),
    /// Yes or no.
    Boolean(bool),
    /// A list of texts.
    Texts(Vec<String>),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(edit::to_toml(self).to_string().trim(), f)
    }
}

/// Where a value may come from, the strongest last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    /// Built in.
    Default,
    /// The user's file.
    User,
    /// The project's file.
    Project,
    /// The project's file that is not shared.
    ProjectLocal,
    /// An environment variable.
    Environment,
    /// A flag on the command line.
    Flag,
    /// The administrator's file.
    Managed,
}

/// Who said a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// In which layer.
    pub layer: Layer,
    /// The file and line, the variable or the flag, for showing.
    pub place: String,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place)
    }
}

/// A value and who said it.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// The value.
    pub value: Value,
    /// Who said it.
    pub origin: Origin,
}

/// Why a setting or a settings file is not usable. The text names the place and, for files, shows the line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

/// All layers together.
#[derive(Debug, Clone)]
pub struct Layers<'a> {
    known: &'a [Key],
    /// By dotted name, the weakest first.
    values: BTreeMap<String, Vec<Setting>>,
}

impl<'a> Layers<'a> {
    /// No values yet, for these keys.
    #[must_use]
    pub fn new(known: &'a [Key]) -> Self {
        Self {
            known,
            values: BTreeMap::new(),
        }
    }

    /// Adds a settings file. Says whether it is there; one that is not adds nothing.
    pub fn add_file(&mut self, layer: Layer, path: &Path) -> Result<bool, ConfigError> {
        let Some(text) = read_text(path)? else {
            return Ok(false);
        };
        self.add_text(layer, path, &text)?;
        Ok(true)
    }

    /// Adds the text of a settings file.
    pub fn add_text(&mut self, layer: Layer, path: &Path, text: &str) -> Result<(), ConfigError> {
        for (name, value, line) in source::parse(self.known, path, text)? {
            let origin = Origin {
                layer,
                place: format!("{}:{line}", path.display()),
            };
            self.insert(name, Setting { value, origin });
        }
        Ok(())
    }

    /// Adds one value given as plain text: by a variable, a flag or a built-in default. `place` says by which.
    pub fn add(
        &mut self,
        layer: Layer,
        name: &str,
        raw: &str,
        place: &str,
    ) -> Result<(), ConfigError> {
        let (name, value) = edit::typed(self.known, name, raw)
            .map_err(|err| ConfigError(format!("{place}: {err}")))?;
        let origin = Origin {
            layer,
            place: place.to_owned(),
        };
        self.insert(name, Setting { value, origin });
        Ok(())
    }

    fn insert(&mut self, name: String, setting: Setting) {
        let settings = self.values.entry(name).or_default();
        // In one layer what is added later counts, as in a directory of files that are read in order.
        let at = settings.partition_point(|other| other.origin.layer <= setting.origin.layer);
        settings.insert(at, setting);
    }

    /// The value that counts.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Setting> {
        self.values.get(name).and_then(|settings| settings.last())
    }

    /// Everything that was said about a key, what counts first.
    pub fn stack(&self, name: &str) -> impl Iterator<Item = &Setting> {
        self.values.get(name).into_iter().flatten().rev()
    }

    /// All keys that have a value, with the value that counts.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Setting)> {
        self.values
            .iter()
            .filter_map(|(name, settings)| Some((name.as_str(), settings.last()?)))
    }

    /// The text of a key.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        match &self.get(name)?.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The whole number of a key.
    #[must_use]
    pub fn integer(&self, name: &str) -> Option<i64> {
        match self.get(name)?.value {
            Value::Integer(number) => Some(number),
            _ => None,
        }
    }

    /// The number of a key.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<f64> {
        match self.get(name)?.value {
            Value::Integer(number) => Some(number as f64),
            Value::Number(number) => Some(number),
            _ => None,
        }
    }

    /// The yes or no of a key.
    #[must_use]
    pub fn boolean(&self, name: &str) -> Option<bool> {
        match self.get(name)?.value {
            Value::Boolean(yes) => Some(yes),
            _ => None,
        }
    }

    /// The list of a key.
    #[must_use]
    pub fn texts(&self, name: &str) -> Option<&[String]> {
        match &self.get(name)?.value {
            Value::Texts(texts) => Some(texts),
            _ => None,
        }
    }
}

/// The key of that name, or what was probably meant.
pub fn known<'a>(keys: &'a [Key], name: &str) -> Result<&'a Key, ConfigError> {
    source::lookup(keys, name)
        .map(|(_, key)| key)
        .map_err(ConfigError)
}

/// The known name nearest to what was typed, when it is near enough to be meant.
#[must_use]
pub fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed: String = typed.chars().take(200).collect();
    let far = (typed.chars().count() / 3).max(2);
    let letters = typed.chars().count();
    known
        .into_iter()
        // The distance is never less than the difference in length, which is known for nothing.
        .filter(|name| name.chars().count().abs_diff(letters) <= far)
        .map(|name| (strsim::damerau_levenshtein(&typed, name), name))
        .filter(|(distance, _)| *distance <= far)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// The administrator's files below a directory, in the order they count: `config.toml`, then `conf.d/*.toml`.
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

/// The text of a settings file, or none when there is no such file.
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
