//! How an ACP agent is started, pointed at a model and held, as data. The rows are in [`crate::agents`]; nothing here is
//! code that only one agent needs.

use serde::{Deserialize, Serialize};

use crate::agents::{AGENTS, AgentKind, AgentSpec};
use crate::dialect::Dialect;
use crate::filling::EVERY_CLIENT;

/// What the numbers mean that an agent gives at the end of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnUsage {
    /// All model calls of the turn.
    Sum,
    /// Only the last one.
    LastCall,
}

/// Further words in braces, and what they stand for by what the model speaks. `None` is for all that are not named.
pub type DialectWords = (
    &'static [&'static str],
    &'static [(Option<Dialect>, &'static [&'static str])],
);

/// Names and what they stand for.
pub type Pairs = &'static [(&'static str, &'static str)];

/// What is known of one agent. Whatever a new one does not say is as it is for any: `..GENERIC`.
#[derive(Debug, Clone, Copy)]
pub struct Profile {
    /// What it calls itself, where that is another name: so one that is started by its command is known, too.
    pub calls_itself: &'static str,
    /// The program and its words; empty where a person has to say.
    pub command: &'static [&'static str],
    /// Variables; see the options for the words in braces.
    pub env: Pairs,
    /// Variables that point it at the model.
    pub point_at: Pairs,
    /// Files of its home, by their path there.
    pub home_files: Pairs,
    /// Further words in its texts.
    pub words: DialectWords,
    /// How it signs in, where it has to be told.
    pub auth_method: Option<&'static str>,
    /// What a session is begun with beside the protocol, as JSON: the `_meta` of `session/new`.
    pub session_meta: Option<&'static str>,
    /// The mode in which it asks before it does something, where that is not how it starts.
    pub mode: Option<&'static str>,
    /// Whether it works well with files that are read and written through us.
    pub fs: bool,
    /// Whether it works well with commands that are run through us.
    pub terminal: bool,
    /// Whether it uses MCP servers that it is given.
    pub mcp: bool,
    /// Whether it asks before each call, as it is set up here.
    pub asks: bool,
    /// Whether it says what it cost.
    pub reports_cost: bool,
    /// What its numbers at the end of a turn mean.
    pub turn_usage: TurnUsage,
    /// What its tools do, by their names, where it says no more of them than `other`: a kind of the protocol.
    pub kinds: Pairs,
    /// Whether a conversation stays in the directory in which it began, even if it is resumed in another one. A copy of
    /// the workspace can be in another directory for each run, and the earlier one is gone.
    pub keeps_directory: bool,
    /// Files and folders of its home that steer it, and that an earlier try may have left for the next.
    pub steered_by: &'static [&'static str],
}

/// Any agent, by its command: nothing is known of it, so nothing is claimed.
pub const GENERIC: Profile = Profile {
    calls_itself: "",
    command: &[],
    env: &[],
    point_at: EVERY_CLIENT,
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

impl Profile {
    /// What the numbers of a turn mean for one that calls itself so.
    pub(super) fn turn_usage(&self, agent: &str) -> TurnUsage {
        let is = |spec: &&AgentSpec| {
            spec.kind == AgentKind::Acp && [spec.name, spec.acp.calls_itself].contains(&agent)
        };
        AGENTS
            .iter()
            .find(is)
            .map_or(self.turn_usage, |spec| spec.acp.turn_usage)
    }

    /// The words in braces for a model that speaks so.
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
    use crate::filling::Values;

    #[test]
    fn every_setting_that_is_json_stays_json_when_it_is_filled() {
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
                let values = Values {
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
