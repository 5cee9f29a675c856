//! The tables of the languages: names, comments, strings and words. The lists of words are sorted.

use super::{CodeRules, LexicalSyntax::*, StringRule};

/// A text on one line, in which a backslash keeps the next character.
const fn quoted(mark: &'static str) -> StringRule {
    StringRule {
        open: mark,
        close: mark,
        escapes: true,
        multiline: false,
    }
}

const fn long(open: &'static str, close: &'static str) -> StringRule {
    StringRule {
        open,
        close,
        escapes: true,
        multiline: true,
    }
}

const fn raw(open: &'static str, close: &'static str) -> StringRule {
    StringRule {
        open,
        close,
        escapes: false,
        multiline: true,
    }
}

/// The rules that most languages share.
const BASE: CodeRules = CodeRules {
    names: &[],
    files: &[],
    syntax: Code,
    line_comments: &["//"],
    block_comment: Some(("/*", "*/")),
    nested_comments: false,
    strings: &[quoted("\""), quoted("'")],
    keywords: "",
    types: "",
    literals: "false null true",
    ignore_case: false,
    capital_types: true,
    variables: false,
    word_symbols: "",
};

const SHELL: CodeRules = CodeRules {
    line_comments: &["#"],
    block_comment: None,
    capital_types: false,
    variables: true,
    ..BASE
};

const C_WORDS: &str = "break case const continue default do else enum extern for goto if inline register restrict \
            return sizeof static struct switch typedef union volatile while";
const C_TYPES: &str = "bool char double float int int16_t int32_t int64_t int8_t long short signed size_t ssize_t \
            uint16_t uint32_t uint64_t uint8_t uintptr_t unsigned void wchar_t";
const JS_WORDS: &str = "abstract as async await break case catch class const continue debugger declare default delete do \
            else enum export extends finally for from function get if implements import in instanceof \
            interface keyof let namespace new of private protected public readonly return satisfies set \
            static super switch this throw try type typeof var while with yield";
const JS_TYPES: &str = "any bigint boolean never number object string symbol unknown void";
const JS_LITERALS: &str = "NaN false null true undefined";
const JS_STRINGS: &[StringRule] = &[quoted("\""), quoted("'"), long("`", "`")];

