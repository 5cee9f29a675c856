//! Rust by the parser that macros use.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::place::Flaw;

/// Everything that is wrong: a parser of this kind stops at the first.
pub(super) fn check(text: &str) -> Vec<Flaw> {
    let err = match syn::parse_file(text) {
        Ok(_) => return Vec::new(),
        Err(err) => err,
    };
    // The parser does not know ranges without a beginning among other patterns, such as `[..=1, _]`.
    if let Some(begun) = with_beginnings(text)
        && syn::parse_file(&begun).is_ok()
    {
        return Vec::new();
    }
    err.into_iter().map(|err| flaw(text, &err)).collect()
}

/// The text with a number in front of every `..=` that follows an opening bracket, a comma or a bar.
fn with_beginnings(text: &str) -> Option<String> {
    let mut begun = String::with_capacity(text.len() + 64);
    let mut rest = text;
    while let Some(at) = rest.find("..=") {
        let (before, after) = rest.split_at(at);
        begun.push_str(before);
        if before.trim_end().ends_with(['[', '(', ',', '|']) {
            begun.push('0');
        }
        begun.push_str("..=");
        rest = &after[3..];
    }
    begun.push_str(rest);
    (begun.len() > text.len()).then_some(begun)
}

fn flaw(text: &str, err: &syn::Error) -> Flaw {
    let start = err.span().start();
    let line = super::place::number(start.line.max(1));
    // An error at the end of the file is said at its end, where the missing piece belongs.
    if err.to_string().starts_with("unexpected end of input")
        && start.line <= 1
        && start.column == 0
    {
        return Flaw::at(text, text.trim_end().len(), err.to_string());
    }
    let message = match err.to_string().as_str() {
        "lex error" | "cannot parse string into token stream" => {
            "a bracket, a quote or a character that does not belong here".to_owned()
        }
        other => other.to_owned(),
    };
    let column = super::place::number(start.column + 1);
    Flaw {
        line,
        column,
        message: super::place::one_line(&message),
        doubtful: false,
    }
}

/// How deep its parser goes: every piece between two separators may be one more level.
pub(super) fn depth(text: &str) -> usize {
    let Ok(stream) = text.parse::<TokenStream>() else {
        // What has no pieces is refused before anything nests.
        return 0;
    };
    let (mut deepest, mut outer) = (0, 0);
    // The pieces of a group, the levels since its last separator, and what the group itself added.
    let mut open = vec![(stream.into_iter().peekable(), 0_usize, 0_usize)];
    while let Some((pieces, here, added)) = open.last_mut() {
        let Some(piece) = pieces.next() else {
            outer -= *added;
            open.pop();
            continue;
        };
        *here += 1;
        deepest = deepest.max(outer + *here);
        match piece {
            TokenTree::Punct(sign) if matches!(sign.as_char(), ',' | ';') => *here = 0,
            TokenTree::Group(group) => {
                let added = *here;
                outer += added;
                let goes_on = match pieces.peek() {
                    Some(TokenTree::Ident(word)) => *word == "else" || *word == "as",
                    Some(TokenTree::Punct(sign)) => sign.as_char() != '#',
                    _ => false,
                };
                if group.delimiter() == Delimiter::Brace && !goes_on {
                    *here = 0;
                }
                open.push((group.stream().into_iter().peekable(), 0, added));
            }
            _ => {}
        }
    }
    deepest
}
