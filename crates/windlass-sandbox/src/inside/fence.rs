//! Landlock on top of the view: what may be read, what may be written, and no signal or abstract socket to outside.
//! The rules are made once; each command binds itself to them.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, Scope,
};

use super::private::Private;
use super::view::{self, VAR_TMP};
use crate::spec::{AGENT_HOME, Access, Net, Signals, Spec, Tier};

/// The newest version of the rules that is known here; older kernels get what they know.
const VERSION: ABI = ABI::V6;

/// Rules that allow nothing yet. Without `network`, no TCP port may be bound or connected to.
fn nothing(network: bool, signals: Signals) -> io::Result<RulesetCreated> {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(VERSION))
        .map_err(io::Error::other)?;
    if !network {
        ruleset = ruleset
            .handle_access(AccessNet::from_all(VERSION))
            .map_err(io::Error::other)?;
    }
    let scope = match signals {
        Signals::Landlock => Scope::from_all(VERSION),
        Signals::Broker => Scope::AbstractUnixSocket.into(),
    };
    ruleset
        .scope(scope)
        .map_err(io::Error::other)?
        .create()
        .map_err(io::Error::other)
}

/// Binds this process to a domain of its own that holds nothing but signals: those it sends reach only what it starts.
/// Then one signal to all processes ends everything in a command at once, also processes that fork and exit faster than
/// they can be listed. Says whether the kernel can do that.
pub(crate) fn hold_signals() -> io::Result<bool> {
    // Moving files between directories is the one thing that every domain forbids unless it says otherwise.
    let rules = Ruleset::default()
        .handle_access(AccessFs::Refer)
        .and_then(|rules| rules.scope(Scope::Signal))
        .and_then(Ruleset::create)
        .map_err(io::Error::other)?;
    let rules = allow(rules, Path::new("/"), AccessFs::Refer.into())?;
    let Some(rules) = Option::<OwnedFd>::from(rules) else {
        return Ok(false);
    };
    rustix::thread::set_no_new_privs(true)?;
    super::sys::landlock_restrict(std::os::fd::AsFd::as_fd(&rules))?;
    Ok(true)
}

/// The rules of the commands of a session without namespaces.
pub(crate) struct BrokerFences {
    /// For commands that may change the tree, if the session lets them.
    pub(crate) write: OwnedFd,
    /// For commands that only read it.
    pub(crate) read: OwnedFd,
    /// For an agent, which also has its home.
    pub(crate) agent: Option<OwnedFd>,
}

impl BrokerFences {
    /// None where the kernel has no Landlock.
    pub(crate) fn new(spec: &Spec, tree: &Path, private: &Private) -> io::Result<Option<Self>> {
        let make = |access, agent| broker_rules(spec, tree, private, access, agent);
        let agent = if spec.agent.is_some() {
            make(spec.access, true)?
        } else {
            None
        };
        Ok(
            match (make(spec.access, false)?, make(Access::ReadOnly, false)?) {
                (Some(write), Some(read)) => Some(Self { write, read, agent }),
                _ => None,
            },
        )
    }
}

/// Landlock cannot deny a part of what it allows, so that directories in which something is hidden are allowed entry by
/// entry.
fn broker_rules(
    spec: &Spec,
    tree: &Path,
    private: &Private,
    access: Access,
    agent: bool,
) -> io::Result<Option<OwnedFd>> {
    let (handled, look) = (AccessFs::from_all(VERSION), AccessFs::from_read(VERSION));
    let mut rules = nothing(spec.net == Net::Open, spec.signals)?;
    let system = view::SYSTEM
        .iter()
        .copied()
        .chain([PROCESSES])
        .map(Path::new);
    let shown = spec
        .read
        .iter()
        .chain(&spec.caches)
        .chain(spec.layers.iter().map(|one| &one.at));
    for place in system.chain(shown.map(PathBuf::as_path)) {
        rules = allow_but(rules, place, look, &spec.hide)?;
    }
    for device in DEVICES {
        rules = allow(rules, Path::new(device), AccessFs::from_file(VERSION))?;
    }
    for place in &spec.write {
        rules = allow_but(rules, place, handled, &spec.hide)?;
    }
    rules = allow(rules, private.home(), look)?;
    for place in private.writable() {
        rules = allow(rules, place, handled)?;
    }
    if let Some(home) = spec.agent.as_ref().filter(|_| agent) {
        rules = allow(rules, &home.from, handled)?;
        for (file, _) in &home.files {
            rules = allow(rules, file, look)?;
        }
    }
    rules = allow(
        rules,
        tree,
        if access == Access::Write {
            handled
        } else {
            look
        },
    )?;
    Ok(rules.into())
}

