//! The Landlock rules: a second barrier on top of the view in the tier with namespaces, and the main one in the tiers
//! without. They say what may be read and written, and keep signals and abstract sockets inside. The rules are made
//! once per session; each command applies them to itself.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, Scope,
};

use super::private_dirs::PrivateDirs;
use super::view::{self, VAR_TMP};
use crate::spec::{AGENT_HOME, Access, Net, SignalBarrier, Spec, Tier};

/// The newest version of Landlock that this file knows; older kernels ignore the rules that they do not know.
const VERSION: ABI = ABI::V6;

/// Returns rules that allow nothing yet. Without `network`, the command can neither bind nor connect to a TCP port.
fn deny_all(network: bool, signals: SignalBarrier) -> io::Result<RulesetCreated> {
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
        SignalBarrier::Landlock => Scope::from_all(VERSION),
        SignalBarrier::Broker => Scope::AbstractUnixSocket.into(),
    };
    ruleset
        .scope(scope)
        .map_err(io::Error::other)?
        .create()
        .map_err(io::Error::other)
}

/// Moves this process into a Landlock domain that restricts nothing but signals: those it sends reach only its
/// descendants. Then a single `kill(-1)` kills a whole command, even processes that fork and exit faster than they can
/// be listed. Returns whether the kernel supports that.
pub(crate) fn hold_signals() -> io::Result<bool> {
    // Every domain forbids to move files between directories unless a rule allows it, so allow it everywhere.
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

/// The rules of a session in the broker tier.
pub(crate) struct BrokerRulesets {
    /// For commands; the tree is writable if the session allows it.
    pub(crate) write: OwnedFd,
    /// For read-only commands; nothing in the tree is writable.
    pub(crate) read: OwnedFd,
    /// For an agent, which also has its home.
    pub(crate) agent: Option<OwnedFd>,
}

impl BrokerRulesets {
    /// Returns `None` if the kernel has no Landlock.
    pub(crate) fn new(spec: &Spec, tree: &Path, private: &PrivateDirs) -> io::Result<Option<Self>> {
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

/// Landlock rules only allow. If something in a directory is hidden, its other entries are therefore allowed one by
/// one.
fn broker_rules(
    spec: &Spec,
    tree: &Path,
    private: &PrivateDirs,
    access: Access,
    agent: bool,
) -> io::Result<Option<OwnedFd>> {
    let (handled, look) = (AccessFs::from_all(VERSION), AccessFs::from_read(VERSION));
    let mut rules = deny_all(spec.net == Net::Open, spec.signals)?;
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
        rules = allow_except(rules, place, look, &spec.hide)?;
    }
    for device in DEVICES {
        rules = allow(rules, Path::new(device), AccessFs::from_file(VERSION))?;
    }
    for place in &spec.write {
        rules = allow_except(rules, place, handled, &spec.hide)?;
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

/// Allows everything below `place` except hidden paths.
fn allow_except(
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
        .take(MAX_ENTRIES)
    {
        // Landlock judges the target of a symlink, not the symlink.
        if !entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
            rules = allow_except(rules, &entry.path(), access, hidden)?;
        }
    }
    Ok(rules)
}

/// The most entries of a directory that are allowed one by one.
const MAX_ENTRIES: usize = 10_000;

/// Returns the rules of a session in the other two tiers; `None` if the kernel has no Landlock.
pub(crate) fn rules(spec: &Spec) -> io::Result<Option<OwnedFd>> {
    let handled = AccessFs::from_all(VERSION);
    let mut rules = deny_all(true, SignalBarrier::Landlock)?;
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
    // A path that does not exist needs no rule.
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

/// Commands in the broker tier also read `/proc`. There the kernel shows a process under Landlock the names and command
/// lines of other processes, but not their memory, files or environment.
const PROCESSES: &str = "/proc";
/// With the first one a command creates a pseudoterminal; the broker opens its slave end.
const DEVICES: &[&str] = &[
    "/dev/ptmx",
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/tty",
    "/dev/random",
    "/dev/urandom",
];

/// Programs, libraries and settings of the system, which every command may read.
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
