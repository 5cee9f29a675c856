//! Programs that only look, with the options under which they do. Options that write, run something or read names
//! from elsewhere are left out on purpose; a new option of a program is unknown until somebody has read about it.

/// What the words of a program are.
#[derive(Clone, Copy)]
pub(super) enum Operands {
    /// It takes none.
    None,
    /// Text that no file is made of.
    Text,
    /// Files that it reads.
    Files,
    /// A pattern, then files.
    PatternFiles,
}

/// A program that only looks.
pub(super) struct Program {
    pub(super) name: &'static str,
    /// Short options without a value.
    pub(super) short: &'static str,
    /// Short options with a value.
    pub(super) values: &'static str,
    /// Long options without a value, or with one after `=`.
    pub(super) long: &'static str,
    /// Long options with a value.
    pub(super) long_values: &'static str,
    pub(super) operands: Operands,
    /// `-5` is a number.
    pub(super) digits: bool,
    /// It goes through folders.
    pub(super) walks: bool,
    /// None of its options does harm, so a name that looks like one does not matter.
    pub(super) any: bool,
}

pub(super) fn find(name: &str) -> Option<&'static Program> {
    PROGRAMS.iter().find(|program| program.name == name)
}

const NOTHING: Program = Program {
    name: "",
    short: "",
    values: "",
    long: "",
    long_values: "",
    operands: Operands::Files,
    digits: false,
    walks: false,
    any: false,
};

const SUMS: &str = "btz";
// Without `-R`, which would follow links out of the workspace.
const GREP_SHORT: &str = "EFGPivwxcHhlLnoqsabTUzryZ";
const GREP_VALUES: &str = "eABCmd";
const GREP_LONG: &str = "extended-regexp fixed-strings basic-regexp perl-regexp ignore-case no-ignore-case \
    invert-match word-regexp line-regexp count color colour files-with-matches files-without-match only-matching \
    quiet silent no-messages byte-offset with-filename no-filename line-number initial-tab null recursive \
    text null-data";
const GREP_LONG_VALUES: &str = "regexp include exclude exclude-dir context after-context before-context max-count \
    binary-files directories label";

