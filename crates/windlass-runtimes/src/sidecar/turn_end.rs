//! The end of a turn of a sidecar, and the reported usage. Only the log uses the numbers unchecked.

use serde_json::Value;
use windlass_core::budget::Usage;

use super::options::SidecarOptions;
use crate::agent::{AgentAnswer, TurnEndReason};
use crate::json;
use crate::status::model_failed;

/// Bytes of an error message.
const MAX_QUOTED: usize = 2_000;

/// The answer in a `done` line. `last` is the last message, for a `done` line without output.
pub(super) fn answer(
    done: &Value,
    last: String,
    options: &SidecarOptions,
    cancelled: bool,
) -> AgentAnswer {
    let end = end(done, options, cancelled);
    let (text, output) = match done.get("output") {
        Some(Value::String(text)) => (text.clone(), None),
        Some(Value::Null) | None => (last, None),
        Some(value) => (last, Some(value.clone())),
    };
    AgentAnswer { text, output, end }
}

fn end(done: &Value, options: &SidecarOptions, cancelled: bool) -> TurnEndReason {
    let status = json::text(done, "status");
    match status {
        _ if cancelled => TurnEndReason::Cancelled,
        "completed" => TurnEndReason::Done,
        "max_turns" => {
            let most = options.max_turns.map_or_else(
                || "the maximum number of".to_owned(),
                |turns| turns.to_string(),
            );
            TurnEndReason::OwnLimit(format!(
                "the turn made {most} model calls, the limit of `max_turns`; raise or remove the limit"
            ))
        }
        "refused" => {
            let words = json::some_text(done, "output").filter(|words| !words.is_empty());
            let words = words.unwrap_or("the agent's model refused the task without a reason");
            TurnEndReason::Refused(words.to_owned())
        }
        "error" => failed(done.get("error").unwrap_or(&Value::Null)),
        "cancelled" => {
            TurnEndReason::Broken("the agent stopped in the middle of the turn".to_owned())
        }
        other => TurnEndReason::Broken(format!(
            "the turn ended with the unknown status `{}`",
            other.escape_debug()
        )),
    }
}

fn failed(error: &Value) -> TurnEndReason {
    let text = |key: &str| json::some_text(error, key).filter(|text| !text.is_empty());
    let message = text("message").unwrap_or("no reason given");
    let message = message[..message.floor_char_boundary(MAX_QUOTED)].to_owned();
    if error["model"] == true {
        return model_failed(&error["status"], message);
    }
    TurnEndReason::Broken(format!(
        "the turn failed with {}: {message}",
        text("kind").unwrap_or("an error")
    ))
}

/// The tokens of a `usage` line. Its input includes cached tokens.
pub(super) fn usage(line: &Value) -> Usage {
    let number = |key: &str| json::number(line, key);
    let (input, cached) = (number("input_tokens"), number("cached_input_tokens"));
    Usage::of_prompt(input, cached, 0, number("output_tokens"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(done: Value, expect: &str) {
        let options = SidecarOptions {
            max_turns: Some(4),
            ..SidecarOptions::default()
        };
        let text = match answer(&done, "last".to_owned(), &options, false) {
            AgentAnswer {
                end: TurnEndReason::Provider(err),
                ..
            } => format!("{} {:?}", err.kind.word(), err.status),
            AgentAnswer {
                end: TurnEndReason::Done,
                text,
                output,
            } => format!("done {text} {output:?}"),
            AgentAnswer { end, .. } => format!("{end:?}"),
        };
        assert!(text.contains(expect), "{text}");
    }

    #[test]
    fn ends_are_distinguished() {
        check(
            json!({"status": "completed", "output": "Hello."}),
            "done Hello. None",
        );
        check(
            json!({"status": "completed", "output": null}),
            "done last None",
        );
        check(
            json!({"status": "completed", "output": {"answer": 42}}),
            r#"done last Some(Object {"answer": Number(42)})"#,
        );
        check(
            json!({"status": "max_turns"}),
            "OwnLimit(\"the turn made 4 model calls",
        );
        check(
            json!({"status": "refused", "output": "I will not."}),
            "Refused(\"I will not.\")",
        );
        check(json!({"status": "refused"}), "without a reason");
        check(
            json!({"status": "error", "error": {"message": "no", "model": true, "status": 429}}),
            "rate_limited Some(429)",
        );
        check(
            json!({"status": "error", "error": {"message": "no", "model": true, "status": null}}),
            "network None",
        );
        check(
            json!({"status": "error", "error": {"kind": "UserError", "message": "no"}}),
            "failed with UserError: no",
        );
        check(
            json!({"status": "error"}),
            "failed with an error: no reason given",
        );
        check(json!({"status": "cancelled"}), "in the middle");
        check(json!({"status": "brand_new"}), "the unknown status");
        check(json!({}), "the unknown status");
    }

    #[test]
    fn cached_tokens_are_counted_once() {
        let line = json!({"input_tokens": 1200, "cached_input_tokens": 1000, "output_tokens": 30});
        assert_eq!(
            usage(&line),
            Usage {
                input: 200,
                cache_read: 1000,
                cache_write: 0,
                output: 30
            }
        );
        assert_eq!(
            usage(&json!({"input_tokens": 1, "cached_input_tokens": 9})).input,
            0
        );
    }
}
