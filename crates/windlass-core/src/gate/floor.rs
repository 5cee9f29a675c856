//! The floor (spec 5.1 and 5.2): what no rule, mode, flag or `--yes` loosens.
//! Paths are judged as they resolve; command lines have a file of their own.

use super::command::{self, is_temporary};
use super::secrets::{is_credential, trimmed};
use super::{Decision, Place, Proposal, Verdict, Words};
use crate::tool::Touch;

pub(super) const WRITING_OUTSIDE: &str = "floor: writing outside the workspace";

/// The strictest thing the floor says about a call, if anything.
pub(super) fn floor(proposal: &Proposal<'_>, exposed: &[String]) -> Option<Decision> {
    let by_command = proposal.by_command();
    let touches = proposal.touches.iter();
    let judged = touches.filter_map(|touch| match touch {
        Touch::Read { path, inside } => read(path, *inside, proposal.place, by_command, exposed),
        Touch::Write { path, inside } if by_command => {
            command_writes(path, *inside, proposal.place, exposed)
        }
        Touch::Write { path, inside } => write(path, *inside, proposal.place, exposed),
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
        return write(path, inside, place, exposed).or_else(|| command::instructions(path));
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
    } else if is_agent_setting(&lower) {
        let why = "changes what agents may do here; only a person can allow it";
        (Verdict::Person, "floor: agent configuration", why)
    } else if !place.isolation.is_isolated() && runs_later(&lower) {
        let why = "is run by tools on this machine; only a person can allow it";
        (Verdict::Person, "floor: runs on this machine later", why)
    } else {
        return None;
    };
    Some(Decision::new(verdict, rule, format!("`{path}` {why}")))
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

/// What tells agents what they may do.
fn is_agent_setting(lower: &str) -> bool {
    let name = trimmed(lower.rsplit('/').next().unwrap_or(lower));
    lower
        .split('/')
        .any(|part| AGENT_FOLDERS.contains(trimmed(part)))
        || name == ".mcp.json"
}

/// What tells agents what they may do, and what to do.
pub(super) fn tells_agents(lower: &str) -> bool {
    is_agent_setting(lower) || command::instructions(lower).is_some()
}

pub(super) fn is_shell_file(name: &str) -> bool {
    SHELL_FILES.contains(name)
}

pub(super) fn runs_later(lower: &str) -> bool {
    let parts: Vec<&str> = lower.split('/').map(trimmed).collect();
    let name = parts.last().copied().unwrap_or_default();
    parts.iter().any(|part| LATER_FOLDERS.contains(part))
        || LATER_FILES.contains(name)
        || lower.contains(".cargo/config")
        || lower.contains(".github/workflows/")
        || lower.contains(".circleci/")
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
    "/proc/cpuinfo /proc/meminfo /proc/version /proc/loadavg /proc/uptime /proc/filesystems /dev/null /proc/stat",
);
const SHELL_FILES: Words = Words(
    ".bashrc .bash_profile .bash_login .bash_logout .profile .zshrc .zshenv .zprofile .zlogin config.fish .kshrc \
     .cshrc .tcshrc .login",
);
/// Folders for what is only needed for a while.
pub(super) const TEMPORARY: Words = Words("/tmp /var/tmp /dev/shm");
const AGENT_FOLDERS: Words = Words(".windlass .agent .agents .claude .codex .cursor .gemini");
const LATER_FOLDERS: Words = Words(".vscode .idea .devcontainer .husky .githooks .buildkite");
const LATER_FILES: Words = Words(
    ".envrc lefthook.yml lefthook.yaml .lefthook.yml .lefthook.yaml .pre-commit-config.yaml .pre-commit-config.yml \
     .gitmodules .gitattributes .gitlab-ci.yml jenkinsfile azure-pipelines.yml",
);
/// Devices that hold nothing.
pub(super) const PLAIN_DEVICES: Words = Words(
    "/dev/null /dev/zero /dev/full /dev/tty /dev/stdout /dev/stderr /dev/fd /dev/shm /dev/tcp /dev/udp",
);
