//! An MCP server over its standard streams with one tool, which answers with a marker that the kit chose and the word it
//! was called with: whoever has that answer has called it. It touches nothing.

use std::io::BufRead as _;

use serde_json::{Value, json};

use crate::peer::raw;

/// The revisions that are spoken here; their names are in the order of time.
const OLDEST: &str = "2024-11-05";
const NEWEST: &str = "2025-11-25";
/// What is offered to those who ask for another.
const USUAL: &str = "2025-06-18";

/// The tool, and its argument.
const TOOL: &str = "kit_marker";
const ARGUMENT: &str = "word";

const NO_METHOD: i32 = -32601;
const BAD_PARAMS: i32 = -32602;

/// Answers until the other side is gone.
pub(crate) fn serve(marker: &str) {
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let Ok(message) = serde_json::from_str::<Value>(&line) else {
            continue;
        };
        if let Some(answer) = answer(&message, marker) {
            raw(format!("{answer}\n").as_bytes());
        }
    }
}

/// The answer to a request; none to a notification.
fn answer(message: &Value, marker: &str) -> Option<Value> {
    let (id, method) = (message.get("id")?, message["method"].as_str()?);
    let params = &message["params"];
    let answered = match method {
        "initialize" => Ok(json!({
            "protocolVersion": revision(&params["protocolVersion"]),
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "windlass-kit", "version": env!("CARGO_PKG_VERSION") },
        })),
        "ping" => Ok(json!({})),
        "tools/list" => Ok(json!({ "tools": [{
            "name": TOOL,
            "description": "Answers with a marker.",
            "inputSchema": {
                "type": "object", "properties": { ARGUMENT: { "type": "string" } }, "required": [ARGUMENT],
            },
        }] })),
        "tools/call" if params["name"] != TOOL => Err((BAD_PARAMS, "there is no such tool")),
        "tools/call" => Ok(match params["arguments"][ARGUMENT].as_str() {
            Some(word) => result(&format!("{marker}-{word}"), false),
            None => result("the word is missing", true),
        }),
        _ => Err((NO_METHOD, "there is no such method")),
    };
    Some(match answered {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err((code, why)) => {
            json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": why } })
        }
    })
}

/// The revision that was asked for, where it is spoken.
fn revision(asked: &Value) -> &str {
    asked
        .as_str()
        .filter(|asked| (OLDEST..=NEWEST).contains(asked))
        .unwrap_or(USUAL)
}

fn result(text: &str, is_error: bool) -> Value {
    json!({ "content": [{ "type": "text", "text": text }], "isError": is_error })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(message: Value, at: &str, expect: Value) {
        let found = answer(&message, "M").unwrap_or_default();
        assert_eq!(
            found.pointer(at).cloned().unwrap_or_default(),
            expect,
            "{found}"
        );
    }

    #[test]
    fn it_speaks_the_revision_that_it_is_asked_for() {
        let hello = |asked: &str| json!({ "id": 0, "method": "initialize", "params": { "protocolVersion": asked } });
        for (asked, expect) in [
            ("2024-11-05", "2024-11-05"),
            ("2025-11-25", "2025-11-25"),
            ("2024-10-07", "2025-06-18"),
            ("2026-07-28", "2025-06-18"),
            ("", "2025-06-18"),
        ] {
            check(hello(asked), "/result/protocolVersion", json!(expect));
        }
    }

    #[test]
    fn its_tool_answers_with_the_marker_and_the_word() {
        let call = |params: Value| json!({ "jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": params });
        let word = json!({ "name": TOOL, "arguments": { "word": "here" } });
        check(
            call(word.clone()),
            "/result/content/0/text",
            json!("M-here"),
        );
        check(call(word), "/id", json!("c"));
        check(
            call(json!({ "name": TOOL, "arguments": {} })),
            "/result/isError",
            json!(true),
        );
        check(
            call(json!({ "name": "other" })),
            "/error/code",
            json!(-32602),
        );
        check(
            json!({ "id": 1, "method": "tools/list" }),
            "/result/tools/0/name",
            json!("kit_marker"),
        );
    }

    #[test]
    fn what_it_does_not_know_is_an_error_and_what_wants_no_answer_gets_none() {
        check(
            json!({ "id": 1, "method": "server/discover" }),
            "/error/code",
            json!(-32601),
        );
        check(
            json!({ "id": 1, "method": "resources/list" }),
            "/error/code",
            json!(-32601),
        );
        check(json!({ "id": 1, "method": "ping" }), "/result", json!({}));
        assert_eq!(
            answer(&json!({ "method": "notifications/initialized" }), "M"),
            None
        );
        assert_eq!(answer(&json!({ "id": 1, "result": {} }), "M"), None);
    }
}
