//! Errors of operations as problem details (RFC 9457): what happened, and what the caller can do next.
//!
//! ```
//! use windlass_service::{Problem, ProblemCode};
//!
//! let problem = Problem::new(ProblemCode::NotFound, "there is no session `x`").hint("list the sessions");
//! assert_eq!(problem.code.status(), 404);
//! ```

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use strum::{EnumString, IntoStaticStr};
use windlass::core::id::IdError;
use windlass::core::store::{StoreError, StoreErrorKind};
use windlass::engine::EngineError;
use windlass::{Error, ErrorKind};

/// An error that a caller of an operation receives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(into = "ProblemBody", from = "ProblemBody")]
pub struct Problem {
    pub code: ProblemCode,
    /// A description of the problem.
    pub detail: String,
    /// The next step of the caller.
    pub hint: Option<String>,
    /// Seconds after which a retry can succeed.
    pub retry_after: Option<u64>,
    /// Further facts, by name.
    facts: Option<Box<Map<String, Value>>>,
}

/// A problem as it is sent.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Problem")]
struct ProblemBody {
    /// A URI that names the kind of problem: `urn:windlass:problem:` and the code.
    #[serde(rename = "type")]
    uri: String,
    /// The kind of problem in a few words.
    #[serde(default)]
    title: String,
    /// The HTTP status.
    #[serde(default)]
    status: u16,
    /// A description of the problem.
    #[serde(default)]
    detail: String,
    /// The next step of the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// Seconds after which a retry can succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_after: Option<u64>,
    /// Further facts, by name.
    #[serde(flatten)]
    facts: Map<String, Value>,
}

const URI: &str = "urn:windlass:problem:";

impl From<Problem> for ProblemBody {
    fn from(problem: Problem) -> Self {
        Self {
            uri: format!("{URI}{}", problem.code.word()),
            title: problem.code.title().to_owned(),
            status: problem.code.status(),
            detail: problem.detail,
            hint: problem.hint,
            retry_after: problem.retry_after,
            facts: problem.facts.map(|facts| *facts).unwrap_or_default(),
        }
    }
}

impl From<ProblemBody> for Problem {
    fn from(body: ProblemBody) -> Self {
        let code = body
            .uri
            .strip_prefix(URI)
            .and_then(|word| word.parse().ok());
        Self {
            // A later version may have further codes.
            code: code.unwrap_or(ProblemCode::Internal),
            detail: body.detail,
            hint: body.hint,
            retry_after: body.retry_after,
            facts: (!body.facts.is_empty()).then(|| Box::new(body.facts)),
        }
    }
}

impl JsonSchema for Problem {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        ProblemBody::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        ProblemBody::json_schema(generator)
    }
}

/// The kinds of problems. Each has one HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, EnumString)]
#[strum(serialize_all = "kebab-case")]
pub enum ProblemCode {
    /// A parameter is missing, unknown or has the wrong form: the request contradicts the OpenAPI document.
    InvalidRequest,
    /// There is no valid token.
    Unauthorized,
    /// The budget of the token or of the server is spent.
    BudgetExceeded,
    /// The token, the ceiling or the origin does not allow the operation.
    Forbidden,
    NotFound,
    MethodNotAllowed,
    /// The state of the session does not allow the operation now.
    Conflict,
    /// Another process holds the session and cannot be reached.
    Locked,
    TooLarge,
    UnsupportedMediaType,
    RangeNotSatisfiable,
    /// The request names a host that is not this server.
    WrongHost,
    /// The parameters have the right form, but a value cannot be used, such as the name of an unknown model.
    Unprocessable,
    /// The idempotency key was used for another request.
    KeyReused,
    TooManyRequests,
    /// The server stopped during the first attempt of this request, so its effect is unknown.
    OutcomeUnknown,
    /// A requested part (a model, a runtime, the isolation) is not available.
    Unavailable,
    /// The server is shutting down.
    ShuttingDown,
    StorageFull,
    Internal,
}

impl ProblemCode {
    /// The HTTP status.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::InvalidRequest => 400,
            Self::Unauthorized => 401,
            Self::BudgetExceeded => 402,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::Conflict | Self::OutcomeUnknown => 409,
            Self::TooLarge => 413,
            Self::UnsupportedMediaType => 415,
            Self::RangeNotSatisfiable => 416,
            Self::WrongHost => 421,
            Self::Unprocessable | Self::KeyReused | Self::Unavailable => 422,
            Self::Locked => 423,
            Self::TooManyRequests => 429,
            Self::Internal => 500,
            Self::ShuttingDown => 503,
            Self::StorageFull => 507,
        }
    }

    /// The code as a word with dashes.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.into()
    }

    fn title(self) -> &'static str {
        match self {
            Self::InvalidRequest => "The request is not valid",
            Self::Unauthorized => "A token is required",
            Self::BudgetExceeded => "The budget is spent",
            Self::Forbidden => "This is not allowed",
            Self::NotFound => "There is no such thing",
            Self::MethodNotAllowed => "The method is not allowed here",
            Self::Conflict => "The current state does not allow this",
            Self::Locked => "Another process holds the session",
            Self::TooLarge => "The request is too large",
            Self::UnsupportedMediaType => "The media type is not supported",
            Self::RangeNotSatisfiable => "The range is not available",
            Self::WrongHost => "The request is for another host",
            Self::Unprocessable => "A value cannot be used",
            Self::KeyReused => "The idempotency key belongs to another request",
            Self::TooManyRequests => "There are too many requests",
            Self::OutcomeUnknown => "The outcome of the first attempt is unknown",
            Self::Unavailable => "A requested part is not available",
            Self::ShuttingDown => "The server is shutting down",
            Self::StorageFull => "The disk is full",
            Self::Internal => "The server failed",
        }
    }
}

