//! `sed`, `awk` and `find`: programs whose arguments are scripts. A command counts as read-only only if its script is
//! understood completely.

use windlass_core::shell::Word;

use super::ReadAccess;
use crate::is_among;
use crate::wrappers::is_name;

/// `sed` is read-only if its whole script consists of commands that only affect the output.
pub(super) fn sed(args: &[Word]) -> Option<ReadAccess> {
    let (mut scripts, mut files, mut ended) = (Vec::new(), Vec::new(), false);
    let mut words = args.iter();
    while let Some(word) = words.next() {
        let text = word.text.as_str();
        if !word.known {
            return None;
        }
        if ended || !text.starts_with('-') || text == "-" {
            files.push((word, ended));
            continue;
        }
        match text {
            "--" => ended = true,
            "-e" | "--expression" => {
                scripts.push(words.next().filter(|word| word.known)?.text.as_str())
            }
            "--quiet" | "--silent" | "--regexp-extended" | "--separate" | "--null-data"
            | "--posix" | "--debug" => {}
            _ => match text.strip_prefix("--expression=") {
                Some(script) => scripts.push(script),
                // `-ne` means `-n -e`.
                None => match text[1..].strip_suffix('e') {
                    Some(flags) if flags.chars().all(|c| "nErsuz".contains(c)) => {
                        scripts.push(words.next().filter(|word| word.known)?.text.as_str());
                    }
                    _ if text[1..].chars().all(|c| "nErsuz".contains(c)) => {}
                    _ => return None,
                },
            },
        }
    }
    let mut files = files.into_iter();
    if scripts.is_empty() {
        scripts.push(files.next()?.0.text.as_str());
    }
    let reads: Option<Vec<Word>> = files
        .map(|(word, ended)| is_file(word, ended).then(|| word.clone()))
        .collect();
    scripts
        .iter()
        .all(|script| sed_prints(script))
        .then_some(ReadAccess::reads(reads?))
}

/// Whether a word is a file name that the shell cannot expand to something that looks like an option.
fn is_file(word: &Word, ended: bool) -> bool {
    word.known && (ended || !word.glob || !word.text.starts_with(['*', '?', '[']))
}

/// Whether a sed script consists only of commands that affect the output.
fn sed_prints(script: &str) -> bool {
    let mut rest = script;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\n', ';', '}']);
        if rest.is_empty() {
            return true;
        }
        let Some(after) = sed_address(rest) else {
            return false;
        };
        rest = match after.strip_prefix(',') {
            Some(second) => {
                let second = second.trim_start_matches([' ', '+', '~']);
                match sed_address(second) {
                    Some(after) if after.len() < second.len() => after,
                    _ => return false,
                }
            }
            None => after,
        };
        rest = rest.trim_start_matches([' ', '!']);
        let Some(command) = rest.chars().next() else {
            return false;
        };
        rest = &rest[command.len_utf8()..];
        match command {
            '{' | '=' | 'd' | 'D' | 'g' | 'G' | 'h' | 'H' | 'n' | 'N' | 'p' | 'P' | 'x' | 'z'
            | 'F' => {}
            'q' | 'Q' | 'l' => {
                rest = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ')
            }
            's' | 'y' => match sed_parts(rest) {
                Some(after) => {
                    rest = after
                        .trim_start_matches(|c: char| "gpiImM".contains(c) || c.is_ascii_digit())
                }
                None => return false,
            },
            _ => return false,
        }
        let follows = rest.trim_start_matches([' ', '\t']);
        if command != '{' && !(follows.is_empty() || follows.starts_with(['\n', ';', '}'])) {
            return false;
        }
    }
}

/// The text after an address; the whole text if there is none; `None` if the address is not understood.
fn sed_address(text: &str) -> Option<&str> {
    if let Some(rest) = text.strip_prefix('$') {
        return Some(rest);
    }
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return Some(text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '~'));
    }
    match text.strip_prefix('/') {
        Some(rest) => Some(sed_until(rest, '/')?.trim_start_matches(['I', 'M'])),
        None if text.starts_with('\\') => None,
        None => Some(text),
    }
}

/// The text after both parts of `s` or `y`, whichever delimiter is used.
fn sed_parts(text: &str) -> Option<&str> {
    let sign = text
        .chars()
        .next()
        .filter(|c| !c.is_alphanumeric() && !matches!(c, '\\' | '\n' | ' '))?;
    sed_until(sed_until(&text[sign.len_utf8()..], sign)?, sign)
}

