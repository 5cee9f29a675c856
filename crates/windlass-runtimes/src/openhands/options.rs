//! What a person can choose about OpenHands. What it could not be held to is refused here, before anything starts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::given::{check_args, check_effort, check_env, check_limit, check_program};
use crate::mcp_server::{self, McpServers};

/// Options of OpenHands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OpenHandsOptions {
    /// The Python that has its server, by its name or path.
    pub python: String,
    /// The model, by its vendor's name for it.
    pub model: Option<String>,
    /// How much effort the model makes, in the model's own words (`low`, `medium`, `high`, …); high if not given.
    pub effort: Option<String>,
    /// The tools it gets, by its own names; a terminal, an editor and a list of tasks if not given.
    pub tools: Vec<String>,
    /// Steps with calls in them that it may take on one prompt.
    pub max_iterations: Option<u32>,
    /// MCP servers that it is to use, by name, in the form of `.mcp.json`. They run where the agent runs.
    pub mcp_servers: McpServers,
    /// Further words for the command line of its server.
    pub args: Vec<String>,
    /// Further variables.
    pub env: BTreeMap<String, String>,
}

/// Tools whose calls are asked about one by one. Others would start agents or browsers that ask nobody.
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

/// Options of the server that the adapter says itself.
const OWN_ARGS: &[&str] = &["--host", "--port", "--reload", "--check-browser"];

/// Variables that say where the server is, what it keeps and to whom it tells what.
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
    /// Says what cannot be done.
    pub(super) fn check(&self) -> Result<(), String> {
        let hint = "the one of the environment with the server in it";
        check_program("python", &self.python, hint)?;
        check_effort(self.effort.as_deref())?;
        if let Some(tool) = self
            .tools
            .iter()
            .find(|tool| !TOOLS.contains(&tool.as_str()))
        {
            return Err(format!(
                "`tools` has `{}`, whose calls would not be asked about; there are: {}",
                tool.escape_debug(),
                TOOLS.join(", ")
            ));
        }
        if self.tools.is_empty() {
            return Err(
                "`tools` is empty, so that nothing could be done; leave it away or name some"
                    .to_owned(),
            );
        }
        check_limit("max_iterations", self.max_iterations)?;
        check_args(&self.args, OWN_ARGS)?;
        check_env(&self.env, OWN_ENV)?;
        if let Some(name) = self.env.keys().find(|name| name.starts_with("OH_")) {
            return Err(format!(
                "`env` may not set `{name}`: Windlass tells the server itself what it is to do"
            ));
        }
        mcp_server::check(&self.mcp_servers, "")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::given::testing::check_options;

    #[track_caller]
    fn check(options: Value, expect: &str) {
        check_options(options, |options: OpenHandsOptions| options.check(), expect);
    }

    #[test]
    fn what_cannot_be_honoured_is_refused() {
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
            "would not be asked about",
        );
        check(json!({"tools": []}), "nothing could be done");
        check(json!({"max_iterations": 0}), "nothing could be done");
        check(json!({"args": ["--host=0.0.0.0"]}), "may not have `--host`");
        check(
            json!({"env": {"OH_SESSION_API_KEYS_0": "x"}}),
            "what it is to do",
        );
        check(
            json!({"env": {"PYTHONPATH": "/x"}}),
            "may not set `PYTHONPATH`",
        );
        check(
            json!({"mcp_servers": {"a": {"command": "x", "url": "y"}}}),
            "either a `command` or a `url`",
        );
    }
}
