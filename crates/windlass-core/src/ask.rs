//! A question to a person: an approval of a call, or the model's own. One object, whichever surface answers it.
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
//! assert!(!ask.fits(&Answer::Always), "no rule answers a question for good");
//! ```

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::id::{AskId, CallId};
use crate::image::Image;
use crate::message::ToolCall;
use crate::tool::Touch;

/// A question to a person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ask {
    /// Its id; an answer names it.
    pub id: AskId,
    /// What is asked.
    pub about: About,
    /// The call it belongs to, where it belongs to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// Who may answer: only a live human answer to this exact call counts; no rule, mode or `--yes` answers it.
    #[serde(default)]
    pub person: bool,
    /// From then on an answer comes too late; absent when it may come at any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// How long somebody who is there is waited for, in milliseconds; absent when nobody was there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_ms: Option<u64>,
    /// How long the run had taken until then, in milliseconds: it goes on from there.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub run_ms: u64,
}

/// Times of zero are not written.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(ms: &u64) -> bool {
    *ms == 0
}

impl Ask {
    /// Whether an answer of this form can be one to it.
    #[must_use]
    pub fn fits(&self, answer: &Answer) -> bool {
        match (&self.about, answer) {
            (_, Answer::No { .. } | Answer::Expired | Answer::Unanswered | Answer::Abandoned) => {
                true
            }
            (About::Approval(approval), Answer::Always) => approval.always.is_some(),
            (About::Approval(_) | About::Landing(_), Answer::Once) => true,
            (About::Approval(_) | About::Landing(_), _) => false,
            (About::Question(_), Answer::Text { .. } | Answer::Once) => true,
            (About::Question(_), Answer::Always) => false,
        }
    }

    /// Whether an answer at this time comes too late.
    #[must_use]
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|end| end <= now)
    }
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum About {
    /// May this call run?
    Approval(Box<Approval>),
    /// The model wants to know something.
    Question(Question),
    /// May these changes land?
    Landing(LandingAsk),
}

/// Changes that wait for a person's yes before they reach the user's tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LandingAsk {
    /// Each path with the reason it is asked about.
    pub paths: Vec<(String, String)>,
    /// Checks that fail and failed before the run, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failing: Vec<String>,
    /// The hash of exactly what would land.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree_hash: Option<String>,
}

/// A call that waits for a person's yes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Approval {
    /// The exact call.
    pub call: ToolCall,
    /// What it would touch.
    pub touches: Vec<Touch>,
    /// What was at each path inside the workspace when it was asked: an answer counts for exactly that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub found: Vec<(String, Image)>,
    /// The rule that asks.
    pub rule: String,
    /// Why it is asked.
    pub reason: String,
    /// What would change, where it can be shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<String>,
    /// The rule that "always" would add; absent when it may not be answered for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub always: Option<String>,
}

/// The model's own question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Question {
    /// What it wants to know.
    pub text: String,
    /// Answers it offers; any other text is fine too.
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
    /// The engine, because the ask was cancelled, abandoned or expired. Also what a value of a later version reads as.
    #[serde(other)]
    Engine,
}

impl AnsweredBy {
    /// The word of it, as in the log.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// What the person said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Answer {
    /// This once.
    Once,
    /// This, and from now on whatever the offered rule matches.
    Always,
    /// No.
    No {
        /// Told to the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// Words, to a question of the model.
    Text {
        /// The words.
        text: String,
    },
    /// No answer came in time.
    Expired,
    /// No person is there to ask, and the policy is to continue without an answer.
    Unanswered,
    /// It became pointless: cancelled, or a new prompt came.
    Abandoned,
}
