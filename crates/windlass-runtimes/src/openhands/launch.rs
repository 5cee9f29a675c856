//! Assembles the start of the OpenHands server and the parameters of a conversation. This module spawns nothing.

use std::path::Path;

use serde_json::{Value, json};
use windlass_core::enclosure::Launch;

use super::OpenHandsOptions;
use crate::agent::{AgentAttempt, ModelAccess};
use crate::dialect::Dialect;
use crate::mcp_server::McpServer;

/// The Python program that connects the pipes with the server.
const BRIDGE: &str = include_str!("bridge.py");
/// The directory of the server's data, and the path of the bridge, in the home.
const DATA_DIR: &str = ".openhands";
const BRIDGE_FILE: &str = ".openhands/agent-server.py";
/// Settings, instructions, hooks and programs with which an earlier attempt could influence the next one.
const CLEARED_FILES: &[&str] = &[
    ".openhands/agent-server.py",
    ".openhands/settings.json",
    ".openhands/profiles",
    ".openhands/agent-profiles",
    ".openhands/hooks.json",
    ".openhands/skills",
    ".openhands/microagents",
    ".openhands/plugins",
    ".openhands/agents",
    ".openhands/installed",
    ".openhands/memory",
    ".openhands/secrets.json",
    ".openhands/mcp.json",
];
/// The server's own limit of steps. The dialogue counts the steps of a prompt, because the server restarts its count
/// after every confirmation.
const MAX_ITERATIONS: u32 = 500;
/// The id under which the server reports the usage of the agent's own model calls.
const USAGE: &str = "agent";

/// Writes the files into the home, and returns the command and environment.
pub(super) fn launch(
    options: &OpenHandsOptions,
    attempt: &AgentAttempt<'_>,
) -> Result<Launch, String> {
    attempt.clear_home(CLEARED_FILES)?;
    attempt.put_home(BRIDGE_FILE, BRIDGE)?;
    // Without this setting, the terminal would print bracketed-paste sequences in every result.
    attempt.put_home(".inputrc", "set enable-bracketed-paste off\n")?;
    let home = attempt.enclosure.home();
    // `-I` isolates Python from the workspace, which could contain a directory with the name of a package.
    let mut argv = vec![
        options.python.clone(),
        "-I".to_owned(),
        path_in(home, BRIDGE_FILE),
    ];
    argv.extend(options.args.iter().cloned());
    let mut env: Vec<(String, String)> = options.env.clone().into_iter().collect();
    env.extend(variables(home).map(|(name, value)| (name.to_owned(), value)));
    Ok(Launch::new(argv, env))
}

fn path_in(home: &Path, path: &str) -> String {
    home.join(path).to_string_lossy().into_owned()
}

/// The server's settings: only conversations, all data in the home, and no other services.
fn variables(home: &Path) -> impl Iterator<Item = (&'static str, String)> {
    let below = |path: &str| path_in(&home.join(DATA_DIR), path);
    let off = ["OH_ENABLE_VSCODE", "OH_ENABLE_BROWSER", "OH_PRELOAD_TOOLS"]
        .map(|name| (name, "0".to_owned()));
    // A home has one server at a time, and the previous one may have been killed without releasing its lease.
    let lease = ("OH_LEASE_TTL_SECONDS", "0".to_owned());
    // The terminals of OpenHands do not need tmux, but the server still creates a directory for tmux. If the path of a
    // private temporary directory is too long for a socket, it uses `/tmp`, and exits if that fails. It creates none if
    // the variable is set.
    let no_tmux = ("TMUX_TMPDIR", "/dev/null".to_owned());
    let places = [
        ("OPENHANDS_AGENT_SERVER_CONFIG_PATH", below("none.json")),
        ("OH_PERSISTENCE_DIR", below("")),
        ("OH_CONVERSATIONS_PATH", below("conversations")),
        ("OH_WORKSPACE_PATH", below("project")),
        ("OH_BASH_EVENTS_DIR", below("bash")),
        ("OH_CONVERSATION_WORKTREE_ROOT", below("worktrees")),
        // The encrypted data contains no secret but the key of the meter, which is only valid in this run.
        ("OH_SECRET_KEY", "windlass".repeat(4)),
    ];
    let quiet = [
        ("OPENHANDS_SUPPRESS_BANNER", "1"),
        ("ANONYMIZED_TELEMETRY", "false"),
        ("DO_NOT_TRACK", "1"),
        ("LITELLM_LOCAL_MODEL_COST_MAP", "True"),
        ("HF_HUB_OFFLINE", "1"),
        ("LOG_LEVEL", "WARNING"),
        ("TERM", "dumb"),
    ];
    off.into_iter()
        .chain([lease, no_tmux])
        .chain(places)
        .chain(quiet.map(|(name, value)| (name, value.to_owned())))
}

