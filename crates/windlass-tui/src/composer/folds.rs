//! Folded pastes: a long paste is one character of the text and is shown as a label.
//!
//! The character is in the last private plane of Unicode, so that the cursor, deletion, undo and the kill ring treat a
//! paste as one unit without further rules. Typed and pasted text loses the characters of that plane.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};

/// The mark of the first paste.
const FIRST_MARK: u32 = 0x10_0000;
/// Marks that exist: the last two code points of the plane are not characters.
const MAX_FOLDS: usize = 0xfffe;
/// Bytes of all folded pastes of one prompt.
const MAX_FOLDED_BYTES: usize = 32 << 20;
/// A paste with more lines than this is folded.
const LINES_BEFORE_FOLD: usize = 10;
/// A paste with more characters than this is folded.
const CHARS_BEFORE_FOLD: usize = 2_000;

/// A text in which some parts are folded: the mark U+100000 plus `n` stands for `pastes[n]`. Drafts and the history are
/// stored in this form.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FoldedText {
    pub text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pastes: Vec<String>,
}

impl FoldedText {
    /// The text with every paste in full.
    #[must_use]
    pub fn expanded(&self) -> String {
        replace_marks(&self.text, |index| {
            self.pastes.get(index).map(String::as_str)
        })
    }

    /// The bytes of the text with every paste in full.
    #[must_use]
    pub fn expanded_size(&self) -> usize {
        let sizes = |index: usize| self.pastes.get(index).map(String::len);
        expanded_size(&self.text, sizes)
    }

    /// The bytes of the text and of all pastes, each once.
    #[must_use]
    pub fn size(&self) -> usize {
        self.pastes.iter().map(String::len).sum::<usize>() + self.text.len()
    }
}

impl From<String> for FoldedText {
    fn from(text: String) -> Self {
        Self {
            text: clean(text),
            pastes: Vec::new(),
        }
    }
}

#[derive(Debug, Clone)]
struct PasteFold {
    content: String,
    label: String,
}

/// The folded pastes of one prompt. Undo can bring a deleted mark back, so pastes stay until the prompt is submitted.
#[derive(Debug, Clone, Default)]
pub(super) struct PasteFolds {
    folds: Vec<PasteFold>,
    bytes: usize,
}

impl PasteFolds {
    /// Adds a paste and returns its mark, or nothing if the limit is reached.
    pub(super) fn add(&mut self, content: String) -> Option<char> {
        if self.folds.len() >= MAX_FOLDS || self.bytes + content.len() > MAX_FOLDED_BYTES {
            return None;
        }
        let number = self.folds.len() + 1;
        let lines = line_count(&content);
        let label = if lines > LINES_BEFORE_FOLD {
            format!("[pasted {lines} lines #{number}]")
        } else {
            format!("[pasted {} characters #{number}]", content.chars().count())
        };
        self.bytes += content.len();
        self.folds.push(PasteFold { content, label });
        mark_char(number - 1)
    }

    pub(super) fn label(&self, mark: char) -> Option<&str> {
        Some(&self.folds.get(mark_index(mark)?)?.label)
    }

    pub(super) fn content(&self, mark: char) -> Option<&str> {
        Some(&self.folds.get(mark_index(mark)?)?.content)
    }

    /// The text with labels in the place of marks.
    pub(super) fn labelled(&self, text: &str) -> String {
        replace_marks(text, |index| {
            self.folds.get(index).map(|fold| fold.label.as_str())
        })
    }

    /// The text with contents in the place of marks.
    pub(super) fn expanded(&self, text: &str) -> String {
        replace_marks(text, |index| {
            self.folds.get(index).map(|fold| fold.content.as_str())
        })
    }

    /// The bytes of the text with contents in the place of marks.
    pub(super) fn expanded_size(&self, text: &str) -> usize {
        expanded_size(text, |index| Some(self.folds.get(index)?.content.len()))
    }

    /// The text with the pastes that it uses, numbered by their first position.
    pub(super) fn export(&self, text: &str) -> FoldedText {
        let mut pastes = Vec::new();
        let mut numbers = HashMap::new();
        let renumbered = text
            .chars()
            .filter_map(|c| {
                let Some(index) = mark_index(c) else {
                    return Some(c);
                };
                let fold = self.folds.get(index)?;
                let number = *numbers.entry(index).or_insert_with(|| {
                    pastes.push(fold.content.clone());
                    pastes.len() - 1
                });
                mark_char(number)
            })
            .collect();
        FoldedText {
            text: renumbered,
            pastes,
        }
    }

    /// Adds the pastes of a stored text and returns its text with the new marks. Unknown marks are dropped.
    pub(super) fn import(&mut self, stored: &FoldedText) -> String {
        let mut marks = HashMap::new();
        stored
            .text
            .chars()
            .filter_map(|c| {
                let Some(index) = mark_index(c) else {
                    return is_allowed(c).then_some(c);
                };
                *marks.entry(index).or_insert_with(|| {
                    let content = stored.pastes.get(index)?;
                    self.add(clean(content.clone()))
                })
            })
            .collect()
    }
}

