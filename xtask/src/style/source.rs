//! Splits a Rust file into its comments, its string literals and the types that it defines.

/// A file, cut apart.
#[derive(Debug, Default)]
pub(super) struct Source {
    pub(super) comments: Vec<Comment>,
    /// The line of each string literal, and its text as written.
    pub(super) strings: Vec<(usize, String)>,
    /// The line and the name of each struct, enum, trait, union and alias at any depth.
    pub(super) types: Vec<(usize, String)>,
    /// The line and the code of each public item without a doc comment. Fields and variants need none.
    pub(super) undocumented: Vec<(usize, String)>,
    /// A doc comment was read, and only attributes since.
    doc_pending: bool,
    /// Brackets of an attribute that goes on to the next line.
    attribute_depth: usize,
}

/// Consecutive comment lines of one kind, joined. Code in fences is left out.
#[derive(Debug)]
pub(super) struct Comment {
    /// The line where it begins, from 1.
    pub(super) line: usize,
    pub(super) doc: bool,
    pub(super) text: String,
    last: usize,
    fenced: bool,
}

impl Comment {
    /// Its sentences. A sentence ends at a mark that white space and a capital follow, or at the end.
    pub(super) fn sentences(&self) -> Vec<&str> {
        let mut found = Vec::new();
        let mut from = 0;
        for (at, mark) in self.text.match_indices(['.', '!', '?', ':']) {
            let end = at + mark.len();
            let rest = &self.text[end..];
            let next = rest.trim_start();
            let ends = rest.len() > next.len()
                && next.starts_with(|c: char| c.is_uppercase() || c == '`' || c == '[');
            if ends {
                found.push(self.text[from..end].trim());
                from = end;
            }
        }
        found.push(self.text[from..].trim());
        found.retain(|sentence| sentence.contains(char::is_alphabetic));
        found
    }
}

impl Source {
    pub(super) fn parse(text: &str) -> Self {
        let mut source = Self::default();
        let mut code = String::new();
        let mut rest = text;
        let mut line = 1;
        while let Some(first) = rest.chars().next() {
            let length = match first {
                '/' if rest.starts_with("//") => {
                    let length = rest.find('\n').unwrap_or(rest.len());
                    source.comment(line, &rest[..length]);
                    length
                }
                '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |at| at + 2),
                '"' => {
                    let length = string_length(rest);
                    let inner = rest[..length].trim_matches('"').to_owned();
                    source.strings.push((line, inner));
                    length
                }
                'r' | 'b' | 'c' if raw_length(rest).is_some() && ends_word(&code) => {
                    let length = raw_length(rest).unwrap_or(1);
                    source.strings.push((line, rest[..length].to_owned()));
                    length
                }
                '\'' => char_length(rest),
                _ => {
                    code.push(first);
                    first.len_utf8()
                }
            };
            if first == '\n' {
                source.definition(line, &code);
                code.clear();
            }
            line += rest[..length].matches('\n').count();
            rest = &rest[length..];
        }
        source.definition(line, &code);
        source
    }

    fn comment(&mut self, line: usize, text: &str) {
        let doc = (text.starts_with("///") && !text.starts_with("////")) || text.starts_with("//!");
        self.doc_pending |= doc;
        let words = text.trim_start_matches(['/', '!']).trim();
        let joined = self
            .comments
            .last_mut()
            .filter(|last| last.last + 1 == line && last.doc == doc);
        let comment = match joined {
            Some(last) => last,
            None => {
                self.comments.push(Comment {
                    line,
                    doc,
                    text: String::new(),
                    last: line,
                    fenced: false,
                });
                self.comments.last_mut().expect("one was pushed")
            }
        };
        comment.last = line;
        if words.starts_with("```") {
            comment.fenced = !comment.fenced;
        } else if !comment.fenced && !words.starts_with('|') {
            if !comment.text.is_empty() {
                comment.text.push(' ');
            }
            comment.text.push_str(words);
        }
    }

    /// Notes the types and the undocumented items that a line of code defines.
    fn definition(&mut self, line: usize, code: &str) {
        let trimmed = code.trim();
        if trimmed.is_empty() {
            return;
        }
        if self.attribute_depth > 0 || trimmed.starts_with("#[") {
            let opened = self.attribute_depth + trimmed.matches('[').count();
            self.attribute_depth = opened.saturating_sub(trimmed.matches(']').count());
            return;
        }
        let documented = std::mem::take(&mut self.doc_pending);
        if !documented && is_public_item(trimmed) {
            self.undocumented.push((line, trimmed.to_owned()));
        }
        let mut words = code.split_whitespace().peekable();
        while words
            .next_if(|word| word.starts_with("pub") || *word == "unsafe" || word.ends_with(')'))
            .is_some()
        {}
        if !matches!(words.next(), Some("struct" | "enum" | "trait" | "union")) {
            return;
        }
        let name: String = words
            .next()
            .unwrap_or_default()
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        if !name.is_empty() {
            self.types.push((line, name));
        }
    }
}

