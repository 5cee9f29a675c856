//! The description of a sandbox: plain data that the caller builds and the helper reads.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Everything the helper needs to know before the first command. A path marked "canonical" must be absolute and without
/// symlinks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// The workspace, which is the one tree that commands may change. Canonical.
    pub root: PathBuf,
    /// The directory that commands see at the workspace's path.
    pub tree: Tree,
    /// Directories outside the workspace, such as a git directory, that get a private overlay. The caller owns the
    /// overlay, and it stays when the session ends.
    pub layers: Vec<OverlayDir>,
    /// The directory with the overlays of single commands ([`crate::Within::Layer`]). It belongs to the caller and lies
    /// outside of everything that commands see. Each overlay has a folder in it with the folders `upper` and `work`,
    /// both empty and on one file system. The kernel creates folders in `work` that even their owner cannot open.
    pub command_layers: Option<PathBuf>,
    /// Whether commands may change the workspace.
    pub access: Access,
    /// The kernel mechanisms that confine commands.
    pub tier: Tier,
    /// The mechanism that keeps commands from signalling other processes, in the broker tier.
    pub signals: SignalBarrier,
    /// The home directory. Commands see it empty except for the paths listed below. Canonical.
    pub home: Option<PathBuf>,
    /// Paths that commands see read-only: tools below the home directory, and paths that the settings grant.
    pub read: Vec<PathBuf>,
    /// Paths that commands see and may write: paths that the settings grant, and a git directory outside the workspace.
    pub write: Vec<PathBuf>,
    /// Paths that commands see under a private overlay, which receives the writes and is deleted when the session ends.
    pub caches: Vec<PathBuf>,
    /// Files and folders, such as credentials, that commands see empty. Absolute.
    pub hide: Vec<PathBuf>,
    /// Names that commands cannot change or create.
    pub protect: Vec<Protected>,
    /// The home of an agent that is not built in. Only programs in its enclosure see it.
    pub agent: Option<AgentHome>,
    /// The network that commands reach.
    pub net: Net,
    /// Resource limits of one command.
    pub limits: Limits,
    /// The directory in which the session makes private directories, such as the overlays of the caches. Without it the
    /// caches are read-only.
    pub scratch: Option<PathBuf>,
    /// The file that lists placeholders in the workspace, so that they are removed even after the helper was killed.
    /// Not used with an overlay or a copy of the workspace: there the caller ignores leftover placeholders.
    pub journal: Option<PathBuf>,
    /// Makes the helper send debug log lines. [`crate::SandboxSession::open`] sets it.
    #[serde(default)]
    pub log: bool,
}

impl Spec {
    /// Returns whether commands see any path of the machine below `place`.
    pub(crate) fn shows_below(&self, place: &Path) -> bool {
        let granted = self.read.iter().chain(&self.write).chain(&self.caches);
        let all = granted
            .chain(self.layers.iter().map(|layer| &layer.at))
            .chain([&self.root]);
        all.into_iter()
            .any(|path| path.starts_with(place) && path != place)
    }

    /// Returns the full sandbox around a directory that commands may change, with no other path granted, hidden or
    /// protected.
    #[must_use]
    pub fn around(root: PathBuf) -> Self {
        Self {
            root,
            tree: Tree::Itself,
            layers: Vec::new(),
            command_layers: None,
            access: Access::Write,
            tier: Tier::Namespaces,
            signals: SignalBarrier::of_this_kernel(),
            home: None,
            read: Vec::new(),
            write: Vec::new(),
            caches: Vec::new(),
            hide: Vec::new(),
            protect: Vec::new(),
            agent: None,
            net: Net::Off,
            limits: Limits::default(),
            scratch: None,
            journal: None,
            log: false,
        }
    }
}

/// The directory that commands see at the workspace's path. Unless it is [`Tree::Itself`], no path in the view leads to
/// the real workspace: a granted path below the workspace is looked up in this directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tree {
    /// The workspace itself, without overlay or copy.
    Itself,
    /// A private overlay over the workspace receives the writes. The caller syncs them to disk if it keeps them. The
    /// directories belong to the caller, on one file system and outside the workspace. Only one session may use them at
    /// a time: before the next one opens, the caller must also have closed [`crate::OpenedSandbox::tree`].
    Layered {
        /// The directory that receives the writes. Its mode and owner become those of the tree's root.
        upper: PathBuf,
        /// The work directory of the kernel's overlay file system; its content means nothing to others.
        work: PathBuf,
        /// The upper directory of another overlay, mounted between this one and the workspace. It must not change while
        /// the session is open.
        #[serde(default)]
        between: Option<PathBuf>,
    },
    /// A copy of the workspace, shown at the workspace's path.
    Copy {
        /// The directory of the copy. Canonical.
        from: PathBuf,
    },
}