/// Whether a paste is long enough to be folded.
pub(super) fn is_foldable(text: &str) -> bool {
    line_count(text) > LINES_BEFORE_FOLD || text.chars().nth(CHARS_BEFORE_FOLD).is_some()
}

pub(super) fn is_mark(c: char) -> bool {
    mark_index(c).is_some()
}

/// Removes control characters except line breaks and tabs, and the characters that mark pastes.
pub(super) fn clean(text: String) -> String {
    let is_clean = |byte: &u8| match byte {
        b'\n' | b'\t' => true,
        // Control characters of one byte, leads of those of two bytes, and leads of the last plane.
        0..b' ' | 0x7f | 0xc2 | 0xf4 => false,
        _ => true,
    };
    if text.as_bytes().iter().all(is_clean) {
        return text;
    }
    let breaks: Cow<'_, str> = if text.contains('\r') {
        Cow::Owned(text.replace("\r\n", "\n").replace('\r', "\n"))
    } else {
        Cow::Borrowed(&text)
    };
    breaks.chars().filter(|c| is_allowed(*c)).collect()
}

pub(super) fn is_allowed(c: char) -> bool {
    matches!(c, '\n' | '\t') || !(c.is_control() || is_mark(c))
}

fn line_count(text: &str) -> usize {
    text.trim_end_matches('\n').matches('\n').count() + 1
}

fn mark_index(c: char) -> Option<usize> {
    let index = usize::try_from(u32::from(c).checked_sub(FIRST_MARK)?).ok()?;
    (index < MAX_FOLDS).then_some(index)
}

fn mark_char(index: usize) -> Option<char> {
    char::from_u32(FIRST_MARK + u32::try_from(index).ok()?)
}

fn expanded_size(text: &str, content: impl Fn(usize) -> Option<usize>) -> usize {
    if !has_mark(text) {
        return text.len();
    }
    text.chars()
        .map(|c| match mark_index(c) {
            Some(index) => content(index).unwrap_or(0),
            None => c.len_utf8(),
        })
        .fold(0, usize::saturating_add)
}

/// Whether the text may contain a mark. Marks begin with this byte, and most texts have none.
pub(super) fn has_mark(text: &str) -> bool {
    text.as_bytes().contains(&0xf4)
}

fn replace_marks<'a>(text: &str, content: impl Fn(usize) -> Option<&'a str>) -> String {
    if !has_mark(text) {
        return text.to_owned();
    }
    let mut replaced = String::with_capacity(text.len());
    for c in text.chars() {
        match mark_index(c) {
            Some(index) => replaced.push_str(content(index).unwrap_or_default()),
            None => replaced.push(c),
        }
    }
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_text_has_the_same_content_after_a_restart() {
        let mut folds = PasteFolds::default();
        let first = folds.add("unused".to_owned()).map(String::from);
        let second = folds.add("a\n".repeat(20)).map(String::from);
        assert!(first.is_some());
        let stored = folds.export(&format!("see {} now", second.unwrap_or_default()));
        assert_eq!(stored.pastes.len(), 1);
        let mut restored = PasteFolds::default();
        let text = restored.import(&stored);
        assert_eq!(restored.labelled(&text), "see [pasted 20 lines #1] now");
        assert_eq!(restored.expanded(&text), stored.expanded());
    }

    #[test]
    fn a_paste_that_occurs_twice_is_stored_once() {
        let mut folds = PasteFolds::default();
        let mark = folds.add("long".to_owned()).map(String::from);
        let text = mark.unwrap_or_default().repeat(3);
        let stored = folds.export(&text);
        assert_eq!((stored.pastes.len(), stored.expanded_size()), (1, 12));
        let mut restored = PasteFolds::default();
        let text = restored.import(&stored);
        assert_eq!(restored.expanded_size(&text), 12);
        assert_eq!(restored.expanded(&text), "longlonglong");
        assert_eq!(restored.folds.len(), 1);
    }

    #[test]
    fn control_characters_are_removed() {
        let text = "a\r\nb\rc\u{1b}[31m\u{9b}\u{7f}\u{100000}d\té\u{a0}".to_owned();
        assert_eq!(clean(text), "a\nb\nc[31md\té\u{a0}");
    }

    #[test]
    fn unknown_marks_of_a_stored_text_are_dropped() {
        let stored = FoldedText {
            text: "a\u{100005}b".to_owned(),
            pastes: Vec::new(),
        };
        assert_eq!(PasteFolds::default().import(&stored), "ab");
        assert_eq!(stored.expanded(), "ab");
    }
}
