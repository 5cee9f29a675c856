//! Parses words: quotes, escapes and expansions. Commands inside a word are parsed when they are reached. A word whose
//! value is not exactly its text is marked as not `known`.

use windlass_core::shell::Word;

use crate::reader::{LineReader, ListEnd, ReadResult};

/// A word that is being parsed.
#[derive(Default)]
pub(crate) struct WordBuilder {
    text: String,
    unknown: bool,
    splits: bool,
    glob: bool,
    bracket: bool,
    /// The state of a brace expansion: 0 none, 1 open, 2 with a comma or dots, 3 closed, so that the word expands to several.
    brace: u8,
}

impl WordBuilder {
    fn push(&mut self, c: char) {
        self.text.push(c);
    }

    fn done(self) -> Word {
        let one = !self.splits && self.brace < 3;
        Word {
            known: !self.unknown && one,
            glob: self.glob,
            one,
            text: self.text,
        }
    }
}

impl LineReader<'_, '_> {
    /// Parses a word at the current position; it may be empty.
    pub(crate) fn word(&mut self) -> ReadResult<Word> {
        let mut word = WordBuilder::default();
        while let Some(c) = self.peek() {
            match c {
                '<' | '>' if self.rest()[1..].starts_with('(') => {
                    self.at += 2;
                    self.nested()?;
                    word.unknown = true;
                    word.text.push(c);
                    word.text.push_str("()");
                }
                ' ' | '\t' | '\n' | ';' | '&' | '|' | '<' | '>' | '(' | ')' => break,
                _ => self.piece(&mut word)?,
            }
        }
        Ok(word.done())
    }

    fn piece(&mut self, word: &mut WordBuilder) -> ReadResult<()> {
        let Some(c) = self.next() else { return Ok(()) };
        match c {
            '\\' => match self.next() {
                Some('\n') if self.ends_here() => {}
                Some('\n') => self.doubt("a word continues on the next line"),
                Some(c) => word.push(c),
                None => word.push('\\'),
            },
            '\'' => {
                let text = self.until('\'')?;
                word.text.push_str(text);
            }
            '"' => self.double_quoted(word)?,
            '$' => self.dollar(word, false)?,
            '`' => {
                self.backtick()?;
                word.text.push_str("$()");
                word.unknown = true;
                word.splits = true;
            }
            _ => unquoted(word, c),
        }
        Ok(())
    }

    fn ends_here(&self) -> bool {
        self.peek().is_none_or(|c| matches!(c, ' ' | '\t' | '\n'))
    }

    fn double_quoted(&mut self, word: &mut WordBuilder) -> ReadResult<()> {
        loop {
            match self.next().ok_or("its quotes do not close")? {
                '"' => return Ok(()),
                '\\' => match self.next().ok_or("its quotes do not close")? {
                    '\n' => {}
                    c @ ('$' | '`' | '"' | '\\') => word.push(c),
                    c => {
                        word.push('\\');
                        word.push(c);
                    }
                },
                '$' => self.dollar(word, true)?,
                '`' => {
                    self.backtick()?;
                    word.text.push_str("$()");
                    word.unknown = true;
                }
                c => word.push(c),
            }
        }
    }

    /// The text of a here-document whose end mark is not quoted.
    pub(crate) fn body(&mut self, end: usize) -> ReadResult<Word> {
        let mut word = WordBuilder::default();
        let outer = std::mem::replace(&mut self.end, end);
        while let Some(c) = self.next() {
            match c {
                '\\' => match self.next() {
                    Some('\n') => {
                        self.doubt("a line of a here-document continues on the next line")
                    }
                    Some(c) => word.push(c),
                    None => {}
                },
                '$' => self.dollar(&mut word, true)?,
                '`' => {
                    self.backtick()?;
                    word.unknown = true;
                }
                c => word.push(c),
            }
        }
        self.end = outer;
        Ok(word.done())
    }

