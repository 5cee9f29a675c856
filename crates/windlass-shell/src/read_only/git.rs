//! Read-only commands of `git`, each with the list of its allowed options. Options before the command that change
//! settings, and options that write a file or start a program, are not in the lists. Long options must be written in full.

use windlass_core::shell::Word;

use super::ReadAccess;
use crate::is_among;

struct GitCommand {
    name: &'static str,
    short: &'static str,
    values: &'static str,
    long: &'static str,
    /// Operands are allowed only together with one of these options; empty means always.
    words_with: &'static str,
    /// The maximum number of operands.
    words: usize,
}

const fn sub(
    name: &'static str,
    short: &'static str,
    values: &'static str,
    long: &'static str,
) -> GitCommand {
    GitCommand {
        name,
        short,
        values,
        long,
        words_with: "",
        words: usize::MAX,
    }
}

const HISTORY: &str = "oneline graph decorate no-decorate all stat shortstat numstat name-only name-status patch \
    no-patch pretty format abbrev-commit abbrev no-abbrev-commit author committer since after until before grep \
    max-count skip reverse merges no-merges first-parent follow date cached staged word-diff color no-color unified \
    ignore-all-space ignore-space-change ignore-blank-lines ignore-space-at-eol summary dirstat check raw full-index \
    minimal patience histogram diff-algorithm find-renames find-copies diff-filter exit-code quiet merge-base \
    no-ext-diff no-textconv left-right cherry-pick topo-order date-order tags branches remotes source boundary \
    compact-summary no-renames text function-context relative no-relative root full-history count no-prefix invert-grep \
    regexp-ignore-case extended-regexp fixed-strings walk-reflogs no-walk color-words simplify-by-decoration";
const HISTORY_SHORT: &str = "pusqwbazRDrcmMCBiEFPt";
const HISTORY_VALUES: &str = "nUSGLl";

const COMMANDS: &[GitCommand] = &[
    sub(
        "status",
        "sbvzu",
        "",
        "short branch porcelain long verbose untracked-files ignored no-renames show-stash null no-column column",
    ),
    sub("log", HISTORY_SHORT, HISTORY_VALUES, HISTORY),
    sub("show", HISTORY_SHORT, HISTORY_VALUES, HISTORY),
    sub("diff", HISTORY_SHORT, HISTORY_VALUES, HISTORY),
    sub("whatchanged", HISTORY_SHORT, HISTORY_VALUES, HISTORY),
    sub("rev-list", HISTORY_SHORT, HISTORY_VALUES, HISTORY),
    sub("diff-tree", HISTORY_SHORT, HISTORY_VALUES, HISTORY),
    sub(
        "shortlog",
        "snec",
        "",
        "summary numbered email all no-merges since until group",
    ),
    sub(
        "blame",
        "wMCeslpbftn",
        "LS",
        "porcelain line-porcelain date show-email show-name show-number root abbrev color-lines",
    ),
    sub(
        "ls-files",
        "cdmosikuvztf",
        "x",
        "cached deleted modified others ignored stage killed unmerged exclude-standard full-name error-unmatch directory eol",
    ),
    sub(
        "ls-tree",
        "rdtlz",
        "",
        "name-only name-status full-name full-tree long abbrev",
    ),
    sub(
        "rev-parse",
        "q",
        "",
        "show-toplevel abbrev-ref short verify git-dir is-inside-work-tree show-prefix show-cdup symbolic symbolic-full-name quiet git-common-dir all branches tags show-superproject-working-tree",
    ),
    sub(
        "describe",
        "",
        "",
        "tags always long dirty all contains abbrev match exclude candidates exact-match first-parent",
    ),
    sub(
        "merge-base",
        "a",
        "",
        "all is-ancestor fork-point octopus independent",
    ),
    sub("name-rev", "", "", "name-only tags all always"),
    sub(
        "show-ref",
        "qd",
        "",
        "heads tags verify hash quiet dereference head",
    ),
    sub("cat-file", "ptse", "", ""),
    sub("count-objects", "vH", "", "verbose human-readable"),
    sub(
        "check-ignore",
        "vqzn",
        "",
        "verbose quiet non-matching no-index",
    ),
    sub(
        "grep",
        "niIlLwcEFPGhHvoqpWar",
        "ABCem",
        "line-number ignore-case files-with-matches files-without-match word-regexp count extended-regexp fixed-strings perl-regexp name-only cached untracked break heading show-function function-context quiet all-match and or not column max-depth text",
    ),
    sub("version", "", "", "build-options"),
    GitCommand {
        words_with: "--list -l --contains --no-contains --merged --no-merged --points-at",
        ..sub(
            "branch",
            "arvliq",
            "",
            "all remotes list show-current verbose merged no-merged contains no-contains points-at sort format color no-color column no-column abbrev ignore-case",
        )
    },
    GitCommand {
        words_with: "--list -l --contains --merged --points-at",
        ..sub(
            "tag",
            "lni",
            "",
            "list contains no-contains merged no-merged points-at sort format column no-column ignore-case",
        )
    },
    GitCommand {
        words: 0,
        ..sub("remote", "v", "", "verbose")
    },
    GitCommand {
        words: 1,
        ..sub("symbolic-ref", "q", "", "short quiet")
    },
];