/// The text after the delimiter. Versions of sed differ about a delimiter inside brackets, so that is refused.
fn sed_until(text: &str, sign: char) -> Option<&str> {
    let mut escaped = false;
    let (mut open, mut closed) = (0, 0);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '\n' => return None,
            '[' => open += 1,
            ']' => closed += 1,
            c if c == sign => return (open <= closed).then(|| &text[at + c.len_utf8()..]),
            _ => {}
        }
    }
    None
}

/// `awk` is read-only if its program contains nothing that could write, run a program or read other files.
pub(super) fn awk(args: &[Word]) -> Option<ReadAccess> {
    let mut words = args.iter();
    let program = loop {
        let word = words.next().filter(|word| word.known)?;
        match word.text.as_str() {
            "-F" | "-v" => {
                words.next().filter(|word| word.known)?;
            }
            "--" => break words.next().filter(|word| word.known)?,
            text if text.starts_with("-F") || text.starts_with("-v") => {}
            text if text.starts_with('-') => return None,
            _ => break word,
        }
    };
    let text = program.text.replace("||", "  ").replace(">=", "  ");
    if AWK_FORBIDDEN.split(' ').any(|word| text.contains(word)) {
        return None;
    }
    let files: Option<Vec<Word>> = words
        .map(|word| is_file(word, false).then(|| word.clone()))
        .collect();
    let files = files?;
    if files.iter().any(|word| word.text.starts_with('-')) {
        return None;
    }
    let files = files
        .into_iter()
        .filter(|word| {
            !word
                .text
                .split_once('=')
                .is_some_and(|(name, _)| is_name(name))
        })
        .collect();
    Some(ReadAccess::reads(files))
}

/// Parts of an awk program that write a file, run a program or read something else.
const AWK_FORBIDDEN: &str = "system getline ARGV ARGC @ > | ENVIRON PROCINFO extension /inet";

/// Programs that `find` may run on the files it finds: they count, list or search, and none of their options writes.
const EXEC_PROGRAMS: &str =
    "grep egrep fgrep wc ls stat du file basename dirname md5sum sha1sum sha256sum sha512sum";

/// `find` is read-only if it only prints, or runs one of [`EXEC_PROGRAMS`] with `-exec`.
pub(super) fn find(args: &[Word]) -> Option<ReadAccess> {
    let mut reads = Vec::new();
    let mut words = args.iter();
    while let Some(word) = words.next() {
        let text = word.text.as_str();
        if !word.known {
            return None;
        }
        if text == "-exec" {
            let mut inner = Vec::new();
            let ends = |word: &Word| word.known && matches!(word.text.as_str(), ";" | "+");
            loop {
                match words.next()? {
                    word if ends(word) => break,
                    word => inner.push(word.clone()),
                }
            }
            let (program, options) = inner.split_first()?;
            let named = program.known && is_among(&program.text, EXEC_PROGRAMS);
            let seen = super::by_table(&program.text, options).filter(|_| named)?;
            reads.extend(seen.reads.into_iter().filter(|word| word.text != "{}"));
        } else if is_among(text, FIND_VALUES) {
            let value = words.next().filter(|word| word.known)?;
            if matches!(text, "-newer" | "-samefile") {
                reads.push(value.clone());
            }
        } else if text.starts_with('-') || matches!(text, "(" | ")" | "!" | ",") {
            if !is_among(text, FIND_FLAGS) {
                return None;
            }
        } else if word.glob && text.starts_with(['*', '?', '[']) {
            return None;
        } else {
            reads.push(word.clone());
        }
    }
    if reads.is_empty() {
        reads.push(Word::literal("."));
    }
    Some(ReadAccess { reads, walks: true })
}

const FIND_VALUES: &str = "\
    -name -iname -path -ipath -wholename -iwholename -regex -iregex -regextype -type -xtype \
    -maxdepth -mindepth -size -mtime -mmin -atime -amin -ctime -cmin -newer -newermt -user \
    -group -perm -links -lname -printf -samefile -inum";
const FIND_FLAGS: &str = "\
    -P -empty -print -print0 -prune -o -or -a -and -not ! ( ) , -xdev -mount -depth -true \
    -false -ls -quit -readable -writable -executable -noleaf -daystart";
