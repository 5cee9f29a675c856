//! An MCP server that an agent is to use, as `.mcp.json` has it, which is the one form for all agents; each adapter says it
//! in its own agent's words. It runs where the agent runs: nothing is started here.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Servers by their names.
pub type McpServers = BTreeMap<String, McpServer>;

/// A server: a program with its words, or an address.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct McpServer {
    /// How it speaks. Absent: a program over its pipes, an address over HTTP.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub transport: Option<McpTransport>,
    /// The program, which the agent starts in its own place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Its words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Its variables.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Where it is; the agent must be allowed to reach its host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// What is sent along.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
}

/// How an MCP server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum McpTransport {
    /// A program, over its standard input and output.
    Stdio,
    /// Streamable HTTP.
    Http,
    /// Server-sent events, as it was before that.
    Sse,
}

/// What a server is, when what is said of it fits together.
pub(crate) enum Reached<'a> {
    /// A program.
    Program(&'a str),
    /// An address, and whether it is spoken to over server-sent events.
    Remote { url: &'a str, sse: bool },
}

impl McpServer {
    /// Which of the two it is.
    pub(crate) fn reached(&self) -> Result<Reached<'_>, &'static str> {
        match (&self.command, &self.url, self.transport) {
            (Some(_), Some(_), _) | (None, None, _) => Err("needs either a `command` or a `url`"),
            (Some(_), None, Some(McpTransport::Http | McpTransport::Sse)) => {
                Err("has a `command`, so its `type` is `stdio`")
            }
            (None, Some(_), Some(McpTransport::Stdio)) => {
                Err("has a `url`, so its `type` is `http` or `sse`")
            }
            (Some(_), None, _) if !self.headers.is_empty() => {
                Err("is a program, which takes no `headers`")
            }
            (None, Some(_), _) if !(self.args.is_empty() && self.env.is_empty()) => {
                Err("is an address, which takes no `args` and no `env`")
            }
            (Some(command), None, _) => Ok(Reached::Program(command)),
            (None, Some(url), transport) => Ok(Reached::Remote {
                url,
                sse: transport == Some(McpTransport::Sse),
            }),
        }
    }

    /// As `.mcp.json` has it, with what goes without saying said.
    pub(crate) fn in_full(&self) -> Value {
        json!(Self {
            transport: Some(self.transport()),
            ..self.clone()
        })
    }

    /// The way to reach it, which need not be said.
    pub(crate) fn transport(&self) -> McpTransport {
        self.transport.unwrap_or(match self.url {
            Some(_) => McpTransport::Http,
            None => McpTransport::Stdio,
        })
    }

    /// As a `config.toml` of Codex has it.
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

/// Refuses servers that cannot be passed on; `taken` is the name of ours.
pub(crate) fn check(servers: &McpServers, taken: &str) -> Result<(), String> {
    for (name, server) in servers {
        let plain = !name.is_empty()
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
        if !plain || name == taken {
            return Err(format!(
                "`mcp_servers.{name}`: use another name, of letters, digits, `-` and `_`"
            ));
        }
        server
            .reached()
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
        let said = read.and_then(|servers| {
            check(&servers, "windlass")?;
            Ok((
                servers["a"].in_full().to_string(),
                servers["a"].for_codex().to_string(),
            ))
        });
        match (said, expect) {
            (Ok((full, codex)), Ok(expect)) => assert_eq!((full.as_str(), codex.as_str()), expect),
            (Err(why), Err(expect)) => assert!(why.contains(expect), "{why}"),
            (said, expect) => panic!("{said:?} is not {expect:?}"),
        }
    }

    #[test]
    fn one_form_is_said_in_the_words_of_each() {
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
    fn what_does_not_fit_together_is_refused() {
        check_one(json!({}), Err("either a `command` or a `url`"));
        check_one(
            json!({"command": "x", "url": "y"}),
            Err("either a `command` or a `url`"),
        );
        check_one(
            json!({"command": "x", "type": "http"}),
            Err("its `type` is `stdio`"),
        );
        check_one(json!({"url": "x", "type": "stdio"}), Err("`http` or `sse`"));
        check_one(
            json!({"command": "x", "headers": {"a": "b"}}),
            Err("takes no `headers`"),
        );
        check_one(json!({"url": "x", "args": ["b"]}), Err("takes no `args`"));
        check_one(json!({"comand": "x"}), Err("unknown field `comand`"));
        let odd = serde_json::from_value::<McpServers>(
            json!({"windlass": {"command": "x"}, "b": {"command": "x"}}),
        );
        assert!(
            check(&odd.unwrap(), "windlass").is_err_and(|why| why.contains("use another name"))
        );
    }
}
