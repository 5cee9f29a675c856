//! A question to a person: the approval of a call or a landing, or a question that the model asks. Every surface
//! (terminal, HTTP, editor) answers the same object.
//!
//! ```
//! use windlass_core::ask::{About, Answer, Ask, Question};
//! use windlass_core::id::AskId;
//!
//! let question = Question { text: "tea or coffee?".into(), options: vec![] };
//! let ask = Ask {
//!     id: AskId::nth(1, 0),
//!     about: About::Question(question),
//!     call: None,
//!     person: false,
//!     expires: None,
//!     waits_ms: None,
//!     run_ms: 0,
//! };
//! assert!(ask.fits(&Answer::Text { text: "tea".into() }));
//! assert!(!ask.fits(&Answer::Always { rule: None }), "no rule can answer a question");
//! ```

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::gate::{Level, Rule, Verdict};
use crate::id::{AskId, CallId};
use crate::image::Image;
use crate::message::ToolCall;
use crate::tool::Touch;

/// A question to a person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ask {
    /// The id that an answer has to name.
    pub id: AskId,
    /// The subject of the question.
    pub about: About,
    /// The tool call that waits for the answer; absent for a question that belongs to no call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// True if only a live human answer to this exact call is accepted: no rule, mode or `--yes` answers it.
    #[serde(default)]
    pub person: bool,
    /// The time from which an answer is rejected as too late; absent if there is no deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// The timeout for a connected person, in milliseconds; absent if no person was connected, or if the run waits
    /// without a limit. Without a timeout, the answer is durable before it takes effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_ms: Option<u64>,
    /// The active time of the run when it asked, in milliseconds. A resumed run counts on from this value.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub run_ms: u64,
}

/// Serde's `skip_serializing_if`: leaves a time of zero out of the log.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(ms: &u64) -> bool {
    *ms == 0
}

impl Ask {
    /// Whether an answer of this form is valid for this ask.
    #[must_use]
    pub fn fits(&self, answer: &Answer) -> bool {
        match (&self.about, answer) {
            (_, Answer::No { .. } | Answer::Expired | Answer::Unanswered | Answer::Abandoned) => {
                true
            }
            (About::Approval(approval), Answer::Always { rule }) => {
                approval.always.is_some()
                    && rule.as_ref().is_none_or(|rule| {
                        Rule::parse(rule, Verdict::Allow, Level::Session).is_ok()
                    })
            }
            (About::Approval(_) | About::Landing(_), Answer::Once) => true,
            (About::Approval(_) | About::Landing(_), _) => false,
            (About::Question(_), Answer::Text { .. } | Answer::Once) => true,
            (About::Question(_), Answer::Always { .. }) => false,
        }
    }

    /// Whether the ask has expired at this time.
    #[must_use]
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|end| end <= now)
    }
}

/// The subject of an ask: an approval, a question of the model, or a landing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum About {
    /// Asks whether a tool call may run.
    Approval(Box<Approval>),
    /// A question that the model asks the user.
    Question(Question),
    /// Asks whether the run's changes may land in the user's tree.
    Landing(LandingAsk),
}

/// Changes that need a person's approval before they land in the user's tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LandingAsk {
    /// Each path with the reason for asking.
    pub paths: Vec<(String, String)>,
    /// Validators that fail now and also failed before the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failing: Vec<String>,
    /// The hash of the tree that would land. The answer is valid for this tree only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree_hash: Option<String>,
}

/// A tool call that needs a person's approval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Approval {
    /// The call with its exact arguments.
    pub call: ToolCall,
    /// The files, commands and hosts that the call would touch.
    pub touches: Vec<Touch>,
    /// The content at each touched path inside the workspace when the question was asked. The answer is valid for
    /// exactly that content.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub found: Vec<(String, Image)>,
    /// The rule that requires the approval.
    pub rule: String,
    /// The reason for asking, in words for the person.
    pub reason: String,
    /// A preview of the change, if the tool can make one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<String>,
    /// The rule that the answer "always" would add; absent if the call may only be approved once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub always: Option<String>,
}

impl Approval {
    /// The rule that an answer adds: the one that the person wrote, or else the offered one.
    #[must_use]
    pub fn added_rule<'a>(&'a self, answer: &'a Answer) -> Option<&'a str> {
        match answer {
            Answer::Always { rule } => rule.as_deref().or(self.always.as_deref()),
            _ => None,
        }
    }
}

/// A question that the model asks the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Question {
    /// The wording of the question.
    pub text: String,
    /// Suggested answers; any other text is accepted as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

/// The origin of an answer to an ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[derive(strum::IntoStaticStr, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum AnsweredBy {
    /// A live human answer.
    Person,
    /// The setting for asks that no person can answer.
    Policy,
    /// The engine, because the ask was cancelled, abandoned or expired. Unknown values of later versions also map to
    /// this one.
    #[serde(other)]
    Engine,
}

impl AnsweredBy {
    /// The name of this origin, as in the log.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// The answer to an ask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Answer {
    /// Allow this one call or landing.
    Once,
    /// Allow this call, and later every call that matches a rule.
    Always {
        /// The rule that the person wrote; absent for the offered rule.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rule: Option<String>,
    },
    /// Refuse the call or the landing.
    No {
        /// The reason, which is passed on to the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// Free text in answer to a question of the model.
    Text {
        /// The text that the person wrote.
        text: String,
    },
    /// No answer came before the deadline.
    Expired,
    /// No person is connected, and the policy is to continue without an answer.
    Unanswered,
    /// The ask is obsolete: the run was cancelled, or a new prompt replaced it.
    Abandoned,
}
