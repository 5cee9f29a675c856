//! The counterpart of the honest agent: an ACP client, or the caller of a one-shot program, which cannot be asked.

use serde_json::{Value, json};

use crate::acp_client::{AcpClient, raw};

/// The interface of the honest agent to its counterpart.
pub(crate) trait Host {
    /// Returns whether the host requested a cancel.
    fn cancelled(&self) -> bool;
    /// Passes on text of the model.
    fn say(&mut self, text: &str);
    /// Reports a tool call or its result.
    fn update(&mut self, update: &Value);
    /// Asks for permission to make a call.
    fn may(&mut self, call: &Value) -> bool;
}

impl Host for AcpClient {
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

/// The output of a one-shot program: lines of JSON.
pub(crate) struct JsonOutput;

impl JsonOutput {
    /// Prints the first line with the id of the conversation.
    pub(crate) fn begin(&self, session: &str) {
        line(&json!({ "type": "session", "id": session }));
    }
}

impl Host for JsonOutput {
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
