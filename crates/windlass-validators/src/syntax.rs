//! Checks whether changed files parse in their language. Languages with a complete parser get a definite verdict. The
//! others are parsed with an editor grammar, and only errors that the change added are reported. No program is run.

mod css;
mod data;
mod grammar;
mod html;
mod javascript;
mod position;
mod python;
mod python_scopes;
mod rust;
mod stack_guard;
mod toml_version;
mod validator;

pub use position::Flaw;
pub(crate) use position::one_line;
pub(crate) use validator::Syntax;

use crate::language::Language;
use stack_guard::{CommentStyle, NoVerdict};

/// A larger file, in bytes, is not checked.
pub const MAX_FILE: u64 = 2 << 20;
/// At most this many flaws are reported for one file.
pub(crate) const MAX_PER_FILE: usize = 50;

/// Properties of the project that change how a file is parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Project {
    /// The minor version of the oldest Python 3 that the project supports; 0 if unknown.
    pub python: u8,
    /// The nearest `package.json` declares `.js` files to be ES modules.
    pub es_modules: bool,
    /// The project uses a framework that allows JSX in `.js` files.
    pub jsx: bool,
}

/// The result of parsing one text.
///
/// If all flaws are doubtful, there is no verdict either: see [`Checked::settled`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checked {
    /// The flaws; the text is correct if the list is empty.
    Flaws(Vec<Flaw>),
    /// The text could not be checked, with the reason.
    Unsure(String),
}

impl Checked {
    /// Turns a list in which all flaws are doubtful into [`Checked::Unsure`].
    #[must_use]
    pub fn settled(self) -> Self {
        match self {
            Self::Flaws(flaws) if !flaws.is_empty() && flaws.iter().all(|flaw| flaw.doubtful) => {
                Self::Unsure(doubts(&flaws))
            }
            result => result,
        }
    }
}

fn doubts(flaws: &[Flaw]) -> String {
    let first = flaws
        .first()
        .map(|flaw| format!(", the first at line {}: {}", flaw.line, flaw.message));
    let first = first.unwrap_or_default();
    format!(
        "{} places next to macros or preprocessor conditions cannot be parsed{first}",
        flaws.len()
    )
}

/// The properties of a file and its project that change how it is parsed.
#[derive(Debug, Clone, Copy)]
struct ParseContext {
    modules: ModuleKind,
    jsx: bool,
    declaration: bool,
    stub: bool,
    header: bool,
    /// The tools that read the file support only TOML 1.0.
    toml_1_0: bool,
    python: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ModuleKind {
    Module,
    Script,
    Either,
}

impl ParseContext {
    fn of(path: &str, project: &Project) -> Self {
        let name = path.rsplit('/').next().unwrap_or_default();
        let ending = name.rsplit('.').next().unwrap_or_default();
        let modules = match ending {
            "mjs" => ModuleKind::Module,
            "cjs" => ModuleKind::Script,
            "js" if project.es_modules => ModuleKind::Module,
            _ => ModuleKind::Either,
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

/// Checks the syntax of one text. The path is used only as a name: no file is opened.
///
/// ```
/// use windlass_validators::{Checked, Language, Project, check};
/// let checked = check(Language::Python, "a.py", b"def f(:\n    pass\n", &Project::default());
/// let Checked::Flaws(flaws) = checked else { panic!("the text was not parsed") };
/// assert_eq!((flaws[0].line, flaws[0].column), (1, 7));
/// ```
#[must_use]
pub fn check(language: Language, path: &str, bytes: &[u8], project: &Project) -> Checked {
    if bytes.len() as u64 > MAX_FILE {
        return Checked::Unsure(format!(
            "it is longer than {} MB and was not checked",
            MAX_FILE >> 20
        ));
    }
    let text = match text_of(language, bytes) {
        Ok(text) => text,
        Err(checked) => return checked,
    };
    match judge(language, text, ParseContext::of(path, project), project.jsx) {
        Ok(flaws) if !flaws.is_empty() && is_template(language, path, bytes, &flaws) => {
            Checked::Unsure(
                "it looks like a template, which is not written in the language that it generates"
                    .into(),
            )
        }
        Ok(mut flaws) => {
            flaws.truncate(MAX_PER_FILE);
            Checked::Flaws(flaws)
        }
        Err(NoVerdict(why)) => Checked::Unsure(why),
    }
}

fn judge(
    language: Language,
    text: String,
    options: ParseContext,
    project_jsx: bool,
) -> Result<Vec<Flaw>, NoVerdict> {
    match language {
        Language::Python => {
            stack_guard::run(stack_guard::depth(&text, CommentStyle::Python), move || {
                python::check(&text, &options)
            })
        }
        Language::JavaScript | Language::TypeScript | Language::Tsx => {
            let depth = stack_guard::depth(&text, CommentStyle::JavaScript);
            stack_guard::run(depth, move || {
                let flaws = javascript::check(&text, language, &options);
                let plain = language == Language::JavaScript && !options.jsx;
                if !flaws.is_empty() && plain && project_jsx {
                    return javascript::check(
                        &text,
                        language,
                        &ParseContext {
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
            let depth = stack_guard::run(0, move || rust::depth(&pieces))?;
            stack_guard::run(depth, move || rust::check(&text))
        }
        Language::Json => Ok(data::json(&text)),
        Language::Jsonc => Ok(data::jsonc(&text)),
        Language::JsonLines => Ok(data::json_lines(&text)),
        Language::Toml => stack_guard::run(0, move || data::toml(&text, options.toml_1_0))?,
        Language::Yaml => stack_guard::run(0, move || data::yaml(&text)),
        Language::Css => Ok(css::check(&text)),
        _ => stack_guard::run(0, move || grammar::check(&text, language, options.header))?,
    }
}

/// Whether a file with flaws looks like a template: it has template markers at a flaw or on their own line. Only data
/// files are considered, because templates of them often have the same extension; in programs the same characters are
/// ordinary syntax.
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
            .any(|flaw| has_mark(position::line_of(&text, flaw.line)))
}

/// Whether a line contains a template marker such as `{{ name`, `{{- .Values` or `{% if`. `${{ name }}` is none: it is
/// ordinary text in workflow files.
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

/// Decodes a file. Bytes that the language does not allow are a flaw; a binary file or an unsupported encoding is unsure.
fn text_of(language: Language, bytes: &[u8]) -> Result<String, Checked> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let once = matches!(language, Language::Python | Language::Rust | Language::Toml);
    if once && bytes.starts_with(b"\xef\xbb\xbf") {
        let why = "a second byte order mark, which the language does not allow";
        return Err(Checked::Flaws(vec![Flaw::at("", 0, why)]));
    }
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return Err(Checked::Unsure(
            "it is encoded in UTF-16, which is not supported".into(),
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
                "it is encoded in {other}, which is not supported"
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

/// The encoding in a comment such as `# -*- coding: latin-1 -*-` in one of the first two lines.
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
