//! The four ways in which agents speak to a model, and how each of them says no. Pure: nothing is sent here.
//!
//! The statuses were chosen by looking at the agents: at a refused limit Claude Code stops after one call when it is 402
//! (at 400 it tries again with fewer features), and Codex stops after one call when it is 400 (it tries 402, 403 and 5xx
//! again). At 426 Codex gives up its web socket at once and asks again over HTTP.

use serde_json::{Value, json};
use windlass_providers::Vendor;
use windlass_providers::protocol::Protocol;

/// A way to speak to a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Responses.
    Responses,
    /// OpenAI Chat Completions.
    Chat,
    /// Gemini's generateContent.
    Gemini,
}

/// Why a request is not passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// It shows another key than the one of this run.
    BadKey,
    /// There is nothing at that address.
    NotFound,
    /// It cannot be read, or asks for something that cannot be counted.
    Invalid,
    /// It is too large.
    TooLarge,
    /// It did not come in time.
    Late,
    /// It wants another protocol than HTTP.
    Upgrade,
    /// A limit of the run, or the run itself, is over.
    OverLimit,
    /// The model's server could not be reached, or what it said cannot be passed on.
    Upstream,
}

impl Dialect {
    /// What a person calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "Anthropic Messages",
            Self::Responses => "OpenAI Responses",
            Self::Chat => "OpenAI Chat Completions",
            Self::Gemini => "Gemini",
        }
    }

    /// The models with which somebody would understand it, as people type them.
    pub(super) fn models(self) -> &'static str {
        match self {
            Self::Anthropic => "`-m anthropic/MODEL`, `-m bedrock/MODEL` or `-m vertex/MODEL`",
            Self::Responses => "`-m openai/MODEL`",
            Self::Chat => "`-m openai-chat/MODEL` or a model of another vendor that speaks it",
            Self::Gemini => "`-m gemini/MODEL` or `-m vertex-gemini/MODEL`",
        }
    }

    /// How answers of a vendor to this dialect are read; `None` where the vendor does not understand it. The second is
    /// whether it is the vendor's own way.
    pub(super) fn at(self, vendor: &Vendor) -> Option<(Protocol, bool)> {
        use Protocol as P;
        match (self, vendor.protocol) {
            (Self::Anthropic, P::AnthropicMessages | P::BedrockAnthropic | P::VertexAnthropic)
            | (Self::Responses, P::OpenAiResponses)
            | (Self::Chat, P::OpenAiChat)
            | (Self::Gemini, P::Gemini) => Some((vendor.protocol, true)),
            // They serve chat completions beside it.
            (Self::Chat, P::OpenAiResponses | P::OllamaChat) => Some((P::OpenAiChat, false)),
            _ => None,
        }
    }

    /// Status and body of a no.
    pub(super) fn fault(self, fault: Fault, message: &str) -> (u16, Vec<u8>) {
        let status = self.status(fault);
        let body = match self {
            Self::Anthropic => {
                json!({ "type": "error", "error": { "type": anthropic_word(fault), "message": message } })
            }
            Self::Responses | Self::Chat => {
                let kind = if fault == Fault::Upstream {
                    "server_error"
                } else {
                    "invalid_request_error"
                };
                json!({ "error": { "message": message, "type": kind, "param": null, "code": openai_code(fault) } })
            }
            Self::Gemini => {
                json!({ "error": { "code": status, "message": message, "status": gemini_word(fault) } })
            }
        };
        (status, body.to_string().into_bytes())
    }

    fn status(self, fault: Fault) -> u16 {
        match fault {
            Fault::BadKey => 401,
            Fault::NotFound => 404,
            Fault::Invalid => 400,
            Fault::TooLarge => 413,
            Fault::Late => 408,
            Fault::Upgrade => 426,
            Fault::OverLimit if self == Self::Anthropic => 402,
            Fault::OverLimit => 400,
            Fault::Upstream => 502,
        }
    }

    /// A whole answer in the form in which the decoder of this dialect reads the event with the usage.
    pub(super) fn as_event(self, body: &str) -> String {
        match self {
            Self::Anthropic => format!(r#"{{"type":"message_start","message":{body}}}"#),
            Self::Responses => format!(r#"{{"type":"response.completed","response":{body}}}"#),
            Self::Chat | Self::Gemini => body.to_owned(),
        }
    }

    /// Whether a whole answer declines, in the words that the decoder of events does not see.
    pub(super) fn declines(self, answer: &Value) -> bool {
        let refusal = |part: &Value| part["type"] == "refusal";
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        match self {
            Self::Anthropic => answer["stop_reason"] == "refusal",
            Self::Responses => list(&answer["output"])
                .iter()
                .any(|item| list(&item["content"]).iter().any(refusal)),
            Self::Chat => {
                let choice = &answer["choices"][0];
                choice["finish_reason"] == "content_filter"
                    || choice["message"]["refusal"].is_string()
            }
            Self::Gemini => false,
        }
    }

    /// A list of models, where the server has none.
    pub(super) fn model_list(self, names: &[&str]) -> Vec<u8> {
        let all = |row: fn(&str) -> Value| -> Value { names.iter().map(|id| row(id)).collect() };
        let list = match self {
            Self::Anthropic => {
                let data = all(|id| json!({ "type": "model", "id": id, "display_name": id }));
                json!({ "data": data, "has_more": false, "first_id": names.first(), "last_id": names.last() })
            }
            Self::Responses | Self::Chat => {
                let data = all(|id| json!({ "id": id, "object": "model", "owned_by": "" }));
                json!({ "object": "list", "data": data })
            }
            Self::Gemini => {
                json!({ "models": all(|id| json!({ "name": format!("models/{id}") })) })
            }
        };
        list.to_string().into_bytes()
    }
}

fn anthropic_word(fault: Fault) -> &'static str {
    match fault {
        Fault::BadKey => "authentication_error",
        Fault::NotFound => "not_found_error",
        Fault::Invalid | Fault::Late | Fault::Upgrade => "invalid_request_error",
        Fault::TooLarge => "request_too_large",
        Fault::OverLimit => "billing_error",
        Fault::Upstream => "api_error",
    }
}

