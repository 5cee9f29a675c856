//! Detects the language of a file from its name or, for a script without an extension, from its first line. Nothing else
//! of the content is used.

use std::fmt;

/// A language that can be checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Language {
    /// Python source files and stubs (`.pyi`).
    Python,
    /// JavaScript, with JSX where the file name or the project allows it.
    JavaScript,
    /// TypeScript without JSX, including declaration files (`.d.ts`).
    TypeScript,
    /// TypeScript with JSX (`.tsx`).
    Tsx,
    /// Rust, parsed with `syn`.
    Rust,
    /// Go, parsed with an editor grammar.
    Go,
    /// Java, parsed with an editor grammar.
    Java,
    /// C, including headers, which may turn out to be C++.
    C,
    /// C++, parsed with an editor grammar.
    Cpp,
    /// C#, parsed with an editor grammar.
    CSharp,
    /// Ruby, including rake files and gem specifications.
    Ruby,
    /// PHP, also embedded in HTML.
    Php,
    /// Bash and POSIX sh.
    Bash,
    /// JSON without comments or trailing commas.
    Json,
    /// JSON with comments and trailing commas.
    Jsonc,
    /// One JSON value per line.
    JsonLines,
    /// TOML 1.1; `Cargo.toml` and `pyproject.toml` must be TOML 1.0.
    Toml,
    /// YAML, also with several documents in a file.
    Yaml,
    /// HTML, parsed with an editor grammar.
    Html,
    /// CSS, parsed by this crate.
    Css,
}

/// The language, its name, other names and file extensions; the last two are separated by commas.
type LanguageRow = (Language, &'static str, &'static str, &'static str);

const TABLE: &[LanguageRow] = &[
    (Language::Python, "python", "py,python3,pyi", "py,pyi,pyw"),
    (
        Language::JavaScript,
        "javascript",
        "js,jsx,mjs,cjs,node,ecmascript",
        "js,mjs,cjs,jsx",
    ),
    (
        Language::TypeScript,
        "typescript",
        "ts,mts,cts",
        "ts,mts,cts",
    ),
    (Language::Tsx, "tsx", "typescriptreact", "tsx"),
    (Language::Rust, "rust", "rs", "rs"),
    (Language::Go, "go", "golang", "go"),
    (Language::Java, "java", "", "java"),
    (Language::C, "c", "h", "c,h"),
    (
        Language::Cpp,
        "cpp",
        "c++,cxx,cc,hpp",
        "cpp,cc,cxx,c++,hpp,hh,hxx,h++,ipp,inl,tpp",
    ),
    (
        Language::CSharp,
        "csharp",
        "c#,cs,c-sharp,c_sharp",
        "cs,csx",
    ),
    (Language::Ruby, "ruby", "rb", "rb,rake,gemspec,ru"),
    (Language::Php, "php", "", "php,phtml,php5,php7,php8"),
    (Language::Bash, "bash", "sh,shell,shellscript", "sh,bash"),
    (
        Language::Json,
        "json",
        "",
        "json,geojson,webmanifest,ipynb,har",
    ),
    (
        Language::Jsonc,
        "jsonc",
        "json with comments",
        "jsonc,code-workspace",
    ),
    (Language::JsonLines, "jsonl", "ndjson", "jsonl,ndjson"),
    (Language::Toml, "toml", "", "toml"),
    (Language::Yaml, "yaml", "yml", "yaml,yml"),
    (Language::Html, "html", "htm", "html,htm"),
    (Language::Css, "css", "", "css"),
];

/// File names without an extension whose language is known.
const NAMES: &[(&str, Language)] = &[
    ("Rakefile", Language::Ruby),
    ("Gemfile", Language::Ruby),
    ("Vagrantfile", Language::Ruby),
    ("Podfile", Language::Ruby),
    ("SConstruct", Language::Python),
    ("SConscript", Language::Python),
    (".bashrc", Language::Bash),
    (".bash_profile", Language::Bash),
    (".profile", Language::Bash),
    ("PKGBUILD", Language::Bash),
    ("Cargo.lock", Language::Toml),
    ("poetry.lock", Language::Toml),
    ("uv.lock", Language::Toml),
    ("Pipfile", Language::Toml),
    ("composer.lock", Language::Json),
    ("Pipfile.lock", Language::Json),
    (".prettierrc", Language::Yaml),
    (".clang-format", Language::Yaml),
    (".babelrc", Language::Jsonc),
    (".eslintrc", Language::Jsonc),
    (".jshintrc", Language::Jsonc),
    (".swcrc", Language::Jsonc),
];

/// Prefixes of the names of `.json` files in which comments are allowed.
const WITH_COMMENTS: &str = "tsconfig jsconfig devcontainer .devcontainer .eslintrc api-extractor deno rush tslint turbo nx \
    language-configuration wrangler biome";

impl Language {
    /// The name of the language in reports and test cases.
    #[must_use]
    pub fn name(self) -> &'static str {
        let row = TABLE.iter().find(|row| row.0 == self);
        row.map_or("text", |row| row.1)
    }

    /// All languages, in the order of the documentation.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.0)
    }

    /// Finds a language by a common name or abbreviation, in any case.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let name = name.trim().trim_start_matches('.').to_ascii_lowercase();
        let is = |row: &&LanguageRow| row.1 == name || row.2.split(',').any(|other| other == name);
        TABLE.iter().find(is).map(|row| row.0)
    }

    /// Detects the language by the path, or by the first line of the content if the name has no extension.
    #[must_use]
    pub fn of(path: &str, first_bytes: &[u8]) -> Option<Self> {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        if let Some((_, language)) = NAMES.iter().find(|(known, _)| *known == name) {
            return Some(*language);
        }
        let Some((stem, ending)) = name.rsplit_once('.').filter(|(stem, _)| !stem.is_empty())
        else {
            return by_first_line(first_bytes);
        };
        // Compilers treat `.C` and `.H` as C++. Otherwise case is ignored.
        if matches!(ending, "C" | "H") {
            return Some(Self::Cpp);
        }
        // A template is not written in the language that it generates.
        if [".html", ".htm"]
            .iter()
            .any(|html| name.ends_with(&format!("{html}.{ending}")))
        {
            return None;
        }
        let ending = ending.to_ascii_lowercase();
        let ends = |row: &&LanguageRow| row.3.split(',').any(|known| known == ending);
        let found = TABLE.iter().find(ends)?.0;
        if found == Self::Json && allows_comments(folder, stem, name) {
            return Some(Self::Jsonc);
        }
        Some(found)
    }

    /// Whether there is a complete parser, so that anything it rejects is an error. The other languages are parsed with an
    /// editor grammar, which may not know the newest syntax: only errors that the change added are reported.
    #[must_use]
    pub fn is_exact(self) -> bool {
        match self {
            Self::Python | Self::JavaScript | Self::TypeScript | Self::Tsx | Self::Rust => true,
            Self::Json | Self::Jsonc | Self::JsonLines | Self::Toml | Self::Yaml => true,
            Self::Go | Self::Java | Self::C | Self::Cpp | Self::CSharp => false,
            Self::Ruby | Self::Php | Self::Bash | Self::Html | Self::Css => false,
        }
    }
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn allows_comments(folder: &str, stem: &str, name: &str) -> bool {
    let last = folder.rsplit('/').next().unwrap_or_default();
    if matches!(last, ".vscode" | ".devcontainer") || name.ends_with(".jsonc.json") {
        return true;
    }
    // `tsconfig.json` and `tsconfig.build.json`, not `tsconfiguration.json`.
    let begins = |begin: &str| {
        stem.strip_prefix(begin)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-']))
    };
    name.ends_with(".json") && WITH_COMMENTS.split_whitespace().any(begins)
}

