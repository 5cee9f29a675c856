//! The floor (spec 5.1 and 5.2): what no rule, mode, flag or `--yes` loosens.
//! Paths are judged as they resolve; command lines have a file of their own.

use super::command::{self, is_temporary};
use super::secrets::{is_credential, trimmed};
use super::{Decision, Place, Proposal, Steers, Verdict, Words, steers};
use crate::tool::Touch;

const AGENT_FILES: &str = "floor: agent configuration";
pub(super) const WRITING_OUTSIDE: &str = "floor: writing outside the workspace";

/// The strictest thing the floor says about a call, if anything.
pub(super) fn floor(proposal: &Proposal<'_>, exposed: &[String]) -> Option<Decision> {
    let by_command = proposal.by_command();
    let touches = proposal.touches.iter();
    let judged = touches.filter_map(|touch| match touch {
        Touch::Read { path, inside } => read(path, *inside, proposal.place, by_command, exposed),
        Touch::Write {
            path, new: true, ..
        } if is_credential(path) => Some(new_credential(path)),
        Touch::Write { path, inside, .. } if by_command => {
            command_writes(path, *inside, proposal.place, exposed)
        }
        Touch::Write { path, inside, .. } => write(path, *inside, proposal.place, exposed),
        Touch::Execute { script, .. } => {
            command::execute(script.as_deref(), proposal.place, exposed)
        }
        Touch::Connect { .. } => None,
    });
    super::strictest(judged)
}

fn read(
    path: &str,
    inside: bool,
    place: Place,
    by_command: bool,
    exposed: &[String],
) -> Option<Decision> {
    if is_credential(path) {
        return Some(credential(path, exposed));
    }
    if inside || FREE_TO_READ.iter().any(|prefix| under(path, prefix)) {
        return None;
    }
    // The folders for temporary files are private ones in a sandbox; what is in this machine's own is not.
    let own_folder = place.sandboxed && TEMPORARY.contains(path);
    if by_command && (FACTS.contains(path) || own_folder) {
        return None;
    }
    if ["/proc", "/sys", "/dev"]
        .iter()
        .any(|prefix| under(path, prefix))
    {
        let reason = format!("`{path}` is no file: it is a device or shows a process");
        let rule = "floor: devices and processes";
        return Some(Decision::new(Verdict::Deny, rule, reason));
    }
    let rule = "floor: reading outside the workspace";
    Some(outside(rule, path))
}

fn write(path: &str, inside: bool, place: Place, exposed: &[String]) -> Option<Decision> {
    if is_credential(path) {
        return Some(credential(path, exposed));
    }
    if !inside {
        let reason = format!("`{path}` is outside the workspace");
        return Some(Decision::new(Verdict::Deny, WRITING_OUTSIDE, reason));
    }
    protected(path, place)
}

/// The same for a command: start-up files by their row wherever they are, temporary files for a person, and the rest
/// outside is held by the sandbox where there is one.
fn command_writes(path: &str, inside: bool, place: Place, exposed: &[String]) -> Option<Decision> {
    if inside {
        return write(path, inside, place, exposed).or_else(|| instructions(path));
    }
    if is_credential(path) {
        return Some(credential(path, exposed));
    }
    let named = protected(path, place).filter(|decision| decision.verdict == Verdict::Deny);
    named.or_else(|| match (is_temporary(path), place.sandboxed) {
        (_, true) => None,
        (true, false) => Some(outside(WRITING_OUTSIDE, path)),
        (false, false) => write(path, inside, place, exposed),
    })
}

fn outside(rule: &str, path: &str) -> Decision {
    let reason = format!("`{path}` is outside the workspace; only a person can allow it");
    Decision::new(Verdict::Person, rule, reason)
}

