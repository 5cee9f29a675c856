//! Who started this agent, as far as honest work needs one: a client by ACP, or nobody to ask.

use serde_json::{Value, json};

use crate::peer::{Peer, raw};

/// The other side of honest work.
pub(crate) trait Host {
    /// Whether it was told to stop.
    fn cancelled(&self) -> bool;
    /// Tells what the model says.
    fn say(&mut self, text: &str);
    /// Tells of a call.
    fn update(&mut self, update: &Value);
    /// Asks whether a call may be made.
    fn may(&mut self, call: &Value) -> bool;
}

impl Host for Peer {
    fn cancelled(&self) -> bool {
        Self::cancelled(self)
    }

    fn say(&mut self, text: &str) {
        Self::say(self, text);
    }

    fn update(&mut self, update: &Value) {
        Self::update(self, update);
    }

    fn may(&mut self, call: &Value) -> bool {
        Self::may(self, call)
    }
}

/// Nobody: a prompt came in, and lines of JSON go out.
pub(crate) struct Alone;

impl Alone {
    /// The first line: the name of the conversation.
    pub(crate) fn begin(&self, session: &str) {
        line(&json!({ "type": "session", "id": session }));
    }
}

impl Host for Alone {
    fn cancelled(&self) -> bool {
        false
    }

    fn say(&mut self, text: &str) {
        line(&json!({ "type": "text", "text": text }));
    }

    fn update(&mut self, update: &Value) {
        let id = &update["toolCallId"];
        match update["sessionUpdate"].as_str() {
            Some("tool_call") => {
                let (name, input) = (&update["name"], &update["rawInput"]);
                line(&json!({ "type": "call", "id": id, "name": name, "input": input }));
            }
            _ => {
                line(&json!({ "type": "result", "id": id, "text": update["rawOutput"]["output"] }))
            }
        }
    }

    fn may(&mut self, _: &Value) -> bool {
        true
    }
}

fn line(value: &Value) {
    raw(format!("{value}\n").as_bytes());
}
