//! Which commands only look. A command looks when its program is in a table here and every one of its options is in
//! that program's own list; long options count only as they are written out in full. What is not listed does not
//! look, whatever its name promises.

mod git;
mod scripts;
mod table;

use windlass_core::shell::{Simple, Word};

use crate::{is_among, wrap, writers};
use table::{Operands, Program};

/// Fills in which commands look, what they read, and what the others write for certain.
pub(crate) fn judge(commands: &mut [Simple]) {
    let loops = loops(commands);
    for at in 0..commands.len() {
        let feeds = fed_by_a_lister(commands, at);
        let simple = &mut commands[at];
        // A command inside text was judged when that was read.
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
        let outside_words = simple.assigns.is_empty()
            && !simple.odd
            && simple.writes.iter().all(|target| is_nowhere(&target.word))
            && simple.reads.iter().all(|word| word.known);
        let seen = || look(simple, feeds).or_else(|| counts(simple, &loops));
        if let Some(seen) = outside_words.then(seen).flatten() {
            simple.looks = true;
            simple.walks = seen.walks;
            simple.reads.extend(seen.reads);
        }
    }
}

/// What a command that only looks would read.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) reads: Vec<Word>,
    pub(crate) walks: bool,
}

impl Seen {
    fn nothing() -> Option<Self> {
        Some(Self::default())
    }

    /// It reads these words, and goes through no folder.
    fn reads(reads: Vec<Word>) -> Self {
        Self {
            reads,
            walks: false,
        }
    }
}

/// A device that keeps nothing of what is written to it.
fn is_nowhere(word: &Word) -> bool {
    word.known
        && matches!(
            word.text.as_str(),
            "/dev/null" | "/dev/stdout" | "/dev/stderr" | "/dev/fd/1" | "/dev/fd/2"
        )
}

fn look(simple: &Simple, fed: bool) -> Option<Seen> {
    let Some(first) = simple.words.first() else {
        return Seen::nothing();
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
        "case" => Seen::nothing(),
        "echo" | "true" | "false" | ":" => Seen::nothing(),
        "printf" => args
            .first()
            .filter(|format| prints(format))
            .and_then(|_| Seen::nothing()),
        "cd" => match args {
            [dir] if dir.known && !dir.glob && !dir.text.starts_with('-') => {
                Some(Seen::reads(vec![dir.clone()]))
            }
            _ => None,
        },
        "test" => test(args),
        "[" => test(args.split_last().filter(|(last, _)| last.text == "]")?.1),
        "[[" => double_bracket(args),
        "read" => args
            .iter()
            .all(|word| word.known && (word.text == "-r" || is_own_name(&word.text)))
            .then(Seen::default),
        "set" => args
            .iter()
            .all(|word| word.known && SETTINGS.contains(&word.text.as_str()))
            .then(Seen::default),
        "date" => date(args),
        "hostname" | "nproc" => args.is_empty().then(Seen::default),
        "ps" => args
            .iter()
            .all(|word| {
                word.known && matches!(word.text.as_str(), "aux" | "-ef" | "-e" | "-f" | "-A")
            })
            .then(Seen::default),
        "env" if args.is_empty() => Seen::nothing(),
        "command"
            if args
                .first()
                .is_some_and(|word| matches!(word.text.as_str(), "-v" | "-V")) =>
        {
            Seen::nothing()
        }
        "command" | "timeout" | "nice" | "time" | "stdbuf" | "builtin" => started(simple),
        "xargs" => xargs(simple, fed),
        "find" => scripts::find(args),
        "sed" => scripts::sed(args),
        "awk" | "gawk" | "mawk" => scripts::awk(args),
        "tar" => tar(args),
        // Without operands it lists what is mounted.
        "mount" if args.iter().all(|word| word.known && word.text == "-l") => Seen::nothing(),
        "git" => git::look(args),
        // A program of jq can take in others, from any place.
        "jq" if args
            .iter()
            .any(|word| word.text.contains("import") || word.text.contains("include")) =>
        {
            None
        }
        _ => versions(name, args).or_else(|| plain(name, args)),
    }
}

const SETTINGS: &[&str] = &[
    "-e", "-u", "-x", "-eu", "-ex", "-eux", "-euo", "-euxo", "-o", "pipefail", "-exo", "-eo",
];