/// The message of [`crate::SandboxError::NoLayers`] in the tiers without namespaces.
pub const NO_LAYERS: &str = "without namespaces a directory cannot have a private overlay";

/// The path of an agent's home in the view. It is the same in every session, because agents store paths below it in
/// their files.
pub const AGENT_HOME: &str = "/.windlass/home";

/// Stands for the directory with the session's private directories (`tmp`, `home` and `home/.cargo`) in the values of
/// environment variables. The tiers without namespaces replace it by the real path when they start a command.
pub const PRIVATE: &str = "/.windlass/private";

/// The home of an agent that is not built in, mounted at [`AGENT_HOME`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentHome {
    /// The directory that is mounted there, writable. Canonical.
    pub from: PathBuf,
    /// Single files that are mounted read-only in the home: their path on this machine, and their name relative to the
    /// home.
    pub files: Vec<(PathBuf, PathBuf)>,
}

/// A directory with a private overlay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverlayDir {
    /// The directory under the overlay, which stays unchanged. Canonical.
    pub at: PathBuf,
    /// The directory that receives the writes.
    pub upper: PathBuf,
    /// The work directory of the kernel's overlay file system: empty, and on the same file system as `upper`.
    pub work: PathBuf,
}

/// A path that commands must not change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protected {
    /// The workspace or another writable directory that contains the path. Canonical.
    pub base: PathBuf,
    /// The path relative to `base`.
    pub name: PathBuf,
    /// The kind of protection.
    pub how: Protection,
}

/// A way of protecting a path from commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protection {
    /// Read-only. While the path is absent, an empty directory is mounted there. Its parent folders are pinned, and
    /// created if they are absent, unless they have an entry of their own.
    Frozen,
    /// Read-only if the path exists; commands may create it if it does not.
    FrozenIfPresent,
    /// Commands may write inside, but not rename, remove or replace the directory itself.
    Pinned,
    /// Deleted after the command that created it. It cannot be covered while it is absent, because programs would fail
    /// on the cover.
    Banned,
}

/// Whether a command may change the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// The command can read the workspace and not write to it.
    ReadOnly,
    /// The command can read and write the workspace.
    #[default]
    Write,
}

/// The kernel mechanisms that confine commands, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Landlock, system call filters and limits only. Names inside the workspace are not protected.
    Landlock,
    /// Landlock, system call filters, and a broker that performs network calls and changes of file attributes on
    /// behalf of the command. Needs no namespaces. Commands work on a copy of the workspace, never on the workspace.
    Broker,
    /// Namespaces, a private view of the file system, Landlock and system call filters.
    Namespaces,
}

/// The mechanism that keeps commands from signalling other processes in the broker tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignalBarrier {
    /// Landlock, from version 6 (Linux 6.12) on.
    Landlock,
    /// The broker performs the calls that send signals.
    Broker,
}

impl SignalBarrier {
    /// Returns [`SignalBarrier::Landlock`] if the kernel's Landlock is new enough.
    #[must_use]
    pub fn of_this_kernel() -> Self {
        /// The first version of Landlock that can restrict signals.
        const SCOPED_SIGNALS: u32 = 6;
        if crate::landlock_version() < SCOPED_SIGNALS {
            Self::Broker
        } else {
            Self::Landlock
        }
    }
}

/// The network that commands reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Net {
    /// No network, not even loopback.
    Off,
    /// A private loopback, which only the commands of the sandbox reach.
    Loopback,
    /// A private loopback with one listener, which [`crate::OpenedSandbox::listener`] hands to the caller.
    Proxy,
    /// The network of this machine, without restriction.
    Open,
}

/// Resource limits of one command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Processes at a time, not counting threads.
    pub processes: u32,
    /// Bytes of memory of all processes together.
    pub memory: u64,
    /// Bytes of one file that the command writes.
    pub file_size: u64,
    /// Bytes of the private `/tmp`, which is in memory.
    pub temporary: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // The first process counts from outside, so on a busy machine a fork bomb exceeds the limit by some
            // processes before it is killed. 220 keeps the total below 256.
            processes: 220,
            memory: 4 << 30,
            file_size: 4 << 30,
            temporary: 2 << 30,
        }
    }
}

/// The limits that a command was killed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LimitsHit {
    /// The command started more than [`Limits::processes`].
    pub processes: bool,
    /// The command used more than [`Limits::memory`].
    pub memory: bool,
}