/// Paths inside the workspace that are not written like others.
pub(super) fn protected(path: &str, place: Place) -> Option<Decision> {
    let lower = path.to_lowercase();
    let name = trimmed(lower.rsplit('/').next().unwrap_or(&lower));
    let (verdict, rule, why) = if lower.split('/').any(is_git_folder) {
        let why = "belongs to git; use git commands instead";
        (Verdict::Deny, "floor: git internals", why)
    } else if is_shell_file(name) {
        let rule = "floor: shell start-up files";
        (Verdict::Deny, rule, "runs in every shell")
    } else {
        // In a transaction the landing lists them, and asks about those that the prompt did not name.
        let in_place = !place.isolation.is_isolated();
        match steers(path).filter(|steers| in_place || *steers == Steers::Agents)? {
            Steers::Agents | Steers::Instructions => {
                let why = "changes what agents do here; only a person can allow it";
                (Verdict::Person, AGENT_FILES, why)
            }
            Steers::Machine => {
                let why = "is run by tools on this machine; only a person can allow it";
                (Verdict::Person, "floor: runs on this machine later", why)
            }
        }
    };
    Some(Decision::new(verdict, rule, format!("`{path}` {why}")))
}

/// A file that tells agents what to do, written by a command.
pub(super) fn instructions(path: &str) -> Option<Decision> {
    (steers(path)? == Steers::Instructions).then(|| {
        let reason = format!("`{path}` tells agents what to do here; only a person can allow it");
        Decision::new(Verdict::Person, AGENT_FILES, reason)
    })
}

/// Credentials are denied; a path that the configuration names is for a person to allow.
pub(super) fn credential(path: &str, exposed: &[String]) -> Decision {
    if exposed
        .iter()
        .any(|pattern| super::glob_match(pattern, path))
    {
        let reason = format!("`{path}` looks like a secret; only a person can show it");
        return Decision::new(Verdict::Person, "floor: credentials", reason);
    }
    let reason = format!(
        "`{path}` looks like a secret; `credentials.show` in the configuration names paths that may be shown"
    );
    Decision::new(Verdict::Deny, "floor: credentials", reason)
}

/// A file that looks like a secret and does not exist yet holds none: a person may have it made.
fn new_credential(path: &str) -> Decision {
    let reason = format!("`{path}` would be read as a secret; only a person can have it created");
    Decision::new(Verdict::Person, "floor: credentials", reason)
}

pub(super) fn is_shell_file(name: &str) -> bool {
    SHELL_FILES.contains(name)
}

/// `.git` in every spelling that some file system takes for it.
pub(super) fn is_git_folder(part: &str) -> bool {
    let seen: String = part
        .chars()
        .filter(
            |c| !matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}'),
        )
        .collect();
    // What follows a colon is a stream of the same file there.
    let name = trimmed(seen.split(':').next().unwrap_or_default());
    name == ".git" || name == "git~1"
}

pub(super) fn under(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether a path belongs to the system and holds nothing of a person.
#[must_use]
pub fn is_system_path(path: &str) -> bool {
    FREE_TO_READ.iter().any(|prefix| under(path, prefix))
}

const FREE_TO_READ: Words =
    Words("/usr /lib /lib64 /bin /sbin /opt /etc /nix/store /System /Library");
/// What the kernel says about the machine, of no process.
const FACTS: Words = Words(
    "/proc/cpuinfo /proc/meminfo /proc/version /proc/loadavg /proc/uptime /proc/filesystems /proc/stat /dev/null \
     /dev/zero /dev/random /dev/urandom",
);
const SHELL_FILES: Words = Words(
    ".bashrc .bash_profile .bash_login .bash_logout .profile .zshrc .zshenv .zprofile .zlogin config.fish .kshrc \
     .cshrc .tcshrc .login",
);
/// Folders for what is only needed for a while.
pub(super) const TEMPORARY: Words = Words("/tmp /var/tmp /dev/shm");
/// Devices that hold nothing.
pub(super) const PLAIN_DEVICES: Words = Words(
    "/dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty /dev/stdout /dev/stderr /dev/fd /dev/shm /dev/tcp /dev/udp",
);
