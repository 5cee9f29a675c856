//! What a person can choose about a hosted SDK. What it could not be held to is refused here, before anything starts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::launch::api;
use crate::dialect::Dialect;
use crate::given::{check_effort, check_env, check_limit, check_program};

/// The most agents beside the first one.
const MAX_HELPERS: usize = 16;
/// The name of the first agent.
pub(super) const FIRST: &str = "coder";

/// An SDK that can be hosted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sdk {
    /// `openai-agents`.
    OpenAiAgents,
    /// `google-adk`.
    GoogleAdk,
}

impl Sdk {
    /// Its name: that of its package, and of the runtime.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenAiAgents => "openai-agents",
            Self::GoogleAdk => "google-adk",
        }
    }

    /// Whether it can ask a model in these words.
    #[must_use]
    pub fn speaks(self, wire: Dialect) -> bool {
        self == Self::GoogleAdk || matches!(wire, Dialect::OpenAiResponses | Dialect::OpenAiChat)
    }
}

/// Options of a hosted SDK.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SidecarOptions {
    /// The interpreter of the environment that has the SDK, by its path; `python3` if empty.
    pub program: String,
    /// The model, by name.
    pub model: Option<String>,
    /// Model calls on one prompt; without it the limits of the run alone count.
    pub max_turns: Option<u32>,
    /// Agents that the first one can hand over to.
    pub agents: Vec<Helper>,
    /// How hard the model thinks, in its own words. `openai-agents` alone.
    pub effort: Option<String>,
    /// Whether the model may ask for several calls at once. `openai-agents` alone.
    pub parallel_tool_calls: Option<bool>,
    /// How free the model is in its words.
    pub temperature: Option<f64>,
    /// The most tokens of one answer.
    pub max_output: Option<u64>,
    /// Further variables.
    pub env: BTreeMap<String, String>,
}

/// An agent that the first one can hand over to. It can hand back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Helper {
    /// Its name, one plain word.
    pub name: String,
    /// What it is for: the others go by this.
    pub description: String,
    /// What it is told, in front of the contract.
    pub instructions: String,
    /// Its model, when it is another one. It is served by the same vendor.
    pub model: Option<String>,
    /// The only tools it has; all of them without it.
    pub tools: Option<Vec<String>>,
}

/// Variables that say what the adapter says, or that would undo what it does.
const OWN_ENV: &[&str] = &[
    "HOME",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_API_BASE",
    "GOOGLE_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_GEMINI_BASE_URL",
    "GOOGLE_GENAI_USE_VERTEXAI",
    "OPENAI_AGENTS_DISABLE_TRACING",
    "OTEL_SDK_DISABLED",
    "LITELLM_MODE",
    "LITELLM_TELEMETRY",
    "LITELLM_LOCAL_MODEL_COST_MAP",
];

impl SidecarOptions {
    /// Says what cannot be done.
    pub(super) fn check(&self, sdk: Sdk, wire: Dialect) -> Result<(), String> {
        let hint = "the interpreter of an environment that has the SDK";
        check_program("program", &self.program, hint)?;
        if !sdk.speaks(wire) {
            return Err(format!(
                "{} does not ask models as `{}` does",
                sdk.name(),
                api(wire).0
            ));
        }
        if sdk != Sdk::OpenAiAgents {
            let given = [
                ("effort", self.effort.is_some()),
                ("parallel_tool_calls", self.parallel_tool_calls.is_some()),
            ];
            if let Some((field, _)) = given.iter().find(|(_, given)| *given) {
                return Err(format!(
                    "it has no option `{field}`: {} cannot be told that",
                    sdk.name()
                ));
            }
        }
        check_limit("max_turns", self.max_turns)?;
        check_effort(self.effort.as_deref())?;
        check_env(&self.env, OWN_ENV)?;
        self.check_agents()
    }

