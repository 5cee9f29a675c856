//! A minimal agent that speaks ACP on standard input and output: it repairs `sum.sh` and reports it. The example
//! `foreign_agent` runs it with `acp:PATH`.
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "an example is a program of its own"
)]

use std::io::{BufRead, Write};

use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut workspace = String::new();
    for line in std::io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line?)?;
        let result = match request["method"].as_str() {
            Some("initialize") => json!({ "protocolVersion": 1, "agentCapabilities": {} }),
            Some("session/new") => {
                request["params"]["cwd"]
                    .as_str()
                    .unwrap_or(".")
                    .clone_into(&mut workspace);
                json!({ "sessionId": "1" })
            }
            Some("session/prompt") => {
                std::fs::write(format!("{workspace}/sum.sh"), "echo $(($1 + $2))\n")?;
                let content = json!({ "type": "text", "text": "The script adds now." });
                let update = json!({ "sessionUpdate": "agent_message_chunk", "content": content });
                send(&json!({ "jsonrpc": "2.0", "method": "session/update",
                              "params": { "sessionId": "1", "update": update } }))?;
                json!({ "stopReason": "end_turn" })
            }
            _ => Value::Null,
        };
        if !request["id"].is_null() {
            send(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }))?;
        }
    }
    Ok(())
}

fn send(message: &Value) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{message}")?;
    out.flush()
}
