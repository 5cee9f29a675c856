//! Remarks for a person that belong to no session: the library prints nothing, so the caller gets them.

use std::fmt;
use std::sync::Arc;

/// A remark for a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice<'a> {
    /// Something is not as it was asked for, and the work goes on.
    Warning(&'a str),
    /// Something that takes a while has begun.
    Progress(&'a str),
}

/// Receives remarks. The default drops them.
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
    /// Calls this function for each remark.
    pub fn new(receive: impl Fn(Notice<'_>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(receive))
    }

    /// Passes a warning on.
    pub fn warn(&self, text: &str) {
        (self.0)(Notice::Warning(text));
    }

    /// Says that something begins which takes a while.
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