impl Problem {
    /// A problem of this kind; `detail` says what happened.
    pub fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
            hint: None,
            retry_after: None,
            facts: None,
        }
    }

    /// A request that cannot be read.
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::new(ProblemCode::InvalidRequest, detail)
    }

    /// A request with a value that cannot be used.
    pub fn unprocessable(detail: impl Into<String>) -> Self {
        Self::new(ProblemCode::Unprocessable, detail)
    }

    /// Says what the caller can do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Says after how many seconds a retry can succeed.
    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// Adds a fact.
    #[must_use]
    pub fn fact(mut self, name: &str, value: impl Into<Value>) -> Self {
        let facts = self.facts.get_or_insert_default();
        facts.insert(name.to_owned(), value.into());
        self
    }

    /// Whether the problem is of this kind.
    #[must_use]
    pub fn is(&self, code: ProblemCode) -> bool {
        self.code == code
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for Problem {}

impl From<Error> for Problem {
    fn from(err: Error) -> Self {
        let code = match err.kind() {
            ErrorKind::Usage | ErrorKind::Content => ProblemCode::Unprocessable,
            ErrorKind::Conflict => ProblemCode::Conflict,
            ErrorKind::Provider | ErrorKind::Isolation => ProblemCode::Unavailable,
            _ => ProblemCode::Internal,
        };
        let problem = Self::new(code, err.message());
        match err.advice() {
            Some(advice) => problem.hint(advice),
            None => problem,
        }
    }
}

impl From<StoreError> for Problem {
    fn from(err: StoreError) -> Self {
        let code = match err.kind {
            StoreErrorKind::NotFound => ProblemCode::NotFound,
            StoreErrorKind::Exists => ProblemCode::Conflict,
            StoreErrorKind::Locked => ProblemCode::Locked,
            StoreErrorKind::Full => ProblemCode::StorageFull,
            _ => ProblemCode::Internal,
        };
        let hint = match err.kind {
            StoreErrorKind::NotFound => Some("`GET /v1/sessions` lists the sessions"),
            StoreErrorKind::Full => Some("free some disk space; nothing was lost"),
            StoreErrorKind::Locked => {
                Some("wait until that process has ended, or use its own surface")
            }
            _ => None,
        };
        let problem = Self::new(code, err.message);
        match hint {
            Some(hint) => problem.hint(hint),
            None => problem,
        }
    }
}

impl From<EngineError> for Problem {
    fn from(err: EngineError) -> Self {
        match err {
            EngineError::Store(err) => err.into(),
            EngineError::NoSuchAsk(err) => Self::new(ProblemCode::NotFound, err.to_string())
                .hint("read the session: an ask can be answered once"),
            EngineError::Busy
            | EngineError::RunOpen
            | EngineError::NotPaused(_)
            | EngineError::NotBetweenRuns(_)
            | EngineError::InvalidQueueOrder { .. } => {
                Self::new(ProblemCode::Conflict, err.to_string())
            }
            EngineError::QueueFull(_) => Self::new(ProblemCode::TooManyRequests, err.to_string()),
            EngineError::Unfitting { .. } => Self::unprocessable(err.to_string()),
            EngineError::NoSuchEvent { .. } => Self::new(ProblemCode::NotFound, err.to_string()),
            other => Error::from(other).into(),
        }
    }
}

impl From<IdError> for Problem {
    fn from(err: IdError) -> Self {
        Self::invalid(err.to_string())
    }
}

impl From<std::io::Error> for Problem {
    fn from(err: std::io::Error) -> Self {
        let code = match err.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                ProblemCode::StorageFull
            }
            _ => ProblemCode::Internal,
        };
        Self::new(code, err.to_string())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn refusals_of_the_engine_are_not_failures_of_the_server() {
        let check = |err: EngineError, expect: ProblemCode| {
            let text = err.to_string();
            assert_eq!(Problem::from(err).code, expect, "{text}");
        };
        check(EngineError::RunOpen, ProblemCode::Conflict);
        check(EngineError::Busy, ProblemCode::Conflict);
        check(EngineError::NotPaused("none"), ProblemCode::Conflict);
        check(
            EngineError::InvalidQueueOrder {
                seq: 7,
                why: "is not queued",
            },
            ProblemCode::Conflict,
        );
        check(
            EngineError::NoSuchEvent {
                session: "s1".parse().unwrap(),
                at: 9,
                last: 3,
            },
            ProblemCode::NotFound,
        );
        check(EngineError::QueueFull(9), ProblemCode::TooManyRequests);
    }

    #[test]
    fn wrong_values_and_content_are_unprocessable() {
        for kind in [ErrorKind::Usage, ErrorKind::Content] {
            let problem = Problem::from(Error::new(kind, "x"));
            assert_eq!(problem.code.status(), 422);
        }
        assert_eq!(
            Problem::from(Error::new(ErrorKind::Failed, "x")).code,
            ProblemCode::Internal
        );
    }

    #[test]
    fn a_problem_has_the_fields_of_the_standard() {
        let problem = Problem::new(ProblemCode::NotFound, "there is no ask `a1`")
            .hint("read the session")
            .fact("ask", "a1");
        let json = serde_json::to_value(&problem).unwrap();
        assert_eq!(json["type"], "urn:windlass:problem:not-found");
        assert_eq!(json["status"], 404);
        assert_eq!(json["ask"], "a1");
        assert_eq!(serde_json::from_value::<Problem>(json).unwrap(), problem);
        assert!(problem.is(ProblemCode::NotFound));
    }
}
