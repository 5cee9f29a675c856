//! The routes: one for each operation of the table, the event streams, and the pages and probes of the server.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, MatchedPath, RawPathParams, State};
use axum::http::header::{
    ACCEPT, ACCEPT_RANGES, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ALLOW,
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_RANGE, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH, REFERRER_POLICY, RETRY_AFTER, VARY,
    WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, Method as HttpMethod, Request, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, get, on};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::{Map, Value};
use windlass_service::{
    Bytes, Caller, Input, Method, Operation, Problem, ProblemCode, Reply,
    Request as OperationRequest, operations,
};

use crate::access::caller;
use crate::compression::{accepts_gzip, set_body};
use crate::server::ServerParts;
use crate::{compat, pages, sse};

/// Maximum size of the body of a request, in bytes. A prompt with images is large.
const MAX_BODY: usize = 32 << 20;
/// Time in which the body of a request must arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum length of a path and query.
const MAX_URI: usize = 8 << 10;

pub(crate) type Parts = Arc<ServerParts>;

/// All routes.
pub(crate) fn router(parts: Parts) -> Router {
    let mut router = Router::new();
    for operation in operations() {
        router = router.route(operation.path, operation_route(operation));
    }
    router
        .merge(compat::routes())
        .route("/v1/events", get(sse::all_sessions))
        .route("/metrics", get(pages::metrics))
        .route("/healthz", get(pages::health))
        .route("/readyz", get(pages::ready))
        .route("/openapi.json", get(pages::openapi))
        .route("/docs", get(pages::docs))
        .route("/docs/{file}", get(pages::docs_file))
        .route("/login", get(pages::login))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(axum::middleware::from_fn_with_state(parts.clone(), guard))
        // The limit of this crate gives a problem that says what to do.
        .layer(DefaultBodyLimit::disable())
        .with_state(parts)
}

fn operation_route(operation: &'static Operation) -> MethodRouter<Parts> {
    let filter = match operation.method {
        Method::Get => MethodFilter::GET,
        Method::Post => MethodFilter::POST,
        Method::Put => MethodFilter::PUT,
        Method::Delete => MethodFilter::DELETE,
    };
    on(
        filter,
        move |State(parts): State<Parts>, path: RawPathParams, request: Request<Body>| async move {
            match call(&parts, operation, &path, request).await {
                Ok(response) => response,
                Err(problem) => problem_response(&problem),
            }
        },
    )
}

async fn call(
    parts: &Parts,
    operation: &'static Operation,
    path: &RawPathParams,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let caller = authorized(parts, &head.method, &head.headers)?;
    let path: Vec<(String, String)> = path
        .iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    if operation.name == "events.list" && wants_events(&head.headers) {
        return sse::session(parts, &caller, &path, head.uri.query(), &head.headers).await;
    }
    let input = match operation.method {
        Method::Get | Method::Delete => {
            let mut pairs = path;
            pairs.extend(query_pairs(head.uri.query())?);
            if operation.method == Method::Get {
                add_range(&mut pairs, &head.headers);
            }
            Input::Pairs(pairs)
        }
        Method::Post | Method::Put => {
            if head.uri.query().is_some_and(|query| !query.is_empty()) {
                return Err(
                    Problem::invalid("this operation takes its parameters in the body")
                        .hint("send them as a JSON object"),
                );
            }
            let mut map = read_body(&head.headers, body).await?;
            for (name, value) in path {
                if map.contains_key(&name) {
                    return Err(Problem::invalid(format!("`{name}` is a part of the path")));
                }
                map.insert(name, Value::String(value));
            }
            Input::Json(map)
        }
    };
    let key = match head.headers.get("idempotency-key") {
        None => None,
        Some(value) => Some(
            value
                .to_str()
                .map_err(|_| Problem::invalid("the header `Idempotency-Key` is not ASCII"))?
                .to_owned(),
        ),
    };
    let request = OperationRequest { caller, input, key };
    let reply = parts.service.call(operation, request).await?;
    let status = StatusCode::from_u16(operation.status).unwrap_or(StatusCode::OK);
    Ok(reply_response(reply, status, operation, &head.headers))
}

/// The caller of a request, if it has a valid token and does not send too many requests.
pub(crate) fn authorized(
    parts: &Parts,
    method: &HttpMethod,
    headers: &HeaderMap,
) -> Result<Caller, Problem> {
    let caller = caller(&parts.service, method, headers)?;
    parts
        .rates
        .take(caller.token.as_deref().unwrap_or_default())?;
    Ok(caller)
}

