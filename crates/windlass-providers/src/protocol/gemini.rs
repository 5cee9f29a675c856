//! The generateContent protocol: candidates made of parts, each chunk a whole document of its own, signatures on the
//! parts they belong to.
//! Reads events one by one; `encode` shapes the request. It opens nothing and knows no vendor's address.

mod encode;
mod partial_args;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use windlass_core::budget::Usage;
use windlass_core::provider::{Chunk, EndReason, ProviderError};

use super::Batch;
use super::decode::{Ending, ReadJson, ReadResult};
use super::wire::{Count, Lenient, Text, TokenCount};
use crate::errors;
use crate::framing::Event;

pub(super) use encode::encode;
use partial_args::{PartialArg, PartialArgs};

/// Reads one answer.
#[derive(Debug, Default)]
pub(super) struct GeminiDecoder {
    calls: u32,
    /// A call whose arguments come in pieces, with its number.
    open: Option<(u32, PartialArgs)>,
    counts: Counts,
    ending: Ending,
}

/// The last number of each kind.
#[derive(Debug, Default)]
struct Counts {
    prompt: u64,
    cached: u64,
    tool_prompt: u64,
    answer: u64,
    thoughts: u64,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Wire<'a> {
    #[serde(borrow)]
    candidates: Option<Vec<WireCandidate<'a>>>,
    usage_metadata: Option<WireUsage>,
    prompt_feedback: Option<WireFeedback<'a>>,
    error: Lenient<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireCandidate<'a> {
    index: Count,
    #[serde(borrow)]
    content: Option<WireContent<'a>>,
    finish_reason: Text<'a>,
    finish_message: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireContent<'a> {
    #[serde(borrow)]
    parts: Option<Vec<WirePart<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WirePart<'a> {
    #[serde(borrow)]
    text: Text<'a>,
    thought: Lenient<bool>,
    thought_signature: Text<'a>,
    function_call: Option<WireCall<'a>>,
    executable_code: Option<IgnoredAny>,
    code_execution_result: Option<IgnoredAny>,
    inline_data: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireCall<'a> {
    #[serde(borrow)]
    id: Text<'a>,
    name: Text<'a>,
    args: Option<&'a RawValue>,
    partial_args: Lenient<Vec<PartialArg>>,
    will_continue: Lenient<bool>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireFeedback<'a> {
    #[serde(borrow)]
    block_reason: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireUsage {
    prompt_token_count: TokenCount,
    cached_content_token_count: TokenCount,
    tool_use_prompt_token_count: TokenCount,
    candidates_token_count: TokenCount,
    thoughts_token_count: TokenCount,
}

impl ReadJson for GeminiDecoder {
    type Wire<'a> = Wire<'a>;

    fn finish(&mut self, out: &mut Batch) {
        self.cut_call(out);
        self.ending.end(self.calls > 0, out);
    }

    fn ending(&self) -> &Ending {
        &self.ending
    }

    fn mark(&mut self, mark: &str, _out: &mut Batch) -> bool {
        matches!(mark, "[DONE]" | "")
    }

    fn unreadable(&self, data: &str, err: &serde_json::Error) -> ProviderError {
        errors::in_body(data.as_bytes()).unwrap_or_else(|| errors::not_an_event(data, err))
    }

    fn read(&mut self, wire: &Wire<'_>, _event: &Event<'_>, out: &mut Batch) -> ReadResult {
        if let Some(error) = wire.error.0.as_ref().filter(|error| !error.is_null()) {
            return Err(errors::from_error_value(error));
        }
        if let Some(usage) = &wire.usage_metadata {
            self.count(usage, out);
        }
        if wire
            .prompt_feedback
            .as_ref()
            .is_some_and(|feedback| !feedback.block_reason.as_str().is_empty())
        {
            self.ending.stop = Some(EndReason::Refused);
        }
        for candidate in wire.candidates.iter().flatten() {
            if candidate.index.0.unwrap_or(0) != 0 {
                continue; // we ask for one answer
            }
            for part in candidate
                .content
                .iter()
                .flat_map(|content| &content.parts)
                .flatten()
            {
                // An answer that goes on after its end needs another one, or it was cut.
                if part.function_call.is_some() || !part.text.as_str().is_empty() {
                    self.ending.stop.take_if(|stop| *stop != EndReason::Refused);
                }
                self.part(part, out);
            }
            self.finish_reason(
                candidate.finish_reason.as_str(),
                candidate.finish_message.as_str(),
                out,
            )?;
        }
        Ok(())
    }
}

impl GeminiDecoder {
    fn part(&mut self, part: &WirePart<'_>, out: &mut Batch) {
        let signature = part.thought_signature.as_str();
        // A signature goes back on the part it came on: calls look for theirs before them, the others behind them.
        let sign = |on: &str, out: &mut Batch| {
            if !signature.is_empty() {
                out.state(json!({ "thought_signature": signature, "on": on }));
            }
        };
        if let Some(call) = &part.function_call {
            sign("call", out);
            self.call(call, out);
        } else if let Some(text) = &part.text.0 {
            if part.thought.0 == Some(true) {
                out.reasoning(text);
                sign("thought", out);
            } else {
                out.text(text);
                sign("text", out);
            }
        } else if part.executable_code.is_some() {
            self.ending.note("content part", "executableCode", out);
        } else if part.code_execution_result.is_some() {
            self.ending.note("content part", "codeExecutionResult", out);
        } else if part.inline_data.is_some() {
            self.ending.note("content part", "inlineData", out);
        } else if signature.is_empty() {
            self.ending
                .note("content part", "without text or call", out);
        } else {
            sign("text", out);
        }
    }

