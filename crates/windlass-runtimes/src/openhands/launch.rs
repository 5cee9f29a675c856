//! How the server of OpenHands is started, and what a conversation is begun with. Nothing is started here.

use std::path::Path;

use serde_json::{Value, json};
use windlass_core::enclosure::Launch;

use super::OpenHandsOptions;
use crate::agent::{AgentAttempt, ModelAccess};
use crate::dialect::Dialect;
use crate::mcp_server::McpServer;

/// Ours, between the pipes and the server.
const BRIDGE: &str = include_str!("bridge.py");
/// Where that is put, and where the server keeps what it remembers, in the home.
const PLACE: &str = ".openhands";
const BRIDGE_FILE: &str = ".openhands/agent-server.py";
/// What an earlier try may have left there for the next: settings, words, hooks, programs.
const LEFT: &[&str] = &[
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
/// A step of the server; how many there may be on a prompt is counted here, because it counts anew with every answer.
const MAX_ITERATIONS: u32 = 500;
/// Under this name it says what the agent's own model calls took.
const USAGE: &str = "agent";

/// Puts what it needs into its home and says how to start it.
pub(super) fn launch(
    options: &OpenHandsOptions,
    attempt: &AgentAttempt<'_>,
) -> Result<Launch, String> {
    attempt.clear_home(LEFT)?;
    attempt.put_home(BRIDGE_FILE, BRIDGE)?;
    // Its terminal would say in every answer how text is pasted.
    attempt.put_home(".inputrc", "set enable-bracketed-paste off\n")?;
    let home = attempt.enclosure.home();
    // Not what lies in the workspace: Python would take a folder there for a package of its own.
    let mut argv = vec![
        options.python.clone(),
        "-I".to_owned(),
        at(home, BRIDGE_FILE),
    ];
    argv.extend(options.args.iter().cloned());
    let mut env: Vec<(String, String)> = options.env.clone().into_iter().collect();
    env.extend(variables(home).map(|(name, value)| (name.to_owned(), value)));
    Ok(Launch::new(argv, env))
}

fn at(home: &Path, path: &str) -> String {
    home.join(path).to_string_lossy().into_owned()
}

/// What the server is told: nothing but conversations, all of them in its home, and nobody else to talk to.
fn variables(home: &Path) -> impl Iterator<Item = (&'static str, String)> {
    let below = |path: &str| at(&home.join(PLACE), path);
    let off = ["OH_ENABLE_VSCODE", "OH_ENABLE_BROWSER", "OH_PRELOAD_TOOLS"]
        .map(|name| (name, "0".to_owned()));
    // There is one server of a home at a time, and its last one may have had no time to say that it ended.
    let lease = ("OH_LEASE_TTL_SECONDS", "0".to_owned());
    // Its terminals need no tmux. The server makes a directory for tmux all the same, in `/tmp` where the path of a
    // private temporary directory is too long for a socket, and ends if it cannot. It makes none if one is named.
    let no_tmux = ("TMUX_TMPDIR", "/dev/null".to_owned());
    let places = [
        ("OPENHANDS_AGENT_SERVER_CONFIG_PATH", below("none.json")),
        ("OH_PERSISTENCE_DIR", below("")),
        ("OH_CONVERSATIONS_PATH", below("conversations")),
        ("OH_WORKSPACE_PATH", below("project")),
        ("OH_BASH_EVENTS_DIR", below("bash")),
        ("OH_CONVERSATION_WORKTREE_ROOT", below("worktrees")),
        // What it writes down has no secret in it but a key that opens nothing tomorrow.
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

/// The model, in the words of the library that asks it. `None` where it is not asked through us.
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
        // Retries are the business of the run, which counts them.
        "num_retries": 0,
        "stream": true,
    });
    if let Some(effort) = &options.effort {
        llm["reasoning_effort"] = json!(effort);
    }
    Some(llm)
}

/// What a conversation is begun with.
pub(super) fn conversation(
    options: &OpenHandsOptions,
    attempt: &AgentAttempt<'_>,
    llm: &Value,
) -> Value {
    let mut condenser = llm.clone();
    condenser["usage_id"] = json!("condenser");
    let tools = options.tools.iter().map(|tool| match tool.as_str() {
        // The other kind of terminal needs a program that not every machine has, and outlives its server.
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
        // A title would be one more model call, for nobody.
        "autotitle": false,
        "tags": { "windlass": terms(options, attempt.job.files.root()) },
    })
}

/// What a conversation is bound to as it begins: tools, servers and the directory, which the server keeps with it. One
/// that began with others is not resumed.
pub(super) fn terms(options: &OpenHandsOptions, root: &Path) -> String {
    let bound = json!([options.mcp_servers, root.to_string_lossy()]).to_string();
    // A tag holds few letters.
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
        let said = (of("model"), of("base_url"), of("api_mode"));
        assert_eq!((said.0.as_str(), said.1.as_str(), said.2.as_str()), expect);
        assert_eq!(of("api_key"), "k");
    }

    #[test]
    fn each_wire_is_pointed_at_the_meter() {
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