fn openai_code(fault: Fault) -> Option<&'static str> {
    match fault {
        Fault::BadKey => Some("invalid_api_key"),
        Fault::NotFound => Some("not_found"),
        Fault::TooLarge => Some("request_too_large"),
        Fault::OverLimit => Some("budget_exceeded"),
        Fault::Invalid | Fault::Late | Fault::Upgrade | Fault::Upstream => None,
    }
}

fn gemini_word(fault: Fault) -> &'static str {
    match fault {
        Fault::BadKey => "UNAUTHENTICATED",
        Fault::NotFound => "NOT_FOUND",
        Fault::Invalid | Fault::TooLarge | Fault::Upgrade => "INVALID_ARGUMENT",
        Fault::Late => "DEADLINE_EXCEEDED",
        Fault::OverLimit => "FAILED_PRECONDITION",
        Fault::Upstream => "UNAVAILABLE",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(dialect: Dialect, answer: Value, declines: bool) {
        assert_eq!(dialect.declines(&answer), declines, "{answer}");
    }

    #[test]
    fn a_whole_answer_says_that_it_declines() {
        check(
            Dialect::Anthropic,
            json!({ "stop_reason": "refusal" }),
            true,
        );
        check(
            Dialect::Anthropic,
            json!({ "stop_reason": "end_turn" }),
            false,
        );
        let output = |kind: &str| json!({ "output": [{ "type": "message", "content": [{ "type": kind }] }] });
        check(Dialect::Responses, output("refusal"), true);
        check(Dialect::Responses, output("output_text"), false);
        check(
            Dialect::Chat,
            json!({ "choices": [{ "finish_reason": "content_filter" }] }),
            true,
        );
        check(
            Dialect::Chat,
            json!({ "choices": [{ "message": { "refusal": "I cannot." } }] }),
            true,
        );
        check(
            Dialect::Chat,
            json!({ "choices": [{ "finish_reason": "stop", "message": { "refusal": null } }] }),
            false,
        );
    }
}
