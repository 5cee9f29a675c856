//! Programs that start other programs, such as `env` and `sudo`: finds the position of the inner command in their words,
//! or the argument that is a command line. If an option is not known, both possible positions are returned, so that a
//! forbidden program cannot hide behind it.

use windlass_core::shell::{Assign, Simple, Word};

use crate::is_among;

/// A command that another command starts.
pub(crate) enum InnerCommand {
    /// The words of the command, and whether it runs in the same directory.
    Words(Vec<Word>, bool),
    /// A command line for a shell.
    Text(String),
}

/// A program that starts the command in its arguments.
struct Wrapper {
    name: &'static str,
    /// Short options that take a value.
    short: &'static str,
    /// Long options that take the next word as their value.
    long: &'static str,
    /// Options without a value.
    plain: &'static str,
    /// The number of operands before the command.
    skip: usize,
}

const fn wrapper(name: &'static str) -> Wrapper {
    Wrapper {
        name,
        short: "",
        long: "",
        plain: "",
        skip: 0,
    }
}

impl Wrapper {
    const fn takes(self, short: &'static str, long: &'static str) -> Self {
        Self {
            short,
            long,
            ..self
        }
    }

    const fn plain(self, plain: &'static str) -> Self {
        Self { plain, ..self }
    }

    const fn skip(self, skip: usize) -> Self {
        Self { skip, ..self }
    }
}

const WRAPPERS: &[Wrapper] = &[
    wrapper("env")
        .takes("uC", "unset chdir")
        .plain("-i - -0 -v --ignore-environment --null"),
    wrapper("command").plain("-p"),
    wrapper("builtin"),
    wrapper("exec").takes("a", "").plain("-c -l"),
    wrapper("nohup"),
    wrapper("setsid").plain("-c -f -w --ctty --fork --wait"),
    wrapper("nice").takes("n", "adjustment"),
    wrapper("ionice")
        .takes("cnp", "class classdata")
        .plain("-t --ignore"),
    wrapper("timeout")
        .takes("ks", "kill-after signal")
        .plain("-v --foreground --preserve-status")
        .skip(1),
    wrapper("stdbuf").takes("ioe", "input output error"),
    wrapper("time")
        .takes("fo", "format output")
        .plain("-p -v -a --verbose"),
    wrapper("chrt")
        .takes("TPD", "")
        .plain("-f -r -o -b -i")
        .skip(1),
    wrapper("taskset").plain("-c -a").skip(1),
    wrapper("xargs")
        .takes(
            "nPILdEsa",
            "max-args max-procs replace max-lines delimiter eof max-chars arg-file",
        )
        .plain("-0 -r -t -p -x --null --no-run-if-empty --verbose --interactive --exit"),
    wrapper("sudo")
        .takes("ugphCDTRrtU", "user group prompt chdir")
        .plain("-n -E -H -S -i -s"),
    wrapper("doas").takes("uC", "").plain("-n -s"),
    wrapper("pkexec").takes("", "user"),
    wrapper("chroot").skip(1),
    wrapper("unshare")
        .takes("SG", "root wd")
        .plain("-r -m -n -p -f -U -u -i"),
    wrapper("strace")
        .takes("oepsuEaIOPSXb", "output trace attach")
        .plain("-f -ff -c -q -v -t"),
    wrapper("ltrace")
        .takes("oepsuna", "output")
        .plain("-f -c -S"),
    wrapper("flock")
        .takes("wEc", "wait timeout conflict-exit-code")
        .plain("-n -x -s -u -o -e")
        .skip(1),
    wrapper("chronic").plain("-v -e"),
    wrapper("unbuffer").plain("-p"),
    wrapper("busybox"),
    wrapper("toybox"),
    wrapper("systemd-run")
        .takes("pEu", "unit property")
        .plain("--user --scope --pty -q"),
    wrapper("caffeinate")
        .takes("tw", "")
        .plain("-d -i -m -s -u"),
    wrapper("npx")
        .takes("pc", "package")
        .plain("-y --yes --no-install -q"),
    wrapper("bunx"),
    wrapper("uvx").takes("p", "python with from").plain("-q"),
];

/// Programs that start the command in their arguments if the given subcommand comes first.
const RUNNERS: &[(&str, &str)] = &[
    ("uv", "run"),
    ("poetry", "run"),
    ("pipenv", "run"),
    ("pdm", "run"),
    ("hatch", "run"),
    ("rye", "run"),
    ("bundle", "exec"),
    ("npm", "exec"),
    ("pnpm", "exec"),
    ("pnpm", "dlx"),
    ("yarn", "exec"),
    ("mise", "exec"),
    ("direnv", "exec"),
    ("git", "bisect"),
];

