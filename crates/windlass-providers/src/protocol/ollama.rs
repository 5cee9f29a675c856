//! Ollama's own chat protocol: one JSON document per line, thoughts in a separate field, calls as complete objects.
//! This file decodes the lines; `encode` builds the request.

mod encode;

use serde::Deserialize;
use serde_json::Value;
use windlass_core::budget::Usage;
use windlass_core::provider::{Chunk, EndReason};

use super::decode::{Ending, ReadJson, ReadResult};
use super::wire::{JsonText, Lenient, TokenCount, WireCall};
use super::{Batch, Quirks};
use crate::errors;
use crate::framing::FramedEvent;
use crate::think::ThinkSplitter;

pub(super) use encode::encode;

/// Decodes one answer of Ollama's chat protocol.
#[derive(Debug)]
pub(super) struct OllamaDecoder {
    think: ThinkSplitter,
    calls: u32,
    ending: Ending,
}

/// Limits the memory for a malicious answer.
const MAX_CALLS: u32 = 1_024;

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct OllamaEvent<'a> {
    #[serde(borrow)]
    message: Option<OllamaMessage<'a>>,
    done: Lenient<bool>,
    done_reason: JsonText<'a>,
    prompt_eval_count: TokenCount,
    eval_count: TokenCount,
    error: Option<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OllamaMessage<'a> {
    #[serde(borrow)]
    content: JsonText<'a>,
    thinking: JsonText<'a>,
    tool_calls: Option<Vec<WireCall<'a>>>,
}

impl OllamaDecoder {
    /// Creates a decoder for one answer.
    pub(super) fn new(quirks: &Quirks) -> Self {
        Self {
            think: ThinkSplitter::new(quirks.think_tags),
            calls: 0,
            ending: Ending::default(),
        }
    }
}

impl ReadJson for OllamaDecoder {
    type WireEvent<'a> = OllamaEvent<'a>;

    fn finish(&mut self, out: &mut Batch) {
        self.think.finish(out);
        self.ending.end(self.calls > 0, out);
    }

    fn ending(&self) -> &Ending {
        &self.ending
    }

    fn read(
        &mut self,
        wire: &OllamaEvent<'_>,
        _event: &FramedEvent<'_>,
        out: &mut Batch,
    ) -> ReadResult {
        if let Some(error) = wire.error.as_ref().filter(|error| !error.is_null()) {
            return Err(errors::from_error_value(error));
        }
        if let Some(message) = &wire.message {
            out.reasoning(message.thinking.as_str());
            self.think.push(message.content.as_str(), out);
            for call in message.tool_calls.iter().flatten() {
                self.call(call, out);
            }
        }
        if wire.done.0 != Some(true) {
            if wire.message.is_none() {
                self.ending.note("line", "without a message", out);
            }
            return Ok(());
        }
        if let (Some(input), Some(output)) = (wire.prompt_eval_count.0, wire.eval_count.0) {
            out.push(Chunk::Usage(Usage {
                input,
                output,
                ..Usage::default()
            }));
        }
        self.ending.stop = Some(match wire.done_reason.as_str() {
            "" | "stop" => EndReason::Done,
            "length" => EndReason::Length,
            other => {
                self.ending.note("done reason", other, out);
                EndReason::Done
            }
        });
        self.finish(out);
        Ok(())
    }
}

impl OllamaDecoder {
    /// Adds a call, which is always complete. Some versions of Ollama repeat the numbers of calls, so they are counted
    /// here.
    fn call(&mut self, wire: &WireCall<'_>, out: &mut Batch) {
        let Some(function) = wire.function.as_ref().filter(|_| self.calls < MAX_CALLS) else {
            return;
        };
        let index = self.calls;
        self.calls += 1;
        out.call(index, wire.id.as_str(), function.name.as_str());
        if let Some(json) = function.arguments.json() {
            out.args(index, &json);
        }
    }
}
