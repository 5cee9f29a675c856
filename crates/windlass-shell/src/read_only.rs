//! Decides which commands are read-only. A command is read-only if its program is in a table here and each of its options
//! is in the list of that program; long options must be written in full. Anything that is not listed is not read-only.

mod git;
mod scripts;
mod table;

use windlass_core::shell::{Simple, Word};

use crate::{is_among, wrappers, writers};
use table::{Operands, ReadOnlyProgram};

/// Sets for each command whether it is read-only and what it reads, or the files that it certainly writes.
pub(crate) fn judge(commands: &mut [Simple]) {
    let loops = loops(commands);
    for at in 0..commands.len() {
        let feeds = reads_file_names(commands, at);
        let simple = &mut commands[at];
        // A command from nested text was already judged when that text was parsed.
        if simple.looks {
            continue;
        }
        if simple.writes.iter().all(|target| target.at.is_none()) {
            let known = writers::targets(simple);
            for target in known {
                if !simple.writes.contains(&target) {
                    simple.writes.push(target);
                }
            }
        }
        let harmless_context = simple.assigns.is_empty()
            && !simple.odd
            && simple
                .writes
                .iter()
                .all(|target| is_discarding(&target.word))
            && simple.reads.iter().all(|word| word.known);
        let seen = || read_access(simple, feeds).or_else(|| counts(simple, &loops));
        if let Some(seen) = harmless_context.then(seen).flatten() {
            simple.looks = true;
            simple.walks = seen.walks;
            simple.reads.extend(seen.reads);
        }
    }
}

/// The files that a read-only command reads.
#[derive(Default)]
pub(crate) struct ReadAccess {
    pub(crate) reads: Vec<Word>,
    /// The command walks directories.
    pub(crate) walks: bool,
}

impl ReadAccess {
    fn nothing() -> Option<Self> {
        Some(Self::default())
    }

    /// The command reads exactly these files.
    fn reads(reads: Vec<Word>) -> Self {
        Self {
            reads,
            walks: false,
        }
    }
}

/// Whether a redirection to this word changes no file.
fn is_discarding(word: &Word) -> bool {
    word.known
        && matches!(
            word.text.as_str(),
            "/dev/null" | "/dev/stdout" | "/dev/stderr" | "/dev/fd/1" | "/dev/fd/2"
        )
}

fn read_access(simple: &Simple, fed: bool) -> Option<ReadAccess> {
    let Some(first) = simple.words.first() else {
        return ReadAccess::nothing();
    };
    if !first.known || first.glob {
        return None;
    }
    let name = match first.text.rsplit_once('/') {
        None => first.text.as_str(),
        Some(("/bin" | "/usr/bin", name)) => name,
        Some(_) => return None,
    };
    let args = simple.args();
    match name {
        "for" => loop_name(args),
        "case" => ReadAccess::nothing(),
        "echo" | "true" | "false" | ":" => ReadAccess::nothing(),
        "printf" => args
            .first()
            .filter(|format| prints(format))
            .and_then(|_| ReadAccess::nothing()),
        "cd" => match args {
            [dir] if dir.known && !dir.glob && !dir.text.starts_with('-') => {
                Some(ReadAccess::reads(vec![dir.clone()]))
            }
            _ => None,
        },
        "test" => test(args),
        "[" => test(args.split_last().filter(|(last, _)| last.text == "]")?.1),
        "[[" => double_bracket(args),
        "read" => args
            .iter()
            .all(|word| word.known && (word.text == "-r" || is_private_name(&word.text)))
            .then(ReadAccess::default),
        "set" => args
            .iter()
            .all(|word| word.known && SETTINGS.contains(&word.text.as_str()))
            .then(ReadAccess::default),
        "date" => date(args),
        "hostname" | "nproc" => args.is_empty().then(ReadAccess::default),
        "ps" => args
            .iter()
            .all(|word| {
                word.known && matches!(word.text.as_str(), "aux" | "-ef" | "-e" | "-f" | "-A")
            })
            .then(ReadAccess::default),
        "env" if args.is_empty() => ReadAccess::nothing(),
        "command"
            if args
                .first()
                .is_some_and(|word| matches!(word.text.as_str(), "-v" | "-V")) =>
        {
            ReadAccess::nothing()
        }
        "command" | "timeout" | "nice" | "time" | "stdbuf" | "builtin" => wrapped(simple),
        "xargs" => xargs(simple, fed),
        "find" => scripts::find(args),
        "sed" => scripts::sed(args),
        "awk" | "gawk" | "mawk" => scripts::awk(args),
        "tar" => tar(args),
        // Without operands it lists the mounts.
        "mount" if args.iter().all(|word| word.known && word.text == "-l") => ReadAccess::nothing(),
        "git" => git::read_access(args),
        // A jq program can load modules from any path.
        "jq" if args
            .iter()
            .any(|word| word.text.contains("import") || word.text.contains("include")) =>
        {
            None
        }
        _ => version_query(name, args).or_else(|| by_table(name, args)),
    }
}

