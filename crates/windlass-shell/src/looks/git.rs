//! `git` that only looks: each of its commands has a list of its own. No option before the command that could set
//! anything, nothing that writes a file or starts a program; long options only in full.

use windlass_core::shell::Word;

use super::Seen;
use crate::is_among;

struct Sub {
    name: &'static str,
    short: &'static str,
    values: &'static str,
    long: &'static str,
    /// The options under which words are allowed; none means always.
    words_with: &'static str,
    /// The most words.
    words: usize,
}

const fn sub(
    name: &'static str,
    short: &'static str,
    values: &'static str,
    long: &'static str,
) -> Sub {
    Sub {
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

const SUBS: &[Sub] = &[
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
    Sub {
        words_with: "--list -l --contains --no-contains --merged --no-merged --points-at",
        ..sub(
            "branch",
            "arvliq",
            "",
            "all remotes list show-current verbose merged no-merged contains no-contains points-at sort format color no-color column no-column abbrev ignore-case",
        )
    },
    Sub {
        words_with: "--list -l --contains --merged --points-at",
        ..sub(
            "tag",
            "lni",
            "",
            "list contains no-contains merged no-merged points-at sort format column no-column ignore-case",
        )
    },
    Sub {
        words: 0,
        ..sub("remote", "v", "", "verbose")
    },
    Sub {
        words: 1,
        ..sub("symbolic-ref", "q", "", "short quiet")
    },
];

pub(super) fn look(args: &[Word]) -> Option<Seen> {
    if !args
        .iter()
        .all(|word| word.known && !(word.glob && word.text.starts_with(['*', '?', '['])))
    {
        return None;
    }
    // Two names that are not both in the repository are compared as files, wherever they are.
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
        return Some(Seen::default());
    }
    loop {
        let count = match rest[..] {
            ["--no-pager" | "-P" | "--no-optional-locks", ..] => 1,
            // A folder of the workspace: whatever leads out was refused above.
            ["-C", folder, ..] if !folder.starts_with('-') => 2,
            _ => break,
        };
        rest.drain(..count);
    }
    let (name, rest) = rest.split_first()?;
    let looks = match (*name, rest) {
        ("stash", ["list", ..]) => options(find("log")?, &rest[1..]),
        ("stash", ["show", ..]) => options(find("show")?, &rest[1..]),
        ("reflog", []) => true,
        ("reflog", ["show", ..]) => options(find("log")?, &rest[1..]),
        ("worktree", ["list"] | ["list", "--porcelain"]) => true,
        ("remote", ["get-url", remote]) => !remote.starts_with('-'),
        // All of it may hold tokens.
        ("config", ["--get" | "--get-all", key]) => {
            HARMLESS_KEYS.iter().any(|known| key.starts_with(known))
        }
        _ => options(find(name)?, rest),
    };
    looks.then_some(Seen {
        reads: Vec::new(),
        walks: true,
    })
}

/// Settings that are nobody's secret.
const HARMLESS_KEYS: &[&str] = &[
    "user.", "core.", "init.", "branch.", "pull.", "push.", "merge.", "rebase.",
];

fn find(name: &str) -> Option<&'static Sub> {
    SUBS.iter().find(|sub| sub.name == name)
}

fn options(sub: &Sub, args: &[&str]) -> bool {
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

fn cluster<'a>(sub: &Sub, text: &str, rest: &mut impl Iterator<Item = &'a &'a str>) -> bool {
    for (at, c) in text.char_indices().skip(1) {
        if sub.values.contains(c) {
            return at + 1 < text.len() || rest.next().is_some();
        }
        if !sub.short.contains(c) {
            // `-uno`, `-M90%` and `-U3` carry their value.
            let carries = at > 1 && matches!(text.as_bytes()[at - 1], b'u' | b'M' | b'C' | b'B');
            return carries
                && text[at..]
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'%');
        }
    }
    true
}