    /// Parses the expansion after a `$`.
    fn dollar(&mut self, word: &mut WordBuilder, quoted: bool) -> ReadResult<()> {
        let begin = self.at - 1;
        self.deeper()?;
        match self.peek() {
            Some('(') if self.rest().starts_with("((") => {
                self.at += 2;
                self.arithmetic()?;
                word.unknown = true;
            }
            Some('(') => {
                self.at += 1;
                self.nested()?;
                word.unknown = true;
                word.splits |= !quoted;
            }
            Some('{') => {
                self.at += 1;
                self.parameter(word, quoted)?;
            }
            Some('[') => return Err("it uses an old form of arithmetic"),
            Some('\'') if !quoted => {
                self.at += 1;
                let text = self.ansi_quoted()?;
                word.text.push_str(&text);
                word.unknown = true;
                self.shallower();
                return Ok(());
            }
            Some('"') if !quoted => word.unknown = true,
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                let name = self
                    .rest()
                    .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
                self.at += name.unwrap_or(self.rest().len());
                word.unknown = true;
                word.splits |= !quoted;
            }
            Some(c @ ('@' | '*' | '#' | '?' | '-' | '$' | '!' | '0'..='9')) => {
                self.at += 1;
                word.unknown = true;
                word.splits |= !quoted || matches!(c, '@' | '*');
            }
            _ => {}
        }
        self.shallower();
        word.text.push_str(&self.src[begin..self.at]);
        Ok(())
    }

    /// Parses the rest of `${`. An expansion that can do more than produce text marks the command as `odd`.
    fn parameter(&mut self, word: &mut WordBuilder, quoted: bool) -> ReadResult<()> {
        word.unknown = true;
        word.splits |= !quoted;
        let name_end = |rest: &str| {
            rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
                .unwrap_or(rest.len())
        };
        if self.rest().starts_with('#') && !self.rest().starts_with("#}") {
            self.at += 1;
        }
        let name = name_end(self.rest());
        self.at += name;
        if name == 0 {
            match self.next().ok_or("a brace does not close")? {
                '@' | '*' => word.splits = true,
                '#' | '?' | '-' | '$' => {}
                _ => self.odd = true,
            }
        }
        let rest = self.rest();
        let plain = [":-", ":+", ":?", "-", "+", "?", "#", "%", "/", "^", ","];
        if !rest.starts_with('}') && !plain.iter().any(|operator| rest.starts_with(operator)) {
            self.odd = true;
        }
        loop {
            match self.next().ok_or("a brace does not close")? {
                '}' => return Ok(()),
                '\\' => {
                    self.next();
                }
                '\'' if quoted => self.doubt("quotes inside a brace inside quotes"),
                '\'' => {
                    self.until('\'')?;
                }
                '"' => self.double_quoted(&mut WordBuilder::default())?,
                '$' => self.dollar(&mut WordBuilder::default(), quoted)?,
                '`' => self.backtick()?,
                '<' | '>' if self.rest().starts_with('(') => {
                    return Err("a process substitution inside a brace is not supported");
                }
                _ => {}
            }
        }
    }

    /// Parses arithmetic up to its two closing parentheses. Names and subscripts in it can run commands, so they mark the
    /// command as `odd`.
    pub(crate) fn arithmetic(&mut self) -> ReadResult<()> {
        let mut open = 0_usize;
        loop {
            match self.next().ok_or("arithmetic does not close")? {
                '(' => open += 1,
                ')' if open > 0 => open -= 1,
                ')' if self.rest().starts_with(')') => {
                    self.at += 1;
                    return Ok(());
                }
                ')' => return Err("it is unclear whether a part is arithmetic or a command"),
                '\'' | '"' | '\\' => return Err("quotes in arithmetic"),
                '$' => {
                    self.odd = true;
                    self.dollar(&mut WordBuilder::default(), true)?;
                }
                '`' => self.backtick()?,
                c if c.is_ascii_alphabetic() || matches!(c, '_' | '[' | '=') => self.odd = true,
                _ => {}
            }
        }
    }

    /// The text of `$'…'` with its escape sequences resolved.
    fn ansi_quoted(&mut self) -> ReadResult<String> {
        let mut text = String::new();
        loop {
            match self.next().ok_or("its quotes do not close")? {
                '\'' => return Ok(text),
                '\\' => {
                    let c = self.next().ok_or("its quotes do not close")?;
                    match c {
                        'n' => text.push('\n'),
                        't' => text.push('\t'),
                        'x' => text.extend(self.number(16, 2)),
                        'u' => text.extend(self.number(16, 4)),
                        'U' => text.extend(self.number(16, 8)),
                        '0'..='7' => {
                            self.at -= 1;
                            text.extend(self.number(8, 3));
                        }
                        c => text.push(c),
                    }
                }
                c => text.push(c),
            }
        }
    }

    fn number(&mut self, radix: u32, most: usize) -> Option<char> {
        let digits: String = self
            .rest()
            .chars()
            .take(most)
            .take_while(|c| c.is_digit(radix))
            .collect();
        self.at += digits.len();
        u32::from_str_radix(&digits, radix)
            .ok()
            .and_then(char::from_u32)
    }

    /// Parses the command after a backtick, up to the next backtick.
    fn backtick(&mut self) -> ReadResult<()> {
        let begin = self.at;
        loop {
            match self.next().ok_or("a backtick does not close")? {
                '`' => break,
                '\\' => {
                    self.next();
                }
                _ => {}
            }
        }
        let inner = &self.src[begin..self.at - 1];
        if inner.contains('\\') {
            self.doubt("escapes inside backticks");
            let text = ["\\\\", "\\`", "\\$"]
                .iter()
                .fold(inner.to_owned(), |text, two| text.replace(two, &two[1..]));
            return self.text(&text);
        }
        let (after, end) = (self.at, self.end);
        (self.at, self.end) = (begin, after - 1);
        let done = self.scope(ListEnd::End);
        (self.at, self.end) = (after, end);
        done
    }

    /// Parses a command substitution up to its closing parenthesis.
    fn nested(&mut self) -> ReadResult<()> {
        self.scope(ListEnd::Parenthesis)
    }
}

fn unquoted(word: &mut WordBuilder, c: char) {
    match c {
        '*' | '?' => word.glob = true,
        '[' => word.bracket = true,
        ']' if word.bracket && word.text.len() > 1 => word.glob = true,
        '~' if word.text.is_empty() => word.unknown = true,
        '{' => word.brace = word.brace.max(1),
        ',' if word.brace == 1 => word.brace = 2,
        '.' if word.brace == 1 && word.text.ends_with('.') => word.brace = 2,
        '}' if word.brace == 2 => word.brace = 3,
        _ => {}
    }
    word.push(c);
}