pub(crate) const SHELLS: &[&str] = &[
    "sh", "bash", "dash", "zsh", "ksh", "ash", "mksh", "fish", "rbash",
];

/// Options of other programs whose value is a command line.
const LINES: &[(&str, &str)] = &[
    (
        "git",
        "--upload-pack --receive-pack --exec -x -O --open-files-in-pager --extcmd",
    ),
    (
        "tar",
        "--to-command --use-compress-program -I --rsh-command --info-script -F",
    ),
    ("rsync", "-e --rsh --rsync-path"),
    ("rg", "--pre --hostname-bin"),
    ("sort", "--compress-program"),
    ("script", "-c --command"),
    ("su", "-c --command"),
    ("flock", "-c --command"),
    ("ssh", "-o"),
    ("man", "-P --pager"),
    ("xterm", "-e"),
    ("npx", "-c --call"),
    ("npm", "-c --call"),
    ("vim", "-c"),
];

/// Environment variables whose value is run as a command.
const RUN_BY_NAME: &str = "\
    GIT_EXTERNAL_DIFF GIT_PAGER GIT_EDITOR GIT_SEQUENCE_EDITOR GIT_SSH GIT_SSH_COMMAND \
    GIT_ASKPASS PAGER EDITOR VISUAL BROWSER PROMPT_COMMAND PS0 PS1 PS4 LESSOPEN LESSCLOSE \
    MANPAGER SHELL BASH_ENV ENV SSH_ASKPASS RUSTC_WRAPPER CC MAKE";

/// Suffixes of the names of git settings whose value is run as a command.
const RUN_BY_SETTING: &str = "\
    pager editor sshcommand fsmonitor external textconv command askpass hookspath cmd helper \
    program proxy";

/// The commands that a command would start.
pub(crate) fn started_by(simple: &mut Simple) -> Vec<InnerCommand> {
    let mut inner = Vec::new();
    let name = simple.name().to_owned();
    let args = simple.args().to_vec();
    let starts = inner_at(simple);
    if let Some(at) = starts.first() {
        simple.starts = true;
        for word in args.iter().take(at.saturating_sub(1)) {
            if let Some((name, value)) = word.text.split_once('=').filter(|(name, _)| is_name(name))
            {
                let value = Word {
                    text: value.to_owned(),
                    ..word.clone()
                };
                simple.assigns.push(Assign {
                    name: name.to_owned(),
                    value,
                });
            }
        }
    }
    let same_place = !matches!(
        name.as_str(),
        "xargs" | "env" | "sudo" | "chroot" | "doas" | "flock" | "busybox"
    );
    for at in starts {
        inner.push(InnerCommand::Words(simple.words[at..].to_vec(), same_place));
    }
    for assign in simple
        .assigns
        .iter()
        .filter(|assign| is_among(&assign.name, RUN_BY_NAME))
    {
        inner.push(InnerCommand::Text(assign.value.text.clone()));
    }
    started_by_arguments(&name, &args, &mut inner);
    inner
}

