//! The user's options for Codex. Options that the adapter cannot support are refused before anything starts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::mcp_server::{self, McpEndpoint, McpServer, McpServers};
use crate::option_checks::{check_args, check_effort, check_env, check_program};

/// The variable with the key for the meter, and the provider that uses it.
pub(super) const KEY: &str = "WINDLASS_MODEL_KEY";
pub(super) const PROVIDER: &str = "windlass";

/// The user's options for Codex.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CodexOptions {
    /// The name or path of the program. Default: `codex`.
    pub program: String,
    /// The name of the model. Default: the program's own choice. The tools of Codex depend on it: an unknown model gets
    /// no tool to apply patches.
    pub model: Option<String>,
    /// The effort of the model, as the model names it (`low`, `medium`, `high`, …).
    pub effort: Option<String>,
    /// Additional MCP servers by name, in the format of `.mcp.json`. The agent starts them in its enclosure.
    pub mcp_servers: McpServers,
    /// Additional instructions for the model.
    pub developer_instructions: Option<String>,
    /// Additional settings, in the format of `config.toml`.
    pub config: BTreeMap<String, Value>,
    /// Additional arguments, before `app-server`.
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
}

/// Settings that the adapter sets itself, or that would loosen its restrictions.
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
    /// Refuses options that the adapter cannot support.
    pub(super) fn check(&self) -> Result<(), String> {
        check_program("program", &self.program, "the program, such as `codex`")?;
        check_effort(self.effort.as_deref())?;
        for key in self.config.keys() {
            let first = key.split('.').next().unwrap_or_default();
            if OWN_CONFIG.contains(&first) {
                return Err(format!(
                    "`config` cannot set `{key}`: Windlass sets it, or has an option for it"
                ));
            }
        }
        check_args(&self.args, OWN_ARGS)?;
        check_env(&self.env, OWN_ENV)?;
        let sse = |server: &McpServer| {
            matches!(server.endpoint(), Ok(McpEndpoint::Remote { sse: true, .. }))
        };
        if let Some((name, _)) = self.mcp_servers.iter().find(|(_, server)| sse(server)) {
            return Err(format!(
                "`mcp_servers.{name}` has the `type` `sse`, which Codex does not support; use `http`"
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
    use crate::option_checks::testing::check_options;

    #[track_caller]
    fn check(options: Value, expect: &str) {
        check_options(options, |options| Codex::new(options).map(drop), expect);
    }

    #[test]
    fn unsupported_options_are_refused() {
        check(json!({}), "");
        check(
            json!({"model": "gpt-5.5", "effort": "xhigh", "config": {"tools.view_image": false}}),
            "",
        );
        check(json!({"efort": "high"}), "unknown field `efort`");
        check(json!({"effort": "very much"}), "such as `low`");
        check(
            json!({"config": {"approval_policy": "never"}}),
            "cannot set `approval_policy`",
        );
        check(
            json!({"config": {"model_providers.x.base_url": "http://elsewhere"}}),
            "cannot set `model_providers.x",
        );
        check(json!({"args": ["--yolo"]}), "cannot contain `--yolo`");
        check(
            json!({"env": {"CODEX_HOME": "/home/me"}}),
            "cannot set `CODEX_HOME`",
        );
        check(
            json!({"mcp_servers": {"a b": {"command": "x"}}}),
            "use another name",
        );
        check(
            json!({"mcp_servers": {"a": {"type": "sse", "url": "http://x"}}}),
            "does not support",
        );
    }
}