    fn call(&mut self, call: &WireCall<'_>, out: &mut Batch) {
        let pieces = call.partial_args.0.as_deref().unwrap_or_default();
        let continues = call.will_continue.0 == Some(true);
        if !call.name.as_str().is_empty() {
            self.cut_call(out);
            let index = self.calls;
            self.calls = self.calls.saturating_add(1);
            out.call(index, call.id.as_str(), call.name.as_str());
            if !continues && pieces.is_empty() {
                let args = call.args.map(RawValue::get).filter(|args| *args != "null");
                return out.args(index, args.unwrap_or("{}"));
            }
            self.open = Some((index, PartialArgs::default()));
        }
        let Some((index, args)) = &mut self.open else {
            return self.ending.note("content part", "call without a name", out);
        };
        pieces.iter().for_each(|piece| args.push(piece));
        if !continues {
            out.args(*index, &args.to_json());
            self.open = None;
        }
    }

    /// A call whose end did not come is half a call, and must not look like a whole one.
    fn cut_call(&mut self, out: &mut Batch) {
        if let Some((index, _)) = self.open.take() {
            out.args(index, "{");
        }
    }

    fn finish_reason(&mut self, reason: &str, message: &str, out: &mut Batch) -> ReadResult {
        let end = match reason {
            "" => return Ok(()),
            "STOP" => EndReason::Done,
            "MAX_TOKENS" => EndReason::Length,
            "SAFETY"
            | "RECITATION"
            | "BLOCKLIST"
            | "PROHIBITED_CONTENT"
            | "SPII"
            | "LANGUAGE"
            | "MODEL_ARMOR"
            | "IMAGE_SAFETY"
            | "IMAGE_PROHIBITED_CONTENT"
            | "IMAGE_RECITATION" => EndReason::Refused,
            "MALFORMED_FUNCTION_CALL"
            | "MALFORMED_RESPONSE"
            | "UNEXPECTED_TOOL_CALL"
            | "TOO_MANY_TOOL_CALLS" => {
                return Err(errors::bad_answer(reason, message));
            }
            "MISSING_THOUGHT_SIGNATURE" => {
                return Err(errors::in_stream("invalid_request_error", reason, message));
            }
            other => {
                self.ending.note("finish reason", other, out);
                EndReason::Done
            }
        };
        self.ending.stop = Some(end);
        Ok(())
    }

    /// Later reports replace earlier ones number by number. The prompt's count includes what came from a cache; what
    /// the vendor's own tools read is input as well, and thoughts are output.
    fn count(&mut self, wire: &WireUsage, out: &mut Batch) {
        let ours = &mut self.counts;
        for (ours, TokenCount(theirs)) in [
            (&mut ours.prompt, wire.prompt_token_count),
            (&mut ours.cached, wire.cached_content_token_count),
            (&mut ours.tool_prompt, wire.tool_use_prompt_token_count),
            (&mut ours.answer, wire.candidates_token_count),
            (&mut ours.thoughts, wire.thoughts_token_count),
        ] {
            *ours = theirs.unwrap_or(*ours);
        }
        let output = ours.answer.saturating_add(ours.thoughts);
        let prompt = Usage::of_prompt(ours.prompt, ours.cached, 0, output);
        out.push(Chunk::Usage(Usage {
            input: prompt.input.saturating_add(ours.tool_prompt),
            ..prompt
        }));
    }
}
