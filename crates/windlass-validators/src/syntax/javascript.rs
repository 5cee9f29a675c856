//! Checks JavaScript and TypeScript with a complete parser, including the early errors of the specification. Whether a
//! file is a module or a script is decided as in Node.

use oxc_allocator::Allocator;
use oxc_parser::{ParseOptions, Parser};
use oxc_semantic::SemanticBuilder;
use oxc_span::SourceType;

use super::position::Flaw;
use super::{ModuleKind, ParseContext};
use crate::language::Language;

/// All syntax errors of a text.
pub(super) fn check(text: &str, language: Language, options: &ParseContext) -> Vec<Flaw> {
    let look = |kind: SourceType| {
        check_as(
            text,
            if options.jsx {
                kind.with_jsx(true)
            } else {
                kind
            },
        )
    };
    match (language, options.modules) {
        (Language::Tsx, _) => either(text, look(SourceType::tsx()), || {
            look(SourceType::tsx().with_script(true))
        }),
        (Language::TypeScript, _) if options.declaration => look(SourceType::d_ts()),
        (Language::TypeScript, _) => either(text, look(SourceType::ts()), || {
            look(SourceType::ts().with_script(true))
        }),
        (_, ModuleKind::Module) => look(SourceType::mjs()),
        (_, ModuleKind::Script) => look(SourceType::cjs()),
        (_, ModuleKind::Either) => {
            either(text, look(SourceType::mjs()), || look(SourceType::cjs()))
        }
    }
}

/// For a file that may be a module or a script: it is correct if it parses as one of them. Otherwise the errors of the
/// more likely kind are returned.
fn either(text: &str, as_module: Vec<Flaw>, as_script: impl FnOnce() -> Vec<Flaw>) -> Vec<Flaw> {
    if as_module.is_empty() {
        return as_module;
    }
    let as_script = as_script();
    if as_script.is_empty() || !looks_like_module(text) {
        as_script
    } else {
        as_module
    }
}

fn check_as(text: &str, kind: SourceType) -> Vec<Flaw> {
    let allocator = Allocator::default();
    let options = ParseOptions {
        parse_regular_expression: true,
        ..ParseOptions::default()
    };
    let parsed = Parser::new(&allocator, text, kind)
        .with_options(options)
        .parse();
    let mut flaws: Vec<_> = parsed
        .diagnostics
        .iter()
        .map(|diagnostic| flaw(text, diagnostic))
        .collect();
    if flaws.is_empty() && !parsed.panicked {
        let semantic = SemanticBuilder::new()
            .with_check_syntax_error(true)
            .build(&parsed.program);
        let diagnostics = semantic.diagnostics.iter();
        flaws.extend(diagnostics.map(|diagnostic| flaw(text, diagnostic)));
    }
    flaws
}

fn flaw(text: &str, diagnostic: &oxc_diagnostics::OxcDiagnostic) -> Flaw {
    let label = diagnostic
        .labels
        .iter()
        .find(|label| label.primary())
        .or_else(|| diagnostic.labels.first());
    let offset = label.map_or(0, |label| label.offset() as usize);
    let mut message = diagnostic.message.to_string();
    if let Some(help) = &diagnostic.help {
        message = format!("{message} ({help})");
    }
    Flaw::at(text, offset, message)
}

/// Whether a line begins with `import` or `export` as only in a module.
fn looks_like_module(text: &str) -> bool {
    text.lines().any(|line| {
        let line = line.trim_start();
        let after = line
            .strip_prefix("import")
            .or_else(|| line.strip_prefix("export"));
        after.is_some_and(|rest| rest.starts_with([' ', '{', '*', '"', '\'', '\t']))
    })
}
