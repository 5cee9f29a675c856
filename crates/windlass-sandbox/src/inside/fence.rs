//! Landlock on top of the view: what may be read, what may be written, and no signal or abstract socket to outside.
//! The rules are made once; each command binds itself to them.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, Scope,
};

use super::view::VAR_TMP;
use crate::spec::{AGENT_HOME, Access, Spec, Tier};

/// The newest version of the rules that is known here; older kernels get what they know.
const VERSION: ABI = ABI::V6;

/// The rules of a session; none where the kernel has no Landlock.
pub(crate) fn rules(spec: &Spec) -> io::Result<Option<OwnedFd>> {
    let handled = AccessFs::from_all(VERSION);
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(handled)
        .map_err(io::Error::other)?;
    let scope = Scope::from_all(VERSION);
    let mut rules = ruleset.scope(scope).map_err(io::Error::other)?.create().map_err(io::Error::other)?;
    let look = AccessFs::from_read(VERSION);
    match spec.tier {
        Tier::Full => {
            rules = allow(rules, Path::new("/"), look)?;
            let other = Some(VAR_TMP).filter(|place| spec.shows_below(Path::new(place)));
            for place in ["/tmp", "/dev/shm"].into_iter().chain(other) {
                rules = allow(rules, Path::new(place), handled)?;
            }
            rules =
                allow(rules, Path::new("/dev"), look | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev)?;
            for cache in &spec.caches {
                rules = allow(rules, cache, handled)?;
            }
            if spec.agent.is_some() {
                rules = allow(rules, Path::new(AGENT_HOME), handled)?;
            }
        }
        Tier::Landlock => {
            for place in SYSTEM.iter().map(Path::new).chain(spec.read.iter().map(PathBuf::as_path)) {
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
    for place in spec.write.iter().chain(spec.layers.iter().map(|one| &one.at)) {
        rules = allow(rules, place, handled)?;
    }
    if spec.access == Access::Write {
        rules = allow(rules, &spec.root, handled)?;
    }
    Ok(rules.into())
}

fn allow(rules: RulesetCreated, place: &Path, access: landlock::BitFlags<AccessFs>) -> io::Result<RulesetCreated> {
    // What is not there can be neither read nor written.
    let Ok(handle) = PathFd::new(place) else { return Ok(rules) };
    let access = if place.is_dir() { access } else { access & AccessFs::from_file(VERSION) };
    rules.add_rule(PathBeneath::new(handle, access)).map_err(io::Error::other)
}

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
