//! What a person can choose about Codex. What it could not be held to is refused here, before anything starts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::given::{check_args, check_effort, check_env, check_program};
use crate::mcp_server::{self, McpServer, McpServers, Reached};

/// The variable with the key that is shown to our endpoint, and the provider that it belongs to.
pub(super) const KEY: &str = "WINDLASS_MODEL_KEY";
pub(super) const PROVIDER: &str = "windlass";

/// Options of Codex.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CodexOptions {
    /// The program, by name or path; `codex` if empty.
    pub program: String,
    /// The model, by name; the program's own choice if not given. Its tools depend on it: a name it does not know gets
    /// no tool to apply patches.
    pub model: Option<String>,
    /// How much effort the model makes, in the model's own words (`low`, `medium`, `high`, …).
    pub effort: Option<String>,
    /// MCP servers beside our own tools, by name, in the form of `.mcp.json`. They run where the agent runs.
    pub mcp_servers: McpServers,
    /// Words for the model beside its own instructions.
    pub developer_instructions: Option<String>,
    /// Further settings, in the form of its `config.toml`.
    pub config: BTreeMap<String, Value>,
    /// Further words for its command line, in front of `app-server`.
    pub args: Vec<String>,
    /// Further variables.
    pub env: BTreeMap<String, String>,
}

/// Settings that the adapter says itself, or that would open what it closes.
const OWN_CONFIG: &[&str] = &[
    "model",
    "model_provider",
    "model_providers",
    "model_reasoning_effort",
    "approval_policy",
    "approvals_reviewer",
    "sandbox_mode",
    "sandbox_workspace_write",
    "permissions",
    "default_permissions",
    "mcp_servers",
    "developer_instructions",
    "profile",
    "profiles",
    "projects",
    "openai_base_url",
    "chatgpt_base_url",
];

const OWN_ARGS: &[&str] = &[
    "app-server",
    "-c",
    "--config",
    "-m",
    "--model",
    "-p",
    "--profile",
    "-s",
    "--sandbox",
    "-a",
    "--ask-for-approval",
    "-C",
    "--cd",
    "--oss",
    "--local-provider",
    "--remote",
    "--full-auto",
    "--yolo",
    "--dangerously-bypass-approvals-and-sandbox",
    "--dangerously-bypass-hook-trust",
];

const OWN_ENV: &[&str] = &[
    "HOME",
    "CODEX_HOME",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "CODEX_API_KEY",
    KEY,
];

impl CodexOptions {
    /// Says what cannot be done.
    pub(super) fn check(&self) -> Result<(), String> {
        check_program("program", &self.program, "the program, such as `codex`")?;
        check_effort(self.effort.as_deref())?;
        for key in self.config.keys() {
            let first = key.split('.').next().unwrap_or_default();
            if OWN_CONFIG.contains(&first) {
                return Err(format!(
                    "`config` may not set `{key}`: Windlass says it itself, or has an option for it"
                ));
            }
        }
        check_args(&self.args, OWN_ARGS)?;
        check_env(&self.env, OWN_ENV)?;
        let sse =
            |server: &McpServer| matches!(server.reached(), Ok(Reached::Remote { sse: true, .. }));
        if let Some((name, _)) = self.mcp_servers.iter().find(|(_, server)| sse(server)) {
            return Err(format!(
                "`mcp_servers.{name}` is of `type` `sse`, which Codex does not speak; use `http`"
            ));
        }
        mcp_server::check(&self.mcp_servers, PROVIDER)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Codex;
    use super::*;
    use crate::given::testing::check_options;

    #[track_caller]
    fn check(options: Value, expect: &str) {
        check_options(options, |options| Codex::new(options).map(drop), expect);
    }

    #[test]
    fn what_cannot_be_honoured_is_refused() {
        check(json!({}), "");
        check(
            json!({"model": "gpt-5.5", "effort": "xhigh", "config": {"tools.view_image": false}}),
            "",
        );
        check(json!({"efort": "high"}), "unknown field `efort`");
        check(json!({"effort": "very much"}), "such as `low`");
        check(
            json!({"config": {"approval_policy": "never"}}),
            "may not set `approval_policy`",
        );
        check(
            json!({"config": {"model_providers.x.base_url": "http://elsewhere"}}),
            "may not set `model_providers.x",
        );
        check(json!({"args": ["--yolo"]}), "may not have `--yolo`");
        check(
            json!({"env": {"CODEX_HOME": "/home/me"}}),
            "may not set `CODEX_HOME`",
        );
        check(
            json!({"mcp_servers": {"a b": {"command": "x"}}}),
            "use another name",
        );
        check(
            json!({"mcp_servers": {"a": {"type": "sse", "url": "http://x"}}}),
            "does not speak",
        );
    }
}
