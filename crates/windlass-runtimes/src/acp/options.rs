//! The user's options for an agent that speaks the Agent Client Protocol. The profile of the agent provides the
//! defaults. Unknown keys are errors, as are values that the agent does not support.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::profile::TurnUsage;
use crate::mcp_server::McpServers;

/// The options of one agent.
///
/// In `args`, `env`, `point_at`, `home_files` and `session_meta`, these placeholders stand for values that are known
/// when the agent is started: `{url}` and `{key}` (the model endpoint of the run), `{model}`, `{home}` (of the agent)
/// and `{workspace}`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AcpOptions {
    /// The name in the log and on the screen. Default: the name of the profile, or of the command.
    pub name: Option<String>,
    /// The path or name of the program. Default: from the profile.
    pub command: Option<String>,
    /// The arguments of the program. Default: from the profile.
    pub args: Option<Vec<String>>,
    /// Additional variables, which override those of the profile.
    pub env: BTreeMap<String, String>,
    /// The id or the name of the mode.
    pub mode: Option<String>,
    /// The model, under the name that the agent uses.
    pub model: Option<String>,
    /// The agent's own settings, by id. A value is an id or a name, or true or false.
    pub config_options: BTreeMap<String, AcpSetting>,
    /// MCP servers by name, in the format of `.mcp.json`. The agent starts them in its enclosure.
    pub mcp_servers: McpServers,
    /// The id of the login method. Default: from the profile, else none.
    pub auth_method: Option<String>,
    /// Whether the client serves files. Default: from the profile.
    pub fs: Option<bool>,
    /// Whether the client runs commands for the agent. Default: from the profile.
    pub terminal: Option<bool>,
    /// Variables for the run's model endpoint. Default: from the profile. Not set if the agent uses its own login.
    pub point_at: Option<BTreeMap<String, String>>,
    /// Files in the agent's home, by their path there. Files with `{url}` or `{key}` are omitted if the agent uses its
    /// own login.
    pub home_files: BTreeMap<String, String>,
    /// The `_meta` of `session/new`, as a JSON object.
    pub session_meta: Option<String>,
    /// Whether the agent asks before each call. Default: from the profile, else false.
    pub asks: Option<bool>,
    /// Whether the agent reports its cost. Default: from the profile.
    pub reports_cost: Option<bool>,
    /// The meaning of the token counts at the end of a turn. Default: from the profile.
    pub turn_usage: Option<TurnUsage>,
    /// Whether the agent supports MCP servers from the client. Default: from the profile.
    pub mcp: Option<bool>,
    /// Whether a conversation stays in the directory in which it began, even if it is resumed in another one. Default:
    /// from the profile.
    pub keeps_directory: Option<bool>,
    /// Replaces the name that the agent reports, so that the known facts about an agent of that name apply.
    pub calls_itself: Option<String>,
    /// Further placeholders by name, each with a value per protocol of the model, as `anthropic=/v1 | gemini=/v1beta |
    /// /v1`. A value without a protocol applies to all others.
    pub words: BTreeMap<String, String>,
    /// Kinds (of the protocol) of tools, by name, for tools that the agent reports as `other`.
    pub kinds: BTreeMap<String, String>,
    /// Files and directories of the home that influence the agent. They are removed before each start, together with
    /// those of the profile.
    pub steered_by: Vec<String>,
}

/// A value of one of the agent's own settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum AcpSetting {
    Switch(bool),
    /// The id or the name of a value.
    Choice(String),
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_option_is_an_error() {
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
