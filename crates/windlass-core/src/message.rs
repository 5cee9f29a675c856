//! Messages between user, model and engine, as plain data. Each provider converts them to its vendor's wire format.
//!
//! ```
//! use windlass_core::message::{Message, Role};
//!
//! let message = Message::user("fix the build");
//! assert_eq!((message.role, message.text()), (Role::User, "fix the build".to_owned()));
//! ```

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::{ArtifactId, CallId};

/// The role of a message. The system prompt is not a message: it is part of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The user, or the engine on the user's behalf (see [`Origin`]).
    User,
    /// The model that answers.
    Assistant,
    /// The results of the calls in the preceding assistant message.
    Tool,
}

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The user wrote it.
    #[default]
    Person,
    /// A model wrote it.
    Model,
    /// The engine wrote it (a reminder, findings of a validator); views may hide it.
    Engine,
}

/// One message of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Message {
    /// The role in the conversation with the model.
    pub role: Role,
    /// The author, which may differ from the role.
    #[serde(default)]
    pub origin: Origin,
    /// The content in order.
    pub parts: Vec<Part>,
}

/// One part of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data", rename_all = "snake_case")]
pub enum Part {
    /// Text of the user, the model or the engine.
    Text {
        /// The text, which may be Markdown.
        text: String,
    },
    /// Reasoning of the model, with the state that the vendor needs back unchanged.
    Reasoning {
        /// Readable reasoning; empty if the vendor shows none.
        text: String,
        /// A signature or encrypted state. It is sent back byte for byte and never redacted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        opaque: Option<Value>,
    },
    /// A picture in the message.
    Image {
        /// The MIME type, such as `image/png`.
        media_type: String,
        /// The bytes in base64.
        data: String,
    },
    /// A tool call by the model.
    Call(ToolCall),
    /// The result of a tool call.
    Result(ToolResult),
}

/// One tool call as the model wrote it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolCall {
    /// The vendor's id of the call.
    pub id: CallId,
    /// The tool's name as the model wrote it.
    pub name: String,
    /// The arguments; an empty object if they were not valid JSON.
    pub args: Value,
    /// The raw arguments if they were not valid JSON. Such a call gets an error as its result and never runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub malformed: Option<String>,
}

impl ToolCall {
    /// A call with valid arguments.
    #[must_use]
    pub fn new(id: impl Into<CallId>, name: impl Into<String>, args: Value) -> Self {
        Self {
            id: id.into(),
            name: name.into(),
            args,
            malformed: None,
        }
    }
}

impl Part {
    /// Reasoning without vendor state.
    #[must_use]
    pub fn reasoning(text: impl Into<String>) -> Self {
        Self::Reasoning {
            text: text.into(),
            opaque: None,
        }
    }
}

/// The result of one call. Every call has exactly one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolResult {
    /// The id of the call.
    pub id: CallId,
    /// The name of the tool.
    pub name: String,
    /// The text that the model reads.
    pub text: String,
    /// Set if the call failed; the text then starts with `Error [category]: `.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorCategory>,
    /// A reference to the whole output, if `text` is only a preview of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<ArtifactRef>,
}

/// A reference to a stored result that was too large for the message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArtifactRef {
    /// The id under which it is stored.
    pub id: ArtifactId,
    /// Its size in bytes.
    pub bytes: u64,
}

/// Categories of failed calls, as the model sees them (spec 4.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum ErrorCategory {
    /// There is no tool of that name.
    UnknownTool,
    /// The arguments do not match the tool's schema.
    InvalidArguments,
    /// A policy forbids the call.
    Blocked,
    /// A person refused the call.
    Denied,
    /// The call timed out.
    Timeout,
    /// The call failed while running, or its command exited with a non-zero status.
    Exception,
    /// The named file or text does not exist.
    NotFound,
    /// The named text occurs more than once.
    Ambiguous,
    /// The file has changed since the model read it.
    Stale,
    /// The sandbox blocked the call.
    Sandbox,
    /// The call was stopped part way and may have had an effect.
    Interrupted,
}

impl ErrorCategory {
    /// The category in the prefix `Error [category]: `.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.into()
    }
}

