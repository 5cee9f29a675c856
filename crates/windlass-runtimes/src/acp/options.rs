//! What a person can set for an agent that speaks the Agent Client Protocol. What is not said here is as its profile has
//! it; a key that is not here is an error, and so is a value that the agent turns out not to have.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::profile::TurnUsage;
use crate::mcp_server::McpServers;

/// The options of one agent.
///
/// In `args`, `env`, `point_at`, `home_files` and `session_meta` these words in braces stand for values that are known when it is
/// started: `{url}` and `{key}` (the model endpoint of the run), `{model}`, `{home}` (its home) and `{workspace}`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AcpOptions {
    /// What it is called, in the log and on the screen. Absent: as its profile, or its command.
    pub name: Option<String>,
    /// The program, by its path or its name. Absent: as its profile has it.
    pub command: Option<String>,
    /// Its words. Absent: as its profile has them.
    pub args: Option<Vec<String>>,
    /// Variables for it, beside those of its profile; they win.
    pub env: BTreeMap<String, String>,
    /// The mode to work in, by its id or its name.
    pub mode: Option<String>,
    /// The model to use, by the name the agent has for it.
    pub model: Option<String>,
    /// The agent's own settings, by their id: a value's id or name, or true and false.
    pub config_options: BTreeMap<String, Setting>,
    /// MCP servers that it is to use, by name, in the form of `.mcp.json`. They run where the agent runs.
    pub mcp_servers: McpServers,
    /// How it is to sign in, by the method's id. Absent: as its profile has it, or not at all.
    pub auth_method: Option<String>,
    /// Whether it may read and write files through us. Absent: as its profile has it.
    pub fs: Option<bool>,
    /// Whether it may run commands through us. Absent: as its profile has it.
    pub terminal: Option<bool>,
    /// Variables that point it at the run's model endpoint. Absent: as its profile has them. They are left out when the
    /// agent has a login of its own.
    pub point_at: Option<BTreeMap<String, String>>,
    /// Files to put into its home, by their path there. Those that name `{url}` or `{key}` are left out when the agent
    /// has a login of its own.
    pub home_files: BTreeMap<String, String>,
    /// What a session is begun with beside the protocol, as a JSON object: the `_meta` of `session/new`.
    pub session_meta: Option<String>,
    /// Whether it asks before each call. Absent: as its profile has it; of one that nobody knows it is not believed.
    pub asks: Option<bool>,
    /// Whether it says what it cost. Absent: as its profile has it.
    pub reports_cost: Option<bool>,
    /// What its numbers at the end of a turn mean. Absent: as its profile has it.
    pub turn_usage: Option<TurnUsage>,
    /// Whether it uses MCP servers that it is given. Absent: as its profile has it.
    pub mcp: Option<bool>,
    /// Whether a conversation stays in the directory in which it began, even if it is resumed in another one. Absent: as
    /// its profile has it.
    pub keeps_directory: Option<bool>,
    /// The name that replaces the one the agent reports, so that the facts about an agent of that name apply to it.
    pub calls_itself: Option<String>,
    /// Further words in braces, by their names: a value for each wire of the model, as `anthropic=/v1 | gemini=/v1beta |
    /// /v1`. One without a wire is for all others.
    pub words: BTreeMap<String, String>,
    /// What its tools do, by their names, where it says no more of them than `other`: a kind of the protocol.
    pub kinds: BTreeMap<String, String>,
    /// Files and folders of its home that steer it, and are gone before each start. Beside those of its profile.
    pub steered_by: Vec<String>,
}

/// A value of one of the agent's own settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Setting {
    /// On or off.
    Switch(bool),
    /// One of several, by its id or its name.
    Choice(String),
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_option_that_is_not_there_is_an_error() {
        let text = r#"{"command":"x","config_options":{"fast":true,"thought":"high"},"mcp_servers":{
            "a":{"command":"b"},"c":{"type":"http","url":"http://d"}}}"#;
        let options: AcpOptions = serde_json::from_str(text).unwrap();
        assert_eq!(options.mcp_servers.len(), 2);
        assert_eq!(
            serde_json::from_str::<AcpOptions>(&serde_json::to_string(&options).unwrap()).unwrap(),
            options
        );
        let err = serde_json::from_str::<AcpOptions>(r#"{"modle":"x"}"#)
            .unwrap_err()
            .to_string();
        assert!(
            err.contains("unknown field `modle`") && err.contains("`model`"),
            "{err}"
        );
        assert!(
            serde_json::from_str::<AcpOptions>(r#"{"mcp_servers":{"a":{"comand":"b"}}}"#).is_err()
        );
    }
}
