//! How an agent comes onto a machine: its package, the version that was certified, and what it needs. Data alone; the
//! registry installs.

use std::path::{Path, PathBuf};

/// What a package's name has in the place of this machine's system and processor.
const PLATFORM: &str = "{platform}";

/// How an agent comes onto a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Install {
    /// It is here.
    BuiltIn,
    /// A package of npm.
    Npm {
        /// Its name; `{platform}` in it stands for a word such as `linux-x64`.
        package: &'static str,
        /// The certified version.
        version: &'static str,
        /// Where its program is below `node_modules`.
        program: &'static str,
        /// The oldest Node it runs on; none where it needs no Node.
        node: Option<u32>,
    },
    /// Packages of PyPI in an environment of their own.
    Pip {
        /// The packages with their versions; the first is the agent.
        packages: &'static [&'static str],
        /// The certified version.
        version: &'static str,
        /// The versions of all packages that those need, as a file of pip's constraints.
        pins: &'static str,
        /// The Pythons it runs on, from and to: 3.N.
        python: (u32, u32),
        /// Where its program is in the environment.
        program: &'static str,
    },
}

impl Install {
    /// The version that is installed, which is the one that was certified.
    pub fn version(&self) -> Option<&'static str> {
        match self {
            Self::BuiltIn => None,
            Self::Npm { version, .. } | Self::Pip { version, .. } => Some(version),
        }
    }

    /// The Pythons it needs, in words.
    pub fn python(&self) -> Option<(u32, u32)> {
        match self {
            Self::Pip { python, .. } => Some(*python),
            Self::BuiltIn | Self::Npm { .. } => None,
        }
    }

    /// Its package of PyPI, by its name alone.
    pub fn package(&self) -> Option<&'static str> {
        match self {
            Self::Pip { packages, .. } => packages.first()?.split(['=', '[', '<', '>', '~']).next(),
            Self::BuiltIn | Self::Npm { .. } => None,
        }
    }

    /// Where its program is, below the folder of its install.
    pub fn program(&self) -> Option<PathBuf> {
        match self {
            Self::BuiltIn => None,
            Self::Npm { program, .. } => Some(Path::new("node_modules").join(platformed(program))),
            Self::Pip { program, .. } => Some(PathBuf::from(program)),
        }
    }

    /// How a person would install it without us.
    pub fn by_hand(&self) -> String {
        match self {
            Self::BuiltIn => "built in".to_owned(),
            Self::Npm {
                package, version, ..
            } => format!("npm install -g {}@{version}", platformed(package)),
            Self::Pip { packages, .. } => format!("pip install {}", packages.join(" ")),
        }
    }
}

/// A package's name for this machine.
pub fn platformed(name: &str) -> String {
    let system = if cfg!(target_os = "macos") {
        "darwin"
    } else {
        std::env::consts::OS
    };
    let processor = match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    };
    name.replace(PLATFORM, &format!("{system}-{processor}"))
}
