//! Turns one step of a script into the chunks of an answer, cut into small pieces so that deltas are real.

use std::time::Duration;

use windlass_core::budget::Usage;
use windlass_core::provider::{Chunk, EndReason, LONGEST_WAIT, ProviderError, ProviderErrorKind};

use super::format::{Call, Failure, Step};

/// Characters in a piece when the step does not say how many pieces it wants.
const PIECE: usize = 16;

/// Everything the step does, in order. An error ends the answer where it happens.
pub(super) fn acts(step: &Step, number: usize) -> Vec<Result<Chunk, ProviderError>> {
    let mut chunks = Vec::new();
    let cut = |text: &Option<String>| cut_up(text.as_deref().unwrap_or_default(), step.pieces);
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
        chunks.extend(cut_up(&json, step.pieces).map(|json| Chunk::CallArgs { index, json }));
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
        .chain([Err(failed(failure))])
        .collect()
}

fn finish(step: &Step, chunks: &mut Vec<Chunk>) {
    if let Some(usage) = step.usage {
        let super::format::Usage {
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

fn arguments(call: &Call, cut: bool) -> String {
    let json = call
        .args_text
        .clone()
        .unwrap_or_else(|| call.args.to_string());
    if !cut {
        return json;
    }
    // The end is always missing, whatever the length: `{` alone is cut off, too.
    let half = (json.chars().count() / 2).max(1);
    json.chars().take(half).collect()
}

/// The text in so many pieces, or in pieces of the usual size.
fn cut_up(text: &str, pieces: Option<usize>) -> impl Iterator<Item = String> + use<> {
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

fn failed(failure: &Failure) -> ProviderError {
    let seconds = failure
        .retry_after
        .filter(|seconds| seconds.is_finite() && *seconds >= 0.0);
    let retry_after =
        seconds.map(|seconds| Duration::from_secs_f64(seconds.min(LONGEST_WAIT.as_secs_f64())));
    let mut kind = failure.kind.clone();
    let words = match &mut kind {
        ProviderErrorKind::Authentication => "the key was not accepted",
        ProviderErrorKind::RateLimited { retry_after: wait } => {
            *wait = retry_after;
            "too many requests"
        }
        ProviderErrorKind::ContextLength => "the request does not fit the window",
        ProviderErrorKind::ModelNotFound => "no such model",
        ProviderErrorKind::Unavailable { retry_after: wait } => {
            *wait = retry_after;
            "the upstream is overloaded"
        }
        ProviderErrorKind::InvalidRequest => "the request was not accepted",
        ProviderErrorKind::InvalidResponse => "the answer was not of the protocol",
        ProviderErrorKind::Refused => "the upstream declined",
        ProviderErrorKind::Network { transient, .. } => {
            *transient = true;
            "the stream ended before the answer did"
        }
    };
    let message = failure
        .message
        .clone()
        .unwrap_or_else(|| format!("{words} (scripted)"));
    ProviderError {
        kind,
        message,
        status: failure.status,
    }
}
