//! The generateContent protocol: candidates made of parts, each chunk a whole document of its own, signatures on the
//! parts they belong to.
//! Reads events one by one; `encode` shapes the request. It opens nothing and knows no vendor's address.

mod encode;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;
use windlass_core::budget::Usage;
use windlass_core::provider::{Chunk, EndReason, ProviderError};

use super::wire::{Count, Lenient, Text, mend_surrogates};
use super::{Batch, Unknowns};
use crate::errors;
use crate::framing::Event;

pub use encode::encode;

/// Reads one answer.
#[derive(Debug, Default)]
pub struct Decoder {
    calls: u32,
    counts: Counts,
    stop: Option<EndReason>,
    ended: bool,
    unknowns: Unknowns,
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

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire<'a> {
    #[serde(borrow, default)]
    candidates: Option<Vec<WireCandidate<'a>>>,
    #[serde(default)]
    usage_metadata: Option<WireUsage>,
    #[serde(borrow, default)]
    prompt_feedback: Option<WireFeedback<'a>>,
    #[serde(default)]
    error: Lenient<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireCandidate<'a> {
    #[serde(default)]
    index: Count,
    #[serde(borrow, default)]
    content: Option<WireContent<'a>>,
    #[serde(borrow, default)]
    finish_reason: Text<'a>,
    #[serde(borrow, default)]
    finish_message: Text<'a>,
}

#[derive(Deserialize)]
struct WireContent<'a> {
    #[serde(borrow, default)]
    parts: Option<Vec<WirePart<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WirePart<'a> {
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(default)]
    thought: Lenient<bool>,
    #[serde(borrow, default)]
    thought_signature: Text<'a>,
    #[serde(borrow, default)]
    function_call: Option<WireCall<'a>>,
    #[serde(default)]
    executable_code: Option<IgnoredAny>,
    #[serde(default)]
    code_execution_result: Option<IgnoredAny>,
    #[serde(default)]
    inline_data: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct WireCall<'a> {
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow, default)]
    args: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireFeedback<'a> {
    #[serde(borrow, default)]
    block_reason: Text<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireUsage {
    #[serde(default)]
    prompt_token_count: Count,
    #[serde(default)]
    cached_content_token_count: Count,
    #[serde(default)]
    tool_use_prompt_token_count: Count,
    #[serde(default)]
    candidates_token_count: Count,
    #[serde(default)]
    thoughts_token_count: Count,
}

impl Decoder {
    /// Reads one event.
    pub fn event(&mut self, event: &Event<'_>, out: &mut Batch) -> Result<(), ProviderError> {
        if self.ended {
            return Ok(());
        }
        match serde_json::from_str::<Wire<'_>>(&event.data) {
            Ok(wire) => self.read(&wire, out),
            Err(_) if matches!(event.data.trim(), "[DONE]" | "") => Ok(()),
            Err(err) => match mend_surrogates(&event.data) {
                Some(mended) => match serde_json::from_str::<Wire<'_>>(&mended) {
                    Ok(wire) => self.read(&wire, out),
                    Err(err) => Err(errors::not_an_event(&event.data, &err)),
                },
                None => Err(errors::in_body(event.data.as_bytes())
                    .unwrap_or_else(|| errors::not_an_event(&event.data, &err))),
            },
        }
    }

    /// See [`super::Decoder::finish`]. Parts and counts may follow the reason, so the answer lasts as long as the body.
    pub fn finish(&mut self, out: &mut Batch) -> bool {
        if !self.ended
            && let Some(stop) = self.stop.take()
        {
            self.ended = true;
            let end = match stop {
                EndReason::Done if self.calls > 0 => EndReason::ToolCalls,
                other => other,
            };
            out.push(Chunk::End(end));
        }
        self.ended
    }

    /// See [`super::Decoder::ended`].
    pub fn ended(&self) -> bool {
        self.ended
    }

    fn read(&mut self, wire: &Wire<'_>, out: &mut Batch) -> Result<(), ProviderError> {
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
            self.stop = Some(EndReason::Refused);
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
                    self.stop.take_if(|stop| *stop != EndReason::Refused);
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

    fn part(&mut self, part: &WirePart<'_>, out: &mut Batch) {
        let signature = part.thought_signature.as_str();
        // A signature goes back on the part it came on: calls look for theirs before them, the others behind them.
        let sign = |on: &str, out: &mut Batch| {
            if !signature.is_empty() {
                out.push(Chunk::ReasoningState(
                    serde_json::json!({ "thought_signature": signature, "on": on }),
                ));
            }
        };
        if let Some(call) = &part.function_call {
            sign("call", out);
            let index = self.calls;
            self.calls = self.calls.saturating_add(1);
            let (id, name) = (call.id.as_str().to_owned(), call.name.as_str().to_owned());
            out.push(Chunk::CallStart { index, id, name });
            out.args(
                index,
                call.args
                    .map(RawValue::get)
                    .filter(|args| *args != "null")
                    .unwrap_or("{}"),
            );
        } else if let Some(text) = &part.text.0 {
            if part.thought.0 == Some(true) {
                out.reasoning(text);
                sign("thought", out);
            } else {
                out.text(text);
                sign("text", out);
            }
        } else if part.executable_code.is_some() {
            self.unknowns.note("content part", "executableCode", out);
        } else if part.code_execution_result.is_some() {
            self.unknowns
                .note("content part", "codeExecutionResult", out);
        } else if part.inline_data.is_some() {
            self.unknowns.note("content part", "inlineData", out);
        } else if signature.is_empty() {
            self.unknowns
                .note("content part", "without text or call", out);
        } else {
            sign("text", out);
        }
    }

    fn finish_reason(
        &mut self,
        reason: &str,
        message: &str,
        out: &mut Batch,
    ) -> Result<(), ProviderError> {
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
                self.unknowns.note("finish reason", other, out);
                EndReason::Done
            }
        };
        self.stop = Some(end);
        Ok(())
    }

    /// Later reports replace earlier ones number by number. The prompt's count includes what came from a cache; what
    /// the vendor's own tools read is input as well, and thoughts are output.
    fn count(&mut self, wire: &WireUsage, out: &mut Batch) {
        let ours = &mut self.counts;
        for (ours, Count(theirs)) in [
            (&mut ours.prompt, wire.prompt_token_count),
            (&mut ours.cached, wire.cached_content_token_count),
            (&mut ours.tool_prompt, wire.tool_use_prompt_token_count),
            (&mut ours.answer, wire.candidates_token_count),
            (&mut ours.thoughts, wire.thoughts_token_count),
        ] {
            *ours = theirs.unwrap_or(*ours);
        }
        let cache_read = ours.cached.min(ours.prompt);
        out.push(Chunk::Usage(Usage {
            input: ours.prompt - cache_read + ours.tool_prompt,
            cache_read,
            cache_write: 0,
            output: ours.answer + ours.thoughts,
        }));
    }
}
