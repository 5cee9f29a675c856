//! JSON-RPC with one message per line: builds and parses messages. The dialogue interprets them.

use serde_json::{Value, json};

/// Bytes that may wait for the program. Above this number the driver stops reading from it.
pub(crate) const MAX_UNSENT: usize = 4 << 20;
/// Bytes of the id of a request. The id is kept until the request is answered.
const MAX_ID: usize = 1 << 10;

/// The error object of JSON-RPC.
#[derive(Debug, Clone, PartialEq)]
pub struct RpcError {
    pub code: i64,
    pub message: String,
    pub data: Value,
}

impl RpcError {
    /// The method does not exist.
    pub(crate) const NO_METHOD: i64 = -32601;
    /// The parameters do not match the method.
    pub(crate) const BAD_PARAMS: i64 = -32602;
    /// The request was refused or failed.
    pub(crate) const FAILED: i64 = -32603;
    /// The request was cancelled.
    pub(crate) const CANCELLED: i64 = -32800;
    /// The named object does not exist.
    pub(crate) const NOT_FOUND: i64 = -32002;

    pub(crate) fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: Value::Null,
        }
    }

    /// The message with the details from `data`, because many programs send a generic message.
    pub(crate) fn in_words(&self) -> String {
        let why = match &self.data {
            Value::Null => String::new(),
            Value::String(text) => text.trim().to_owned(),
            data => data.to_string(),
        };
        if why.is_empty() {
            self.message.clone()
        } else {
            format!("{}: {why}", self.message)
        }
    }
}

/// A message of the program.
#[derive(Debug, PartialEq)]
pub(crate) enum RpcMessage {
    Request {
        /// Must be returned unchanged in the response.
        id: Value,
        method: String,
        params: Value,
    },
    Notification {
        method: String,
        params: Value,
    },
    Response {
        /// The number of the request; `None` if the id is not a number.
        id: Option<u64>,
        result: Result<Value, RpcError>,
    },
    /// JSON that is not a JSON-RPC message.
    Invalid,
}

/// Builds messages. Each request has a unique number.
#[derive(Debug, Default)]
pub(crate) struct RpcBuilder {
    next_id: u64,
    /// Messages contain the version of JSON-RPC.
    with_version: bool,
}

impl RpcBuilder {
    /// Messages with a version, as the standard requires. The default omits it.
    pub(crate) fn versioned() -> Self {
        Self {
            with_version: true,
            ..Self::default()
        }
    }

    fn frame(&self, mut message: Value) -> Value {
        if let Value::Object(fields) = &mut message
            && self.with_version
        {
            fields.shift_insert(0, "jsonrpc".to_owned(), "2.0".into());
        }
        message
    }

    /// Builds a request, and returns its number.
    pub(crate) fn request(&mut self, method: &str, params: &impl serde::Serialize) -> (u64, Value) {
        self.next_id += 1;
        let id = self.next_id;
        let message = json!({ "id": id, "method": method, "params": params });
        (id, self.frame(message))
    }

    /// Builds a notification, which gets no response.
    pub(crate) fn notification(&self, method: &str, params: &impl serde::Serialize) -> Value {
        self.frame(json!({ "method": method, "params": params }))
    }

    /// Builds the response to a request.
    pub(crate) fn answer(&self, id: &Value, result: &Result<Value, RpcError>) -> Value {
        self.frame(match result {
            Ok(value) => json!({ "id": id, "result": value }),
            Err(err) => {
                let mut error = json!({ "code": err.code, "message": err.message });
                if !err.data.is_null() {
                    error["data"] = err.data.clone();
                }
                json!({ "id": id, "error": error })
            }
        })
    }
}

/// Parses a line as a JSON-RPC message.
pub(crate) fn parse_message(value: Value) -> RpcMessage {
    let Value::Object(mut fields) = value else {
        return RpcMessage::Invalid;
    };
    let id = fields.shift_remove("id");
    if let Some(Value::String(method)) = fields.shift_remove("method") {
        let params = fields.shift_remove("params").unwrap_or_default();
        return match id {
            // A null id is the same as no id: the program does not wait for a response.
            None | Some(Value::Null) => RpcMessage::Notification { method, params },
            Some(Value::String(id)) if id.len() > MAX_ID => RpcMessage::Invalid,
            Some(id @ (Value::Number(_) | Value::String(_))) => {
                RpcMessage::Request { id, method, params }
            }
            Some(_) => RpcMessage::Invalid,
        };
    }
    let id = id.and_then(|id| id.as_u64());
    if let Some(error) = fields.shift_remove("error") {
        let code = error["code"].as_i64().unwrap_or_default();
        let message = error["message"]
            .as_str()
            .unwrap_or("no reason given")
            .to_owned();
        return RpcMessage::Response {
            id,
            result: Err(RpcError {
                code,
                message,
                data: error["data"].clone(),
            }),
        };
    }
    match fields.shift_remove("result") {
        Some(result) => RpcMessage::Response {
            id,
            result: Ok(result),
        },
        None => RpcMessage::Invalid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: Value, expect: &str) {
        let text = match parse_message(line) {
            RpcMessage::Request { id, method, params } => format!("{id} wants {method} {params}"),
            RpcMessage::Notification { method, params } => format!("told {method} {params}"),
            RpcMessage::Response {
                id,
                result: Ok(value),
            } => format!("{id:?} is {value}"),
            RpcMessage::Response {
                id,
                result: Err(err),
            } => {
                format!("{id:?} failed: {} {} {}", err.code, err.message, err.data)
            }
            RpcMessage::Invalid => "odd".to_owned(),
        };
        assert_eq!(text, expect);
    }

    #[test]
    fn message_kinds_are_distinguished() {
        check(
            json!({"id": 1, "method": "may I", "params": {"x": 1}}),
            r#"1 wants may I {"x":1}"#,
        );
        check(
            json!({"id": "a", "method": "may I"}),
            r#""a" wants may I null"#,
        );
        check(
            json!({"id": null, "method": "news", "params": 1}),
            "told news 1",
        );
        check(json!({"method": "news"}), "told news null");
        check(json!({"id": 1, "result": {}}), "Some(1) is {}");
        check(json!({"id": "x", "result": {}}), "None is {}");
        check(
            json!({"id": 1, "error": {"code": -7, "message": "no", "data": 1}}),
            "Some(1) failed: -7 no 1",
        );
        check(
            json!({"id": 1, "error": 3}),
            "Some(1) failed: 0 no reason given null",
        );
        check(json!({"id": 1}), "odd");
        check(json!({"id": [1], "method": "m"}), "odd");
        check(json!({"id": "x".repeat(MAX_ID + 1), "method": "m"}), "odd");
        check(json!([]), "odd");
    }

    #[test]
    fn an_error_includes_its_data() {
        let check = |data: Value, says: &str| {
            assert_eq!(
                RpcError {
                    code: -1,
                    message: "Internal error".into(),
                    data
                }
                .in_words(),
                says
            );
        };
        check(Value::Null, "Internal error");
        check(json!("no provider\n"), "Internal error: no provider");
        check(
            json!({"details": "no provider"}),
            r#"Internal error: {"details":"no provider"}"#,
        );
        check(json!(" "), "Internal error");
    }
}
