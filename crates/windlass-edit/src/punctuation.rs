//! Folds typographic quotes, dashes and spaces to their ASCII equivalents, so that text typed on a plain keyboard
//! matches a file that uses typographic characters. Folded text is only compared, never written to a file.

/// Whether [`fold`] would change `text`.
pub(super) fn has_lookalikes(text: &str) -> bool {
    !text.is_ascii()
        && text
            .chars()
            .any(|character| lookalike_to_ascii(character) != character)
}

/// Replaces each typographic character with its ASCII equivalent. The number of characters stays the same, the number
/// of bytes may not.
pub(super) fn fold(text: &str) -> String {
    text.chars().map(lookalike_to_ascii).collect()
}

fn lookalike_to_ascii(character: char) -> char {
    match character {
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '\u{2018}'..='\u{201B}' => '\'',
        '\u{201C}'..='\u{201F}' => '"',
        '\u{00A0}' | '\u{2002}'..='\u{200A}' | '\u{202F}' | '\u{205F}' | '\u{3000}' => ' ',
        other => other,
    }
}
