//! Ollama's own chat protocol: one JSON document a line, thoughts in a field of their own, calls as whole objects.
//! Reads lines one by one; `encode` shapes the request. It opens nothing and asks no server for its window.

mod encode;

use serde::Deserialize;
use serde_json::Value;
use windlass_core::budget::Usage;
use windlass_core::provider::{Chunk, EndReason, ProviderError};

use super::wire::{Count, Lenient, Loose, Text, mend_surrogates};
use super::{Batch, Quirks, Unknowns};
use crate::errors;
use crate::framing::Event;
use crate::think::{self, ThinkSplitter};

pub use encode::encode;

/// Reads one answer.
#[derive(Debug)]
pub struct Decoder {
    think: Option<ThinkSplitter>,
    calls: u32,
    stop: Option<EndReason>,
    ended: bool,
    unknowns: Unknowns,
}

/// More calls than any answer has.
const MOST_CALLS: u32 = 1_024;

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow, default)]
    message: Option<WireMessage<'a>>,
    #[serde(default)]
    done: Lenient<bool>,
    #[serde(borrow, default)]
    done_reason: Text<'a>,
    #[serde(default)]
    prompt_eval_count: Count,
    #[serde(default)]
    eval_count: Count,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
struct WireMessage<'a> {
    #[serde(borrow, default)]
    content: Text<'a>,
    #[serde(borrow, default)]
    thinking: Text<'a>,
    #[serde(borrow, default)]
    tool_calls: Option<Vec<WireCall<'a>>>,
}

#[derive(Deserialize)]
struct WireCall<'a> {
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow, default)]
    function: Option<WireFunction<'a>>,
}

#[derive(Deserialize)]
struct WireFunction<'a> {
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow, default)]
    arguments: Loose<'a>,
}

impl Decoder {
    /// A decoder for one answer of a vendor with these quirks.
    #[must_use]
    pub fn new(quirks: &Quirks) -> Self {
        Self {
            think: quirks.think_tags.then(ThinkSplitter::default),
            calls: 0,
            stop: None,
            ended: false,
            unknowns: Unknowns::default(),
        }
    }

    /// Reads one line.
    pub fn event(&mut self, event: &Event<'_>, out: &mut Batch) -> Result<(), ProviderError> {
        if self.ended {
            return Ok(());
        }
        match serde_json::from_str::<Wire<'_>>(&event.data) {
            Ok(wire) => self.read(&wire, out),
            Err(err) => {
                match mend_surrogates(&event.data).map(|mended| self.mended(&mended, out)) {
                    Some(Ok(read)) => read,
                    _ => Err(errors::not_an_event(&event.data, &err)),
                }
            }
        }
    }

    fn mended(
        &mut self,
        data: &str,
        out: &mut Batch,
    ) -> Result<Result<(), ProviderError>, serde_json::Error> {
        serde_json::from_str::<Wire<'_>>(data).map(|wire| self.read(&wire, out))
    }

    /// See [`super::Decoder::finish`].
    pub fn finish(&mut self, out: &mut Batch) -> bool {
        if self.ended {
            return true;
        }
        if let Some(think) = &mut self.think {
            think.finish(|part, piece| emit(part, piece, out));
        }
        let Some(stop) = self.stop.take() else {
            return false;
        };
        self.ended = true;
        // The server has no word of its own for an answer that wants its calls run.
        let stop = if stop == EndReason::Done && self.calls > 0 {
            EndReason::ToolCalls
        } else {
            stop
        };
        out.push(Chunk::End(stop));
        true
    }

    /// See [`super::Decoder::ended`].
    pub fn ended(&self) -> bool {
        self.ended
    }

    fn read(&mut self, wire: &Wire<'_>, out: &mut Batch) -> Result<(), ProviderError> {
        if let Some(error) = wire.error.as_ref().filter(|error| !error.is_null()) {
            return Err(errors::from_error_value(error));
        }
        if let Some(message) = &wire.message {
            out.reasoning(message.thinking.as_str());
            self.text(message.content.as_str(), out);
            for call in message.tool_calls.iter().flatten() {
                self.call(call, out);
            }
        }
        if wire.done.0 != Some(true) {
            if wire.message.is_none() {
                self.unknowns.note("line", "without a message", out);
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
        self.stop = Some(match wire.done_reason.as_str() {
            "" | "stop" => EndReason::Done,
            "length" => EndReason::Length,
            other => {
                self.unknowns.note("done reason", other, out);
                EndReason::Done
            }
        });
        self.finish(out);
        Ok(())
    }

    fn text(&mut self, text: &str, out: &mut Batch) {
        match &mut self.think {
            Some(think) => think.push(text, |part, piece| emit(part, piece, out)),
            None => out.text(text),
        }
    }

    /// Calls come whole; their numbers repeat from line to line in some versions, so they are counted here.
    fn call(&mut self, wire: &WireCall<'_>, out: &mut Batch) {
        let Some(function) = wire.function.as_ref().filter(|_| self.calls < MOST_CALLS) else {
            return;
        };
        let index = self.calls;
        self.calls += 1;
        let (id, name) = (
            wire.id.as_str().to_owned(),
            function.name.as_str().to_owned(),
        );
        out.push(Chunk::CallStart { index, id, name });
        match &function.arguments {
            Loose::Object(value) => out.args(index, &value.to_string()),
            Loose::Text(json) => out.args(index, json),
            Loose::Absent | Loose::Parts(_) => {}
        }
    }
}

fn emit(part: think::Part, piece: &str, out: &mut Batch) {
    match part {
        think::Part::Text => out.text(piece),
        think::Part::Reasoning => out.reasoning(piece),
    }
}
