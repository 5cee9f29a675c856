//! The Messages protocol: content blocks, named events, thinking with signatures, cache marks.
//! Reads events one by one; `encode` shapes the request. It opens nothing and knows no vendor's address.

mod encode;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use windlass_core::budget::Usage;
use windlass_core::provider::{Chunk, EndReason};

use super::Batch;
use super::decode::{Ending, ReadJson, ReadResult};
use super::frame::Frame;
use super::wire::{Count, Text, TokenCount};
use crate::errors;
use crate::framing::Event;

pub(super) use encode::{encode, samples};

/// Reads one answer.
#[derive(Debug, Default)]
pub(super) struct AnthropicDecoder {
    blocks: Vec<Block>,
    usage: Usage,
    /// Of the answers before this one, where a proxy joined several.
    earlier: Usage,
    begun: bool,
    ending: Ending,
    /// Of the last event, if it was a piece of text.
    frame: Frame,
}

#[derive(Debug)]
struct Block {
    /// None for a block of an earlier answer.
    index: Option<u64>,
    kind: BlockKind,
}

#[derive(Debug)]
enum BlockKind {
    Text,
    Thinking {
        signature: String,
    },
    /// `call` counts the calls of the answer. `whole` is an input that came with the start instead of in pieces.
    Call {
        call: u32,
        whole: Option<String>,
    },
    Other,
}

/// More blocks than any answer has.
const MOST_BLOCKS: usize = 4_096;

/// All events in one shape: reading a tagged union would buffer each event first, and this is the hot path.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Wire<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    index: Count,
    delta: Option<WireDelta<'a>>,
    content_block: Option<WireBlock<'a>>,
    message: Option<WireMessage<'a>>,
    usage: Option<WireUsage>,
    error: Option<WireError<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireDelta<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    text: Text<'a>,
    thinking: Text<'a>,
    partial_json: Text<'a>,
    signature: Text<'a>,
    stop_reason: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireBlock<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    id: Text<'a>,
    name: Text<'a>,
    text: Text<'a>,
    thinking: Text<'a>,
    signature: Text<'a>,
    data: Text<'a>,
    input: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireMessage<'a> {
    usage: Option<WireUsage>,
    /// Empty in a stream; some proxies put the whole answer here.
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    stop_reason: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireUsage {
    input_tokens: TokenCount,
    output_tokens: TokenCount,
    cache_read_input_tokens: TokenCount,
    cache_creation_input_tokens: TokenCount,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireError<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    message: Text<'a>,
}

impl ReadJson for AnthropicDecoder {
    type Wire<'a> = Wire<'a>;

    fn shortcut(&mut self, event: &Event<'_>, out: &mut Batch) -> bool {
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

    fn read(&mut self, wire: &Wire<'_>, event: &Event<'_>, out: &mut Batch) -> ReadResult {
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
    fn begin(&mut self, message: Option<&WireMessage<'_>>, out: &mut Batch) {
        if std::mem::replace(&mut self.begun, true) {
            self.ending.note("event", "second message_start", out);
            // Its blocks are numbered anew, and all of the answers are billed.
            self.blocks.iter_mut().for_each(|block| block.index = None);
            self.earlier.add(std::mem::take(&mut self.usage));
        }
        let Some(message) = message else { return };
        if let Some(usage) = &message.usage {
            self.count(usage, out);
        }
        let content = message.content.map_or("[]", RawValue::get);
        match serde_json::from_str::<Vec<WireBlock<'_>>>(content) {
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

    fn delta(&mut self, wire: &Wire<'_>, data: &str, out: &mut Batch) {
        let Some(delta) = &wire.delta else { return };
        let index = wire.index.0.unwrap_or(0);
        // The newest block is nearly always the one that is meant.
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
            ("input_json_delta", Some(BlockKind::Call { call, whole })) => {
                let piece = delta.partial_json.as_str();
                if !piece.is_empty() {
                    *whole = None;
                    out.args(*call, piece);
                }
            }
            (_, Some(BlockKind::Other)) => {}
            (kind, _) => self.ending.note("delta", kind, out),
        }
    }

    fn start(&mut self, wire: &Wire<'_>, out: &mut Batch) {
        let Some(block) = &wire.content_block else {
            return;
        };
        self.start_block(wire.index.0.unwrap_or(0), block, out);
    }

    fn start_block(&mut self, index: u64, block: &WireBlock<'_>, out: &mut Batch) {
        let index = Some(index);
        if self.blocks.iter().any(|known| known.index == index) || self.blocks.len() >= MOST_BLOCKS
        {
            return; // a repeated start changes nothing
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
                let whole = block
                    .input
                    .map(RawValue::get)
                    .filter(|json| !matches!(*json, "{}" | "null" | "\"\""));
                BlockKind::Call {
                    call,
                    whole: whole.map(str::to_owned),
                }
            }
            other => {
                self.ending.note("content block", other, out);
                BlockKind::Other
            }
        };
        self.blocks.push(Block { index, kind });
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
            Some(BlockKind::Call { call, whole }) => {
                if let Some(json) = whole.take() {
                    out.args(*call, &json);
                }
            }
            _ => {}
        }
    }

    /// Later reports replace earlier ones number by number; what is missing or absurd keeps its last value.
    fn count(&mut self, wire: &WireUsage, out: &mut Batch) {
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
        for (ours, TokenCount(theirs)) in all {
            if let Some(count) = theirs {
                *ours = count;
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
