//! The floor (spec 5.1 and 5.2): what no rule, mode, flag or `--yes` loosens.
//! Paths are judged as they resolve. Commands are judged by the words of each simple command: what they write for
//! certain by its row, what they may write or what cannot be read by a person.

use super::secrets::{is_credential, trimmed};
use super::shell::{Simple, base_name, simple_commands};
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
    if ["/proc", "/sys", "/dev"].iter().any(|prefix| under(path, prefix)) {
        return Some(Decision::new(
            Verdict::Deny,
            "floor: devices and processes",
            format!("`{path}` is no file: it is a device or shows a process"),
        ));
    }
    Some(Decision::new(
        Verdict::Person,
        "floor: reading outside the workspace",
        format!("`{path}` is outside the workspace; only a person can allow it"),
    ))
}

fn write(path: &str, inside: bool, place: Place, exposed: &[String]) -> Option<Decision> {
    if is_credential(path) {
        return Some(credential(path, exposed));
    }
    if !inside {
        let reason = format!("`{path}` is outside the workspace");
        return Some(Decision::new(Verdict::Deny, "floor: writing outside the workspace", reason));
    }
    protected(path, place)
}

/// Paths inside the workspace that are not written like others.
fn protected(path: &str, place: Place) -> Option<Decision> {
    let deny = |rule: &str, reason: String| Some(Decision::new(Verdict::Deny, format!("floor: {rule}"), reason));
    let lower = path.to_lowercase();
    if lower.split('/').any(is_git_folder) {
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
    let Some(commands) = simple_commands(command) else {
        return Some(Decision::new(
            Verdict::Person,
            "floor: a command that cannot be read",
            "its quotes or parentheses do not close, so nobody can tell what it does; write it more plainly",
        ));
    };
    // After `cd` to elsewhere, plain names are names elsewhere.
    let mut elsewhere = false;
    let mut strictest: Option<Decision> = None;
    for simple in &commands {
        let here = Surroundings { place, exposed, elsewhere };
        let judged = [
            privileged(simple),
            secret_of(simple, exposed),
            written_by(simple, &here),
            git_of(simple, place),
            unknowable(simple),
        ];
        let judged = judged.into_iter().flatten().chain(strictest.take());
        strictest = judged.max_by_key(|decision| decision.verdict);
        let leaves = |word: &String| leads_out(word) || word == "-";
        elsewhere |= matches!(simple.program(), "cd" | "pushd") && simple.args().iter().any(leaves);
    }
    strictest
}

/// What a word of a command is judged by.
struct Surroundings<'a> {
    place: Place,
    exposed: &'a [String],
    elsewhere: bool,
}

fn privileged(simple: &Simple) -> Option<Decision> {
    let program = simple.program();
    let to_device = |path: &str| path.starts_with("/dev/") && !PLAIN_DEVICES.iter().any(|plain| under(path, plain));
    let device = match program {
        "dd" => simple.words.iter().filter_map(|word| word.strip_prefix("of=")).find(|path| to_device(path)),
        _ => None,
    };
    let device = device.or(simple.writes.iter().map(String::as_str).find(|path| to_device(path)));
    (PRIVILEGE.contains(&program) || program.starts_with("mkfs.") || device.is_some()).then(|| {
        let reason = format!("`{}` changes the system, not the workspace", device.unwrap_or(program));
        Decision::new(Verdict::Deny, "floor: privilege and disk tools", reason)
    })
}

fn secret_of(simple: &Simple, exposed: &[String]) -> Option<Decision> {
    let words = || simple.writes.iter().chain(file_words(simple));
    if let Some(word) = words().find_map(|word| credential_in(word)) {
        return Some(credential(word, exposed));
    }
    let (word, name) = words().find_map(|word| Some((word, hidden_match(word)?)))?;
    Some(Decision::new(Verdict::Deny, "floor: credentials", format!("`{word}` would also match `{name}`")))
}

