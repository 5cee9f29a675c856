//! An agent that speaks ACP over its standard streams and does what its first argument says: honest work, or one of
//! many things that no agent should do. As `cli` it is a one-shot program that does honest work, and as `mcp`
//! no agent but a server of tools for one. It is driven by the kit and holds to the kit's places: it reads only what the
//! kit planted, writes only marks below the kit's own folder, and connects only to listeners of the kit. It runs no
//! command that destroys anything, also where nothing holds it.

mod attack;
mod client;
mod honest;
mod host;
mod mcp;
mod peer;

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::host::Alone;
use crate::peer::Peer;

/// The longest prompt that is read.
const MAX_PROMPT: u64 = 1 << 20;

/// What was typed: what to do, and where.
pub(crate) struct Orders {
    pub(crate) mode: String,
    given: HashMap<String, String>,
}

impl Orders {
    fn read(mut args: impl Iterator<Item = String>) -> Self {
        let mode = args.next().unwrap_or_else(|| "honest".to_owned());
        let given = args.filter_map(|arg| {
            arg.split_once('=')
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
        });
        Self {
            mode,
            given: given.collect(),
        }
    }

    /// A value that was given; empty where none was.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.given.get(name).map_or("", String::as_str)
    }
}

fn main() -> ExitCode {
    let orders = Orders::read(std::env::args().skip(1));
    match orders.mode.as_str() {
        "cli" => return one_shot(&orders),
        "mcp" => {
            mcp::serve(orders.get("marker"));
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    attack::before_hello(&orders);
    let mut peer = Peer::open();
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
                let end = match orders.mode.as_str() {
                    "honest" => {
                        let session = peer.session.clone();
                        honest::work(&mut peer, &session, &folder, &text)
                    }
                    _ => attack::strike(&orders, &mut peer, &folder, &id),
                };
                match end {
                    Ok(stop) => peer.answer(&id, &json!({ "stopReason": stop })),
                    Err(why) => peer.fail(&id, &why),
                }
            }
            method => peer.fail(&id, &format!("there is no method {method}")),
        }
    }
    ExitCode::SUCCESS
}

/// A prompt on standard input, lines on standard output; in an earlier conversation where one is named.
fn one_shot(orders: &Orders) -> ExitCode {
    let mut prompt = String::new();
    let read = std::io::stdin()
        .lock()
        .take(MAX_PROMPT)
        .read_to_string(&mut prompt);
    let session = match orders.get("session") {
        "" => format!("cli-{}", std::process::id()),
        session => session.to_owned(),
    };
    Alone.begin(&session);
    let done = read
        .map_err(|err| err.to_string())
        .and_then(|_| honest::work(&mut Alone, &session, ".", &prompt));
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
