//! The kit's own agent. It speaks ACP over stdin and stdout; its first argument selects honest work or an attack. With
//! `cli` it is a one-shot program that does honest work, and with `mcp` it is an MCP server. It is harmless even
//! without a sandbox: it reads only secrets that the kit planted, writes only below the kit's directory, connects only
//! to the kit's listeners, and runs no destructive command.

mod acp_client;
mod attack;
mod honest;
mod host;
mod mcp;
mod model_endpoint;

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::acp_client::AcpClient;
use crate::host::JsonOutput;

/// The maximum length of a prompt, in bytes.
const MAX_PROMPT: u64 = 1 << 20;

/// The arguments: a mode, and values as `NAME=VALUE`.
pub(crate) struct AgentArgs {
    pub(crate) mode: String,
    values: HashMap<String, String>,
}

impl AgentArgs {
    fn read(mut args: impl Iterator<Item = String>) -> Self {
        let mode = args.next().unwrap_or_else(|| "honest".to_owned());
        let values = args.filter_map(|arg| {
            arg.split_once('=')
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
        });
        Self {
            mode,
            values: values.collect(),
        }
    }

    /// Returns a value, or an empty string.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.values.get(name).map_or("", String::as_str)
    }
}

fn main() -> ExitCode {
    let args = AgentArgs::read(std::env::args().skip(1));
    match args.mode.as_str() {
        "cli" => return one_shot(&args),
        "mcp" => {
            mcp::serve(args.get("marker"));
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    attack::before_hello(&args);
    let mut peer = AcpClient::open();
    let mut folder = ".".to_owned();
    while let Some(request) = peer.next() {
        let (id, params) = (request["id"].clone(), &request["params"]);
        let named = |name: &str| params[name].as_str().unwrap_or_default().to_owned();
        match request["method"].as_str().unwrap_or_default() {
            "initialize" => peer.answer(
                &id,
                &json!({
                    "protocolVersion": 1, "authMethods": [],
                    "agentCapabilities": { "loadSession": true, "promptCapabilities": {} },
                    "agentInfo": { "name": "windlass-hostile-agent", "version": env!("CARGO_PKG_VERSION") },
                }),
            ),
            "session/new" => {
                folder = named("cwd");
                peer.session = format!("kit-{}", std::process::id());
                let session = peer.session.clone();
                peer.answer(&id, &json!({ "sessionId": session }));
            }
            "session/load" => {
                folder = named("cwd");
                peer.session = named("sessionId");
                peer.answer(&id, &json!({}));
            }
            "session/prompt" => {
                let text: String = prompt(&params["prompt"]);
                let end = match args.mode.as_str() {
                    "honest" => {
                        let session = peer.session.clone();
                        honest::work(&mut peer, &session, &folder, &text)
                    }
                    _ => attack::run(&args, &mut peer, &folder, &id),
                };
                match end {
                    Ok(stop) => peer.answer(&id, &json!({ "stopReason": stop })),
                    Err(why) => peer.fail(&id, &why),
                }
            }
            method => peer.fail(&id, &format!("unknown method {method}")),
        }
    }
    ExitCode::SUCCESS
}

/// Reads a prompt from stdin and prints lines of JSON. Resumes a conversation if its id is given.
fn one_shot(args: &AgentArgs) -> ExitCode {
    let mut prompt = String::new();
    let read = std::io::stdin()
        .lock()
        .take(MAX_PROMPT)
        .read_to_string(&mut prompt);
    let session = match args.get("session") {
        "" => format!("cli-{}", std::process::id()),
        session => session.to_owned(),
    };
    JsonOutput.begin(&session);
    let done = read
        .map_err(|err| err.to_string())
        .and_then(|_| honest::work(&mut JsonOutput, &session, ".", &prompt));
    match done {
        Ok(_) => ExitCode::SUCCESS,
        Err(why) => {
            let _ = writeln!(std::io::stderr(), "{why}");
            ExitCode::FAILURE
        }
    }
}

fn prompt(blocks: &Value) -> String {
    blocks
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|block| block["text"].as_str())
        .collect::<Vec<_>>()
        .join("\n")
}
