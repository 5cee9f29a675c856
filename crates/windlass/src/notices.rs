//! Warnings and progress messages that belong to no session. The library does not print, so the caller receives them.

use std::fmt;
use std::sync::Arc;

/// A message for the user that belongs to no session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice<'a> {
    /// A problem that does not stop the operation.
    Warning(&'a str),
    /// The beginning of an operation that takes some time.
    Progress(&'a str),
}

/// The receiver of [`Notice`]s. The default drops them.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use windlass::{Notice, Notices};
///
/// let seen = Arc::new(Mutex::new(Vec::new()));
/// let list = Arc::clone(&seen);
/// let notices = Notices::new(move |notice| list.lock().unwrap().push(format!("{notice:?}")));
/// notices.warn("bandit is not installed");
/// notices.progress("installing codex");
/// assert_eq!(
///     *seen.lock().unwrap(),
///     [r#"Warning("bandit is not installed")"#, r#"Progress("installing codex")"#]
/// );
/// ```
#[derive(Clone)]
pub struct Notices(Arc<dyn Fn(Notice<'_>) + Send + Sync>);

impl Notices {
    /// Calls this function for each notice.
    pub fn new(receive: impl Fn(Notice<'_>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(receive))
    }

    /// Sends a [`Notice::Warning`].
    pub fn warn(&self, text: &str) {
        (self.0)(Notice::Warning(text));
    }

    /// Sends a [`Notice::Progress`].
    pub fn progress(&self, text: &str) {
        (self.0)(Notice::Progress(text));
    }
}

impl Default for Notices {
    fn default() -> Self {
        Self::new(|_| ())
    }
}

impl fmt::Debug for Notices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Notices")
    }
}