pub(super) fn read_access(args: &[Word]) -> Option<ReadAccess> {
    if !args
        .iter()
        .all(|word| word.known && !(word.glob && word.text.starts_with(['*', '?', '['])))
    {
        return None;
    }
    // `git diff` compares two paths that are not both in the repository as files, anywhere on the disk.
    let leads_out =
        |text: &str| text.starts_with(['/', '~']) || text.split('/').any(|part| part == "..");
    // Formats with `%G` check signatures, which runs another program.
    if args
        .iter()
        .any(|word| leads_out(&word.text) || word.text.contains("%G"))
    {
        return None;
    }
    let mut rest: Vec<&str> = args.iter().map(|word| word.text.as_str()).collect();
    if rest == ["--version"] {
        return Some(ReadAccess::default());
    }
    loop {
        let count = match rest[..] {
            ["--no-pager" | "-P" | "--no-optional-locks", ..] => 1,
            // The directory is in the workspace: a path that leads out was refused above.
            ["-C", folder, ..] if !folder.starts_with('-') => 2,
            _ => break,
        };
        rest.drain(..count);
    }
    let (name, rest) = rest.split_first()?;
    let read_only = match (*name, rest) {
        ("stash", ["list", ..]) => options(find("log")?, &rest[1..]),
        ("stash", ["show", ..]) => options(find("show")?, &rest[1..]),
        ("reflog", []) => true,
        ("reflog", ["show", ..]) => options(find("log")?, &rest[1..]),
        ("worktree", ["list"] | ["list", "--porcelain"]) => true,
        ("remote", ["get-url", remote]) => !remote.starts_with('-'),
        // The settings may contain tokens, so only harmless keys may be read.
        ("config", ["--get" | "--get-all", key]) => {
            HARMLESS_KEYS.iter().any(|known| key.starts_with(known))
        }
        _ => options(find(name)?, rest),
    };
    read_only.then_some(ReadAccess {
        reads: Vec::new(),
        walks: true,
    })
}

/// Prefixes of settings that contain no secrets.
const HARMLESS_KEYS: &[&str] = &[
    "user.", "core.", "init.", "branch.", "pull.", "push.", "merge.", "rebase.",
];

fn find(name: &str) -> Option<&'static GitCommand> {
    COMMANDS.iter().find(|sub| sub.name == name)
}

fn options(sub: &GitCommand, args: &[&str]) -> bool {
    let (mut words, mut listed, mut ended) = (0, sub.words_with.is_empty(), false);
    let mut rest = args.iter();
    while let Some(text) = rest.next() {
        if ended || !text.starts_with('-') || *text == "-" {
            words += 1;
            continue;
        }
        let option = text.split('=').next().unwrap_or_default();
        listed |= is_among(option, sub.words_with);
        if *text == "--" {
            ended = true;
        } else if let Some(long) = text.strip_prefix("--") {
            let name = long.split('=').next().unwrap_or_default();
            if !is_among(name, sub.long) {
                return false;
            }
        } else if text[1..].bytes().all(|byte| byte.is_ascii_digit()) {
            if !sub.values.contains('n') {
                return false;
            }
        } else if !cluster(sub, text, &mut rest) {
            return false;
        }
    }
    words <= sub.words && (words == 0 || listed)
}

fn cluster<'a>(sub: &GitCommand, text: &str, rest: &mut impl Iterator<Item = &'a &'a str>) -> bool {
    for (at, c) in text.char_indices().skip(1) {
        if sub.values.contains(c) {
            return at + 1 < text.len() || rest.next().is_some();
        }
        if !sub.short.contains(c) {
            // `-uno`, `-M90%` and `-C5` contain their value.
            let has_value = at > 1 && matches!(text.as_bytes()[at - 1], b'u' | b'M' | b'C' | b'B');
            return has_value
                && text[at..]
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'%');
        }
    }
    true
}
