//! The wires: each file reads a request of one vendor and makes its answers. All of them are pure: a value comes in,
//! a list of events or one value goes out.

pub(crate) mod anthropic;
pub(crate) mod chat;
pub(crate) mod gemini;
pub(crate) mod responses;

use serde_json::{Value, json};

use crate::offer::Item;
use crate::request::Asked;
use crate::script::Usage;

/// Which of them a request speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    Anthropic,
    Responses,
    Chat,
    Gemini { stream: bool },
}

/// One event of a stream.
pub(crate) struct Frame {
    pub(crate) event: Option<&'static str>,
    pub(crate) data: String,
    /// To wait so long before it.
    pub(crate) pause_ms: u64,
}

impl Frame {
    fn new(event: Option<&'static str>, data: &Value) -> Self {
        Self {
            event,
            data: data.to_string(),
            pause_ms: 0,
        }
    }

    fn after(mut self, pause_ms: u64) -> Self {
        self.pause_ms = pause_ms;
        self
    }
}

/// What an answer is made of.
pub(crate) struct Answer<'a> {
    pub(crate) model: &'a str,
    pub(crate) item: &'a Item,
    pub(crate) usage: Usage,
    /// Makes the names of this answer its own.
    pub(crate) number: usize,
}

impl Wire {
    /// The wire of a path; none where it is no question to a model.
    pub(crate) fn of(path: &str) -> Option<Self> {
        let path = path.split('?').next().unwrap_or(path);
        match path {
            path if path.ends_with("/messages") => Some(Self::Anthropic),
            path if path.ends_with("/responses") => Some(Self::Responses),
            path if path.ends_with("/chat/completions") => Some(Self::Chat),
            path if path.ends_with(":streamGenerateContent") => Some(Self::Gemini { stream: true }),
            path if path.ends_with(":generateContent") => Some(Self::Gemini { stream: false }),
            _ => None,
        }
    }

    pub(crate) fn read(self, body: &Value) -> Asked {
        match self {
            Self::Anthropic => anthropic::read(body),
            Self::Responses => responses::read(body),
            Self::Chat => chat::read(body),
            Self::Gemini { stream } => gemini::read(body, stream),
        }
    }

    pub(crate) fn whole(self, answer: &Answer<'_>) -> Value {
        match self {
            Self::Anthropic => anthropic::whole(answer),
            Self::Responses => responses::whole(answer),
            Self::Chat => chat::whole(answer),
            Self::Gemini { .. } => gemini::whole(answer),
        }
    }

    pub(crate) fn stream(self, answer: &Answer<'_>) -> Vec<Frame> {
        match self {
            Self::Anthropic => anthropic::stream(answer),
            Self::Responses => responses::stream(answer),
            Self::Chat => chat::stream(answer),
            Self::Gemini { .. } => gemini::stream(answer),
        }
    }

    pub(crate) fn failure(self, status: u16) -> Value {
        let words = format!("the script fails with {status}");
        match self {
            Self::Anthropic => {
                json!({ "type": "error", "error": { "type": "api_error", "message": words } })
            }
            Self::Responses | Self::Chat => {
                json!({ "error": { "type": "server_error", "message": words } })
            }
            Self::Gemini { .. } => {
                json!({ "error": { "code": status, "status": "INTERNAL", "message": words } })
            }
        }
    }
}

/// A text in the pieces it is streamed in: words where it is slow, two halves where it is not.
fn pieces(text: &str, pause_ms: u64) -> Vec<&str> {
    if pause_ms > 0 {
        return text.split_inclusive(' ').collect();
    }
    let half = (0..=text.len() / 2)
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0);
    let (first, second) = text.split_at(half);
    [first, second]
        .into_iter()
        .filter(|piece| !piece.is_empty())
        .collect()
}

/// What a model says before its calls, as real ones do. An agent must not take it for an answer.
const LEADS: [&str; 3] = [
    "I will do this step now.",
    "Next I look at what that gives.",
    "One more step, then I check the result.",
];

/// The words before the call of an answer; none where it calls nothing.
fn lead(answer: &Answer<'_>) -> Option<&'static str> {
    let calls = matches!(answer.item, Item::Call { .. });
    calls.then(|| LEADS[answer.number % LEADS.len()])
}

/// The text of an item that is one, and its pause.
fn words(item: &Item) -> Option<(&str, u64)> {
    match item {
        Item::Text { text, pause_ms } => Some((text, *pause_ms)),
        Item::Refusal(text) => Some((text, 0)),
        Item::Call { .. } => None,
    }
}

fn refuses(item: &Item) -> bool {
    matches!(item, Item::Refusal(_))
}
