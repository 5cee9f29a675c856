//! An MCP server with the Windlass tools, over the pipe of the control protocol. This module builds and parses
//! messages; the toolbox runs the calls.

use serde_json::{Value, json};
use windlass_core::message::ToolResult;
use windlass_core::tool::ToolSpec;

use super::options::MCP_SERVER_NAME;
use crate::json;
use crate::offered_tools::is_offered;

/// The supported revisions of MCP, newest first.
const REVISIONS: &[&str] = &["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// The consequence of a message.
#[derive(Debug, PartialEq)]
pub(super) enum McpAction {
    Answered(Value),
    /// A tool has to run; [`ran`] builds the response.
    Run {
        id: Value,
        tool: String,
        args: Value,
        /// The id of the model's call, if the message contains it.
        call: Option<String>,
    },
}

/// Handles a message of the agent to the MCP server.
pub(super) fn ask(tools: &[ToolSpec], message: &Value) -> McpAction {
    let id = message.get("id").cloned().unwrap_or(Value::Null);
    let params = message.get("params").unwrap_or(&Value::Null);
    let method = json::text(message, "method");
    // A notification has no id, but the control protocol around it needs a response.
    if message.get("id").is_none() {
        return McpAction::Answered(answer(0.into(), json!({})));
    }
    let result = match method {
        "initialize" => {
            let wanted = json::text(params, "protocolVersion");
            let revision = REVISIONS
                .iter()
                .find(|known| **known == wanted)
                .unwrap_or(&REVISIONS[0]);
            let server = json!({ "name": MCP_SERVER_NAME, "version": env!("CARGO_PKG_VERSION") });
            let can = json!({ "tools": {} });
            json!({ "protocolVersion": revision, "capabilities": can, "serverInfo": server })
        }
        "ping" => json!({}),
        "tools/list" => {
            let tools: Vec<Value> = tools.iter().map(listed).collect();
            json!({ "tools": tools })
        }
        "tools/call" => {
            let tool = json::text(params, "name");
            if !is_offered(tools, tool) {
                return McpAction::Answered(refused(id, -32602, "the tool does not exist"));
            }
            let args = params.get("arguments").cloned();
            let call = params["_meta"]["claudecode/toolUseId"].as_str();
            return McpAction::Run {
                id,
                tool: tool.to_owned(),
                args: args.unwrap_or_else(|| json!({})),
                call: call.map(str::to_owned),
            };
        }
        _ => return McpAction::Answered(refused(id, -32601, "method not found")),
    };
    McpAction::Answered(answer(id, result))
}

fn listed(spec: &ToolSpec) -> Value {
    json!({ "name": spec.name, "description": spec.description, "inputSchema": spec.schema })
}

/// The response with the result of a tool.
pub(super) fn ran(id: Value, result: &ToolResult) -> Value {
    answer(
        id,
        json!({ "content": [{ "type": "text", "text": result.text }], "isError": result.error.is_some() }),
    )
}

/// The response with an error.
pub(super) fn refused(id: Value, code: i32, why: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": why } })
}

fn answer(id: Value, result: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}
