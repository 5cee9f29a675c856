//! The port to a model: a request goes in, a stream of chunks comes out. A non-streaming answer is a fold of the stream
//! (see `reply`). No vendor is named here.
//!
//! ```
//! use std::time::Duration;
//! use windlass_core::provider::backoff;
//!
//! let asked = Duration::from_secs(30);
//! assert!(backoff(1, Some(asked), 0) >= asked, "a server that names a time is not asked earlier");
//! ```

use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::budget::{Price, Usage};
use crate::history::Entry;
use crate::tool::ToolSet;
use crate::{BoxFuture, BoxStream};

/// Access to the models of one vendor.
pub trait Provider: Send + Sync {
    /// The vendor's id, as users type it.
    fn name(&self) -> &str;
    /// The facts about a model that are known without a request.
    fn facts(&self, model: &str) -> ModelFacts;
    /// Asks the server about a model, where that is possible (a local server knows its context window). The default
    /// returns the facts that are known without a request.
    fn probe<'a>(&'a self, model: &'a str) -> BoxFuture<'a, Result<ModelFacts, ProviderError>> {
        let facts = self.facts(model);
        Box::pin(async move { Ok(facts) })
    }
    /// Sends one request. The stream ends after [`Chunk::End`] or an error; dropping it cancels the request. A provider
    /// never retries: the engine decides about that.
    fn stream<'a>(&'a self, request: Request<'a>) -> BoxStream<'a, Result<Chunk, ProviderError>>;
}

/// One request. Everything is borrowed, so that a step copies no history.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The vendor's name of the model.
    pub model: &'a str,
    /// The system prompt. Its bytes must not change between steps, so that the vendor can cache it.
    pub system: &'a str,
    /// All messages so far. Between compactions, messages are only appended.
    pub history: &'a [Entry],
    /// The tools that the model may call. They do not change between steps.
    pub tools: &'a ToolSet,
    /// Maximum output in tokens.
    pub max_output: u64,
    /// Options that a vendor may ignore.
    pub options: &'a Sampling,
}

/// Options for an answer. An absent option means the vendor's default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Sampling {
    /// The sampling temperature, from 0 to 2.
    pub temperature: Option<f64>,
    /// The reasoning effort: `low`, `medium`, `high`, or another level of the vendor.
    pub reasoning_effort: Option<String>,
    /// Maximum tokens of reasoning.
    pub thinking_tokens: Option<u64>,
    /// Stop sequences, which end the answer.
    pub stop: Vec<String>,
    /// Whether the model may or must call a tool.
    pub tool_choice: Option<ToolChoice>,
    /// The JSON Schema for the text of the answer. Each protocol requests it in its own way; the engine checks the
    /// answer.
    pub output_schema: Option<Value>,
}

/// Whether a model may or must call a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// The model decides whether to call a tool.
    Auto,
    /// The model must not call a tool.
    None,
    /// The model must call some tool.
    Required,
    /// The model must call this tool.
    Named(String),
}

/// Facts about a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelFacts {
    /// Maximum tokens of input and output together; `None` if unknown.
    pub context_window: Option<u64>,
    /// Maximum output tokens of one answer.
    pub max_output: u64,
    /// The price; `None` if unknown, [`Price::FREE`] if the model costs nothing.
    pub price: Option<Price>,
    /// The model can call tools.
    pub tools: bool,
    /// The model calls tools through JSON in its text, because its vendor has no other way.
    pub json_actions: bool,
    /// The model accepts images as input.
    pub images: bool,
    /// The vendor can enforce an output schema.
    pub structured_output: bool,
}

impl Default for ModelFacts {
    fn default() -> Self {
        Self {
            context_window: None,
            max_output: 8_192,
            price: None,
            tools: true,
            json_actions: false,
            images: true,
            structured_output: true,
        }
    }
}

/// A piece of a streamed answer. Text pieces may have any size.
#[derive(Debug, Clone, PartialEq)]
pub enum Chunk {
    /// A piece of the answer's text.
    Text(String),
    /// A piece of the reasoning, which may be shown.
    Reasoning(String),
    /// Vendor state of the preceding reasoning, which must be sent back unchanged. It ends that block of reasoning.
    ReasoningState(Value),
    /// A tool call begins. Only `index` distinguishes the calls of one answer; ids may be missing or repeated.
    CallStart {
        /// The index of the call in this answer.
        index: u32,
        /// The vendor's id; empty if it gave none.
        id: String,
        /// The name of the tool.
        name: String,
    },
    /// A piece of a call's arguments, as JSON text.
    CallArgs {
        /// The index of the call in this answer.
        index: u32,
        /// The next piece of the JSON text.
        json: String,
    },
    /// Token counts so far. The last report of a stream applies.
    Usage(Usage),
    /// An element that we do not know. It leads to a warning and is never fatal.
    Unknown(String),
    /// The answer is complete.
    End(EndReason),
}

