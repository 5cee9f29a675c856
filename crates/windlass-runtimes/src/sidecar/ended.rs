//! How a sidecar says a turn ended, and what it says it took. Nothing of it is believed by anybody but the log.

use serde_json::Value;
use windlass_core::budget::Usage;

use super::options::SidecarOptions;
use crate::agent::{Answer, End};
use crate::json;
use crate::status::model_failed;

/// How much is shown of why a turn failed.
const SHOWN: usize = 2_000;

/// The answer in a `done` line. `last` are the last words that were said, for a turn that ends without its own.
pub(super) fn answer(
    done: &Value,
    last: String,
    options: &SidecarOptions,
    cancelled: bool,
) -> Answer {
    let end = end(done, options, cancelled);
    let (text, output) = match done.get("output") {
        Some(Value::String(text)) => (text.clone(), None),
        Some(Value::Null) | None => (last, None),
        Some(value) => (last, Some(value.clone())),
    };
    Answer { text, output, end }
}

fn end(done: &Value, options: &SidecarOptions, cancelled: bool) -> End {
    let status = json::text(done, "status");
    match status {
        _ if cancelled => End::Cancelled,
        "completed" => End::Done,
        "max_turns" => {
            let most = options
                .max_turns
                .map_or_else(|| "the most".to_owned(), |turns| turns.to_string());
            End::OwnLimit(format!(
                "it made {most} model calls, which is its `max_turns`; raise it, or leave it out"
            ))
        }
        "refused" => {
            let words = json::some_text(done, "output").filter(|words| !words.is_empty());
            let words = words.unwrap_or("its model declined, and does not say why");
            End::Refused(words.to_owned())
        }
        "error" => failed(done.get("error").unwrap_or(&Value::Null)),
        "cancelled" => End::Broken("it stopped half way by itself".to_owned()),
        other => End::Broken(format!(
            "its turn ended with `{}`, which is not known here",
            other.escape_debug()
        )),
    }
}

fn failed(error: &Value) -> End {
    let text = |key: &str| json::some_text(error, key).filter(|text| !text.is_empty());
    let message = text("message").unwrap_or("it does not say why");
    let message = message[..message.floor_char_boundary(SHOWN)].to_owned();
    if error["model"] == true {
        return model_failed(&error["status"], message);
    }
    End::Broken(format!(
        "its turn failed with {}: {message}",
        text("kind").unwrap_or("an error")
    ))
}

/// What a `usage` line says. Its input is all of it.
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
            Answer {
                end: End::Provider(err),
                ..
            } => format!("{} {:?}", err.kind.word(), err.status),
            Answer {
                end: End::Done,
                text,
                output,
            } => format!("done {text} {output:?}"),
            Answer { end, .. } => format!("{end:?}"),
        };
        assert!(text.contains(expect), "{text}");
    }

    #[test]
    fn ends_are_told_apart() {
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
            "OwnLimit(\"it made 4 model calls",
        );
        check(
            json!({"status": "refused", "output": "I will not."}),
            "Refused(\"I will not.\")",
        );
        check(json!({"status": "refused"}), "does not say why");
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
            "failed with an error: it does not say why",
        );
        check(json!({"status": "cancelled"}), "half way");
        check(json!({"status": "brand_new"}), "not known here");
        check(json!({}), "not known here");
    }

    #[test]
    fn what_came_from_a_cache_is_counted_once() {
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
