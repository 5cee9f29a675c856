//! Finds the files that known programs write according to their arguments. Only certain cases are listed; nothing is
//! assumed about unknown programs.

use windlass_core::shell::{Simple, Word, WriteTarget};

use crate::is_among;
use crate::wrappers::plain_words;

/// The files that a command writes according to its arguments.
pub(crate) fn targets(simple: &Simple) -> Vec<WriteTarget> {
    let args = simple.args();
    let into = || value_of(args, "-t", "--target-directory");
    let words: Vec<Word> = match simple.name() {
        "rm" => operands(args, "").collect(),
        "rmdir" | "unlink" | "shred" | "touch" | "mkdir" | "mkfifo" | "mknod" | "tee"
        | "truncate" => operands(args, "rsdtmn").collect(),
        "chmod" | "chown" | "chgrp" | "setfacl" => operands(args, "").skip(1).collect(),
        "mv" => operands(args, "tS").chain(into()).collect(),
        "cp" | "ln" | "install" | "rsync" | "scp" => {
            Vec::from_iter(into().or_else(|| operands(args, "tSmog").next_back()))
        }
        "dd" => dd(args),
        "sort" | "curl" => Vec::from_iter(value_of(args, "-o", "--output")),
        "wget" => Vec::from_iter(value_of(args, "-O", "--output-document")),
        "patch" => operands(args, "ipoD").take(1).collect(),
        "split" | "csplit" => operands(args, "abnlCd").skip(1).collect(),
        "sed" | "gsed" | "perl" if edits_in_place(args) => {
            let given = |word: &Word| is_among(&word.text, "-e -f --expression --file");
            let script = args.iter().any(given);
            operands(args, "ef").skip(usize::from(!script)).collect()
        }
        "find" if args.iter().any(|word| word.text == "-delete") => {
            let is_place = |word: &&Word| !word.text.starts_with(['-', '(', '!']);
            args.iter().take_while(is_place).cloned().collect()
        }
        "sed" | "gsed" => written_by_sed(args),
        "tar" => tar(args)
            .into_iter()
            .chain(value_of(args, "-C", "--directory"))
            .collect(),
        "unzip" => Vec::from_iter(value_of(args, "-d", "--directory")),
        "7z" | "7za" => args
            .iter()
            .filter_map(|word| attached(word, "-o"))
            .collect(),
        "git" => ["--output", "--output-directory"]
            .into_iter()
            .filter_map(|option| value_of(args, "-o", option))
            .collect(),
        _ => return Vec::new(),
    };
    let removes = match simple.name() {
        "rm" => is_recursive(args),
        "find" => !args
            .iter()
            .any(|word| word.text.starts_with("-name") || word.text.starts_with("-path")),
        _ => false,
    };
    words
        .into_iter()
        .map(|word| WriteTarget {
            word,
            removes,
            at: None,
        })
        .collect()
}

fn dd(args: &[Word]) -> Vec<Word> {
    let files = args.iter().filter_map(|word| {
        let text = word.text.strip_prefix("of=")?.to_owned();
        Some(Word {
            text,
            ..word.clone()
        })
    });
    files.collect()
}

/// The archive that `tar` creates or changes.
fn tar(args: &[Word]) -> Option<Word> {
    let first = args.first()?;
    let bundled = first.text.trim_start_matches('-');
    if first.text.starts_with("--")
        || !bundled.contains(['c', 'r', 'u'])
        || bundled.contains(['x', 't'])
    {
        return None;
    }
    if bundled.ends_with('f') {
        args.get(1).cloned()
    } else {
        value_of(args, "-f", "--file")
    }
}

/// The files that a sed script writes with `w` or `W`, also as a flag of `s///`.
fn written_by_sed(args: &[Word]) -> Vec<Word> {
    args.iter().flat_map(named_in_script).collect()
}

fn named_in_script(script: &Word) -> impl Iterator<Item = Word> {
    let pieces = script.text.split([';', '\n', '}']);
    pieces.filter_map(|piece| {
        let (command, file) = piece.rsplit_once(['w', 'W'])?;
        let is_command =
            command.ends_with(|c: char| c.is_ascii_digit() || "/$|#,!{ gpIe".contains(c));
        let text = file.strip_prefix(' ')?.trim().to_owned();
        ((command.is_empty() || is_command) && !text.is_empty()).then(|| Word {
            text,
            ..script.clone()
        })
    })
}

fn attached(word: &Word, option: &str) -> Option<Word> {
    let text = word.text.strip_prefix(option)?.to_owned();
    (!text.is_empty()).then(|| Word {
        text,
        ..word.clone()
    })
}

fn is_recursive(args: &[Word]) -> bool {
    let short =
        |text: &str| text.starts_with('-') && !text.starts_with("--") && text.contains(['r', 'R']);
    args.iter().any(|word| {
        short(&word.text) || (word.text.len() > 3 && "--recursive".starts_with(&word.text))
    })
}

fn edits_in_place(args: &[Word]) -> bool {
    let short = |text: &str| {
        text.starts_with('-')
            && !text.starts_with("--")
            && text
                .split(['e', 'f'])
                .next()
                .is_some_and(|text| text.contains('i'))
    };
    args.iter().any(|word| {
        short(&word.text) || word.text.starts_with("--in-place") || word.text.starts_with("--in-pl")
    })
}

/// The arguments that are not options; `values` are the short options whose value is the next word.
fn operands<'a>(args: &'a [Word], values: &str) -> impl DoubleEndedIterator<Item = Word> + use<'a> {
    plain_words(args, values)
        .into_iter()
        .map(|at| args[at].clone())
}

/// The value of an option, in the next word or in the same word.
fn value_of(args: &[Word], short: &str, long: &str) -> Option<Word> {
    args.iter().enumerate().find_map(|(at, word)| {
        if word.text == short || word.text == long {
            return args.get(at + 1).cloned();
        }
        let attached = word
            .text
            .strip_prefix(long)
            .and_then(|rest| rest.strip_prefix('='));
        let text = attached.or_else(|| {
            word.text
                .strip_prefix(short)
                .filter(|_| !word.text.starts_with("--"))
        })?;
        Some(Word {
            text: text.to_owned(),
            ..word.clone()
        })
    })
}
