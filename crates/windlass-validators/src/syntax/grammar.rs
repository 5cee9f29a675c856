//! Parses languages with a tree-sitter grammar, which is made for editors. It accepts more than the language does and may
//! not know its newest syntax, so the caller compares the flaws with those of the previous content.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::time::Instant;

use tree_sitter::{Node, ParseOptions, Parser, Tree, TreeCursor};

use super::position::Flaw;
use super::stack_guard::{MAX_TIME, NoVerdict, too_slow};
use crate::language::Language;

/// At most this many flaws per text: later ones are mostly consequences of the first.
const MAX_FLAWS: usize = 20;
/// At most this many characters of the unexpected text are shown.
const MAX_SHOWN: usize = 40;

/// The places that the grammar cannot parse.
pub(super) fn check(text: &str, language: Language, header: bool) -> Result<Vec<Flaw>, NoVerdict> {
    let mut flaws = check_as(text, language)?;
    // A header may be C or C++; the language with fewer flaws is assumed.
    if header && !flaws.is_empty() {
        let other = check_as(text, Language::Cpp)?;
        if other.len() < flaws.len() {
            flaws = other;
        }
    }
    Ok(flaws)
}

fn check_as(text: &str, language: Language) -> Result<Vec<Flaw>, NoVerdict> {
    let tree = parse(text, language)?;
    let root = tree.root_node();
    let mut flaws = Vec::new();
    match language {
        Language::Html => super::html::unclosed(text, root, &mut flaws),
        Language::Bash => {
            let words = &["fi", "done", "esac", "then", "do", "else", "}"];
            stray_words(text, root, "command_name", words, &mut flaws);
        }
        Language::Ruby => {
            let words = &["end", "else", "elsif", "when"];
            stray_words(text, root, "identifier", words, &mut flaws);
        }
        _ => {}
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
    if matches!(language, Language::C | Language::Cpp) {
        doubt_macros(text, &mut flaws);
    }
    Ok(flaws)
}

/// Marks flaws next to macros or preprocessor conditions as doubtful: the grammar neither expands macros nor knows which
/// branch of a condition is compiled.
fn doubt_macros(text: &str, flaws: &mut [Flaw]) {
    let lines: Vec<&str> = text.lines().collect();
    let conditions = lines
        .iter()
        .any(|line| line.trim_start().starts_with("#if"));
    let defined: HashSet<&str> = lines.iter().filter_map(|line| defines(line)).collect();
    let macros: Vec<bool> = lines
        .iter()
        .map(|line| names_macro(line, &defined))
        .collect();
    for flaw in flaws {
        let at = flaw.line.saturating_sub(1) as usize;
        let near = (at.saturating_sub(1)..=at + 1).any(|at| macros.get(at) == Some(&true));
        let wide = flaw.message.starts_with("this part cannot be parsed") && macros.contains(&true);
        flaw.doubtful = conditions || near || wide;
    }
}

/// The name in `#define NAME …`.
fn defines(line: &str) -> Option<&str> {
    let rest = line
        .trim_start()
        .strip_prefix('#')?
        .trim_start()
        .strip_prefix("define")?
        .trim_start();
    rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .next()
        .filter(|name| !name.is_empty())
}

/// Whether a line uses a macro: one that the file defines, or a name in capitals that is not a common constant of the
/// standard library.
fn names_macro(line: &str, defined: &HashSet<&str>) -> bool {
    const LIBRARY: &[&str] = &["NULL", "EOF", "FILE", "TRUE", "FALSE", "DIR", "BOOL"];
    let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words
        .filter(|word| word.len() > 2 && !LIBRARY.contains(word))
        .any(|word| {
            let end = word.rsplit('_').next().unwrap_or_default();
            let capitals = !end.is_empty()
                && end
                    .chars()
                    .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit());
            let whole = !word.contains(|c: char| c.is_ascii_lowercase());
            defined.contains(word)
                || (capitals
                    && (whole || word.contains('_'))
                    && end.starts_with(|c: char| c.is_ascii_uppercase()))
        })
}