/// Allows everything below a place but what is hidden.
fn allow_but(
    rules: RulesetCreated,
    place: &Path,
    access: landlock::BitFlags<AccessFs>,
    hidden: &[PathBuf],
) -> io::Result<RulesetCreated> {
    if hidden.iter().any(|hidden| place.starts_with(hidden)) {
        return Ok(rules);
    }
    if !hidden.iter().any(|hidden| hidden.starts_with(place)) {
        return allow(rules, place, access);
    }
    let mut rules = allow(rules, place, access & AccessFs::ReadDir)?;
    for entry in std::fs::read_dir(place)
        .into_iter()
        .flatten()
        .flatten()
        .take(MOST_ENTRIES)
    {
        // A symlink is followed by the kernel, and what it leads to is judged at its own place.
        if !entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
            rules = allow_but(rules, &entry.path(), access, hidden)?;
        }
    }
    Ok(rules)
}

/// Entries of a directory in which something is hidden that are allowed one by one.
const MOST_ENTRIES: usize = 10_000;

/// The rules of a session; none where the kernel has no Landlock.
pub(crate) fn rules(spec: &Spec) -> io::Result<Option<OwnedFd>> {
    let handled = AccessFs::from_all(VERSION);
    let mut rules = nothing(true, Signals::Landlock)?;
    let look = AccessFs::from_read(VERSION);
    match spec.tier {
        Tier::Namespaces => {
            rules = allow(rules, Path::new("/"), look)?;
            let other = Some(VAR_TMP).filter(|place| spec.shows_below(Path::new(place)));
            for place in ["/tmp", "/dev/shm"].into_iter().chain(other) {
                rules = allow(rules, Path::new(place), handled)?;
            }
            rules = allow(
                rules,
                Path::new("/dev"),
                look | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev,
            )?;
            for cache in &spec.caches {
                rules = allow(rules, cache, handled)?;
            }
            if spec.agent.is_some() {
                rules = allow(rules, Path::new(AGENT_HOME), handled)?;
            }
        }
        Tier::Landlock | Tier::Broker => {
            for place in SYSTEM
                .iter()
                .map(Path::new)
                .chain(spec.read.iter().map(PathBuf::as_path))
            {
                rules = allow(rules, place, look)?;
            }
            for place in ["/dev/null", "/dev/zero", "/dev/full", "/dev/tty"] {
                rules = allow(rules, Path::new(place), AccessFs::from_file(VERSION))?;
            }
            if let Some(scratch) = &spec.scratch {
                rules = allow(rules, scratch, handled)?;
            }
            rules = allow(rules, &spec.root, look)?;
        }
    }
    for place in spec
        .write
        .iter()
        .chain(spec.layers.iter().map(|one| &one.at))
    {
        rules = allow(rules, place, handled)?;
    }
    if spec.access == Access::Write {
        rules = allow(rules, &spec.root, handled)?;
    }
    Ok(rules.into())
}

fn allow(
    rules: RulesetCreated,
    place: &Path,
    access: landlock::BitFlags<AccessFs>,
) -> io::Result<RulesetCreated> {
    // What is not there can be neither read nor written.
    let Ok(handle) = PathFd::new(place) else {
        return Ok(rules);
    };
    let access = if place.is_dir() {
        access
    } else {
        access & AccessFs::from_file(VERSION)
    };
    rules
        .add_rule(PathBeneath::new(handle, access))
        .map_err(io::Error::other)
}

/// Read by commands without namespaces beside the system: processes as far as the kernel shows them to a process that
/// Landlock holds, which is their names and command lines, and not their memory, files or environment.
const PROCESSES: &str = "/proc";
/// A command makes a terminal of its own with the first of them, and the broker opens its second end.
const DEVICES: &[&str] = &[
    "/dev/ptmx",
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/tty",
    "/dev/random",
    "/dev/urandom",
];

/// What may be read everywhere: the system's programs, libraries and settings.
const SYSTEM: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/opt",
    "/nix/store",
    "/dev/urandom",
    "/dev/random",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/filesystems",
    "/proc/mounts",
    "/proc/sys",
    "/proc/version",
    "/proc/loadavg",
    "/proc/uptime",
    "/sys/devices/system",
];
