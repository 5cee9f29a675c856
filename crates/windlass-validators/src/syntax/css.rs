//! A small parser for CSS: tokens, brackets, rules and declarations as in the specification. It does not know property
//! names or values, so that new ones are never an error.

use super::position::Flaw;

/// At most this many flaws per text: later ones are mostly consequences of the first.
const MAX_FLAWS: usize = 20;

/// All syntax errors of a text.
pub(super) fn check(text: &str) -> Vec<Flaw> {
    let tokens = match tokens(text) {
        Ok(tokens) => tokens,
        Err(flaw) => return vec![flaw],
    };
    if let Some(flaw) = unbalanced(text, &tokens) {
        return vec![flaw];
    }
    let mut reader = CssReader {
        text,
        tokens: &tokens,
        at: 0,
        flaws: Vec::new(),
    };
    reader.read_all();
    reader.flaws
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CssTokenKind {
    /// A name, a number with its unit, a hash or a custom property (`--x`).
    Word,
    At,
    Text,
    Colon,
    Semicolon,
    Comma,
    Open(char),
    Close(char),
    /// Any other single character.
    Sign(char),
    /// `<!--` or `-->`, which are ignored.
    Html,
}

#[derive(Debug, Clone, Copy)]
struct CssToken {
    kind: CssTokenKind,
    from: usize,
    to: usize,
}

fn tokens(text: &str) -> Result<Vec<CssToken>, Flaw> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let from = at;
        let kind = match bytes[at] {
            b' ' | b'\t' | b'\n' | b'\r' | 0x0c => {
                at += 1;
                continue;
            }
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                let end = text[at + 2..].find("*/");
                at += end
                    .ok_or_else(|| Flaw::at(text, from, "this comment is never closed by `*/`"))?
                    + 4;
                continue;
            }
            quote @ (b'"' | b'\'') => {
                at = string(text, at, quote)?;
                CssTokenKind::Text
            }
            b'<' if bytes[at..].starts_with(b"<!--") => {
                at += 4;
                CssTokenKind::Html
            }
            b'-' if bytes[at..].starts_with(b"-->") => {
                at += 3;
                CssTokenKind::Html
            }
            byte if is_name(byte)
                || (byte == b'#' && bytes.get(at + 1).is_some_and(|next| is_name(*next))) =>
            {
                at = name(bytes, at + 1);
                if text[from..at].eq_ignore_ascii_case("url") && bytes.get(at) == Some(&b'(') {
                    at = url(text, at)?;
                }
                CssTokenKind::Word
            }
            b'@' if bytes.get(at + 1).is_some_and(|next| is_name(*next)) => {
                at = name(bytes, at + 1);
                CssTokenKind::At
            }
            byte => {
                at += 1;
                match byte {
                    b':' => CssTokenKind::Colon,
                    b';' => CssTokenKind::Semicolon,
                    b',' => CssTokenKind::Comma,
                    b'(' | b'[' | b'{' => CssTokenKind::Open(char::from(byte)),
                    b')' | b']' | b'}' => CssTokenKind::Close(char::from(byte)),
                    _ => CssTokenKind::Sign(char::from(byte)),
                }
            }
        };
        tokens.push(CssToken { kind, from, to: at });
    }
    Ok(tokens)
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'\\') || byte >= 0x80
}

fn name(bytes: &[u8], mut at: usize) -> usize {
    if at > 0 && bytes[at - 1] == b'\\' {
        at += 1;
    }
    while at < bytes.len() && is_name(bytes[at]) {
        // An escaped character belongs to the name.
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    let mut at = at.min(bytes.len());
    while at < bytes.len() && bytes[at] & 0xc0 == 0x80 {
        at += 1;
    }
    at
}

fn string(text: &str, from: usize, quote: u8) -> Result<usize, Flaw> {
    let bytes = text.as_bytes();
    let mut at = from + 1;
    while at < bytes.len() {
        match bytes[at] {
            byte if byte == quote => return Ok(at + 1),
            b'\\' => {
                at += if bytes[at + 1..].starts_with(b"\r\n") {
                    3
                } else {
                    2
                }
            }
            b'\n' | b'\r' => break,
            _ => at += 1,
        }
    }
    Err(Flaw::at(
        text,
        from,
        format!("this string is never closed by `{}`", char::from(quote)),
    ))
}

/// The end of `url(`: without quotes it extends to the closing bracket; with quotes it is an ordinary function.
fn url(text: &str, open: usize) -> Result<usize, Flaw> {
    let inner = text[open + 1..].trim_start();
    if inner.starts_with(['"', '\'']) {
        return Ok(open);
    }
    let mut escaped = false;
    for (at, c) in text[open + 1..].char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ')' => return Ok(open + 1 + at + 1),
            '\n' | '"' | '\'' | '(' => break,
            _ => {}
        }
    }
    Err(Flaw::at(
        text,
        open,
        "this `url(` is not closed by `)`, or needs quotes around its address",
    ))
}

fn unbalanced(text: &str, tokens: &[CssToken]) -> Option<Flaw> {
    let partner = |open| match open {
        '(' => ')',
        '[' => ']',
        _ => '}',
    };
    let mut open: Vec<(char, usize)> = Vec::new();
    for token in tokens {
        match token.kind {
            CssTokenKind::Open(sign) => open.push((sign, token.from)),
            CssTokenKind::Close(sign) => match open.pop() {
                Some((opening, _)) if partner(opening) == sign => {}
                Some((opening, from)) => {
                    let (line, _) = super::position::line_and_column(text, from);
                    let message = format!(
                        "`{sign}` where `{}` must close the `{opening}` of line {line}",
                        partner(opening)
                    );
                    return Some(Flaw::at(text, token.from, message));
                }
                None => {
                    return Some(Flaw::at(
                        text,
                        token.from,
                        format!("`{sign}` has no opening bracket"),
                    ));
                }
            },
            _ => {}
        }
    }
    let (opening, from) = open.pop()?;
    Some(Flaw::at(
        text,
        from,
        format!("this `{opening}` is never closed by `{}`", partner(opening)),
    ))
}

