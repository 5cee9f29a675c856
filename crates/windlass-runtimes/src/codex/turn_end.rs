//! The end of a turn of Codex, and the reported usage. Only the log uses the numbers unchecked.

use serde_json::Value;
use windlass_core::budget::Usage;
use windlass_core::provider::ProviderErrorKind;

use crate::agent::TurnEndReason;
use crate::json;
use crate::status::{model_error, model_failed};

/// The end of a turn. `error` is the last reported error, for a turn without one of its own.
pub(super) fn end(turn: &Value, error: Option<&Value>, cancelled: bool) -> TurnEndReason {
    let status = json::text(turn, "status");
    match status {
        _ if cancelled => TurnEndReason::Cancelled,
        "completed" => TurnEndReason::Done,
        "interrupted" => {
            TurnEndReason::Broken("the agent stopped in the middle of the turn".to_owned())
        }
        "failed" => failed(turn.get("error").filter(|error| !error.is_null()).or(error)),
        other => TurnEndReason::Broken(format!(
            "the turn ended with the unknown status `{}`",
            other.escape_debug()
        )),
    }
}

/// The end of a turn that failed with this error.
pub(super) fn failed(error: Option<&Value>) -> TurnEndReason {
    let Some(error) = error else {
        return TurnEndReason::Broken("the turn failed without a reason".to_owned());
    };
    let message = json::some_text(error, "message")
        .unwrap_or("no reason given")
        .to_owned();
    let info = error.get("codexErrorInfo").unwrap_or(&Value::Null);
    if let Some(status) = info
        .as_object()
        .and_then(|info| info.values().next()?.get("httpStatusCode"))
    {
        return model_failed(status, message);
    }
    let provider = match info.as_str().unwrap_or_default() {
        "contextWindowExceeded" => ProviderErrorKind::ContextLength,
        "usageLimitExceeded" | "rateLimitExceeded" => {
            ProviderErrorKind::RateLimited { retry_after: None }
        }
        "serverOverloaded"
        | "flexUnavailable"
        | "policyCapacityUnavailable"
        | "internalServerError" => ProviderErrorKind::Unavailable { retry_after: None },
        "modelNotFound" => ProviderErrorKind::ModelNotFound,
        "unauthorized" => ProviderErrorKind::Authentication,
        "badRequest" => ProviderErrorKind::InvalidRequest,
        "cyberPolicy" | "misalignmentPolicyViolation" => return TurnEndReason::Refused(message),
        "sessionBudgetExceeded" | "tooManyDenials" => return TurnEndReason::OwnLimit(message),
        _ => return TurnEndReason::Broken(format!("the turn failed: {message}")),
    };
    model_error(provider, message)
}

/// The total usage of a conversation so far, so that only the difference is booked.
#[derive(Debug, Default)]
pub(super) struct CodexUsage {
    total: Option<Usage>,
}

impl CodexUsage {
    /// The difference to the last count of the whole conversation. `ours` tells whether the count belongs to the
    /// current turn; earlier usage is booked already.
    pub(super) fn more(&mut self, count: &Value, ours: bool) -> Option<Usage> {
        let total = usage(count.get("total")?);
        let before = match self.total.replace(total) {
            Some(before) => before,
            None => total.since(count.get("last").map(usage).unwrap_or_default()),
        };
        Some(total.since(before)).filter(|_| ours)
    }
}

fn usage(from: &Value) -> Usage {
    let number = |key: &str| json::number(from, key);
    let (read, written) = (number("cachedInputTokens"), number("cacheWriteInputTokens"));
    Usage::of_prompt(number("inputTokens"), read, written, number("outputTokens"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(info: Value, expect: &str) {
        let turn = json!({"status": "failed", "error": {"message": "no", "codexErrorInfo": info}});
        let text = match end(&turn, None, false) {
            TurnEndReason::Provider(err) => format!("{} {:?}", err.kind.word(), err.status),
            other => format!("{other:?}"),
        };
        assert_eq!(text, expect);
    }

    #[test]
    fn error_kinds_are_distinguished() {
        check(json!("internalServerError"), "unavailable None");
        check(
            json!({"responseStreamConnectionFailed": {"httpStatusCode": 429}}),
            "rate_limited Some(429)",
        );
        check(
            json!({"httpConnectionFailed": {"httpStatusCode": null}}),
            "network None",
        );
        check(json!("contextWindowExceeded"), "context_length None");
        check(json!("cyberPolicy"), "Refused(\"no\")");
        check(json!("tooManyDenials"), "OwnLimit(\"no\")");
        check(json!("brandNew"), "Broken(\"the turn failed: no\")");
        check(json!(null), "Broken(\"the turn failed: no\")");
    }

    #[test]
    fn only_new_usage_is_booked() {
        let count = |total: u64, last: u64| {
            json!({"total": {"inputTokens": total, "cachedInputTokens": total / 2, "outputTokens": 1},
                   "last": {"inputTokens": last, "cachedInputTokens": last / 2, "outputTokens": 1}})
        };
        let input = |usage: Option<Usage>| usage.map(|usage| usage.total_input());
        let mut meter = CodexUsage::default();
        // A resumed conversation: most of its usage is booked already.
        assert_eq!(input(meter.more(&count(1_000, 100), true)), Some(100));
        assert_eq!(input(meter.more(&count(1_300, 300), true)), Some(300));
        assert_eq!(input(meter.more(&count(1_300, 300), true)), Some(0));
        let mut meter = CodexUsage::default();
        assert_eq!(input(meter.more(&count(1_000, 100), false)), None);
        assert_eq!(input(meter.more(&count(1_050, 50), true)), Some(50));
    }
}
