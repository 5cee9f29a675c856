//! Python by the parser of a well-known linter, with the errors that the compiler finds after parsing. Python's own
//! limits on nesting are kept, so that what is said here is what the interpreter would say.

use ruff_python_ast::PythonVersion;
use ruff_python_ast::token::TokenKind;
use ruff_python_parser::{Mode, ParseOptions, Parsed, UnsupportedSyntaxErrorKind, parse_unchecked};
use ruff_text_size::Ranged;

use super::Options;
use super::place::Flaw;
use super::python_scopes::semantic_flaws;

/// What the interpreter's own reader allows.
const MAX_BRACKETS: usize = 200;
/// The version whose syntax is taken for granted: what is newer is judged with care, below.
const LEAST: u8 = 13;

/// Everything that is wrong.
pub(super) fn check(text: &str, options: &Options) -> Vec<Flaw> {
    if let Some(at) = text.find('\0') {
        return vec![Flaw::at(
            text,
            at,
            "a null byte is not allowed in source code",
        )];
    }
    let version = PythonVersion {
        major: 3,
        minor: options.python.max(LEAST),
    };
    let parsed = parse_unchecked(
        text,
        ParseOptions::from(Mode::Module).with_target_version(version),
    );
    let mut flaws: Vec<_> = parsed
        .errors()
        .iter()
        .map(|err| Flaw::at(text, err.location.start().to_usize(), err.error.to_string()))
        .collect();
    // Newer syntax than a version has is fine: nobody said which one it will run on. These were an error for thirty
    // years and are written by mistake, unless the project needs a version that has them.
    let mistaken = |kind| {
        matches!(
            kind,
            UnsupportedSyntaxErrorKind::UnparenthesizedExceptionTypes
                | UnsupportedSyntaxErrorKind::ParenthesizedKeywordArgumentName
                | UnsupportedSyntaxErrorKind::UnpackingInComprehension(_)
                | UnsupportedSyntaxErrorKind::LazyImportStatement
        )
    };
    for err in parsed
        .unsupported_syntax_errors()
        .iter()
        .filter(|err| mistaken(err.kind))
    {
        flaws.push(Flaw::at(
            text,
            err.range.start().to_usize(),
            err.to_string(),
        ));
    }
    let brackets = Brackets::of(&parsed);
    if let Some(at) = brackets.too_deep {
        flaws.push(Flaw::at(
            text,
            at,
            format!("more than {MAX_BRACKETS} nested brackets: Python refuses it"),
        ));
    }
    let at_end = |flaw: &Flaw| flaw.message.starts_with("unexpected EOF");
    if let Some((sign, at)) = brackets.open.filter(|_| flaws.iter().any(at_end)) {
        // The end of the file is where it was noticed, not where it is.
        flaws.retain(|flaw| !at_end(flaw));
        flaws.push(Flaw::at(text, at, format!("`{sign}` was never closed")));
    }
    if flaws.is_empty() {
        flaws.extend(mixed_tabs(text, &parsed));
    }
    if flaws.is_empty()
        && let Some(module) = parsed.syntax().as_module()
    {
        let mut errors = semantic_flaws(text, module, options.stub);
        // An error where annotations are not evaluated at once: by an import, and always since version 3.14.
        let deferred = options.python >= 14 || text.contains("from __future__ import annotations");
        let walrus = "named expression cannot be used within a type annotation";
        errors.retain(|(_, why)| deferred || why != walrus);
        flaws.extend(errors.into_iter().map(|(at, why)| Flaw::at(text, at, why)));
    }
    flaws.sort_by_key(|flaw| (flaw.line, flaw.column));
    flaws
}

/// Where brackets go too deep, and the last one that is open at the end.
struct Brackets {
    too_deep: Option<usize>,
    open: Option<(char, usize)>,
}

impl Brackets {
    fn of<T>(parsed: &Parsed<T>) -> Self {
        let (mut open, mut too_deep) = (Vec::new(), None);
        for token in parsed.tokens() {
            let at = token.start().to_usize();
            match token.kind() {
                TokenKind::Lpar => open.push(('(', at)),
                TokenKind::Lsqb => open.push(('[', at)),
                TokenKind::Lbrace => open.push(('{', at)),
                TokenKind::Rpar | TokenKind::Rsqb | TokenKind::Rbrace => drop(open.pop()),
                _ => {}
            }
            if open.len() > MAX_BRACKETS {
                too_deep.get_or_insert(at);
            }
        }
        Self {
            too_deep,
            open: open.pop(),
        }
    }
}

/// Indentation that means one thing with tabs of eight columns and another with tabs of one is refused.
fn mixed_tabs<T>(text: &str, parsed: &Parsed<T>) -> Option<Flaw> {
    let mut open = vec![(0_usize, 0_usize)];
    let mut line_begins = true;
    for token in parsed.tokens() {
        match token.kind() {
            TokenKind::Newline => line_begins = true,
            TokenKind::NonLogicalNewline
            | TokenKind::Comment
            | TokenKind::Indent
            | TokenKind::Dedent => {}
            TokenKind::EndOfFile => break,
            _ if line_begins => {
                line_begins = false;
                let at = token.start().to_usize();
                let start = text[..at].rfind(['\n', '\r']).map_or(0, |at| at + 1);
                let here = columns(&text[start..at]);
                let depth = open.len();
                while open.len() > 1 && open.last().is_some_and(|top| here.0 < top.0) {
                    open.pop();
                }
                let top = *open.last()?;
                let deeper = here.0 > top.0 && open.len() == depth;
                let fits = if deeper { here.1 > top.1 } else { here == top };
                if !fits {
                    return Some(Flaw::at(
                        text,
                        at,
                        "tabs and spaces are mixed in the indentation; use only spaces",
                    ));
                }
                if deeper {
                    open.push(here);
                }
            }
            _ => {}
        }
    }
    None
}

/// The width of an indentation with tabs of eight columns, and with tabs of one.
fn columns(indent: &str) -> (usize, usize) {
    let indent = indent.rsplit('\x0c').next().unwrap_or_default();
    indent.chars().fold((0, 0), |(wide, narrow), c| match c {
        '\t' => ((wide / 8 + 1) * 8, narrow + 1),
        _ => (wide + 1, narrow + 1),
    })
}
