//! Bedrock's Converse protocol: content blocks of any of its models, in binary messages with an event type.
//! This file decodes the events; `encode` builds the request.

mod encode;

use serde::Deserialize;
use serde_json::json;
use windlass_core::budget::Usage;
use windlass_core::provider::{Chunk, EndReason};

use super::Batch;
use super::decode::{Ending, ReadJson, ReadResult};
use super::wire::{Count, JsonText, TokenCount};
use crate::framing::FramedEvent;

pub(super) use encode::encode;

/// Decodes one answer of the Converse protocol.
#[derive(Debug, Default)]
pub(super) struct ConverseDecoder {
    blocks: Vec<ConverseBlock>,
    calls: u32,
    ending: Ending,
}

#[derive(Debug)]
struct ConverseBlock {
    index: u64,
    /// The number of the call, if the block is a call.
    call: Option<u32>,
    signature: String,
}

/// Limits the memory for a malicious answer.
const MAX_BLOCKS: usize = 4_096;

/// All events in one struct; the event type decides which fields are used.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ConverseEvent<'a> {
    content_block_index: Count,
    #[serde(borrow)]
    start: Option<ConverseStart<'a>>,
    delta: Option<ConverseDelta<'a>>,
    stop_reason: JsonText<'a>,
    usage: Option<ConverseUsage>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ConverseStart<'a> {
    #[serde(borrow)]
    tool_use: Option<ConverseTool<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ConverseTool<'a> {
    #[serde(borrow)]
    tool_use_id: JsonText<'a>,
    name: JsonText<'a>,
    input: JsonText<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ConverseDelta<'a> {
    #[serde(borrow)]
    text: JsonText<'a>,
    tool_use: Option<ConverseTool<'a>>,
    reasoning_content: Option<ConverseReasoning<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ConverseReasoning<'a> {
    #[serde(borrow)]
    text: JsonText<'a>,
    signature: JsonText<'a>,
    redacted_content: JsonText<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ConverseUsage {
    input_tokens: TokenCount,
    output_tokens: TokenCount,
    cache_read_input_tokens: TokenCount,
    cache_write_input_tokens: TokenCount,
}

impl ReadJson for ConverseDecoder {
    type WireEvent<'a> = ConverseEvent<'a>;

    fn finish(&mut self, out: &mut Batch) {
        self.ending.end(false, out);
    }

    fn ending(&self) -> &Ending {
        &self.ending
    }

    fn read(
        &mut self,
        wire: &ConverseEvent<'_>,
        event: &FramedEvent<'_>,
        out: &mut Batch,
    ) -> ReadResult {
        match event.name.as_ref() {
            "contentBlockDelta" => self.delta(wire, out),
            "contentBlockStart" => self.start(wire, out),
            "contentBlockStop" => {
                let index = wire.content_block_index.0.unwrap_or(0);
                if let Some(block) = self.blocks.iter_mut().find(|block| block.index == index)
                    && !block.signature.is_empty()
                {
                    let signature = std::mem::take(&mut block.signature);
                    out.state(json!({ "signature": signature }));
                }
            }
            "messageStart" => {}
            "messageStop" => self.stop_reason(wire.stop_reason.as_str(), out),
            "metadata" => {
                if let Some(usage) = &wire.usage {
                    count(usage, out);
                }
                // The metadata are the last event, after the stop reason.
                self.finish(out);
            }
            other => self.ending.note("event", other, out),
        }
        Ok(())
    }
}

impl ConverseDecoder {
    /// Only calls have a start event; a text block begins with its first delta.
    fn start(&mut self, wire: &ConverseEvent<'_>, out: &mut Batch) {
        let Some(tool) = wire
            .start
            .as_ref()
            .and_then(|start| start.tool_use.as_ref())
        else {
            return;
        };
        let index = self.calls;
        let Some(block) = self.block(wire.content_block_index.0.unwrap_or(0)) else {
            return;
        };
        if block.call.is_some() {
            return; // ignore a repeated start
        }
        block.call = Some(index);
        self.calls += 1;
        out.call(index, tool.tool_use_id.as_str(), tool.name.as_str());
    }

    fn delta(&mut self, wire: &ConverseEvent<'_>, out: &mut Batch) {
        let Some(delta) = &wire.delta else { return };
        let index = wire.content_block_index.0.unwrap_or(0);
        if delta.text.0.is_none() && delta.tool_use.is_none() && delta.reasoning_content.is_none() {
            self.ending.note("delta", "of another kind", out);
        }
        out.text(delta.text.as_str());
        if let Some(tool) = &delta.tool_use {
            let call = self
                .blocks
                .iter()
                .rev()
                .find(|block| block.index == index)
                .and_then(|block| block.call);
            match call {
                Some(call) => out.args(call, tool.input.as_str()),
                None => self.ending.note("delta", "toolUse without a start", out),
            }
        }
        if let Some(reasoning) = &delta.reasoning_content {
            out.reasoning(reasoning.text.as_str());
            if let Some(data) = reasoning.redacted_content.0.as_deref() {
                out.state(json!({ "redacted": data }));
            }
            let signature = reasoning.signature.as_str();
            if !signature.is_empty()
                && let Some(block) = self.block(index)
            {
                block.signature.push_str(signature);
            }
        }
    }

    /// Returns the block with this index, and creates it if necessary.
    fn block(&mut self, index: u64) -> Option<&mut ConverseBlock> {
        let at = match self.blocks.iter().position(|block| block.index == index) {
            Some(at) => at,
            None if self.blocks.len() >= MAX_BLOCKS => return None,
            None => {
                self.blocks.push(ConverseBlock {
                    index,
                    call: None,
                    signature: String::new(),
                });
                self.blocks.len() - 1
            }
        };
        self.blocks.get_mut(at)
    }

    fn stop_reason(&mut self, reason: &str, out: &mut Batch) {
        self.ending.stop = Some(match reason {
            "end_turn" | "stop_sequence" => EndReason::Done,
            "tool_use" => EndReason::ToolCalls,
            "max_tokens" | "model_context_window_exceeded" => EndReason::Length,
            "guardrail_intervened" | "content_filtered" => EndReason::Refused,
            other => {
                self.ending.note("stop reason", other, out);
                EndReason::Done
            }
        });
    }
}

fn count(wire: &ConverseUsage, out: &mut Batch) {
    let (Some(input), Some(output)) = (wire.input_tokens.0, wire.output_tokens.0) else {
        return;
    };
    let cache_read = wire.cache_read_input_tokens.0.unwrap_or(0);
    let cache_write = wire.cache_write_input_tokens.0.unwrap_or(0);
    out.push(Chunk::Usage(Usage {
        input,
        cache_read,
        cache_write,
        output,
    }));
}
