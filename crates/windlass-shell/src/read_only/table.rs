//! Read-only programs with their allowed options. Options that write, run a program or read file names from elsewhere are
//! left out on purpose. A new option of a program is refused until it has been reviewed and added here.

/// The meaning of a program's operands.
#[derive(Clone, Copy)]
pub(super) enum Operands {
    /// The program takes no operands.
    None,
    /// Text that is not a file name.
    Text,
    /// Files that the program reads.
    Files,
    /// A pattern, followed by files that the program reads.
    PatternFiles,
}

/// A program that is read-only with the listed options.
pub(super) struct ReadOnlyProgram {
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
    /// `-5` is accepted as a number.
    pub(super) digits: bool,
    /// The program walks directories.
    pub(super) walks: bool,
    /// None of the program's options is harmful, so a file name that looks like an option is no problem.
    pub(super) any: bool,
}

pub(super) fn find(name: &str) -> Option<&'static ReadOnlyProgram> {
    PROGRAMS.iter().find(|program| program.name == name)
}

/// A program with these short options, without and with a value, whose words are files that it reads.
const fn files(name: &'static str, short: &'static str, values: &'static str) -> ReadOnlyProgram {
    ReadOnlyProgram {
        name,
        short,
        values,
        long: "",
        long_values: "",
        operands: Operands::Files,
        digits: false,
        walks: false,
        any: false,
    }
}

/// A program whose operands are text.
const fn text(name: &'static str, short: &'static str, values: &'static str) -> ReadOnlyProgram {
    files(name, short, values).of(Operands::Text)
}

/// A program without operands.
const fn nothing(name: &'static str, short: &'static str, values: &'static str) -> ReadOnlyProgram {
    files(name, short, values).of(Operands::None)
}

/// A program whose operands are a pattern and files.
const fn pattern(name: &'static str, short: &'static str, values: &'static str) -> ReadOnlyProgram {
    files(name, short, values).of(Operands::PatternFiles)
}

const fn grep(name: &'static str) -> ReadOnlyProgram {
    pattern(name, GREP_SHORT, GREP_VALUES)
        .long(GREP_LONG, GREP_LONG_VALUES)
        .digits()
}

/// A program that computes checksums.
const fn sums(name: &'static str) -> ReadOnlyProgram {
    files(name, "btz", "").long("binary text tag", "").any()
}

impl ReadOnlyProgram {
    const fn of(self, operands: Operands) -> Self {
        Self { operands, ..self }
    }

    /// Adds long options, without and with a value.
    const fn long(self, long: &'static str, long_values: &'static str) -> Self {
        Self {
            long,
            long_values,
            ..self
        }
    }

    const fn digits(self) -> Self {
        Self {
            digits: true,
            ..self
        }
    }

    const fn walks(self) -> Self {
        Self {
            walks: true,
            ..self
        }
    }

    const fn any(self) -> Self {
        Self { any: true, ..self }
    }
}

// Without `-R`, which would follow symlinks out of the workspace.
const GREP_SHORT: &str = "EFGPivwxcHhlLnoqsabTUzryZ";
const GREP_VALUES: &str = "eABCmd";
const GREP_LONG: &str = "extended-regexp fixed-strings basic-regexp perl-regexp ignore-case no-ignore-case \
    invert-match word-regexp line-regexp count color colour files-with-matches files-without-match only-matching \
    quiet silent no-messages byte-offset with-filename no-filename line-number initial-tab null recursive \
    text null-data";
const GREP_LONG_VALUES: &str = "regexp include exclude exclude-dir context after-context before-context max-count \
    binary-files directories label";

const LS_LONG: &str = "\
    all almost-all author color directory classify full-time group-directories-first \
    human-readable si inode no-group numeric-uid-gid reverse recursive size literal time sort \
    format indicator-style";
const RG_LONG: &str = "\
    files hidden no-ignore no-ignore-vcs no-heading heading line-number no-line-number \
    ignore-case smart-case case-sensitive count count-matches files-with-matches \
    files-without-match json stats type-list column word-regexp line-regexp fixed-strings \
    invert-match multiline only-matching pcre2 with-filename no-filename trim vimgrep pretty \
    text no-messages no-config";
const RG_LONG_VALUES: &str = "\
    glob iglob type type-not max-count context after-context before-context max-depth color \
    sort sortr regexp replace max-columns threads encoding";
const FD_LONG: &str = "\
    hidden no-ignore case-sensitive ignore-case glob fixed-strings absolute-path full-path";
const SORT_LONG: &str = "\
    ignore-leading-blanks dictionary-order ignore-case general-numeric-sort human-numeric-sort \
    month-sort numeric-sort random-sort reverse version-sort check merge stable unique \
    zero-terminated";
const DIFF_LONG: &str = "\
    brief unified context recursive color ignore-all-space ignore-blank-lines ignore-case \
    minimal text ignore-space-change new-file report-identical-files side-by-side \
    suppress-common-lines normal";
