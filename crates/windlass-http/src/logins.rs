//! Logins of browsers: a one-time link sets the cookie of our own page.

use axum::http::header::{LOCATION, SET_COOKIE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use windlass_service::{Problem, ProblemCode, Service};

use crate::access::COOKIE_NAME;

/// Logs a browser in and sends it to the page.
pub(crate) fn log_in(service: &Service, ticket: &str, secure: bool) -> Result<Response, Problem> {
    let Some(cookie) = service.login(ticket)? else {
        return Err(Problem::new(
            ProblemCode::Unauthorized,
            "the login link was used or has expired",
        )
        .hint("run `windlass serve --print-url` for a new one"));
    };
    let secure = if secure { "; Secure" } else { "" };
    let value = format!("{COOKIE_NAME}={cookie}; Path=/; HttpOnly; SameSite=Strict{secure}");
    let mut response = StatusCode::SEE_OTHER.into_response();
    let headers = response.headers_mut();
    headers.insert(LOCATION, HeaderValue::from_static("/docs"));
    let value = HeaderValue::from_str(&value)
        .map_err(|_| Problem::new(ProblemCode::Internal, "the cookie could not be made"))?;
    headers.insert(SET_COOKIE, value);
    Ok(response)
}
