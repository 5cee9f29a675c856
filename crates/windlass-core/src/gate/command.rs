//! The safety floor for command lines: what none of their simple commands may do freely. A certain violation gets the
//! verdict of its rule. A merely possible one needs a person's approval, except in a kernel sandbox, which confines it
//! anyway.

use super::floor::{
    PLAIN_DEVICES, TEMPORARY, WRITING_OUTSIDE, credential, instructions, protected, under,
};
use super::secrets::is_credential;
use super::{CallProtection, Decision, NameTable, Verdict, external};
use crate::shell::{ShellScript, Simple, Word, WriteTarget};

const UNREADABLE: &str = "floor: a command that cannot be read";

/// The strictest decision of the floor about a command line, if any.
pub(super) fn execute(
    script: Option<&ShellScript>,
    place: CallProtection,
    exposed: &[String],
) -> Option<Decision> {
    let person = |why: &str| {
        let reason = format!("it is not clear what the command does: {why}; write it more plainly");
        Some(Decision::new(Verdict::Person, UNREADABLE, reason))
    };
    let Some(script) = script else {
        return person("it was not parsed");
    };
    let mut strictest = script.unclear.as_deref().and_then(person);
    if let Some(why) = script.doubt.as_deref().filter(|_| !place.sandboxed) {
        strictest = strictest.or_else(|| person(why));
    }
    for simple in &script.commands {
        let judged = [
            privileged(simple),
            persistent(simple),
            secret_of(simple, exposed),
            removal(simple, place),
            written_by(simple, place, exposed),
            git_of(simple, place),
            unknowable(simple).filter(|_| !place.sandboxed),
        ];
        strictest = super::strictest(strictest.into_iter().chain(judged.into_iter().flatten()));
    }
    strictest
}

fn privileged(simple: &Simple) -> Option<Decision> {
    let name = simple.name();
    let to_device = |path: &str| {
        path.starts_with("/dev/") && !PLAIN_DEVICES.iter().any(|plain| under(path, plain))
    };
    let device = simple
        .writes
        .iter()
        .map(|target| target.word.text.as_str())
        .find(|path| to_device(path));
    let named = (PRIVILEGE.contains(name) || name.starts_with("mkfs.")) && !only_tells(simple);
    (named || device.is_some()).then(|| {
        let reason = format!(
            "`{}` changes the system, not the workspace",
            device.unwrap_or(name)
        );
        Decision::new(Verdict::Deny, "floor: privilege and disk tools", reason)
    })
}

/// Whether a privileged program is only asked for its version or help, or for the list of mounts.
fn only_tells(simple: &Simple) -> bool {
    let args = simple.args();
    let asks = |word: &Word| ASKS.contains(&word.text);
    let lists = |word: &Word| word.text == "-l";
    (simple.name() == "mount" && args.iter().all(lists))
        || (!args.is_empty() && args.iter().all(asks))
}

fn persistent(simple: &Simple) -> Option<Decision> {
    external::persists(simple).then(|| {
        let reason = format!(
            "`{}` changes what runs on this machine later",
            simple.name()
        );
        Decision::new(Verdict::Deny, "floor: runs on this machine later", reason)
    })
}

fn secret_of(simple: &Simple, exposed: &[String]) -> Option<Decision> {
    let targets = simple.writes.iter().map(|target| &target.word);
    let words = || {
        targets
            .clone()
            .chain(&simple.reads)
            .chain(file_words(simple))
            .map(|word| word.text.as_str())
    };
    if let Some(word) = words().find_map(credential_in) {
        return Some(credential(word, exposed));
    }
    let (word, name) = words().find_map(|word| Some((word, hidden_match(word)?)))?;
    let reason = format!("`{word}` would also match `{name}`");
    Some(Decision::new(Verdict::Deny, "floor: credentials", reason))
}

/// The hidden credential file that a shell pattern would match. A bracket expression counts as any character.
fn hidden_match(word: &str) -> Option<&'static str> {
    let part = word
        .split('/')
        .find(|part| part.starts_with(['.', '[', '?']) && part.contains(['*', '?', '[']))?;
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
    [".env", ".ssh", ".aws", ".netrc", ".git-credentials"]
        .into_iter()
        .find(|name| super::glob_match(&pattern, name))
}

