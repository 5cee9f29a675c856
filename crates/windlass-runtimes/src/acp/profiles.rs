//! What is known of agents that speak the protocol, as data: how each is started, pointed at a model and held. A new one
//! is one more entry; nothing here is code that only one agent needs.

use crate::filling::EVERY_CLIENT;

/// The wire protocol that the run's model is asked in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Chat Completions, and whoever speaks it, too.
    OpenAiChat,
    /// OpenAI Responses.
    OpenAiResponses,
    /// Gemini.
    Gemini,
}

/// What the numbers mean that an agent gives at the end of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnUsage {
    /// All model calls of the turn.
    Sum,
    /// Only the last one.
    LastCall,
}

/// Names and what they stand for.
pub type Pairs = &'static [(&'static str, &'static str)];

/// What is known of one agent.
#[derive(Debug, Clone, Copy)]
pub struct Profile {
    /// As people type it.
    pub name: &'static str,
    /// The program and its words; empty where a person has to say.
    pub command: &'static [&'static str],
    /// Variables; see the options for the words in braces.
    pub env: Pairs,
    /// Variables that point it at the model.
    pub point_at: Pairs,
    /// Further words in braces, by what the model speaks. `None` is for all that are not named.
    pub words: &'static [(Option<Dialect>, Pairs)],
    /// How it signs in, where it has to be told.
    pub auth_method: Option<&'static str>,
    /// The mode in which it asks before it does something, where that is not how it starts.
    pub mode: Option<&'static str>,
    /// Whether it works well with files that are read and written through us.
    pub fs: bool,
    /// Whether it works well with commands that are run through us.
    pub terminal: bool,
    /// Whether it asks before each call, as it is set up here.
    pub asks: bool,
    /// Whether it says what it cost.
    pub reports_cost: bool,
    /// Files and folders of its home that steer it, and that an earlier try may have left for the next.
    pub steered_by: &'static [&'static str],
}

/// The settings of opencode: one provider, ours, and everything asked about.
const OPENCODE: &str = concat!(
    r#"{"model":"windlass/{model}","small_model":"windlass/{model}","enabled_providers":["windlass"],"#,
    r#""share":"disabled","autoupdate":false,"snapshot":false,"permission":{"*":"ask"},"#,
    r#""instructions":["{workspace}/AGENTS.md"],"#,
    r#""provider":{"windlass":{"npm":"{package}","name":"windlass","#,
    r#""options":{"baseURL":"{url}{path}","apiKey":"{key}"},"models":{"{model}":{"name":"{model}"}}}}}"#,
);

/// Any agent, by its command: nothing is known of it, so nothing is claimed.
pub const GENERIC: Profile = Profile {
    name: "acp",
    command: &[],
    env: &[],
    point_at: EVERY_CLIENT,
    words: &[],
    auth_method: None,
    mode: None,
    fs: true,
    terminal: true,
    asks: false,
    reports_cost: false,
    steered_by: &[],
};

/// Those that are known.
pub const PROFILES: &[Profile] = &[Profile {
    name: "opencode",
    command: &["opencode", "acp"],
    env: &[
        ("OPENCODE_DISABLE_AUTOUPDATE", "1"),
        ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
        ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1"),
        ("OPENCODE_DISABLE_DEFAULT_PLUGINS", "1"),
        // The project's own settings could allow what is to be asked about, and bring code; its instructions are named below.
        ("OPENCODE_DISABLE_PROJECT_CONFIG", "1"),
        ("OPENCODE_PERMISSION", r#"{"*":"ask"}"#),
    ],
    point_at: &[("OPENCODE_CONFIG_CONTENT", OPENCODE)],
    // Only packages that are part of the program: it cannot fetch others in its place.
    words: &[
        (Some(Dialect::Anthropic), &[("{package}", "@ai-sdk/anthropic"), ("{path}", "/v1")]),
        (Some(Dialect::OpenAiResponses), &[("{package}", "@ai-sdk/openai"), ("{path}", "/v1")]),
        (Some(Dialect::Gemini), &[("{package}", "@ai-sdk/google"), ("{path}", "/v1beta")]),
        (None, &[("{package}", "@ai-sdk/openai-compatible"), ("{path}", "/v1")]),
    ],
    auth_method: None,
    mode: None,
    fs: true,
    terminal: true,
    asks: true,
    reports_cost: false,
    steered_by: &[".config/opencode", ".opencode", ".claude", ".agents"],
}];

/// What the numbers of a turn mean, by the name the agent gives itself. Others are taken at their word.
const LAST_CALL_ONLY: &[&str] = &["opencode", "goose"];

impl Profile {
    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        PROFILES.iter().find(|profile| profile.name == name)
    }

    /// The words in braces for a model that speaks so.
    pub(super) fn words_for(&self, dialect: Dialect) -> Pairs {
        let fits = |which: &Option<Dialect>| which.is_none_or(|which| which == dialect);
        self.words.iter().find(|(which, _)| fits(which)).map_or(&[], |(_, words)| words)
    }
}

/// What the numbers of a turn mean for an agent that calls itself so.
pub(super) fn turn_usage(agent: &str) -> TurnUsage {
    let agent = agent.to_ascii_lowercase();
    if LAST_CALL_ONLY.contains(&agent.as_str()) { TurnUsage::LastCall } else { TurnUsage::Sum }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::filling::Values;

    #[test]
    fn every_setting_that_is_json_stays_json_when_it_is_filled() {
        for profile in PROFILES {
            for dialect in [Dialect::Anthropic, Dialect::OpenAiChat, Dialect::OpenAiResponses, Dialect::Gemini] {
                let values = Values {
                    url: Some("http://127.0.0.1:9"),
                    key: Some("k"),
                    model: Some("vendor/m-1.5:latest"),
                    home: "/h",
                    workspace: "/w\"\\w",
                    words: profile.words_for(dialect),
                };
                for (name, text) in profile.env.iter().chain(profile.point_at) {
                    let filled = values.fill(text).unwrap();
                    assert!(!filled.contains("{package}"), "{name}: {filled}");
                    if filled.starts_with('{') {
                        serde_json::from_str::<serde_json::Value>(&filled)
                            .unwrap_or_else(|err| panic!("{name}: {err}"));
                    }
                }
            }
        }
    }
}
