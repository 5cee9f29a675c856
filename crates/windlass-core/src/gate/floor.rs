//! The safety floor (spec 5.1 and 5.2): checks that no rule, mode, flag or `--yes` loosens. Paths are judged after they
//! were resolved. The floor for command lines is in `command.rs`.

use super::command::{self, is_temporary};
use super::secrets::{is_credential, trimmed};
use super::{CallProtection, Decision, NameTable, Proposal, Steers, Verdict, steers};
use crate::tool::Touch;

const AGENT_FILES: &str = "floor: agent configuration";
pub(super) const WRITING_OUTSIDE: &str = "floor: writing outside the workspace";

/// The strictest decision of the floor about a call, if any.
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
    place: CallProtection,
    by_command: bool,
    exposed: &[String],
) -> Option<Decision> {
    if is_credential(path) {
        return Some(credential(path, exposed));
    }
    if inside || FREE_TO_READ.iter().any(|prefix| under(path, prefix)) {
        return None;
    }
    // In a sandbox the directories for temporary files are private. Outside, they belong to the whole machine.
    let own_folder = place.sandboxed && TEMPORARY.contains(path);
    if by_command && (FACTS.contains(path) || own_folder) {
        return None;
    }
    if ["/proc", "/sys", "/dev"]
        .iter()
        .any(|prefix| under(path, prefix))
    {
        let reason = format!("`{path}` is not a file: it is a device or shows a process");
        let rule = "floor: devices and processes";
        return Some(Decision::new(Verdict::Deny, rule, reason));
    }
    let rule = "floor: reading outside the workspace";
    Some(outside(rule, path))
}

fn write(path: &str, inside: bool, place: CallProtection, exposed: &[String]) -> Option<Decision> {
    if is_credential(path) {
        return Some(credential(path, exposed));
    }
    if !inside {
        let reason = format!("`{path}` is outside the workspace");
        return Some(Decision::new(Verdict::Deny, WRITING_OUTSIDE, reason));
    }
    protected(path, place)
}

/// Judges a write by a command. Outside the workspace, credentials, git internals and shell start-up files are judged
/// as usual. If there is a sandbox, it confines all other writes. Without one, temporary files need a person's approval
/// and the rest is denied.
fn command_writes(
    path: &str,
    inside: bool,
    place: CallProtection,
    exposed: &[String],
) -> Option<Decision> {
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

/// The decision about a path inside the workspace that is protected from ordinary writes.
pub(super) fn protected(path: &str, place: CallProtection) -> Option<Decision> {
    let lower = path.to_lowercase();
    let name = trimmed(lower.rsplit('/').next().unwrap_or(&lower));
    let (verdict, rule, why) = if lower.split('/').any(is_git_folder) {
        let why = "belongs to git; use git commands instead";
        (Verdict::Deny, "floor: git internals", why)
    } else if is_shell_file(name) {
        let rule = "floor: shell start-up files";
        (Verdict::Deny, rule, "runs in every shell")
    } else {
        // In an isolated run, the landing lists these files and asks about those that the prompt did not name.
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

/// The decision about a command that writes an instruction file of agents.
pub(super) fn instructions(path: &str) -> Option<Decision> {
    (steers(path)? == Steers::Instructions).then(|| {
        let reason = format!("`{path}` tells agents what to do here; only a person can allow it");
        Decision::new(Verdict::Person, AGENT_FILES, reason)
    })
}

/// Access to credentials is denied. A person may approve it for paths that the settings list.
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

/// A file with the name of a credential that does not exist yet contains no secret, so a person may approve its
/// creation.
fn new_credential(path: &str) -> Decision {
    let reason = format!("`{path}` would be read as a secret; only a person can have it created");
    Decision::new(Verdict::Person, "floor: credentials", reason)
}

pub(super) fn is_shell_file(name: &str) -> bool {
    SHELL_FILES.contains(name)
}

/// Whether a path component is `.git` in any spelling that some file system treats as `.git`.
pub(super) fn is_git_folder(part: &str) -> bool {
    let seen: String = part
        .chars()
        .filter(
            |c| !matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}'),
        )
        .collect();
    // On NTFS, the text after a colon names a stream of the same file.
    let name = trimmed(seen.split(':').next().unwrap_or_default());
    name == ".git" || name == "git~1"
}

pub(super) fn under(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether a path belongs to the operating system and has no personal data.
#[must_use]
pub fn is_system_path(path: &str) -> bool {
    FREE_TO_READ.iter().any(|prefix| under(path, prefix))
}

const FREE_TO_READ: NameTable =
    NameTable("/usr /lib /lib64 /bin /sbin /opt /etc /nix/store /System /Library");
/// Files with facts about the machine, rather than about a process.
const FACTS: NameTable = NameTable(
    "/proc/cpuinfo /proc/meminfo /proc/version /proc/loadavg /proc/uptime /proc/filesystems /proc/stat /dev/null \
     /dev/zero /dev/random /dev/urandom",
);
const SHELL_FILES: NameTable = NameTable(
    ".bashrc .bash_profile .bash_login .bash_logout .profile .zshrc .zshenv .zprofile .zlogin config.fish .kshrc \
     .cshrc .tcshrc .login",
);
/// Directories for temporary files.
pub(super) const TEMPORARY: NameTable = NameTable("/tmp /var/tmp /dev/shm");
/// Devices without stored data.
pub(super) const PLAIN_DEVICES: NameTable = NameTable(
    "/dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty /dev/stdout /dev/stderr /dev/fd /dev/shm /dev/tcp /dev/udp",
);
