//! Errors of the registry: what happened, what to do about it, and of which kind it is.

use std::fmt;

/// What kind of error it is; a surface makes its exit code of this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegistryErrorKind {
    /// Wrong usage or settings.
    Usage,
    /// Something on this machine failed.
    Failed,
    /// A signal ended it.
    Interrupted,
}

/// An error with a hint for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryError {
    /// Of which kind it is.
    pub kind: RegistryErrorKind,
    what: String,
    hint: Option<String>,
}

impl RegistryError {
    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self::new(RegistryErrorKind::Usage, what)
    }

    pub(crate) fn failed(what: impl Into<String>) -> Self {
        Self::new(RegistryErrorKind::Failed, what)
    }

    pub(crate) fn interrupted(what: impl Into<String>) -> Self {
        Self::new(RegistryErrorKind::Interrupted, what)
    }

    fn new(kind: RegistryErrorKind, what: impl Into<String>) -> Self {
        Self {
            kind,
            what: what.into(),
            hint: None,
        }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// What happened, without the hint.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.what
    }

    /// What to do about it.
    #[must_use]
    pub fn to_do(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    #[cfg(test)]
    pub(crate) fn text(&self) -> String {
        format!("{} | {}", self.what, self.hint.as_deref().unwrap_or(""))
    }
}

impl fmt::Display for RegistryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for RegistryError {}

impl From<std::io::Error> for RegistryError {
    fn from(err: std::io::Error) -> Self {
        Self::failed(err.to_string())
    }
}