/// Recursive removal of a home directory, the root, the workspace itself or one of its parents.
fn removal(simple: &Simple, place: CallProtection) -> Option<Decision> {
    let all_of_it = |path: &str| {
        matches!(
            path.trim_end_matches('/'),
            "" | "." | "*" | "./*" | "./." | ".*" | "./.*"
        )
    };
    let target =
        simple
            .writes
            .iter()
            .filter(|target| target.removes)
            .find(|target| match &target.at {
                Some(at) if at.inside => all_of_it(&at.path),
                Some(at) => !(place.sandboxed && is_temporary(&at.path)),
                None => {
                    let text = target.word.text.as_str();
                    // An unset variable before a slash makes the path start at the root.
                    let unset = text.starts_with('$')
                        && (text.contains('/') || !target.word.one)
                        && !place.sandboxed;
                    let home = ["~", "$HOME", "${HOME", "$PWD", "${PWD", "$OLDPWD"]
                        .iter()
                        .any(|begin| text.starts_with(begin));
                    all_of_it(text)
                        || home
                        || unset
                        || (leads_out(text) && !(place.sandboxed && is_temporary(text)))
                }
            })?;
    let reason = format!(
        "`{}` would be removed with all that is in it; only a person can allow it",
        target.word.text
    );
    let rule = "floor: removing everything";
    Some(Decision::new(Verdict::Person, rule, reason))
}

/// Judges unresolved paths that a command writes, and arguments of unknown programs that may be paths to write.
fn written_by(simple: &Simple, place: CallProtection, exposed: &[String]) -> Option<Decision> {
    let name = simple.name();
    let dirs = simple.dirs.as_ref();
    let elsewhere = dirs.is_none_or(|dirs| dirs.iter().any(|dir| leads_out(&dir.word.text)));
    let certain = simple.writes.iter().filter(|target| target.at.is_none());
    let certain = certain.filter_map(|target| written(target, elsewhere, place, exposed));
    let reads =
        simple.looks || simple.starts || READERS.contains(name) || !simple.writes.is_empty();
    let guessed = simple.args().iter().filter(|word| {
        !reads
            && !place.sandboxed
            && !word.text.starts_with('-')
            && !word.text.contains(char::is_whitespace)
    });
    let guessed = guessed
        .filter_map(|word| protected(&word.text, place).or_else(|| instructions(&word.text)));
    // The program may not write the path at all, so a person decides.
    let guessed = guessed.map(|decision| Decision {
        verdict: Verdict::Person,
        ..decision
    });
    super::strictest(certain.chain(guessed))
}

fn written(
    target: &WriteTarget,
    elsewhere: bool,
    place: CallProtection,
    exposed: &[String],
) -> Option<Decision> {
    let path = target.word.text.as_str();
    if PLAIN_DEVICES.iter().any(|plain| under(path, plain)) {
        return None;
    }
    let secret = || is_credential(path).then(|| credential(path, exposed));
    if let Some(decision) = secret()
        .or_else(|| protected(path, place))
        .or_else(|| instructions(path))
    {
        return Some(decision);
    }
    ((leads_out(path) || elsewhere) && !place.sandboxed).then(|| {
        let reason = format!("`{path}` may be outside the workspace; only a person can allow it");
        Decision::new(Verdict::Person, WRITING_OUTSIDE, reason)
    })
}

fn git_of(simple: &Simple, place: CallProtection) -> Option<Decision> {
    let args = (simple.name() == "git").then(|| simple.args());
    let destroys = destructive_git(args?)?;
    (!place.isolation.is_isolated() || destroys == "push").then(|| {
        let reason = "it throws work away or rewrites what others have";
        Decision::new(Verdict::Person, "floor: destructive git", reason)
    })
}

/// Commands that run code which cannot be determined beforehand.
fn unknowable(simple: &Simple) -> Option<Decision> {
    let name = simple.name();
    runs_unseen(simple).then(|| {
        let reason = format!("it is not clear beforehand what `{name}` would run");
        Decision::new(Verdict::Person, UNREADABLE, reason)
    })
}

fn runs_unseen(simple: &Simple) -> bool {
    let args = simple.args();
    let unknown = args.iter().any(|word| !word.known);
    match simple.name() {
        "eval" | "source" | "." => unknown,
        // A shell that reads its script from a pipe, or whose script is only known at run time.
        name if SHELLS.contains(name) => {
            let fed = simple.piped && args.iter().all(|word| word.text.starts_with('-'));
            fed || unknown || simple.input.as_ref().is_some_and(|input| !input.known)
        }
        _ => false,
    }
}

