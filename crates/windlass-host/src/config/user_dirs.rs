//! The directories for a user's settings and data, by the XDG rules. The caller passes the lookup of variables.

use std::ffi::OsString;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::ConfigError;

/// The directories of one user, and that of the administrator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// The home directory, which cannot be a workspace.
    pub home: Option<PathBuf>,
    /// The directory of `config.toml` and `credentials.toml`.
    pub config_dir: PathBuf,
    /// The directory of sessions and all other stored data.
    pub data_dir: PathBuf,
    /// The directory of the administrator's settings.
    pub managed_dir: PathBuf,
}

impl Places {
    /// Finds the directories by `XDG_CONFIG_HOME`, `XDG_DATA_HOME` and `HOME`. As XDG demands, a relative path counts
    /// as unset.
    pub fn from_env(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Self, ConfigError> {
        let absolute = |name: &str| {
            lookup(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let home = absolute("HOME");
        let dir = |variable: &str, below: &str| {
            let own = absolute(variable).or_else(|| home.as_ref().map(|home| home.join(below)));
            own.map(|dir| dir.join("windlass")).ok_or_else(|| {
                ConfigError(format!(
                    "neither {variable} nor HOME is set to an absolute path; set one of them"
                ))
            })
        };
        Ok(Self {
            config_dir: dir("XDG_CONFIG_HOME", ".config")?,
            data_dir: dir("XDG_DATA_HOME", ".local/share")?,
            managed_dir: PathBuf::from("/etc/windlass"),
            home,
        })
    }

    /// Replaces a data directory that is not writable, as with a read-only home, by one in `temporary`. Returns a
    /// warning then. A directory that the user set with `XDG_DATA_HOME` (`named`) is never replaced.
    pub fn writable(
        self,
        named: bool,
        temporary: &Path,
    ) -> Result<(Self, Option<String>), ConfigError> {
        let nearest = self
            .data_dir
            .ancestors()
            .find(|dir| dir.exists())
            .unwrap_or(&self.data_dir);
        if named || rustix::fs::access(nearest, rustix::fs::Access::WRITE_OK).is_ok() {
            return Ok((self, None));
        }
        let own = rustix::process::geteuid();
        let data_dir = temporary.join(format!("windlass-{}", own.as_raw()));
        let usual = self.data_dir.display();
        let failed = |why: &str| {
            let place = data_dir.display();
            ConfigError(format!(
                "{usual} cannot be written, and {place} {why}; set XDG_DATA_HOME to a directory of yours"
            ))
        };
        match std::fs::DirBuilder::new().mode(0o700).create(&data_dir) {
            Err(err) if err.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(failed(&format!("cannot be created: {err}")));
            }
            _ => {}
        }
        // In a shared directory another user can create a directory of this name.
        let about = data_dir
            .symlink_metadata()
            .map_err(|err| failed(&err.to_string()))?;
        if !about.is_dir() || about.uid() != own.as_raw() || about.mode() & 0o077 != 0 {
            return Err(failed("belongs to another user or is open to others"));
        }
        let warning = format!(
            "{usual} cannot be written, so sessions are kept in {} and may be lost after a restart; set XDG_DATA_HOME to keep \
             them",
            data_dir.display()
        );
        Ok((Self { data_dir, ..self }, Some(warning)))
    }

    /// Returns the path of the user's settings file.
    #[must_use]
    pub fn config_file(&self) -> PathBuf {
        self.config_dir.join("config.toml")
    }

    /// Returns the path of the user's credentials file.
    #[must_use]
    pub fn credentials_file(&self) -> PathBuf {
        self.config_dir.join("credentials.toml")
    }

    /// Returns the file of the rules that the user approved permanently for one workspace. It is never in the workspace
    /// itself.
    #[must_use]
    pub fn rules_file(&self, root: &std::path::Path) -> PathBuf {
        let name = blake3::hash(root.as_os_str().as_encoded_bytes()).to_hex();
        self.data_dir
            .join("rules")
            .join(format!("{}.toml", &name[..32]))
    }

    /// Returns the directory of the user's decisions to trust the settings of projects. It is never in a project
    /// itself.
    #[must_use]
    pub fn trust_dir(&self) -> PathBuf {
        self.data_dir.join("trust")
    }

    /// Returns the directory of the copies of isolated runs.
    #[must_use]
    pub fn transactions_dir(&self) -> PathBuf {
        self.data_dir.join("transactions")
    }

    /// Returns the directory of the agents that Windlass installed for itself.
    #[must_use]
    pub fn runtimes_dir(&self) -> PathBuf {
        self.data_dir.join("runtimes")
    }

    /// Returns the directory of the file contents that undo restores.
    #[must_use]
    pub fn undo_dir(&self) -> PathBuf {
        self.data_dir.join("undo")
    }

    /// Returns the directory of the session logs.
    #[must_use]
    pub fn sessions_dir(&self) -> PathBuf {
        self.data_dir.join("sessions")
    }
}
