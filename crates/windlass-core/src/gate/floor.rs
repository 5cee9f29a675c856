//! The floor (spec 5.1 and 5.2): what no rule, mode, flag or `--yes` loosens.
//! Paths are judged as they resolve. Commands are judged by a reading of their words (`shell`): what they write for
//! certain by its row, what they may write or what cannot be read by a person.

use super::shell::{self, Simple, base_name};
use super::{Decision, Place, Proposal, Verdict};
use crate::tool::Touch;

/// The strictest thing the floor says about a call, if anything.
pub(super) fn floor(proposal: &Proposal<'_>, exposed: &[String]) -> Option<Decision> {
    let touches = proposal.touches.iter();
    touches.filter_map(|touch| one(touch, proposal.place, exposed)).max_by_key(|decision| decision.verdict)
}

fn one(touch: &Touch, place: Place, exposed: &[String]) -> Option<Decision> {
    match touch {
        Touch::Read { path, inside } => read(path, *inside, exposed),
        Touch::Write { path, inside } => write(path, *inside, place, exposed),
        Touch::Execute { command } => execute(command, place, exposed),
        Touch::Connect { .. } => None,
    }
}

fn read(path: &str, inside: bool, exposed: &[String]) -> Option<Decision> {
    if is_credential(path) {
        return Some(credential(path, exposed));
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

fn write(path: &str, inside: bool, place: Place, exposed: &[String]) -> Option<Decision> {
    let deny = |rule: &str, reason: String| Some(Decision::new(Verdict::Deny, format!("floor: {rule}"), reason));
    if is_credential(path) {
        return Some(credential(path, exposed));
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

fn execute(command: &str, place: Place, exposed: &[String]) -> Option<Decision> {
    let person = |rule: &str, reason: String| Decision::new(Verdict::Person, format!("floor: {rule}"), reason);
    let Some(commands) = shell::simple_commands(command) else {
        return Some(person("unreadable command", "the command could not be read to its end".into()));
    };
    let mut strictest: Option<Decision> = None;
    let mut note = |decision: Option<Decision>| {
        if let Some(decision) = decision
            && strictest.as_ref().is_none_or(|known| known.verdict < decision.verdict)
        {
            strictest = Some(decision);
        }
    };
    // After `cd` to elsewhere, plain names are names elsewhere.
    let mut elsewhere = false;
    for simple in &commands {
        let program = simple.program();
        if is_privileged(simple) {
            let reason = format!("`{program}` changes the system, not the workspace");
            note(Some(Decision::new(Verdict::Deny, "floor: privilege and disk tools", reason)));
        }
        if matches!(program, "eval" | "source" | ".") || (shell::is_shell(program) && simple.piped) {
            note(Some(person("unreadable command", format!("what `{program}` would run cannot be told beforehand"))));
        }
        if let Some(destroys) = destructive_git(simple)
            && (!place.isolated || destroys == "push")
        {
            note(Some(person("destructive git", "it throws work away or rewrites what others have".into())));
        }
        // Patterns and messages are quoted texts, not files.
        let talks = matches!(program, "grep" | "rg" | "sed" | "awk" | "echo" | "printf" | "git" | "jq");
        for word in simple.args().filter(|word| !(talks && word.quoted)) {
            note(credential_word(&word.text, exposed));
        }
        simple.targets.iter().for_each(|target| note(credential_word(target, exposed)));
        for (path, certain) in written(simple) {
            note(written_word(path, certain, elsewhere, place, exposed));
        }
        let leaves = |word: &shell::Word| leads_out(&word.text) || word.text == "-";
        elsewhere |= matches!(program, "cd" | "pushd") && simple.args().any(leaves);
    }
    strictest
}

fn is_privileged(simple: &Simple) -> bool {
    let program = simple.program();
    PRIVILEGE.contains(&program)
        || program.starts_with("mkfs")
        || (program == "dd" && simple.args().any(|word| word.text.starts_with("of=/dev/")))
}

/// A word that is a path to credentials, also as a pattern that would match one.
fn credential_word(word: &str, exposed: &[String]) -> Option<Decision> {
    let path = word.rsplit('=').next().unwrap_or(word);
    let pathlike = path.contains(['/', '.']) || KEY_FILES.contains(&path);
    if pathlike && is_credential(path) {
        return Some(credential(path, exposed));
    }
    let hidden = ["x/.env", "x/.ssh", "x/.aws", "x/.netrc", "x/.git-credentials"];
    let pattern = path.split('/').find(|part| part.starts_with(['.', '[', '?']) && part.contains(['*', '?', '[']))?;
    let hit = hidden.iter().filter_map(|name| name.strip_prefix("x/")).find(|name| loose_match(pattern, name))?;
    Some(Decision::new(Verdict::Deny, "floor: credentials", format!("`{word}` would also match `{hit}`")))
}

/// Whether a shell pattern could match a name; brackets are taken as any character.
fn loose_match(pattern: &str, name: &str) -> bool {
    let mut simple = String::new();
    let mut inside = false;
    for c in pattern.chars() {
        match c {
            '[' if !inside => inside = true,
            ']' if inside => {
                inside = false;
                simple.push('?');
            }
            _ if inside => {}
            c => simple.push(c),
        }
    }
    super::glob_match(&simple, name)
}

/// The paths a command may write, and whether it is known to: targets of redirections and arguments of programs that
/// write are; arguments of programs nobody knows may be. Programs that only read, and git itself, write none.
fn written(simple: &Simple) -> impl Iterator<Item = (&str, bool)> {
    let program = simple.program();
    let writes = WRITERS.contains(&program)
        || (matches!(program, "sed" | "perl") && simple.args().any(|w| w.text.starts_with("-i")));
    let reads = !writes && (READERS.contains(&program) || program == "git" || shell::is_shell(program));
    let reads = reads || (program == "find" && !simple.has("-delete"));
    let args = simple.args().filter(move |word| !reads && !word.text.starts_with('-'));
    let args = args.map(move |word| (word.text.strip_prefix("of=").unwrap_or(&word.text), writes));
    simple.targets.iter().map(|target| (target.as_str(), true)).chain(args)
}

fn written_word(path: &str, certain: bool, elsewhere: bool, place: Place, exposed: &[String]) -> Option<Decision> {
    if matches!(path, "/dev/null" | "/dev/stdout" | "/dev/stderr" | "/dev/tty") {
        return None;
    }
    let named = write(path, true, place, exposed).or_else(|| {
        let name = base_name(path).to_lowercase();
        INSTRUCTIONS.contains(&name.as_str()).then(|| {
            let reason = format!("`{path}` tells agents what to do here; only a person can allow it");
            Decision::new(Verdict::Person, "floor: agent configuration", reason)
        })
    });
    match named {
        Some(decision) if certain => return Some(decision),
        // Not known to write it: a person can tell.
        Some(decision) => return Some(Decision { verdict: Verdict::Person, ..decision }),
        None => {}
    }
    (certain && (leads_out(path) || elsewhere)).then(|| {
        let reason = format!("`{path}` may be outside the workspace; only a person can allow it");
        Decision::new(Verdict::Person, "floor: writing outside the workspace", reason)
    })
}

/// By its look, a path that leaves the workspace.
fn leads_out(path: &str) -> bool {
    path.starts_with(['/', '~']) || path.split('/').any(|part| part == "..") || path.contains("$HOME")
}

/// Credentials are denied; a path that the configuration names is for a person to allow.
fn credential(path: &str, exposed: &[String]) -> Decision {
    if exposed.iter().any(|pattern| super::glob_match(pattern, path)) {
        let reason = format!("`{path}` looks like a secret; only a person can show it");
        return Decision::new(Verdict::Person, "floor: credentials", reason);
    }
    Decision::new(
        Verdict::Deny,
        "floor: credentials",
        format!("`{path}` looks like a secret; `credentials.show` in the configuration names paths that may be shown"),
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

fn destructive_git(simple: &Simple) -> Option<&'static str> {
    if simple.program() != "git" {
        return None;
    }
    let rest: Vec<&str> = simple.args().map(|word| word.text.as_str()).collect();
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
const INSTRUCTIONS: &[&str] = &[
    "agents.md",
    "claude.md",
    "claude.local.md",
    "gemini.md",
    "copilot-instructions.md",
    ".cursorrules",
    ".windsurfrules",
];
const WRITERS: &[&str] = &[
    "tee", "cp", "mv", "rm", "rmdir", "mkdir", "touch", "ln", "install", "rsync", "chmod", "chown", "chgrp",
    "truncate", "dd", "shred", "unlink", "patch", "tar", "unzip", "split", "mkfifo", "mktemp",
];
const READERS: &[&str] = &[
    "cat",
    "ls",
    "head",
    "tail",
    "grep",
    "rg",
    "egrep",
    "fgrep",
    "wc",
    "stat",
    "file",
    "test",
    "[",
    "[[",
    "echo",
    "printf",
    "diff",
    "cmp",
    "less",
    "more",
    "tree",
    "du",
    "df",
    "sha256sum",
    "md5sum",
    "b3sum",
    "sort",
    "uniq",
    "cut",
    "tr",
    "nl",
    "sed",
    "awk",
    "jq",
    "find",
    "pwd",
    "cd",
    "pushd",
    "popd",
    "which",
    "type",
    "command",
    "true",
    "false",
    "date",
    "env",
    "xxd",
    "od",
    "strings",
    "realpath",
    "readlink",
    "basename",
    "dirname",
    "xargs",
    "export",
    "set",
    "exit",
    "sleep",
];
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
    "sudo", "su", "doas", "pkexec", "mkswap", "fdisk", "parted", "mount", "umount", "losetup", "insmod", "rmmod",
    "modprobe", "shutdown", "reboot", "poweroff", "halt", "chroot", "nsenter", "setcap", "visudo", "useradd",
    "userdel", "usermod", "passwd", "chpasswd",
];