    fn check_agents(&self) -> Result<(), String> {
        if self.agents.len() > MAX_HELPERS {
            return Err(format!("`agents` has more than {MAX_HELPERS}"));
        }
        for (at, helper) in self.agents.iter().enumerate() {
            let name = &helper.name;
            if !is_word(name) {
                return Err(format!(
                    "`agents` has one with the name `{}`; use small letters, digits and `_`",
                    name.escape_debug()
                ));
            }
            if [FIRST, "user"].contains(&name.as_str()) {
                return Err(format!(
                    "`agents` has one with the name `{name}`, which has a meaning already"
                ));
            }
            if self.agents[..at].iter().any(|other| other.name == *name) {
                return Err(format!("`agents` has two with the name `{name}`"));
            }
            if helper.description.trim().is_empty() {
                return Err(format!(
                    "`agents`: `{name}` has no description, by which others know when to hand over"
                ));
            }
        }
        Ok(())
    }
}

/// A name that is one in Python, too.
fn is_word(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    name.len() <= 40
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::Sidecar;
    use super::*;
    use crate::given::testing::check_options;

    #[track_caller]
    fn check(sdk: Sdk, wire: Dialect, options: Value, expect: &str) {
        check_options(
            options,
            |options| Sidecar::new(sdk, wire, options).map(drop),
            expect,
        );
    }

    #[test]
    fn what_cannot_be_honoured_is_refused() {
        let (openai, adk) = (Sdk::OpenAiAgents, Sdk::GoogleAdk);
        let helper =
            |name: &str| json!({"name": name, "description": "reviews", "instructions": "Review."});
        check(openai, Dialect::OpenAiResponses, json!({}), "");
        check(
            openai,
            Dialect::OpenAiChat,
            json!({"effort": "low", "parallel_tool_calls": false, "max_turns": 3}),
            "",
        );
        check(
            openai,
            Dialect::Gemini,
            json!({}),
            "does not ask models as `gemini`",
        );
        check(
            adk,
            Dialect::Gemini,
            json!({"agents": [helper("reviewer")], "temperature": 0.2}),
            "",
        );
        check(
            adk,
            Dialect::OpenAiChat,
            json!({"effort": "low"}),
            "no option `effort`",
        );
        check(
            adk,
            Dialect::OpenAiChat,
            json!({"parallel_tool_calls": true}),
            "no option `parallel_tool_calls`",
        );
        check(
            adk,
            Dialect::OpenAiChat,
            json!({"max_turn": 3}),
            "unknown field `max_turn`",
        );
        check(
            adk,
            Dialect::OpenAiChat,
            json!({"max_turns": 0}),
            "nothing could be done",
        );
        check(
            adk,
            Dialect::OpenAiChat,
            json!({"program": " "}),
            "`program` is empty",
        );
        check(
            adk,
            Dialect::OpenAiChat,
            json!({"env": {"OPENAI_BASE_URL": "http://elsewhere"}}),
            "may not set",
        );
        check(
            openai,
            Dialect::OpenAiChat,
            json!({"effort": "Very much"}),
            "such as `low`",
        );
        check(
            openai,
            Dialect::OpenAiChat,
            json!({"agents": [helper("the reviewer")]}),
            "use small letters",
        );
        check(
            openai,
            Dialect::OpenAiChat,
            json!({"agents": [helper("coder")]}),
            "has a meaning already",
        );
        check(
            openai,
            Dialect::OpenAiChat,
            json!({"agents": [helper("a"), helper("a")]}),
            "two with the name `a`",
        );
        let silent = json!({"name": "a", "description": " ", "instructions": ""});
        check(
            openai,
            Dialect::OpenAiChat,
            json!({"agents": [silent]}),
            "has no description",
        );
        check(
            openai,
            Dialect::OpenAiChat,
            json!({"agents": [{"name": "a"}]}),
            "missing field",
        );
        check(
            openai,
            Dialect::OpenAiChat,
            json!({"agents": vec![helper("a"); 17]}),
            "more than 16",
        );
    }
}
