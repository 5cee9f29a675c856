//! The second parser: the tree-sitter grammar for bash. It must find the same commands at the same positions, contain only
//! known kinds of nodes, and report no error; otherwise the line is doubtful.

use std::borrow::Cow;
use std::ops::ControlFlow;

use tree_sitter::{ParseOptions, Parser, Tree};

use crate::is_among;

/// The parser is stopped after this many progress reports, which is far more than a line of maximum length needs.
const MAX_PROGRESS: usize = 10_000;

/// Compares with `starts`, where [`LineReader`](crate::reader::LineReader) found commands; returns the first difference.
pub(crate) fn difference(text: &str, starts: &[usize]) -> Option<String> {
    let Some(tree) = parse(text) else {
        return Some("the grammar could not parse it".into());
    };
    let mut theirs = match commands_of(&tree, text) {
        Ok(starts) => starts,
        Err(why) => return Some(why),
    };
    let mut ours = starts.to_vec();
    ours.sort_unstable();
    ours.dedup();
    theirs.sort_unstable();
    theirs.dedup();
    let first = ours
        .iter()
        .find(|at| !theirs.contains(at))
        .or(theirs.iter().find(|at| !ours.contains(at)))?;
    let near: String = text
        .get(*first..)
        .unwrap_or_default()
        .chars()
        .take(20)
        .collect();
    Some(format!(
        "the two parsers differ about where commands begin, near `{near}`"
    ))
}

fn parse(text: &str) -> Option<Tree> {
    let mut parser = Parser::new();
    parser
        .set_language(&tree_sitter_bash::LANGUAGE.into())
        .ok()?;
    let mut steps = 0;
    let mut progress = |_: &tree_sitter::ParseState| {
        steps += 1;
        if steps > MAX_PROGRESS {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let options = ParseOptions::new().progress_callback(&mut progress);
    let text = with_narrow_characters(text);
    let bytes = text.as_bytes();
    parser.parse_with_options(
        &mut |at, _| bytes.get(at..).unwrap_or_default(),
        None,
        Some(options),
    )
}

/// The text with every character outside ASCII replaced by one or two that keep its length in bytes. The grammar's
/// scanner passes characters to C's `isdigit`, which reads a table of 256 entries: a wide character after `{` makes it
/// read outside of that table. Positions stay the same, and no such character has a meaning in the grammar.
fn with_narrow_characters(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    let mut narrow = String::with_capacity(text.len());
    for c in text.chars() {
        match c.len_utf8() {
            1 => narrow.push(c),
            2 => narrow.push('é'),
            3 => narrow.push_str("éx"),
            _ => narrow.push_str("éé"),
        }
    }
    Cow::Owned(narrow)
}

/// Whether the double parentheses of an arithmetic command begin at this byte.
fn is_arithmetic(text: &str, at: usize) -> bool {
    text.as_bytes()
        .get(at..)
        .unwrap_or_default()
        .starts_with(b"((")
}

fn commands_of(tree: &Tree, text: &str) -> Result<Vec<usize>, String> {
    let mut starts = Vec::new();
    let mut cursor = tree.walk();
    loop {
        let node = cursor.node();
        if node.is_error() || node.is_missing() {
            return Err("the grammar finds an error in it".into());
        }
        let kind = node.kind();
        if node.is_named() && !is_among(kind, KNOWN) {
            return Err(format!("it contains a {}", kind.replace('_', " ")));
        }
        match kind {
            "command_name" | "declaration_command" | "unset_command" => {
                starts.push(node.start_byte())
            }
            "test_command" if !is_arithmetic(text, node.start_byte()) => {
                starts.push(node.start_byte())
            }
            _ => {}
        }
        if cursor.goto_first_child() {
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return Ok(starts);
            }
        }
    }
}

/// The kinds of nodes that [`LineReader`](crate::reader::LineReader) supports.
const KNOWN: &str = "\
    ansi_c_string arithmetic_expansion array binary_expression brace_expression c_style_for_statement case_item \
    case_statement command command_name command_substitution comment compound_statement concatenation \
    declaration_command do_group elif_clause else_clause expansion extglob_pattern file_descriptor file_redirect \
    for_statement function_definition heredoc_body heredoc_content heredoc_end heredoc_redirect heredoc_start \
    herestring_redirect if_statement list negated_command number parenthesized_expression pipeline \
    postfix_expression process_substitution program raw_string redirected_statement regex simple_expansion \
    special_variable_name string string_content subscript subshell ternary_expression test_command test_operator \
    translated_string unary_expression unset_command variable_assignment variable_assignments variable_name \
    while_statement word";

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) {
        let narrow = with_narrow_characters(text);
        assert_eq!(narrow.len(), text.len(), "{text}");
        assert!(narrow.chars().all(|c| u32::from(c) < 256), "{text}");
        assert!(parse(text).is_some(), "{text}");
    }

    #[test]
    fn characters_outside_ascii_keep_their_place() {
        for text in [
            "echo plain",
            "echo é",
            "{日本..語}",
            "echo {\u{10ffff}a",
            "for i in {\u{1f600}..9}; do echo \"$i\"; done",
            "cat <<日\n本\n日\n",
            "((日))",
        ] {
            check(text);
        }
    }
}