/// The language of the interpreter in a first line such as `#!/usr/bin/env -S python3 -u` or `#!/bin/sh`.
fn by_first_line(bytes: &[u8]) -> Option<Language> {
    let line = bytes.strip_prefix(b"#!")?;
    let line = line.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line.get(..line.len().min(256))?).ok()?;
    let mut words = line.split_ascii_whitespace();
    let mut program = words.next()?.rsplit('/').next()?;
    if program == "env" {
        program = words
            .find(|word| !word.starts_with('-') && !word.contains('='))?
            .rsplit('/')
            .next()?;
    }
    let program = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    match program {
        "python" | "pypy" => Some(Language::Python),
        "node" | "nodejs" | "bun" => Some(Language::JavaScript),
        "deno" | "ts-node" | "tsx" => Some(Language::TypeScript),
        "sh" | "bash" | "dash" | "ash" => Some(Language::Bash),
        "ruby" => Some(Language::Ruby),
        "php" => Some(Language::Php),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, first: &str, expect: &str) {
        let found = Language::of(path, first.as_bytes()).map_or("none", Language::name);
        assert_eq!(found, expect, "{path}");
    }

    #[test]
    fn the_name_decides_the_language() {
        for (path, expect) in [
            ("a.py", "python"),
            ("src/a.pyi", "python"),
            ("a.mjs", "javascript"),
            ("a.d.ts", "typescript"),
            ("a.tsx", "tsx"),
            ("a.h", "c"),
            ("a.C", "cpp"),
            ("a.JSON", "json"),
            ("Gemfile", "ruby"),
            ("tsconfig.json", "jsonc"),
            ("web/tsconfig.build.json", "jsonc"),
            ("tsconfiguration.json", "json"),
            (".vscode/settings.json", "jsonc"),
            (".devcontainer/devcontainer.json", "jsonc"),
            ("package.json", "json"),
            ("a.html", "html"),
            ("a.html.j2", "none"),
            ("Cargo.lock", "toml"),
            ("a.txt", "none"),
            (".gitignore", "none"),
            ("", "none"),
        ] {
            check(path, "", expect);
        }
    }

    #[test]
    fn the_first_line_decides_for_a_script_without_extension() {
        for (first, expect) in [
            ("#!/usr/bin/env python3\nprint(1)", "python"),
            ("#!/usr/bin/python3.12 -u\n", "python"),
            ("#!/usr/bin/env -S FOO=1 node --x\n", "javascript"),
            ("#!/bin/sh\n", "bash"),
            ("#! /bin/bash -e", "bash"),
            ("#!/usr/bin/perl\n", "none"),
            ("#!", "none"),
            ("plain", "none"),
        ] {
            check("bin/tool", first, expect);
        }
    }

    #[test]
    fn every_language_is_found_by_its_name_and_its_aliases() {
        for (name, expect) in [
            ("Py", "python"),
            ("C++", "cpp"),
            ("c#", "csharp"),
            ("yml", "yaml"),
            (".rs", "rust"),
        ] {
            assert_eq!(Language::named(name).map(Language::name), Some(expect));
        }
        assert_eq!(Language::named("cobol"), None);
        for language in Language::all() {
            assert_eq!(Language::named(language.name()), Some(language));
        }
    }
}