/// Whether it cannot be determined which program a command runs.
pub(super) fn hides_program(simple: &Simple) -> bool {
    !simple.is_named() || runs_unseen(simple)
}

/// Whether the text of a path suggests that it leaves the workspace.
fn leads_out(path: &str) -> bool {
    path.starts_with(['/', '~'])
        || path.split('/').any(|part| part == "..")
        || path.contains("$HOME")
}

/// Whether a path is in a directory for temporary files, which is private in a sandbox.
pub(super) fn is_temporary(path: &str) -> bool {
    TEMPORARY.iter().any(|place| under(path, place)) && !path.split('/').any(|part| part == "..")
}

/// The arguments of a command that may name files, without those that are only printed, matched or used as a message.
fn file_words(simple: &Simple) -> impl Iterator<Item = &Word> {
    let name = simple.name();
    let pattern_at = match name {
        "grep" | "egrep" | "fgrep" | "rg" | "ag" | "ack" | "sed" | "awk" | "gawk" | "jq" | "yq" => {
            let words = simple.words.iter().skip(1);
            words
                .clone()
                .position(|word| !word.text.starts_with('-'))
                .map(|at| at + 1)
        }
        _ => None,
    };
    let printed = matches!(name, "echo" | "printf" | "" | "for" | "case" | "function");
    // It is no secret whether a file exists.
    let asks = matches!(name, "test" | "[" | "[[" | "ls" | "stat")
        || (name == "git"
            && simple
                .args()
                .first()
                .is_some_and(|word| word.text == "check-ignore"));
    simple
        .words
        .iter()
        .enumerate()
        .skip(1)
        .filter_map(move |(at, word)| {
            let before = simple.words[at - 1].text.as_str();
            let text = match name {
                "git" | "gh" => {
                    let cluster =
                        before.len() <= 5 && before.starts_with('-') && !before.starts_with("--");
                    matches!(before, "--message" | "--title" | "--body")
                        || (cluster && before.ends_with('m'))
                }
                "find" => matches!(before, "-name" | "-iname" | "-path" | "-ipath"),
                _ => Some(at) == pattern_at,
            };
            let out = word.text.starts_with("--exclude")
                || word.text.starts_with("--ignore")
                || word.text.starts_with("--message=");
            (!printed && !asks && !text && !out).then_some(word)
        })
}

/// The part of a word that names credentials. A word may be a piece of code with names in quotes.
fn credential_in(word: &str) -> Option<&str> {
    let borders = |c: char| c.is_whitespace() || ";|&()<>`\"'{}$=,@:".contains(c);
    let is_code = word.contains(|c: char| c.is_whitespace() || matches!(c, '(' | ')' | ';'));
    word.split(borders)
        .filter(|part| !part.is_empty())
        .find(|part| {
            let bare = !part.contains('/');
            // `kubectl get secrets` and `print(event.key)` do not name files.
            let common = bare
                && (matches!(*part, "secrets" | "credentials")
                    || (is_code && part.ends_with(".key")));
            !common && is_credential(part)
        })
}

/// The pattern that the answer "always" offers for a command line. It covers the one command that does more than read,
/// if its arguments are plain and its program is not too powerful. If the first words name a task, the pattern ends in
/// a wildcard for further arguments; otherwise it is the exact command.
pub(super) fn always_pattern(script: &ShellScript) -> Option<String> {
    let mut busy = script.commands.iter().filter(|simple| !simple.looks);
    let (Some(simple), None) = (busy.next(), busy.next()) else {
        return None;
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./:,@%+-=".contains(c);
    let fits = |word: &Word| {
        word.known
            && !word.text.is_empty()
            && word.text.chars().all(plain)
            && !word.text.contains("..")
    };
    let name = simple.name();
    let risky = RISKY.contains(name)
        || SHELLS.contains(name)
        || PRIVILEGE.contains(name)
        || name.starts_with("python");
    let sets = name == "git"
        && simple
            .args()
            .first()
            .is_none_or(|word| word.text.starts_with('-'));
    let redirected = simple
        .writes
        .iter()
        .any(|target| !simple.words.contains(&target.word));
    if !script.is_certain() || risky || sets || redirected || !simple.words.iter().all(fits) {
        return None;
    }
    let words: Vec<&str> = simple.words.iter().map(|word| word.text.as_str()).collect();
    let task = |word: &str| {
        word.bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte == b'-' || byte == b':')
    };
    let named = match words[..] {
        ["git", sub, ..] => GIT_LOOKS.contains(sub).then_some(2),
        [program, "run", script, ..] if RUNNERS.contains(program) && task(script) => Some(3),
        [program, sub, ..] if TASKS.contains(program) && task(sub) && !sub.starts_with('-') => {
            (!REACH_FURTHER.contains(sub)).then_some(2)
        }
        _ => None,
    };
    Some(match named {
        Some(count) => format!("{} *", words[..count].join(" ")),
        None => words.join(" "),
    })
}