fn parse(text: &str, language: Language) -> Result<Tree, NoVerdict> {
    let grammar = match language {
        Language::Go => tree_sitter_go::LANGUAGE,
        Language::Java => tree_sitter_java::LANGUAGE,
        Language::C => tree_sitter_c::LANGUAGE,
        Language::Cpp => tree_sitter_cpp::LANGUAGE,
        Language::CSharp => tree_sitter_c_sharp::LANGUAGE,
        Language::Ruby => tree_sitter_ruby::LANGUAGE,
        Language::Php => tree_sitter_php::LANGUAGE_PHP,
        Language::Html => tree_sitter_html::LANGUAGE,
        _ => tree_sitter_bash::LANGUAGE,
    };
    let mut parser = Parser::new();
    parser
        .set_language(&grammar.into())
        .map_err(|err| NoVerdict(format!("its grammar cannot be used: {err}")))?;
    let started = Instant::now();
    let mut slow = |_: &_| match started.elapsed() > MAX_TIME / 2 {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    let bytes = text.as_bytes();
    let mut read = |at: usize, _| &bytes[at.min(bytes.len())..];
    let options = ParseOptions::new().progress_callback(&mut slow);
    let tree = parser.parse_with_options(&mut read, None, Some(options));
    tree.ok_or_else(|| too_slow(MAX_TIME / 2))
}

/// Collects the errors of the tree. It does not recurse, so that deep nesting cannot overflow the stack.
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

/// Keywords that end or continue a block, where the grammar accepted them as a name.
fn stray_words(text: &str, root: Node<'_>, kind: &str, words: &[&str], flaws: &mut Vec<Flaw>) {
    let mut cursor = root.walk();
    loop {
        let node = cursor.node();
        if node.kind() == kind
            && let Some(word) = text.get(node.byte_range())
            && words.contains(&word)
        {
            let message = format!("`{word}` without the block that it belongs to");
            flaws.push(Flaw::at(text, node.start_byte(), message));
        }
        if flaws.len() > MAX_FLAWS || !next(&mut cursor, true) {
            return;
        }
    }
}

/// Moves to the next node in document order, into the children only with `into`. Returns `false` at the end.
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

/// Moves the place of a missing token back to the end of the text before it.
fn end_before(text: &str, offset: usize) -> usize {
    text.get(..offset)
        .map_or(offset, |before| before.trim_end().len())
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
        format!(
            "this part cannot be parsed, from `{shown}{cut}` on: a bracket, a quote or an end may be missing"
        )
    } else {
        format!("unexpected `{shown}{cut}`")
    };
    Flaw::at(text, node.start_byte() + leading, message)
}

fn has_plain_brackets(language: Language) -> bool {
    use Language::{C, CSharp, Cpp, Go, Java, Php};
    matches!(language, C | Cpp | CSharp | Java | Go | Php)
}

/// Reports a bracket without a counterpart, which is the most helpful explanation of a syntax error. The brackets are
/// tokens of the grammar, so those inside strings are ignored.
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
                        let (line, _) = super::position::line_and_column(text, from);
                        let message = format!(
                            "`{kind}` where `{}` must close the `{opening}` of line {line}",
                            partner(opening)
                        );
                        flaws.push(Flaw::at(text, at, message));
                        return;
                    }
                    None => {
                        flaws.push(Flaw::at(
                            text,
                            at,
                            format!("`{kind}` has no opening bracket"),
                        ));
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
        let message = format!("this `{opening}` is never closed by `{}`", partner(opening));
        flaws.push(Flaw::at(text, at, message));
    }
}

fn partner(opening: &str) -> &'static str {
    match opening {
        "(" => ")",
        "[" => "]",
        _ => "}",
    }
}
