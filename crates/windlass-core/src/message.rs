//! What is said between person, model and engine.
//! Plain data; how a vendor writes it on the wire is the provider's business.
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

/// Who speaks. The system prompt is not a message: it belongs to the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The person, or the engine speaking in the person's place (see [`Origin`]).
    User,
    /// The model.
    Assistant,
    /// Results of the calls of the assistant message before it.
    Tool,
}

/// Where a message came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// A person wrote it.
    #[default]
    Person,
    /// A model wrote it.
    Model,
    /// The engine wrote it (a nudge, findings of a validator); views may hide it.
    Engine,
}

/// One message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// Who wrote it.
    #[serde(default)]
    pub origin: Origin,
    /// What is said, in order.
    pub parts: Vec<Part>,
}

/// A piece of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data", rename_all = "snake_case")]
pub enum Part {
    /// Words.
    Text {
        /// The words.
        text: String,
    },
    /// The model's reasoning, with whatever the vendor needs to see again, unchanged.
    Reasoning {
        /// Readable reasoning; may be empty when the vendor shows none.
        text: String,
        /// Signature or encrypted state; carried back byte for byte, never redacted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        opaque: Option<Value>,
    },
    /// A picture.
    Image {
        /// For example `image/png`.
        media_type: String,
        /// Base64.
        data: String,
    },
    /// The model asks for a tool.
    Call(ToolCall),
    /// What the tool answered.
    Result(ToolResult),
}

/// One tool call as the model asked for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolCall {
    /// The vendor's id of the call.
    pub id: CallId,
    /// The tool's name as the model wrote it.
    pub name: String,
    /// The arguments; an empty object when they were not valid JSON.
    pub args: Value,
    /// What the model wrote when it was not valid JSON. Such a call is answered, never run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub malformed: Option<String>,
}

impl ToolCall {
    /// A call with arguments that are JSON.
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
    /// Reasoning that the vendor keeps nothing of.
    #[must_use]
    pub fn reasoning(text: impl Into<String>) -> Self {
        Self::Reasoning {
            text: text.into(),
            opaque: None,
        }
    }
}

/// What came of one call. Exactly one for each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolResult {
    /// The call it answers.
    pub id: CallId,
    /// The tool's name.
    pub name: String,
    /// What the model reads.
    pub text: String,
    /// Set when it failed; the text then starts `Error [category]: `.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorCategory>,
    /// Where the whole output is, when `text` is only a preview.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<ArtifactRef>,
}

/// A stored large result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArtifactRef {
    /// Its id.
    pub id: ArtifactId,
    /// Its size.
    pub bytes: u64,
}

/// Kinds of failure a model is told about (spec 4.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum ErrorCategory {
    /// No tool of that name.
    UnknownTool,
    /// The arguments do not fit the tool's schema.
    InvalidArguments,
    /// Policy forbids it.
    Blocked,
    /// A person said no.
    Denied,
    /// It took too long.
    Timeout,
    /// It failed while running, or exited non-zero.
    Exception,
    /// What it names is not there.
    NotFound,
    /// What it names is there more than once.
    Ambiguous,
    /// What it was based on has changed.
    Stale,
    /// The sandbox stopped it.
    Sandbox,
    /// It was stopped half way and may have happened.
    Interrupted,
}

impl ErrorCategory {
    /// The word in `Error [word]: `.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.into()
    }
}

impl Message {
    /// A message of a model.
    #[must_use]
    pub fn model(parts: Vec<Part>) -> Self {
        Self {
            role: Role::Assistant,
            origin: Origin::Model,
            parts,
        }
    }

    /// Words of a person.
    #[must_use]
    pub fn user(text: impl Into<String>) -> Self {
        Self {
            role: Role::User,
            origin: Origin::Person,
            parts: vec![Part::Text { text: text.into() }],
        }
    }

    /// Words of the engine, in the person's place.
    #[must_use]
    pub fn internal(text: impl Into<String>) -> Self {
        Self {
            origin: Origin::Engine,
            ..Self::user(text)
        }
    }

    /// Words of the model.
    #[must_use]
    pub fn assistant(text: impl Into<String>) -> Self {
        Self {
            role: Role::Assistant,
            origin: Origin::Model,
            parts: vec![Part::Text { text: text.into() }],
        }
    }

    /// Results, as one message.
    #[must_use]
    pub fn results(results: Vec<ToolResult>) -> Self {
        Self {
            role: Role::Tool,
            origin: Origin::Engine,
            parts: results.into_iter().map(Part::Result).collect(),
        }
    }

    /// All text parts, joined.
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

    /// The beginning of its text: all of it when it is no longer than so many bytes, and a little more than that at most.
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

    /// The calls in it, in order.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts.iter().filter_map(|part| match part {
            Part::Call(call) => Some(call),
            _ => None,
        })
    }
}

impl ToolResult {
    /// A result without an error.
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

    /// A result that says it failed, in the form models are told to expect.
    #[must_use]
    pub fn failed(call: &ToolCall, category: ErrorCategory, text: &str) -> Self {
        Self {
            error: Some(category),
            ..Self::done(call, format!("Error [{}]: {text}", category.word()))
        }
    }

    /// The result of a call that was never begun.
    #[must_use]
    pub fn not_run(call: &ToolCall, why: &str) -> Self {
        let text = format!("not run, because {why}");
        Self::failed(call, ErrorCategory::Interrupted, &text)
    }

    /// The result of a call that was stopped and may have happened.
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