const PROGRAMS: &[Program] = &[
    Program {
        name: "ls",
        short: "aAbBcCdfFgGhHiklLmnNopqQrRsStuUvxXZ1",
        values: "wTI",
        long: "all almost-all author color directory classify full-time group-directories-first human-readable si \
               inode no-group numeric-uid-gid reverse recursive size literal time sort format indicator-style",
        long_values: "ignore hide width time-style block-size",
        any: true,
        ..NOTHING
    },
    Program {
        name: "cat",
        short: "AbeEnstTuv",
        long: "show-all number number-nonblank show-ends show-tabs show-nonprinting squeeze-blank",
        any: true,
        ..NOTHING
    },
    Program {
        name: "head",
        short: "qvz",
        values: "nc",
        long: "quiet silent verbose",
        long_values: "lines bytes",
        digits: true,
        any: true,
        ..NOTHING
    },
    Program {
        name: "tail",
        short: "qvz",
        values: "nc",
        long: "quiet silent verbose",
        long_values: "lines bytes",
        digits: true,
        any: true,
        ..NOTHING
    },
    Program {
        name: "wc",
        short: "clmwL",
        long: "lines words chars bytes max-line-length",
        any: true,
        ..NOTHING
    },
    Program {
        name: "grep",
        short: GREP_SHORT,
        values: GREP_VALUES,
        long: GREP_LONG,
        long_values: GREP_LONG_VALUES,
        operands: Operands::PatternFiles,
        digits: true,
        any: true,
        ..NOTHING
    },
    Program {
        name: "egrep",
        short: GREP_SHORT,
        values: GREP_VALUES,
        long: GREP_LONG,
        long_values: GREP_LONG_VALUES,
        operands: Operands::PatternFiles,
        digits: true,
        ..NOTHING
    },
    Program {
        name: "fgrep",
        short: GREP_SHORT,
        values: GREP_VALUES,
        long: GREP_LONG,
        long_values: GREP_LONG_VALUES,
        operands: Operands::PatternFiles,
        digits: true,
        ..NOTHING
    },
    Program {
        name: "rg",
        short: "iSswxvclnNHIUuFoPpq0a.",
        values: "egtTABCmMjdr",
        long: "files hidden no-ignore no-ignore-vcs no-heading heading line-number no-line-number ignore-case \
               smart-case case-sensitive count count-matches files-with-matches files-without-match json stats \
               type-list column word-regexp line-regexp fixed-strings invert-match multiline only-matching pcre2 \
               with-filename no-filename trim vimgrep pretty text no-messages no-config",
        long_values: "glob iglob type type-not max-count context after-context before-context max-depth color sort \
                      sortr regexp replace max-columns threads encoding",
        operands: Operands::PatternFiles,
        walks: true,
        ..NOTHING
    },
    Program {
        name: "fd",
        short: "HIuslaipgF0",
        values: "tedEjS",
        long: "hidden no-ignore case-sensitive ignore-case glob fixed-strings absolute-path full-path",
        long_values: "type extension max-depth min-depth exclude size changed-within color",
        operands: Operands::PatternFiles,
        walks: true,
        ..NOTHING
    },
    Program {
        name: "stat",
        short: "Lft",
        values: "c",
        long: "dereference file-system terse",
        long_values: "format printf",
        any: true,
        ..NOTHING
    },
    Program {
        name: "du",
        short: "abchHklLmsSx0",
        values: "dt",
        long: "all apparent-size bytes total human-readable summarize one-file-system si null",
        long_values: "max-depth threshold exclude block-size",
        walks: true,
        any: true,
        ..NOTHING
    },
    Program {
        name: "df",
        short: "ahHiklTP",
        long: "human-readable all inodes print-type total",
        ..NOTHING
    },
    Program {
        name: "pwd",
        short: "LP",
        operands: Operands::None,
        ..NOTHING
    },
    Program {
        name: "sort",
        short: "bdfghiMnRrVcCmszu",
        values: "kt",
        long: "ignore-leading-blanks dictionary-order ignore-case general-numeric-sort human-numeric-sort month-sort \
               numeric-sort random-sort reverse version-sort check merge stable unique zero-terminated",
        long_values: "key field-separator sort",
        ..NOTHING
    },
    Program {
        name: "uniq",
        short: "cdDiuz",
        values: "fsw",
        long: "count repeated all-repeated unique ignore-case zero-terminated",
        long_values: "skip-fields skip-chars check-chars",
        ..NOTHING
    },
    Program {
        name: "cut",
        short: "nsz",
        values: "bcdf",
        long: "only-delimited complement zero-terminated",
        long_values: "bytes characters delimiter fields output-delimiter",
        ..NOTHING
    },
    Program {
        name: "tr",
        short: "cCdst",
        long: "complement delete squeeze-repeats truncate-set1",
        operands: Operands::Text,
        ..NOTHING
    },
    Program {
        name: "nl",
        short: "p",
        values: "bdfhilnsvw",
        ..NOTHING
    },
    Program {
        name: "paste",
        short: "sz",
        values: "d",
        long: "serial",
        long_values: "delimiters",
        ..NOTHING
    },
    Program {
        name: "comm",
        short: "123z",
        long: "check-order nocheck-order total",
        ..NOTHING
    },
    Program {
        name: "join",
        short: "iz",
        values: "aevjt12o",
        ..NOTHING
    },
    Program {
        name: "column",
        short: "tLexnJ",
        values: "sNoc",
        ..NOTHING
    },
    Program {
        name: "fold",
        short: "bs",
        values: "w",
        long_values: "width",
        ..NOTHING
    },
    Program {
        name: "fmt",
        short: "cstu",
        values: "wpg",
        ..NOTHING
    },
    Program {
        name: "expand",
        short: "i",
        values: "t",
        ..NOTHING
    },
    Program {
        name: "rev",
        ..NOTHING
    },
    Program {
        name: "tac",
        short: "br",
        values: "s",
        ..NOTHING
    },
    Program {
        name: "od",
        short: "abcdfilosxv",
        values: "AjNtw",
        ..NOTHING
    },
    Program {
        name: "xxd",
        short: "abEeipu",
        values: "cglos",
        ..NOTHING
    },
    Program {
        name: "hexdump",
        short: "bcCdovx",
        values: "ens",
        ..NOTHING
    },
    Program {
        name: "diff",
        short: "abBceEiNqrstTuwyd",
        values: "CUWxIF",
        long: "brief unified context recursive color ignore-all-space ignore-blank-lines ignore-case minimal text \
               ignore-space-change new-file report-identical-files side-by-side suppress-common-lines normal",
        long_values: "exclude width label",
        digits: true,
        ..NOTHING
    },
    Program {
        name: "cmp",
        short: "bls",
        values: "in",
        long: "silent quiet verbose print-bytes",
        ..NOTHING
    },
    Program {
        name: "md5sum",
        short: SUMS,
        long: "binary text tag",
        any: true,
        ..NOTHING
    },
    Program {
        name: "sha1sum",
        short: SUMS,
        long: "binary text tag",
        any: true,
        ..NOTHING
    },
    Program {
        name: "sha256sum",
        short: SUMS,
        long: "binary text tag",
        any: true,
        ..NOTHING
    },
    Program {
        name: "sha512sum",
        short: SUMS,
        long: "binary text tag",
        any: true,
        ..NOTHING
    },
    Program {
        name: "b2sum",
        short: SUMS,
        long: "binary text tag",
        any: true,
        ..NOTHING
    },
    Program {
        name: "cksum",
        ..NOTHING
    },
    Program {
        name: "file",
        short: "bhiLkNnr0",
        values: "F",
        long: "brief mime mime-type mime-encoding dereference",
        ..NOTHING
    },
    Program {
        name: "basename",
        short: "az",
        values: "s",
        long: "multiple",
        long_values: "suffix",
        operands: Operands::Text,
        any: true,
        ..NOTHING
    },
    Program {
        name: "dirname",
        short: "z",
        operands: Operands::Text,
        any: true,
        ..NOTHING
    },
    Program {
        name: "realpath",
        short: "eLmPqsz",
        long: "no-symlinks",
        long_values: "relative-to relative-base",
        ..NOTHING
    },
    Program {
        name: "readlink",
        short: "efmnqsvz",
        long: "canonicalize",
        ..NOTHING
    },
    Program {
        name: "which",
        short: "a",
        long: "all",
        operands: Operands::Text,
        ..NOTHING
    },
    Program {
        name: "whereis",
        short: "bms",
        operands: Operands::Text,
        ..NOTHING
    },
    Program {
        name: "type",
        short: "afptP",
        operands: Operands::Text,
        ..NOTHING
    },
    Program {
        name: "printenv",
        short: "0",
        operands: Operands::Text,
        ..NOTHING
    },
    Program {
        name: "uname",
        short: "asnrvmpio",
        long: "all",
        operands: Operands::None,
        ..NOTHING
    },
    Program {
        name: "whoami",
        operands: Operands::None,
        ..NOTHING
    },
    Program {
        name: "id",
        short: "unGgrz",
        operands: Operands::Text,
        ..NOTHING
    },
    Program {
        name: "groups",
        operands: Operands::Text,
        ..NOTHING
    },
    Program {
        name: "uptime",
        short: "ps",
        operands: Operands::None,
        ..NOTHING
    },
    Program {
        name: "arch",
        operands: Operands::None,
        ..NOTHING
    },
    Program {
        name: "free",
        short: "hmgkbtw",
        operands: Operands::None,
        ..NOTHING
    },
    Program {
        name: "lscpu",
        operands: Operands::None,
        ..NOTHING
    },
    Program {
        name: "locale",
        short: "a",
        operands: Operands::None,
        ..NOTHING
    },
    Program {
        name: "cal",
        operands: Operands::Text,
        ..NOTHING
    },
    Program {
        name: "seq",
        short: "w",
        values: "sf",
        operands: Operands::Text,
        digits: true,
        ..NOTHING
    },
    Program {
        name: "sleep",
        operands: Operands::Text,
        ..NOTHING
    },
    Program {
        name: "expr",
        operands: Operands::Text,
        digits: true,
        ..NOTHING
    },
    Program {
        name: "exit",
        operands: Operands::Text,
        ..NOTHING
    },
    Program {
        name: "wait",
        operands: Operands::None,
        ..NOTHING
    },
    Program {
        name: "break",
        operands: Operands::Text,
        ..NOTHING
    },
    Program {
        name: "continue",
        operands: Operands::Text,
        ..NOTHING
    },
    Program {
        name: "tree",
        short: "adfispugDFrtUnCAh",
        values: "LPI",
        long: "dirsfirst noreport gitignore prune matchdirs",
        long_values: "filelimit",
        walks: true,
        ..NOTHING
    },
    Program {
        name: "jq",
        short: "rRcCMSesnaj",
        long: "raw-output raw-input compact-output color-output monochrome-output sort-keys exit-status slurp \
               null-input ascii-output join-output tab",
        long_values: "indent",
        operands: Operands::PatternFiles,
        ..NOTHING
    },
    Program {
        name: "zcat",
        ..NOTHING
    },
];