/// The hidden credential that a pattern of the shell would match; brackets are taken as any character.
fn hidden_match(word: &str) -> Option<&'static str> {
    let part = word.split('/').find(|part| part.starts_with(['.', '[', '?']) && part.contains(['*', '?', '[']))?;
    let (mut pattern, mut inside) = (String::new(), false);
    for c in part.chars() {
        match c {
            '[' if !inside => inside = true,
            ']' if inside => {
                inside = false;
                pattern.push('?');
            }
            c if !inside => pattern.push(c),
            _ => {}
        }
    }
    [".env", ".ssh", ".aws", ".netrc", ".git-credentials"].into_iter().find(|name| super::glob_match(&pattern, name))
}

/// What a command writes: targets of redirections and the words of programs that write, by their rows; the words of
/// programs nobody knows may be written, which a person can tell. Programs that only read, and git, write none.
fn written_by(simple: &Simple, here: &Surroundings<'_>) -> Option<Decision> {
    let program = simple.program();
    let in_place = matches!(program, "sed" | "perl") && simple.args().iter().any(|word| word.starts_with("-i"));
    let writes = in_place || CHANGERS.contains(&program);
    let reads = READERS.contains(&program) || program == "git" || simple.is_shell();
    let reads = !writes && (reads || (program == "find" && !simple.args().iter().any(|word| word == "-delete")));
    let words = simple.args().iter().filter(|word| !reads && !word.starts_with('-'));
    let words = words.filter(|word| !word.contains(char::is_whitespace)).map(|word| (word, writes));
    let all = simple.writes.iter().map(|target| (target, true)).chain(words);
    all.filter_map(|(path, certain)| written(path, certain, here)).max_by_key(|decision| decision.verdict)
}

fn written(path: &str, certain: bool, here: &Surroundings<'_>) -> Option<Decision> {
    let path = path.strip_prefix("of=").unwrap_or(path);
    if PLAIN_DEVICES.iter().any(|plain| under(path, plain)) {
        return None;
    }
    let instructions = || {
        let name = base_name(path).to_lowercase();
        INSTRUCTIONS.contains(&name.as_str()).then(|| {
            let reason = format!("`{path}` tells agents what to do here; only a person can allow it");
            Decision::new(Verdict::Person, "floor: agent configuration", reason)
        })
    };
    let secret = || (certain && is_credential(path)).then(|| credential(path, here.exposed));
    match secret().or_else(|| protected(path, here.place)).or_else(instructions) {
        Some(decision) if certain => return Some(decision),
        // Not known to write it: a person can tell.
        Some(decision) => return Some(Decision { verdict: Verdict::Person, ..decision }),
        None => {}
    }
    (certain && (leads_out(path) || here.elsewhere)).then(|| {
        let reason = format!("`{path}` may be outside the workspace; only a person can allow it");
        Decision::new(Verdict::Person, "floor: writing outside the workspace", reason)
    })
}

fn git_of(simple: &Simple, place: Place) -> Option<Decision> {
    let destroys = if simple.program() == "git" { destructive_git(simple.args())? } else { return None };
    (!place.isolated || destroys == "push").then(|| {
        Decision::new(Verdict::Person, "floor: destructive git", "it throws work away or rewrites what others have")
    })
}

/// Commands that run what nobody can see beforehand.
fn unknowable(simple: &Simple) -> Option<Decision> {
    let program = simple.program();
    (matches!(program, "eval" | "source" | ".") || (simple.is_shell() && simple.piped)).then(|| {
        let reason = format!("what `{program}` would run cannot be told beforehand");
        Decision::new(Verdict::Person, "floor: a command that cannot be read", reason)
    })
}

/// By its look, a path that leaves the workspace.
fn leads_out(path: &str) -> bool {
    path.starts_with(['/', '~']) || path.split('/').any(|part| part == "..") || path.contains("$HOME")
}

