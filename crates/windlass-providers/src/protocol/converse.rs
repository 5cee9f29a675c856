//! Bedrock's Converse protocol: content blocks of any of its models, in binary messages named by what they are.
//! Reads events one by one; `encode` shapes the request. It signs and sends nothing.

mod encode;

use serde::Deserialize;
use windlass_core::budget::Usage;
use windlass_core::provider::{Chunk, EndReason, ProviderError};

use super::wire::{Count, Text, mend_surrogates};
use super::{Batch, Unknowns};
use crate::errors;
use crate::framing::Event;

pub use encode::encode;

/// Reads one answer.
#[derive(Debug, Default)]
pub struct Decoder {
    blocks: Vec<Block>,
    calls: u32,
    stop: Option<EndReason>,
    ended: bool,
    unknowns: Unknowns,
}

#[derive(Debug)]
struct Block {
    index: u64,
    /// Which call it is, if it is one.
    call: Option<u32>,
    signature: String,
}

/// More blocks than any answer has.
const MOST_BLOCKS: usize = 4_096;

/// All events in one shape; the name of an event says which fields matter.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire<'a> {
    #[serde(default)]
    content_block_index: Count,
    #[serde(borrow, default)]
    start: Option<WireStart<'a>>,
    #[serde(borrow, default)]
    delta: Option<WireDelta<'a>>,
    #[serde(borrow, default)]
    stop_reason: Text<'a>,
    #[serde(default)]
    usage: Option<WireUsage>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireStart<'a> {
    #[serde(borrow, default)]
    tool_use: Option<WireTool<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireTool<'a> {
    #[serde(borrow, default)]
    tool_use_id: Text<'a>,
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow, default)]
    input: Text<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireDelta<'a> {
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow, default)]
    tool_use: Option<WireTool<'a>>,
    #[serde(borrow, default)]
    reasoning_content: Option<WireReasoning<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireReasoning<'a> {
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow, default)]
    signature: Text<'a>,
    #[serde(borrow, default)]
    redacted_content: Text<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireUsage {
    #[serde(default)]
    input_tokens: Count,
    #[serde(default)]
    output_tokens: Count,
    #[serde(default)]
    cache_read_input_tokens: Count,
    #[serde(default)]
    cache_write_input_tokens: Count,
}

impl Decoder {
    /// Reads one event.
    pub fn event(&mut self, event: &Event<'_>, out: &mut Batch) -> Result<(), ProviderError> {
        if self.ended {
            return Ok(());
        }
        match serde_json::from_str::<Wire<'_>>(&event.data) {
            Ok(wire) => self.read(&event.name, &wire, out),
            Err(err) => {
                let mended = mend_surrogates(&event.data);
                match mended.as_deref().map(serde_json::from_str::<Wire<'_>>) {
                    Some(Ok(wire)) => self.read(&event.name, &wire, out),
                    _ => return Err(errors::not_an_event(&event.data, &err)),
                }
            }
        }
        Ok(())
    }

    /// See [`super::Decoder::finish`].
    pub fn finish(&mut self, out: &mut Batch) -> bool {
        if !self.ended
            && let Some(stop) = self.stop.take()
        {
            self.ended = true;
            out.push(Chunk::End(stop));
        }
        self.ended
    }

    /// See [`super::Decoder::ended`].
    pub fn ended(&self) -> bool {
        self.ended
    }

    fn read(&mut self, name: &str, wire: &Wire<'_>, out: &mut Batch) {
        match name {
            "contentBlockDelta" => self.delta(wire, out),
            "contentBlockStart" => self.start(wire, out),
            "contentBlockStop" => {
                let index = wire.content_block_index.0.unwrap_or(0);
                if let Some(block) = self.blocks.iter_mut().find(|block| block.index == index)
                    && !block.signature.is_empty()
                {
                    let signature = std::mem::take(&mut block.signature);
                    out.push(Chunk::ReasoningState(
                        serde_json::json!({ "signature": signature }),
                    ));
                }
            }
            "messageStart" => {}
            "messageStop" => self.stop_reason(wire.stop_reason.as_str(), out),
            "metadata" => {
                if let Some(usage) = &wire.usage {
                    count(usage, out);
                }
                // It is the last event, behind the reason.
                self.finish(out);
            }
            other => self.unknowns.note("event", other, out),
        }
    }

    /// Only calls are announced; a block of text begins with its first piece.
    fn start(&mut self, wire: &Wire<'_>, out: &mut Batch) {
        let Some(tool) = wire
            .start
            .as_ref()
            .and_then(|start| start.tool_use.as_ref())
        else {
            return;
        };
        let Some(block) = self.block(wire.content_block_index.0.unwrap_or(0)) else {
            return;
        };
        if block.call.is_some() {
            return; // a repeated start changes nothing
        }
        let index = self.calls;
        self.calls += 1;
        if let Some(block) = self.block(wire.content_block_index.0.unwrap_or(0)) {
            block.call = Some(index);
        }
        let (id, name) = (
            tool.tool_use_id.as_str().to_owned(),
            tool.name.as_str().to_owned(),
        );
        out.push(Chunk::CallStart { index, id, name });
    }

    fn delta(&mut self, wire: &Wire<'_>, out: &mut Batch) {
        let Some(delta) = &wire.delta else { return };
        let index = wire.content_block_index.0.unwrap_or(0);
        if delta.text.0.is_none() && delta.tool_use.is_none() && delta.reasoning_content.is_none() {
            self.unknowns.note("delta", "of another kind", out);
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
                None => self.unknowns.note("delta", "toolUse without a start", out),
            }
        }
        if let Some(reasoning) = &delta.reasoning_content {
            out.reasoning(reasoning.text.as_str());
            if let Some(data) = reasoning.redacted_content.0.as_deref() {
                out.push(Chunk::ReasoningState(
                    serde_json::json!({ "redacted": data }),
                ));
            }
            let signature = reasoning.signature.as_str();
            if !signature.is_empty()
                && let Some(block) = self.block(index)
            {
                block.signature.push_str(signature);
            }
        }
    }

    /// The block of this number, made if it is new.
    fn block(&mut self, index: u64) -> Option<&mut Block> {
        let at = match self.blocks.iter().position(|block| block.index == index) {
            Some(at) => at,
            None if self.blocks.len() >= MOST_BLOCKS => return None,
            None => {
                self.blocks.push(Block {
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
        self.stop = Some(match reason {
            "end_turn" | "stop_sequence" => EndReason::Done,
            "tool_use" => EndReason::ToolCalls,
            "max_tokens" | "model_context_window_exceeded" => EndReason::Length,
            "guardrail_intervened" | "content_filtered" => EndReason::Refused,
            other => {
                self.unknowns.note("stop reason", other, out);
                EndReason::Done
            }
        });
    }
}

fn count(wire: &WireUsage, out: &mut Batch) {
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