const SETTINGS: &[&str] = &[
    "-e", "-u", "-x", "-eu", "-ex", "-eux", "-euo", "-euxo", "-o", "pipefail", "-exo", "-eo",
];

/// Whether a format of `printf` only prints: `%n` would set a variable.
fn prints(format: &Word) -> bool {
    let sets = |part: &str| {
        part.trim_start_matches(|c: char| "#-+ 0123456789.*'hlLjztq$".contains(c))
            .starts_with('n')
    };
    format.known && !format.text.starts_with('-') && !format.text.split('%').skip(1).any(sets)
}

/// Whether a variable name has no meaning for programs. Variables with a meaning are written in capitals.
fn is_private_name(name: &str) -> bool {
    wrappers::is_name(name)
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

fn loop_name(args: &[Word]) -> Option<ReadAccess> {
    args.first()
        .filter(|name| is_private_name(&name.text))
        .and_then(|_| ReadAccess::nothing())
}

/// `test` and `[`: one condition with a known operator. `-v` is not allowed, because it evaluates a subscript, which can
/// run commands.
fn test(args: &[Word]) -> Option<ReadAccess> {
    let args = match args.split_first() {
        Some((not, rest)) if not.known && not.text == "!" => rest,
        _ => args,
    };
    let unary = [
        "-e", "-f", "-d", "-r", "-w", "-x", "-s", "-L", "-h", "-n", "-z", "-t", "-p", "-S", "-O",
        "-G",
    ];
    let binary = [
        "=", "==", "!=", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef",
    ];
    let one = |word: &Word| word.one && !word.glob;
    match args {
        [a] => (a.known || one(a)).then(ReadAccess::default),
        [operator, a] => {
            let fits = operator.known && unary.contains(&operator.text.as_str()) && one(a);
            let names = !matches!(operator.text.as_str(), "-n" | "-z" | "-t");
            let reads = if names && a.known {
                vec![a.clone()]
            } else {
                Vec::new()
            };
            (fits && (!names || a.known)).then(|| ReadAccess::reads(reads))
        }
        [a, operator, b] => {
            (operator.known && binary.contains(&operator.text.as_str()) && one(a) && one(b))
                .then(ReadAccess::default)
        }
        _ => None,
    }
}

/// `[[`: only conditions on strings and files are allowed, because numbers are evaluated as arithmetic, which can run
/// commands.
fn double_bracket(args: &[Word]) -> Option<ReadAccess> {
    let operators = [
        "-e", "-f", "-d", "-r", "-w", "-x", "-s", "-L", "-n", "-z", "=", "==", "!=", "=~", "!",
        "&", "|",
    ];
    let free = |word: &Word| {
        !word.known || !word.text.starts_with('-') || operators.contains(&word.text.as_str())
    };
    args.iter().all(free).then(ReadAccess::default)
}

fn date(args: &[Word]) -> Option<ReadAccess> {
    let mut value = false;
    for word in args {
        let text = word.text.as_str();
        if std::mem::take(&mut value) {
            continue;
        }
        let fits = word.known
            && (matches!(text, "-u" | "-I" | "-R" | "--utc" | "-d" | "--date")
                || ["+", "--date=", "--iso-8601", "--rfc-3339=", "-I"]
                    .iter()
                    .any(|begin| text.starts_with(begin)));
        if !fits {
            return None;
        }
        value = matches!(text, "-d" | "--date");
    }
    ReadAccess::nothing()
}

/// A program that runs another one, which is judged separately.
fn wrapped(simple: &Simple) -> Option<ReadAccess> {
    // Some options of `time` name a file that it writes, in more than one spelling.
    let at = wrappers::inner_at(simple)
        .first()
        .copied()
        .unwrap_or(simple.words.len());
    let options = simple.words.get(1..at).unwrap_or_default();
    let writes = simple.name() == "time"
        && options
            .iter()
            .any(|word| !matches!(word.text.as_str(), "-p" | "-v"));
    (simple.starts && !writes && wrappers::options_are_known(simple)).then(ReadAccess::default)
}

/// Programs that show no content of a file and are harmless with any option. A file name that is split in two, looks like
/// an option or is a symlink is no problem for them.
const COUNTERS: &str =
    "wc ls stat du md5sum sha1sum sha256sum sha512sum b2sum basename dirname echo";

/// The variables of `for` loops over known words and patterns, with those words.
fn loops(commands: &[Simple]) -> Vec<(String, Vec<Word>)> {
    let loops = commands.iter().filter(|simple| simple.name() == "for");
    loops
        .filter_map(|simple| simple.args().split_first())
        .filter(|(name, values)| {
            is_private_name(&name.text) && values.iter().all(|word| word.known)
        })
        .map(|(name, values)| (name.text.clone(), values.to_vec()))
        .collect()
}

/// One of [`COUNTERS`] with a loop variable as a file.
fn counts(simple: &Simple, loops: &[(String, Vec<Word>)]) -> Option<ReadAccess> {
    let (first, args) = simple.words.split_first()?;
    if !first.known || !is_among(&first.text, COUNTERS) {
        return None;
    }
    let (mut files, mut named) = (Vec::new(), Vec::new());
    for word in args {
        if word.known {
            named.push(word.clone());
            continue;
        }
        let name = word.text.strip_prefix('$')?;
        let inner = name
            .strip_prefix('{')
            .and_then(|name| name.strip_suffix('}'));
        let (_, values) = loops
            .iter()
            .find(|(known, _)| known == inner.unwrap_or(name))?;
        files.extend(values.iter().cloned());
        named.push(Word::literal(LOOP_FILE));
    }
    // Check the options as if the loop variable were an ordinary file.
    let seen = by_table(&first.text, &named).filter(|_| !files.is_empty())?;
    files.extend(seen.reads.into_iter().filter(|word| word.text != LOOP_FILE));
    Some(ReadAccess {
        reads: files,
        walks: seen.walks,
    })
}

/// Replaces a loop variable while the options are checked.
const LOOP_FILE: &str = "./file";

/// `xargs` with one of [`COUNTERS`], if its input consists of file names from the workspace.
fn xargs(simple: &Simple, fed: bool) -> Option<ReadAccess> {
    let at = *wrappers::inner_at(simple).first()?;
    let options = &simple.words[1..at];
    let plain = options.iter().all(|word| {
        word.known
            && (matches!(word.text.as_str(), "-0" | "-r" | "-n" | "-L" | "-P" | "-d")
                || word.text.parse::<u32>().is_ok()
                || word.text == "\\n")
    });
    let inner = &simple.words[at];
    let free = inner.known && is_among(&inner.text, COUNTERS);
    (fed && plain && free).then_some(ReadAccess {
        reads: Vec::new(),
        walks: true,
    })
}

/// Whether the input of a command comes from a pipe of programs that list files of the workspace.
fn reads_file_names(commands: &[Simple], at: usize) -> bool {
    if !commands[at].piped {
        return false;
    }
    // Filters such as `head` only remove or reorder names, so the command before them is examined.
    let mut before = commands[..at].iter().rev();
    loop {
        let Some(simple) = before.next().filter(|simple| simple.looks) else {
            return false;
        };
        let args = simple.args();
        let inside = simple.reads.iter().all(|word| {
            !word.text.starts_with('/') && !word.text.split('/').any(|part| part == "..")
        });
        let has = |flag: &str| args.iter().any(|word| word.text == flag);
        match simple.name() {
            "git" => {
                return args.first().is_some_and(|word| word.text == "ls-files")
                    || has("--name-only");
            }
            "find" | "fd" | "ls" => {
                return inside && simple.dirs.as_ref().is_some_and(Vec::is_empty);
            }
            "rg" => return inside && (has("--files") || has("-l") || has("--files-with-matches")),
            "grep" if !simple.piped => {
                return inside
                    && args.iter().any(|word| {
                        word.text.starts_with('-')
                            && !word.text.starts_with("--")
                            && word.text.contains('l')
                    });
            }
            "grep" | "head" | "tail" | "sort" | "uniq"
                if simple.piped && simple.reads.is_empty() => {}
            _ => return false,
        }
    }
}

/// `tar` that lists the contents of an archive.
fn tar(args: &[Word]) -> Option<ReadAccess> {
    let (mode, rest) = args.split_first()?;
    let letters = mode.text.trim_start_matches('-');
    let lists = letters.contains('t')
        && letters.ends_with('f')
        && letters.chars().all(|c| "tvzjJf".contains(c));
    let plain = rest
        .iter()
        .all(|word| word.known && !word.glob && !word.text.starts_with('-'));
    let archive = rest.first().filter(|_| mode.known && lists && plain)?;
    (!archive.text.contains(':')).then(|| ReadAccess::reads(vec![archive.clone()]))
}

/// `python3 --version` and the like. Some programs read the version to run from the project; of these only the ones that
/// the gate treats as read-only solely inside a sandbox are listed.
fn version_query(name: &str, args: &[Word]) -> Option<ReadAccess> {
    let [one] = args else { return None };
    let asks = match name {
        "passwd" | "mount" | "umount" | "useradd" | "usermod" | "chpasswd" => one.text == "--help",
        "cargo" | "rustc" | "python" | "python3" | "pip" | "pip3" => {
            matches!(one.text.as_str(), "--version" | "-V")
        }
        "node" | "npm" | "php" | "ruby" | "perl" | "bun" => {
            matches!(one.text.as_str(), "--version" | "-v")
        }
        "java" => matches!(one.text.as_str(), "--version" | "-version"),
        "make" | "cmake" | "gcc" | "g++" | "clang" | "docker" | "bash" | "deno" | "uv" | "jq"
        | "rg" | "curl" | "tar" | "sed" | "awk" | "grep" | "ls" | "gh" | "kubectl"
        | "terraform" | "ffmpeg" | "sqlite3" | "psql" => one.text == "--version",
        _ => false,
    };
    (one.known && asks).then(ReadAccess::default)
}

/// Decides by the table of programs.
fn by_table(name: &str, args: &[Word]) -> Option<ReadAccess> {
    let program = table::find(name)?;
    let parsed = parse_options(program, args)?;
    let mut operands = parsed.operands.into_iter();
    let files: Vec<Word> = match program.operands {
        Operands::None => {
            if operands.next().is_some() {
                return None;
            }
            Vec::new()
        }
        Operands::Text => return ReadAccess::nothing(),
        Operands::Files => operands.collect(),
        Operands::PatternFiles => {
            if !parsed.pattern {
                // The pattern may be any text that expands to a single word.
                operands
                    .next()
                    .filter(|(word, _)| word.one && !word.glob || word.known)?;
            }
            operands.collect()
        }
    }
    .into_iter()
    .map(|(word, ended)| {
        let option_like =
            word.glob && word.text.starts_with(['*', '?', '[']) && !ended && !program.any;
        ((word.known || is_process_substitution(word)) && !option_like).then(|| word.clone())
    })
    .collect::<Option<_>>()?;
    // The second operand of these is a file that they write, and a glob may expand to two words.
    if matches!(name, "uniq" | "xxd") && (files.len() > 1 || files.iter().any(|word| word.glob)) {
        return None;
    }
    let files: Vec<Word> = files
        .into_iter()
        .filter(|word| word.known && word.text != "-")
        .collect();
    let walks = program.walks || parsed.walks;
    let here = walks && files.is_empty();
    let reads = if here {
        vec![Word::literal(".")]
    } else {
        files
    };
    Some(ReadAccess { reads, walks })
}

/// Whether a word is `<(…)`, the output of a command in place of a file.
fn is_process_substitution(word: &Word) -> bool {
    !word.known && word.text == "<()"
}

struct ParsedOptions<'a> {
    operands: Vec<(&'a Word, bool)>,
    /// The pattern was given by an option.
    pattern: bool,
    walks: bool,
}

/// Parses the arguments; returns `None` if an option is not in the list of the program.
fn parse_options<'a>(program: &ReadOnlyProgram, args: &'a [Word]) -> Option<ParsedOptions<'a>> {
    let mut parsed = ParsedOptions {
        operands: Vec::new(),
        pattern: false,
        walks: false,
    };
    let mut words = args.iter();
    let text_only = matches!(program.operands, Operands::Text);
    while let Some(word) = words.next() {
        let text = word.text.as_str();
        if word.known && text == "--" {
            parsed.operands.extend(words.map(|word| (word, true)));
            break;
        }
        if !text.starts_with('-') || text == "-" {
            // A word with an unknown value may expand to an option.
            if !(word.known
                || is_process_substitution(word)
                || text_only
                || (word.one && program.any))
            {
                return None;
            }
            parsed.operands.push((word, false));
            continue;
        }
        if !word.known {
            return None;
        }
        if let Some(long) = text.strip_prefix("--") {
            let (name, value) = long
                .split_once('=')
                .map_or((long, None), |(name, value)| (name, Some(value)));
            let takes = is_among(name, program.long_values);
            if !takes && !is_among(name, program.long) {
                return None;
            }
            if takes && value.is_none() {
                words.next().filter(|word| word.known || word.one)?;
            }
            parsed.pattern |= matches!(name, "regexp" | "files");
            parsed.walks |= matches!(name, "recursive" | "dereference-recursive");
            continue;
        }
        if program.digits && text[1..].bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        for (at, c) in text.char_indices().skip(1) {
            parsed.walks |= matches!(c, 'r' | 'R')
                && matches!(program.name, "grep" | "egrep" | "fgrep" | "ls" | "diff");
            if program.values.contains(c) {
                parsed.pattern |= c == 'e' && matches!(program.operands, Operands::PatternFiles);
                if at + 1 == text.len() {
                    words.next().filter(|word| word.known || word.one)?;
                }
                break;
            }
            if !program.short.contains(c) {
                return None;
            }
        }
    }
    Some(parsed)
}
