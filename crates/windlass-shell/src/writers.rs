//! Programs that write what their words name: which of the words those are. Only what is certain is listed here;
//! what an unknown program does with its words nobody can tell.

use windlass_core::shell::{Simple, Target, Word};

/// The files that a command writes by its words.
pub(crate) fn targets(simple: &Simple) -> Vec<Target> {
    let args = simple.args();
    let own = |words: Vec<&Word>| words.into_iter().cloned().collect::<Vec<Word>>();
    let (removes, words): (bool, Vec<Word>) = match simple.name() {
        "rm" => (is_recursive(args), own(operands(args, "").collect())),
        "rmdir" | "unlink" | "shred" | "touch" | "mkdir" | "mkfifo" | "mknod" | "tee"
        | "truncate" => (false, own(operands(args, "rsdtmn").collect())),
        "chmod" | "chown" | "chgrp" | "setfacl" => {
            (false, own(operands(args, "").skip(1).collect()))
        }
        "mv" => (
            false,
            operands(args, "tS")
                .cloned()
                .chain(value_of(args, "-t", "--target-directory"))
                .collect(),
        ),
        "cp" | "ln" | "install" | "rsync" | "scp" => {
            let into = value_of(args, "-t", "--target-directory");
            (
                false,
                if into.is_some() {
                    into.into_iter().collect()
                } else {
                    operands(args, "tSmog")
                        .last()
                        .cloned()
                        .into_iter()
                        .collect()
                },
            )
        }
        "dd" => return dd(args),
        "sort" => (
            false,
            value_of(args, "-o", "--output").into_iter().collect(),
        ),
        "curl" => (
            false,
            value_of(args, "-o", "--output").into_iter().collect(),
        ),
        "wget" => (
            false,
            value_of(args, "-O", "--output-document")
                .into_iter()
                .collect(),
        ),
        "patch" => (false, own(operands(args, "ipoD").take(1).collect())),
        "split" | "csplit" => (false, own(operands(args, "abnlCd").skip(1).collect())),
        "sed" | "gsed" | "perl" if edits_in_place(args) => {
            let script = args
                .iter()
                .any(|word| matches!(word.text.as_str(), "-e" | "-f" | "--expression" | "--file"));
            (
                false,
                own(operands(args, "ef").skip(usize::from(!script)).collect()),
            )
        }
        "find" if args.iter().any(|word| word.text == "-delete") => {
            let places = args
                .iter()
                .take_while(|word| !word.text.starts_with(['-', '(', '!']));
            (
                !args
                    .iter()
                    .any(|word| word.text.starts_with("-name") || word.text.starts_with("-path")),
                own(places.collect()),
            )
        }
        "tar" => (false, tar(args).into_iter().collect()),
        _ => return Vec::new(),
    };
    words
        .into_iter()
        .map(|word| Target {
            word,
            removes,
            at: None,
        })
        .collect()
}

fn dd(args: &[Word]) -> Vec<Target> {
    let files = args.iter().filter_map(|word| {
        let text = word.text.strip_prefix("of=")?;
        Some(Word {
            text: text.to_owned(),
            ..word.clone()
        })
    });
    files
        .map(|word| Target {
            word,
            removes: false,
            at: None,
        })
        .collect()
}

/// The archive that is made.
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

/// Words that are no options; `values` are short options that take the next word.
fn operands<'a>(args: &'a [Word], values: &'a str) -> impl Iterator<Item = &'a Word> {
    let mut ended = false;
    let mut value = false;
    args.iter().filter(move |word| {
        let text = word.text.as_str();
        if std::mem::take(&mut value) {
            return false;
        }
        if !ended && text == "--" {
            ended = true;
            return false;
        }
        if !ended && text.len() > 1 && text.starts_with('-') {
            value = text.len() == 2 && values.contains(&text[1..]);
            return false;
        }
        true
    })
}

/// The value of an option, in the next word or in the same.
fn value_of(args: &[Word], short: &str, long: &str) -> Option<Word> {
    args.iter().enumerate().find_map(|(at, word)| {
        if word.text == short || word.text == long {
            return args.get(at + 1).cloned();
        }
        let glued = word
            .text
            .strip_prefix(long)
            .and_then(|rest| rest.strip_prefix('='));
        let text = glued.or_else(|| {
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
