//! Folds a stream of chunks into one answer. Half a tool call never leaves this file: arguments that do not parse at
//! the end of a cut answer are dropped, and the answer is marked as truncated.
//!
//! ```
//! use windlass_core::provider::{Chunk, EndReason};
//! use windlass_core::reply::ReplyFold;
//!
//! let mut fold = ReplyFold::default();
//! for chunk in [Chunk::Text("he".into()), Chunk::Text("llo".into()), Chunk::End(EndReason::Done)] {
//!     fold.push(chunk);
//! }
//! let reply = fold.finish(|| "c1".into());
//! assert_eq!(reply.message.text(), "hello");
//! ```

use serde_json::Value;

use crate::budget::Usage;
use crate::id::CallId;
use crate::message::{Message, Origin, Part, Role, ToolCall};
use crate::provider::{Chunk, EndReason};
use crate::settlement::OutputCount;

/// Maximum calls in one answer. More are dropped, and the answer is marked as truncated.
pub const MAX_CALLS: usize = 128;

/// A complete answer of the model.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// The message, with complete calls only.
    pub message: Message,
    /// The reason why the model stopped.
    pub end: EndReason,
    /// Token counts that the vendor reported.
    pub usage: Option<Usage>,
    /// True if the answer was cut by the output limit or inside a call.
    pub truncated: bool,
}

/// Collects the chunks of an answer.
#[derive(Debug, Default)]
pub struct ReplyFold {
    parts: Vec<OpenPart>,
    usage: Option<Usage>,
    end: Option<EndReason>,
    count: OutputCount,
    dropped: bool,
}

#[derive(Debug)]
enum OpenPart {
    Text(String),
    Reasoning {
        text: String,
        opaque: Option<Value>,
    },
    Call {
        index: u32,
        id: String,
        name: String,
        json: String,
    },
}

impl ReplyFold {
    /// Adds one chunk of the stream.
    pub fn push(&mut self, chunk: Chunk) {
        match chunk {
            Chunk::Text(text) => {
                self.count.push(&text);
                match self.parts.last_mut() {
                    Some(OpenPart::Text(open)) => open.push_str(&text),
                    _ => self.parts.push(OpenPart::Text(text)),
                }
            }
            Chunk::Reasoning(more) => {
                self.count.push(&more);
                match self.parts.last_mut() {
                    Some(OpenPart::Reasoning { text, opaque: None }) => text.push_str(&more),
                    _ => self.parts.push(OpenPart::Reasoning {
                        text: more,
                        opaque: None,
                    }),
                }
            }
            Chunk::ReasoningState(state) => match self.parts.last_mut() {
                Some(OpenPart::Reasoning {
                    opaque: open @ None,
                    ..
                }) => *open = Some(state),
                _ => self.parts.push(OpenPart::Reasoning {
                    text: String::new(),
                    opaque: Some(state),
                }),
            },
            Chunk::CallStart { index, id, name } => self.start_call(index, id, name),
            Chunk::CallArgs { index, json } => {
                self.count.push(&json);
                if let Some(open) = self.call_mut(index) {
                    open.push_str(&json);
                }
            }
            Chunk::Usage(usage) => self.usage = Some(usage),
            Chunk::Unknown(_) => {}
            // The first reason is final: a duplicate stop is ignored.
            Chunk::End(reason) => {
                self.end.get_or_insert(reason);
            }
        }
    }

