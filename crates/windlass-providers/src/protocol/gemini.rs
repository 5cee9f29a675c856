//! Gemini's `generateContent` protocol: candidates made of parts, each event a complete document, and signatures that
//! belong to parts. This file decodes the events; `encode` builds the request.

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
use super::wire::{Count, JsonText, Lenient, TokenCount};
use crate::errors;
use crate::framing::FramedEvent;

pub(super) use encode::encode;
use partial_args::{PartialArg, PartialArgs};

/// Decodes one answer of the `generateContent` protocol.
#[derive(Debug, Default)]
pub(super) struct GeminiDecoder {
    calls: u32,
    /// A call whose arguments are arriving in pieces, with its number.
    open: Option<(u32, PartialArgs)>,
    counts: GeminiCounts,
    ending: Ending,
}

/// The last reported token counts.
#[derive(Debug, Default)]
struct GeminiCounts {
    prompt: u64,
    cached: u64,
    tool_prompt: u64,
    answer: u64,
    thoughts: u64,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct GeminiEvent<'a> {
    #[serde(borrow)]
    candidates: Option<Vec<GeminiCandidate<'a>>>,
    usage_metadata: Option<GeminiUsage>,
    prompt_feedback: Option<GeminiFeedback<'a>>,
    error: Lenient<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct GeminiCandidate<'a> {
    index: Count,
    #[serde(borrow)]
    content: Option<GeminiContent<'a>>,
    finish_reason: JsonText<'a>,
    finish_message: JsonText<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct GeminiContent<'a> {
    #[serde(borrow)]
    parts: Option<Vec<GeminiPart<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct GeminiPart<'a> {
    #[serde(borrow)]
    text: JsonText<'a>,
    thought: Lenient<bool>,
    thought_signature: JsonText<'a>,
    function_call: Option<GeminiCall<'a>>,
    executable_code: Option<IgnoredAny>,
    code_execution_result: Option<IgnoredAny>,
    inline_data: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct GeminiCall<'a> {
    #[serde(borrow)]
    id: JsonText<'a>,
    name: JsonText<'a>,
    args: Option<&'a RawValue>,
    partial_args: Lenient<Vec<PartialArg>>,
    will_continue: Lenient<bool>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct GeminiFeedback<'a> {
    #[serde(borrow)]
    block_reason: JsonText<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct GeminiUsage {
    prompt_token_count: TokenCount,
    cached_content_token_count: TokenCount,
    tool_use_prompt_token_count: TokenCount,
    candidates_token_count: TokenCount,
    thoughts_token_count: TokenCount,
}

impl ReadJson for GeminiDecoder {
    type WireEvent<'a> = GeminiEvent<'a>;

    fn finish(&mut self, out: &mut Batch) {
        self.invalidate_open_call(out);
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

    fn read(
        &mut self,
        wire: &GeminiEvent<'_>,
        _event: &FramedEvent<'_>,
        out: &mut Batch,
    ) -> ReadResult {
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
                continue; // the request asks for one candidate
            }
            for part in candidate
                .content
                .iter()
                .flat_map(|content| &content.parts)
                .flatten()
            {
                // If content follows an end reason, the answer needs a new end reason, or it was cut off.
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
    fn part(&mut self, part: &GeminiPart<'_>, out: &mut Batch) {
        let signature = part.thought_signature.as_str();
        // A signature must be sent back with the part that it came with. The encoder expects the signature of a call
        // before the call, and other signatures after their part.
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

    fn call(&mut self, call: &GeminiCall<'_>, out: &mut Batch) {
        let pieces = call.partial_args.0.as_deref().unwrap_or_default();
        let continues = call.will_continue.0 == Some(true);
        if !call.name.as_str().is_empty() {
            self.invalidate_open_call(out);
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

    /// Gives an incomplete call arguments that are invalid JSON, so that it is not executed.
    fn invalidate_open_call(&mut self, out: &mut Batch) {
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

    /// Updates each count that a report contains. The prompt count includes cached tokens. Tokens that the vendor's own
    /// tools read are input, and thoughts are output.
    fn count(&mut self, wire: &GeminiUsage, out: &mut Batch) {
        let counts = &mut self.counts;
        for (last, TokenCount(reported)) in [
            (&mut counts.prompt, wire.prompt_token_count),
            (&mut counts.cached, wire.cached_content_token_count),
            (&mut counts.tool_prompt, wire.tool_use_prompt_token_count),
            (&mut counts.answer, wire.candidates_token_count),
            (&mut counts.thoughts, wire.thoughts_token_count),
        ] {
            *last = reported.unwrap_or(*last);
        }
        let output = counts.answer.saturating_add(counts.thoughts);
        let prompt = Usage::of_prompt(counts.prompt, counts.cached, 0, output);
        out.push(Chunk::Usage(Usage {
            input: prompt.input.saturating_add(counts.tool_prompt),
            ..prompt
        }));
    }
}
