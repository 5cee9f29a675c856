//! Python by the parser of a well-known linter, with the errors that the compiler finds after parsing. Python's own
//! limits on nesting are kept, so that what is said here is what the interpreter would say.

use ruff_python_ast::PythonVersion;
use ruff_python_parser::{Mode, ParseOptions, UnsupportedSyntaxErrorKind, parse_unchecked};
use ruff_text_size::Ranged;

use super::Options;
use super::place::Flaw;
use super::python_scopes::semantic_flaws;

/// What the interpreter's own reader allows.
const MAX_BRACKETS: usize = 200;

/// Everything that is wrong.
pub(super) fn check(text: &str, options: &Options) -> Vec<Flaw> {
    if let Some(at) = text.find('\0') {
        return vec![Flaw::at(text, at, "a null byte is not allowed in source code")];
    }
    let version = if options.python_314 { PythonVersion::PY314 } else { PythonVersion::PY313 };
    let parsed = parse_unchecked(text, ParseOptions::from(Mode::Module).with_target_version(version));
    let mut flaws: Vec<_> =
        parsed.errors().iter().map(|err| Flaw::at(text, err.location.start().to_usize(), err.error.to_string())).collect();
    // Newer syntax than a version has is fine: nobody said which one it will run on. These two were never fine in
    // any version that is likely to run it.
    let never = |kind| {
        matches!(
            kind,
            UnsupportedSyntaxErrorKind::UnparenthesizedExceptionTypes
                | UnsupportedSyntaxErrorKind::ParenthesizedKeywordArgumentName
        )
    };
    for err in parsed.unsupported_syntax_errors().iter().filter(|err| never(err.kind)) {
        flaws.push(Flaw::at(text, err.range.start().to_usize(), err.to_string()));
    }
    if let Some(at) = too_many_brackets(&parsed) {
        flaws.push(Flaw::at(text, at, format!("more than {MAX_BRACKETS} nested brackets: Python refuses it")));
    }
    if flaws.is_empty()
        && let Some(module) = parsed.syntax().as_module()
    {
        let errors = semantic_flaws(text, module, options.stub);
        flaws.extend(errors.iter().map(|err| Flaw::at(text, err.range.start().to_usize(), err.to_string())));
    }
    flaws.sort_by_key(|flaw| (flaw.line, flaw.column));
    flaws
}

fn too_many_brackets<T>(parsed: &ruff_python_parser::Parsed<T>) -> Option<usize> {
    use ruff_python_ast::token::TokenKind;
    let mut depth = 0_usize;
    for token in parsed.tokens() {
        match token.kind() {
            TokenKind::Lpar | TokenKind::Lsqb | TokenKind::Lbrace => depth += 1,
            TokenKind::Rpar | TokenKind::Rsqb | TokenKind::Rbrace => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_BRACKETS {
            return Some(token.start().to_usize());
        }
    }
    None
}
