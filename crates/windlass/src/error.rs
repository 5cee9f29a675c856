//! The error type of the library: a kind, a message, and advice for the user.

use windlass_core::store::{StoreError, StoreErrorKind};
use windlass_core::workspace::FileError;
use windlass_engine::EngineError;
use windlass_host::config::ConfigError;
use windlass_host::secret::SecretError;
use windlass_registry::{RegistryError, RegistryErrorKind};

/// The reason why an operation failed or a run did not start. A run that started and failed is not an error: its
/// [`RunResult`](crate::RunResult) has the outcome.
///
/// ```
/// use windlass::{Error, ErrorKind};
///
/// let error = Error::new(ErrorKind::Usage, "there is no prompt").hint("give one");
/// assert_eq!(error.to_string(), "there is no prompt");
/// assert_eq!((error.kind(), error.advice()), (ErrorKind::Usage, Some("give one")));
/// assert_eq!(Error::usage("no such file").message(), "no such file");
/// ```
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
    hint: Option<String>,
}

/// The kinds of errors that a caller may handle differently. The command line derives its exit code from the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument or a setting is wrong. No run was started.
    Usage,
    /// The model cannot be called: there is no key, or no provider.
    Provider,
    /// The requested isolation is not available.
    Isolation,
    /// The content of a file cannot be used.
    Content,
    /// The current state does not allow the operation, such as a run in progress or a conflict with later edits.
    Conflict,
    /// A user or a signal interrupted the operation.
    Interrupted,
    Failed,
}

impl Error {
    /// Makes an error without advice.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            hint: None,
        }
    }

    /// Makes an error of kind [`ErrorKind::Usage`].
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage, message)
    }

    /// Adds advice for the user, which [`Error::advice`] returns.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The kind, for callers that handle kinds differently.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The description of the error, without the advice.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The action that the user can take, if there is one.
    pub fn advice(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    #[cfg(test)]
    pub(crate) fn text(&self) -> String {
        format!("{} | {}", self.message, self.advice().unwrap_or_default())
    }
}

impl From<ConfigError> for Error {
    fn from(err: ConfigError) -> Self {
        Self::usage(err.to_string())
    }
}

impl From<SecretError> for Error {
    fn from(err: SecretError) -> Self {
        Self::usage(err.to_string())
    }
}

impl From<RegistryError> for Error {
    fn from(err: RegistryError) -> Self {
        let kind = match err.kind {
            RegistryErrorKind::Usage => ErrorKind::Usage,
            RegistryErrorKind::Failed => ErrorKind::Failed,
            RegistryErrorKind::Interrupted => ErrorKind::Interrupted,
        };
        Self {
            kind,
            message: err.message().to_owned(),
            hint: err.to_do().map(str::to_owned),
        }
    }
}

impl From<FileError> for Error {
    fn from(err: FileError) -> Self {
        Self::usage(err.message)
    }
}

impl From<StoreError> for Error {
    fn from(err: StoreError) -> Self {
        let kind = match err.kind {
            StoreErrorKind::NotFound | StoreErrorKind::Exists => ErrorKind::Usage,
            _ => ErrorKind::Failed,
        };
        let error = Self::new(kind, err.message);
        match err.kind {
            StoreErrorKind::NotFound => error.hint("`windlass sessions list` lists the sessions"),
            StoreErrorKind::Full => error.hint("free some disk space; the events so far are saved"),
            _ => error,
        }
    }
}

impl From<EngineError> for Error {
    fn from(err: EngineError) -> Self {
        match err {
            EngineError::Store(err) => err.into(),
            EngineError::Unmet(unmet) => Self::usage(unmet.to_string()),
            EngineError::Unusable { ref tool, .. } => Self::usage(err.to_string()).hint(format!(
                "exclude it from this run with the setting `rules.deny = [\"{tool}\"]`, or use another runtime"
            )),
            EngineError::OtherWorkspace { ref workspace, .. } => {
                let hint = format!("to resume it there, add `-C {workspace}`");
                Self::usage(err.to_string()).hint(hint)
            }
            other => Self::new(ErrorKind::Failed, other.to_string()),
        }
    }
}

impl From<std::io::Error> for Error {
    fn from(err: std::io::Error) -> Self {
        Self::new(ErrorKind::Failed, err.to_string())
    }
}