/// The words of a command that may name files: not what is only printed, matched or written into a message.
fn file_words(simple: &Simple) -> impl Iterator<Item = &String> {
    let program = simple.program();
    let pattern_at = match program {
        "grep" | "egrep" | "fgrep" | "rg" | "ag" | "ack" | "sed" | "awk" | "gawk" | "jq" | "yq" => {
            let words = simple.words.iter().skip(1);
            words.clone().position(|word| !word.starts_with('-')).map(|at| at + 1)
        }
        _ => None,
    };
    let printed = matches!(program, "echo" | "printf" | "");
    simple.words.iter().enumerate().skip(1).filter_map(move |(at, word)| {
        let before = &simple.words[at - 1];
        let text = match program {
            "git" | "gh" => matches!(before.as_str(), "-m" | "-am" | "--message" | "--title" | "--body"),
            "find" => matches!(before.as_str(), "-name" | "-iname" | "-path" | "-ipath"),
            _ => Some(at) == pattern_at,
        };
        let left_out = word.starts_with("--exclude") || word.starts_with("--ignore") || word.starts_with("--message=");
        (!printed && !text && !left_out).then_some(word)
    })
}

/// The part of a word that names credentials. A word may be a piece of a program, with names in quotes.
fn credential_in(word: &str) -> Option<&str> {
    let borders = |c: char| {
        c.is_whitespace()
            || matches!(
                c,
                ';' | '|' | '&' | '(' | ')' | '<' | '>' | '`' | '"' | '\'' | '{' | '}' | '$' | '=' | ',' | '@'
            )
    };
    let is_code = word.contains(|c: char| c.is_whitespace() || matches!(c, '(' | ')' | ';'));
    word.split(borders).filter(|part| !part.is_empty()).find(|part| {
        let bare = !part.contains('/');
        // `kubectl get secrets` and `print(event.key)` name no file.
        let common = bare && (matches!(*part, "secrets" | "credentials") || (is_code && part.ends_with(".key")));
        !common && is_credential(part)
    })
}

/// Credentials are denied; a path that the configuration names is for a person to allow.
fn credential(path: &str, exposed: &[String]) -> Decision {
    if exposed.iter().any(|pattern| super::glob_match(pattern, path)) {
        let reason = format!("`{path}` looks like a secret; only a person can show it");
        return Decision::new(Verdict::Person, "floor: credentials", reason);
    }
    let reason =
        format!("`{path}` looks like a secret; `credentials.show` in the configuration names paths that may be shown");
    Decision::new(Verdict::Deny, "floor: credentials", reason)
}

