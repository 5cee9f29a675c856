//! The environment that settings are read from, as a value: the library looks at the process only where the caller says
//! so.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// Environment variables, the current directory and the program that acts as the sandbox's helper.
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
    /// The environment of this process, now.
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place where the library looks at its process, and only when it is called"
    )]
    pub fn of_process() -> Self {
        Self {
            variables: std::env::vars_os().collect(),
            current_dir: std::env::current_dir().ok(),
            helper: std::env::current_exe().ok(),
        }
    }

    /// No variables and no current directory. The sandbox's helper is this program.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            helper: std::env::current_exe().ok(),
            ..Self::default()
        }
    }

    /// Adds a variable.
    #[must_use]
    pub fn with(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.variables.insert(name.into(), value.into());
        self
    }

    /// Names the program that acts as the sandbox's helper: the `windlass` binary, or any program that links this crate.
    #[must_use]
    pub fn with_helper(mut self, program: impl Into<PathBuf>) -> Self {
        self.helper = Some(program.into());
        self
    }

    /// The value of a variable.
    pub fn get(&self, name: impl AsRef<OsStr>) -> Option<&OsStr> {
        self.variables.get(name.as_ref()).map(OsString::as_os_str)
    }

    /// The value of a variable, where it is UTF-8.
    pub fn text(&self, name: &str) -> Option<String> {
        self.get(name)?.to_str().map(str::to_owned)
    }

    /// The value of a variable, where it is an absolute path.
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        self.get(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    }

    /// All variables.
    pub fn variables(&self) -> impl Iterator<Item = (OsString, OsString)> + '_ {
        self.variables
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()))
    }

    /// The directory that relative paths start from.
    pub fn current_dir(&self) -> Option<&std::path::Path> {
        self.current_dir.as_deref()
    }

    /// The folder for temporary files.
    pub fn temp_dir(&self) -> PathBuf {
        self.path("TMPDIR").unwrap_or_else(|| "/tmp".into())
    }

    /// The program that acts as the sandbox's helper.
    pub fn helper(&self) -> Option<&std::path::Path> {
        self.helper.as_deref()
    }
}
