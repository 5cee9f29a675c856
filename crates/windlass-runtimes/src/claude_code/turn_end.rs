//! The last line of a turn of Claude Code: the end of the turn, and the reported usage. Only the log uses the numbers
//! unchecked.

use serde_json::Value;
use windlass_core::budget::Usage;

use crate::agent::{AgentAnswer, ReportedUsage, TurnEndReason};
use crate::dollars::micros;
use crate::json;
use crate::status::model_failed;

/// Parses the last line. `cancelled` tells whether the engine interrupted the turn.
pub(super) fn answer(line: &Value, cancelled: bool) -> AgentAnswer {
    let word = |key: &str| json::text(line, key);
    let text = word("result").to_owned();
    let failed = line["is_error"].as_bool().unwrap_or(true);
    let end = match (word("subtype"), word("terminal_reason")) {
        _ if cancelled => TurnEndReason::Cancelled,
        _ if word("stop_reason") == "refusal" => TurnEndReason::Refused(text.clone()),
        ("success", _) if !failed => TurnEndReason::Done,
        (_, "api_error") => {
            let message = Some(text.as_str()).filter(|text| !text.is_empty());
            let message = message.unwrap_or("the model request failed").to_owned();
            model_failed(&line["api_error_status"], message)
        }
        (_, "aborted_streaming" | "aborted_tools") => {
            TurnEndReason::Broken("the agent stopped in the middle of the turn".to_owned())
        }
        ("error_max_turns", _) => TurnEndReason::OwnLimit(errors(
            line,
            "the maximum number of model calls was reached",
        )),
        ("error_max_budget_usd", _) => {
            TurnEndReason::OwnLimit(errors(line, "the spending limit of the agent was reached"))
        }
        // The agent never produced an answer in the schema. The runtime checks the text and asks again.
        ("error_max_structured_output_retries", _) => TurnEndReason::Done,
        (subtype, reason) => {
            let message = if text.is_empty() {
                errors(line, "no message")
            } else {
                text.clone()
            };
            TurnEndReason::Broken(format!(
                "the turn ended with `{subtype}` ({reason}): {message}"
            ))
        }
    };
    let output = line
        .get("structured_output")
        .filter(|value| !value.is_null())
        .cloned();
    AgentAnswer { text, output, end }
}

/// The usage of the turn, as the line reports it.
pub(super) fn reported(line: &Value, model: Option<&str>) -> Option<ReportedUsage> {
    let mut sum = ReportedUsage {
        model: model.map(str::to_owned),
        ..ReportedUsage::default()
    };
    // This field has all models since the last result, including those of subagents. The plain `usage` only has the
    // main agent.
    if let Some(models) = line["model_usage_since_last_result"].as_object() {
        let mut cost = 0.0;
        for one in models.values() {
            sum.usage.add(Usage {
                input: json::number(one, "inputTokens"),
                cache_read: json::number(one, "cacheReadInputTokens"),
                cache_write: json::number(one, "cacheCreationInputTokens"),
                output: json::number(one, "outputTokens"),
            });
            cost += one["costUSD"].as_f64().unwrap_or_default();
        }
        sum.cost_micros = micros(cost).filter(|_| !models.is_empty());
        return Some(sum);
    }
    let usage = line.get("usage")?;
    sum.usage = Usage {
        input: json::number(usage, "input_tokens"),
        cache_read: json::number(usage, "cache_read_input_tokens"),
        cache_write: json::number(usage, "cache_creation_input_tokens"),
        output: json::number(usage, "output_tokens"),
    };
    Some(sum)
}

fn errors(line: &Value, otherwise: &str) -> String {
    let all: Vec<&str> = json::items(line, "errors")
        .filter_map(Value::as_str)
        .collect();
    if all.is_empty() {
        otherwise.to_owned()
    } else {
        all.join("; ")
    }
}
