//! How Claude Code is started: its words, its variables, and the file it is given. Nothing is started here.

use serde_json::{Map, Value, json};
use windlass_core::enclosure::Launch;

use super::options::{ClaudeOptions, OURS};
use crate::agent::{AgentAttempt, ModelAccess};
use crate::agents::CLAUDE_STEERED;
use crate::json;

/// Where its MCP servers are written, in its home. They may hold keys, which a command line would show.
const SERVERS: &str = ".windlass/mcp.json";
/// Where it keeps what it remembers, in its home.
const CONFIG: &str = ".claude";
/// Tools that make no sense here: they wait for a person, or for another day.
const USELESS: &[&str] = &[
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

/// Puts what it needs into its home and says how to start it.
pub(super) fn launch(
    options: &ClaudeOptions,
    attempt: &AgentAttempt<'_>,
    resume: Option<&str>,
    offers: bool,
) -> Result<Launch, String> {
    attempt.clear_home(CLAUDE_STEERED)?;
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
        servers.insert(name.clone(), server.in_full());
    }
    if offers {
        servers.insert(OURS.to_owned(), json!({"type": "sdk", "name": OURS}));
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
    // Hooks of settings files do not run; ours is not one of those.
    say("--settings", json!({"disableAllHooks": true}).to_string());
    // Without the project's settings its `CLAUDE.md` is only read as that of a further directory.
    say("--add-dir", ".".to_owned());
    // The vendor would do the searching, outside of every sandbox; the meter does not pass it on.
    let useless = USELESS
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
        // Whoever serves the model knows better how often to try.
        set("CLAUDE_CODE_MAX_RETRIES", "1");
    }
    set("CLAUDE_CONFIG_DIR", config);
    set("DISABLE_TELEMETRY", "1");
    set("DISABLE_AUTOUPDATER", "1");
    set("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
    set("CLAUDE_CODE_ADDITIONAL_DIRECTORIES_CLAUDE_MD", "1");
    // It is stopped after its answer, and may never run again: what it remembers is on disk by then.
    set("CLAUDE_CODE_EAGER_FLUSH", "1");
    // An answer while work goes on behind it would not be the end of the work.
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
    fn through_the_meter_nobody_searches_the_web() {
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