impl Message {
    /// A message of the model with several parts.
    #[must_use]
    pub fn model(parts: Vec<Part>) -> Self {
        Self {
            role: Role::Assistant,
            origin: Origin::Model,
            parts,
        }
    }

    /// A text message of the user.
    #[must_use]
    pub fn user(text: impl Into<String>) -> Self {
        Self {
            role: Role::User,
            origin: Origin::Person,
            parts: vec![Part::Text { text: text.into() }],
        }
    }

    /// A text message of the engine, in the role of the user.
    #[must_use]
    pub fn internal(text: impl Into<String>) -> Self {
        Self {
            origin: Origin::Engine,
            ..Self::user(text)
        }
    }

    /// A text message of the model.
    #[must_use]
    pub fn assistant(text: impl Into<String>) -> Self {
        Self {
            role: Role::Assistant,
            origin: Origin::Model,
            parts: vec![Part::Text { text: text.into() }],
        }
    }

    /// A message with the results of all calls of a step.
    #[must_use]
    pub fn results(results: Vec<ToolResult>) -> Self {
        Self {
            role: Role::Tool,
            origin: Origin::Engine,
            parts: results.into_iter().map(Part::Result).collect(),
        }
    }

    /// All text parts, concatenated.
    #[must_use]
    pub fn text(&self) -> String {
        let mut all = String::new();
        for part in &self.parts {
            if let Part::Text { text } = part {
                all.push_str(text);
            }
        }
        all
    }

    /// Whether it has text other than white space.
    #[must_use]
    pub fn has_text(&self) -> bool {
        let is_text = |part: &Part| matches!(part, Part::Text { text } if !text.trim().is_empty());
        self.parts.iter().any(is_text)
    }

    /// The beginning of the text. It is longer than `most` bytes, but only slightly, if and only if the whole text is.
    #[must_use]
    pub fn text_start(&self, most: usize) -> String {
        let mut start = String::new();
        for part in &self.parts {
            if let Part::Text { text } = part {
                let room = most.saturating_sub(start.len()).saturating_add(1);
                start.push_str(&text[..text.ceil_char_boundary(room.min(text.len()))]);
            }
            if start.len() > most {
                break;
            }
        }
        start
    }

    /// The tool calls of the message, in order.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts.iter().filter_map(|part| match part {
            Part::Call(call) => Some(call),
            _ => None,
        })
    }
}

impl ToolResult {
    /// A result of a successful call.
    #[must_use]
    pub fn done(call: &ToolCall, text: impl Into<String>) -> Self {
        Self {
            id: call.id.clone(),
            name: call.name.clone(),
            text: text.into(),
            error: None,
            artifact: None,
        }
    }

    /// A failed result, in the format that models are told to expect.
    #[must_use]
    pub fn failed(call: &ToolCall, category: ErrorCategory, text: &str) -> Self {
        Self {
            error: Some(category),
            ..Self::done(call, format!("Error [{}]: {text}", category.word()))
        }
    }

    /// The result of a call that never started.
    #[must_use]
    pub fn not_run(call: &ToolCall, why: &str) -> Self {
        let text = format!("not run, because {why}");
        Self::failed(call, ErrorCategory::Interrupted, &text)
    }

    /// The result of a call that was stopped and may have had an effect.
    #[must_use]
    pub fn interrupted(call: &ToolCall, why: &str) -> Self {
        let text = format!(
            "{why}; it may have happened in part or in full, so check before you repeat it"
        );
        Self::failed(call, ErrorCategory::Interrupted, &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(parts: &[&str], most: usize, start: &str) {
        let parts = parts
            .iter()
            .map(|text| Part::Text {
                text: (*text).to_owned(),
            })
            .collect();
        let message = Message {
            role: Role::Assistant,
            origin: Origin::Model,
            parts,
        };
        assert_eq!(message.text_start(most), start);
    }

    #[test]
    fn the_beginning_of_a_text_says_whether_there_is_more() {
        check(&["abc"], 3, "abc");
        check(&["abcd"], 3, "abcd");
        check(&["abcdef"], 3, "abcd");
        check(&["ab", "cdef", "gh"], 3, "abcd");
        check(&["ab", "é"], 2, "abé");
        check(&[], 3, "");
        check(&["éé"], 0, "é");
    }
}
