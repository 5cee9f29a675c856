//! Quotes, dashes and spaces that look alike, written one way, so that a text typed with a plain keyboard is found
//! where a file has the typographic ones. For comparing only: what is folded is never written to a file.

/// Whether `text` has a character that folding would change.
pub(super) fn folded(text: &str) -> bool {
    !text.is_ascii() && text.chars().any(|character| plain(character) != character)
}

/// `text` with each such character as its plain one. The number of characters stays the same.
pub(super) fn fold(text: &str) -> String {
    text.chars().map(plain).collect()
}

fn plain(character: char) -> char {
    match character {
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '\u{2018}'..='\u{201B}' => '\'',
        '\u{201C}'..='\u{201F}' => '"',
        '\u{00A0}' | '\u{2002}'..='\u{200A}' | '\u{202F}' | '\u{205F}' | '\u{3000}' => ' ',
        other => other,
    }
}
