//! JavaScript and TypeScript by a parser of the whole language, with the early errors of the specification. Whether a
//! file is a module or a script is decided as Node decides it.

use oxc_allocator::Allocator;
use oxc_parser::{ParseOptions, Parser};
use oxc_semantic::SemanticBuilder;
use oxc_span::SourceType;

use super::place::Flaw;
use super::{Modules, Options};
use crate::language::Language;

/// Everything that is wrong.
pub(super) fn check(text: &str, language: Language, options: &Options) -> Vec<Flaw> {
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
        (_, Modules::Module) => look(SourceType::mjs()),
        (_, Modules::Script) => look(SourceType::cjs()),
        (_, Modules::Either) => either(text, look(SourceType::mjs()), || look(SourceType::cjs())),
    }
}

/// Nobody says whether it is a module or a script: fine is what one of them takes. Else the errors of the one it looks
/// like are shown.
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
        .map(|said| flaw(text, said))
        .collect();
    if flaws.is_empty() && !parsed.panicked {
        let judged = SemanticBuilder::new()
            .with_check_syntax_error(true)
            .build(&parsed.program);
        flaws.extend(judged.diagnostics.iter().map(|said| flaw(text, said)));
    }
    flaws
}

fn flaw(text: &str, said: &oxc_diagnostics::OxcDiagnostic) -> Flaw {
    let label = said
        .labels
        .iter()
        .find(|label| label.primary())
        .or_else(|| said.labels.first());
    let offset = label.map_or(0, |label| label.offset() as usize);
    let mut message = said.message.to_string();
    if let Some(help) = &said.help {
        message = format!("{message} ({help})");
    }
    Flaw::at(text, offset, message)
}

/// Whether a line begins as only one of a module may.
fn looks_like_module(text: &str) -> bool {
    text.lines().any(|line| {
        let line = line.trim_start();
        let after = line
            .strip_prefix("import")
            .or_else(|| line.strip_prefix("export"));
        after.is_some_and(|rest| rest.starts_with([' ', '{', '*', '"', '\'', '\t']))
    })
}