pub(crate) fn wants_events(headers: &HeaderMap) -> bool {
    let accept = headers.get_all(ACCEPT).iter();
    accept
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.contains("text/event-stream"))
}

/// The pairs of a query string.
pub(crate) fn query_pairs(query: Option<&str>) -> Result<Vec<(String, String)>, Problem> {
    let query = query.unwrap_or_default();
    let pairs: Vec<(String, String)> = serde_urlencoded::from_str(query)
        .map_err(|err| Problem::invalid(format!("the query cannot be read: {err}")))?;
    // A token in an address would be in logs and in the history of browsers.
    if pairs
        .iter()
        .any(|(name, _)| matches!(name.as_str(), "token" | "access_token"))
    {
        return Err(Problem::invalid("a token in the address is not accepted")
            .hint("send `Authorization: Bearer TOKEN`"));
    }
    Ok(pairs)
}

/// Translates a range of bytes into parameters. Other forms of ranges are ignored, as the standard allows.
fn add_range(pairs: &mut Vec<(String, String)>, headers: &HeaderMap) {
    let range = headers.get("range").and_then(|value| value.to_str().ok());
    let Some((first, last)) = range
        .and_then(|range| range.strip_prefix("bytes="))
        .and_then(|range| range.split_once('-'))
    else {
        return;
    };
    let Ok(first) = first.parse::<u64>() else {
        return;
    };
    if pairs
        .iter()
        .any(|(name, _)| name == "offset" || name == "length")
    {
        return;
    }
    pairs.push(("offset".to_owned(), first.to_string()));
    if let Ok(last) = last.parse::<u64>()
        && last >= first
    {
        pairs.push(("length".to_owned(), (last - first + 1).to_string()));
    }
}

/// Reads the body as a JSON object. An empty body is an empty object.
pub(crate) async fn read_body(
    headers: &HeaderMap,
    body: Body,
) -> Result<Map<String, Value>, Problem> {
    if headers.contains_key(CONTENT_ENCODING) {
        return Err(Problem::new(
            ProblemCode::UnsupportedMediaType,
            "compressed requests are not accepted",
        )
        .hint("send the body without `Content-Encoding`"));
    }
    let bytes = tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, MAX_BODY).collect()).await;
    let bytes = match bytes {
        Ok(Ok(bytes)) => bytes.to_bytes(),
        Ok(Err(err)) if err.is::<LengthLimitError>() => {
            return Err(Problem::new(
                ProblemCode::TooLarge,
                format!("the body is larger than {} MB", MAX_BODY >> 20),
            ));
        }
        Ok(Err(_)) => return Err(Problem::invalid("the body is incomplete")),
        Err(_) => {
            return Err(Problem::invalid(format!(
                "the body did not arrive within {} seconds",
                BODY_TIMEOUT.as_secs()
            )));
        }
    };
    let is_json = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| {
            let media = value.split(';').next().unwrap_or_default().trim();
            media.eq_ignore_ascii_case("application/json")
        });
    if bytes.is_empty() {
        return Ok(Map::new());
    }
    // A page of another site can send other types without asking the server first.
    if !is_json {
        return Err(
            Problem::new(ProblemCode::UnsupportedMediaType, "the body must be JSON")
                .hint("send `Content-Type: application/json`"),
        );
    }
    match serde_json::from_slice(&bytes) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(Problem::invalid("the body must be a JSON object")),
        Err(err) => Err(Problem::invalid(format!(
            "the body is not valid JSON: {err}"
        ))),
    }
}

fn reply_response(
    reply: Reply,
    status: StatusCode,
    operation: &Operation,
    headers: &HeaderMap,
) -> Response {
    match reply {
        Reply::Json(text) => json_response(text, status, operation.method == Method::Get, headers),
        Reply::Bytes(bytes) => bytes_response(bytes),
    }
}

/// A reply in JSON. Replies to reads have an entity tag, so that a client that has the same reply gets none again.
pub(crate) fn json_response(
    text: String,
    status: StatusCode,
    cacheable: bool,
    headers: &HeaderMap,
) -> Response {
    let mut response = status.into_response();
    if cacheable {
        let tag = format!("\"{}\"", &blake3::hash(text.as_bytes()).to_hex()[..32]);
        let known = headers
            .get(IF_NONE_MATCH)
            .and_then(|value| value.to_str().ok())
            .is_some_and(|value| {
                value
                    .split(',')
                    .any(|one| one.trim().trim_start_matches("W/") == tag)
            });
        if let Ok(tag) = HeaderValue::from_str(&tag) {
            response.headers_mut().insert(ETAG, tag);
        }
        if known {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            return response;
        }
    }
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    set_body(&mut response, text.into_bytes(), accepts_gzip(headers));
    response
}

