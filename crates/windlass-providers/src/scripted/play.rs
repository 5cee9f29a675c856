//! Converts a step of a script into the chunks of an answer, in small pieces like the deltas of a real model.

use std::time::Duration;

use windlass_core::budget::Usage;
use windlass_core::provider::{Chunk, EndReason, LONGEST_WAIT, ProviderError, ProviderErrorKind};

use super::format::{ScriptCall, ScriptFailure, ScriptStep, ScriptUsage};

/// The characters in a piece, if the step does not set the number of pieces.
const PIECE: usize = 16;

/// Returns the chunks of a step in order. An error ends the answer.
pub(super) fn chunks(step: &ScriptStep, number: usize) -> Vec<Result<Chunk, ProviderError>> {
    let mut chunks = Vec::new();
    let cut = |text: &Option<String>| split(text.as_deref().unwrap_or_default(), step.pieces);
    chunks.extend(cut(&step.reasoning).map(Chunk::Reasoning));
    chunks.extend(cut(&step.text).map(Chunk::Text));
    chunks.extend(cut(&step.refusal).map(Chunk::Text));
    for (at, call) in step.calls.iter().enumerate() {
        let index = u32::try_from(at).unwrap_or(u32::MAX);
        let id = call
            .id
            .clone()
            .unwrap_or_else(|| format!("call-{}-{}", number + 1, at + 1));
        chunks.push(Chunk::CallStart {
            index,
            id,
            name: call.name.clone(),
        });
        let json = arguments(call, step.cut && at + 1 == step.calls.len());
        chunks.extend(split(&json, step.pieces).map(|json| Chunk::CallArgs { index, json }));
    }
    let Some(failure) = &step.error else {
        if !step.hang {
            finish(step, &mut chunks);
        }
        return chunks.into_iter().map(Ok).collect();
    };
    chunks.truncate(failure.after);
    chunks
        .into_iter()
        .map(Ok)
        .chain([Err(error(failure))])
        .collect()
}

fn finish(step: &ScriptStep, chunks: &mut Vec<Chunk>) {
    if let Some(usage) = step.usage {
        let ScriptUsage {
            input,
            output,
            cache_read,
            cache_write,
        } = usage;
        chunks.push(Chunk::Usage(Usage {
            input,
            cache_read,
            cache_write,
            output,
        }));
    }
    let end = match &step.end {
        Some(end) => end.clone(),
        None if step.refusal.is_some() => EndReason::Refused,
        None if !step.calls.is_empty() => EndReason::ToolCalls,
        None => EndReason::Done,
    };
    chunks.push(Chunk::End(end));
}

fn arguments(call: &ScriptCall, cut: bool) -> String {
    let json = call
        .args_text
        .clone()
        .unwrap_or_else(|| call.args.to_string());
    if !cut {
        return json;
    }
    // At least one character remains, and at least one is missing: `{}` becomes `{`.
    let half = (json.chars().count() / 2).max(1);
    json.chars().take(half).collect()
}

/// Splits a text into this number of pieces, or into pieces of the default size.
fn split(text: &str, pieces: Option<usize>) -> impl Iterator<Item = String> + use<> {
    let chars: Vec<char> = text.chars().collect();
    let size = pieces
        .map_or(PIECE, |pieces| chars.len().div_ceil(pieces.max(1)))
        .max(1);
    chars
        .chunks(size)
        .map(String::from_iter)
        .collect::<Vec<_>>()
        .into_iter()
}

fn error(failure: &ScriptFailure) -> ProviderError {
    let seconds = failure
        .retry_after
        .filter(|seconds| seconds.is_finite() && *seconds >= 0.0);
    let retry_after =
        seconds.map(|seconds| Duration::from_secs_f64(seconds.min(LONGEST_WAIT.as_secs_f64())));
    let mut kind = failure.kind.clone();
    let default_message = match &mut kind {
        ProviderErrorKind::Authentication => "the upstream rejected the key",
        ProviderErrorKind::RateLimited { retry_after: wait } => {
            *wait = retry_after;
            "too many requests"
        }
        ProviderErrorKind::ContextLength => "the request does not fit into the context window",
        ProviderErrorKind::ModelNotFound => "no such model",
        ProviderErrorKind::Unavailable { retry_after: wait } => {
            *wait = retry_after;
            "the upstream is overloaded"
        }
        ProviderErrorKind::InvalidRequest => "the upstream rejected the request",
        ProviderErrorKind::InvalidResponse => "the answer does not follow the protocol",
        ProviderErrorKind::Refused => "the upstream declined",
        ProviderErrorKind::Network { transient, .. } => {
            *transient = true;
            "the stream ended before the answer did"
        }
    };
    let message = failure
        .message
        .clone()
        .unwrap_or_else(|| format!("{default_message} (scripted)"));
    ProviderError {
        kind,
        message,
        status: failure.status,
    }
}