const JQ_LONG: &str = "\
    raw-output raw-input compact-output color-output monochrome-output sort-keys exit-status \
    slurp null-input ascii-output join-output tab";

const PROGRAMS: &[ReadOnlyProgram] = &[
    files("ls", "aAbBcCdfFgGhHiklLmnNopqQrRsStuUvxXZ1", "wTI")
        .long(LS_LONG, "ignore hide width time-style block-size")
        .any(),
    files("cat", "AbeEnstTuv", "")
        .long(
            "show-all number number-nonblank show-ends show-tabs show-nonprinting squeeze-blank",
            "",
        )
        .any(),
    files("head", "qvz", "nc")
        .long("quiet silent verbose", "lines bytes")
        .digits()
        .any(),
    files("tail", "qvz", "nc")
        .long("quiet silent verbose", "lines bytes")
        .digits()
        .any(),
    files("wc", "clmwL", "")
        .long("lines words chars bytes max-line-length", "")
        .any(),
    grep("grep").any(),
    grep("egrep"),
    grep("fgrep"),
    pattern("rg", "iSswxvclnNHIUuFoPpq0a.", "egtTABCmMjdr")
        .long(RG_LONG, RG_LONG_VALUES)
        .walks(),
    pattern("fd", "HIuslaipgF0", "tedEjS")
        .long(
            FD_LONG,
            "type extension max-depth min-depth exclude size changed-within color",
        )
        .walks(),
    files("stat", "Lft", "c")
        .long("dereference file-system terse", "format printf")
        .any(),
    files("du", "abchHklLmsSx0", "dt")
        .long(
            "all apparent-size bytes total human-readable summarize one-file-system si null",
            "max-depth threshold exclude block-size",
        )
        .walks()
        .any(),
    files("df", "ahHiklTP", "").long("human-readable all inodes print-type total", ""),
    nothing("pwd", "LP", ""),
    files("sort", "bdfghiMnRrVcCmszu", "kt").long(SORT_LONG, "key field-separator sort"),
    files("uniq", "cdDiuz", "fsw").long(
        "count repeated all-repeated unique ignore-case zero-terminated",
        "skip-fields skip-chars check-chars",
    ),
    files("cut", "nsz", "bcdf").long(
        "only-delimited complement zero-terminated",
        "bytes characters delimiter fields output-delimiter",
    ),
    text("tr", "cCdst", "").long("complement delete squeeze-repeats truncate-set1", ""),
    files("nl", "p", "bdfhilnsvw"),
    files("paste", "sz", "d").long("serial", "delimiters"),
    files("comm", "123z", "").long("check-order nocheck-order total", ""),
    files("join", "iz", "aevjt12o"),
    files("column", "tLexnJ", "sNoc"),
    files("fold", "bs", "w").long("", "width"),
    files("fmt", "cstu", "wpg"),
    files("expand", "i", "t"),
    files("rev", "", ""),
    files("tac", "br", "s"),
    files("od", "abcdfilosxv", "AjNtw"),
    files("xxd", "abEeipu", "cglos"),
    files("hexdump", "bcCdovx", "ens"),
    files("diff", "abBceEiNqrstTuwyd", "CUWxIF")
        .long(DIFF_LONG, "exclude width label")
        .digits(),
    files("cmp", "bls", "in").long("silent quiet verbose print-bytes", ""),
    sums("md5sum"),
    sums("sha1sum"),
    sums("sha256sum"),
    sums("sha512sum"),
    sums("b2sum"),
    files("cksum", "", ""),
    files("file", "bhiLkNnr0", "F").long("brief mime mime-type mime-encoding dereference", ""),
    text("basename", "az", "s").long("multiple", "suffix").any(),
    text("dirname", "z", "").any(),
    files("realpath", "eLmPqsz", "").long("no-symlinks", "relative-to relative-base"),
    files("readlink", "efmnqsvz", "").long("canonicalize", ""),
    text("which", "a", "").long("all", ""),
    text("whereis", "bms", ""),
    text("type", "afptP", ""),
    text("printenv", "0", ""),
    nothing("uname", "asnrvmpio", "").long("all", ""),
    nothing("whoami", "", ""),
    text("id", "unGgrz", ""),
    text("groups", "", ""),
    nothing("uptime", "ps", ""),
    nothing("arch", "", ""),
    nothing("free", "hmgkbtw", ""),
    nothing("lscpu", "", ""),
    nothing("locale", "a", ""),
    text("cal", "", ""),
    text("seq", "w", "sf").digits(),
    text("sleep", "", ""),
    text("expr", "", "").digits(),
    text("exit", "", ""),
    nothing("wait", "", ""),
    text("break", "", ""),
    text("continue", "", ""),
    files("tree", "adfispugDFrtUnCAh", "LPI")
        .long("dirsfirst noreport gitignore prune matchdirs", "filelimit")
        .walks(),
    pattern("jq", "rRcCMSesnaj", "").long(JQ_LONG, "indent"),
    files("zcat", "", ""),
];
