//! CSS by its own small reader: tokens, brackets, rules and declarations as the specification cuts them. It does not
//! know properties or values, so that nothing new in the language is an error.

use super::place::Flaw;

/// The most flaws: what follows is mostly an echo.
const MAX_FLAWS: usize = 20;

/// Everything that is wrong.
pub(super) fn check(text: &str) -> Vec<Flaw> {
    let tokens = match tokens(text) {
        Ok(tokens) => tokens,
        Err(flaw) => return vec![flaw],
    };
    if let Some(flaw) = unbalanced(text, &tokens) {
        return vec![flaw];
    }
    let mut reader = Reader {
        text,
        tokens: &tokens,
        at: 0,
        flaws: Vec::new(),
    };
    reader.all();
    reader.flaws
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A name, a number with its unit, a hash, `--x`.
    Word,
    At,
    Text,
    Colon,
    Semicolon,
    Comma,
    Open(char),
    Close(char),
    /// Any other sign.
    Sign(char),
    /// `<!--` and `-->`.
    Html,
}

#[derive(Debug, Clone, Copy)]
struct Token {
    kind: Kind,
    from: usize,
    to: usize,
}

fn tokens(text: &str) -> Result<Vec<Token>, Flaw> {
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
                Kind::Text
            }
            b'<' if bytes[at..].starts_with(b"<!--") => {
                at += 4;
                Kind::Html
            }
            b'-' if bytes[at..].starts_with(b"-->") => {
                at += 3;
                Kind::Html
            }
            byte if is_name(byte)
                || (byte == b'#' && bytes.get(at + 1).is_some_and(|next| is_name(*next))) =>
            {
                at = name(bytes, at + 1);
                if text[from..at].eq_ignore_ascii_case("url") && bytes.get(at) == Some(&b'(') {
                    at = url(text, at)?;
                }
                Kind::Word
            }
            b'@' if bytes.get(at + 1).is_some_and(|next| is_name(*next)) => {
                at = name(bytes, at + 1);
                Kind::At
            }
            byte => {
                at += 1;
                match byte {
                    b':' => Kind::Colon,
                    b';' => Kind::Semicolon,
                    b',' => Kind::Comma,
                    b'(' | b'[' | b'{' => Kind::Open(char::from(byte)),
                    b')' | b']' | b'}' => Kind::Close(char::from(byte)),
                    _ => Kind::Sign(char::from(byte)),
                }
            }
        };
        tokens.push(Token { kind, from, to: at });
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
        // What is escaped belongs to the name.
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

/// `url(` without quotes goes on to its bracket; with quotes it is a function like any other.
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

fn unbalanced(text: &str, tokens: &[Token]) -> Option<Flaw> {
    let partner = |open| match open {
        '(' => ')',
        '[' => ']',
        _ => '}',
    };
    let mut open: Vec<(char, usize)> = Vec::new();
    for token in tokens {
        match token.kind {
            Kind::Open(sign) => open.push((sign, token.from)),
            Kind::Close(sign) => match open.pop() {
                Some((opening, _)) if partner(opening) == sign => {}
                Some((opening, from)) => {
                    let (line, _) = super::place::place(text, from);
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
                        format!("`{sign}` closes nothing"),
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

struct Reader<'a> {
    text: &'a str,
    tokens: &'a [Token],
    at: usize,
    flaws: Vec<Flaw>,
}

impl Reader<'_> {
    /// Items one after the other. Brackets are balanced, so a depth is all that must be remembered.
    fn all(&mut self) {
        let mut depth = 0_usize;
        while self.at < self.tokens.len() && self.flaws.len() < MAX_FLAWS {
            match self.tokens[self.at].kind {
                Kind::Close(_) => {
                    depth = depth.saturating_sub(1);
                    self.at += 1;
                }
                Kind::Html => self.at += 1,
                Kind::Semicolon => {
                    if depth == 0 {
                        self.flaw(self.at, "this `;` ends nothing");
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

    /// A rule up to its `{`, which gives `true`, or a declaration.
    fn item(&mut self, depth: usize) -> bool {
        let start = self.at;
        let mut inner = 0_usize;
        // A custom property may hold a block.
        let custom =
            self.word(start).starts_with("--") && self.kind(start + 1) == Some(Kind::Colon);
        while let Some(kind) = self.kind(self.at) {
            match kind {
                Kind::Open('{') if inner == 0 && !custom => {
                    self.prelude(start, self.at);
                    self.at += 1;
                    return true;
                }
                Kind::Open(_) => inner += 1,
                Kind::Close('}') if inner == 0 => break,
                Kind::Close(_) => inner = inner.saturating_sub(1),
                Kind::Semicolon if inner == 0 => break,
                _ => {}
            }
            self.at += 1;
        }
        if self.tokens[start].kind == Kind::At {
            self.at += usize::from(self.kind(self.at) == Some(Kind::Semicolon));
            return false;
        }
        if depth == 0 {
            self.flaw(start, "expected a `{` after this selector");
        } else {
            self.declaration(start, self.at, custom);
        }
        false
    }

    fn kind(&self, at: usize) -> Option<Kind> {
        self.tokens.get(at).map(|token| token.kind)
    }

    fn word(&self, at: usize) -> &str {
        self.tokens
            .get(at)
            .filter(|token| token.kind == Kind::Word)
            .map_or("", |token| &self.text[token.from..token.to])
    }

    /// What stands before a `{`.
    fn prelude(&mut self, from: usize, to: usize) {
        if from == to {
            return self.flaw(from, "a selector is missing before this `{`");
        }
        if self.tokens[from].kind == Kind::At {
            return;
        }
        for at in from..to {
            let next = self.kind(at + 1);
            match self.tokens[at].kind {
                Kind::Comma if at == from || at + 1 == to || next == Some(Kind::Comma) => {
                    return self.flaw(at, "a selector is missing beside this `,`");
                }
                Kind::Sign('.')
                    if next != Some(Kind::Word)
                        || self.tokens[at + 1].from != self.tokens[at].to =>
                {
                    return self.flaw(at, "expected the name of a class after `.`");
                }
                Kind::Sign('#') => return self.flaw(at, "expected a name after `#`"),
                Kind::Semicolon => return self.flaw(at, "unexpected `;` in a selector"),
                _ => {}
            }
        }
    }

    fn declaration(&mut self, from: usize, to: usize, custom: bool) {
        // An old habit: a sign before the name hides it from some browsers.
        let name = if matches!(self.kind(from), Some(Kind::Sign('*'))) {
            from + 1
        } else {
            from
        };
        if self.kind(name) != Some(Kind::Word) {
            return self.flaw(from, "expected a declaration such as `property: value;`");
        }
        if self.kind(name + 1) != Some(Kind::Colon) || name + 1 >= to {
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
                Kind::Open(_) => inner += 1,
                Kind::Close(_) => inner = inner.saturating_sub(1),
                Kind::Colon if inner == 0 => {
                    return self.flaw(at - 1, "a `;` is missing before this");
                }
                Kind::At | Kind::Html => return self.flaw(at, "this cannot stand in a value"),
                _ => {}
            }
        }
    }
}
