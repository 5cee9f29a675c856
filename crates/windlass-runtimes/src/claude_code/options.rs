//! What a person can choose about Claude Code. What it could not be held to is refused here, before anything starts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::given::{check_args, check_env, check_limit, check_program};
use crate::mcp_server::{self, McpServers};

/// The name under which our own tools are offered.
pub(super) const OURS: &str = "windlass";

/// Options of Claude Code.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClaudeOptions {
    /// The program, by name or path; `claude` if empty.
    pub program: String,
    /// The model, by name or alias; the program's own choice if not given.
    pub model: Option<String>,
    /// Models to fall back to when that one is overloaded, in order.
    pub fallback_models: Vec<String>,
    /// How much effort the model makes.
    pub effort: Option<ClaudeEffort>,
    /// Tokens it may think with; 0 turns thinking off.
    pub thinking_tokens: Option<u32>,
    /// The only tools of its own that it is offered, by their names; all of them if not given, none if empty.
    pub allowed_tools: Option<Vec<String>>,
    /// Tools that it does not get, by name or as a rule such as `Bash(git push *)`.
    pub disallowed_tools: Vec<String>,
    /// Settings it reads: `project`, `local`. None by default, so that nobody's hooks, rules and variables are in force
    /// but ours; the project's `CLAUDE.md` is read all the same. Hooks in them never run.
    pub setting_sources: Vec<SettingSource>,
    /// MCP servers beside our own tools, by name, in the form of `.mcp.json`. They run where the agent runs.
    pub mcp_servers: McpServers,
    /// Words behind its system prompt.
    pub append_system_prompt: Option<String>,
    /// Model calls that it may make on one prompt.
    pub max_turns: Option<u32>,
    /// Further words for its command line.
    pub args: Vec<String>,
    /// Further variables.
    pub env: BTreeMap<String, String>,
}

/// How much effort the model makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaudeEffort {
    /// Little.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
    /// More.
    Xhigh,
    /// All it can.
    Max,
}

/// Settings that Claude Code reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SettingSource {
    /// Those of the person.
    User,
    /// Those in the repository.
    Project,
    /// Those beside the repository's that are not checked in.
    Local,
}

/// Options of the program that the adapter says itself, or that would open what it closes.
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
    /// Says what cannot be done.
    pub(super) fn check(&self) -> Result<(), String> {
        check_program("program", &self.program, "the program, such as `claude`")?;
        if self.setting_sources.contains(&SettingSource::User) {
            let why = "`setting_sources` may not have `user`: the agent has a home made for it, and no person's \
                settings are in it; use `project` or `local`";
            return Err(why.to_owned());
        }
        for tool in self.allowed_tools.iter().flatten() {
            if tool.is_empty() || !tool.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
                return Err(format!(
                    "`allowed_tools` takes names of tools, and `{tool}` is none; a rule goes into the permissions"
                ));
            }
        }
        if let Some(tool) = self
            .disallowed_tools
            .iter()
            .find(|tool| tool.trim().is_empty() || tool.contains('\n'))
        {
            return Err(format!(
                "`disallowed_tools` has `{}`, which is neither a name nor a rule",
                tool.escape_debug()
            ));
        }
        if let Some(model) = self
            .fallback_models
            .iter()
            .find(|model| model.is_empty() || model.contains(','))
        {
            return Err(format!(
                "`fallback_models` has `{model}`, which is no name of a model"
            ));
        }
        check_limit("max_turns", self.max_turns)?;
        check_args(&self.args, OWN_ARGS)?;
        check_env(&self.env, OWN_ENV)?;
        mcp_server::check(&self.mcp_servers, OURS)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::ClaudeCode;
    use crate::given::testing::check_options;

    #[track_caller]
    fn check(options: Value, expect: &str) {
        check_options(
            options,
            |options| ClaudeCode::new(options).map(drop),
            expect,
        );
    }

    #[test]
    fn what_cannot_be_honoured_is_refused() {
        check(json!({}), "");
        check(
            json!({"model": "opus", "effort": "xhigh", "setting_sources": ["project"], "args": ["--add-dir", "x"]}),
            "",
        );
        check(json!({"modle": "opus"}), "unknown field `modle`");
        check(json!({"setting_sources": ["user"]}), "no person's settings");
        check(
            json!({"allowed_tools": ["Bash(git *)"]}),
            "a rule goes into the permissions",
        );
        check(
            json!({"args": ["--permission-mode=bypassPermissions"]}),
            "may not have `--permission-mode`",
        );
        check(
            json!({"env": {"ANTHROPIC_BASE_URL": "http://elsewhere"}}),
            "may not set `ANTHROPIC_BASE_URL`",
        );
        check(
            json!({"mcp_servers": {"windlass": {"command": "x"}}}),
            "use another name",
        );
        check(
            json!({"mcp_servers": {"a": {"command": "x", "url": "y"}}}),
            "either a `command` or a `url`",
        );
        check(json!({"max_turns": 0}), "nothing could be done");
    }
}
