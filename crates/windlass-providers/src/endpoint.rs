//! Where requests go: a base address and the path a protocol adds to it. It connects to nothing.

use reqwest::Url;

use crate::protocol::Protocol;

/// The address of a model server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    url: Url,
}

/// A base address that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// It is no address at all.
    #[error("`{0}` is not an address like https://host/path")]
    NotAnAddress(String),
    /// It is not HTTP.
    #[error("the base URL must begin with http:// or https://, not `{0}:`")]
    Scheme(String),
    /// It holds a name and a password.
    #[error("the base URL must not hold a user name or password; give the key separately")]
    Credentials,
}

impl Endpoint {
    /// The place where a protocol's requests go. A query in the base stays; a trailing slash does not matter.
    pub fn new(base: &str, protocol: Protocol) -> Result<Self, EndpointError> {
        let mut url = Url::parse(base.trim()).map_err(|_| {
            let shown: String = base.chars().filter(|c| !c.is_control()).take(100).collect();
            EndpointError::NotAnAddress(shown)
        })?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(EndpointError::Scheme(url.scheme().to_owned()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(EndpointError::Credentials);
        }
        let path = url.path().trim_end_matches('/').to_owned();
        let tail = match protocol {
            // People give this base with and without the version.
            Protocol::AnthropicMessages if path.ends_with("/v1") => "/messages",
            Protocol::AnthropicMessages => "/v1/messages",
            Protocol::OpenAiChat => "/chat/completions",
        };
        if !path.ends_with(tail) {
            url.set_path(&format!("{path}{tail}"));
        }
        url.set_fragment(None);
        Ok(Self { url })
    }

    /// The whole address.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// It is on this machine.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        let host = self.url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[track_caller]
    fn check(protocol: Protocol, base: &str, expect: &str) {
        let shown = match Endpoint::new(base, protocol) {
            Ok(endpoint) => endpoint.url().to_string(),
            Err(err) => err.to_string(),
        };
        assert!(shown.contains(expect), "{shown}");
    }

    #[test]
    fn a_protocol_adds_its_path_once() {
        use Protocol::{AnthropicMessages as A, OpenAiChat as C};
        check(A, "https://a.invalid", "https://a.invalid/v1/messages");
        check(A, "https://a.invalid/v1/", "https://a.invalid/v1/messages");
        check(A, "https://a.invalid/proxy/v1/messages", "https://a.invalid/proxy/v1/messages");
        check(C, "http://127.0.0.1:8080/v1", "http://127.0.0.1:8080/v1/chat/completions");
        check(C, "https://a.invalid/v1?api-version=1#x", "https://a.invalid/v1/chat/completions?api-version=1");
        check(C, "file:///etc/passwd", "not `file:`");
        check(C, "https://me:pw@a.invalid", "must not hold");
        check(C, "no address", "`no address` is not an address");
    }

    #[test]
    fn loopback_is_known_by_name_and_number() {
        for (base, local) in
            [("http://localhost:1", true), ("http://127.0.0.9", true), ("http://[::1]:2", true), ("http://a.b", false)]
        {
            assert_eq!(Endpoint::new(base, Protocol::OpenAiChat).unwrap().is_loopback(), local, "{base}");
        }
    }
}
