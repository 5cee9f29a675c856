//! Colours of code. A small lexer with a table for each language finds comments, strings, numbers and words; it does
//! not parse. Each line costs time linear in its length.

mod languages;
mod markup;

use languages::LANGUAGES;

use crate::line::{StyledLine, Tone};
use crate::sanitize::span_text;

/// A language that code can be written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CodeLanguage(usize);

impl CodeLanguage {
    /// The language with a name, such as `rust` or `rs`. The case does not matter.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        let same = |known: &&'static str| known.eq_ignore_ascii_case(name);
        let language = LANGUAGES
            .iter()
            .position(|rules| rules.names.iter().any(same));
        language.map(Self)
    }

    /// The language of a file, by the name or the extension of the file.
    #[must_use]
    pub fn of_path(path: &str) -> Option<Self> {
        let name = path.rsplit(['/', '\\']).next()?;
        let is_named = |known: &&'static str| {
            let rest = name.strip_prefix(*known);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let of_file = LANGUAGES
            .iter()
            .position(|rules| rules.files.iter().any(is_named));
        of_file.map(Self).or_else(|| {
            let (_, extension) = name.rsplit_once('.')?;
            Self::of_name(extension)
        })
    }

    /// The usual name of the language in lower case.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.rules().names.first().copied().unwrap_or_default()
    }

    fn rules(self) -> &'static CodeRules {
        &LANGUAGES[self.0]
    }
}

/// The table of one language.
struct CodeRules {
    /// Names in code blocks, and extensions of files.
    names: &'static [&'static str],
    /// Whole names of files.
    files: &'static [&'static str],
    syntax: LexicalSyntax,
    line_comments: &'static [&'static str],
    block_comment: Option<(&'static str, &'static str)>,
    nested_comments: bool,
    /// Longer marks come first.
    strings: &'static [StringRule],
    /// Sorted words with a space between them.
    keywords: &'static str,
    types: &'static str,
    literals: &'static str,
    ignore_case: bool,
    /// Words that begin with a capital letter are types.
    capital_types: bool,
    /// Words after `$` are variables.
    variables: bool,
    /// Symbols that are part of words, besides letters, digits and `_`.
    word_symbols: &'static str,
}

struct StringRule {
    open: &'static str,
    close: &'static str,
    /// A backslash keeps the next character.
    escapes: bool,
    multiline: bool,
}

/// The traits of a language that tables of words cannot express.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LexicalSyntax {
    Code,
    /// Lifetimes and characters share a quote, and macros end with `!`.
    Rust,
    /// Lines that begin with `#` are directives.
    Preprocessed,
    /// A word or string before the symbol is a key.
    Keys(&'static str),
    /// The text before the symbol at the beginning of a line is a key.
    LineKeys(&'static str),
    Markup,
    Markdown,
    Diff,
}

/// The construct that is open at the end of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum LexerState {
    #[default]
    Normal,
    /// A block comment and its depth.
    Comment(u32),
    /// A string and the index of its rule.
    Text(usize),
    /// The inside of a tag of HTML.
    Tag,
    /// A code block of Markdown.
    Fence,
}

/// Colours the lines of one text in their order.
#[derive(Debug, Clone)]
pub struct Highlighter {
    language: CodeLanguage,
    state: LexerState,
}

impl Highlighter {
    /// Begins a text of a language.
    #[must_use]
    pub fn new(language: CodeLanguage) -> Self {
        Self {
            language,
            state: LexerState::Normal,
        }
    }

    /// Colours the next line, which has no newline.
    pub fn line(&mut self, text: &str) -> StyledLine {
        let mut out = StyledLine::default();
        self.append_to(&mut out, &span_text(text, 0));
        out
    }

    /// Appends the next line, which is sanitized already, to the text of another line.
    pub(crate) fn append_to(&mut self, out: &mut StyledLine, text: &str) {
        let rules = self.language.rules();
        match rules.syntax {
            LexicalSyntax::Markup => self.state = markup::tags(text, self.state, out),
            LexicalSyntax::Markdown => self.state = markup::markdown(text, self.state, out),
            LexicalSyntax::Diff => markup::diff(text, out),
            _ => {
                let mut lexer = LineLexer {
                    rules,
                    text,
                    at: 0,
                    state: self.state,
                    defines: false,
                    out,
                };
                lexer.run();
                self.state = lexer.state;
            }
        }
    }
}

/// Reads one line of code.
struct LineLexer<'a> {
    rules: &'static CodeRules,
    text: &'a str,
    at: usize,
    state: LexerState,
    /// The last word announces the name of a function.
    defines: bool,
    out: &'a mut StyledLine,
}

