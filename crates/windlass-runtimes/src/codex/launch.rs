//! Assembles the start of Codex and the parameters of its conversation. This module spawns nothing.

use std::path::Path;

use serde_json::{Map, Value, json};
use windlass_core::enclosure::Launch;
use windlass_providers::protocol::is_strict;

use super::options::{CodexOptions, KEY, PROVIDER};
use crate::agent::{AgentAttempt, ModelAccess};
use crate::agents::CODEX_CLEARED_FILES;
use crate::offered_tools::offered_tools;

/// The directory of the agent's own data, in its home.
const CONFIG: &str = ".codex";

/// Writes the files into the home, and returns the command and environment.
pub(super) fn launch(options: &CodexOptions, attempt: &AgentAttempt<'_>) -> Result<Launch, String> {
    attempt.clear_home(CODEX_CLEARED_FILES)?;
    let config = config(&attempt.model, attempt.job.files.root());
    attempt.put_home(&format!("{CONFIG}/config.toml"), &config)?;
    let mut argv = vec![options.program.clone()];
    argv.extend(options.args.iter().cloned());
    argv.push("app-server".to_owned());
    let mut env: Vec<(String, String)> = options.env.clone().into_iter().collect();
    env.push(("CODEX_HOME".to_owned(), attempt.in_home(CONFIG)));
    if let ModelAccess::Metered { key, .. } = &attempt.model {
        env.push((KEY.to_owned(), key.clone()));
    }
    Ok(Launch::new(argv, env))
}

/// The settings file for the start. The user's options are sent with the conversation instead.
fn config(model: &ModelAccess, root: &Path) -> String {
    let mut text = String::from("check_for_update_on_startup = false\n");
    if matches!(model, ModelAccess::Metered { .. }) {
        // The vendor would execute the web search outside of every sandbox, so that the meter blocks it.
        text.push_str(&format!(
            "model_provider = \"{PROVIDER}\"\nweb_search = \"disabled\"\n"
        ));
    }
    text.push_str("\n[analytics]\nenabled = false\n");
    // Without this setting, Codex trusts the project and starts the MCP servers that the project names.
    let root = Value::from(root.to_string_lossy());
    text.push_str(&format!(
        "\n[projects.{root}]\ntrust_level = \"untrusted\"\n"
    ));
    if let ModelAccess::Metered { url, .. } = model {
        // A JSON string is also a valid TOML string.
        let url = Value::from(format!("{url}/v1"));
        text.push_str(&format!(
            "\n[model_providers.{PROVIDER}]\nname = \"{PROVIDER}\"\nbase_url = {url}\nwire_api = \"responses\"\n\
             env_key = \"{KEY}\"\nrequires_openai_auth = false\nrequest_max_retries = 1\nstream_max_retries = 1\n\
             supports_websockets = false\n"
        ));
    }
    text
}

/// The parameters that start or resume a conversation.
pub(super) fn thread(
    options: &CodexOptions,
    attempt: &AgentAttempt<'_>,
    resume: Option<&str>,
) -> Value {
    let mut params = json!({
        "cwd": attempt.job.files.root(),
        // Codex asks about every command. Its own sandbox could not start inside the enclosure, which restricts it.
        "approvalPolicy": "untrusted",
        "approvalsReviewer": "user",
        "sandbox": "danger-full-access",
    });
    let mut config: Map<String, Value> = options.config.clone().into_iter().collect();
    if !options.mcp_servers.is_empty() {
        let servers = options
            .mcp_servers
            .iter()
            .map(|(name, server)| (name.clone(), server.for_codex()));
        config.insert("mcp_servers".to_owned(), Value::Object(servers.collect()));
    }
    if !config.is_empty() {
        params["config"] = Value::Object(config);
    }
    if let Some(model) = &options.model {
        params["model"] = json!(model);
    }
    if matches!(attempt.model, ModelAccess::Metered { .. }) {
        params["modelProvider"] = json!(PROVIDER);
    }
    if let Some(text) = &options.developer_instructions {
        params["developerInstructions"] = json!(text);
    }
    match resume {
        Some(id) => {
            params["threadId"] = json!(id);
            params["excludeTurns"] = json!(true);
        }
        None => params["dynamicTools"] = tools(attempt),
    }
    params
}

fn tools(attempt: &AgentAttempt<'_>) -> Value {
    let tools = offered_tools(attempt.job.toolbox).into_iter().map(|spec| {
        json!({
            "type": "function",
            "name": spec.name,
            "description": spec.description,
            "inputSchema": spec.schema,
        })
    });
    Value::Array(tools.collect())
}

/// The parameters of a turn, without the conversation and the prompt.
pub(super) fn turn(options: &CodexOptions, attempt: &AgentAttempt<'_>) -> Value {
    let mut params = json!({ "threadId": null, "input": null });
    if let Some(effort) = &options.effort {
        params["effort"] = json!(effort);
    }
    // The model only accepts strict schemas. The prompt contains the schema in any case.
    if let Some(wanted) = attempt.output.filter(|wanted| is_strict(&wanted.schema)) {
        params["outputSchema"] = wanted.schema.clone();
    }
    params
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn web_search_is_disabled_through_the_meter() {
        let metered = ModelAccess::Metered {
            url: "http://127.0.0.1:1".into(),
            key: "k".into(),
        };
        for (model, off) in [(metered, true), (ModelAccess::Own, false)] {
            let config = config(&model, Path::new("/w"));
            assert_eq!(
                config.contains("\nweb_search = \"disabled\"\n"),
                off,
                "{model:?}"
            );
        }
    }

    #[test]
    fn a_project_with_any_name_is_untrusted() {
        let config = config(&ModelAccess::Own, Path::new("/w\"]\nx = \"y\\z"));
        assert!(
            config.ends_with(
                "\n[projects.\"/w\\\"]\\nx = \\\"y\\\\z\"]\ntrust_level = \"untrusted\"\n"
            ),
            "{config}"
        );
    }
}
