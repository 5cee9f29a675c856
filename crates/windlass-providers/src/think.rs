//! Separates `<think>…</think>` at the beginning of a message, for models that write their reasoning into the text.
//! Accepts pieces of any size and passes on every byte exactly once. A tag later in the message is text.

use crate::protocol::Batch;

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ThinkState {
    Start,
    Thinking,
    /// Directly after the closing tag. Line breaks here belong neither to the reasoning nor to the text.
    Between,
    Text,
}

/// Separates the reasoning and the text of one message.
#[derive(Debug)]
pub(crate) struct ThinkSplitter {
    state: ThinkState,
    /// Text that may be the start of a tag, including blanks before it.
    held: String,
}

/// A message with more leading blanks, in bytes, is plain text.
const MAX_LEADING_BLANKS: usize = 64;

impl ThinkSplitter {
    /// Creates a splitter. Without `tags`, the whole message is text.
    pub(crate) fn new(tags: bool) -> Self {
        let state = if tags {
            ThinkState::Start
        } else {
            ThinkState::Text
        };
        Self {
            state,
            held: String::new(),
        }
    }

    /// Reads the next piece of the message.
    pub(crate) fn push(&mut self, piece: &str, out: &mut Batch) {
        if self.state == ThinkState::Text {
            // The common case: the beginning of the message is over.
            return out.text(piece);
        }
        let mut held = std::mem::take(&mut self.held);
        held.push_str(piece);
        self.held = self.advance(&held, out).to_owned();
    }

    /// Ends the message and passes on the held text.
    pub(crate) fn finish(&mut self, out: &mut Batch) {
        let held = std::mem::take(&mut self.held);
        match self.state {
            ThinkState::Thinking => out.reasoning(&held),
            _ => out.text(&held),
        }
        self.state = ThinkState::Text;
    }

    /// Passes on the text that is decided, and returns the rest, which depends on the next piece.
    fn advance<'a>(&mut self, mut text: &'a str, out: &mut Batch) -> &'a str {
        loop {
            match self.state {
                ThinkState::Start => {
                    let tag = text.trim_start();
                    let blanks = text.len() - tag.len();
                    if let Some(rest) = tag.strip_prefix(OPEN) {
                        self.state = ThinkState::Thinking;
                        text = rest;
                    } else if OPEN.starts_with(tag) && blanks <= MAX_LEADING_BLANKS {
                        return text;
                    } else {
                        self.state = ThinkState::Text;
                    }
                }
                ThinkState::Thinking => {
                    if let Some(end) = text.find(CLOSE) {
                        out.reasoning(&text[..end]);
                        text = &text[end + CLOSE.len()..];
                        self.state = ThinkState::Between;
                    } else {
                        let safe = text.len() - partial_tag_len(text, CLOSE);
                        out.reasoning(&text[..safe]);
                        return &text[safe..];
                    }
                }
                ThinkState::Between => {
                    text = text.trim_start_matches(['\n', '\r']);
                    if text.is_empty() {
                        return text;
                    }
                    self.state = ThinkState::Text;
                }
                ThinkState::Text => {
                    out.text(text);
                    return "";
                }
            }
        }
    }
}

/// Returns the length of the longest suffix of `text` that is a proper prefix of `tag`.
fn partial_tag_len(text: &str, tag: &str) -> usize {
    (1..tag.len())
        .rev()
        .find(|&len| text.ends_with(&tag[..len]))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use windlass_core::provider::Chunk;

    fn split<'a>(pieces: impl IntoIterator<Item = &'a str>) -> (String, String) {
        let (mut splitter, mut out) = (ThinkSplitter::new(true), Batch::default());
        for piece in pieces {
            splitter.push(piece, &mut out);
        }
        splitter.finish(&mut out);
        let (mut reasoning, mut text) = (String::new(), String::new());
        while let Some(chunk) = out.pop() {
            match chunk {
                Chunk::Reasoning(piece) => reasoning.push_str(&piece),
                Chunk::Text(piece) => text.push_str(&piece),
                other => panic!("{other:?}"),
            }
        }
        (reasoning, text)
    }

    #[track_caller]
    fn check(message: &str, reasoning: &str, text: &str) {
        let expect = (reasoning.to_owned(), text.to_owned());
        assert_eq!(split([message]), expect);
        for (at, _) in message.char_indices() {
            let (head, tail) = message.split_at(at);
            assert_eq!(split([head, tail]), expect, "split at {at}");
        }
        assert_eq!(
            split(message.split_inclusive(|_| true)),
            expect,
            "one character at a time"
        );
    }

    #[test]
    fn a_thought_at_the_beginning_is_reasoning() {
        check("<think>why</think>\n\nbecause", "why", "because");
        check("\n <think>a < b</ think></think>c", "a < b</ think>", "c");
    }

    #[test]
    fn a_tag_later_in_the_message_is_text() {
        check("see <think>x</think>", "", "see <think>x</think>");
        check("<think>a</think><think>b</think>", "a", "<think>b</think>");
    }

    #[test]
    fn unfinished_tags_lose_nothing() {
        check("<thin", "", "<thin");
        check("<think>never closed</thi", "never closed</thi", "");
        check("  plain", "", "  plain");
        check("", "", "");
    }

    proptest! {
        #[test]
        fn no_byte_of_text_without_tags_is_lost(message in "[<>/think \n\u{e9}]{0,40}", at in any::<prop::sample::Index>()) {
            let boundaries: Vec<usize> = message.char_indices().map(|(at, _)| at).chain([message.len()]).collect();
            let (head, tail) = message.split_at(boundaries[at.index(boundaries.len())]);
            prop_assert_eq!(split([head, tail]), split([message.as_str()]));
            if !message.trim_start().starts_with(OPEN) {
                prop_assert_eq!(split([message.as_str()]).1, message);
            }
        }
    }
}
