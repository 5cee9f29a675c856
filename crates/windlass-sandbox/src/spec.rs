//! What a sandbox is to be: plain data, made by the caller and read by the supervisor. Nothing here acts.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Everything the supervisor needs to know before the first command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// The workspace: the one tree that commands may change. Canonical.
    pub root: PathBuf,
    /// What stands at the workspace's path.
    pub tree: Tree,
    /// Directories with a private layer that the caller owns and that stays when the session ends: a git directory
    /// outside the workspace.
    pub layers: Vec<Layer>,
    /// Where the layers of single commands lie: a directory of the caller's, outside of everything that is shown. In it
    /// each has a folder with the folders `upper` and `work`, both empty and on one file system. The kernel leaves
    /// folders in `work` that are closed also to their owner.
    pub command_layers: Option<PathBuf>,
    /// Whether they may.
    pub access: Access,
    /// By which means commands are held.
    pub tier: Tier,
    /// What keeps signals of commands inside, in the broker tier.
    pub signals: Signals,
    /// The home directory, which is shown empty but for the paths below. Canonical.
    pub home: Option<PathBuf>,
    /// Shown and not writable: tools below the home directory, granted paths.
    pub read: Vec<PathBuf>,
    /// Shown and writable: what the configuration grants, and a git directory outside the workspace.
    pub write: Vec<PathBuf>,
    /// Shown, with a private layer on top that takes the writes and ends with the session.
    pub caches: Vec<PathBuf>,
    /// Shown empty: credentials. Files or folders, absolute.
    pub hide: Vec<PathBuf>,
    /// Names that are not writable, also while they are absent.
    pub protect: Vec<Protected>,
    /// The home of an agent that is not ours. Only what is started in a place of its own sees it.
    pub agent: Option<AgentHome>,
    /// What the network is.
    pub net: Net,
    /// How much a command may use.
    pub limits: Limits,
    /// Where a private directory for the layers of the caches is made; without it caches cannot be written.
    pub scratch: Option<PathBuf>,
    /// Where the names of placeholders are noted, so that they go even when everything was killed. Only for the
    /// workspace itself: what is left in a tree of its own is for the caller to pass over.
    pub journal: Option<PathBuf>,
    /// The helper sends lines for the log of developers. [`crate::Session::open`] sets it.
    #[serde(default)]
    pub log: bool,
}

impl Spec {
    /// Whether something of the machine is shown below a place.
    pub(crate) fn shows_below(&self, place: &Path) -> bool {
        let granted = self.read.iter().chain(&self.write).chain(&self.caches);
        let all = granted
            .chain(self.layers.iter().map(|layer| &layer.at))
            .chain([&self.root]);
        all.into_iter()
            .any(|path| path.starts_with(place) && path != place)
    }

    /// The whole sandbox around a directory that commands may change, with nothing else granted, hidden or protected.
    #[must_use]
    pub fn around(root: PathBuf) -> Self {
        Self {
            root,
            tree: Tree::Itself,
            layers: Vec::new(),
            command_layers: None,
            access: Access::Write,
            tier: Tier::Namespaces,
            signals: Signals::of_this_kernel(),
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

/// What stands at the workspace's path. With anything but the workspace itself no path in the view leads to it: what
/// is granted below it is what the tree has there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tree {
    /// The workspace itself.
    Itself,
    /// A private layer over it takes the writes. They are written out to the disk by whoever keeps it. The directories
    /// are the caller's, on one file system and outside the workspace. One session at a time: also its handle of the
    /// tree must be gone before the next one opens.
    Layered {
        /// What takes the writes. The root of the tree has its mode and its owner.
        upper: PathBuf,
        /// Where the kernel prepares them; of no use to anybody else.
        work: PathBuf,
        /// The upper directory of another layer, shown between this one and the workspace. Nothing may write to it
        /// meanwhile.
        #[serde(default)]
        between: Option<PathBuf>,
    },
    /// Another directory, shown at its path.
    Copy {
        /// Where it is. Canonical.
        from: PathBuf,
    },
}

/// Why there is no layer without namespaces.
pub const NO_LAYERS: &str = "without namespaces a directory cannot have a private layer";

/// Where the home of an agent is in the view: the same in every session, because agents write paths of it down.
pub const AGENT_HOME: &str = "/.windlass/home";

/// The private directories of a session in the values of variables: `tmp`, `home`, and `home/.cargo` below it. Without
/// namespaces they have other paths, which are put in the place of this one when a command starts.
pub const PRIVATE: &str = "/.windlass/private";

/// The home of an agent that is not ours, shown at [`AGENT_HOME`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentHome {
    /// The directory that is shown there and takes the writes. Canonical.
    pub from: PathBuf,
    /// Single files that are shown in it and not writable: where they are, and their names relative to the home.
    pub files: Vec<(PathBuf, PathBuf)>,
}

/// A directory with a private layer on top.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// Where it is, and stays as it is. Canonical.
    pub at: PathBuf,
    /// What takes the writes.
    pub upper: PathBuf,
    /// Where the kernel prepares them: an empty directory on the same file system.
    pub work: PathBuf,
}

/// A name below a base directory that commands do not change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protected {
    /// The workspace, or another writable directory. Canonical.
    pub base: PathBuf,
    /// Relative to it.
    pub name: PathBuf,
    /// What to do with it.
    pub how: Protection,
}

/// How a name is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protection {
    /// Not writable; covered by an empty directory while it is absent. Folders on the way are pinned, and made where
    /// they are absent, unless they are listed themselves.
    Frozen,
    /// Not writable where it exists; free while it is absent.
    FrozenIfPresent,
    /// Writable inside, but not to be renamed, removed or replaced.
    Pinned,
    /// Removed when a command has made it: it cannot be covered, because programs would stumble over the cover.
    Banned,
}

/// Whether the workspace may be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// No.
    ReadOnly,
    /// Yes.
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

/// What keeps the signals of commands inside where there are no namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signals {
    /// Landlock, from version 6 (Linux 6.12) on.
    Landlock,
    /// The broker performs the calls that send signals.
    Broker,
}

impl Signals {
    /// Landlock where it can.
    #[must_use]
    pub fn of_this_kernel() -> Self {
        /// The first version of Landlock that knows about signals.
        const SCOPED_SIGNALS: u32 = 6;
        if crate::landlock_version() < SCOPED_SIGNALS {
            Self::Broker
        } else {
            Self::Landlock
        }
    }
}

/// What the network of commands is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Net {
    /// Nothing can be reached.
    Off,
    /// A loopback of their own.
    Loopback,
    /// A loopback of their own with one listener on it that is handed to the caller.
    Proxy,
    /// The network of this machine.
    Open,
}

/// How much a command may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Processes of one command at a time; threads do not count.
    pub processes: u32,
    /// Bytes of memory of one command.
    pub memory: u64,
    /// Bytes of one file.
    pub file_size: u64,
    /// Bytes of the private temporary directory, which is in memory.
    pub temporary: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // They are counted from outside, so a fork bomb on a busy machine passes the limit by some before it is
            // killed. 220 leaves that room below 256.
            processes: 220,
            memory: 4 << 30,
            file_size: 4 << 30,
            temporary: 2 << 30,
        }
    }
}

/// Which limit a command ran into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LimitsHit {
    /// It was ended because of the processes it started.
    pub processes: bool,
    /// It was ended because of the memory it took.
    pub memory: bool,
}
