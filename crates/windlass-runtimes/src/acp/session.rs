//! Functions for the setup of a conversation over ACP: the client's capabilities, the MCP servers, and the search for a
//! setting, model or mode by id or name.

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::schema as wire;
use agent_client_protocol::v1::schema::{
    AuthMethod, ClientCapabilities, FileSystemCapabilities, Implementation, InitializeRequest,
    InitializeResponse, SessionConfigKind, SessionConfigOption, SessionConfigSelectOptions,
};
use serde_json::{Value, json};

use super::dialogue::AcpSetup;
use super::options::AcpSetting;
use super::text::{clean, clip};
use crate::mcp_server::McpEndpoint;

pub(super) fn initialize_request(setup: &AcpSetup) -> InitializeRequest {
    let client_features = setup.client_features;
    let fs = FileSystemCapabilities::new()
        .read_text_file(client_features.fs)
        .write_text_file(client_features.fs);
    let capabilities = ClientCapabilities::new()
        .fs(fs)
        .terminal(client_features.terminal);
    let us =
        Implementation::new("windlass", env!("CARGO_PKG_VERSION")).title("Windlass".to_owned());
    InitializeRequest::new(ProtocolVersion::V1)
        .client_capabilities(capabilities)
        .client_info(us)
}

pub(super) fn login_methods(methods: &[AuthMethod]) -> String {
    let login_methods: Vec<String> = methods
        .iter()
        .map(|method| format!("`{}`", clip(&clean(&method.id().0), 80)))
        .collect();
    list_available(&login_methods)
}

pub(super) fn list_available(what: &[String]) -> String {
    match what {
        [] => "none is available".to_owned(),
        some => format!("available: {}", some[..some.len().min(50)].join(", ")),
    }
}

/// The MCP servers in the format of the protocol. An error if the agent does not support one of them.
pub(super) fn servers(
    setup: &AcpSetup,
    handshake: &InitializeResponse,
) -> Result<Vec<wire::McpServer>, String> {
    let takes = &handshake.agent_capabilities.mcp_capabilities;
    let mut servers = Vec::new();
    for (name, server) in &setup.options.mcp_servers {
        let endpoint = match server.endpoint() {
            Ok(endpoint) => endpoint,
            Err(why) => return Err(format!("`mcp_servers.{name}` {why}")),
        };
        let headers = || {
            server
                .headers
                .iter()
                .map(|(name, value)| wire::HttpHeader::new(name, value))
                .collect()
        };
        servers.push(match endpoint {
            McpEndpoint::Program(command) => {
                let env = server
                    .env
                    .iter()
                    .map(|(name, value)| wire::EnvVariable::new(name, value))
                    .collect();
                wire::McpServer::Stdio(
                    wire::McpServerStdio::new(name, command)
                        .args(server.args.clone())
                        .env(env),
                )
            }
            McpEndpoint::Remote { url, sse: false } if takes.http => {
                wire::McpServer::Http(wire::McpServerHttp::new(name, url).headers(headers()))
            }
            McpEndpoint::Remote { url, sse: true } if takes.sse => {
                wire::McpServer::Sse(wire::McpServerSse::new(name, url).headers(headers()))
            }
            McpEndpoint::Remote { sse, .. } => {
                let over = if sse { "SSE" } else { "HTTP" };
                return Err(format!(
                    "{} does not support MCP servers over {over}, so that `{name}` cannot be used",
                    setup.name
                ));
            }
        });
    }
    Ok(servers)
}

pub(super) fn parse_settings(session: &Value) -> Vec<SessionConfigOption> {
    let all = session["configOptions"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    // Settings of an unknown kind could not be changed anyway.
    all.iter()
        .filter_map(|one| serde_json::from_value(one.clone()).ok())
        .collect()
}

/// The user's value for a setting, in the format of the protocol.
pub(super) fn setting_value(
    setup: &AcpSetup,
    setting: &SessionConfigOption,
    value: &AcpSetting,
) -> Result<Value, String> {
    let id = &setting.id.0;
    match (&setting.kind, value) {
        (SessionConfigKind::Boolean(_), AcpSetting::Switch(on)) => {
            Ok(json!({ "type": "boolean", "value": on }))
        }
        // Settings from flags are always text.
        (SessionConfigKind::Boolean(_), AcpSetting::Choice(on))
            if on == "true" || on == "false" =>
        {
            Ok(json!({ "type": "boolean", "value": on == "true" }))
        }
        (SessionConfigKind::Select(_), AcpSetting::Choice(name)) => {
            Ok(json!({ "value": select_value(setup, setting, name)? }))
        }
        (SessionConfigKind::Boolean(_), _) => Err(format!(
            "the setting `{id}` of {} must be true or false",
            setup.name
        )),
        _ => Err(format!(
            "the setting `{id}` of {} needs the name of a value",
            setup.name
        )),
    }
}

pub(super) fn select_value(
    setup: &AcpSetup,
    setting: &SessionConfigOption,
    wanted: &str,
) -> Result<String, String> {
    let SessionConfigKind::Select(select) = &setting.kind else {
        return Err(format!(
            "the setting `{}` of {} has no values to choose from",
            setting.id.0, setup.name
        ));
    };
    let all: Vec<(&str, &str)> = match &select.options {
        SessionConfigSelectOptions::Ungrouped(all) => all
            .iter()
            .map(|one| (&*one.value.0, one.name.as_str()))
            .collect(),
        SessionConfigSelectOptions::Grouped(groups) => groups
            .iter()
            .flat_map(|group| &group.options)
            .map(|one| (&*one.value.0, one.name.as_str()))
            .collect(),
        _ => Vec::new(),
    };
    find_id(setup, &setting.id.0, wanted, all.into_iter())
}

/// Finds an id by itself or by its name.
pub(super) fn find_id<'s>(
    setup: &AcpSetup,
    what: &str,
    wanted: &str,
    known: impl Iterator<Item = (&'s str, &'s str)> + Clone,
) -> Result<String, String> {
    let by_id = known.clone().find(|(id, _)| *id == wanted);
    if let Some((id, _)) = by_id.or_else(|| {
        known
            .clone()
            .find(|(_, name)| name.eq_ignore_ascii_case(wanted))
    }) {
        return Ok(id.to_owned());
    }
    let all: Vec<String> = known
        .map(|(id, _)| format!("`{}`", clip(&clean(id), 80)))
        .collect();
    Err(format!(
        "{} has no {what} `{wanted}`; {}",
        setup.name,
        list_available(&all)
    ))
}