fn bytes_response(bytes: Bytes) -> Response {
    let whole = bytes.offset == 0 && bytes.bytes.len() as u64 == bytes.total;
    let status = if whole {
        StatusCode::OK
    } else {
        StatusCode::PARTIAL_CONTENT
    };
    let mut response = status.into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(bytes.content_type));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if !whole {
        let end = bytes.offset + (bytes.bytes.len() as u64).max(1) - 1;
        let range = format!("bytes {}-{end}/{}", bytes.offset, bytes.total);
        if let Ok(range) = HeaderValue::from_str(&range) {
            headers.insert(CONTENT_RANGE, range);
        }
    }
    let name = bytes.name.unwrap_or_else(|| "content".to_owned());
    // A browser must never show a file of an agent as a page of ours.
    if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename=\"{name}\"")) {
        headers.insert(CONTENT_DISPOSITION, value);
    }
    *response.body_mut() = Body::from(bytes.bytes);
    response
}

/// A problem as a reply (RFC 9457).
pub(crate) fn problem_response(problem: &Problem) -> Response {
    let status =
        StatusCode::from_u16(problem.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = serde_json::to_vec(problem).unwrap_or_default();
    let mut response = (status, body).into_response();
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/problem+json"),
    );
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if let Some(seconds) = problem.retry_after
        && let Ok(value) = HeaderValue::from_str(&seconds.to_string())
    {
        headers.insert(RETRY_AFTER, value);
    }
    response
}

async fn not_found() -> Response {
    let problem = Problem::new(ProblemCode::NotFound, "there is no such route")
        .hint("`GET /openapi.json` lists the routes");
    problem_response(&problem)
}

async fn method_not_allowed(request: Request<Body>) -> Response {
    let route = request.extensions().get::<MatchedPath>();
    let methods: Vec<&str> = operations()
        .iter()
        .filter(|operation| route.is_some_and(|route| route.as_str() == operation.path))
        .map(|operation| operation.method.word())
        .collect();
    let allowed = methods.join(", ");
    let problem = Problem::new(
        ProblemCode::MethodNotAllowed,
        format!("this route does not have the method {}", request.method()),
    );
    // The router adds the header to the replies of routes that are not operations.
    if allowed.is_empty() {
        return problem_response(&problem.hint("the header `Allow` lists the methods"));
    }
    let mut response = problem_response(&problem.hint(format!("use {allowed}")));
    if let Ok(value) = HeaderValue::from_str(&allowed) {
        response.headers_mut().insert(ALLOW, value);
    }
    response
}

/// Checks every request before its route, and adds the headers of every reply.
async fn guard(State(parts): State<Parts>, request: Request<Body>, next: Next) -> Response {
    let (method, uri, headers) = (request.method(), request.uri(), request.headers());
    let checked = parts
        .access
        .check_host(headers, uri)
        .and_then(|()| parts.access.check_origin(headers))
        .map(|origin| origin.map(str::to_owned));
    let origin = match checked {
        Ok(origin) => origin,
        Err(problem) => return secured(problem_response(&problem)),
    };
    if uri.to_string().len() > MAX_URI {
        let problem = Problem::new(ProblemCode::TooLarge, "the address is too long");
        return secured(problem_response(&problem));
    }
    let response = match (&origin, method == HttpMethod::OPTIONS) {
        (Some(_), true) => StatusCode::NO_CONTENT.into_response(),
        _ => next.run(request).await,
    };
    let mut response = secured(response);
    if let Some(origin) = origin
        && let Ok(value) = HeaderValue::from_str(&origin)
    {
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, value);
        headers.insert(
            ACCESS_CONTROL_ALLOW_HEADERS,
            HeaderValue::from_static(
                "authorization, content-type, idempotency-key, if-none-match, last-event-id, range",
            ),
        );
        headers.insert(
            ACCESS_CONTROL_ALLOW_METHODS,
            HeaderValue::from_static("GET, POST, PUT, DELETE"),
        );
        headers.insert(
            ACCESS_CONTROL_EXPOSE_HEADERS,
            HeaderValue::from_static("content-disposition, content-range, etag, retry-after"),
        );
        headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
        headers.append(VARY, HeaderValue::from_static("origin"));
    }
    response
}

/// Adds the headers that keep browsers from storing, sniffing or embedding replies.
fn secured(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    if !headers.contains_key(CACHE_CONTROL) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    if !headers.contains_key(CONTENT_SECURITY_POLICY) {
        headers.insert(
            CONTENT_SECURITY_POLICY,
            HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"),
        );
    }
    response
}
