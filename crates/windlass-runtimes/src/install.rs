//! The installation of an agent: its package, the certified version, and its requirements. Only data; the registry
//! installs.

use std::path::{Path, PathBuf};

/// Placeholder in a package name for the operating system and processor.
const PLATFORM: &str = "{platform}";

/// The installation of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Install {
    BuiltIn,
    Npm {
        /// `{platform}` in the name stands for a word such as `linux-x64`.
        package: &'static str,
        version: &'static str,
        /// The path of the program, relative to `node_modules`.
        program: &'static str,
        /// The oldest supported major version of Node; `None` if the program needs no Node.
        node: Option<u32>,
    },
    /// PyPI packages in their own virtual environment.
    Pip {
        /// The packages with their versions. The first one is the agent.
        packages: &'static [&'static str],
        version: &'static str,
        /// The versions of all dependencies, as a constraints file of pip.
        pins: &'static str,
        /// The oldest and the newest supported minor version of Python 3.
        python: (u32, u32),
        /// The path of the program, relative to the environment.
        program: &'static str,
    },
}

impl Install {
    /// The certified version, which is the one that the registry installs.
    pub fn version(&self) -> Option<&'static str> {
        match self {
            Self::BuiltIn => None,
            Self::Npm { version, .. } | Self::Pip { version, .. } => Some(version),
        }
    }

    /// The oldest and the newest supported minor version of Python 3.
    pub fn python(&self) -> Option<(u32, u32)> {
        match self {
            Self::Pip { python, .. } => Some(*python),
            Self::BuiltIn | Self::Npm { .. } => None,
        }
    }

    /// The name of the PyPI package.
    pub fn package(&self) -> Option<&'static str> {
        match self {
            Self::Pip { packages, .. } => packages.first()?.split(['=', '[', '<', '>', '~']).next(),
            Self::BuiltIn | Self::Npm { .. } => None,
        }
    }

    /// The path of the program, relative to the directory of the installation.
    pub fn program(&self) -> Option<PathBuf> {
        match self {
            Self::BuiltIn => None,
            Self::Npm { program, .. } => {
                Some(Path::new("node_modules").join(for_this_platform(program)))
            }
            Self::Pip { program, .. } => Some(PathBuf::from(program)),
        }
    }

    /// The command with which a user would install the agent without Windlass.
    pub fn manual_command(&self) -> String {
        match self {
            Self::BuiltIn => "built in".to_owned(),
            Self::Npm {
                package, version, ..
            } => format!("npm install -g {}@{version}", for_this_platform(package)),
            Self::Pip { packages, .. } => format!("pip install {}", packages.join(" ")),
        }
    }
}

/// Replaces `{platform}` in a package name for this machine.
pub fn for_this_platform(name: &str) -> String {
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
