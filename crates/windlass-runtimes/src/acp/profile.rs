//! Start, model access and restrictions of an ACP agent, as data. The rows are in [`crate::agents`]; no code here is
//! for a single agent.

use serde::{Deserialize, Serialize};

use crate::agents::{AGENTS, AgentKind, AgentSpec};
use crate::dialect::Dialect;
use crate::placeholders::COMMON_CLIENT_ENV;

/// The meaning of the token counts that an agent reports at the end of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnUsage {
    /// The sum of all model calls of the turn.
    Sum,
    /// Only the last model call.
    LastCall,
}

/// Further placeholders, and their values by the protocol of the model. `None` applies to all other protocols.
pub type DialectWords = (
    &'static [&'static str],
    &'static [(Option<Dialect>, &'static [&'static str])],
);

/// Names with their values.
pub type Pairs = &'static [(&'static str, &'static str)];

/// The facts about one ACP agent. A new agent takes its defaults from `..GENERIC`.
#[derive(Debug, Clone, Copy)]
pub struct AcpProfile {
    /// The name that the agent reports, if it differs from ours. It identifies an agent that was started with
    /// `acp:COMMAND`.
    pub calls_itself: &'static str,
    /// The program and its arguments; empty if the user has to give them.
    pub command: &'static [&'static str],
    /// Environment variables. The options document the placeholders.
    pub env: Pairs,
    /// Variables for the model endpoint.
    pub point_at: Pairs,
    /// Files in the agent's home, by their path there.
    pub home_files: Pairs,
    /// Further placeholders in these texts.
    pub words: DialectWords,
    /// The id of the login method, if the agent requires one.
    pub auth_method: Option<&'static str>,
    /// The `_meta` of `session/new`, as a JSON object.
    pub session_meta: Option<&'static str>,
    /// The mode in which the agent asks before each action, if it is not the default.
    pub mode: Option<&'static str>,
    /// Whether the agent works well with files that the client serves.
    pub fs: bool,
    /// Whether the agent works well with commands that the client runs.
    pub terminal: bool,
    /// Whether the agent supports MCP servers from the client.
    pub mcp: bool,
    /// Whether the agent asks before each call with these settings.
    pub asks: bool,
    pub reports_cost: bool,
    pub turn_usage: TurnUsage,
    /// Kinds (of the protocol) of tools, by name, for tools that the agent reports as `other`.
    pub kinds: Pairs,
    /// Whether a conversation stays in the directory in which it began, even if it is resumed in another one. A copy of
    /// the workspace may be in another directory for each run, and the earlier directory is gone.
    pub keeps_directory: bool,
    /// Files and directories of the home with which an earlier attempt could influence the next one.
    pub steered_by: &'static [&'static str],
}

/// Any agent, by its command. Nothing is known about it, so it has no claims.
pub const GENERIC: AcpProfile = AcpProfile {
    calls_itself: "",
    command: &[],
    env: &[],
    point_at: COMMON_CLIENT_ENV,
    home_files: &[],
    words: (&[], &[]),
    auth_method: None,
    session_meta: None,
    mode: None,
    fs: true,
    terminal: true,
    mcp: true,
    asks: false,
    reports_cost: false,
    turn_usage: TurnUsage::Sum,
    kinds: &[],
    keeps_directory: false,
    steered_by: &[],
};

impl AcpProfile {
    /// The meaning of the token counts for an agent that reports this name.
    pub(super) fn turn_usage(&self, agent: &str) -> TurnUsage {
        let is = |spec: &&AgentSpec| {
            spec.kind == AgentKind::Acp && [spec.name, spec.acp.calls_itself].contains(&agent)
        };
        AGENTS
            .iter()
            .find(is)
            .map_or(self.turn_usage, |spec| spec.acp.turn_usage)
    }

    /// The placeholders for a model that speaks this dialect.
    pub(super) fn words_for(&self, dialect: Dialect) -> Vec<(&'static str, &'static str)> {
        let (names, rows) = self.words;
        let mut rows = rows.iter();
        let row = rows.find(|(which, _)| which.is_none_or(|which| which == dialect));
        let values = row.map_or(&[][..], |(_, values)| values);
        names.iter().copied().zip(values.iter().copied()).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::agent::ModelAccess;
    use crate::placeholders::PlaceholderValues;

    #[test]
    fn json_settings_stay_valid_json_when_they_are_filled() {
        let access = ModelAccess::Metered {
            url: "http://127.0.0.1:9".into(),
            key: "k".into(),
        };
        for profile in AGENTS.iter().map(|spec| &spec.acp) {
            for dialect in [
                Dialect::Anthropic,
                Dialect::OpenAiChat,
                Dialect::OpenAiResponses,
                Dialect::Gemini,
            ] {
                let values = PlaceholderValues {
                    of: "a",
                    access: &access,
                    model: Some("vendor/m-1.5:latest"),
                    home: "/h".into(),
                    workspace: "/w\"\\w".into(),
                    words: &profile.words_for(dialect),
                };
                let meta = profile.session_meta.map(|text| ("session_meta", text));
                for (name, text) in profile
                    .env
                    .iter()
                    .chain(profile.point_at)
                    .chain(profile.home_files)
                    .chain(&meta)
                {
                    let filled = values.fill(text).unwrap();
                    let word = |(word, _): &(&str, &str)| {
                        !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '_')
                    };
                    let left = filled
                        .split('{')
                        .skip(1)
                        .filter_map(|rest| rest.split_once('}'))
                        .find(word);
                    assert_eq!(left, None, "{name}: {filled}");
                    if filled.starts_with('{') {
                        serde_json::from_str::<serde_json::Value>(&filled)
                            .unwrap_or_else(|err| panic!("{name}: {err}"));
                    }
                }
            }
        }
    }
}
