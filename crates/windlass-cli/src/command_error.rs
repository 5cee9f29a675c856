//! The error of a command: a message, an optional hint and an exit code.

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
use windlass_text::sanitize::message;
use windlass_tui::TerminalRestorer;

use crate::exit;

/// An error that ends a command.
#[derive(Debug)]
pub(crate) struct CommandError {
    code: u8,
    message: String,
    hint: Option<String>,
}

impl CommandError {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
        }
    }

    /// An error of usage or configuration: exit code 2.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(exit::USAGE, message)
    }

    /// Any other error: exit code 1.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new(exit::FAILED, message)
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }

    pub(crate) fn print(&self) {
        // The message may quote a model, a file, a server, or a URL with a password.
        let secrets = Secrets::default();
        say!("error: {}", message(&secrets.redact(&self.message)));
        if let Some(hint) = &self.hint {
            say!("hint: {}", message(&secrets.redact(hint)));
        }
    }

    /// The message without the hint.
    pub(crate) fn message(&self) -> String {
        self.message.clone()
    }

    #[cfg(test)]
    pub(crate) fn text(&self) -> String {
        format!("{} | {}", self.message, self.hint.as_deref().unwrap_or(""))
    }
}

/// The terminal of the interface, while it is open.
static TERMINAL: parking_lot::Mutex<Option<TerminalRestorer>> = parking_lot::Mutex::new(None);

/// Lets the panic hook restore this terminal before it prints.
pub(crate) fn restore_after_panic(terminal: TerminalRestorer) {
    *TERMINAL.lock() = Some(terminal);
}

/// Installs the hook that prints panics, which are bugs of windlass. The message may quote any text, so it is printed
/// without secrets and terminal escapes.
pub(crate) fn install_panic_hook() {
    std::panic::set_hook(Box::new(|panic| {
        // A thread that panics while it holds the lock must not wait for itself.
        if let Some(terminal) = TERMINAL.try_lock().as_deref().and_then(Option::as_ref) {
            terminal.restore_now();
        }
        let values =
            std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(keeps_secret));
        let secrets = Secrets::new(
            values
                .filter_map(|(_, value)| value.into_string().ok())
                .map(Secret::new),
        );
        // Tokio panics if it cannot start a thread.
        if std::thread::Builder::new().spawn(|| ()).is_err() {
            say!("error: the system refuses to start another thread or process");
            say!(
                "hint: raise the limit (`ulimit -u`, or `--pids-limit` of the container), or end other programs"
            );
            return;
        }
        say!(
            "error: internal error: {}",
            message(&secrets.redact(&panic.to_string()))
        );
        say!("hint: the session is saved; please report this bug with the steps that led to it");
    }));
}

impl From<windlass::Error> for CommandError {
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
            message: err.message().to_owned(),
            hint: err.advice().map(str::to_owned),
        }
    }
}

/// Converts errors of other crates through [`windlass::Error`], which has the messages, hints and kinds.
macro_rules! convert_through_library_error {
    ($($error:ty),*) => {$(
        impl From<$error> for CommandError {
            fn from(err: $error) -> Self {
                windlass::Error::from(err).into()
            }
        }
    )*};
}

convert_through_library_error!(
    ConfigError,
    SecretError,
    RegistryError,
    FileError,
    StoreError,
    EngineError,
    std::io::Error
);
