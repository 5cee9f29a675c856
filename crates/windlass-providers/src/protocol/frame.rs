//! An optimization for long answers: the deltas of one stream differ only in their text. The bytes around the text of
//! the last delta are kept, and an event with the same bytes around its text is decoded without parsing.
//! It never guesses: if the bytes around one JSON string are equal, the rest of the document is equal.

use std::borrow::Cow;

use super::wire::JsonText;

/// The maximum size of a kept frame, in bytes.
const MAX_FRAME: usize = 2_048;

/// The bytes around the text of a delta: up to and including its opening quote, and from its closing quote on.
#[derive(Debug, Default)]
pub(super) struct Frame {
    before: String,
    after: String,
}

impl Frame {
    /// Keeps the bytes around `text`, which must be a slice of `data`. A text that was copied during parsing is not
    /// inside the document, so the frame stays empty.
    pub(super) fn learn(&mut self, data: &str, text: &str) {
        self.forget();
        let Some(at) = (text.as_ptr() as usize).checked_sub(data.as_ptr() as usize) else {
            return;
        };
        let (before, after) = (data.get(..at), data.get(at + text.len()..));
        let (Some(before), Some(after)) = (before, after) else {
            return;
        };
        if before.ends_with('"')
            && after.starts_with('"')
            && before.len() + after.len() <= MAX_FRAME
        {
            self.before.push_str(before);
            self.after.push_str(after);
        }
    }

    /// Clears the frame, so that the next event is parsed.
    pub(super) fn forget(&mut self) {
        self.before.clear();
        self.after.clear();
    }

    /// Returns the text of an event with the same frame, or `None` if the event must be parsed.
    pub(super) fn text<'a>(&self, data: &'a str) -> Option<Cow<'a, str>> {
        if self.before.is_empty() {
            return None;
        }
        let text = data
            .strip_prefix(self.before.as_str())?
            .strip_suffix(self.after.as_str())?;
        // Without quotes, escapes and control characters the bytes are the text.
        if !text
            .bytes()
            .any(|byte| matches!(byte, b'"' | b'\\') || byte < 0x20)
        {
            return Some(Cow::Borrowed(text));
        }
        if let Some(text) = unescape(text) {
            return Some(Cow::Owned(text));
        }
        // Including its quotes it must be exactly one JSON string.
        let quoted = data.get(self.before.len() - 1..data.len() - self.after.len() + 1)?;
        serde_json::from_str::<JsonText<'a>>(quoted).ok()?.0
    }
}

