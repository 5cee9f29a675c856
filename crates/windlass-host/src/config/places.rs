//! Where settings and data of a user live, by the XDG rules, from a lookup that the caller brings.

use std::ffi::OsString;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::ConfigError;

/// The directories of one user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// The home directory, which is no workspace.
    pub home: Option<PathBuf>,
    /// `config.toml` and `credentials.toml`.
    pub config_dir: PathBuf,
    /// Sessions and everything else that is kept.
    pub data_dir: PathBuf,
    /// The administrator's settings.
    pub managed_dir: PathBuf,
}

impl Places {
    /// By `XDG_CONFIG_HOME`, `XDG_DATA_HOME` and `HOME`. As XDG says, a relative path counts as unset.
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

    /// The same with a data directory in `temporary` where the usual one cannot be written, as with a read-only home; and
    /// what to say about it. A directory that the user named with `XDG_DATA_HOME` is never replaced.
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
                "{usual} cannot be written, and {place} {why}; set XDG_DATA_HOME to a folder of yours"
            ))
        };
        match std::fs::DirBuilder::new().mode(0o700).create(&data_dir) {
            Err(err) if err.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(failed(&format!("neither: {err}")));
            }
            _ => {}
        }
        // Anybody can make a folder of this name in a shared one.
        let about = data_dir
            .symlink_metadata()
            .map_err(|err| failed(&err.to_string()))?;
        if !about.is_dir() || about.uid() != own.as_raw() || about.mode() & 0o077 != 0 {
            return Err(failed("is open to other users"));
        }
        let warning = format!(
            "{usual} cannot be written, so sessions are kept in {} and may be gone after a restart; set XDG_DATA_HOME to keep \
             them",
            data_dir.display()
        );
        Ok((Self { data_dir, ..self }, Some(warning)))
    }

    /// The user's settings file.
    #[must_use]
    pub fn config_file(&self) -> PathBuf {
        self.config_dir.join("config.toml")
    }

    /// The user's credentials file.
    #[must_use]
    pub fn credentials_file(&self) -> PathBuf {
        self.config_dir.join("credentials.toml")
    }

    /// What a person approved for good in one workspace; never in the workspace itself.
    #[must_use]
    pub fn rules_file(&self, root: &std::path::Path) -> PathBuf {
        let name = blake3::hash(root.as_os_str().as_encoded_bytes()).to_hex();
        self.data_dir
            .join("rules")
            .join(format!("{}.toml", &name[..32]))
    }

    /// What a person said about the settings of projects; never in a project itself.
    #[must_use]
    pub fn trust_dir(&self) -> PathBuf {
        self.data_dir.join("trust")
    }

    /// Where the copies of isolated runs are kept.
    #[must_use]
    pub fn transactions_dir(&self) -> PathBuf {
        self.data_dir.join("transactions")
    }

    /// Where agents are that were installed for us alone.
    #[must_use]
    pub fn runtimes_dir(&self) -> PathBuf {
        self.data_dir.join("runtimes")
    }

    /// Where what was displaced is kept, to be undone.
    #[must_use]
    pub fn undo_dir(&self) -> PathBuf {
        self.data_dir.join("undo")
    }

    /// Where sessions are kept.
    #[must_use]
    pub fn sessions_dir(&self) -> PathBuf {
        self.data_dir.join("sessions")
    }
}