struct CssReader<'a> {
    text: &'a str,
    tokens: &'a [CssToken],
    at: usize,
    flaws: Vec<Flaw>,
}

impl CssReader<'_> {
    /// Reads all rules and declarations. The brackets are known to be balanced, so it is enough to count the depth.
    fn read_all(&mut self) {
        let mut depth = 0_usize;
        while self.at < self.tokens.len() && self.flaws.len() < MAX_FLAWS {
            match self.tokens[self.at].kind {
                CssTokenKind::Close(_) => {
                    depth = depth.saturating_sub(1);
                    self.at += 1;
                }
                CssTokenKind::Html => self.at += 1,
                CssTokenKind::Semicolon => {
                    if depth == 0 {
                        self.flaw(self.at, "this `;` follows no declaration");
                    }
                    self.at += 1;
                }
                _ => depth += usize::from(self.item(depth)),
            }
        }
    }

    fn flaw(&mut self, at: usize, message: &str) {
        let offset = self
            .tokens
            .get(at)
            .map_or(self.text.trim_end().len(), |token| token.from);
        self.flaws.push(Flaw::at(self.text, offset, message));
    }

    /// Reads a declaration, or the start of a rule up to its `{`. Returns `true` for a rule.
    fn item(&mut self, depth: usize) -> bool {
        let start = self.at;
        let mut inner = 0_usize;
        // The value of a custom property may contain a block.
        let custom =
            self.word(start).starts_with("--") && self.kind(start + 1) == Some(CssTokenKind::Colon);
        while let Some(kind) = self.kind(self.at) {
            match kind {
                CssTokenKind::Open('{') if inner == 0 && !custom => {
                    self.prelude(start, self.at);
                    self.at += 1;
                    return true;
                }
                CssTokenKind::Open(_) => inner += 1,
                CssTokenKind::Close('}') if inner == 0 => break,
                CssTokenKind::Close(_) => inner = inner.saturating_sub(1),
                CssTokenKind::Semicolon if inner == 0 => break,
                _ => {}
            }
            self.at += 1;
        }
        if self.tokens[start].kind == CssTokenKind::At {
            self.at += usize::from(self.kind(self.at) == Some(CssTokenKind::Semicolon));
            return false;
        }
        if depth == 0 {
            self.flaw(start, "expected a `{` after this selector");
        } else {
            self.declaration(start, self.at, custom);
        }
        false
    }

    fn kind(&self, at: usize) -> Option<CssTokenKind> {
        self.tokens.get(at).map(|token| token.kind)
    }

    fn word(&self, at: usize) -> &str {
        self.tokens
            .get(at)
            .filter(|token| token.kind == CssTokenKind::Word)
            .map_or("", |token| &self.text[token.from..token.to])
    }

    /// Checks the selector before a `{`.
    fn prelude(&mut self, from: usize, to: usize) {
        if from == to {
            return self.flaw(from, "a selector is missing before this `{`");
        }
        if self.tokens[from].kind == CssTokenKind::At {
            return;
        }
        for at in from..to {
            let next = self.kind(at + 1);
            match self.tokens[at].kind {
                CssTokenKind::Comma
                    if at == from || at + 1 == to || next == Some(CssTokenKind::Comma) =>
                {
                    return self.flaw(at, "a selector is missing next to this `,`");
                }
                CssTokenKind::Sign('.')
                    if next != Some(CssTokenKind::Word)
                        || self.tokens[at + 1].from != self.tokens[at].to =>
                {
                    return self.flaw(at, "expected the name of a class after `.`");
                }
                CssTokenKind::Sign('#') => return self.flaw(at, "expected a name after `#`"),
                CssTokenKind::Semicolon => return self.flaw(at, "unexpected `;` in a selector"),
                _ => {}
            }
        }
    }

    fn declaration(&mut self, from: usize, to: usize, custom: bool) {
        // Old style sheets put `*` before the name to hide a property from some browsers.
        let name = if matches!(self.kind(from), Some(CssTokenKind::Sign('*'))) {
            from + 1
        } else {
            from
        };
        if self.kind(name) != Some(CssTokenKind::Word) {
            return self.flaw(from, "expected a declaration such as `property: value;`");
        }
        if self.kind(name + 1) != Some(CssTokenKind::Colon) || name + 1 >= to {
            return self.flaw(name, "expected a `:` after the name of this property");
        }
        if custom {
            return;
        }
        if name + 2 >= to {
            return self.flaw(name, "the value of this property is missing");
        }
        if self.word(name + 2).eq_ignore_ascii_case("progid") {
            return;
        }
        let mut inner = 0_usize;
        for at in name + 2..to {
            match self.tokens[at].kind {
                CssTokenKind::Open(_) => inner += 1,
                CssTokenKind::Close(_) => inner = inner.saturating_sub(1),
                CssTokenKind::Colon if inner == 0 => {
                    return self.flaw(at - 1, "a `;` is missing before this");
                }
                CssTokenKind::At | CssTokenKind::Html => {
                    return self.flaw(at, "this is not allowed in a value");
                }
                _ => {}
            }
        }
    }
}
