//! The four protocols in which agents talk to a model, and the form of an error in each of them. Pure: nothing is sent
//! here.
//!
//! The statuses were chosen by testing the agents. On a call over the limit, Claude Code stops after one call with
//! status 402 (with 400 it tries again with fewer features), and Codex stops after one call with 400 (it repeats 402,
//! 403 and 5xx). On 426, Codex switches from its web socket to HTTP.

use serde_json::{Value, json};
use windlass_providers::Vendor;
use windlass_providers::protocol::Protocol;

/// A protocol of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AgentDialect {
    /// The Anthropic Messages API.
    Anthropic,
    /// The OpenAI Responses API.
    Responses,
    /// The OpenAI Chat Completions API.
    Chat,
    /// The `generateContent` API of Gemini.
    Gemini,
}

/// The reason why a request is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestFault {
    /// It does not have the key of this run.
    BadKey,
    /// There is nothing at this URL.
    NotFound,
    /// It cannot be parsed, or asks for something that cannot be counted.
    Invalid,
    /// It exceeds the maximum size.
    TooLarge,
    /// It did not arrive in time.
    Late,
    /// It asks for another protocol than HTTP.
    Upgrade,
    /// A limit of the run is reached, or the run is over.
    OverLimit,
    /// The model's server could not be reached, or its answer cannot be passed on.
    Upstream,
}

impl AgentDialect {
    /// Returns the name of the protocol for messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "Anthropic Messages",
            Self::Responses => "OpenAI Responses",
            Self::Chat => "OpenAI Chat Completions",
            Self::Gemini => "Gemini",
        }
    }

    /// Returns the models that speak this protocol, as `-m` arguments for messages.
    pub(super) fn models(self) -> &'static str {
        match self {
            Self::Anthropic => "`-m anthropic/MODEL`, `-m bedrock/MODEL` or `-m vertex/MODEL`",
            Self::Responses => "`-m openai/MODEL`",
            Self::Chat => "`-m openai-chat/MODEL` or a model of another vendor that speaks it",
            Self::Gemini => "`-m gemini/MODEL` or `-m vertex-gemini/MODEL`",
        }
    }

    /// Returns the protocol in which a vendor answers this dialect, and whether it is the vendor's main one; `None` if
    /// the vendor does not support the dialect.
    pub(super) fn at(self, vendor: &Vendor) -> Option<(Protocol, bool)> {
        use Protocol as P;
        match (self, vendor.protocol) {
            (Self::Anthropic, P::AnthropicMessages | P::BedrockAnthropic | P::VertexAnthropic)
            | (Self::Responses, P::OpenAiResponses)
            | (Self::Chat, P::OpenAiChat)
            | (Self::Gemini, P::Gemini) => Some((vendor.protocol, true)),
            // These vendors also serve chat completions.
            (Self::Chat, P::OpenAiResponses | P::OllamaChat) => Some((P::OpenAiChat, false)),
            _ => None,
        }
    }

    /// Returns the status and body of an error.
    pub(super) fn fault(self, fault: RequestFault, message: &str) -> (u16, Vec<u8>) {
        let status = self.status(fault);
        let body = match self {
            Self::Anthropic => {
                json!({ "type": "error", "error": { "type": anthropic_word(fault), "message": message } })
            }
            Self::Responses | Self::Chat => {
                let kind = if fault == RequestFault::Upstream {
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

    fn status(self, fault: RequestFault) -> u16 {
        match fault {
            RequestFault::BadKey => 401,
            RequestFault::NotFound => 404,
            RequestFault::Invalid => 400,
            RequestFault::TooLarge => 413,
            RequestFault::Late => 408,
            RequestFault::Upgrade => 426,
            RequestFault::OverLimit if self == Self::Anthropic => 402,
            RequestFault::OverLimit => 400,
            RequestFault::Upstream => 502,
        }
    }

    /// Wraps a complete answer in the event from which the decoder of this dialect reads the usage.
    pub(super) fn as_event(self, body: &str) -> String {
        match self {
            Self::Anthropic => format!(r#"{{"type":"message_start","message":{body}}}"#),
            Self::Responses => format!(r#"{{"type":"response.completed","response":{body}}}"#),
            Self::Chat | Self::Gemini => body.to_owned(),
        }
    }

    /// Returns whether a complete answer is a refusal, in fields that the event decoder does not read.
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

    /// Returns a list of models, for vendors that have no such list.
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

fn anthropic_word(fault: RequestFault) -> &'static str {
    match fault {
        RequestFault::BadKey => "authentication_error",
        RequestFault::NotFound => "not_found_error",
        RequestFault::Invalid | RequestFault::Late | RequestFault::Upgrade => {
            "invalid_request_error"
        }
        RequestFault::TooLarge => "request_too_large",
        RequestFault::OverLimit => "billing_error",
        RequestFault::Upstream => "api_error",
    }
}

fn openai_code(fault: RequestFault) -> Option<&'static str> {
    match fault {
        RequestFault::BadKey => Some("invalid_api_key"),
        RequestFault::NotFound => Some("not_found"),
        RequestFault::TooLarge => Some("request_too_large"),
        RequestFault::OverLimit => Some("budget_exceeded"),
        RequestFault::Invalid
        | RequestFault::Late
        | RequestFault::Upgrade
        | RequestFault::Upstream => None,
    }
}

fn gemini_word(fault: RequestFault) -> &'static str {
    match fault {
        RequestFault::BadKey => "UNAUTHENTICATED",
        RequestFault::NotFound => "NOT_FOUND",
        RequestFault::Invalid | RequestFault::TooLarge | RequestFault::Upgrade => {
            "INVALID_ARGUMENT"
        }
        RequestFault::Late => "DEADLINE_EXCEEDED",
        RequestFault::OverLimit => "FAILED_PRECONDITION",
        RequestFault::Upstream => "UNAVAILABLE",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(dialect: AgentDialect, answer: Value, declines: bool) {
        assert_eq!(dialect.declines(&answer), declines, "{answer}");
    }

    #[test]
    fn refusals_are_found_in_complete_answers() {
        check(
            AgentDialect::Anthropic,
            json!({ "stop_reason": "refusal" }),
            true,
        );
        check(
            AgentDialect::Anthropic,
            json!({ "stop_reason": "end_turn" }),
            false,
        );
        let output = |kind: &str| json!({ "output": [{ "type": "message", "content": [{ "type": kind }] }] });
        check(AgentDialect::Responses, output("refusal"), true);
        check(AgentDialect::Responses, output("output_text"), false);
        check(
            AgentDialect::Chat,
            json!({ "choices": [{ "finish_reason": "content_filter" }] }),
            true,
        );
        check(
            AgentDialect::Chat,
            json!({ "choices": [{ "message": { "refusal": "I cannot." } }] }),
            true,
        );
        check(
            AgentDialect::Chat,
            json!({ "choices": [{ "finish_reason": "stop", "message": { "refusal": null } }] }),
            false,
        );
    }
}
