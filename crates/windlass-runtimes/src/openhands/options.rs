//! The user's options for OpenHands. Options that the adapter cannot support are refused before anything starts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::mcp_server::{self, McpServers};
use crate::option_checks::{check_args, check_effort, check_env, check_limit, check_program};

/// The user's options for OpenHands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OpenHandsOptions {
    /// The name or path of the Python interpreter with the server's packages.
    pub python: String,
    /// The vendor's name of the model.
    pub model: Option<String>,
    /// The effort of the model, as the model names it (`low`, `medium`, `high`, …). Default: high.
    pub effort: Option<String>,
    /// The agent's tools, under its own names. Default: terminal, editor and task list.
    pub tools: Vec<String>,
    /// The maximum number of steps with calls for one prompt.
    pub max_iterations: Option<u32>,
    /// MCP servers by name, in the format of `.mcp.json`. The agent starts them in its enclosure.
    pub mcp_servers: McpServers,
    /// Additional arguments of the server.
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
}

/// Tools whose calls need confirmation one by one. Others would start agents or browsers that do not ask.
const TOOLS: &[&str] = &[
    "terminal",
    "file_editor",
    "task_tracker",
    "glob",
    "grep",
    "read_file",
    "write_file",
    "edit",
    "list_directory",
    "planning_file_editor",
];

impl Default for OpenHandsOptions {
    fn default() -> Self {
        Self {
            python: "python3".to_owned(),
            model: None,
            effort: None,
            tools: TOOLS
                .iter()
                .take(3)
                .map(|tool| (*tool).to_owned())
                .collect(),
            max_iterations: None,
            mcp_servers: McpServers::new(),
            args: Vec::new(),
            env: BTreeMap::new(),
        }
    }
}

/// Arguments that the adapter sets itself.
const OWN_ARGS: &[&str] = &["--host", "--port", "--reload", "--check-browser"];

/// Variables for the server's address, its data and its telemetry.
const OWN_ENV: &[&str] = &[
    "HOME",
    "SESSION_API_KEY",
    "OPENHANDS_AGENT_SERVER_CONFIG_PATH",
    "LITELLM_LOCAL_MODEL_COST_MAP",
    "TERM",
    "PYTHONPATH",
    "PYTHONHOME",
];

impl OpenHandsOptions {
    /// Refuses options that the adapter cannot support.
    pub(super) fn check(&self) -> Result<(), String> {
        let hint = "the interpreter of the environment that contains the server";
        check_program("python", &self.python, hint)?;
        check_effort(self.effort.as_deref())?;
        if let Some(tool) = self
            .tools
            .iter()
            .find(|tool| !TOOLS.contains(&tool.as_str()))
        {
            return Err(format!(
                "`tools` contains `{}`, whose calls would not need confirmation; available: {}",
                tool.escape_debug(),
                TOOLS.join(", ")
            ));
        }
        if self.tools.is_empty() {
            return Err(
                "`tools` is empty, which allows no work; remove it or name some".to_owned(),
            );
        }
        check_limit("max_iterations", self.max_iterations)?;
        check_args(&self.args, OWN_ARGS)?;
        check_env(&self.env, OWN_ENV)?;
        if let Some(name) = self.env.keys().find(|name| name.starts_with("OH_")) {
            return Err(format!(
                "`env` cannot set `{name}`: Windlass configures the server"
            ));
        }
        mcp_server::check(&self.mcp_servers, "")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::option_checks::testing::check_options;

    #[track_caller]
    fn check(options: Value, expect: &str) {
        check_options(options, |options: OpenHandsOptions| options.check(), expect);
    }

    #[test]
    fn unsupported_options_are_refused() {
        check(json!({}), "");
        check(
            json!({"tools": ["terminal", "grep"], "max_iterations": 30, "args": ["--import-modules", "x"]}),
            "",
        );
        check(
            json!({"confirmation": "never"}),
            "unknown field `confirmation`",
        );
        check(json!({"effort": "very much"}), "such as `low`");
        check(
            json!({"tools": ["browser_tool_set"]}),
            "would not need confirmation",
        );
        check(json!({"tools": []}), "allows no work");
        check(json!({"max_iterations": 0}), "allows no work");
        check(
            json!({"args": ["--host=0.0.0.0"]}),
            "cannot contain `--host`",
        );
        check(
            json!({"env": {"OH_SESSION_API_KEYS_0": "x"}}),
            "Windlass configures the server",
        );
        check(
            json!({"env": {"PYTHONPATH": "/x"}}),
            "cannot set `PYTHONPATH`",
        );
        check(
            json!({"mcp_servers": {"a": {"command": "x", "url": "y"}}}),
            "either a `command` or a `url`",
        );
    }
}