/// Decodes a JSON string that has only short escapes; returns `None` if it needs a parser.
fn unescape(mut text: &str) -> Option<String> {
    let mut plain = String::with_capacity(text.len());
    while let Some(at) = text.find(|c: char| matches!(c, '"' | '\\') || c < ' ') {
        plain.push_str(&text[..at]);
        let mut rest = text[at..].chars();
        plain.push(match (rest.next()?, rest.next()?) {
            ('\\', c @ ('"' | '\\' | '/')) => c,
            ('\\', 'n') => '\n',
            ('\\', 't') => '\t',
            ('\\', 'r') => '\r',
            _ => return None,
        });
        text = rest.as_str();
    }
    plain.push_str(text);
    Some(plain)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use windlass_core::provider::{Chunk, EndReason};

    use super::super::{Batch, Protocol, Quirks};
    use super::*;
    use crate::framing::FramedEvent;

    const DATA: &str = r#"{"a":{"text":"one"},"b":"two"}"#;

    fn learned(data: &str, text: &str) -> Frame {
        let at = data.find(text).unwrap();
        let mut frame = Frame::default();
        frame.learn(data, &data[at..at + text.len()]);
        frame
    }

    #[track_caller]
    fn check(data: &str, expect: Option<&str>) {
        assert_eq!(learned(DATA, "one").text(data).as_deref(), expect, "{data}");
    }

    #[test]
    fn only_the_text_may_differ() {
        check(DATA, Some("one"));
        check(r#"{"a":{"text":""},"b":"two"}"#, Some(""));
        check(
            r#"{"a":{"text":"t\u00fc\n\"x\""},"b":"two"}"#,
            Some("tü\n\"x\""),
        );
        check(r#"{"a":{"text":"one"},"b":"three"}"#, None);
        check(r#"{"a":{"text":"one","b":"two"}"#, None);
    }

    #[test]
    fn data_that_is_not_one_string_must_be_parsed() {
        check(r#"{"a":{"text":"x"},"b":"y"},"b":"two"}"#, None);
        check(r#"{"a":{"text":"x\"},"b":"two"}"#, None);
        check(r#"{"a":{"text":"\ud800"},"b":"two"}"#, None);
        check("{\"a\":{\"text\":\"a\nb\"},\"b\":\"two\"}", None);
        check(r#"{"a":{"text":"},"b":"two"}"#, None);
    }

    #[test]
    fn the_frame_is_empty_at_the_start_and_after_another_event() {
        let mut frame = Frame::default();
        assert_eq!(frame.text(DATA), None);
        frame = learned(DATA, "one");
        frame.learn(DATA, &String::from("one"));
        assert_eq!(frame.text(DATA), None);
        frame = learned(DATA, "one");
        frame.forget();
        assert_eq!(frame.text(DATA), None);
    }

    /// A delta with this text, in each protocol.
    fn delta(protocol: Protocol, text: &str) -> Value {
        match protocol {
            Protocol::AnthropicMessages => {
                json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": text } })
            }
            Protocol::OpenAiChat => {
                json!({ "id": "c", "choices": [{ "index": 0, "delta": { "content": text }, "finish_reason": null }] })
            }
            other => unreachable!("{other:?} has no frames"),
        }
    }

    fn decoded(protocol: Protocol, events: &[Value]) -> Vec<Chunk> {
        let (mut decoder, mut batch) = (protocol.decoder(&Quirks::NONE), Batch::default());
        for event in events {
            let event = FramedEvent {
                name: "message".into(),
                data: event.to_string().into(),
            };
            decoder.event(&event, &mut batch).unwrap();
        }
        decoder.finish(&mut batch);
        std::iter::from_fn(|| batch.pop()).collect()
    }

    #[test]
    fn events_between_two_deltas_are_decoded() {
        let p = Protocol::AnthropicMessages;
        let start = |index: u32, block: Value| json!({ "type": "content_block_start", "index": index, "content_block": block });
        let args = json!({ "type": "content_block_delta", "index": 1, "delta": { "type": "input_json_delta", "partial_json": "{}" } });
        let events = [
            start(0, json!({ "type": "text", "text": "" })),
            delta(p, "a"),
            delta(p, "b"),
            start(
                1,
                json!({ "type": "tool_use", "id": "t", "name": "n", "input": {} }),
            ),
            args,
            delta(p, "c"),
            json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" } }),
            json!({ "type": "message_stop" }),
            delta(p, "late"),
        ];
        let expect = [
            Chunk::Text("ab".into()),
            Chunk::CallStart {
                index: 0,
                id: "t".into(),
                name: "n".into(),
            },
            Chunk::CallArgs {
                index: 0,
                json: "{}".into(),
            },
            Chunk::Text("c".into()),
            Chunk::End(EndReason::Done),
        ];
        assert_eq!(decoded(p, &events), expect);

        let p = Protocol::OpenAiChat;
        let last = json!({ "id": "c", "choices": [{ "index": 0, "delta": { "content": "c" }, "finish_reason": "length" }] });
        let other = json!({ "id": "c", "choices": [{ "index": 1, "delta": { "content": "x" }, "finish_reason": null }] });
        let events = [delta(p, "a"), delta(p, "b"), other.clone(), other, last];
        assert_eq!(
            decoded(p, &events),
            [Chunk::Text("abc".into()), Chunk::End(EndReason::Length)]
        );
    }

    proptest! {
        #[test]
        fn every_text_arrives_complete_in_both_protocols(texts in prop::collection::vec("[\\PC\"\\\\\n\t]{0,8}", 0..12)) {
            for protocol in [Protocol::AnthropicMessages, Protocol::OpenAiChat] {
                let events: Vec<_> = texts.iter().map(|text| delta(protocol, text)).collect();
                let all: String = decoded(protocol, &events).into_iter().map(|chunk| match chunk {
                    Chunk::Text(text) => text,
                    other => panic!("{other:?}"),
                }).collect();
                prop_assert_eq!(all, texts.concat());
            }
        }

        #[test]
        fn the_shortcut_agrees_with_the_parser(middle in "[\\PC\"\\\\{}:,un0-9d\n]{0,12}") {
            let data = DATA.replace("one", &middle);
            if let Some(text) = learned(DATA, "one").text(&data) {
                let parsed: Value = serde_json::from_str(&data).unwrap();
                let expect = serde_json::json!({ "a": { "text": text }, "b": "two" });
                prop_assert_eq!(parsed, expect);
            }
        }
    }
}
