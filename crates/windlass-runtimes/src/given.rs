//! Words and variables that a person adds to an agent's start, and which of them would undo what holds the agent.

use std::collections::BTreeMap;

/// Refuses words that say something the adapter says itself. `ours` are options, with their dashes.
pub(crate) fn check_args(args: &[String], ours: &[&str]) -> Result<(), String> {
    for arg in args {
        let option = arg.split_once('=').map_or(arg.as_str(), |(option, _)| option);
        if ours.contains(&option) {
            return Err(format!("`args` may not have `{option}`: Windlass says it itself, or has an option for it"));
        }
    }
    Ok(())
}

/// Refuses variables that the adapter or the envelope sets.
pub(crate) fn check_env(env: &BTreeMap<String, String>, ours: &[&str]) -> Result<(), String> {
    for name in env.keys() {
        let plain = !name.is_empty() && !name.contains(['=', '\0']);
        if !plain {
            return Err(format!("`env` has a variable with the name `{}`, which cannot be one", name.escape_debug()));
        }
        if ours.contains(&name.as_str()) {
            return Err(format!("`env` may not set `{name}`: Windlass sets it itself"));
        }
    }
    Ok(())
}

/// Refuses MCP servers that cannot be passed on.
pub(crate) fn check_servers(servers: &BTreeMap<String, serde_json::Value>, taken: &str) -> Result<(), String> {
    for (name, server) in servers {
        let plain = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
        if !plain || name == taken {
            return Err(format!("`mcp_servers.{name}`: use another name, of letters, digits, `-` and `_`"));
        }
        let has = |key: &str| server.get(key).is_some_and(serde_json::Value::is_string);
        if has("command") == has("url") {
            return Err(format!("`mcp_servers.{name}` needs either a `command` or a `url`"));
        }
    }
    Ok(())
}
