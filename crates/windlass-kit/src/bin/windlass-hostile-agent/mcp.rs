//! An MCP server over stdin and stdout with one tool. The tool answers with the kit's random marker and its argument,
//! so that the answer proves the call.

use std::io::BufRead as _;

use serde_json::{Value, json};

use crate::acp_client::raw;

/// The supported protocol revisions; they compare chronologically.
const OLDEST: &str = "2024-11-05";
const NEWEST: &str = "2025-11-25";
/// The revision that is offered if the client requests an unsupported one.
const DEFAULT: &str = "2025-06-18";

// The name of the tool and of its argument.
const TOOL: &str = "kit_marker";
const ARGUMENT: &str = "word";

const NO_METHOD: i32 = -32601;
const BAD_PARAMS: i32 = -32602;

/// Answers requests until stdin closes.
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

/// Returns the answer to a request, or `None` for a notification.
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
        "tools/call" if params["name"] != TOOL => Err((BAD_PARAMS, "unknown tool")),
        "tools/call" => Ok(match params["arguments"][ARGUMENT].as_str() {
            Some(word) => result(&format!("{marker}-{word}"), false),
            None => result("the word is missing", true),
        }),
        _ => Err((NO_METHOD, "unknown method")),
    };
    Some(match answered {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err((code, why)) => {
            json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": why } })
        }
    })
}

/// Returns the requested revision, if it is supported.
fn revision(asked: &Value) -> &str {
    asked
        .as_str()
        .filter(|asked| (OLDEST..=NEWEST).contains(asked))
        .unwrap_or(DEFAULT)
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
    fn the_requested_revision_is_used_if_supported() {
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
    fn unknown_methods_are_errors_and_notifications_get_no_answer() {
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