/// Commands in the arguments of programs that are not in [`WRAPPERS`], such as `eval` and `find -exec`.
fn started_by_arguments(name: &str, args: &[Word], inner: &mut Vec<InnerCommand>) {
    let join = |words: &[Word]| {
        words
            .iter()
            .map(|word| word.text.as_str())
            .collect::<Vec<_>>()
            .join(" ")
    };
    match name {
        "eval" if args.iter().all(|word| word.known) => inner.push(InnerCommand::Text(join(args))),
        "trap" | "watch" => inner.extend(plain_words(args, "n").first().map(|at| match name {
            "trap" => InnerCommand::Text(args[*at].text.clone()),
            _ => InnerCommand::Text(join(&args[*at..])),
        })),
        "mapfile" | "readarray" => {
            let at = args.iter().position(|word| word.text == "-C");
            let next = at.and_then(|at| args.get(at + 1));
            inner.extend(next.map(|word| InnerCommand::Text(word.text.clone())));
            inner.extend(attached_values(args, "-C"));
        }
        "alias" => {
            let values = args.iter().filter_map(|word| word.text.split_once('='));
            inner.extend(values.map(|(_, value)| InnerCommand::Text(value.to_owned())));
        }
        "parallel" => {
            let end = args
                .iter()
                .position(|word| word.text.starts_with(":::"))
                .unwrap_or(args.len());
            let first = plain_words(&args[..end], "jISaNnLlC").first().copied();
            inner.extend(first.map(|at| InnerCommand::Text(join(&args[at..end]))));
        }
        "find" | "gfind" => {
            let starts =
                |word: &Word| matches!(word.text.as_str(), "-exec" | "-execdir" | "-ok" | "-okdir");
            for (at, start) in args.iter().enumerate().filter(|(_, word)| starts(word)) {
                let words = &args[at + 1..];
                let end = words
                    .iter()
                    .position(|word| matches!(word.text.as_str(), ";" | "+") || starts(word))
                    .unwrap_or(words.len());
                // These two run in the directory of `find`; the others in the directory of the file found.
                let here = matches!(start.text.as_str(), "-exec" | "-ok");
                inner.push(InnerCommand::Words(words[..end].to_vec(), here));
            }
        }
        "fd" | "fdfind" => {
            let starts =
                |word: &Word| matches!(word.text.as_str(), "-x" | "-X" | "--exec" | "--exec-batch");
            inner.extend(
                args.split(starts)
                    .skip(1)
                    .map(|words| InnerCommand::Words(words.to_vec(), false)),
            );
        }
        name if SHELLS.contains(&name) => {
            inner.extend(script_of(args).map(|word| InnerCommand::Text(word.text.clone())))
        }
        name if is_loader(name) => {
            let first = plain_words(args, "").into_iter().next();
            inner.extend(first.map(|at| InnerCommand::Words(args[at..].to_vec(), true)));
        }
        "git" => git_settings(args, inner),
        "env" => {
            inner.extend(attached_values(args, "--split-string="));
            let at = args
                .iter()
                .position(|word| matches!(word.text.as_str(), "-S" | "--split-string"));
            inner.extend(at.map(|at| InnerCommand::Text(join(&args[at + 1..]))));
            inner.extend(attached_values(args, "-S"));
        }
        _ => {}
    }
    if let Some((_, options)) = LINES.iter().find(|(program, _)| *program == name) {
        lines_of(args, options, inner);
    }
    if let Some(word) = args
        .iter()
        .find(|word| word.text.contains("checkpoint-action=exec="))
    {
        let text = word.text.split_once("exec=").map_or("", |(_, text)| text);
        inner.push(InnerCommand::Text(text.to_owned()));
    }
}

/// The values that are attached to an option in the same word.
fn attached_values<'a>(
    args: &'a [Word],
    option: &'a str,
) -> impl Iterator<Item = InnerCommand> + 'a {
    let values = args
        .iter()
        .filter_map(move |word| word.text.strip_prefix(option));
    values
        .filter(|text| !text.is_empty())
        .map(|text| InnerCommand::Text(text.to_owned()))
}

fn lines_of(args: &[Word], options: &str, inner: &mut Vec<InnerCommand>) {
    for (at, word) in args.iter().enumerate() {
        for option in options.split(' ') {
            let value = match word.text.strip_prefix(option) {
                Some("") => args.get(at + 1).map(|next| next.text.as_str()),
                Some(rest) if option.starts_with("--") => rest.strip_prefix('='),
                Some(rest) => Some(rest),
                // A long option may be abbreviated.
                None => word
                    .text
                    .split_once('=')
                    .filter(|(begin, _)| begin.len() > 4 && option.starts_with(begin))
                    .map(|(_, value)| value),
            };
            inner.extend(value.map(|text| InnerCommand::Text(text.to_owned())));
        }
    }
}

/// Values of `git -c name=value` that git runs as commands.
fn git_settings(args: &[Word], inner: &mut Vec<InnerCommand>) {
    for pair in args
        .windows(2)
        .filter(|pair| matches!(pair[0].text.as_str(), "-c" | "--config"))
    {
        let Some((name, value)) = pair[1].text.split_once('=') else {
            continue;
        };
        let name = name.to_lowercase();
        if name.starts_with("alias.")
            || name.starts_with("filter.")
            || RUN_BY_SETTING.split(' ').any(|end| name.ends_with(end))
        {
            inner.push(InnerCommand::Text(value.trim_start_matches('!').to_owned()));
        }
    }
    if let Some(at) = args.iter().position(|word| word.text == "foreach") {
        let words: Vec<&str> = args[at + 1..]
            .iter()
            .map(|word| word.text.as_str())
            .filter(|word| *word != "--recursive")
            .collect();
        inner.push(InnerCommand::Text(words.join(" ")));
    }
}

