//! Settings as rows for people and programs: values with their origins, and all keys.
//!
//! ```
//! use windlass::Environment;
//! use windlass::settings::{KeyRow, SettingRow, Settings, key_rows, setting_rows};
//!
//! let environment = Environment::empty().with("HOME", "/home/ada").with("WINDLASS_MODEL", "mine");
//! let rows: Vec<SettingRow> = setting_rows(&Settings::load(None, environment)?);
//! assert_eq!((rows[0].key.as_str(), rows[0].value.as_str()), ("model", "\"mine\""));
//! assert!(rows[0].origin.contains("WINDLASS_MODEL") && rows[0].doc.contains("model"));
//!
//! let keys: Vec<KeyRow> = key_rows();
//! assert!(keys.iter().any(|key| key.name == "max_steps"));
//! # Ok::<(), windlass::Error>(())
//! ```

use schemars::JsonSchema;
use serde::Serialize;
use windlass_core::workspace::Redactor;
use windlass_host::config::known;
use windlass_host::secret::Secrets;

use super::{KEYS, Settings, variable};

/// A setting that has a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SettingRow {
    pub key: String,
    /// The effective value in TOML, without secrets such as the password in a URL.
    pub value: String,
    /// The file and line, the variable or the flag that set it.
    pub origin: String,
    pub doc: &'static str,
}

/// A key that settings files and variables can set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct KeyRow {
    /// A part that is `*` stands for any name, as in `prices.*.input`.
    pub name: &'static str,
    /// The type of the value, such as `a whole number`.
    pub kind: String,
    pub doc: &'static str,
    /// The environment variable that sets it; `None` for names with `*`.
    pub variable: Option<String>,
}

/// All settings that have a value, in the order of their keys.
#[must_use]
pub fn setting_rows(settings: &Settings) -> Vec<SettingRow> {
    let secrets = Secrets::default();
    let set = settings.layers.iter();
    set.map(|(key, setting)| SettingRow {
        key: key.to_owned(),
        value: secrets.redact(&setting.value.to_string()).into_owned(),
        origin: setting.origin.to_string(),
        doc: known(KEYS, key).map_or("", |known| known.doc),
    })
    .collect()
}

/// All keys, in the order of the reference.
#[must_use]
pub fn key_rows() -> Vec<KeyRow> {
    let keys = KEYS.iter();
    keys.map(|key| KeyRow {
        name: key.name,
        kind: key.kind.to_string(),
        doc: key.doc,
        variable: variable(key),
    })
    .collect()
}
