//! The error type of the registry: a kind, a message, and advice for the user.

use std::fmt;

/// The kind of an error. The command line derives its exit code from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegistryErrorKind {
    /// An argument or a setting is wrong.
    Usage,
    /// An operation on this machine failed.
    Failed,
    /// A signal interrupted the operation.
    Interrupted,
}

/// An error with advice for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryError {
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

    /// The description of the error, without the advice.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.what
    }

    /// The action that the user can take, if there is one.
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
