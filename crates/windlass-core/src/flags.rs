//! The command-line flags that a run was started with, as the log stores them.
//!
//! ```
//! use windlass_core::flags::SavedFlags;
//!
//! let mut flags = SavedFlags::default();
//! flags.set("model", "m".into());
//! assert!(flags.get("model").is_some());
//! assert!(flags.unset("model"));
//! ```

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Flags by name: a switch, a number, a text, or a list of texts. Flags that were not given are absent. Values that
/// only a later version understands are kept unchanged.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct SavedFlags(BTreeMap<String, Value>);

impl SavedFlags {
    /// Whether no flag was given.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets one flag, replacing its previous value.
    pub fn set(&mut self, name: impl Into<String>, value: Value) {
        self.0.insert(name.into(), value);
    }

    /// Removes one flag. Returns whether it was set.
    pub fn unset(&mut self, name: &str) -> bool {
        self.0.remove(name).is_some()
    }

    /// The value of one flag, if it was given.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// All flags, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Merges two sets of flags. Where both have a flag, the value of `other` applies.
    #[must_use]
    pub fn overridden_by(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Mutable access to the values, for redaction.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Value> {
        self.0.values_mut()
    }
}

impl FromIterator<(String, Value)> for SavedFlags {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(flags: I) -> Self {
        Self(flags.into_iter().collect())
    }
}
