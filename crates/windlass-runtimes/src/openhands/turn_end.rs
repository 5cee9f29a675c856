//! The end of a turn of OpenHands, and the reported usage. Only the log uses the numbers unchecked.

use serde_json::Value;
use windlass_core::budget::Usage;
use windlass_core::provider::ProviderErrorKind;

use crate::agent::{ReportedUsage, TurnEndReason};
use crate::dollars::micros;
use crate::json;
use crate::status::model_error;

/// The end of a turn by the state of the conversation; `None` while it runs, or waits for a decision. `error` is the
/// last reported error.
pub(super) fn end(status: &str, error: Option<&Value>, cancelled: bool) -> Option<TurnEndReason> {
    Some(match status {
        "running" | "waiting_for_confirmation" => return None,
        _ if cancelled => TurnEndReason::Cancelled,
        "finished" => TurnEndReason::Done,
        "error" => failed(error),
        "stuck" => TurnEndReason::OwnLimit("the agent detected that it repeats itself".to_owned()),
        "paused" | "idle" => {
            TurnEndReason::Broken("the agent stopped in the middle of the turn".to_owned())
        }
        other => TurnEndReason::Broken(format!(
            "the turn ended with the unknown status `{}`",
            other.escape_debug()
        )),
    })
}

fn failed(error: Option<&Value>) -> TurnEndReason {
    let Some(error) = error else {
        return TurnEndReason::Broken("the turn failed without a reason".to_owned());
    };
    let text = |of: &Value, key: &str| json::text(of, key).to_owned();
    let (code, detail) = (text(error, "code"), text(error, "detail"));
    let message = format!("OpenHands reports: {}", clip(&detail));
    let family = text(&error["classification"], "kind");
    let kind = match (code.as_str(), family.as_str()) {
        ("MaxIterationsReached" | "MaxBudgetReached", _) => {
            return TurnEndReason::OwnLimit(clip(&detail).to_owned());
        }
        ("LLMContextWindowExceedError", _) => ProviderErrorKind::ContextLength,
        ("LLMBadRequestError", _) => ProviderErrorKind::InvalidRequest,
        ("LLMTimeoutError", _) => ProviderErrorKind::Network {
            transient: true,
            sent: false,
        },
        (_, "auth") => ProviderErrorKind::Authentication,
        (_, "rate_limit" | "quota") => ProviderErrorKind::RateLimited { retry_after: None },
        ("LLMServiceUnavailableError" | "LLMNoResponseError" | "LLMError", _) => {
            ProviderErrorKind::Unavailable { retry_after: None }
        }
        (_, "transient") => ProviderErrorKind::Unavailable { retry_after: None },
        _ => {
            return TurnEndReason::Broken(format!(
                "the turn failed with {code}: {}",
                clip(&detail)
            ));
        }
    };
    model_error(kind, message)
}

fn clip(text: &str) -> &str {
    &text[..text.floor_char_boundary(2_000)]
}

/// The total usage of a conversation so far, so that only the difference is reported.
#[derive(Debug, Default)]
pub(super) struct OpenHandsUsage {
    usage: Usage,
    cost_micros: u64,
}

impl OpenHandsUsage {
    /// The difference to the last count of the whole conversation.
    pub(super) fn more(&mut self, stats: &Value) -> Option<ReportedUsage> {
        let all = stats.get("usage_to_metrics").and_then(Value::as_object)?;
        let (mut usage, mut cost_micros, mut model) = (Usage::default(), 0_u64, None);
        for metrics in all.values() {
            usage.add(tokens(&metrics["accumulated_token_usage"]));
            let cost = metrics["accumulated_cost"].as_f64().unwrap_or_default();
            cost_micros = cost_micros.saturating_add(micros(cost).unwrap_or_default());
            model = model.or_else(|| json::some_text(metrics, "model_name").map(without_vendor));
        }
        let more = ReportedUsage {
            usage: usage.since(self.usage),
            cost_micros: cost_micros
                .checked_sub(self.cost_micros)
                .filter(|more| *more > 0),
            model,
        };
        (self.usage, self.cost_micros) = (usage, cost_micros);
        (more.usage != Usage::default() || more.cost_micros.is_some()).then_some(more)
    }
}

/// A model name without its vendor.
fn without_vendor(name: &str) -> String {
    name.split_once('/')
        .map_or(name, |(_, bare)| bare)
        .to_owned()
}

fn tokens(from: &Value) -> Usage {
    let number = |key: &str| json::number(from, key);
    let (read, written) = (number("cache_read_tokens"), number("cache_write_tokens"));
    let output = number("completion_tokens");
    Usage::of_prompt(number("prompt_tokens"), read, written, output)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(status: &str, error: Value, expect: &str) {
        let error = Some(&error).filter(|error| !error.is_null());
        let end = end(status, error, false);
        let text = match end {
            None => "continues".to_owned(),
            Some(TurnEndReason::Provider(err)) => format!("{:?}", err.kind),
            Some(end) => format!("{end:?}"),
        };
        assert!(text.contains(expect), "{text}");
    }

    #[test]
    fn states_and_errors_become_ends() {
        check("running", Value::Null, "continues");
        check("waiting_for_confirmation", Value::Null, "continues");
        check("finished", Value::Null, "Done");
        check("stuck", Value::Null, "OwnLimit");
        check("paused", Value::Null, "Broken");
        check("deleting", Value::Null, "the unknown status `deleting`");
        check("error", Value::Null, "without a reason");
        check(
            "error",
            json!({"code": "MaxIterationsReached", "detail": "20"}),
            "OwnLimit(\"20\")",
        );
        check(
            "error",
            json!({"code": "KeyError", "detail": "x"}),
            "the turn failed with KeyError: x",
        );
        check(
            "error",
            json!({"code": "LLMServiceUnavailableError", "detail": "x"}),
            "Unavailable",
        );
        check(
            "error",
            json!({"code": "LLMContextWindowExceedError", "detail": "x"}),
            "ContextLength",
        );
        check(
            "error",
            json!({"code": "OpenAIError", "classification": {"kind": "auth"}}),
            "Authentication",
        );
        check(
            "error",
            json!({"code": "LLMRateLimitError", "classification": {"kind": "rate_limit"}}),
            "RateLimited",
        );
        assert_eq!(end("error", None, true), Some(TurnEndReason::Cancelled));
    }

    #[test]
    fn only_new_usage_is_reported() {
        let stats = |prompt: u64, cost: f64| {
            json!({"usage_to_metrics": {
                "agent": {"model_name": "openai/m", "accumulated_cost": cost, "accumulated_token_usage":
                    {"prompt_tokens": prompt, "completion_tokens": 30, "cache_read_tokens": 1_000}},
                "condenser": {"model_name": "openai/m", "accumulated_cost": 0.0, "accumulated_token_usage": null},
            }})
        };
        let mut meter = OpenHandsUsage::default();
        let first = meter.more(&stats(1_200, 0.004_05)).unwrap_or_default();
        assert_eq!(
            first.usage,
            Usage {
                input: 200,
                cache_read: 1_000,
                cache_write: 0,
                output: 30
            }
        );
        assert_eq!(
            (first.cost_micros, first.model.as_deref()),
            (Some(4_050), Some("m"))
        );
        assert_eq!(meter.more(&stats(1_200, 0.004_05)), None);
        let next = meter.more(&stats(1_300, 0.005)).unwrap_or_default();
        assert_eq!((next.usage.input, next.cost_micros), (100, Some(950)));
        assert_eq!(meter.more(&json!({})), None);
    }
}
