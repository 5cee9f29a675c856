//! An MCP server for an agent, in the format of `.mcp.json`. Each adapter translates this format for its agent. The
//! agent starts the server in its own enclosure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// MCP servers by name.
pub type McpServers = BTreeMap<String, McpServer>;

/// A server: a program with arguments, or a URL.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct McpServer {
    /// Default: stdio for a program, HTTP for a URL.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub transport: Option<McpTransport>,
    /// The program, which the agent starts in its enclosure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The network rules must allow the agent to reach this host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
}

/// The transport of an MCP server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum McpTransport {
    /// Standard input and output of a program.
    Stdio,
    Http,
    /// Server-sent events, the older form of HTTP.
    Sse,
}

/// The endpoint of a valid server.
pub(crate) enum McpEndpoint<'a> {
    Program(&'a str),
    /// A URL; `sse` selects server-sent events.
    Remote {
        url: &'a str,
        sse: bool,
    },
}

impl McpServer {
    /// The endpoint, or the reason why the fields contradict each other.
    pub(crate) fn endpoint(&self) -> Result<McpEndpoint<'_>, &'static str> {
        match (&self.command, &self.url, self.transport) {
            (Some(_), Some(_), _) | (None, None, _) => Err("needs either a `command` or a `url`"),
            (Some(_), None, Some(McpTransport::Http | McpTransport::Sse)) => {
                Err("has a `command`, so its `type` must be `stdio`")
            }
            (None, Some(_), Some(McpTransport::Stdio)) => {
                Err("has a `url`, so its `type` must be `http` or `sse`")
            }
            (Some(_), None, _) if !self.headers.is_empty() => {
                Err("has a `command`, so it takes no `headers`")
            }
            (None, Some(_), _) if !(self.args.is_empty() && self.env.is_empty()) => {
                Err("has a `url`, so it takes no `args` and no `env`")
            }
            (Some(command), None, _) => Ok(McpEndpoint::Program(command)),
            (None, Some(url), transport) => Ok(McpEndpoint::Remote {
                url,
                sse: transport == Some(McpTransport::Sse),
            }),
        }
    }

    /// The server in the format of `.mcp.json`, with an explicit transport.
    pub(crate) fn to_mcp_json(&self) -> Value {
        json!(Self {
            transport: Some(self.transport()),
            ..self.clone()
        })
    }

    /// The transport, or its default.
    pub(crate) fn transport(&self) -> McpTransport {
        self.transport.unwrap_or(match self.url {
            Some(_) => McpTransport::Http,
            None => McpTransport::Stdio,
        })
    }

    /// The server in the format of Codex's `config.toml`.
    pub(crate) fn for_codex(&self) -> Value {
        let mut all = json!(Self {
            transport: None,
            headers: BTreeMap::new(),
            ..self.clone()
        });
        if !self.headers.is_empty() {
            all["http_headers"] = json!(self.headers);
        }
        all
    }
}

/// Refuses servers that cannot be passed on. `own_name` is the name of Windlass's own server.
pub(crate) fn check(servers: &McpServers, own_name: &str) -> Result<(), String> {
    for (name, server) in servers {
        let plain = !name.is_empty()
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
        if !plain || name == own_name {
            return Err(format!(
                "`mcp_servers.{name}`: use another name, of letters, digits, `-` and `_`"
            ));
        }
        server
            .endpoint()
            .map_err(|why| format!("`mcp_servers.{name}` {why}"))?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_one(server: Value, expect: Result<(&str, &str), &str>) {
        let read = serde_json::from_value::<McpServers>(json!({ "a": server }))
            .map_err(|err| err.to_string());
        let translated = read.and_then(|servers| {
            check(&servers, "windlass")?;
            Ok((
                servers["a"].to_mcp_json().to_string(),
                servers["a"].for_codex().to_string(),
            ))
        });
        match (translated, expect) {
            (Ok((full, codex)), Ok(expect)) => assert_eq!((full.as_str(), codex.as_str()), expect),
            (Err(why), Err(expect)) => assert!(why.contains(expect), "{why}"),
            (translated, expect) => panic!("{translated:?} is not {expect:?}"),
        }
    }

    #[test]
    fn a_server_is_translated_for_each_agent() {
        check_one(
            json!({"command": "x", "args": ["y"], "env": {"K": "v"}}),
            Ok((
                r#"{"type":"stdio","command":"x","args":["y"],"env":{"K":"v"}}"#,
                r#"{"command":"x","args":["y"],"env":{"K":"v"}}"#,
            )),
        );
        check_one(
            json!({"url": "http://d", "headers": {"H": "v"}}),
            Ok((
                r#"{"type":"http","url":"http://d","headers":{"H":"v"}}"#,
                r#"{"url":"http://d","http_headers":{"H":"v"}}"#,
            )),
        );
        check_one(
            json!({"type": "sse", "url": "http://d"}),
            Ok((
                r#"{"type":"sse","url":"http://d"}"#,
                r#"{"url":"http://d"}"#,
            )),
        );
        check_one(
            json!({"type": "stdio", "command": "x"}),
            Ok((r#"{"type":"stdio","command":"x"}"#, r#"{"command":"x"}"#)),
        );
    }

    #[test]
    fn contradictory_fields_are_refused() {
        check_one(json!({}), Err("either a `command` or a `url`"));
        check_one(
            json!({"command": "x", "url": "y"}),
            Err("either a `command` or a `url`"),
        );
        check_one(
            json!({"command": "x", "type": "http"}),
            Err("its `type` must be `stdio`"),
        );
        check_one(json!({"url": "x", "type": "stdio"}), Err("`http` or `sse`"));
        check_one(
            json!({"command": "x", "headers": {"a": "b"}}),
            Err("takes no `headers`"),
        );
        check_one(json!({"url": "x", "args": ["b"]}), Err("takes no `args`"));
        check_one(json!({"comand": "x"}), Err("unknown field `comand`"));
        let reserved = serde_json::from_value::<McpServers>(
            json!({"windlass": {"command": "x"}, "b": {"command": "x"}}),
        );
        assert!(
            check(&reserved.unwrap(), "windlass")
                .is_err_and(|why| why.contains("use another name"))
        );
    }
}
