//! What a person is told when a command cannot do its work: a sentence, a hint, an exit code.

use crate::out::say;
use std::process::ExitCode;

use windlass::ErrorKind;
use windlass::agents::RegistryError;
use windlass::core::gate::keeps_secret;
use windlass::core::store::StoreError;
use windlass::core::workspace::{FileError, Redactor};
use windlass::engine::EngineError;
use windlass::machine::{Secret, SecretError, Secrets};
use windlass::settings::ConfigError;

use crate::exit;
use crate::safe::message;

/// A command's end in failure.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    what: String,
    hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(code: u8, what: impl Into<String>) -> Self {
        Self {
            code,
            what: what.into(),
            hint: None,
        }
    }

    /// Wrong usage or configuration.
    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self::new(exit::USAGE, what)
    }

    /// Anything else went wrong.
    pub(crate) fn failed(what: impl Into<String>) -> Self {
        Self::new(exit::FAILED, what)
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }

    pub(crate) fn print(&self) {
        // The message may quote a model, a file or a server, and an address with a password in it.
        let secrets = Secrets::default();
        say!("error: {}", message(&secrets.redact(&self.what)));
        if let Some(hint) = &self.hint {
            say!("hint: {}", message(&secrets.redact(hint)));
        }
    }

    /// What happened, without the hint.
    pub(crate) fn message(&self) -> String {
        self.what.clone()
    }

    /// What to do about it.
    pub(crate) fn to_do(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    #[cfg(test)]
    pub(crate) fn text(&self) -> String {
        format!("{} | {}", self.what, self.hint.as_deref().unwrap_or(""))
    }
}

/// A panic is a mistake of ours. What it says may quote anything, so it is told like any other text: without secrets
/// and without what drives a terminal.
pub(crate) fn tell_of_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let values =
            std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(keeps_secret));
        let secrets = Secrets::new(
            values
                .filter_map(|(_, value)| value.into_string().ok())
                .map(Secret::new),
        );
        // The asynchronous runtime panics where it cannot start a thread.
        if std::thread::Builder::new().spawn(|| ()).is_err() {
            say!("error: no thread or process can be started any more");
            say!(
                "hint: raise the limit (`ulimit -u`, or `--pids-limit` of the container), or end other programs"
            );
            return;
        }
        say!(
            "error: this should not happen: {}",
            message(&secrets.redact(&panic.to_string()))
        );
        say!("hint: the session is kept; please report this with what you did before");
    }));
}

impl From<windlass::Error> for Failure {
    fn from(err: windlass::Error) -> Self {
        let code = match err.kind() {
            ErrorKind::Usage => exit::USAGE,
            ErrorKind::Provider => exit::PROVIDER,
            ErrorKind::Isolation => exit::ISOLATION,
            ErrorKind::Interrupted => exit::INTERRUPTED,
            _ => exit::FAILED,
        };
        Self {
            code,
            what: err.message().to_owned(),
            hint: err.advice().map(str::to_owned),
        }
    }
}

/// Errors of the crates below are told as the library tells them.
macro_rules! as_the_library_tells {
    ($($error:ty),*) => {$(
        impl From<$error> for Failure {
            fn from(err: $error) -> Self {
                windlass::Error::from(err).into()
            }
        }
    )*};
}

as_the_library_tells!(
    ConfigError,
    SecretError,
    RegistryError,
    FileError,
    StoreError,
    EngineError,
    std::io::Error
);
