//! The floor (spec 5.1 and 5.2): what no rule, mode, flag or `--yes` loosens.
//! Paths are judged as they resolve; commands by their words, and what cannot be told apart by words is left to the
//! mode, which asks.

use super::{Decision, Place, Proposal, Verdict};
use crate::tool::Touch;

/// The strictest thing the floor says about a call, if anything.
pub(super) fn floor(proposal: &Proposal<'_>) -> Option<Decision> {
    proposal.touches.iter().filter_map(|touch| one(touch, proposal.place)).max_by_key(|decision| decision.verdict)
}

fn one(touch: &Touch, place: Place) -> Option<Decision> {
    match touch {
        Touch::Read { path, inside } => read(path, *inside),
        Touch::Write { path, inside } => write(path, *inside, place),
        Touch::Execute { command } => execute(command, place),
        Touch::Connect { .. } => None,
    }
}

fn read(path: &str, inside: bool) -> Option<Decision> {
    if is_credential(path) {
        return Some(credential(path));
    }
    if inside || FREE_TO_READ.iter().any(|prefix| under(path, prefix)) {
        return None;
    }
    Some(Decision::new(
        Verdict::Person,
        "floor: reading outside the workspace",
        format!("`{path}` is outside the workspace; only a person can allow it"),
    ))
}

fn write(path: &str, inside: bool, place: Place) -> Option<Decision> {
    let deny = |rule: &str, reason: String| Some(Decision::new(Verdict::Deny, format!("floor: {rule}"), reason));
    if is_credential(path) {
        return Some(credential(path));
    }
    if !inside {
        return deny("writing outside the workspace", format!("`{path}` is outside the workspace"));
    }
    let lower = path.to_lowercase();
    let mut parts = lower.split('/');
    if parts.any(|part| trimmed(part) == ".git") {
        return deny("git internals", format!("`{path}` belongs to git; use git commands instead"));
    }
    let name = trimmed(lower.rsplit('/').next().unwrap_or(&lower));
    if SHELL_FILES.contains(&name) {
        return deny("shell start-up files", format!("`{path}` runs in every shell"));
    }
    if lower.split('/').any(|part| AGENT_FOLDERS.contains(&trimmed(part))) || name == ".mcp.json" {
        return Some(Decision::new(
            Verdict::Person,
            "floor: agent configuration",
            format!("`{path}` changes what agents may do here; only a person can allow it"),
        ));
    }
    if !place.isolated && runs_later(&lower) {
        return Some(Decision::new(
            Verdict::Person,
            "floor: runs on this machine later",
            format!("`{path}` is run by tools on this machine; only a person can allow it"),
        ));
    }
    None
}

fn execute(command: &str, place: Place) -> Option<Decision> {
    let words = words(command);
    if let Some(word) = words.iter().find(|word| PRIVILEGE.contains(&base_name(word))) {
        return Some(Decision::new(
            Verdict::Deny,
            "floor: privilege and disk tools",
            format!("`{word}` changes the system, not the workspace"),
        ));
    }
    if let Some(word) = words.iter().find(|word| is_credential(word)) {
        return Some(credential(word));
    }
    let person = |rule: &str, reason: &str| Some(Decision::new(Verdict::Person, format!("floor: {rule}"), reason));
    if let Some(destroys) = destructive_git(&words)
        && (!place.isolated || destroys == "push")
    {
        return person("destructive git", "it throws work away or rewrites what others have");
    }
    None
}

fn credential(path: &str) -> Decision {
    Decision::new(
        Verdict::Deny,
        "floor: credentials",
        format!("`{path}` looks like a secret; name the path in the configuration if the model may see it"),
    )
}

/// Whether a path names credentials (spec 5.2).
#[must_use]
pub fn is_credential(path: &str) -> bool {
    let lower = path.to_lowercase().replace('\\', "/");
    let lower = lower.trim_matches(|c| matches!(c, '"' | '\''));
    let parts: Vec<&str> = lower.split('/').map(trimmed).filter(|part| !part.is_empty()).collect();
    let Some((name, folders)) = parts.split_last() else { return false };
    let in_folder = |names: &[&str]| parts.iter().any(|part| names.contains(part));
    if (*name == ".env" || name.starts_with(".env.")) && !SAMPLES.iter().any(|sample| name.ends_with(sample)) {
        return true;
    }
    let ends = [".pem", ".key", ".p12", ".pfx"];
    if ends.iter().any(|end| name.ends_with(end) && name.len() > end.len()) {
        return true;
    }
    if KEY_FILES.contains(name) || in_folder(&[".ssh", ".aws", ".azure", ".gnupg", "keyrings"]) {
        return true;
    }
    let tail = |folder: &str, file: &str| *name == file && folders.last() == Some(&folder);
    if tail(".kube", "config") || tail(".docker", "config.json") || lower.contains(".config/gcloud/") {
        return true;
    }
    if lower.starts_with("/etc/shadow") || lower.starts_with("/etc/gshadow") || lower.starts_with("/etc/sudoers") {
        return true;
    }
    let (stem, extension) = name.rsplit_once('.').unwrap_or((name, ""));
    let at_home = matches!(*name, ".npmrc" | ".pypirc") && (lower.starts_with('/') || lower.starts_with('~'));
    at_home
        || (matches!(stem, "credentials" | "secrets")
            && matches!(extension, "" | "json" | "yaml" | "yml" | "toml" | "ini" | "txt"))
}

