//! The flags that a run was started with, as the log keeps them.
//!
//! ```
//! use windlass_core::flags::{FlagValue, SavedFlags};
//!
//! let mut flags = SavedFlags::default();
//! flags.set("model", FlagValue::Text("m".into()));
//! assert!(flags.get("model").is_some());
//! assert!(flags.unset("model"));
//! ```

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Flags by name, without the ones that were not given.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct SavedFlags(BTreeMap<String, FlagValue>);

/// The value of a flag.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum FlagValue {
    /// A flag without a value, or with `true` or `false`.
    Switch(bool),
    /// A whole number.
    Number(u64),
    /// Anything else with one value.
    Text(String),
    /// A flag that may be given more than once.
    List(Vec<String>),
    /// A value of a later version, kept as it is.
    Other(serde_json::Value),
}

impl SavedFlags {
    /// Whether no flag was given.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets one flag.
    pub fn set(&mut self, name: impl Into<String>, value: FlagValue) {
        self.0.insert(name.into(), value);
    }

    /// Removes one flag. Says whether it was there.
    pub fn unset(&mut self, name: &str) -> bool {
        self.0.remove(name).is_some()
    }

    /// The value of one flag.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&FlagValue> {
        self.0.get(name)
    }

    /// All flags, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &FlagValue)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// These flags with others on top: where both have one, the other's value applies.
    #[must_use]
    pub fn overridden_by(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Every text in the values, to be redacted.
    pub fn texts_mut(&mut self) -> impl Iterator<Item = &mut String> {
        self.0.values_mut().flat_map(|value| match value {
            FlagValue::Text(text) => std::slice::from_mut(text).iter_mut(),
            FlagValue::List(texts) => texts.iter_mut(),
            FlagValue::Switch(_) | FlagValue::Number(_) | FlagValue::Other(_) => [].iter_mut(),
        })
    }
}

impl FromIterator<(String, FlagValue)> for SavedFlags {
    fn from_iter<I: IntoIterator<Item = (String, FlagValue)>>(flags: I) -> Self {
        Self(flags.into_iter().collect())
    }
}
