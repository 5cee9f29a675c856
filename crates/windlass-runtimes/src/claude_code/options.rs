//! The user's options for Claude Code. Options that the adapter cannot support are refused before anything starts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::mcp_server::{self, McpServers};
use crate::option_checks::{check_args, check_env, check_limit, check_program};

/// The name of the MCP server with the Windlass tools.
pub(super) const MCP_SERVER_NAME: &str = "windlass";

/// The user's options for Claude Code.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClaudeOptions {
    /// The name or path of the program. Default: `claude`.
    pub program: String,
    /// The name or alias of the model. Default: the program's own choice.
    pub model: Option<String>,
    /// Models for the case that the first one is overloaded, in order.
    pub fallback_models: Vec<String>,
    pub effort: Option<ClaudeEffort>,
    /// The limit for thinking tokens; 0 disables thinking.
    pub thinking_tokens: Option<u32>,
    /// The names of the agent's own tools that are enabled. Default: all; an empty list disables all.
    pub allowed_tools: Option<Vec<String>>,
    /// Tools that are disabled, by name or by a rule such as `Bash(git push *)`.
    pub disallowed_tools: Vec<String>,
    /// Settings that the agent reads: `project`, `local`. Default: none, so that no foreign hooks, rules and variables
    /// apply. `CLAUDE.md` of the project is read in any case. Hooks in settings never run.
    pub setting_sources: Vec<SettingSource>,
    /// Additional MCP servers by name, in the format of `.mcp.json`. The agent starts them in its enclosure.
    pub mcp_servers: McpServers,
    /// Text that is appended to the system prompt.
    pub append_system_prompt: Option<String>,
    /// The maximum number of model calls for one prompt.
    pub max_turns: Option<u32>,
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
}

/// The effort of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaudeEffort {
    Low,
    Medium,
    High,
    Xhigh,
    Max,
}

/// Sources of settings of Claude Code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SettingSource {
    /// The settings of the user.
    User,
    /// The settings in the repository.
    Project,
    /// The settings in the working tree that are not checked in.
    Local,
}

/// Arguments that the adapter sets itself, or that would loosen its restrictions.
const OWN_ARGS: &[&str] = &[
    "-p",
    "--print",
    "--input-format",
    "--output-format",
    "--verbose",
    "--include-partial-messages",
    "--replay-user-messages",
    "--permission-prompt-tool",
    "--permission-prompts",
    "--permission-mode",
    "--dangerously-skip-permissions",
    "--allow-dangerously-skip-permissions",
    "--allowedTools",
    "--allowed-tools",
    "--disallowedTools",
    "--disallowed-tools",
    "--tools",
    "--setting-sources",
    "--settings",
    "--mcp-config",
    "--strict-mcp-config",
    "--resume",
    "-r",
    "--continue",
    "-c",
    "--fork-session",
    "--session-id",
    "--no-session-persistence",
    "--model",
    "--fallback-model",
    "--effort",
    "--max-turns",
    "--json-schema",
    "--append-system-prompt",
    "--bare",
    "--background",
    "--bg",
];

const OWN_ENV: &[&str] = &[
    "HOME",
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CONFIG_DIR",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS",
    "CLAUDE_CODE_MAX_RETRIES",
    "MAX_THINKING_TOKENS",
];

impl ClaudeOptions {
    /// Refuses options that the adapter cannot support.
    pub(super) fn check(&self) -> Result<(), String> {
        check_program("program", &self.program, "the program, such as `claude`")?;
        if self.setting_sources.contains(&SettingSource::User) {
            let why = "`setting_sources` cannot contain `user`: the agent has a home of its own, without the settings of \
                the user; use `project` or `local`";
            return Err(why.to_owned());
        }
        for tool in self.allowed_tools.iter().flatten() {
            if tool.is_empty() || !tool.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
                return Err(format!(
                    "`allowed_tools` contains `{tool}`, which is not the name of a tool; put rules into the permissions"
                ));
            }
        }
        if let Some(tool) = self
            .disallowed_tools
            .iter()
            .find(|tool| tool.trim().is_empty() || tool.contains('\n'))
        {
            return Err(format!(
                "`disallowed_tools` contains `{}`, which is neither a name nor a rule",
                tool.escape_debug()
            ));
        }
        if let Some(model) = self
            .fallback_models
            .iter()
            .find(|model| model.is_empty() || model.contains(','))
        {
            return Err(format!(
                "`fallback_models` contains `{model}`, which is not a valid model name"
            ));
        }
        check_limit("max_turns", self.max_turns)?;
        check_args(&self.args, OWN_ARGS)?;
        check_env(&self.env, OWN_ENV)?;
        mcp_server::check(&self.mcp_servers, MCP_SERVER_NAME)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::ClaudeCode;
    use crate::option_checks::testing::check_options;

    #[track_caller]
    fn check(options: Value, expect: &str) {
        check_options(
            options,
            |options| ClaudeCode::new(options).map(drop),
            expect,
        );
    }

    #[test]
    fn unsupported_options_are_refused() {
        check(json!({}), "");
        check(
            json!({"model": "opus", "effort": "xhigh", "setting_sources": ["project"], "args": ["--add-dir", "x"]}),
            "",
        );
        check(json!({"modle": "opus"}), "unknown field `modle`");
        check(
            json!({"setting_sources": ["user"]}),
            "without the settings of the user",
        );
        check(
            json!({"allowed_tools": ["Bash(git *)"]}),
            "put rules into the permissions",
        );
        check(
            json!({"args": ["--permission-mode=bypassPermissions"]}),
            "cannot contain `--permission-mode`",
        );
        check(
            json!({"env": {"ANTHROPIC_BASE_URL": "http://elsewhere"}}),
            "cannot set `ANTHROPIC_BASE_URL`",
        );
        check(
            json!({"mcp_servers": {"windlass": {"command": "x"}}}),
            "use another name",
        );
        check(
            json!({"mcp_servers": {"a": {"command": "x", "url": "y"}}}),
            "either a `command` or a `url`",
        );
        check(json!({"max_turns": 0}), "allows no work");
    }
}
