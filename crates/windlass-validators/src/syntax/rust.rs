//! Checks Rust with `syn`, the parser that procedural macros use.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::position::Flaw;

/// The syntax errors of a text; `syn` stops at the first one.
pub(super) fn check(text: &str) -> Vec<Flaw> {
    let err = match syn::parse_file(text) {
        Ok(_) => return Vec::new(),
        Err(err) => err,
    };
    // `syn` does not support ranges without a start among other patterns, such as `[..=1, _]`.
    if let Some(completed) = with_range_starts(text)
        && syn::parse_file(&completed).is_ok()
    {
        return Vec::new();
    }
    err.into_iter().map(|err| flaw(text, &err)).collect()
}

/// Inserts a number before every `..=` that follows an opening bracket, a comma or a bar. Returns `None` if there is none.
fn with_range_starts(text: &str) -> Option<String> {
    let mut completed = String::with_capacity(text.len() + 64);
    let mut rest = text;
    while let Some(at) = rest.find("..=") {
        let (before, after) = rest.split_at(at);
        completed.push_str(before);
        if before.trim_end().ends_with(['[', '(', ',', '|']) {
            completed.push('0');
        }
        completed.push_str("..=");
        rest = &after[3..];
    }
    completed.push_str(rest);
    (completed.len() > text.len()).then_some(completed)
}

fn flaw(text: &str, err: &syn::Error) -> Flaw {
    let start = err.span().start();
    let line = super::position::number(start.line.max(1));
    // `syn` reports an unexpected end of input at the start of the file; the missing part belongs at the end.
    if err.to_string().starts_with("unexpected end of input")
        && start.line <= 1
        && start.column == 0
    {
        return Flaw::at(text, text.trim_end().len(), err.to_string());
    }
    let message = match err.to_string().as_str() {
        "lex error" | "cannot parse string into token stream" => {
            "an unmatched bracket or quote, or an unexpected character".to_owned()
        }
        other => other.to_owned(),
    };
    let column = super::position::number(start.column + 1);
    Flaw {
        line,
        column,
        message: super::position::one_line(&message),
        doubtful: false,
    }
}

/// An upper bound for the recursion depth of `syn`: every token between two separators may be one more level.
pub(super) fn depth(text: &str) -> usize {
    let Ok(stream) = text.parse::<TokenStream>() else {
        // The text does not split into tokens, so the parser fails before it recurses.
        return 0;
    };
    let (mut deepest, mut outer) = (0, 0);
    // For each open group: its tokens, the levels since its last separator, and the levels that the group itself added.
    let mut open = vec![(stream.into_iter().peekable(), 0_usize, 0_usize)];
    while let Some((tokens, here, added)) = open.last_mut() {
        let Some(token) = tokens.next() else {
            outer -= *added;
            open.pop();
            continue;
        };
        *here += 1;
        deepest = deepest.max(outer + *here);
        match token {
            TokenTree::Punct(sign) if matches!(sign.as_char(), ',' | ';') => *here = 0,
            TokenTree::Group(group) => {
                let added = *here;
                outer += added;
                let continues = match tokens.peek() {
                    Some(TokenTree::Ident(word)) => *word == "else" || *word == "as",
                    Some(TokenTree::Punct(sign)) => sign.as_char() != '#',
                    _ => false,
                };
                if group.delimiter() == Delimiter::Brace && !continues {
                    *here = 0;
                }
                open.push((group.stream().into_iter().peekable(), 0, added));
            }
            _ => {}
        }
    }
    deepest
}
