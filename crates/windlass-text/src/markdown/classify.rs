//! The first look at a line of Markdown: which block it begins. Only certain answers count, because the parser decides
//! the rest.

/// The columns of the blanks at the beginning of a line.
pub(super) fn indent_of(line: &str) -> usize {
    let mut columns = 0;
    for byte in line.bytes() {
        match byte {
            b' ' => columns += 1,
            b'\t' => columns += 4 - columns % 4,
            _ => break,
        }
    }
    columns
}

/// The mark at the beginning of a code block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FenceMark {
    symbol: char,
    length: usize,
    /// The indentation that is removed from each line of code.
    pub(super) indent: usize,
}

impl FenceMark {
    /// The mark and the language name, if a line opens a code block. Its indentation is not limited.
    pub(super) fn opening(line: &str) -> Option<(Self, &str)> {
        let text = line.trim_start_matches([' ', '\t']);
        let symbol = text.chars().next().filter(|c| matches!(c, '`' | '~'))?;
        let info = text.trim_start_matches(symbol);
        let length = text.len() - info.len();
        if length < 3 || (symbol == '`' && info.contains('`')) {
            return None;
        }
        let mark = Self {
            symbol,
            length,
            indent: indent_of(line),
        };
        let language = info.split_whitespace().next().unwrap_or_default();
        Some((mark, language))
    }

    /// Whether a line closes the code block.
    pub(super) fn is_closed_by(&self, line: &str) -> bool {
        let text = line.trim_start_matches([' ', '\t']);
        let rest = text.trim_start_matches(self.symbol);
        text.len() - rest.len() >= self.length && rest.trim().is_empty()
    }

    /// Whether an incomplete line may become the closing mark.
    pub(super) fn may_be_closed_by(&self, line: &str) -> bool {
        let text = line.trim();
        !text.is_empty() && text.chars().all(|c| c == self.symbol)
    }

    /// The line without the indentation of the mark.
    pub(super) fn strip<'a>(&self, line: &'a str) -> &'a str {
        let blanks = line.len() - line.trim_start_matches(' ').len();
        &line[blanks.min(self.indent)..]
    }
}

/// The mark at the beginning of a list item or of a footnote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ItemMark {
    /// The symbol of the list; items with another symbol belong to another list.
    pub(super) symbol: char,
    pub(super) number: Option<u64>,
    /// The column at which the content begins. Lines with less indentation do not belong to the item.
    pub(super) content: usize,
    pub(super) empty: bool,
}

impl ItemMark {
    pub(super) fn parse(line: &str) -> Option<Self> {
        let indent = indent_of(line);
        if indent > 3 {
            return None;
        }
        let text = line.trim_start_matches(' ');
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        if digits > 9 {
            return None;
        }
        let number: Option<u64> = text[..digits].parse().ok();
        let symbol = text[digits..].chars().next()?;
        let fits = if number.is_some() {
            matches!(symbol, '.' | ')')
        } else {
            matches!(symbol, '-' | '*' | '+')
        };
        let mark = indent + digits + 1;
        let rest = &text[digits + symbol.len_utf8()..];
        let empty = rest.trim().is_empty();
        if !fits || !(empty || rest.starts_with([' ', '\t'])) {
            return None;
        }
        let blanks = indent_of(rest);
        let content = match (empty, blanks) {
            (false, 1..=4) => mark + blanks,
            _ => mark + 1,
        };
        Some(Self {
            symbol,
            number,
            content,
            empty,
        })
    }

    /// The mark of a footnote, `[^label]:`.
    pub(super) fn footnote(line: &str) -> Option<Self> {
        let label = line.strip_prefix("[^")?;
        let (label, _) = label.split_once("]:")?;
        (!label.is_empty() && !label.contains(['[', ']', ' '])).then_some(Self {
            symbol: '^',
            number: None,
            content: 4,
            empty: false,
        })
    }

