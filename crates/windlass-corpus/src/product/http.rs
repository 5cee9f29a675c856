//! The interface of `windlass serve`: its flags, routes, bodies, and the files that a client of the same user reads.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::fixture::CaseFixture;

/// The text before the URL in the standard error of a server that accepts requests.
const LISTENING: &str = "listening on http://";

/// Returns the arguments of a server for workspaces in these directories.
pub(crate) fn server_args(roots: &[PathBuf]) -> Vec<String> {
    let mut args = ["serve", "--port", "0"].map(str::to_owned).to_vec();
    for root in roots {
        args.extend(["--root".to_owned(), root.display().to_string()]);
    }
    args
}

/// Returns the arguments of a server on this address.
pub(crate) fn bind_args(bind: &SocketAddr) -> Vec<String> {
    let (ip, port) = (bind.ip().to_string(), bind.port().to_string());
    ["serve", "--bind", &ip, "--port", &port]
        .map(str::to_owned)
        .to_vec()
}

/// Returns the settings of a server with a model on loopback.
pub(crate) fn model_settings(url: &str) -> String {
    format!(
        "model = \"anthropic/some-model\"\n[providers.anthropic]\nbase_url = {}\n",
        json!(url)
    )
}

/// Returns the address in a line that the server prints when it accepts requests.
pub(crate) fn listening_address(line: &str) -> Option<SocketAddr> {
    line.trim().strip_prefix(LISTENING)?.parse().ok()
}

/// Returns the file with the main token.
pub(crate) fn token_file(fixture: &CaseFixture) -> PathBuf {
    fixture.state().join("server").join("token")
}

/// The session and the ask that a request is about.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestTarget {
    pub(crate) session: String,
    pub(crate) ask: String,
}

/// Returns the path of an endpoint of the corpus.
pub(crate) fn path(endpoint: &str, target: &RequestTarget) -> Result<String, String> {
    let RequestTarget { session, ask } = target;
    Ok(match endpoint {
        "create_session" | "list_sessions" => "/v1/sessions".to_owned(),
        "read_session" => format!("/v1/sessions/{session}"),
        "events" => format!("/v1/sessions/{session}/events"),
        "read_file" => format!("/v1/sessions/{session}/file"),
        "approve" => format!("/v1/sessions/{session}/asks/{ask}"),
        "send_message" => format!("/v1/sessions/{session}/runs"),
        "websocket" => "/v1/events".to_owned(),
        other => return Err(format!("`{other}` is not a known endpoint")),
    })
}

/// Returns the headers that clients of an endpoint send.
pub(crate) fn headers(endpoint: &str) -> &'static [(&'static str, &'static str)] {
    match endpoint {
        "events" => &[("accept", "text/event-stream")],
        "websocket" => &[
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ],
        _ => &[],
    }
}

/// Returns the body of an answer for a decision of the corpus.
pub(crate) fn answer(decision: &str) -> Result<Value, String> {
    match decision {
        "allow" => Ok(json!({ "answer": "once" })),
        "deny" => Ok(json!({ "answer": "no" })),
        other => Err(format!("`{other}` is not a decision about an ask")),
    }
}

/// Returns the decision of the corpus that an `answered` event contains.
pub(crate) fn answered(event: &Value) -> &'static str {
    match event["data"]["answer"]["is"].as_str() {
        Some("once" | "always") => "allow",
        _ => "deny",
    }
}

/// Returns the body of a request that creates a session, and starts a run if there is a prompt.
pub(crate) fn new_session(workspace: &Path, prompt: Option<&str>) -> Value {
    match prompt {
        Some(prompt) => {
            json!({ "workspace": workspace, "prompt": prompt, "options": asking_run() })
        }
        None => json!({ "workspace": workspace }),
    }
}

/// Returns the options of a run that asks before every call.
fn asking_run() -> Value {
    json!({ "in_place": true, "approval": "ask" })
}

/// Returns the route and the body of a request that adds a token for one workspace.
pub(crate) fn new_token(name: &str, workspace: &Path) -> (&'static str, Value) {
    let body = json!({ "name": name, "scopes": ["read", "run"], "workspaces": [workspace] });
    ("/v1/tokens", body)
}

/// Returns whether the metrics of the server say that no run is in progress.
pub(crate) fn is_idle(metrics: &str) -> bool {
    metrics
        .lines()
        .any(|line| line == "windlass_runs_in_progress 0")
}