/// The model, in the format of the server's library. `None` if the agent uses its own login.
pub(super) fn llm(
    options: &OpenHandsOptions,
    dialect: Dialect,
    access: &ModelAccess,
) -> Option<Value> {
    let ModelAccess::Metered { url, key } = access else {
        return None;
    };
    let (vendor, base, mode) = match dialect {
        Dialect::Anthropic => ("anthropic", url.clone(), "chat"),
        Dialect::OpenAiChat => ("openai", format!("{url}/v1"), "chat"),
        Dialect::OpenAiResponses => ("openai", format!("{url}/v1"), "responses"),
        Dialect::Gemini => ("gemini", format!("{url}/v1beta"), "chat"),
    };
    let model = format!("{vendor}/{}", options.model.as_deref().unwrap_or_default());
    let mut llm = json!({
        "model": model,
        "base_url": base,
        "api_key": key,
        "usage_id": USAGE,
        "api_mode": mode,
        // The engine handles retries, and counts them.
        "num_retries": 0,
        "stream": true,
    });
    if let Some(effort) = &options.effort {
        llm["reasoning_effort"] = json!(effort);
    }
    Some(llm)
}

/// The request that starts a conversation.
pub(super) fn conversation(
    options: &OpenHandsOptions,
    attempt: &AgentAttempt<'_>,
    llm: &Value,
) -> Value {
    let mut condenser = llm.clone();
    condenser["usage_id"] = json!("condenser");
    let tools = options.tools.iter().map(|tool| match tool.as_str() {
        // The other terminal type needs tmux, which not every machine has, and outlives its server.
        "terminal" => json!({ "name": tool, "params": { "terminal_type": "subprocess" } }),
        _ => json!({ "name": tool }),
    });
    let servers = options
        .mcp_servers
        .iter()
        .map(|(name, server)| (name.clone(), mcp_server(server)));
    json!({
        "agent": {
            "kind": "Agent",
            "llm": llm,
            "tools": tools.collect::<Vec<_>>(),
            "mcp_config": Value::Object(servers.collect()),
            "condenser": { "kind": "LLMSummarizingCondenser", "llm": condenser },
        },
        "workspace": { "kind": "LocalWorkspace", "working_dir": attempt.job.files.root() },
        "confirmation_policy": { "kind": "AlwaysConfirm" },
        "max_iterations": MAX_ITERATIONS,
        // A title would need one more model call and is not used.
        "autotitle": false,
        "tags": { "windlass": terms(options, attempt.job.files.root()) },
    })
}

/// The terms that the server stores with a conversation: tools, MCP servers and the directory. A conversation with
/// other terms is not resumed.
pub(super) fn terms(options: &OpenHandsOptions, root: &Path) -> String {
    let bound = json!([options.mcp_servers, root.to_string_lossy()]).to_string();
    // A tag may only have a few characters, so the terms are hashed (FNV-1a).
    let sum = bound.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{} {sum:016x}", options.tools.join(" "))
}

fn mcp_server(server: &McpServer) -> Value {
    let transport = server.transport();
    match &server.command {
        Some(command) => {
            json!({ "transport": transport, "command": command, "args": server.args, "env": server.env })
        }
        None => json!({ "transport": transport, "url": server.url, "headers": server.headers }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(dialect: Dialect, expect: (&str, &str, &str)) {
        let options = OpenHandsOptions {
            model: Some("m".to_owned()),
            ..OpenHandsOptions::default()
        };
        let access = ModelAccess::Metered {
            url: "http://127.0.0.1:9".to_owned(),
            key: "k".to_owned(),
        };
        let llm = llm(&options, dialect, &access).unwrap_or_default();
        let of = |key: &str| llm[key].as_str().unwrap_or_default().to_owned();
        let settings = (of("model"), of("base_url"), of("api_mode"));
        assert_eq!(
            (
                settings.0.as_str(),
                settings.1.as_str(),
                settings.2.as_str()
            ),
            expect
        );
        assert_eq!(of("api_key"), "k");
    }

    #[test]
    fn each_protocol_uses_the_meter() {
        check(
            Dialect::Anthropic,
            ("anthropic/m", "http://127.0.0.1:9", "chat"),
        );
        check(
            Dialect::OpenAiChat,
            ("openai/m", "http://127.0.0.1:9/v1", "chat"),
        );
        check(
            Dialect::OpenAiResponses,
            ("openai/m", "http://127.0.0.1:9/v1", "responses"),
        );
        check(
            Dialect::Gemini,
            ("gemini/m", "http://127.0.0.1:9/v1beta", "chat"),
        );
        assert_eq!(
            llm(
                &OpenHandsOptions::default(),
                Dialect::Gemini,
                &ModelAccess::Own
            ),
            None
        );
    }
}