/// Whether a line begins an item that other crates can name. A module that is in a file has its comment there, and the
/// item of a macro has the comment that its caller passes.
fn is_public_item(line: &str) -> bool {
    let Some(rest) = line.strip_prefix("pub ").filter(|rest| !rest.contains('$')) else {
        return false;
    };
    let mut words = rest.split_whitespace();
    let mut word = words.next();
    while matches!(word, Some("async" | "unsafe" | "extern")) {
        word = words.next();
    }
    match word {
        Some("struct" | "enum" | "trait" | "union" | "type" | "fn" | "const" | "static") => true,
        Some("mod") => !line.ends_with(';'),
        _ => false,
    }
}

/// Whether a raw string may begin here: the letter before it is not part of a word.
fn ends_word(code: &str) -> bool {
    !code.ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of a raw string at the beginning of a text.
fn raw_length(text: &str) -> Option<usize> {
    let after = text.trim_start_matches(['b', 'c']).strip_prefix('r')?;
    let marks = after.len() - after.trim_start_matches('#').len();
    let inner = after[marks..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(marks));
    let head = text.len() - inner.len();
    Some(
        inner
            .find(&end)
            .map_or(text.len(), |at| head + at + end.len()),
    )
}

/// The length of a character literal, or of the quote of a lifetime alone.
fn char_length(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some((at, _))) => {
            let after = at + text[at..].chars().next().map_or(1, char::len_utf8);
            text[after..].find('\'').map_or(1, |end| after + end + 1)
        }
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, comments: &[&str], strings: &[&str], types: &[&str]) {
        let source = Source::parse(text);
        let found: Vec<&str> = source
            .comments
            .iter()
            .map(|one| one.text.as_str())
            .collect();
        assert_eq!(found, comments, "{text}");
        let found: Vec<&str> = source.strings.iter().map(|(_, one)| one.as_str()).collect();
        assert_eq!(found, strings, "{text}");
        let found: Vec<&str> = source.types.iter().map(|(_, one)| one.as_str()).collect();
        assert_eq!(found, types, "{text}");
    }

    #[test]
    fn comments_strings_and_types_are_told_apart() {
        check(
            "/// A b.\n/// C.\npub(crate) struct X<'a>(&'a str);",
            &["A b. C."],
            &[],
            &["X"],
        );
        check("let a = \"// no\"; // yes", &["yes"], &["// no"], &[]);
        check(
            "let a = r#\"a \" // b\"#; 'x' '\\'' '\"' // c",
            &["c"],
            &["r#\"a \" // b\"#"],
            &[],
        );
        check(
            "//! ```\n//! // code\n//! ```\n//! Words.",
            &["Words."],
            &[],
            &[],
        );
        check("// a\n\n// b", &["a", "b"], &[], &[]);
        check("enum A {}\nfn f() { struct B; }", &[], &[], &["A"]);
    }

    #[track_caller]
    fn check_undocumented(text: &str, lines: &[usize]) {
        let found: Vec<usize> = Source::parse(text)
            .undocumented
            .iter()
            .map(|(line, _)| *line)
            .collect();
        assert_eq!(found, lines, "{text}");
    }

    #[test]
    fn public_items_need_a_doc_comment() {
        check_undocumented("pub struct A {\n    pub b: u8,\n}", &[1]);
        check_undocumented("/// A thing.\n#[derive(\n    Debug\n)]\npub struct A;", &[]);
        check_undocumented("/// A thing.\nstruct A;\npub async fn f() {}", &[3]);
        check_undocumented("// Not a doc comment.\npub const A: u8 = 1;", &[2]);
        check_undocumented("pub(crate) fn f() {}\npub use a::b;\npub mod c;", &[]);
        check_undocumented("pub enum A {\n    B,\n}\npub mod c {", &[1, 4]);
    }

    #[track_caller]
    fn check_sentences(text: &str, expect: &[&str]) {
        let source = Source::parse(text);
        assert_eq!(source.comments[0].sentences(), expect);
    }

    #[test]
    fn a_sentence_ends_before_a_capital() {
        check_sentences("// One. Two: three. Four", &["One.", "Two: three.", "Four"]);
        check_sentences("// e.g. this, 1.5 of it", &["e.g. this, 1.5 of it"]);
        check_sentences("// What is it? It is.", &["What is it?", "It is."]);
    }
}
