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
    let kinds: &[SourceType] = match language {
        Language::Tsx => &[SourceType::tsx()],
        Language::TypeScript if options.declaration => &[SourceType::d_ts()],
        Language::TypeScript => &[SourceType::ts()],
        _ => match options.modules {
            // JSX in a plain file is the habit of some tools; Node would not take it, so it is read only where the
            // name says so.
            Modules::Module => &[SourceType::mjs()],
            Modules::Script => &[SourceType::cjs()],
            Modules::Either => &[SourceType::cjs(), SourceType::mjs()],
        },
    };
    let mut first = None;
    for kind in kinds {
        let kind = if options.jsx { kind.with_jsx(true) } else { *kind };
        let flaws = check_as(text, kind);
        if flaws.is_empty() {
            return flaws;
        }
        // What is only wrong because a module is read as a script is not the error to show.
        let only_module_words = first.is_none() && kinds.len() > 1 && looks_like_module(text);
        if !only_module_words {
            first.get_or_insert(flaws);
        }
    }
    first.unwrap_or_default()
}

fn check_as(text: &str, kind: SourceType) -> Vec<Flaw> {
    let allocator = Allocator::default();
    let options = ParseOptions { parse_regular_expression: true, ..ParseOptions::default() };
    let parsed = Parser::new(&allocator, text, kind).with_options(options).parse();
    let mut flaws: Vec<_> = parsed.diagnostics.iter().map(|said| flaw(text, said)).collect();
    if flaws.is_empty() && !parsed.panicked {
        let judged = SemanticBuilder::new().with_check_syntax_error(true).build(&parsed.program);
        flaws.extend(judged.diagnostics.iter().map(|said| flaw(text, said)));
    }
    flaws
}

fn flaw(text: &str, said: &oxc_diagnostics::OxcDiagnostic) -> Flaw {
    let label = said.labels.iter().find(|label| label.primary()).or_else(|| said.labels.first());
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
        let after = line.strip_prefix("import").or_else(|| line.strip_prefix("export"));
        after.is_some_and(|rest| rest.starts_with([' ', '{', '*', '"', '\'', '\t']))
    })
}