/// A format that only prints: `%n` would set a variable.
fn prints(format: &Word) -> bool {
    let sets = |part: &str| {
        part.trim_start_matches(|c: char| "#-+ 0123456789.*'hlLjztq$".contains(c))
            .starts_with('n')
    };
    format.known && !format.text.starts_with('-') && !format.text.split('%').skip(1).any(sets)
}

/// A name that no program looks at. Those with a meaning are written in capitals.
fn is_own_name(name: &str) -> bool {
    wrap::is_name(name)
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

fn loop_name(args: &[Word]) -> Option<Seen> {
    args.first()
        .filter(|name| is_own_name(&name.text))
        .and_then(|_| Seen::nothing())
}

/// `test` and `[`: one question with a known operator. `-v` would look at a subscript, which can run commands.
fn test(args: &[Word]) -> Option<Seen> {
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
        [a] => (a.known || one(a)).then(Seen::default),
        [operator, a] => {
            let fits = operator.known && unary.contains(&operator.text.as_str()) && one(a);
            let names = !matches!(operator.text.as_str(), "-n" | "-z" | "-t");
            let reads = if names && a.known {
                vec![a.clone()]
            } else {
                Vec::new()
            };
            (fits && (!names || a.known)).then(|| Seen::reads(reads))
        }
        [a, operator, b] => {
            (operator.known && binary.contains(&operator.text.as_str()) && one(a) && one(b))
                .then(Seen::default)
        }
        _ => None,
    }
}

/// `[[`: numbers are arithmetic there, so only texts and files are asked about.
fn double_bracket(args: &[Word]) -> Option<Seen> {
    let operators = [
        "-e", "-f", "-d", "-r", "-w", "-x", "-s", "-L", "-n", "-z", "=", "==", "!=", "=~", "!",
        "&", "|",
    ];
    let free = |word: &Word| {
        !word.known || !word.text.starts_with('-') || operators.contains(&word.text.as_str())
    };
    args.iter().all(free).then(Seen::default)
}

fn date(args: &[Word]) -> Option<Seen> {
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
    Seen::nothing()
}

/// A program that starts another one, which is judged by itself.
fn started(simple: &Simple) -> Option<Seen> {
    // Of the options of `time` some name a file that it writes, in more than one spelling.
    let at = wrap::inner_at(simple)
        .first()
        .copied()
        .unwrap_or(simple.words.len());
    let options = simple.words.get(1..at).unwrap_or_default();
    let writes = simple.name() == "time"
        && options
            .iter()
            .any(|word| !matches!(word.text.as_str(), "-p" | "-v"));
    (simple.starts && !writes && wrap::options_are_known(simple)).then(Seen::default)
}

/// Programs that show nothing of what a file holds and do no harm under any option: a name that is split in two, or
/// looks like an option, or is a link, does not matter to them.
const COUNTERS: &str =
    "wc ls stat du md5sum sha1sum sha256sum sha512sum b2sum basename dirname echo";

/// The variables of loops over known words and patterns, with those words: `for NAME in …`.
fn loops(commands: &[Simple]) -> Vec<(String, Vec<Word>)> {
    let loops = commands.iter().filter(|simple| simple.name() == "for");
    loops
        .filter_map(|simple| simple.args().split_first())
        .filter(|(name, values)| is_own_name(&name.text) && values.iter().all(|word| word.known))
        .map(|(name, values)| (name.text.clone(), values.to_vec()))
        .collect()
}

/// A program that only counts or names, with the variable of a loop for a file.
fn counts(simple: &Simple, loops: &[(String, Vec<Word>)]) -> Option<Seen> {
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
        named.push(Word::literal(A_FILE));
    }
    // The options are those that the program may have with a plain file.
    let seen = plain(&first.text, &named).filter(|_| !files.is_empty())?;
    files.extend(seen.reads.into_iter().filter(|word| word.text != A_FILE));
    Some(Seen {
        reads: files,
        walks: seen.walks,
    })
}

/// Stands for the variable of a loop.
const A_FILE: &str = "./file";

