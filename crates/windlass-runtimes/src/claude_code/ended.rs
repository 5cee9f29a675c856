//! What Claude Code's last line of a turn says: how it ended, and what it says it spent. Nothing of it is believed by
//! anybody but the log.

use serde_json::Value;
use windlass_core::budget::Usage;

use crate::agent::{Answer, End, Reported};
use crate::dollars::micros;
use crate::json;
use crate::status::model_failed;

/// Reads the line. `cancelled` says that we told it to end.
pub(super) fn answer(line: &Value, cancelled: bool) -> Answer {
    let word = |key: &str| json::text(line, key);
    let text = word("result").to_owned();
    let failed = line["is_error"].as_bool().unwrap_or(true);
    let end = match (word("subtype"), word("terminal_reason")) {
        _ if cancelled => End::Cancelled,
        _ if word("stop_reason") == "refusal" => End::Refused(text.clone()),
        ("success", _) if !failed => End::Done,
        (_, "api_error") => {
            let said = Some(text.as_str()).filter(|text| !text.is_empty());
            let said = said.unwrap_or("its model could not be had").to_owned();
            model_failed(&line["api_error_status"], said)
        }
        (_, "aborted_streaming" | "aborted_tools") => {
            End::Broken("it stopped half way by itself".to_owned())
        }
        ("error_max_turns", _) => {
            End::OwnLimit(errors(line, "it made as many model calls as it may"))
        }
        ("error_max_budget_usd", _) => End::OwnLimit(errors(line, "it spent as much as it may")),
        // It never gave an answer in the schema. Whoever asked looks at its words and tells it so.
        ("error_max_structured_output_retries", _) => End::Done,
        (subtype, reason) => {
            let said = if text.is_empty() {
                errors(line, "without a word")
            } else {
                text.clone()
            };
            End::Broken(format!("it ended with `{subtype}` ({reason}): {said}"))
        }
    };
    let output = line
        .get("structured_output")
        .filter(|value| !value.is_null())
        .cloned();
    Answer { text, output, end }
}

/// What the turn cost, as the line says.
pub(super) fn reported(line: &Value, model: Option<&str>) -> Option<Reported> {
    let mut sum = Reported {
        model: model.map(str::to_owned),
        ..Reported::default()
    };
    // By model since the last such line, with the agents it started; the plain number has only the main one in it.
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
