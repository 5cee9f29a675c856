//! The user's options for a hosted SDK. Options that the adapter cannot support are refused before anything starts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::launch::api;
use crate::dialect::Dialect;
use crate::option_checks::{check_effort, check_env, check_limit, check_program};

/// The maximum number of agents besides the first one.
const MAX_SUBAGENTS: usize = 16;
/// The name of the first agent.
pub(super) const FIRST: &str = "coder";

/// An SDK that can be hosted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sdk {
    OpenAiAgents,
    GoogleAdk,
}

impl Sdk {
    /// The name of the package, which is also the name of the runtime.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenAiAgents => "openai-agents",
            Self::GoogleAdk => "google-adk",
        }
    }

    /// Whether the SDK supports a model protocol.
    #[must_use]
    pub fn speaks(self, wire: Dialect) -> bool {
        self == Self::GoogleAdk || matches!(wire, Dialect::OpenAiResponses | Dialect::OpenAiChat)
    }
}

/// The user's options for a hosted SDK.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SidecarOptions {
    /// The path of the Python interpreter with the SDK. Default: `python3`.
    pub program: String,
    pub model: Option<String>,
    /// The maximum number of model calls for one prompt. Default: only the limits of the run apply.
    pub max_turns: Option<u32>,
    /// Agents to which the first one can hand over.
    pub agents: Vec<SubagentOptions>,
    /// The reasoning effort, as the model names it. Only for `openai-agents`.
    pub effort: Option<String>,
    /// Whether the model may request several calls at once. Only for `openai-agents`.
    pub parallel_tool_calls: Option<bool>,
    pub temperature: Option<f64>,
    /// The maximum number of tokens of one answer.
    pub max_output: Option<u64>,
    pub env: BTreeMap<String, String>,
}

/// An agent to which the first one can hand over. It can hand back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubagentOptions {
    /// Lower-case letters, digits and `_`.
    pub name: String,
    /// The purpose, by which other agents decide to hand over.
    pub description: String,
    /// The instructions before the contract.
    pub instructions: String,
    /// Another model of the same vendor. Default: the model of the first agent.
    pub model: Option<String>,
    /// The tools of this agent. Default: all.
    pub tools: Option<Vec<String>>,
}

/// Variables that the adapter sets itself, or that would loosen its restrictions.
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
    /// Refuses options that the adapter cannot support.
    pub(super) fn check(&self, sdk: Sdk, wire: Dialect) -> Result<(), String> {
        let hint = "the interpreter of an environment that has the SDK";
        check_program("program", &self.program, hint)?;
        if !sdk.speaks(wire) {
            return Err(format!(
                "{} does not support the model protocol `{}`",
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
                return Err(format!("{} has no option `{field}`", sdk.name()));
            }
        }
        check_limit("max_turns", self.max_turns)?;
        check_effort(self.effort.as_deref())?;
        check_env(&self.env, OWN_ENV)?;
        self.check_agents()
    }

    fn check_agents(&self) -> Result<(), String> {
        if self.agents.len() > MAX_SUBAGENTS {
            return Err(format!("`agents` contains more than {MAX_SUBAGENTS}"));
        }
        for (at, subagent) in self.agents.iter().enumerate() {
            let name = &subagent.name;
            if !is_word(name) {
                return Err(format!(
                    "`agents` contains the name `{}`; use lower-case letters, digits and `_`",
                    name.escape_debug()
                ));
            }
            if [FIRST, "user"].contains(&name.as_str()) {
                return Err(format!(
                    "`agents` contains the name `{name}`, which is reserved"
                ));
            }
            if self.agents[..at].iter().any(|other| other.name == *name) {
                return Err(format!("`agents` contains the name `{name}` twice"));
            }
            if subagent.description.trim().is_empty() {
                return Err(format!(
                    "`agents`: `{name}` has no description, which other agents need to hand over"
                ));
            }
        }
        Ok(())
    }
}

/// Whether a name is also a valid name in Python.
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
    use crate::option_checks::testing::check_options;

    #[track_caller]
    fn check(sdk: Sdk, wire: Dialect, options: Value, expect: &str) {
        check_options(
            options,
            |options| Sidecar::new(sdk, wire, options).map(drop),
            expect,
        );
    }

    #[test]
    fn unsupported_options_are_refused() {
        let (openai, adk) = (Sdk::OpenAiAgents, Sdk::GoogleAdk);
        let subagent =
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
            "does not support the model protocol `gemini`",
        );
        check(
            adk,
            Dialect::Gemini,
            json!({"agents": [subagent("reviewer")], "temperature": 0.2}),
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
            "allows no work",
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
            "cannot set",
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
            json!({"agents": [subagent("the reviewer")]}),
            "use lower-case letters",
        );
        check(
            openai,
            Dialect::OpenAiChat,
            json!({"agents": [subagent("coder")]}),
            "which is reserved",
        );
        check(
            openai,
            Dialect::OpenAiChat,
            json!({"agents": [subagent("a"), subagent("a")]}),
            "the name `a` twice",
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
            json!({"agents": vec![subagent("a"); 17]}),
            "more than 16",
        );
    }
}