    /// Bytes of text, reasoning and arguments received so far.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.count.bytes()
    }

    /// Our own estimate of the output tokens received so far.
    #[must_use]
    pub fn count(&self) -> OutputCount {
        self.count
    }

    /// The token counts that the vendor reported so far.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        self.usage
    }

    /// Completes the answer. `fresh_id` creates ids for calls whose vendor gave none, or gave the same id twice.
    pub fn finish(self, mut fresh_id: impl FnMut() -> CallId) -> Reply {
        let end = self.end.unwrap_or(EndReason::Done);
        let mut truncated = end == EndReason::Length || self.dropped;
        let mut taken: Vec<CallId> = Vec::new();
        let mut parts = Vec::with_capacity(self.parts.len());
        let last = self.parts.len().saturating_sub(1);
        for (at, open) in self.parts.into_iter().enumerate() {
            match open {
                OpenPart::Text(text) if text.is_empty() => {}
                OpenPart::Text(text) => parts.push(Part::Text { text }),
                OpenPart::Reasoning { text, opaque } => {
                    parts.push(Part::Reasoning { text, opaque })
                }
                // No tool has an empty name, and vendors reject a history that contains one.
                OpenPart::Call { name, .. } if name.trim().is_empty() => truncated = true,
                OpenPart::Call { id, name, json, .. } => {
                    let (args, malformed) = match parse_args(&json) {
                        Ok(args) => (args, None),
                        // The call was cut off, by the output limit or by the end of the stream, even if the stop
                        // reason claims otherwise.
                        Err(err) if err.is_eof() || (end == EndReason::Length && at == last) => {
                            truncated = true;
                            continue;
                        }
                        Err(_) => (Value::Object(serde_json::Map::new()), Some(json)),
                    };
                    let mut id = CallId(id);
                    if id.0.is_empty() || taken.contains(&id) {
                        id = fresh_id();
                    }
                    taken.push(id.clone());
                    parts.push(Part::Call(ToolCall {
                        id,
                        name,
                        args,
                        malformed,
                    }));
                }
            }
        }
        let message = Message {
            role: Role::Assistant,
            origin: Origin::Model,
            parts,
        };
        Reply {
            message,
            end,
            usage: self.usage,
            truncated,
        }
    }

    fn start_call(&mut self, index: u32, id: String, name: String) {
        let calls = self
            .parts
            .iter()
            .filter(|part| matches!(part, OpenPart::Call { .. }))
            .count();
        let known = self
            .parts
            .iter()
            .any(|part| matches!(part, OpenPart::Call { index: i, .. } if *i == index));
        if known {
            return; // A duplicate start: the call with this index exists already.
        }
        if calls >= MAX_CALLS {
            self.dropped = true;
            return;
        }
        self.parts.push(OpenPart::Call {
            index,
            id,
            name,
            json: String::new(),
        });
    }

    fn call_mut(&mut self, index: u32) -> Option<&mut String> {
        self.parts.iter_mut().rev().find_map(|part| match part {
            OpenPart::Call { index: i, json, .. } if *i == index => Some(json),
            _ => None,
        })
    }
}

