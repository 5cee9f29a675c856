//! The wire formats: each file reads requests of one vendor and builds its responses. All functions are pure: a value
//! in, a list of events or one value out.

pub(crate) mod anthropic;
pub(crate) mod chat;
pub(crate) mod gemini;
pub(crate) mod responses;

use serde_json::{Value, json};

use crate::answers::AnswerItem;
use crate::request::ScriptedRequest;
use crate::script::ReportedUsage;

/// The wire format of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WireFormat {
    Anthropic,
    Responses,
    Chat,
    Gemini { stream: bool },
}

/// One event of a stream.
pub(crate) struct StreamFrame {
    pub(crate) event: Option<&'static str>,
    pub(crate) data: String,
    /// The pause before the event in milliseconds.
    pub(crate) pause_ms: u64,
}

impl StreamFrame {
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

/// Everything that a response is built from.
pub(crate) struct WireAnswer<'a> {
    pub(crate) model: &'a str,
    pub(crate) item: &'a AnswerItem,
    pub(crate) usage: ReportedUsage,
    /// The number of the request, which makes the ids in the response unique.
    pub(crate) number: usize,
}

impl WireFormat {
    /// The wire format of a path; `None` if the path is not for a model.
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

    pub(crate) fn read(self, body: &Value) -> ScriptedRequest {
        match self {
            Self::Anthropic => anthropic::read(body),
            Self::Responses => responses::read(body),
            Self::Chat => chat::read(body),
            Self::Gemini { stream } => gemini::read(body, stream),
        }
    }

    pub(crate) fn whole(self, answer: &WireAnswer<'_>) -> Value {
        match self {
            Self::Anthropic => anthropic::whole(answer),
            Self::Responses => responses::whole(answer),
            Self::Chat => chat::whole(answer),
            Self::Gemini { .. } => gemini::whole(answer),
        }
    }

    pub(crate) fn stream(self, answer: &WireAnswer<'_>) -> Vec<StreamFrame> {
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

/// The pieces of a streamed text: words if it is slow, two halves otherwise.
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

/// Texts before a call, like those of real models. An agent must not treat them as its answer.
const LEADS: [&str; 3] = [
    "I will do this step now.",
    "Next I look at what that gives.",
    "One more step, then I check the result.",
];

/// The text before the call of an answer; `None` if it has no call.
fn lead(answer: &WireAnswer<'_>) -> Option<&'static str> {
    let calls = matches!(answer.item, AnswerItem::Call { .. });
    calls.then(|| LEADS[answer.number % LEADS.len()])
}

/// The text of an item and its pause; `None` for a call.
fn words(item: &AnswerItem) -> Option<(&str, u64)> {
    match item {
        AnswerItem::Text { text, pause_ms } => Some((text, *pause_ms)),
        AnswerItem::Refusal(text) => Some((text, 0)),
        AnswerItem::Call { .. } => None,
    }
}

fn refuses(item: &AnswerItem) -> bool {
    matches!(item, AnswerItem::Refusal(_))
}