    /// Whether the item may follow a paragraph without a blank line.
    pub(super) fn interrupts_paragraph(&self) -> bool {
        !self.empty && self.number.is_none_or(|number| number == 1)
    }
}

/// Whether a line is a heading with `#`.
pub(super) fn is_heading(line: &str) -> bool {
    let text = line.trim_start_matches(' ');
    let rest = text.trim_start_matches('#');
    let level = text.len() - rest.len();
    indent_of(line) <= 3
        && (1..=6).contains(&level)
        && (rest.is_empty() || rest.starts_with([' ', '\t']))
}

/// Whether a line is a rule outside of a paragraph, such as `---`.
pub(super) fn is_rule(line: &str) -> bool {
    let mut symbols = line.chars().filter(|c| !matches!(c, ' ' | '\t'));
    let Some(first) = symbols.next().filter(|c| matches!(c, '-' | '*' | '_')) else {
        return false;
    };
    let mut count = 1;
    for symbol in symbols {
        if symbol != first {
            return false;
        }
        count += 1;
    }
    count >= 3 && indent_of(line) <= 3
}

pub(super) fn is_quote(line: &str) -> bool {
    indent_of(line) <= 3 && line.trim_start_matches(' ').starts_with('>')
}

/// Whether a line begins a block of HTML, and the text that ends it. `None` as the end means a blank line.
pub(super) fn html_start(line: &str) -> Option<Option<&'static str>> {
    let tag = line.trim_start_matches(' ').strip_prefix('<')?;
    for (start, end) in [("!--", "-->"), ("?", "?>"), ("![CDATA[", "]]>"), ("!", ">")] {
        if tag.starts_with(start) {
            return Some(Some(end));
        }
    }
    let name = tag.split(|c: char| !c.is_ascii_alphanumeric()).next()?;
    for (raw, end) in [
        ("script", "</script>"),
        ("pre", "</pre>"),
        ("style", "</style>"),
        ("textarea", "</textarea>"),
    ] {
        if name.eq_ignore_ascii_case(raw) {
            return Some(Some(end));
        }
    }
    tag.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        .then_some(None)
}

/// Whether a line contains the text that ends a block of HTML.
pub(super) fn ends_html(line: &str, end: &str) -> bool {
    line.to_ascii_lowercase().contains(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_begin_with_a_mark() {
        for (line, expect) in [
            ("- a", Some(('-', None, 2))),
            ("  *   a", Some(('*', None, 6))),
            ("12. a", Some(('.', Some(12), 4))),
            ("1)", Some((')', Some(1), 3))),
            ("-a", None),
            ("1.a", None),
            ("    - a", None),
            ("1234567890. a", None),
            ("-      code", Some(('-', None, 2))),
        ] {
            let mark = ItemMark::parse(line);
            let mark = mark.map(|mark| (mark.symbol, mark.number, mark.content));
            assert_eq!(mark, expect, "{line:?}");
        }
    }

    #[test]
    fn fences_rules_and_headings_are_certain() {
        assert_eq!(
            FenceMark::opening("  ```rust,x y").map(|(mark, language)| (mark.indent, language)),
            Some((2, "rust,x"))
        );
        assert_eq!(FenceMark::opening("``` a`b"), None);
        assert_eq!(FenceMark::opening("``"), None);
        for (line, rule, heading) in [
            ("---", true, false),
            ("- - -", true, false),
            ("**", false, false),
            ("-*-", false, false),
            ("# a", false, true),
            ("#a", false, false),
            ("#######", false, false),
        ] {
            assert_eq!((is_rule(line), is_heading(line)), (rule, heading), "{line}");
        }
    }

    #[test]
    fn blocks_of_html_know_their_end() {
        for (line, expect) in [
            ("<!-- a", Some(Some("-->"))),
            ("<PRE>", Some(Some("</pre>"))),
            ("<details>", Some(None)),
            ("</b>", Some(None)),
            ("< a", None),
            ("a < b", None),
        ] {
            assert_eq!(html_start(line), expect, "{line}");
        }
    }
}
