//! The table of operations. Every transport (HTTP, JSON-RPC lines, in process) reads it, so that a request has the same
//! parameters, rights and effects everywhere. The OpenAPI document is generated from it.

mod asks;
mod compare;
mod history;
mod kept;
mod reports;
mod runs;
mod sessions;
mod tokens;
mod undo;

use std::sync::LazyLock;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use windlass::core::BoxFuture;

use crate::access::{Caller, Scope};
use crate::idempotency::Remembered;
use crate::problem::{Problem, ProblemCode};
use crate::service::Service;

/// The HTTP method of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "UPPERCASE")]
pub enum Method {
    Get,
    Post,
    Put,
    Delete,
}

impl Method {
    /// The name of the method.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// One operation.
pub struct Operation {
    /// The name of the method of JSON-RPC, for example `sessions.list`.
    pub name: &'static str,
    /// The purpose in one sentence.
    pub summary: &'static str,
    pub scope: Scope,
    pub method: Method,
    /// The HTTP path; parameters are in braces.
    pub path: &'static str,
    /// The HTTP status of success.
    pub status: u16,
    run: Box<dyn Handler>,
}

/// The parameters of a call.
#[derive(Debug)]
pub enum Input {
    /// A JSON object.
    Json(Map<String, Value>),
    /// Names and values of a path and a query string.
    Pairs(Vec<(String, String)>),
}

/// The reply to a call.
#[derive(Debug)]
pub enum Reply {
    /// A JSON value.
    Json(String),
    /// Bytes of a file or a text.
    Bytes(Bytes),
}

/// A part of a file or a text.
#[derive(Debug)]
pub struct Bytes {
    pub content_type: &'static str,
    pub bytes: Vec<u8>,
    /// The position of the first byte.
    pub offset: u64,
    /// The size of the whole content.
    pub total: u64,
    /// The name under which a browser saves it.
    pub name: Option<String>,
}

impl Bytes {
    /// A whole text.
    pub(crate) fn text(content_type: &'static str, text: String) -> Self {
        let bytes = text.into_bytes();
        Self {
            content_type,
            total: bytes.len() as u64,
            bytes,
            offset: 0,
            name: None,
        }
    }
}

/// A value that an operation returns.
pub(crate) trait IntoReply {
    fn into_reply(self) -> Result<Reply, Problem>;
}

/// A value that is returned as JSON.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: Serialize> IntoReply for Json<T> {
    fn into_reply(self) -> Result<Reply, Problem> {
        let text = serde_json::to_string(&self.0).map_err(|err| {
            Problem::new(
                ProblemCode::Internal,
                format!("the reply cannot be encoded: {err}"),
            )
        })?;
        Ok(Reply::Json(text))
    }
}

impl IntoReply for Bytes {
    fn into_reply(self) -> Result<Reply, Problem> {
        Ok(Reply::Bytes(self))
    }
}

/// Describes the result of an operation in the OpenAPI document.
pub(crate) trait ReplySchema {
    #[cfg_attr(
        not(feature = "openapi"),
        expect(dead_code, reason = "only the OpenAPI document needs it")
    )]
    fn schema(generator: &mut SchemaGenerator) -> Option<Schema>;
}

impl<T: JsonSchema> ReplySchema for Json<T> {
    fn schema(generator: &mut SchemaGenerator) -> Option<Schema> {
        Some(generator.subschema_for::<T>())
    }
}

impl ReplySchema for Bytes {
    fn schema(_: &mut SchemaGenerator) -> Option<Schema> {
        None
    }
}

/// The circumstances of a call.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) service: Service,
    pub(crate) caller: Caller,
    /// The idempotency key of the request.
    pub(crate) key: Option<String>,
    /// An earlier process received the same request and stopped before it replied.
    pub(crate) interrupted: bool,
}

trait Handler: Send + Sync {
    fn call(&self, call: Call, input: Input) -> BoxFuture<'static, Result<Reply, Problem>>;
    #[cfg(feature = "openapi")]
    fn schemas(&self, generator: &mut SchemaGenerator) -> (Schema, Option<Schema>);
}

struct TypedHandler<P, R, F> {
    run: F,
    types: std::marker::PhantomData<fn(P) -> R>,
}

