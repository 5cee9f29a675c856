//! JSON-RPC between two that both ask: which of our requests are open, which of theirs, and that each of theirs is answered
//! exactly once. Values in, values out; who carries them is somebody else's business.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

/// The most requests of theirs that are open at a time.
const MAX_OPEN: usize = 256;

/// The code of an unknown method.
pub const METHOD_NOT_FOUND: i32 = -32601;
/// The code of parameters that do not fit.
pub const INVALID_PARAMS: i32 = -32602;
/// The code of anything else.
pub const SERVER_ERROR: i32 = -32000;

/// What a line says.
#[derive(Debug, Clone, PartialEq)]
pub enum Incoming {
    /// An answer to a request of ours.
    Answer {
        /// What was asked.
        method: &'static str,
        /// What came of it: a result, or a sentence and its code.
        result: Result<Value, (i64, String)>,
    },
    /// They ask. It has to be answered once.
    Request {
        /// By this id.
        id: Value,
        /// What.
        method: String,
        /// With what.
        params: Value,
    },
    /// They say something.
    Notice {
        /// What.
        method: String,
        /// With what.
        params: Value,
    },
    /// None of these, or an answer to nothing, or a request that is open already.
    Other,
}

/// One side of a conversation.
#[derive(Debug, Default)]
pub struct Rpc {
    asked: u64,
    ours: HashMap<u64, &'static str>,
    theirs: HashMap<String, Value>,
}

impl Rpc {
    /// A request of ours, as a line.
    pub fn ask(&mut self, method: &'static str, params: Value) -> Value {
        self.asked += 1;
        self.ours.insert(self.asked, method);
        json!({ "id": self.asked, "method": method, "params": params })
    }

    /// Something we say, as a line.
    #[must_use]
    pub fn tell(method: &str) -> Value {
        json!({ "method": method })
    }

    /// Reads a line. A request over the bound is not taken: it comes back with its answer.
    pub fn read(&mut self, line: Value) -> Result<Incoming, Value> {
        let Value::Object(mut line) = line else { return Ok(Incoming::Other) };
        let id = line.remove("id").filter(|id| !id.is_null());
        let params = line.remove("params").unwrap_or(Value::Null);
        Ok(match (line.remove("method"), id) {
            (Some(Value::String(method)), None) => Incoming::Notice { method, params },
            (Some(Value::String(method)), Some(id)) => {
                if self.theirs.len() >= MAX_OPEN {
                    return Err(failure(&id, SERVER_ERROR, "too many requests are open"));
                }
                if self.theirs.insert(id.to_string(), id.clone()).is_some() {
                    return Ok(Incoming::Other);
                }
                Incoming::Request { id, method, params }
            }
            (None, Some(id)) => self.answered(&id, &mut line),
            _ => Incoming::Other,
        })
    }

    fn answered(&mut self, id: &Value, line: &mut Map<String, Value>) -> Incoming {
        let Some(method) = id.as_u64().and_then(|id| self.ours.remove(&id)) else { return Incoming::Other };
        let result = match line.remove("error") {
            Some(error) => {
                let text = error.get("message").and_then(Value::as_str).unwrap_or("it does not say why");
                Err((error.get("code").and_then(Value::as_i64).unwrap_or_default(), text.to_owned()))
            }
            None => Ok(line.remove("result").unwrap_or(Value::Null)),
        };
        Incoming::Answer { method, result }
    }

    /// Our answer to a request, as a line; `None` when it has one.
    pub fn answer(&mut self, id: &Value, result: Value) -> Option<Value> {
        self.theirs.remove(&id.to_string())?;
        Some(json!({ "id": id, "result": result }))
    }

    /// Our refusal of a request, as a line; `None` when it has its answer.
    pub fn refuse(&mut self, id: &Value, code: i32, why: &str) -> Option<Value> {
        self.theirs.remove(&id.to_string())?;
        Some(failure(id, code, why))
    }

    /// They do not wait for this answer any more.
    pub fn withdrawn(&mut self, id: &Value) {
        self.theirs.remove(&id.to_string());
    }
}

fn failure(id: &Value, code: i32, why: &str) -> Value {
    json!({ "id": id, "error": { "code": code, "message": why } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_may_use_the_same_ids_and_each_is_answered_once() {
        let mut rpc = Rpc::default();
        assert_eq!(rpc.ask("start", json!({})), json!({"id": 1, "method": "start", "params": {}}));
        let asked = rpc.read(json!({"id": 1, "method": "may I", "params": {"x": 1}}));
        assert!(matches!(asked, Ok(Incoming::Request { .. })), "{asked:?}");
        // The same again is not asked twice.
        assert_eq!(rpc.read(json!({"id": 1, "method": "may I"})), Ok(Incoming::Other));
        assert_eq!(rpc.answer(&json!(1), json!("yes")), Some(json!({"id": 1, "result": "yes"})));
        assert_eq!(rpc.answer(&json!(1), json!("yes")), None);
        assert_eq!(rpc.refuse(&json!(1), METHOD_NOT_FOUND, "no"), None);
        let done = rpc.read(json!({"id": 1, "error": {"code": -7, "message": "broken"}}));
        assert_eq!(done, Ok(Incoming::Answer { method: "start", result: Err((-7, "broken".to_owned())) }));
        assert_eq!(rpc.read(json!({"id": 1, "result": {}})), Ok(Incoming::Other));
        assert_eq!(rpc.read(json!([])), Ok(Incoming::Other));
        let told = rpc.read(json!({"method": "news", "params": 1}));
        assert_eq!(told, Ok(Incoming::Notice { method: "news".to_owned(), params: json!(1) }));
    }

    #[test]
    fn what_is_over_the_bound_is_refused_at_once() {
        let mut rpc = Rpc::default();
        for id in 0..MAX_OPEN {
            assert!(rpc.read(json!({"id": id, "method": "m"})).is_ok());
        }
        let over = rpc.read(json!({"id": "more", "method": "m"}));
        assert!(over.is_err_and(|line| line["id"] == "more" && line["error"]["code"] == SERVER_ERROR));
    }
}