/// The reason why a model stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The model finished its answer. Unknown reasons also map to this one.
    Done,
    /// The model waits for the results of its calls.
    ToolCalls,
    /// The answer reached the output limit.
    Length,
    /// The model or a filter of its vendor refused.
    Refused,
}

/// An error between us and a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ProviderError {
    /// The kind of error, for programs.
    pub kind: ProviderErrorKind,
    /// A description for the user. It never contains a key.
    pub message: String,
    /// The HTTP status, if there was a response.
    pub status: Option<u16>,
}

impl fmt::Display for ProviderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match self.status {
            Some(status) => write!(f, " (HTTP {status})"),
            None => Ok(()),
        }
    }
}

/// Kinds of provider errors (spec 4.4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "is", rename_all = "snake_case")]
#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum ProviderErrorKind {
    /// The key is missing, invalid or has no permission for the request.
    Authentication,
    /// Too many requests, or the quota is exhausted.
    RateLimited {
        /// The wait that the server asked for.
        #[serde(skip)]
        retry_after: Option<Duration>,
    },
    /// The request exceeds the model's context window.
    ContextLength,
    /// The vendor has no such model.
    ModelNotFound,
    /// The server is down or overloaded.
    Unavailable {
        /// The wait that the server asked for.
        #[serde(skip)]
        retry_after: Option<Duration>,
    },
    /// The server rejected the request.
    InvalidRequest,
    /// The server's response does not follow its protocol.
    InvalidResponse,
    /// The vendor refused the request on policy grounds.
    Refused,
    /// The connection, TLS or name resolution failed, or the stream was cut.
    Network {
        /// True if a retry may succeed. An untrusted certificate, for example, is permanent.
        #[serde(skip)]
        transient: bool,
        /// True if the request reached the server, which may bill an answer that did not arrive.
        #[serde(skip)]
        sent: bool,
    },
}

impl ProviderErrorKind {
    /// The name of the kind, as in the spec.
    #[must_use]
    pub fn word(&self) -> &'static str {
        self.into()
    }

    /// The maximum number of retries for this error, and the wait that the server asked for. If the server asked for
    /// more than [`LONGEST_WAIT`], there is no retry, because an earlier one would fail the same way.
    #[must_use]
    pub fn retry(&self) -> (u32, Option<Duration>) {
        match self {
            Self::RateLimited {
                retry_after: Some(wait),
            }
            | Self::Unavailable {
                retry_after: Some(wait),
            } if *wait > LONGEST_WAIT => (0, None),
            Self::RateLimited { retry_after } => (5, *retry_after),
            Self::Unavailable { retry_after } => (3, *retry_after),
            Self::Network {
                transient: true, ..
            } => (3, None),
            Self::Network {
                transient: false, ..
            } => (0, None),
            // Often this is the error page of a proxy instead of an answer, so retry once.
            Self::InvalidResponse => (1, None),
            Self::Authentication
            | Self::ContextLength
            | Self::ModelNotFound
            | Self::InvalidRequest
            | Self::Refused => (0, None),
        }
    }
}

/// Maximum wait before a retry, regardless of what a server asks for.
pub const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// The wait before retry `attempt` (counted from 1): the time the server asked for, or else half a second doubled for
/// each retry, with jitter. It never exceeds [`LONGEST_WAIT`].
#[must_use]
pub fn backoff(attempt: u32, asked: Option<Duration>, entropy: u64) -> Duration {
    let base = Duration::from_millis(500).saturating_mul(1 << attempt.saturating_sub(1).min(10));
    // Between half and all of it, so that many clients do not retry at the same moment.
    let jittered = base.mul_f64(0.5 + (entropy % 1_000) as f64 / 2_000.0);
    asked.unwrap_or(jittered).min(LONGEST_WAIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_is_jittered_and_capped() {
        for attempt in 1..20 {
            let whole = Duration::from_millis(500).saturating_mul(1 << (attempt - 1).min(10));
            for entropy in [0, 499, 999] {
                let wait = backoff(attempt, None, entropy);
                assert!(
                    wait >= (whole / 2).min(LONGEST_WAIT) && wait <= whole.min(LONGEST_WAIT),
                    "{attempt}: {wait:?}"
                );
            }
        }
        assert_eq!(
            backoff(1, Some(Duration::from_secs(2)), 7),
            Duration::from_secs(2)
        );
        assert_eq!(
            backoff(1, Some(Duration::from_secs(9_999)), 7),
            LONGEST_WAIT
        );
    }

    #[test]
    fn there_is_no_retry_if_the_server_asks_for_too_long_a_wait() {
        let limited = |seconds| ProviderErrorKind::RateLimited {
            retry_after: Some(Duration::from_secs(seconds)),
        };
        assert_eq!(limited(300).retry(), (5, Some(LONGEST_WAIT)));
        assert_eq!(limited(301).retry(), (0, None));
    }
}