/// Missing arguments mean an empty object: several vendors send nothing, or `null`, for a tool without parameters.
fn parse_args(json: &str) -> Result<Value, serde_json::Error> {
    if matches!(json.trim(), "" | "null") {
        return Ok(Value::Object(serde_json::Map::new()));
    }
    serde_json::from_str(json)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fold(chunks: Vec<Chunk>) -> Reply {
        let mut fold = ReplyFold::default();
        for chunk in chunks {
            fold.push(chunk);
        }
        let mut n = 0;
        fold.finish(|| {
            n += 1;
            CallId(format!("fresh-{n}"))
        })
    }

    fn start(index: u32, id: &str) -> Chunk {
        Chunk::CallStart {
            index,
            id: id.into(),
            name: "t".into(),
        }
    }

    fn args(index: u32, json: &str) -> Chunk {
        Chunk::CallArgs {
            index,
            json: json.into(),
        }
    }

    #[test]
    fn half_a_call_is_never_kept_even_when_the_stop_reason_says_tool_calls() {
        let reply = fold(vec![
            start(0, "a"),
            args(0, "{}"),
            start(1, "b"),
            args(1, "{\"path\": \"src"),
            Chunk::End(EndReason::ToolCalls),
        ]);
        assert_eq!(
            reply
                .message
                .calls()
                .map(|c| c.id.0.as_str())
                .collect::<Vec<_>>(),
            ["a"]
        );
        assert!(reply.truncated);
    }

    #[test]
    fn a_call_without_a_name_is_not_run() {
        let nameless = Chunk::CallStart {
            index: 0,
            id: "c".into(),
            name: " ".into(),
        };
        let reply = fold(vec![nameless, Chunk::End(EndReason::ToolCalls)]);
        assert!(reply.message.parts.is_empty() && reply.truncated);
    }

    #[test]
    fn no_arguments_are_an_empty_object() {
        let reply = fold(vec![
            start(0, "a"),
            start(1, "b"),
            args(1, "null"),
            Chunk::End(EndReason::ToolCalls),
        ]);
        assert!(
            reply
                .message
                .calls()
                .all(|call| call.args == serde_json::json!({}) && call.malformed.is_none())
        );
    }

    #[test]
    fn arguments_that_are_not_json_are_kept_to_be_answered() {
        let reply = fold(vec![
            start(0, "a"),
            args(0, "{path: 1}"),
            Chunk::End(EndReason::ToolCalls),
        ]);
        let call = reply.message.calls().next().cloned();
        assert_eq!(call.and_then(|c| c.malformed).as_deref(), Some("{path: 1}"));
        assert!(!reply.truncated);
    }

    #[test]
    fn interleaved_and_repeated_calls_are_assembled_by_index_and_get_unique_ids() {
        let reply = fold(vec![
            start(1, "x"),
            start(2, "x"),
            args(2, "{\"n\""),
            args(1, "{\"n\":1"),
            start(1, "x"),
            args(2, ":2}"),
            args(1, "}"),
            start(7, ""),
            Chunk::End(EndReason::ToolCalls),
        ]);
        let calls: Vec<_> = reply
            .message
            .calls()
            .map(|c| (c.id.0.clone(), c.args.to_string()))
            .collect();
        assert_eq!(
            calls,
            [
                ("x".into(), "{\"n\":1}".into()),
                ("fresh-1".into(), "{\"n\":2}".into()),
                ("fresh-2".to_string(), "{}".to_string())
            ]
        );
    }

    #[test]
    fn reasoning_blocks_keep_their_own_state_and_order() {
        let reply = fold(vec![
            Chunk::Reasoning("a".into()),
            Chunk::ReasoningState("s1".into()),
            Chunk::Reasoning("b".into()),
            Chunk::ReasoningState("s2".into()),
            Chunk::Text("t".into()),
        ]);
        let states: Vec<_> = reply
            .message
            .parts
            .iter()
            .filter_map(|p| match p {
                Part::Reasoning { text, opaque } => Some((text.as_str(), opaque.clone())),
                _ => None,
            })
            .collect();
        assert_eq!(states, [("a", Some("s1".into())), ("b", Some("s2".into()))]);
    }

    fn any_chunk() -> impl proptest::strategy::Strategy<Value = Chunk> {
        use proptest::prelude::*;
        prop_oneof![
            "\\PC{0,4}".prop_map(Chunk::Text),
            "\\PC{0,4}".prop_map(Chunk::Reasoning),
            Just(Chunk::ReasoningState(Value::Null)),
            (0_u32..4, "[ab]{0,1}").prop_map(|(index, id)| Chunk::CallStart {
                index,
                id,
                name: "t".into()
            }),
            (0_u32..4, "[{}\":a,]{0,6}").prop_map(|(index, json)| Chunk::CallArgs { index, json }),
            Just(Chunk::Usage(Usage::default())),
            Just(Chunk::End(EndReason::Length)),
            Just(Chunk::End(EndReason::ToolCalls)),
        ]
    }

    proptest::proptest! {
        /// For any chunks in any order, the ids are unique and every call is complete or marked as malformed.
        #[test]
        fn no_stream_gives_half_a_call_or_two_of_one_id(chunks in proptest::collection::vec(any_chunk(), 0..40)) {
            let reply = fold(chunks);
            let mut ids: Vec<_> = reply.message.calls().map(|call| call.id.clone()).collect();
            let count = ids.len();
            ids.sort();
            ids.dedup();
            proptest::prop_assert_eq!(ids.len(), count);
        }
    }
}
