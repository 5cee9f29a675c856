//! The bridge to a running server: requests over its pipes, answers by their numbers, and events as they come. Nothing
//! here knows what they mean.

use std::time::Duration;

use serde_json::{Value, json};
use windlass_core::clock::Clock;

use super::ended::Meter;
use crate::peer::Peer;

/// What comes from the bridge.
#[derive(Debug)]
pub(super) enum Heard {
    /// The server answers from now on.
    Ready,
    /// It never will, and why.
    Failed(String),
    /// An answer to the request of this number.
    Answer(u64, Reply),
    /// An event of the conversation.
    Event(Value),
    /// Something that is none of these.
    Odd,
    /// Nothing more comes.
    End,
}

/// An answer of the server.
#[derive(Debug)]
pub(super) struct Reply {
    /// The status; 0 where the server could not be asked.
    pub(super) status: u64,
    pub(super) body: Value,
}

impl Reply {
    pub(super) fn is_good(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// What is wrong, for a person.
    pub(super) fn complaint(&self) -> String {
        let text = match &self.body {
            Value::String(text) => text.clone(),
            body => body.get("detail").unwrap_or(body).to_string(),
        };
        format!(
            "{} ({})",
            &text[..text.floor_char_boundary(500)],
            self.status
        )
    }
}

/// A server that runs, and one conversation on it.
pub(super) struct Live {
    peer: Peer,
    asked: u64,
    /// The conversation.
    pub(super) id: String,
    /// It was to go on with an earlier one and could not.
    pub(super) forgot: bool,
    /// What the conversation took.
    pub(super) meter: Meter,
    /// Where its terminal is.
    pub(super) cwd: Option<String>,
    /// Lines that were passed over.
    pub(super) odd: u64,
}

impl Live {
    pub(super) fn new(peer: Peer) -> Self {
        Self {
            peer,
            asked: 0,
            id: String::new(),
            forgot: false,
            meter: Meter::default(),
            cwd: None,
            odd: 0,
        }
    }

    /// Asks the server for something; the number of the request.
    pub(super) fn ask(&mut self, method: &str, path: &str, body: &Value) -> u64 {
        self.asked += 1;
        self.peer
            .send(&json!({ "id": self.asked, "method": method, "path": path, "body": body }));
        self.asked
    }

    /// Asks for something of the conversation.
    pub(super) fn post(&mut self, what: &str, body: &Value) -> u64 {
        let path = format!("/api/conversations/{}/{what}", self.id);
        self.ask("POST", &path, body)
    }

    /// Asks for the events of the conversation from now on.
    pub(super) fn follow(&mut self) -> u64 {
        self.asked += 1;
        self.peer
            .send(&json!({ "id": self.asked, "follow": self.id }));
        self.asked
    }

    /// What comes next. May be dropped while it waits: nothing is lost.
    pub(super) async fn hear(&mut self) -> Heard {
        let Ok(Some(mut line)) = self.peer.next().await else {
            return Heard::End;
        };
        if line.get("ready").is_some() {
            return Heard::Ready;
        }
        if let Some(why) = line.get("failed").and_then(Value::as_str) {
            return Heard::Failed(why.to_owned());
        }
        if let Some(event) = line.get_mut("event") {
            return Heard::Event(event.take());
        }
        match (
            line.get("id").and_then(Value::as_u64),
            line.get("status").and_then(Value::as_u64),
        ) {
            (Some(id), Some(status)) => {
                let part = if status == 0 { "error" } else { "body" };
                let body = line.get_mut(part).map(Value::take).unwrap_or_default();
                Heard::Answer(id, Reply { status, body })
            }
            _ => Heard::Odd,
        }
    }

    /// The answer to a request; what is wrong where there is none. It is for requests before anything was said: how things
    /// stood then is no news, so that events that come meanwhile are dropped.
    pub(super) async fn answer(&mut self, wanted: u64) -> Result<Reply, String> {
        loop {
            match self.hear().await {
                Heard::Answer(id, reply) if id == wanted => return Ok(reply),
                Heard::Event(_) => {}
                Heard::Failed(why) => return Err(why),
                Heard::End => return Err("it ended before it answered".to_owned()),
                Heard::Ready | Heard::Answer(..) | Heard::Odd => self.odd += 1,
            }
        }
    }

    /// Lines that could not be read or were not understood.
    pub(super) fn passed_over(&self) -> u64 {
        self.odd.saturating_add(self.peer.unread())
    }

    /// How it ended, for a person.
    pub(super) async fn obituary(&mut self, clock: &dyn Clock, grace: Duration) -> String {
        self.peer.ended_in_words(clock, grace).await
    }
}
