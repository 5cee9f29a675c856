//! Which language a file is written in, by its name and, for a script without an extension, by its first line.
//! Knows names only; it never looks inside a file for more than that line.

use std::fmt;

/// A language that can be checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Language {
    /// Python source; stubs too.
    Python,
    /// JavaScript, JSX included.
    JavaScript,
    /// TypeScript.
    TypeScript,
    /// TypeScript with JSX.
    Tsx,
    /// Rust.
    Rust,
    /// Go.
    Go,
    /// Java.
    Java,
    /// C.
    C,
    /// C++.
    Cpp,
    /// C#.
    CSharp,
    /// Ruby.
    Ruby,
    /// PHP.
    Php,
    /// Bash and sh.
    Bash,
    /// Strict JSON.
    Json,
    /// JSON with comments and trailing commas.
    Jsonc,
    /// One JSON value a line.
    JsonLines,
    /// TOML.
    Toml,
    /// YAML.
    Yaml,
    /// HTML.
    Html,
    /// CSS.
    Css,
}

/// Name, other names, endings of file names; with commas between them.
type Row = (Language, &'static str, &'static str, &'static str);

const TABLE: &[Row] = &[
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

/// File names that say the language without an ending.
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

/// JSON files whose readers allow comments, by what the name begins with; it ends with `.json`.
const WITH_COMMENTS: &str = "tsconfig jsconfig devcontainer .devcontainer .eslintrc api-extractor deno rush tslint turbo nx \
    language-configuration wrangler biome";

impl Language {
    /// Its name in reports and rows.
    #[must_use]
    pub fn name(self) -> &'static str {
        let row = TABLE.iter().find(|row| row.0 == self);
        row.map_or("text", |row| row.1)
    }

    /// All of them, in the order of the documentation.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.0)
    }

    /// By a name that a person or a program would give, with any case.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let name = name.trim().trim_start_matches('.').to_ascii_lowercase();
        let is = |row: &&Row| row.1 == name || row.2.split(',').any(|other| other == name);
        TABLE.iter().find(is).map(|row| row.0)
    }

    /// By a path, and by the first line of what is there when the name has no ending.
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
        // Capital letters matter once: `.C` and `.H` are C++ by the habit of compilers.
        if matches!(ending, "C" | "H") {
            return Some(Self::Cpp);
        }
        // Templates are not written in the language they make.
        if [".html", ".htm"]
            .iter()
            .any(|html| name.ends_with(&format!("{html}.{ending}")))
        {
            return None;
        }
        let ending = ending.to_ascii_lowercase();
        let ends = |row: &&Row| row.3.split(',').any(|known| known == ending);
        let found = TABLE.iter().find(ends)?.0;
        if found == Self::Json && allows_comments(folder, stem, name) {
            return Some(Self::Jsonc);
        }
        Some(found)
    }

    /// Whether it has a parser of the whole language: what that rejects is wrong. Others have a grammar made for editors,
    /// which may not know the newest syntax: only what a change added counts.
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

/// `#!/usr/bin/env -S python3 -u`, `#!/bin/sh`.
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
    fn a_name_says_the_language() {
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
    fn a_script_without_an_ending_says_it_in_its_first_line() {
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
    fn other_names_are_understood_and_every_language_knows_its_own() {
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
