//! Probes, metrics, the description of the interface, its page, and the login of browsers.

use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue};
use axum::http::{HeaderMap, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use windlass_service::{Problem, ProblemCode};

use crate::logins::log_in;
use crate::routes::{Parts, authorized, json_response, problem_response, query_pairs};

/// The description of the interface; a test compares it with the table of operations.
pub(crate) const OPENAPI: &str = include_str!("../openapi.json");

/// The server works. This says nothing about its sessions.
pub(crate) async fn health() -> Response {
    ([(CONTENT_TYPE, "application/json")], "{\"status\":\"ok\"}").into_response()
}

/// The server accepts work.
pub(crate) async fn ready(State(parts): State<Parts>) -> Response {
    match parts.service.accepts_work() {
        Ok(()) => (
            [(CONTENT_TYPE, "application/json")],
            "{\"status\":\"ready\"}",
        )
            .into_response(),
        Err(problem) => {
            let mut response = problem_response(&problem);
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            response
        }
    }
}

pub(crate) async fn metrics(State(parts): State<Parts>, request: Request<Body>) -> Response {
    let done = authorized(&parts, request.method(), request.headers())
        .and_then(|caller| caller.check_read());
    match done {
        Ok(()) => {
            let kind = "text/plain; version=0.0.4; charset=utf-8";
            ([(CONTENT_TYPE, kind)], parts.service.metrics_text()).into_response()
        }
        Err(problem) => problem_response(&problem),
    }
}

pub(crate) async fn openapi(headers: HeaderMap) -> Response {
    json_response(OPENAPI.to_owned(), StatusCode::OK, true, &headers)
}

pub(crate) async fn docs() -> Response {
    page(
        "text/html; charset=utf-8",
        include_str!("../page/docs.html"),
    )
}

pub(crate) async fn docs_file(Path(file): Path<String>) -> Response {
    match file.as_str() {
        "docs.js" => page(
            "text/javascript; charset=utf-8",
            include_str!("../page/docs.js"),
        ),
        "docs.css" => page("text/css; charset=utf-8", include_str!("../page/docs.css")),
        _ => problem_response(&Problem::new(
            ProblemCode::NotFound,
            "there is no such page",
        )),
    }
}

fn page(kind: &'static str, text: &'static str) -> Response {
    let mut response = text.into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(
        CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
        ),
    );
    response
}

/// Logs a browser in with the code of a one-time link.
pub(crate) async fn login(State(parts): State<Parts>, RawQuery(query): RawQuery) -> Response {
    let done = query_pairs(query.as_deref()).and_then(|pairs| {
        let ticket = pairs.iter().find(|(name, _)| name == "ticket");
        let ticket = ticket
            .map(|(_, ticket)| ticket.as_str())
            .unwrap_or_default();
        log_in(&parts.service, ticket, parts.secure)
    });
    match done {
        Ok(response) => response,
        Err(problem) => problem_response(&problem),
    }
}