pub(super) const LANGUAGES: &[CodeRules] = &[
    CodeRules {
        names: &["rust", "rs"],
        nested_comments: true,
        strings: &[
            raw("r##\"", "\"##"),
            raw("r#\"", "\"#"),
            raw("r\"", "\""),
            long("\"", "\""),
        ],
        keywords: "Self as async await break const continue crate dyn else enum extern fn for if impl in let loop \
            macro_rules match mod move mut pub ref return self static struct super trait type union unsafe \
            use where while yield",
        types: "bool char f32 f64 i128 i16 i32 i64 i8 isize str u128 u16 u32 u64 u8 usize",
        literals: "false true",
        syntax: Rust,
        ..BASE
    },
    CodeRules {
        names: &["python", "py", "pyi", "py3", "python3"],
        line_comments: &["#"],
        block_comment: None,
        strings: &[
            long("\"\"\"", "\"\"\""),
            long("'''", "'''"),
            quoted("\""),
            quoted("'"),
        ],
        keywords: "and as assert async await break case class continue def del elif else except finally for from \
            global if import in is lambda match nonlocal not or pass raise return self try while with yield",
        types: "bool bytes dict float int list object set str tuple",
        literals: "False None True",
        ..BASE
    },
    CodeRules {
        names: &["javascript", "js", "jsx", "mjs", "cjs", "node"],
        strings: JS_STRINGS,
        keywords: JS_WORDS,
        literals: JS_LITERALS,
        word_symbols: "$",
        ..BASE
    },
    CodeRules {
        names: &["typescript", "ts", "tsx", "mts", "cts"],
        strings: JS_STRINGS,
        keywords: JS_WORDS,
        types: JS_TYPES,
        literals: JS_LITERALS,
        word_symbols: "$",
        ..BASE
    },
    CodeRules {
        names: &["go", "golang"],
        strings: &[quoted("\""), quoted("'"), raw("`", "`")],
        keywords: "break case chan const continue default defer else fallthrough for func go goto if import \
            interface map package range return select struct switch type var",
        types: "any bool byte complex128 error float32 float64 int int16 int32 int64 int8 rune string uint \
            uint16 uint32 uint64 uint8 uintptr",
        literals: "false iota nil true",
        ..BASE
    },
    CodeRules {
        names: &["java"],
        strings: &[long("\"\"\"", "\"\"\""), quoted("\""), quoted("'")],
        keywords: "abstract assert break case catch class const continue default do else enum extends final finally \
            for if implements import instanceof interface native new package permits private protected \
            public record return sealed static super switch synchronized this throw throws transient try var \
            volatile while yield",
        types: "boolean byte char double float int long short void",
        ..BASE
    },
    CodeRules {
        names: &["c", "h"],
        syntax: Preprocessed,
        keywords: C_WORDS,
        types: C_TYPES,
        literals: "NULL false true",
        ..BASE
    },
    CodeRules {
        names: &["c++", "cpp", "cc", "cxx", "hpp", "hh", "hxx"],
        syntax: Preprocessed,
        keywords: "auto break case catch class co_await co_return co_yield concept const constexpr continue \
            decltype default delete do else enum explicit export extern final for friend goto if inline \
            mutable namespace new noexcept operator override private protected public requires return sizeof \
            static static_cast struct switch template this throw try typedef typename union using virtual \
            volatile while",
        types: C_TYPES,
        literals: "NULL false nullptr true",
        strings: &[raw("R\"(", ")\""), quoted("\""), quoted("'")],
        ..BASE
    },
    CodeRules {
        names: &["c#", "csharp", "cs"],
        syntax: Preprocessed,
        keywords: "abstract as async await base break case catch class const continue default delegate do else enum \
            event explicit extern finally fixed for foreach get if implicit in init interface internal is \
            lock namespace new operator out override params private protected public readonly record ref \
            return sealed set sizeof static struct switch this throw try typeof unsafe using var virtual \
            volatile when where while yield",
        types: "bool byte char decimal double float int long object sbyte short string uint ulong ushort void",
        strings: &[
            long("\"\"\"", "\"\"\""),
            raw("@\"", "\""),
            quoted("\""),
            quoted("'"),
        ],
        ..BASE
    },
    CodeRules {
        names: &["ruby", "rb", "rake", "gemspec"],
        files: &["Gemfile", "Rakefile"],
        line_comments: &["#"],
        block_comment: None,
        strings: &[long("\"", "\""), long("'", "'"), quoted("`")],
        keywords: "alias and begin break case class def defined? do else elsif end ensure for if in module next not \
            or redo require require_relative rescue retry return self super then undef unless until when \
            while yield",
        literals: "false nil true",
        word_symbols: "?!@",
        ..BASE
    },
    CodeRules {
        names: &["php"],
        line_comments: &["//", "#"],
        strings: &[long("\"", "\""), long("'", "'")],
        keywords: "abstract and as break case catch class clone const continue declare default do echo else elseif \
            enum extends final finally fn for foreach function global if implements include instanceof \
            interface match namespace new or print private protected public readonly require require_once \
            return static switch throw trait try use var while yield",
        types: "array bool callable float int iterable mixed object string void",
        variables: true,
        ..BASE
    },
    CodeRules {
        names: &[
            "bash",
            "sh",
            "shell",
            "zsh",
            "ksh",
            "console",
            "shellscript",
        ],
        files: &[".bashrc", ".profile", ".zshrc"],
        strings: &[long("\"", "\""), raw("'", "'"), long("`", "`")],
        keywords: "case cd continue do done echo elif else esac eval exec exit export fi for function if in local \
            read readonly return select set shift source test then trap unset until while",
        literals: "false true",
        word_symbols: "-",
        ..SHELL
    },
    CodeRules {
        names: &["json", "jsonc", "json5", "jsonl"],
        syntax: Keys(":"),
        strings: &[quoted("\"")],
        capital_types: false,
        ..BASE
    },
    CodeRules {
        names: &["toml"],
        files: &["Cargo.lock", "poetry.lock"],
        syntax: LineKeys("="),
        line_comments: &["#"],
        block_comment: None,
        strings: &[
            long("\"\"\"", "\"\"\""),
            raw("'''", "'''"),
            quoted("\""),
            quoted("'"),
        ],
        literals: "false true",
        capital_types: false,
        word_symbols: "-",
        ..BASE
    },
    CodeRules {
        names: &["ini", "cfg", "conf", "editorconfig", "properties", "env"],
        files: &[".gitconfig", ".env"],
        syntax: LineKeys("="),
        line_comments: &["#", ";"],
        block_comment: None,
        strings: &[quoted("\"")],
        word_symbols: "-",
        ..SHELL
    },
    CodeRules {
        names: &["yaml", "yml"],
        syntax: LineKeys(":"),
        line_comments: &["#"],
        block_comment: None,
        literals: "false no null off on true yes",
        capital_types: false,
        word_symbols: "-",
        ..BASE
    },
    CodeRules {
        names: &[
            "html", "htm", "xml", "svg", "vue", "svelte", "xhtml", "plist",
        ],
        syntax: Markup,
        ..BASE
    },
    CodeRules {
        names: &["css", "scss", "sass", "less"],
        syntax: Keys(":"),
        keywords: "important",
        literals: "",
        capital_types: false,
        word_symbols: "-",
        ..BASE
    },
    CodeRules {
        names: &["sql", "postgres", "postgresql", "mysql", "sqlite", "psql"],
        line_comments: &["--"],
        strings: &[raw("'", "'"), raw("\"", "\"")],
        keywords: "add all alter and as asc begin between by cascade case check column commit constraint create \
            cross database default delete desc distinct drop else end exists explain foreign from full group \
            having if in index inner insert into is join key left like limit not offset on or order outer \
            over partition primary references returning right rollback select set table then trigger union \
            unique update using values view when where with",
        types: "bigint blob boolean bytea char date decimal float int integer json jsonb numeric real serial \
            smallint text time timestamp uuid varchar",
        ignore_case: true,
        capital_types: false,
        ..BASE
    },
    CodeRules {
        names: &["kotlin", "kt", "kts"],
        nested_comments: true,
        strings: &[raw("\"\"\"", "\"\"\""), quoted("\""), quoted("'")],
        keywords: "abstract as break by catch class companion const continue data do else enum final finally for \
            fun if import in inline interface internal is lateinit object open operator out override package \
            private protected public return sealed super suspend this throw try typealias val var when where \
            while",
        ..BASE
    },
    CodeRules {
        names: &["swift"],
        nested_comments: true,
        strings: &[long("\"\"\"", "\"\"\""), quoted("\"")],
        keywords: "actor as associatedtype async await break case catch class continue default defer deinit do else \
            enum extension fileprivate final for func guard if import in init inout internal is lazy let \
            mutating open override private protocol public repeat return self some static struct subscript \
            super switch throw throws try typealias var weak where while",
        literals: "false nil true",
        ..BASE
    },
    CodeRules {
        names: &["lua"],
        line_comments: &["--"],
        block_comment: Some(("--[[", "]]")),
        strings: &[raw("[[", "]]"), quoted("\""), quoted("'")],
        keywords: "and break do else elseif end for function goto if in local not or repeat return self then until \
            while",
        literals: "false nil true",
        capital_types: false,
        ..BASE
    },
    CodeRules {
        names: &["dockerfile", "docker", "containerfile"],
        files: &["Dockerfile", "Containerfile"],
        keywords: "ADD ARG AS CMD COPY ENTRYPOINT ENV EXPOSE FROM HEALTHCHECK LABEL ONBUILD RUN SHELL STOPSIGNAL \
            USER VOLUME WORKDIR",
        word_symbols: "-",
        ..SHELL
    },
    CodeRules {
        names: &["make", "makefile", "mk"],
        files: &["Makefile", "GNUmakefile"],
        syntax: LineKeys(":"),
        keywords: "define else endef endif export ifdef ifeq ifndef ifneq include override unexport vpath",
        word_symbols: "-",
        ..SHELL
    },
    CodeRules {
        names: &["markdown", "md", "mdx"],
        syntax: Markdown,
        ..BASE
    },
    CodeRules {
        names: &["diff", "patch"],
        syntax: Diff,
        ..BASE
    },
];
