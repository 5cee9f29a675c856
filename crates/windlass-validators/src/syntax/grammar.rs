//! The languages that are read by a grammar made for editors. It takes more than the language does and may not know
//! its newest syntax, so whoever asks compares with what was there before.

use std::ops::ControlFlow;
use std::time::Instant;

use tree_sitter::{Node, ParseOptions, Parser, Tree, TreeCursor};

use super::deep::{MAX_TIME, NoAnswer};
use super::place::Flaw;
use crate::language::Language;

/// The most flaws of one text: what follows is mostly the echo of the first.
const MAX_FLAWS: usize = 20;
/// How much of what cannot be read is shown.
const MAX_SHOWN: usize = 40;

/// What the grammar cannot read.
pub(super) fn check(text: &str, language: Language, header: bool) -> Result<Vec<Flaw>, NoAnswer> {
    let mut flaws = check_as(text, language)?;
    // Nobody says which of the two languages a header is in.
    if header && !flaws.is_empty() {
        let other = check_as(text, Language::Cpp)?;
        if other.len() < flaws.len() {
            flaws = other;
        }
    }
    Ok(flaws)
}

fn check_as(text: &str, language: Language) -> Result<Vec<Flaw>, NoAnswer> {
    let tree = parse(text, language)?;
    let root = tree.root_node();
    let mut flaws = Vec::new();
    if language == Language::Html {
        super::html::unclosed(text, root, &mut flaws);
    }
    if root.has_error() {
        errors(text, root, &mut flaws);
        if has_plain_brackets(language) {
            brackets(text, root, &mut flaws);
        }
    }
    flaws.sort_by_key(|flaw| (flaw.line, flaw.column));
    flaws.dedup_by_key(|flaw| (flaw.line, flaw.column));
    flaws.truncate(MAX_FLAWS);
    Ok(flaws)
}

fn parse(text: &str, language: Language) -> Result<Tree, NoAnswer> {
    let grammar = match language {
        Language::Go => tree_sitter_go::LANGUAGE,
        Language::Java => tree_sitter_java::LANGUAGE,
        Language::C => tree_sitter_c::LANGUAGE,
        Language::Cpp => tree_sitter_cpp::LANGUAGE,
        Language::CSharp => tree_sitter_c_sharp::LANGUAGE,
        Language::Ruby => tree_sitter_ruby::LANGUAGE,
        Language::Php => tree_sitter_php::LANGUAGE_PHP,
        Language::Html => tree_sitter_html::LANGUAGE,
        Language::Css => tree_sitter_css::LANGUAGE,
        _ => tree_sitter_bash::LANGUAGE,
    };
    let mut parser = Parser::new();
    parser.set_language(&grammar.into()).map_err(|err| NoAnswer(format!("its grammar cannot be used: {err}")))?;
    let started = Instant::now();
    let mut slow =
        |_: &_| if started.elapsed() > MAX_TIME / 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    let bytes = text.as_bytes();
    let mut read = |at: usize, _| &bytes[at.min(bytes.len())..];
    let options = ParseOptions::new().progress_callback(&mut slow);
    let tree = parser.parse_with_options(&mut read, None, Some(options));
    tree.ok_or_else(|| NoAnswer(format!("reading it took longer than {} s", MAX_TIME.as_secs() / 2)))
}

/// Walks the parts that hold an error; no recursion, so that depth costs no stack.
fn errors(text: &str, root: Node<'_>, flaws: &mut Vec<Flaw>) {
    let mut cursor = root.walk();
    loop {
        let node = cursor.node();
        let mut into = node.has_error();
        if node.is_missing() {
            let message = format!("expected `{}`", node.kind());
            flaws.push(Flaw::at(text, end_before(text, node.start_byte()), message));
            into = false;
        } else if node.is_error() {
            flaws.push(unreadable(text, node));
            into = false;
        }
        if flaws.len() > MAX_FLAWS || !next(&mut cursor, into) {
            return;
        }
    }
}

/// The next node in order; `false` at the end.
pub(super) fn next(cursor: &mut TreeCursor<'_>, into: bool) -> bool {
    if into && cursor.goto_first_child() {
        return true;
    }
    while !cursor.goto_next_sibling() {
        if !cursor.goto_parent() {
            return false;
        }
    }
    true
}

/// What is missing belongs behind the last thing that was written, not before the next.
fn end_before(text: &str, offset: usize) -> usize {
    text.get(..offset).map_or(offset, |before| before.trim_end().len())
}

fn unreadable(text: &str, node: Node<'_>) -> Flaw {
    let piece = text.get(node.byte_range()).unwrap_or_default();
    let leading = piece.len() - piece.trim_start().len();
    let piece = piece.trim();
    let first = piece.lines().next().unwrap_or_default().trim_end();
    let shown: String = first.chars().take(MAX_SHOWN).collect();
    let cut = if shown.len() < first.len() { "…" } else { "" };
    let message = if piece.is_empty() {
        "something is missing here".to_owned()
    } else if piece.contains('\n') {
        format!("this part cannot be read, from `{shown}{cut}` on: a bracket, a quote or an end may be missing")
    } else {
        format!("unexpected `{shown}{cut}`")
    };
    Flaw::at(text, node.start_byte() + leading, message)
}

fn has_plain_brackets(language: Language) -> bool {
    matches!(
        language,
        Language::C | Language::Cpp | Language::CSharp | Language::Java | Language::Go | Language::Css | Language::Php
    )
}

/// Where something cannot be read, brackets without a partner are the best explanation. They are taken as the grammar
/// cut them, so none inside a string counts.
fn brackets(text: &str, root: Node<'_>, flaws: &mut Vec<Flaw>) {
    let mut cursor = root.walk();
    let mut open: Vec<(&str, usize)> = Vec::new();
    loop {
        let node = cursor.node();
        let leaf = node.child_count() == 0 && !node.is_missing();
        if leaf {
            let at = node.start_byte();
            match node.kind() {
                kind @ ("(" | "[" | "{") => open.push((kind, at)),
                kind @ (")" | "]" | "}") => match open.pop() {
                    Some((opening, _)) if partner(opening) == kind => {}
                    Some((opening, from)) => {
                        let (line, _) = super::place::place(text, from);
                        let message =
                            format!("`{kind}` where `{}` must close the `{opening}` of line {line}", partner(opening));
                        flaws.push(Flaw::at(text, at, message));
                        return;
                    }
                    None => {
                        flaws.push(Flaw::at(text, at, format!("`{kind}` closes nothing")));
                        return;
                    }
                },
                _ => {}
            }
        }
        if !next(&mut cursor, true) {
            break;
        }
    }
    if let Some((opening, at)) = open.pop() {
        flaws.push(Flaw::at(text, at, format!("this `{opening}` is never closed by `{}`", partner(opening))));
    }
}

fn partner(opening: &str) -> &'static str {
    match opening {
        "(" => ")",
        "[" => "]",
        _ => "}",
    }
}
