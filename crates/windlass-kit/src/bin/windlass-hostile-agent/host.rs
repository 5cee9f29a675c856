//! Who started this agent, as far as honest work needs one: a client by ACP, or nobody to ask.

use serde_json::Value;

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

/// Nobody: a prompt came in, and what the model says goes out.
pub(crate) struct Alone;

impl Host for Alone {
    fn cancelled(&self) -> bool {
        false
    }

    fn say(&mut self, text: &str) {
        raw(format!("{text}\n").as_bytes());
    }

    fn update(&mut self, _: &Value) {}

    fn may(&mut self, _: &Value) -> bool {
        true
    }
}