impl<P, R, F, Fut> Handler for TypedHandler<P, R, F>
where
    P: DeserializeOwned + JsonSchema + Send + 'static,
    R: IntoReply + ReplySchema + 'static,
    F: Fn(Call, P) -> Fut + Send + Sync,
    Fut: Future<Output = Result<R, Problem>> + Send + 'static,
{
    fn call(&self, call: Call, input: Input) -> BoxFuture<'static, Result<Reply, Problem>> {
        let params = match read_params::<P>(input) {
            Ok(params) => params,
            Err(problem) => return Box::pin(std::future::ready(Err(problem))),
        };
        let running = (self.run)(call, params);
        Box::pin(async move { running.await?.into_reply() })
    }

    #[cfg(feature = "openapi")]
    fn schemas(&self, generator: &mut SchemaGenerator) -> (Schema, Option<Schema>) {
        (P::json_schema(generator), R::schema(generator))
    }
}

fn read_params<P: DeserializeOwned>(input: Input) -> Result<P, Problem> {
    let invalid =
        |err: String| Problem::invalid(err).hint("`GET /openapi.json` describes the parameters");
    match input {
        Input::Json(map) => {
            let mut value = Value::Object(map);
            whole_numbers_as_integers(&mut value);
            serde_json::from_value(value).map_err(|err| invalid(err.to_string()))
        }
        Input::Pairs(pairs) => {
            let text =
                serde_urlencoded::to_string(&pairs).map_err(|err| invalid(err.to_string()))?;
            serde_urlencoded::from_str(&text).map_err(|err| invalid(err.to_string()))
        }
    }
}

/// Replaces numbers such as `3.0` and `3e2` by integers, because they are integers in JSON Schema and in JavaScript.
fn whole_numbers_as_integers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            // Above 2^53, the digits of a number with an exponent or a point may be rounded.
            const EXACT: f64 = 9_007_199_254_740_992.0;
            if let Some(float) = number.as_f64()
                && float.fract() == 0.0
                && float.abs() <= EXACT
            {
                *value = match float < 0.0 {
                    true => (float as i64).into(),
                    false => (float as u64).into(),
                };
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers_as_integers),
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers_as_integers),
        _ => {}
    }
}

impl Operation {
    fn new<P, R, F, Fut>(
        name: &'static str,
        (method, path, status): (Method, &'static str, u16),
        scope: Scope,
        summary: &'static str,
        run: F,
    ) -> Self
    where
        P: DeserializeOwned + JsonSchema + Send + 'static,
        R: IntoReply + ReplySchema + 'static,
        F: Fn(Call, P) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Problem>> + Send + 'static,
    {
        Self {
            name,
            summary,
            scope,
            method,
            path,
            status,
            run: Box::new(TypedHandler {
                run,
                types: std::marker::PhantomData,
            }),
        }
    }

    /// Whether the operation changes something. Its repetition with the same idempotency key has no further effect.
    #[must_use]
    pub fn changes(&self) -> bool {
        self.method != Method::Get
    }

    /// The schemas of the parameters and of the result; a result without a schema is not JSON.
    #[cfg(feature = "openapi")]
    #[must_use]
    pub fn schemas(&self, generator: &mut SchemaGenerator) -> (Schema, Option<Schema>) {
        self.run.schemas(generator)
    }
}

static OPERATIONS: LazyLock<Vec<Operation>> = LazyLock::new(|| {
    let mut all = sessions::operations();
    all.extend(runs::operations());
    all.extend(compare::operations());
    all.extend(asks::operations());
    all.extend(history::operations());
    all.extend(kept::operations());
    all.extend(undo::operations());
    all.extend(reports::operations());
    all.extend(tokens::operations());
    all
});

/// All operations.
#[must_use]
pub fn operations() -> &'static [Operation] {
    &OPERATIONS
}

/// The operation of this name.
#[must_use]
pub fn operation(name: &str) -> Option<&'static Operation> {
    operations().iter().find(|operation| operation.name == name)
}

/// A call of an operation, from any transport.
#[derive(Debug)]
pub struct Request {
    pub caller: Caller,
    pub input: Input,
    /// The idempotency key, if the client sent one.
    pub key: Option<String>,
}

