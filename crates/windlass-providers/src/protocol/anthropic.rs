//! Anthropic's messages protocol: content blocks, named events, thinking with signatures, cache marks.
//! This file decodes the events; `encode` builds the request.

mod encode;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use windlass_core::budget::Usage;
use windlass_core::provider::{Chunk, EndReason};

use super::Batch;
use super::decode::{Ending, ReadJson, ReadResult};
use super::frame::Frame;
use super::wire::{Count, JsonText, TokenCount};
use crate::errors;
use crate::framing::FramedEvent;

pub(super) use encode::{accepts_temperature, encode};

/// Decodes one answer of the messages protocol.
#[derive(Debug, Default)]
pub(super) struct AnthropicDecoder {
    blocks: Vec<AnthropicBlock>,
    usage: Usage,
    /// The usage of earlier answers, if a proxy joined several into one stream.
    earlier: Usage,
    begun: bool,
    ending: Ending,
    /// The frame of the last event, if that was a text delta.
    frame: Frame,
}

#[derive(Debug)]
struct AnthropicBlock {
    /// `None` for a block of an earlier answer.
    index: Option<u64>,
    kind: BlockKind,
}

#[derive(Debug)]
enum BlockKind {
    Text,
    Thinking {
        signature: String,
    },
    /// `call` is the number of the call within the answer. `complete_input` is an input that came with the start of the
    /// block instead of in pieces.
    Call {
        call: u32,
        complete_input: Option<String>,
    },
    Other,
}

/// Limits the memory for a malicious answer.
const MAX_BLOCKS: usize = 4_096;

/// All events in one struct: this is the hot path, and deserializing a tagged enum would buffer each event first.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct AnthropicEvent<'a> {
    #[serde(borrow, rename = "type")]
    kind: JsonText<'a>,
    index: Count,
    delta: Option<AnthropicDelta<'a>>,
    content_block: Option<AnthropicWireBlock<'a>>,
    message: Option<AnthropicMessage<'a>>,
    usage: Option<AnthropicUsage>,
    error: Option<AnthropicError<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AnthropicDelta<'a> {
    #[serde(borrow, rename = "type")]
    kind: JsonText<'a>,
    text: JsonText<'a>,
    thinking: JsonText<'a>,
    partial_json: JsonText<'a>,
    signature: JsonText<'a>,
    stop_reason: JsonText<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AnthropicWireBlock<'a> {
    #[serde(borrow, rename = "type")]
    kind: JsonText<'a>,
    id: JsonText<'a>,
    name: JsonText<'a>,
    text: JsonText<'a>,
    thinking: JsonText<'a>,
    signature: JsonText<'a>,
    data: JsonText<'a>,
    input: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AnthropicMessage<'a> {
    usage: Option<AnthropicUsage>,
    /// Empty in a normal stream; some proxies put the complete answer here.
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    stop_reason: JsonText<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AnthropicUsage {
    input_tokens: TokenCount,
    output_tokens: TokenCount,
    cache_read_input_tokens: TokenCount,
    cache_creation_input_tokens: TokenCount,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AnthropicError<'a> {
    #[serde(borrow, rename = "type")]
    kind: JsonText<'a>,
    message: JsonText<'a>,
}

impl ReadJson for AnthropicDecoder {
    type WireEvent<'a> = AnthropicEvent<'a>;

    fn shortcut(&mut self, event: &FramedEvent<'_>, out: &mut Batch) -> bool {
        if event.name == "ping" {
            return true;
        }
        let text = self.frame.text(&event.data);
        match &text {
            Some(text) => out.text(text),
            None => self.frame.forget(),
        }
        text.is_some()
    }

    fn finish(&mut self, out: &mut Batch) {
        self.ending.end(false, out);
    }

    fn ending(&self) -> &Ending {
        &self.ending
    }

    fn mark(&mut self, mark: &str, out: &mut Batch) -> bool {
        let done = mark == "[DONE]";
        if done {
            self.finish(out);
        }
        done
    }

    fn read(
        &mut self,
        wire: &AnthropicEvent<'_>,
        event: &FramedEvent<'_>,
        out: &mut Batch,
    ) -> ReadResult {
        match wire.kind.as_str() {
            "content_block_delta" => self.delta(wire, &event.data, out),
            "content_block_start" => self.start(wire, out),
            "content_block_stop" => self.stop(wire.index.0.unwrap_or(0), out),
            "message_start" => self.begin(wire.message.as_ref(), out),
            "message_delta" => {
                if let Some(usage) = &wire.usage {
                    self.count(usage, out);
                }
                if let Some(reason) = wire
                    .delta
                    .as_ref()
                    .and_then(|delta| delta.stop_reason.0.as_deref())
                {
                    self.stop_reason(reason, out);
                }
            }
            "message_stop" => {
                self.ending.stop.get_or_insert(EndReason::Done);
                self.finish(out);
            }
            "error" => {
                let error = wire.error.as_ref();
                let (kind, message) = error.map_or(("", ""), |error| {
                    (error.kind.as_str(), error.message.as_str())
                });
                return Err(errors::in_stream(kind, "", message));
            }
            "ping" => {}
            other => self.ending.note("event", other, out),
        }
        Ok(())
    }
}