/// The index of the word at which the inner command begins; several if an option is not known.
pub(crate) fn inner_at(simple: &Simple) -> Vec<usize> {
    let (name, args) = (simple.name(), simple.args());
    if name == "command"
        && args
            .first()
            .is_some_and(|word| word.text.starts_with("-v") || word.text.starts_with("-V"))
    {
        return Vec::new();
    }
    if let Some((_, second)) = RUNNERS.iter().find(|(program, second)| {
        *program == name && args.first().is_some_and(|word| word.text == *second)
    }) {
        let from = if *second == "bisect" { 2 } else { 1 };
        let rest = args.get(from..).unwrap_or_default();
        return plain_words(rest, "")
            .into_iter()
            .take(1)
            .map(|at| at + from + 1)
            .collect();
    }
    let Some(wrapper) = WRAPPERS.iter().find(|wrapper| wrapper.name == name) else {
        return Vec::new();
    };
    let is_assignment = |word: &Word| {
        let assigned = word.text.split_once('=');
        assigned.is_some_and(|(name, _)| is_name(name))
    };
    let sets =
        |at: usize| matches!(name, "env" | "time") && args.get(at).is_some_and(is_assignment);
    let mut at = 0;
    let mut maybe = Vec::new();
    while let Some(word) = args.get(at) {
        let text = word.text.as_str();
        if text == "--" {
            at += 1;
            break;
        }
        if sets(at) {
            at += 1;
            continue;
        }
        if !text.starts_with('-') || (text == "-" && name != "env") {
            break;
        }
        let (known, takes) = option_of(wrapper, text);
        if !known {
            maybe.push(at + 2);
        }
        at += if takes { 2 } else { 1 };
    }
    // Assignments may follow the options of `env`.
    while sets(at) {
        at += 1;
    }
    let all = std::iter::once(at).chain(maybe);
    all.map(|at| at + wrapper.skip + 1)
        .filter(|at| *at < simple.words.len())
        .collect()
}

/// Whether an option of a wrapper is known, and whether the next word is its value.
fn option_of(wrapper: &Wrapper, text: &str) -> (bool, bool) {
    if is_among(text, wrapper.plain) {
        return (true, false);
    }
    if let Some(long) = text.strip_prefix("--") {
        let name = long.split('=').next().unwrap_or_default();
        let known = is_among(name, wrapper.long);
        return (known, known && !long.contains('='));
    }
    let cluster = &text[1..];
    if cluster.bytes().all(|byte| byte.is_ascii_digit()) {
        return (wrapper.name == "nice", false);
    }
    match cluster.find(|c| wrapper.short.contains(c)) {
        Some(at) => (true, at + 1 == cluster.len()),
        None => (
            cluster.chars().all(|c| {
                let mut plain = wrapper.plain.split(' ');
                plain.any(|plain| plain.len() == 2 && plain.ends_with(c))
            }),
            false,
        ),
    }
}

/// Whether every option of a wrapper is one of its known ones.
pub(crate) fn options_are_known(simple: &Simple) -> bool {
    let Some(wrapper) = WRAPPERS
        .iter()
        .find(|wrapper| wrapper.name == simple.name())
    else {
        return false;
    };
    let Some(at) = inner_at(simple).first().copied() else {
        return false;
    };
    let options = simple.words[1..at]
        .iter()
        .filter(|word| word.text.starts_with('-'));
    options.clone().all(|word| option_of(wrapper, &word.text).0)
        && simple.words[1..at].iter().all(|word| word.known)
}

/// The indexes of the words that are not options; `values` are the short options that take a value.
pub(crate) fn plain_words(args: &[Word], values: &str) -> Vec<usize> {
    let mut places = Vec::new();
    let mut at = 0;
    while let Some(word) = args.get(at) {
        let text = word.text.as_str();
        if text == "--" {
            places.extend(at + 1..args.len());
            break;
        }
        if !text.starts_with('-') || text == "-" {
            places.push(at);
        } else if text.len() == 2 && values.contains(&text[1..]) {
            at += 1;
        }
        at += 1;
    }
    places
}

/// The script in the arguments of a shell with `-c`.
pub(crate) fn script_of(args: &[Word]) -> Option<&Word> {
    let flag = |word: &Word| {
        word.text.starts_with('-') && !word.text.starts_with("--") && word.text.contains('c')
    };
    let at = args.iter().position(flag)?;
    args[at + 1..]
        .iter()
        .find(|word| !word.text.starts_with(['-', '+']))
}

/// Whether a command is a shell that runs its stdin as a script.
pub(crate) fn reads_script(simple: &Simple) -> bool {
    let args = simple.args();
    SHELLS.contains(&simple.name())
        && script_of(args).is_none()
        && args
            .iter()
            .all(|word| word.text.starts_with(['-', '+']) || word.text == "/dev/stdin")
}

fn is_loader(name: &str) -> bool {
    name.starts_with("ld-linux")
        || name.starts_with("ld-musl")
        || name.starts_with("ld.so")
        || name.starts_with("ld64.so")
}

pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
