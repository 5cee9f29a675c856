//! MCP servers that an agent is given: the kit's own, with one tool whose answer nobody can guess.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use serde_json::json;

use super::{Judged, Stage, Trial, ended, has, say, write};
use crate::contract::billed;
use crate::holds;
use crate::product::{Ask, Ran};
use windlass_scripted::Move;

/// The tool of the kit's server, and the word that it is called with.
const TOOL: &str = "kit_marker";
const WORD: &str = "windlass";

pub(crate) fn mcp(stage: &Stage<'_>) -> Judged {
    let call = Move::Call {
        tool: TOOL.to_owned(),
        args: json!({ "word": WORD }),
    };
    let trial = Trial::new(stage, |_| {
        vec![call, write("after.txt", "after\n"), say("Marked.")]
    })?;
    let marker = format!("kit-{:016x}", RandomState::new().build_hasher().finish());
    let program = stage.hostile.display().to_string();
    let servers =
        json!({ "kit": { "command": program, "args": ["mcp", format!("marker={marker}")] } });
    let ran = trial.run(&Ask {
        options: format!("mcp_servers = {}\n", json!(servers.to_string())),
        // The server runs where the agent runs, so its program is shown there.
        tables: format!("[sandbox]\nread = {}\n", json!([program])),
        ..Ask::default()
    })?;
    trial.judge(&ran, || {
        ended(&ran, "completed", 0)?;
        has(&trial.place, "after.txt", "after\n")?;
        let answer = format!("{marker}-{WORD}");
        let reached = trial
            .server
            .seen()
            .iter()
            .any(|seen| seen.body.contains(&answer));
        holds(reached, || {
            "the answer of the server's tool did not reach the model".to_owned()
        })?;
        logged(&ran)?;
        billed(&ran, &trial.server)
    })
}

/// The call is in the log, from its begin to its end, and was judged where calls of this agent are.
fn logged(ran: &Ran) -> Result<(), String> {
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
        format!("the call was not judged: {rule}")
    })?;
    let id = &begun["data"]["call"]["id"];
    let ended = ran
        .of("call_finished")
        .any(|event| event["data"]["result"]["id"] == *id);
    holds(ended, || {
        format!("the call {id} of the server's tool has no result in the log")
    })
}