impl<'a> LineLexer<'a> {
    fn run(&mut self) {
        match self.state {
            LexerState::Comment(depth) => self.block_comment(depth),
            LexerState::Text(rule) => self.string(rule, 0),
            _ => self.line_start(),
        }
        while self.at < self.text.len() {
            self.token();
        }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Writes the next `length` bytes.
    fn take(&mut self, length: usize, tone: Tone) {
        let end = self.at + length;
        self.out.append(&self.text[self.at..end], tone.into(), None);
        self.at = end;
    }

    /// Constructs that only the beginning of a line can have.
    fn line_start(&mut self) {
        let blanks = self.text.len() - self.text.trim_start().len();
        let text = &self.text[blanks..];
        match self.rules.syntax {
            LexicalSyntax::Preprocessed if text.starts_with('#') => {
                let word = text[1..].trim_start_matches(' ');
                let length = word.find(|c: char| !c.is_ascii_alphabetic());
                let length = text.len() - word.len() + length.unwrap_or(word.len());
                self.take(blanks, Tone::Text);
                self.take(length, Tone::Keyword);
            }
            LexicalSyntax::LineKeys(mark) => {
                let marks = text.len() - text.trim_start_matches(['-', ' ']).len();
                let start = blanks + marks;
                let key = &self.text[start..];
                if mark == "=" && text.starts_with('[') {
                    self.take(blanks, Tone::Text);
                    let end = text.find(" #").unwrap_or(text.len());
                    return self.take(end, Tone::Type);
                }
                let end = key.find(mark).filter(|end| {
                    let after = key[end + mark.len()..].chars().next();
                    let ends = mark == "=" || after.is_none_or(|c| c == ' ' || c == '=');
                    ends && !key[..*end].contains(['#', '"', '\'', '{', '$', '(', ','])
                });
                if let Some(end) = end {
                    self.take(start, Tone::Text);
                    self.take(end, Tone::Function);
                }
            }
            _ => {}
        }
    }

    fn token(&mut self) {
        let rest = &self.text[self.at..];
        let Some(first) = rest.chars().next() else {
            return;
        };
        if first == ' ' {
            let blanks = rest.len() - rest.trim_start_matches(' ').len();
            return self.take(blanks, Tone::Text);
        }
        let rules = self.rules;
        if !first.is_alphanumeric() {
            if let Some((open, _)) = rules
                .block_comment
                .filter(|(open, _)| rest.starts_with(open))
            {
                self.take(open.len(), Tone::Comment);
                return self.block_comment(1);
            }
            if self.is_line_comment(rest) {
                return self.take(rest.len(), Tone::Comment);
            }
            if first == '\'' && rules.syntax == LexicalSyntax::Rust {
                return self.rust_quote();
            }
        }
        let opens = |rule: &StringRule| rest.starts_with(rule.open);
        if let Some(rule) = rules.strings.iter().position(opens) {
            return self.string(rule, rules.strings[rule].open.len());
        }
        if first.is_ascii_digit() {
            return self.take(number_length(rest), Tone::Number);
        }
        if (first == '@' || first == '$' && rules.variables) && rest.len() > 1 {
            let name = rest[1..].trim_start_matches(['{', '(']);
            let length = rest.len() - name.len() + self.word_length(name);
            let tone = if first == '$' {
                Tone::Type
            } else {
                Tone::Function
            };
            return self.take(length, tone);
        }
        match self.word_length(rest) {
            0 => {
                self.defines = false;
                self.take(first.len_utf8(), Tone::Text);
            }
            length => self.word(length),
        }
    }

    fn is_line_comment(&self, rest: &str) -> bool {
        let begins = |mark: &&&str| rest.starts_with(**mark);
        let Some(mark) = self.rules.line_comments.iter().find(begins) else {
            return false;
        };
        // In a shell, `#` and `;` begin a comment only at the beginning of a word.
        let word = matches!(*mark, "#" | ";");
        !word || self.at == 0 || self.text[..self.at].ends_with([' ', ']', '}', ')', '"', '\''])
    }

    fn block_comment(&mut self, depth: u32) {
        let Some((open, close)) = self.rules.block_comment else {
            return;
        };
        let mut depth = depth;
        let mut end = 0;
        let rest = self.rest();
        for (at, _) in rest.char_indices() {
            if at < end {
                continue;
            }
            if rest[at..].starts_with(close) {
                depth -= 1;
                end = at + close.len();
                if depth == 0 {
                    self.state = LexerState::Normal;
                    return self.take(end, Tone::Comment);
                }
            } else if self.rules.nested_comments && rest[at..].starts_with(open) {
                depth = depth.saturating_add(1);
                end = at + open.len();
            }
        }
        self.state = LexerState::Comment(depth);
        self.take(self.text.len() - self.at, Tone::Comment);
    }

    /// A string whose next `skip` bytes are its opening mark.
    fn string(&mut self, rule: usize, skip: usize) {
        let StringRule {
            close,
            escapes,
            multiline,
            ..
        } = self.rules.strings[rule];
        let rest = self.rest();
        let mut escaped = false;
        let mut length = None;
        for (at, c) in rest[skip..].char_indices() {
            if escaped {
                escaped = false;
            } else if c == '\\' && escapes {
                escaped = true;
            } else if rest[skip + at..].starts_with(close) {
                length = Some(skip + at + close.len());
                break;
            }
        }
        self.state = match length {
            None if multiline => LexerState::Text(rule),
            _ => LexerState::Normal,
        };
        let length = length.unwrap_or(rest.len());
        let key = matches!(self.rules.syntax, LexicalSyntax::Keys(mark) if rest[length..].trim_start().starts_with(mark));
        self.take(length, if key { Tone::Function } else { Tone::Literal });
    }

    /// A character such as `'a'`, or a lifetime.
    fn rust_quote(&mut self) {
        let rest = self.rest();
        let mut chars = rest.char_indices().skip(1);
        let inner = chars.next().map(|(_, c)| c);
        let next = chars.next();
        if inner == Some('\\') {
            let close = rest.get(3..).and_then(|rest| rest.find('\''));
            let length = close.map_or(rest.len(), |at| at + 4);
            return self.take(length, Tone::Literal);
        }
        if let Some((at, '\'')) = next {
            return self.take(at + 1, Tone::Literal);
        }
        let length = 1 + self.word_length(&rest[1..]);
        self.take(length, Tone::Type);
    }

    fn word_length(&self, text: &str) -> usize {
        let symbols = self.rules.word_symbols;
        let is_word =
            |c: char| c.is_alphanumeric() || c == '_' || (c.is_ascii() && symbols.contains(c));
        let begins = text.starts_with(|c: char| {
            c.is_alphabetic() || c == '_' || (matches!(c, '$' | '@' | '-') && symbols.contains(c))
        });
        if !begins {
            return 0;
        }
        text.find(|c| !is_word(c)).unwrap_or(text.len())
    }

    fn word(&mut self, length: usize) {
        let rules = self.rules;
        let rest = self.rest();
        let (word, after) = rest.split_at(length);
        let lower = if rules.ignore_case {
            word.to_ascii_lowercase()
        } else {
            String::new()
        };
        let known = if rules.ignore_case {
            lower.as_str()
        } else {
            word
        };
        let is_in = |words: &str| contains_word(words, known);
        let key = matches!(rules.syntax, LexicalSyntax::Keys(mark) if after.trim_start().starts_with(mark));
        let is_macro = rules.syntax == LexicalSyntax::Rust
            && after.starts_with('!')
            && after[1..].trim_start().starts_with(['(', '[', '{']);
        let capital = rules.capital_types && word.starts_with(char::is_uppercase);
        let defined = std::mem::take(&mut self.defines);
        let tone = if is_in(rules.keywords) {
            self.defines = matches!(known, "fn" | "def" | "func" | "function" | "fun");
            Tone::Keyword
        } else if is_in(rules.literals) {
            Tone::Literal
        } else if key || defined || is_macro {
            Tone::Function
        } else if is_in(rules.types) {
            Tone::Type
        } else if after.starts_with('(') && !capital {
            Tone::Function
        } else if capital {
            Tone::Type
        } else {
            Tone::Text
        };
        self.take(length + usize::from(is_macro), tone);
    }
}

/// Whether a sorted list of words contains a word.
fn contains_word(words: &str, word: &str) -> bool {
    let (mut start, mut end) = (0, words.len());
    while start < end {
        let middle = (start + end) / 2;
        let from = words[start..middle]
            .rfind(' ')
            .map_or(start, |at| start + at + 1);
        let to = words[from..end].find(' ').map_or(end, |at| from + at);
        match word.cmp(&words[from..to]) {
            std::cmp::Ordering::Equal => return true,
            std::cmp::Ordering::Less => end = from.saturating_sub(1).max(start),
            std::cmp::Ordering::Greater => start = (to + 1).min(end),
        }
    }
    false
}

/// The length of a number with its suffix, such as `0xff_u8` or `1.5e3`.
fn number_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let next_is_digit = bytes.get(at + 1).is_some_and(u8::is_ascii_digit);
        let exponent = at > 0 && matches!(bytes[at - 1], b'e' | b'E') && !text.starts_with("0x");
        match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'_' => {}
            b'.' if next_is_digit => {}
            b'+' | b'-' if exponent && next_is_digit => {}
            _ => break,
        }
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests;
