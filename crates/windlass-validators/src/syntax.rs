//! Whether changed files can be read by the language they are written in. Exact parsers where there is one, so that
//! their verdict blocks; grammars elsewhere, and then only what the change added counts. It runs no program.

mod css;
mod data;
mod deep;
mod grammar;
mod html;
mod javascript;
mod place;
mod python;
mod python_scopes;
mod rust;
mod toml_version;
mod validator;

pub use place::Flaw;
pub(crate) use place::one_line;
pub(crate) use validator::Syntax;

use crate::language::Language;
use deep::{Marks, NoAnswer};

/// The longest file that is read.
pub const MAX_FILE: u64 = 2 << 20;
/// The most flaws of one file.
pub(crate) const MAX_PER_FILE: usize = 50;

/// What is known of the project a file belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Project {
    /// Nothing older than this version 3 of Python will run it; 0 when nobody says.
    pub python: u8,
    /// The nearest `package.json` says that plain `.js` files are modules.
    pub es_modules: bool,
    /// It has a tool that reads JSX in plain `.js` files.
    pub jsx: bool,
}

/// What a look at one text gave.
///
/// Where all flaws are doubtful there is no verdict either: see [`Checked::settled`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checked {
    /// What is wrong; nothing when the list is empty.
    Flaws(Vec<Flaw>),
    /// It could not be established, for this reason.
    Unsure(String),
}

impl Checked {
    /// The verdict on a text by itself: flaws that are all doubtful become the reason why there is none.
    #[must_use]
    pub fn settled(self) -> Self {
        match self {
            Self::Flaws(flaws) if !flaws.is_empty() && flaws.iter().all(|flaw| flaw.doubtful) => {
                Self::Unsure(doubts(&flaws))
            }
            said => said,
        }
    }
}

fn doubts(flaws: &[Flaw]) -> String {
    let first = flaws
        .first()
        .map(|flaw| format!(", the first at line {}: {}", flaw.line, flaw.message));
    let first = first.unwrap_or_default();
    format!(
        "{} places beside macros or conditions of the preprocessor cannot be read{first}",
        flaws.len()
    )
}

