//! Checks Python with the parser of a well-known linter, including the errors that the compiler finds after parsing. The
//! nesting limits of Python are applied too, so that the result is that of the interpreter.

use ruff_python_ast::PythonVersion;
use ruff_python_ast::token::TokenKind;
use ruff_python_parser::{Mode, ParseOptions, Parsed, UnsupportedSyntaxErrorKind, parse_unchecked};
use ruff_text_size::Ranged;

use super::ParseContext;
use super::position::Flaw;
use super::python_scopes::semantic_flaws;

/// The maximum nesting of brackets in CPython's tokenizer.
const MAX_BRACKETS: usize = 200;
/// The minor version whose syntax is always accepted. Newer syntax is treated in [`check`].
const LEAST: u8 = 13;

/// All syntax errors of a text.
pub(super) fn check(text: &str, options: &ParseContext) -> Vec<Flaw> {
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
    // Syntax of a newer version is accepted, because the version that runs the code is not known. The exceptions below
    // were errors for thirty years and are mostly mistakes, unless the project requires a version that supports them.
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
            format!("more than {MAX_BRACKETS} nested brackets, which Python refuses"),
        ));
    }
    let at_end = |flaw: &Flaw| flaw.message.starts_with("unexpected EOF");
    if let Some((sign, at)) = brackets.open.filter(|_| flaws.iter().any(at_end)) {
        // The parser notices the open bracket only at the end of the file; report the bracket instead.
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
        // This is an error only where annotations are evaluated lazily: with the import, and always since version 3.14.
        let deferred = options.python >= 14 || text.contains("from __future__ import annotations");
        let walrus = "named expression cannot be used within a type annotation";
        errors.retain(|(_, why)| deferred || why != walrus);
        flaws.extend(errors.into_iter().map(|(at, why)| Flaw::at(text, at, why)));
    }
    flaws.sort_by_key(|flaw| (flaw.line, flaw.column));
    flaws
}

/// The first bracket that is nested too deeply, and the last bracket that is open at the end.
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

/// Finds indentation whose meaning depends on the tab width (eight columns or one), which Python refuses.
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
