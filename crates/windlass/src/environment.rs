//! The environment as a value. The library reads variables only from here, so a caller can replace the environment of
//! the process.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// Environment variables, the current directory and the program that acts as the sandbox helper.
///
/// ```
/// use windlass::Environment;
///
/// let environment = Environment::empty().with("HOME", "/home/ada");
/// assert_eq!(environment.text("HOME").as_deref(), Some("/home/ada"));
/// assert_eq!(environment.text("ANTHROPIC_API_KEY"), None);
/// ```
///
/// ```
/// use windlass::Environment;
///
/// let environment = Environment::empty().with("PATH", "/usr/bin").with_helper("/usr/bin/windlass");
/// assert_eq!(environment.text("PATH").as_deref(), Some("/usr/bin"));
/// assert_eq!(environment.get("HOME"), None);
/// assert_eq!(environment.path("PATH"), Some("/usr/bin".into()));
/// assert_eq!(environment.variables().count(), 1);
/// assert_eq!(environment.helper(), Some("/usr/bin/windlass".as_ref()));
/// assert!(environment.current_dir().is_none() && environment.temp_dir().is_absolute());
/// assert!(Environment::of_process().current_dir().is_some());
/// ```
#[derive(Debug, Clone, Default)]
pub struct Environment {
    variables: BTreeMap<OsString, OsString>,
    current_dir: Option<PathBuf>,
    helper: Option<PathBuf>,
}

impl Environment {
    /// A copy of the environment of this process.
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "the only place where the library reads the environment of its process, at the caller's request"
    )]
    pub fn of_process() -> Self {
        Self {
            variables: std::env::vars_os().collect(),
            current_dir: std::env::current_dir().ok(),
            helper: std::env::current_exe().ok(),
        }
    }

    /// An environment without variables and current directory. The sandbox helper is the current executable.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            helper: std::env::current_exe().ok(),
            ..Self::default()
        }
    }

    /// Sets a variable, and replaces an earlier value.
    #[must_use]
    pub fn with(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.variables.insert(name.into(), value.into());
        self
    }

    /// Removes a variable.
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.variables.remove(OsStr::new(name));
        self
    }

    /// Sets the program that acts as the sandbox helper: the `windlass` binary, or any program that links this crate.
    #[must_use]
    pub fn with_helper(mut self, program: impl Into<PathBuf>) -> Self {
        self.helper = Some(program.into());
        self
    }

    /// The value of a variable.
    pub fn get(&self, name: impl AsRef<OsStr>) -> Option<&OsStr> {
        self.variables.get(name.as_ref()).map(OsString::as_os_str)
    }

    /// The value of a variable; `None` if it is not valid UTF-8.
    pub fn text(&self, name: &str) -> Option<String> {
        self.get(name)?.to_str().map(str::to_owned)
    }

    /// The value of a variable as a path; `None` if the path is not absolute.
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        self.get(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    }

    /// All variables with their values, sorted by name.
    pub fn variables(&self) -> impl Iterator<Item = (OsString, OsString)> + '_ {
        self.variables
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()))
    }

    /// The directory to which relative paths refer.
    pub fn current_dir(&self) -> Option<&std::path::Path> {
        self.current_dir.as_deref()
    }

    /// The directory for temporary files: `TMPDIR`, or `/tmp`.
    pub fn temp_dir(&self) -> PathBuf {
        self.path("TMPDIR").unwrap_or_else(|| "/tmp".into())
    }

    /// The program that acts as the sandbox helper.
    pub fn helper(&self) -> Option<&std::path::Path> {
        self.helper.as_deref()
    }
}
