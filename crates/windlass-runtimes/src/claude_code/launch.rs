//! Assembles the start of Claude Code: its arguments, its environment, and the files in its home. This module spawns
//! nothing.

use serde_json::{Map, Value, json};
use windlass_core::enclosure::Launch;

use super::options::{ClaudeOptions, MCP_SERVER_NAME};
use crate::agent::{AgentAttempt, ModelAccess};
use crate::agents::CLAUDE_CLEARED_FILES;
use crate::json;

/// The file with the MCP servers, in the agent's home. It may contain keys, which a command line would expose.
const SERVERS: &str = ".windlass/mcp.json";
/// The directory of the agent's own data, in its home.
const CONFIG: &str = ".claude";
/// Tools that do not work here: they wait for a user, or for a later time.
const UNSUITABLE_TOOLS: &[&str] = &[
    "AskUserQuestion",
    "EnterPlanMode",
    "ExitPlanMode",
    "EnterWorktree",
    "ExitWorktree",
    "CronCreate",
    "CronDelete",
    "CronList",
    "ScheduleWakeup",
];

/// Writes the files into the home, and returns the command and environment.
pub(super) fn launch(
    options: &ClaudeOptions,
    attempt: &AgentAttempt<'_>,
    resume: Option<&str>,
    offers: bool,
) -> Result<Launch, String> {
    attempt.clear_home(CLAUDE_CLEARED_FILES)?;
    attempt.put_home(SERVERS, &servers(options, offers).to_string())?;
    let servers = attempt.in_home(SERVERS);
    let schema = attempt.output.map(|wanted| wanted.schema.to_string());
    let metered = matches!(attempt.model, ModelAccess::Metered { .. });
    let argv = argv(options, resume, &servers, schema, metered);
    let env = env(options, &attempt.model, &attempt.in_home(CONFIG));
    Ok(Launch::new(argv, env))
}

fn servers(options: &ClaudeOptions, offers: bool) -> Value {
    let mut servers: Map<String, Value> = Map::new();
    for (name, server) in &options.mcp_servers {
        servers.insert(name.clone(), server.to_mcp_json());
    }
    if offers {
        servers.insert(
            MCP_SERVER_NAME.to_owned(),
            json!({"type": "sdk", "name": MCP_SERVER_NAME}),
        );
    }
    json!({ "mcpServers": servers })
}

fn argv(
    options: &ClaudeOptions,
    resume: Option<&str>,
    servers: &str,
    schema: Option<String>,
    metered: bool,
) -> Vec<String> {
    let mut argv: Vec<String> = vec![
        options.program.clone(),
        "-p".to_owned(),
        "--verbose".to_owned(),
    ];
    argv.push("--include-partial-messages".to_owned());
    let mut say = |option: &str, value: String| argv.extend([option.to_owned(), value]);
    say("--input-format", "stream-json".to_owned());
    say("--output-format", "stream-json".to_owned());
    say("--permission-prompt-tool", "stdio".to_owned());
    say("--mcp-config", servers.to_owned());
    let sources: Vec<String> = options.setting_sources.iter().map(json::word).collect();
    say("--setting-sources", sources.join(","));
    // Hooks in settings files must not run. The Windlass hook does not come from a file.
    say("--settings", json!({"disableAllHooks": true}).to_string());
    // Without the project settings, Claude Code reads `CLAUDE.md` only from additional directories.
    say("--add-dir", ".".to_owned());
    // The vendor would execute the web search outside of every sandbox, so that the meter blocks it.
    let useless = UNSUITABLE_TOOLS
        .iter()
        .copied()
        .chain(metered.then_some("WebSearch"))
        .map(str::to_owned);
    let never: Vec<String> = useless
        .chain(options.disallowed_tools.iter().cloned())
        .collect();
    say("--disallowedTools", never.join(","));
    if let Some(tools) = &options.allowed_tools {
        say("--tools", tools.join(","));
    }
    if let Some(model) = &options.model {
        say("--model", model.clone());
    }
    if !options.fallback_models.is_empty() {
        say("--fallback-model", options.fallback_models.join(","));
    }
    if let Some(effort) = options.effort {
        say("--effort", json::word(effort));
    }
    if let Some(turns) = options.max_turns {
        say("--max-turns", turns.to_string());
    }
    if let Some(text) = &options.append_system_prompt {
        say("--append-system-prompt", text.clone());
    }
    if let Some(schema) = schema {
        say("--json-schema", schema);
    }
    if let Some(id) = resume {
        say("--resume", id.to_owned());
    }
    argv.push("--strict-mcp-config".to_owned());
    argv.extend(options.args.iter().cloned());
    argv
}

fn env(options: &ClaudeOptions, model: &ModelAccess, config: &str) -> Vec<(String, String)> {
    let mut env: Vec<(String, String)> = Vec::new();
    let mut set = |name: &str, value: &str| env.push((name.to_owned(), value.to_owned()));
    for (name, value) in &options.env {
        set(name, value);
    }
    if let ModelAccess::Metered { url, key } = model {
        set("ANTHROPIC_BASE_URL", url);
        set("ANTHROPIC_API_KEY", key);
        // The meter retries requests itself.
        set("CLAUDE_CODE_MAX_RETRIES", "1");
    }
    set("CLAUDE_CONFIG_DIR", config);
    set("DISABLE_TELEMETRY", "1");
    set("DISABLE_AUTOUPDATER", "1");
    set("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
    set("CLAUDE_CODE_ADDITIONAL_DIRECTORIES_CLAUDE_MD", "1");
    // The process is paused after its answer and may never be resumed, so its conversation must be on disk by then.
    set("CLAUDE_CODE_EAGER_FLUSH", "1");
    // An answer must be the end of the work; a background task would continue after it.
    set("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "1");
    if let Some(tokens) = options.thinking_tokens {
        set("MAX_THINKING_TOKENS", &tokens.to_string());
    }
    env
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn web_search_is_disabled_through_the_meter() {
        for metered in [true, false] {
            let argv = argv(&ClaudeOptions::default(), None, "s", None, metered);
            let never = argv
                .iter()
                .skip_while(|word| *word != "--disallowedTools")
                .nth(1);
            assert_eq!(
                never.is_some_and(|tools| tools.split(',').any(|tool| tool == "WebSearch")),
                metered
            );
        }
    }
}