impl Service {
    /// Calls an operation.
    pub async fn call(&self, operation: &Operation, request: Request) -> Result<Reply, Problem> {
        let Request { caller, input, key } = request;
        caller.require(operation.scope)?;
        let call = Call {
            service: self.clone(),
            caller,
            key: None,
            interrupted: false,
        };
        let Some(key) = key.filter(|_| operation.changes()) else {
            return operation.run.call(call, input).await;
        };
        let token = call.caller.token.clone().unwrap_or_default();
        let text = request_text(operation.name, &input);
        let (in_use, interrupted) = match self.0.keys.begin(&token, &key, &text).await? {
            Remembered::Reply(reply) => return Ok(Reply::Json((*reply).to_owned())),
            Remembered::New(in_use) => (in_use, false),
            Remembered::Interrupted(in_use) => (in_use, true),
        };
        let call = Call {
            key: Some(key),
            interrupted,
            ..call
        };
        // The request goes on if its client disconnects, so that its reply is remembered.
        let running = operation.run.call(call, input);
        let finished = self.0.tasks.spawn(async move {
            let done = running.await;
            match &done {
                Ok(Reply::Json(text)) => in_use.finish(text),
                Err(problem) if problem.is(ProblemCode::OutcomeUnknown) => {
                    in_use.keep_interrupted()
                }
                _ => drop(in_use),
            }
            done
        });
        finished
            .await
            .map_err(|_| Problem::new(ProblemCode::Internal, "the operation failed"))?
    }
}

/// The request as a text, to recognise its repetition.
fn request_text(name: &str, input: &Input) -> String {
    match input {
        Input::Json(map) => format!("{name} {}", Value::Object(map.clone())),
        Input::Pairs(pairs) => format!("{name} {pairs:?}"),
    }
}

/// A page of a list.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Page<T> {
    pub items: Vec<T>,
    /// Pass it as `cursor` to get the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// An empty result.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Done {}

/// Parameters of an operation without any.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoParams {}

/// Refuses an operation that cannot tell whether an earlier attempt took effect.
pub(crate) fn refuse_if_interrupted(call: &Call, check: &str) -> Result<(), Problem> {
    if !call.interrupted {
        return Ok(());
    }
    Err(Problem::new(
        ProblemCode::OutcomeUnknown,
        "the server stopped during the first attempt of this request, and it is not known whether it took effect",
    )
    .hint(format!("{check}; then send the request with a new idempotency key if it is still needed")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn names_and_routes_are_unique() {
        let mut names: Vec<_> = operations().iter().map(|one| one.name).collect();
        let mut routes: Vec<_> = operations()
            .iter()
            .map(|one| (one.method, one.path))
            .collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        routes.sort_unstable();
        routes.dedup();
        assert_eq!((names.len(), routes.len()), (count, count));
    }

    #[test]
    fn numbers_of_a_query_are_read_and_unknown_names_are_refused() {
        #[derive(Debug, Deserialize, PartialEq)]
        #[serde(deny_unknown_fields)]
        struct Params {
            limit: Option<u32>,
            q: String,
        }
        let pairs = |pairs: &[(&str, &str)]| {
            let owned = pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            Input::Pairs(owned.collect())
        };
        let read = read_params::<Params>(pairs(&[("limit", "3"), ("q", "12")])).unwrap();
        assert_eq!(
            read,
            Params {
                limit: Some(3),
                q: "12".into()
            }
        );
        // 3.0 and 3 are the same number in JSON Schema and in JavaScript.
        for text in ["3", "3.0", "3e0"] {
            let map = serde_json::from_str(&format!("{{\"limit\":{text},\"q\":\"12\"}}")).unwrap();
            assert_eq!(read_params::<Params>(Input::Json(map)).unwrap(), read);
        }
        for text in ["3.5", "-3.0", "1e300"] {
            let map = serde_json::from_str(&format!("{{\"limit\":{text},\"q\":\"\"}}")).unwrap();
            assert!(read_params::<Params>(Input::Json(map)).is_err(), "{text}");
        }
        assert!(read_params::<Params>(pairs(&[("q", "x"), ("limit", "-3")])).is_err());
        assert!(read_params::<Params>(pairs(&[("q", "x"), ("nope", "1")])).is_err());
    }
}