/// Whether an environment variable of that name is kept from children (spec 5.2).
#[must_use]
pub fn keeps_secret(name: &str) -> bool {
    let upper = name.to_uppercase();
    if ["GIT_AUTHOR_", "GIT_COMMITTER_", "XDG_", "DBUS_"].iter().any(|free| upper.starts_with(free)) {
        return false;
    }
    upper.ends_with("APIKEY")
        || upper.split('_').any(|word| {
            matches!(
                word,
                "KEY"
                    | "APIKEY"
                    | "TOKEN"
                    | "SECRET"
                    | "PASSWORD"
                    | "PASSWD"
                    | "CREDENTIAL"
                    | "CREDENTIALS"
                    | "AUTH"
                    | "COOKIE"
                    | "SESSION"
            )
        })
}

/// A command of plain words only: no operators, substitutions, quotes, globs or assignments, so that matching its
/// text means what it seems to mean.
pub(super) fn is_plain(command: &str) -> bool {
    let command = command.trim();
    let plain = |c: char| {
        c.is_ascii_alphanumeric() || matches!(c, ' ' | '_' | '.' | '/' | ':' | ',' | '@' | '%' | '+' | '-' | '=')
    };
    let first = command.split(' ').next().unwrap_or_default();
    let git_option = first == "git" && command.split(' ').nth(1).is_some_and(|word| word.starts_with('-'));
    !command.is_empty() && command.chars().all(plain) && !first.contains('=') && !command.contains("..") && !git_option
}

/// Anything that could be a word of a command, operators and quotes taken as borders.
fn words(command: &str) -> Vec<&str> {
    command
        .split(|c: char| {
            c.is_whitespace()
                || matches!(c, ';' | '|' | '&' | '(' | ')' | '<' | '>' | '`' | '"' | '\'' | '{' | '}' | '$' | '=')
        })
        .filter(|word| !word.is_empty())
        .collect()
}

fn destructive_git(words: &[&str]) -> Option<&'static str> {
    let at = words.iter().position(|word| base_name(word) == "git")?;
    let rest = &words[at + 1..];
    let has = |word: &str| rest.contains(&word);
    let flag = |short: char, long: &str| {
        rest.iter()
            .any(|word| *word == long || (word.starts_with('-') && !word.starts_with("--") && word.contains(short)))
    };
    let cases: [(&str, bool); 11] = [
        (
            "push",
            has("push")
                && (flag('f', "--force")
                    || has("--force-with-lease")
                    || has("--mirror")
                    || has("--delete")
                    || rest.iter().any(|w| w.starts_with('+'))),
        ),
        ("reset", has("reset") && has("--hard")),
        ("clean", has("clean") && flag('f', "--force")),
        ("branch", has("branch") && (flag('D', "--force") || (has("--delete") && has("--force")))),
        ("checkout", has("checkout") && (has("--") || has(".") || flag('f', "--force"))),
        ("restore", has("restore") && !has("--staged")),
        ("filter-branch", has("filter-branch")),
        ("update-ref", has("update-ref") && has("-d")),
        ("reflog", has("reflog") && has("expire")),
        ("stash", has("stash") && (has("drop") || has("clear"))),
        ("switch", has("switch") && (flag('f', "--force") || has("--discard-changes"))),
    ];
    cases.into_iter().find(|(_, hit)| *hit).map(|(name, _)| name)
}

fn runs_later(lower: &str) -> bool {
    let parts: Vec<&str> = lower.split('/').map(trimmed).collect();
    let name = parts.last().copied().unwrap_or_default();
    parts.iter().any(|part| LATER_FOLDERS.contains(part))
        || LATER_FILES.contains(&name)
        || lower.contains(".cargo/config")
        || lower.contains(".github/workflows/")
        || lower.contains(".circleci/")
}

fn base_name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// Some file systems drop dots and spaces at the end of a name, so `.git.` is `.git` there.
fn trimmed(part: &str) -> &str {
    part.trim_end_matches([' ', '.'])
}

fn under(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

const FREE_TO_READ: &[&str] =
    &["/usr", "/lib", "/lib64", "/bin", "/sbin", "/opt", "/etc", "/nix/store", "/System", "/Library"];
const SAMPLES: &[&str] = &[".example", ".sample", ".template"];
const KEY_FILES: &[&str] = &["id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", ".netrc", ".git-credentials", ".pgpass"];
const SHELL_FILES: &[&str] = &[
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    "config.fish",
    ".kshrc",
    ".cshrc",
    ".tcshrc",
    ".login",
];
const AGENT_FOLDERS: &[&str] = &[".windlass", ".claude", ".codex", ".cursor", ".gemini"];
const LATER_FOLDERS: &[&str] = &[".vscode", ".idea", ".devcontainer", ".husky"];
const LATER_FILES: &[&str] = &[
    ".envrc",
    "lefthook.yml",
    ".pre-commit-config.yaml",
    ".gitmodules",
    ".gitattributes",
    ".gitlab-ci.yml",
    "jenkinsfile",
    "azure-pipelines.yml",
];
const PRIVILEGE: &[&str] = &[
    "sudo",
    "su",
    "doas",
    "pkexec",
    "mkfs",
    "mkfs.ext4",
    "mkfs.xfs",
    "mkfs.vfat",
    "mkswap",
    "fdisk",
    "parted",
    "mount",
    "umount",
    "losetup",
    "insmod",
    "rmmod",
    "modprobe",
    "shutdown",
    "reboot",
    "poweroff",
    "halt",
    "chroot",
    "nsenter",
    "setcap",
    "visudo",
    "useradd",
    "userdel",
    "usermod",
    "passwd",
    "chpasswd",
];
