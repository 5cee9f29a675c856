//! The port to a model: a request goes in, a stream of chunks comes out.
//! A non-streaming answer is a fold of the stream (see `reply`). No vendor is named here.
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

/// Gives access to models.
pub trait Provider: Send + Sync {
    /// The vendor's id, as people type it.
    fn name(&self) -> &str;
    /// What is known about a model without asking anybody.
    fn facts(&self, model: &str) -> ModelFacts;
    /// What the server itself says about a model, where that can be asked (a local server's window); what is known
    /// without asking otherwise.
    fn probe<'a>(&'a self, model: &'a str) -> BoxFuture<'a, Result<ModelFacts, ProviderError>> {
        let facts = self.facts(model);
        Box::pin(async move { Ok(facts) })
    }
    /// Sends one request. The stream ends after [`Chunk::End`] or an error; dropping it ends the request.
    /// Never retries: that is the engine's decision.
    fn stream<'a>(&'a self, request: Request<'a>) -> BoxStream<'a, Result<Chunk, ProviderError>>;
}

/// One request. Everything is borrowed: a step copies no history.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The vendor's model name.
    pub model: &'a str,
    /// The system prompt; the same bytes from step to step.
    pub system: &'a str,
    /// All messages so far; only ever appended to between compactions.
    pub history: &'a [Entry],
    /// The tools on offer; the same from step to step.
    pub tools: &'a ToolSet,
    /// The most output to produce.
    pub max_output: u64,
    /// Wishes that a vendor may or may not know.
    pub options: &'a Sampling,
}

/// Wishes about how to answer. Absent means the vendor's default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Sampling {
    /// 0 to 2.
    pub temperature: Option<f64>,
    /// `low`, `medium`, `high`, or what the vendor knows.
    pub reasoning_effort: Option<String>,
    /// Tokens the model may think.
    pub thinking_tokens: Option<u64>,
    /// Texts that end the answer.
    pub stop: Vec<String>,
    /// Whether and which tool to call.
    pub tool_choice: Option<ToolChoice>,
    /// The JSON Schema the answer's text must fit. Each protocol asks for it in its own way; the engine checks it.
    pub output_schema: Option<Value>,
}

/// Whether and which tool a model is to call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// As it likes.
    Auto,
    /// None.
    None,
    /// Any, but one.
    Required,
    /// This one.
    Named(String),
}

/// What is known about a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelFacts {
    /// Tokens it can read and write together; unknown is `None`.
    pub context_window: Option<u64>,
    /// The most it writes in one answer.
    pub max_output: u64,
    /// What it costs; unknown is `None`, free is [`Price::FREE`].
    pub price: Option<Price>,
    /// It can call tools.
    pub tools: bool,
    /// It calls them through JSON in its text, because it cannot otherwise.
    pub json_actions: bool,
    /// It can look at pictures.
    pub images: bool,
    /// It can be held to a schema.
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

/// A piece of an answer. Text pieces may be of any size.
#[derive(Debug, Clone, PartialEq)]
pub enum Chunk {
    /// Words.
    Text(String),
    /// Reasoning that may be shown.
    Reasoning(String),
    /// What belongs to the reasoning so far and must be sent back unchanged; ends that block of reasoning.
    ReasoningState(Value),
    /// A call begins. `index` tells calls of one answer apart; ids may be missing or repeat.
    CallStart {
        /// Which call of this answer.
        index: u32,
        /// The vendor's id, or empty.
        id: String,
        /// The tool's name.
        name: String,
    },
    /// More of a call's arguments, as JSON text.
    CallArgs {
        /// Which call of this answer.
        index: u32,
        /// The next piece.
        json: String,
    },
    /// Tokens so far; the last one counts.
    Usage(Usage),
    /// Something we do not know; shown as a warning, never fatal.
    Unknown(String),
    /// The answer is over.
    End(EndReason),
}

/// Why a model stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// It was done; also the reading of a reason we do not know.
    Done,
    /// It wants its calls run.
    ToolCalls,
    /// It reached the output limit.
    Length,
    /// It, or a filter of its vendor, declined.
    Refused,
}

/// What went wrong between us and a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ProviderError {
    /// What to match on.
    pub kind: ProviderErrorKind,
    /// For a person: what happened, without any key in it.
    pub message: String,
    /// The HTTP status, where there was one.
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
    /// The key is missing, wrong or not allowed to do this.
    Authentication,
    /// Too many requests, or the quota is used up.
    RateLimited {
        /// When the upstream said to come back.
        #[serde(skip)]
        retry_after: Option<Duration>,
    },
    /// The request does not fit the model's window.
    ContextLength,
    /// No such model.
    ModelNotFound,
    /// The upstream is down or overloaded.
    Unavailable {
        /// When the upstream said to come back.
        #[serde(skip)]
        retry_after: Option<Duration>,
    },
    /// The upstream did not accept the request.
    InvalidRequest,
    /// The upstream answered something that is not its protocol.
    InvalidResponse,
    /// The upstream declined on its own grounds.
    Refused,
    /// Connection, TLS or name resolution failed, or the stream was cut.
    Network {
        /// It may work when it is tried again; a certificate that is not trusted will not be.
        #[serde(skip)]
        transient: bool,
        /// The request had reached the upstream, which may bill an answer that did not arrive.
        #[serde(skip)]
        sent: bool,
    },
}

impl ProviderErrorKind {
    /// The word of the kind, as in the spec.
    #[must_use]
    pub fn word(&self) -> &'static str {
        self.into()
    }

    /// How often a call that failed this way is tried again, and the wait the upstream asked for. Not at all where it
    /// asked for more than the longest wait: coming back earlier would only be told the same.
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
            // Often a proxy's error page in the place of an answer: once more, then it is what it is.
            Self::InvalidResponse => (1, None),
            Self::Authentication
            | Self::ContextLength
            | Self::ModelNotFound
            | Self::InvalidRequest
            | Self::Refused => (0, None),
        }
    }
}

/// The most a wait may take, whatever an upstream says.
pub const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// How long to wait before try `attempt` (counted from 1): what the upstream asked for, else doubling from half a
/// second with jitter, and never more than [`LONGEST_WAIT`].
#[must_use]
pub fn backoff(attempt: u32, asked: Option<Duration>, entropy: u64) -> Duration {
    let base = Duration::from_millis(500).saturating_mul(1 << attempt.saturating_sub(1).min(10));
    // Between a half and the whole of it, so that many clients do not come back together.
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
    fn a_wait_beyond_the_longest_is_not_begun() {
        let limited = |seconds| ProviderErrorKind::RateLimited {
            retry_after: Some(Duration::from_secs(seconds)),
        };
        assert_eq!(limited(300).retry(), (5, Some(LONGEST_WAIT)));
        assert_eq!(limited(301).retry(), (0, None));
    }
}
