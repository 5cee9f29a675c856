//! The scenario with an MCP server: the kit's own server has one tool with a random answer.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use serde_json::json;

use super::{ScenarioContext, ScenarioResult, ScenarioSetup, ended, has, say, write};
use crate::contract::billed;
use crate::holds;
use crate::product::{FinishedRun, RunRequest};
use windlass_scripted::Move;

/// The tool of the kit's server, and its argument.
const TOOL: &str = "kit_marker";
const WORD: &str = "windlass";

pub(crate) fn mcp(context: &ScenarioContext<'_>) -> ScenarioResult {
    let call = Move::Call {
        tool: TOOL.to_owned(),
        args: json!({ "word": WORD }),
    };
    let setup = ScenarioSetup::new(context, |_| {
        vec![call, write("after.txt", "after\n"), say("Marked.")]
    })?;
    let marker = format!("kit-{:016x}", RandomState::new().build_hasher().finish());
    let program = context.hostile.display().to_string();
    let servers =
        json!({ "kit": { "command": program, "args": ["mcp", format!("marker={marker}")] } });
    let ran = setup.run(&RunRequest {
        options: format!("mcp_servers = {}\n", json!(servers.to_string())),
        // The server runs inside the agent's sandbox, so its program must be readable there.
        tables: format!("[sandbox]\nread = {}\n", json!([program])),
        ..RunRequest::default()
    })?;
    setup.judge(&ran, || {
        ended(&ran, "completed", 0)?;
        has(&setup.scratch, "after.txt", "after\n")?;
        let answer = format!("{marker}-{WORD}");
        let reached = setup
            .server
            .seen()
            .iter()
            .any(|seen| seen.body.contains(&answer));
        holds(reached, || {
            "the answer of the server's tool did not reach the model".to_owned()
        })?;
        logged(&ran)?;
        billed(&ran, &setup.server)
    })
}

/// Checks that the call and its result are in the log, and that the gate decided about it if the agent asks before
/// calls.
fn logged(ran: &FinishedRun) -> Result<(), String> {
    let named = |name: &str| name.ends_with(TOOL);
    let begun = ran
        .of("call_started")
        .find(|event| event["data"]["call"]["name"].as_str().is_some_and(named));
    let begun =
        begun.ok_or_else(|| "the call of the server's tool is not in the log".to_owned())?;
    let judged = ran
        .of("transaction_opened")
        .all(|event| event["data"]["gate"] == "per_call");
    let rule = begun["data"]["rule"].as_str().unwrap_or_default();
    holds(!judged || !rule.contains("did not ask"), || {
        format!("the gate did not decide about the call: {rule}")
    })?;
    let id = &begun["data"]["call"]["id"];
    let ended = ran
        .of("call_finished")
        .any(|event| event["data"]["result"]["id"] == *id);
    holds(ended, || {
        format!("the call {id} of the server's tool has no result in the log")
    })
}
