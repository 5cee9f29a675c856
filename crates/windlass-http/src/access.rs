//! Decides whether a request may be served at all: it must name this server, come from no foreign page, and carry a token or
//! the cookie of our own page.

use std::net::SocketAddr;

use axum::http::header::{AUTHORIZATION, COOKIE, HOST, ORIGIN};
use axum::http::{HeaderMap, Method, Uri};
use windlass_service::{Caller, Problem, ProblemCode, Service};

use crate::server::HttpOptions;

/// The name of the cookie of our own page.
pub(crate) const COOKIE_NAME: &str = "windlass_login";

/// The hosts and origins that are accepted.
pub(crate) struct AccessRules {
    hosts: Vec<String>,
    own_origins: Vec<String>,
    /// Origins of other pages that may read replies.
    origins: Vec<String>,
}

impl AccessRules {
    pub(crate) fn new(options: &HttpOptions, address: SocketAddr, tls: bool) -> Self {
        let port = address.port();
        let mut names = vec![
            "localhost".to_owned(),
            "127.0.0.1".to_owned(),
            "[::1]".to_owned(),
        ];
        if !address.ip().is_unspecified() {
            names.push(match address.ip() {
                std::net::IpAddr::V6(ip) => format!("[{ip}]"),
                std::net::IpAddr::V4(ip) => ip.to_string(),
            });
        }
        names.extend(options.hosts.iter().map(|host| host.to_ascii_lowercase()));
        let scheme = if tls || options.behind_proxy {
            "https"
        } else {
            "http"
        };
        let mut hosts = Vec::new();
        for name in names {
            // A reverse proxy may have the default port of its scheme.
            if name.contains(':') && !name.starts_with('[') {
                hosts.push(name);
                continue;
            }
            hosts.push(format!("{name}:{port}"));
            hosts.push(name);
        }
        let mut own_origins: Vec<_> = hosts
            .iter()
            .map(|host| format!("{scheme}://{host}"))
            .collect();
        own_origins.dedup();
        Self {
            hosts,
            own_origins,
            origins: options.origins.clone(),
        }
    }

    /// Refuses a request that names another host: a page of another site may have pointed its name to this address.
    pub(crate) fn check_host(&self, headers: &HeaderMap, uri: &Uri) -> Result<(), Problem> {
        let host = match headers.get(HOST) {
            Some(host) => host.to_str().ok(),
            None => uri.authority().map(axum::http::uri::Authority::as_str),
        };
        let known = host.is_some_and(|host| {
            let host = host.to_ascii_lowercase();
            self.hosts.contains(&host)
        });
        match known {
            true => Ok(()),
            false => Err(Problem::new(
                ProblemCode::WrongHost,
                "the request names a host that this server does not have",
            )
            .hint("use 127.0.0.1 or localhost, or start the server with `--host NAME`")),
        }
    }

    /// Refuses a request of a foreign page. Returns the origin if it may read the reply.
    pub(crate) fn check_origin<'a>(
        &self,
        headers: &'a HeaderMap,
    ) -> Result<Option<&'a str>, Problem> {
        let Some(origin) = headers.get(ORIGIN) else {
            return Ok(None);
        };
        let origin = origin.to_str().unwrap_or("null");
        if self.own_origins.iter().any(|own| own == origin) {
            return Ok(None);
        }
        if self.origins.iter().any(|one| one == origin) {
            return Ok(Some(origin));
        }
        Err(Problem::new(
            ProblemCode::Forbidden,
            "pages of other sites may not use this server",
        )
        .hint("start the server with `--origin ORIGIN` to allow a page"))
    }
}

/// The caller of a request, by its token or cookie.
pub(crate) fn caller(
    service: &Service,
    method: &Method,
    headers: &HeaderMap,
) -> Result<Caller, Problem> {
    let unauthorized = |detail: &str| {
        Problem::new(ProblemCode::Unauthorized, detail).hint(
            "send `Authorization: Bearer TOKEN`; on the same machine, the token is in the file `server/token` of the data \
             directory, and `windlass serve --print-url` prints a login link",
        )
    };
    if let Some(value) = headers.get(AUTHORIZATION) {
        let token = value.to_str().ok().and_then(bearer);
        let token =
            token.ok_or_else(|| unauthorized("the header `Authorization` has no bearer token"))?;
        return service
            .caller(token)
            .ok_or_else(|| unauthorized("the token is not valid"));
    }
    let Some(cookie) = cookie(headers) else {
        return Err(unauthorized("the request has no token"));
    };
    // The cookie is for our own page. A browser tells the origin of requests that change something.
    let changes = !matches!(*method, Method::GET | Method::HEAD);
    let same_site = headers
        .get("sec-fetch-site")
        .is_some_and(|site| site == "same-origin");
    if changes && !headers.contains_key(ORIGIN) && !same_site {
        return Err(unauthorized(
            "a request with a cookie must come from the page of this server",
        ));
    }
    service
        .caller_of_cookie(cookie)
        .ok_or_else(|| unauthorized("the login has ended"))
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then_some(token.trim())
}

/// The value of our cookie.
fn cookie(headers: &HeaderMap) -> Option<&str> {
    let all = headers.get_all(COOKIE).iter();
    let mut pairs = all
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'));
    pairs.find_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        (name == COOKIE_NAME).then_some(value)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn rules() -> AccessRules {
        let address: SocketAddr = "127.0.0.1:8080".parse().unwrap();
        let options = HttpOptions {
            origins: vec!["https://tools.example".into()],
            ..HttpOptions::new(address)
        };
        AccessRules::new(&options, address, false)
    }

    fn headers(name: &str, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(
            axum::http::HeaderName::from_bytes(name.as_bytes()).unwrap(),
            value.parse().unwrap(),
        );
        headers
    }

    #[test]
    fn foreign_hosts_are_refused() {
        let check = |host: &str, expect: bool| {
            let done = rules().check_host(&headers("host", host), &Uri::from_static("/v1"));
            assert_eq!(done.is_ok(), expect, "{host}");
        };
        check("127.0.0.1:8080", true);
        check("LocalHost:8080", true);
        check("[::1]:8080", true);
        check("localhost", true);
        check("evil.example:8080", false);
        check("localhost.evil.example:8080", false);
        check("127.0.0.1:8081", false);
        assert!(
            rules()
                .check_host(&HeaderMap::new(), &Uri::from_static("/v1"))
                .is_err()
        );
    }

    #[test]
    fn foreign_origins_are_refused() {
        let check = |origin: &str, expect: Result<Option<&str>, ()>| {
            let headers = headers("origin", origin);
            let done = rules()
                .check_origin(&headers)
                .map(|origin| origin.map(str::to_owned));
            assert_eq!(
                done.map_err(drop),
                expect.map(|one| one.map(str::to_owned)),
                "{origin}"
            );
        };
        check("http://127.0.0.1:8080", Ok(None));
        check("https://tools.example", Ok(Some("https://tools.example")));
        check("http://evil.example", Err(()));
        check("http://localhost.evil.example", Err(()));
        check("http://localhost:9999", Err(()));
        check("null", Err(()));
    }
}