fn destructive_git(rest: &[Word]) -> Option<&'static str> {
    let has = |word: &str| rest.iter().any(|known| known.text == word);
    // Git accepts an abbreviated long option.
    let long = |option: &str| {
        rest.iter()
            .any(|word| word.text.len() > 4 && option.starts_with(word.text.as_str()))
    };
    let flag = |short: char, option: &str| {
        let short = |word: &Word| {
            word.text.starts_with('-') && !word.text.starts_with("--") && word.text.contains(short)
        };
        long(option) || rest.iter().any(short)
    };
    let cases: [(&str, bool); 11] = [
        (
            "push",
            has("push")
                && (flag('f', "--force")
                    || flag('d', "--delete")
                    || rest.iter().any(|w| {
                        w.text.starts_with("--force-")
                            || w.text == "--mirror"
                            || w.text == "--prune"
                    })
                    || rest
                        .iter()
                        .any(|w| w.text.starts_with('+') || w.text.starts_with(':'))),
        ),
        ("reset", has("reset") && long("--hard")),
        ("clean", has("clean") && flag('f', "--force")),
        (
            "branch",
            has("branch") && (flag('D', "--force") || flag('f', "--force")),
        ),
        (
            "checkout",
            has("checkout") && (has("--") || has(".") || flag('f', "--force")),
        ),
        (
            "restore",
            has("restore") && (!(has("--staged") || has("-S")) || has("--worktree") || has("-W")),
        ),
        ("filter-branch", has("filter-branch")),
        ("update-ref", has("update-ref") && flag('d', "--delete")),
        ("reflog", has("reflog") && has("expire")),
        ("stash", has("stash") && (has("drop") || has("clear"))),
        (
            "switch",
            has("switch") && (flag('f', "--force") || long("--discard-changes")),
        ),
    ];
    cases
        .into_iter()
        .find(|(_, hit)| *hit)
        .map(|(name, _)| name)
}

/// Programs whose second word names a task of the project.
const TASKS: NameTable =
    NameTable("cargo npm pnpm yarn bun go make just mvn gradle dotnet mix rake");
const RUNNERS: NameTable = NameTable("npm pnpm yarn bun");
/// Second words that fetch or start something from outside the project.
const REACH_FURTHER: NameTable =
    NameTable("run exec dlx x install add get generate publish config login init");
const GIT_LOOKS: NameTable =
    NameTable("status diff log show add commit branch blame ls-files rev-parse");
/// Programs that change none of the files they are given. Git is included, because it has its own checks.
const READERS: NameTable = NameTable(
    "git gh find source cat ls head tail grep rg egrep fgrep ag ack wc stat file test [ [[ echo printf diff cmp less \
     more tree du df sha256sum md5sum b3sum sort uniq cut tr nl sed awk gawk jq yq pwd cd pushd popd which type true \
     false date xxd od strings realpath readlink basename dirname export set exit sleep for",
);
const SHELLS: NameTable = NameTable("sh bash dash zsh ksh ash mksh fish rbash");
/// Programs that can do anything, so that "always" is not offered for them.
const RISKY: NameTable = NameTable(
    "node deno bun ruby perl php lua tclsh osascript awk gawk rm rmdir shred dd mv chmod chown ln tee curl wget ssh \
     scp sftp rsync nc ncat socat eval source . exec xargs find env docker podman kubectl helm terraform kill pkill \
     killall npx bunx uvx crontab at systemctl gdb strace parallel watch",
);
/// Options with which a program only describes itself.
const ASKS: NameTable = NameTable("--help --version -V");
const PRIVILEGE: NameTable = NameTable(
    "sudo su doas pkexec mkfs mkswap fdisk parted mount umount losetup insmod rmmod modprobe shutdown reboot poweroff \
     halt chroot nsenter setcap visudo useradd userdel usermod passwd chpasswd",
);