impl AnthropicDecoder {
    fn begin(&mut self, message: Option<&AnthropicMessage<'_>>, out: &mut Batch) {
        if std::mem::replace(&mut self.begun, true) {
            self.ending.note("event", "second message_start", out);
            // Its block numbers start again, and the vendor bills all of the answers.
            self.blocks.iter_mut().for_each(|block| block.index = None);
            self.earlier.add(std::mem::take(&mut self.usage));
        }
        let Some(message) = message else { return };
        if let Some(usage) = &message.usage {
            self.count(usage, out);
        }
        let content = message.content.map_or("[]", RawValue::get);
        match serde_json::from_str::<Vec<AnthropicWireBlock<'_>>>(content) {
            Ok(blocks) => {
                for (index, block) in (0..).zip(&blocks) {
                    self.start_block(index, block, out);
                    self.stop(index, out);
                }
            }
            Err(_) => self.ending.note("content", "in message_start", out),
        }
        if let Some(reason) = message.stop_reason.0.as_deref() {
            self.stop_reason(reason, out);
        }
    }

    fn delta(&mut self, wire: &AnthropicEvent<'_>, data: &str, out: &mut Batch) {
        let Some(delta) = &wire.delta else { return };
        let index = wire.index.0.unwrap_or(0);
        // Nearly always it is the newest block.
        let block = self
            .blocks
            .iter_mut()
            .rev()
            .find(|block| block.index == Some(index))
            .map(|block| &mut block.kind);
        match (delta.kind.as_str(), block) {
            ("text_delta", Some(BlockKind::Text) | None) => {
                out.text(delta.text.as_str());
                self.frame.learn(data, delta.text.as_str());
            }
            ("thinking_delta", Some(BlockKind::Thinking { .. }) | None) => {
                out.reasoning(delta.thinking.as_str())
            }
            ("signature_delta", Some(BlockKind::Thinking { signature })) => {
                signature.push_str(delta.signature.as_str())
            }
            (
                "input_json_delta",
                Some(BlockKind::Call {
                    call,
                    complete_input,
                }),
            ) => {
                let piece = delta.partial_json.as_str();
                if !piece.is_empty() {
                    *complete_input = None;
                    out.args(*call, piece);
                }
            }
            (_, Some(BlockKind::Other)) => {}
            (kind, _) => self.ending.note("delta", kind, out),
        }
    }

    fn start(&mut self, wire: &AnthropicEvent<'_>, out: &mut Batch) {
        let Some(block) = &wire.content_block else {
            return;
        };
        self.start_block(wire.index.0.unwrap_or(0), block, out);
    }

    fn start_block(&mut self, index: u64, block: &AnthropicWireBlock<'_>, out: &mut Batch) {
        let index = Some(index);
        if self.blocks.iter().any(|known| known.index == index) || self.blocks.len() >= MAX_BLOCKS {
            return; // ignore a repeated start
        }
        let kind = match block.kind.as_str() {
            "text" => {
                out.text(block.text.as_str());
                BlockKind::Text
            }
            "thinking" => {
                out.reasoning(block.thinking.as_str());
                BlockKind::Thinking {
                    signature: block.signature.as_str().to_owned(),
                }
            }
            "redacted_thinking" => {
                out.state(json!({ "redacted": block.data.as_str() }));
                BlockKind::Other
            }
            "tool_use" => {
                let calls = self
                    .blocks
                    .iter()
                    .filter(|known| matches!(known.kind, BlockKind::Call { .. }))
                    .count();
                let call = u32::try_from(calls).unwrap_or(u32::MAX);
                out.call(call, block.id.as_str(), block.name.as_str());
                let complete_input = block
                    .input
                    .map(RawValue::get)
                    .filter(|json| !matches!(*json, "{}" | "null" | "\"\""));
                BlockKind::Call {
                    call,
                    complete_input: complete_input.map(str::to_owned),
                }
            }
            other => {
                self.ending.note("content block", other, out);
                BlockKind::Other
            }
        };
        self.blocks.push(AnthropicBlock { index, kind });
    }

    fn stop(&mut self, index: u64, out: &mut Batch) {
        match self
            .blocks
            .iter_mut()
            .find(|block| block.index == Some(index))
            .map(|block| &mut block.kind)
        {
            Some(BlockKind::Thinking { signature }) if !signature.is_empty() => {
                let signature = std::mem::take(signature);
                out.state(json!({ "signature": signature }));
            }
            Some(BlockKind::Call {
                call,
                complete_input,
            }) => {
                if let Some(json) = complete_input.take() {
                    out.args(*call, &json);
                }
            }
            _ => {}
        }
    }

    /// Updates each count that a report contains; missing and absurd numbers keep the last value.
    fn count(&mut self, wire: &AnthropicUsage, out: &mut Batch) {
        let all = [
            (&mut self.usage.input, wire.input_tokens),
            (&mut self.usage.output, wire.output_tokens),
            (&mut self.usage.cache_read, wire.cache_read_input_tokens),
            (
                &mut self.usage.cache_write,
                wire.cache_creation_input_tokens,
            ),
        ];
        let mut any = false;
        for (total, TokenCount(reported)) in all {
            if let Some(count) = reported {
                *total = count;
                any = true;
            }
        }
        if any {
            let mut usage = self.earlier;
            usage.add(self.usage);
            out.push(Chunk::Usage(usage));
        }
    }

    fn stop_reason(&mut self, reason: &str, out: &mut Batch) {
        let end = match reason {
            "end_turn" | "stop_sequence" | "pause_turn" => EndReason::Done,
            "tool_use" => EndReason::ToolCalls,
            "max_tokens" | "model_context_window_exceeded" => EndReason::Length,
            "refusal" => EndReason::Refused,
            other => {
                self.ending.note("stop reason", other, out);
                EndReason::Done
            }
        };
        self.ending.stop = Some(end);
    }
}