/// `xargs` in front of a program that only counts or names, with names that come from the workspace.
fn xargs(simple: &Simple, fed: bool) -> Option<Seen> {
    let at = *wrap::inner_at(simple).first()?;
    let options = &simple.words[1..at];
    let plain = options.iter().all(|word| {
        word.known
            && (matches!(word.text.as_str(), "-0" | "-r" | "-n" | "-L" | "-P" | "-d")
                || word.text.parse::<u32>().is_ok()
                || word.text == "\\n")
    });
    let inner = &simple.words[at];
    let free = inner.known && is_among(&inner.text, COUNTERS);
    (fed && plain && free).then_some(Seen {
        reads: Vec::new(),
        walks: true,
    })
}

/// Whether what is piped into a command are names of files in the workspace, as far as their lister can tell.
fn fed_by_a_lister(commands: &[Simple], at: usize) -> bool {
    if !commands[at].piped {
        return false;
    }
    // Filters keep names as they are or drop them.
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

/// The contents of an archive.
fn tar(args: &[Word]) -> Option<Seen> {
    let (how, rest) = args.split_first()?;
    let letters = how.text.trim_start_matches('-');
    let lists = letters.contains('t')
        && letters.ends_with('f')
        && letters.chars().all(|c| "tvzjJf".contains(c));
    let plain = rest
        .iter()
        .all(|word| word.known && !word.glob && !word.text.starts_with('-'));
    let archive = rest.first().filter(|_| how.known && lists && plain)?;
    (!archive.text.contains(':')).then(|| Seen::reads(vec![archive.clone()]))
}

/// `python3 --version` and the like. Of the programs that read the version to run from the project, only those are here
/// that the gate lets look in a sandbox alone.
fn versions(name: &str, args: &[Word]) -> Option<Seen> {
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
    (one.known && asks).then(Seen::default)
}

/// A program by its table.
fn plain(name: &str, args: &[Word]) -> Option<Seen> {
    let program = table::find(name)?;
    let taken = take_options(program, args)?;
    let mut operands = taken.operands.into_iter();
    let files: Vec<Word> = match program.operands {
        Operands::None => {
            if operands.next().is_some() {
                return None;
            }
            Vec::new()
        }
        Operands::Text => return Seen::nothing(),
        Operands::Files => operands.collect(),
        Operands::PatternFiles => {
            if !taken.pattern {
                // A pattern may be anything that stays one word.
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
        ((word.known || is_fed(word)) && !option_like).then(|| word.clone())
    })
    .collect::<Option<_>>()?;
    // The second word of these is where they write, and a pattern may be two words.
    if matches!(name, "uniq" | "xxd") && (files.len() > 1 || files.iter().any(|word| word.glob)) {
        return None;
    }
    let files: Vec<Word> = files
        .into_iter()
        .filter(|word| word.known && word.text != "-")
        .collect();
    let walks = program.walks || taken.walks;
    let here = walks && files.is_empty();
    let reads = if here {
        vec![Word::literal(".")]
    } else {
        files
    };
    Some(Seen { reads, walks })
}

/// The output of a command, in the place of a file.
fn is_fed(word: &Word) -> bool {
    !word.known && word.text == "<()"
}

struct Taken<'a> {
    operands: Vec<(&'a Word, bool)>,
    /// An option gave the pattern.
    pattern: bool,
    walks: bool,
}

/// The operands, when every option is in the program's list.
fn take_options<'a>(program: &Program, args: &'a [Word]) -> Option<Taken<'a>> {
    let mut taken = Taken {
        operands: Vec::new(),
        pattern: false,
        walks: false,
    };
    let mut words = args.iter();
    let text_only = matches!(program.operands, Operands::Text);
    while let Some(word) = words.next() {
        let text = word.text.as_str();
        if word.known && text == "--" {
            taken.operands.extend(words.map(|word| (word, true)));
            break;
        }
        if !text.starts_with('-') || text == "-" {
            // What is not known may turn out to be an option.
            if !(word.known || is_fed(word) || text_only || (word.one && program.any)) {
                return None;
            }
            taken.operands.push((word, false));
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
            taken.pattern |= matches!(name, "regexp" | "files");
            taken.walks |= matches!(name, "recursive" | "dereference-recursive");
            continue;
        }
        if program.digits && text[1..].bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        for (at, c) in text.char_indices().skip(1) {
            taken.walks |= matches!(c, 'r' | 'R')
                && matches!(program.name, "grep" | "egrep" | "fgrep" | "ls" | "diff");
            if program.values.contains(c) {
                taken.pattern |= c == 'e' && matches!(program.operands, Operands::PatternFiles);
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
    Some(taken)
}