/// How the name of a file and its project change the reading.
#[derive(Debug, Clone, Copy)]
struct Options {
    modules: Modules,
    jsx: bool,
    declaration: bool,
    stub: bool,
    header: bool,
    /// The tool that reads it knows nothing newer.
    toml_1_0: bool,
    python: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Modules {
    Module,
    Script,
    Either,
}

impl Options {
    fn of(path: &str, project: &Project) -> Self {
        let name = path.rsplit('/').next().unwrap_or_default();
        let ending = name.rsplit('.').next().unwrap_or_default();
        let modules = match ending {
            "mjs" => Modules::Module,
            "cjs" => Modules::Script,
            "js" if project.es_modules => Modules::Module,
            _ => Modules::Either,
        };
        Self {
            modules,
            jsx: ending == "jsx",
            declaration: [".d.ts", ".d.mts", ".d.cts"]
                .iter()
                .any(|end| name.ends_with(end)),
            stub: ending == "pyi",
            header: ending == "h",
            toml_1_0: matches!(name, "Cargo.toml" | "pyproject.toml"),
            python: project.python,
        }
    }
}

/// Looks at one text. The path is only a name: nothing is opened.
///
/// ```
/// use windlass_validators::{Checked, Language, Project, check};
/// let said = check(Language::Python, "a.py", b"def f(:\n    pass\n", &Project::default());
/// let Checked::Flaws(flaws) = said else { panic!("it can be read") };
/// assert_eq!((flaws[0].line, flaws[0].column), (1, 7));
/// ```
#[must_use]
pub fn check(language: Language, path: &str, bytes: &[u8], project: &Project) -> Checked {
    if bytes.len() as u64 > MAX_FILE {
        return Checked::Unsure(format!(
            "it is longer than {} MB and was not read",
            MAX_FILE >> 20
        ));
    }
    let text = match text_of(language, bytes) {
        Ok(text) => text,
        Err(said) => return said,
    };
    match judge(language, text, Options::of(path, project), project.jsx) {
        Ok(flaws) if !flaws.is_empty() && is_template(language, path, bytes, &flaws) => {
            Checked::Unsure(
                "it looks like a template, which is not written in the language that it makes"
                    .into(),
            )
        }
        Ok(mut flaws) => {
            flaws.truncate(MAX_PER_FILE);
            Checked::Flaws(flaws)
        }
        Err(NoAnswer(why)) => Checked::Unsure(why),
    }
}

fn judge(
    language: Language,
    text: String,
    options: Options,
    project_jsx: bool,
) -> Result<Vec<Flaw>, NoAnswer> {
    match language {
        Language::Python => deep::run(deep::depth(&text, Marks::Python), move || {
            python::check(&text, &options)
        }),
        Language::JavaScript | Language::TypeScript | Language::Tsx => {
            let depth = deep::depth(&text, Marks::JavaScript);
            deep::run(depth, move || {
                let flaws = javascript::check(&text, language, &options);
                let plain = language == Language::JavaScript && !options.jsx;
                if !flaws.is_empty() && plain && project_jsx {
                    return javascript::check(
                        &text,
                        language,
                        &Options {
                            jsx: true,
                            ..options
                        },
                    );
                }
                flaws
            })
        }
        Language::Rust => {
            let pieces = text.clone();
            let depth = deep::run(0, move || rust::depth(&pieces))?;
            deep::run(depth, move || rust::check(&text))
        }
        Language::Json => Ok(data::json(&text)),
        Language::Jsonc => Ok(data::jsonc(&text)),
        Language::JsonLines => Ok(data::json_lines(&text)),
        Language::Toml => deep::run(0, move || data::toml(&text, options.toml_1_0))?,
        Language::Yaml => deep::run(0, move || data::yaml(&text)),
        Language::Css => Ok(css::check(&text)),
        _ => deep::run(0, move || grammar::check(&text, language, options.header))?,
    }
}

/// Whether a file that cannot be read has the marks of a template: where it cannot be read, or as a line of their own.
/// Data files are made from templates of the same name; in programs the same signs mean something.
fn is_template(language: Language, path: &str, bytes: &[u8], flaws: &[Flaw]) -> bool {
    if path.contains("{{") {
        return true;
    }
    if !matches!(
        language,
        Language::Yaml | Language::Json | Language::Jsonc | Language::Toml
    ) {
        return false;
    }
    let text = String::from_utf8_lossy(bytes);
    let own_line = text.lines().any(|line| {
        let line = line.trim_start();
        line.starts_with("{%") || (line.starts_with("{{") && has_mark(line))
    });
    own_line
        || flaws
            .iter()
            .any(|flaw| has_mark(place::line_of(&text, flaw.line)))
}

/// `{{ name`, `{{- .Values`, `{% if`; not `${{ name }}`, which other readers know.
fn has_mark(line: &str) -> bool {
    let word = |rest: &str| {
        rest.trim_start_matches(['-', '~'])
            .trim_start()
            .starts_with(|c: char| c.is_alphabetic() || "._#/$".contains(c))
    };
    line.contains("{%")
        || line
            .match_indices("{{")
            .any(|(at, _)| !line[..at].ends_with('$') && word(&line[at + 2..]))
}

/// The characters of a file. What a language does not allow is a flaw; what is plainly no text is no verdict.
fn text_of(language: Language, bytes: &[u8]) -> Result<String, Checked> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let once = matches!(language, Language::Python | Language::Rust | Language::Toml);
    if once && bytes.starts_with(b"\xef\xbb\xbf") {
        let why = "a second byte order mark, which is no character of the language";
        return Err(Checked::Flaws(vec![Flaw::at("", 0, why)]));
    }
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return Err(Checked::Unsure(
            "it is written in UTF-16, which is not read here".into(),
        ));
    }
    let err = match std::str::from_utf8(bytes) {
        Ok(_) if language != Language::Python && looks_binary(bytes) => {
            return Err(Checked::Unsure("it looks like a binary file".into()));
        }
        Ok(text) => return Ok(text.to_owned()),
        Err(err) => err,
    };
    if looks_binary(bytes) {
        return Err(Checked::Unsure("it looks like a binary file".into()));
    }
    let strict = language.is_exact() && language != Language::JavaScript;
    if language == Language::Python
        && let Some(coding) = declared_coding(bytes)
    {
        return match coding.as_str() {
            "latin-1" | "latin1" | "iso-8859-1" | "iso8859-1" | "iso-8859-15" | "cp1252" => {
                Ok(bytes.iter().map(|byte| char::from(*byte)).collect())
            }
            "utf-8" | "utf8" => Err(not_utf8(bytes, err.valid_up_to())),
            other => Err(Checked::Unsure(format!(
                "it is written in {other}, which is not read here"
            ))),
        };
    }
    if strict {
        return Err(not_utf8(bytes, err.valid_up_to()));
    }
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

fn not_utf8(bytes: &[u8], valid: usize) -> Checked {
    let text = String::from_utf8_lossy(bytes);
    Checked::Flaws(vec![Flaw::at(
        &text,
        valid,
        "this byte is not UTF-8; save the file as UTF-8",
    )])
}

fn looks_binary(bytes: &[u8]) -> bool {
    bytes.iter().take(8_000).any(|byte| *byte == 0)
}

/// `# -*- coding: latin-1 -*-` in one of the first two lines.
fn declared_coding(bytes: &[u8]) -> Option<String> {
    let lines = bytes
        .split(|byte| *byte == b'\n')
        .take(2)
        .map(String::from_utf8_lossy);
    lines
        .filter(|line| line.trim_start().starts_with('#'))
        .find_map(|line| {
            let after = line.split_once("coding")?.1;
            let after = after.strip_prefix([':', '='])?.trim_start();
            let name: String = after
                .chars()
                .take_while(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.'))
                .collect();
            Some(name.to_lowercase().replace('_', "-"))
        })
}