/// The pattern that "always" offers for a plain command: the task, with whatever further words, where the first words
/// name a task and nothing more; else the command exactly as it is.
pub(super) fn always_pattern(command: &str) -> String {
    let words: Vec<&str> = command.split_whitespace().collect();
    let task = |word: &str| word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-' || byte == b':');
    let named = match words[..] {
        ["git", sub, ..] => GIT_LOOKS.contains(&sub).then_some(2),
        [program, "run", script, ..] if RUNNERS.contains(&program) && task(script) => Some(3),
        [program, sub, ..] if TASKS.contains(&program) && task(sub) && !sub.starts_with('-') => {
            (!REACH_FURTHER.contains(&sub)).then_some(2)
        }
        _ => None,
    };
    match named {
        Some(count) => format!("{} *", words[..count].join(" ")),
        None => words.join(" "),
    }
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

fn destructive_git(rest: &[String]) -> Option<&'static str> {
    let has = |word: &str| rest.iter().any(|known| known == word);
    // Git takes the beginning of a long option for the whole.
    let long = |option: &str| rest.iter().any(|word| word.len() > 4 && option.starts_with(word.as_str()));
    let flag = |short: char, option: &str| {
        let short = |word: &String| word.starts_with('-') && !word.starts_with("--") && word.contains(short);
        long(option) || rest.iter().any(short)
    };
    let cases: [(&str, bool); 11] = [
        (
            "push",
            has("push")
                && (flag('f', "--force")
                    || flag('d', "--delete")
                    || rest.iter().any(|w| w.starts_with("--force-") || w == "--mirror" || w == "--prune")
                    || rest.iter().any(|w| w.starts_with('+') || w.starts_with(':'))),
        ),
        ("reset", has("reset") && long("--hard")),
        ("clean", has("clean") && flag('f', "--force")),
        ("branch", has("branch") && (flag('D', "--force") || flag('f', "--force"))),
        ("checkout", has("checkout") && (has("--") || has(".") || flag('f', "--force"))),
        ("restore", has("restore") && (!(has("--staged") || has("-S")) || has("--worktree") || has("-W"))),
        ("filter-branch", has("filter-branch")),
        ("update-ref", has("update-ref") && flag('d', "--delete")),
        ("reflog", has("reflog") && has("expire")),
        ("stash", has("stash") && (has("drop") || has("clear"))),
        ("switch", has("switch") && (flag('f', "--force") || long("--discard-changes"))),
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

/// `.git` in every spelling that some file system takes for it.
fn is_git_folder(part: &str) -> bool {
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

fn under(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

const FREE_TO_READ: &[&str] =
    &["/usr", "/lib", "/lib64", "/bin", "/sbin", "/opt", "/etc", "/nix/store", "/System", "/Library"];
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
    "lefthook.yaml",
    ".lefthook.yml",
    ".lefthook.yaml",
    ".pre-commit-config.yaml",
    ".pre-commit-config.yml",
    ".gitmodules",
    ".gitattributes",
    ".gitlab-ci.yml",
    "jenkinsfile",
    "azure-pipelines.yml",
];
/// Programs whose second word names a task of the project.
const TASKS: &[&str] =
    &["cargo", "npm", "pnpm", "yarn", "bun", "go", "make", "just", "mvn", "gradle", "dotnet", "mix", "rake"];
const RUNNERS: &[&str] = &["npm", "pnpm", "yarn", "bun"];
/// Second words that fetch or start what the project does not have.
const REACH_FURTHER: &[&str] =
    &["run", "exec", "dlx", "x", "install", "add", "get", "generate", "publish", "config", "login", "init"];
const GIT_LOOKS: &[&str] =
    &["status", "diff", "log", "show", "add", "commit", "branch", "blame", "ls-files", "rev-parse"];
const INSTRUCTIONS: &[&str] = &[
    "agents.md",
    "claude.md",
    "claude.local.md",
    "gemini.md",
    "copilot-instructions.md",
    ".cursorrules",
    ".windsurfrules",
];
/// Programs that change the files they are given.
const CHANGERS: &[&str] = &[
    "rm", "mv", "cp", "ln", "tee", "touch", "truncate", "chmod", "chown", "chgrp", "install", "rmdir", "mkdir",
    "shred", "unlink", "rsync", "dd", "patch", "split", "mkfifo",
];
/// Programs that change none.
const READERS: &[&str] = &[
    "cat",
    "ls",
    "head",
    "tail",
    "grep",
    "rg",
    "egrep",
    "fgrep",
    "ag",
    "ack",
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
    "gawk",
    "jq",
    "yq",
    "pwd",
    "cd",
    "pushd",
    "popd",
    "which",
    "type",
    "true",
    "false",
    "date",
    "xxd",
    "od",
    "strings",
    "realpath",
    "readlink",
    "basename",
    "dirname",
    "export",
    "set",
    "exit",
    "sleep",
    "for",
];
/// Devices that hold nothing.
const PLAIN_DEVICES: &[&str] = &[
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/tty",
    "/dev/stdout",
    "/dev/stderr",
    "/dev/fd",
    "/dev/shm",
    "/dev/tcp",
    "/dev/udp",
];
const PRIVILEGE: &[&str] = &[
    "sudo", "su", "doas", "pkexec", "mkfs", "mkswap", "fdisk", "parted", "mount", "umount", "losetup", "insmod",
    "rmmod", "modprobe", "shutdown", "reboot", "poweroff", "halt", "chroot", "nsenter", "setcap", "visudo", "useradd",
    "userdel", "usermod", "passwd", "chpasswd",
];
