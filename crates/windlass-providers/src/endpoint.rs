//! The address of a model server: a base URL and the path of a request, both with placeholders for values such as the
//! model's name. This module opens no connection.

use std::collections::BTreeMap;

use reqwest::Url;

use crate::protocol::Protocol;

/// The address of a model server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VendorEndpoint {
    /// Without a trailing slash and without `tail`.
    base: Url,
    /// Path and query of a request; `{model}` stands for the model's name.
    tail: String,
}

/// Reports a base address that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    #[error("`{0}` is not an address of the form https://host/path")]
    NotAnAddress(String),
    #[error("the base URL must begin with http:// or https://, not `{0}:`")]
    Scheme(String),
    #[error("the base URL must not contain a user name or password; set the key separately")]
    Credentials,
    #[error("the address needs a value for `{0}`")]
    MissingValue(String),
}

impl VendorEndpoint {
    /// Creates an endpoint with the usual path of a protocol. A query in the base is kept; a trailing slash is ignored.
    pub fn new(base: &str, protocol: Protocol) -> Result<Self, EndpointError> {
        Self::with_path(base, protocol.path(), &BTreeMap::new())
    }

    /// Creates an endpoint with another path. `{name}` in base and path is replaced by the value of that name, except
    /// `{model}`, which is replaced for each request.
    pub fn with_path(
        base: &str,
        path: &str,
        values: &BTreeMap<String, String>,
    ) -> Result<Self, EndpointError> {
        let base = fill(base.trim(), values)?;
        let tail = fill(path, values)?;
        let mut url = Url::parse(&base).map_err(|_| {
            let printable: String = base.chars().filter(|c| !c.is_control()).take(100).collect();
            EndpointError::NotAnAddress(printable)
        })?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(EndpointError::Scheme(url.scheme().to_owned()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(EndpointError::Credentials);
        }
        let path = url.path().trim_end_matches('/');
        // Users may pass the full address of the requests.
        let path = path
            .strip_suffix(tail.split('?').next().unwrap_or_default())
            .unwrap_or(path)
            .to_owned();
        url.set_path(&path);
        url.set_fragment(None);
        Ok(Self { base: url, tail })
    }

    /// Returns the URL of a request for this model.
    #[must_use]
    pub fn url(&self, model: &str) -> Url {
        self.join(&self.tail.replace("{model}", &escape(model)))
    }

    /// Returns the URL of another path of the same server. If the base ends with the first segment of the path, such as
    /// a version, the segment is not repeated.
    #[must_use]
    pub fn join(&self, tail: &str) -> Url {
        let (path, query) = tail
            .split_once('?')
            .map_or((tail, None), |(path, query)| (path, Some(query)));
        let base = self.base.path().trim_end_matches('/');
        let first = path.split('/').nth(1).unwrap_or_default();
        let base = base
            .strip_suffix(first)
            .filter(|rest| !first.is_empty() && rest.ends_with('/'))
            .unwrap_or(base);
        // Local servers serve the compatible API under a version, and their own API at the root.
        let base = if first == "api" || first == "props" {
            base.strip_suffix("/v1").unwrap_or(base)
        } else {
            base
        };
        let mut url = self.base.clone();
        url.set_path(&format!("{}{path}", base.trim_end_matches('/')));
        if let Some(query) = query {
            let all = url
                .query()
                .map_or_else(|| query.to_owned(), |given| format!("{given}&{query}"));
            url.set_query(Some(&all));
        }
        url
    }

    /// Returns the base address, without the path of a request.
    #[must_use]
    pub fn base(&self) -> &Url {
        &self.base
    }

    /// Returns whether the server runs on this machine.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        let host = self
            .base
            .host_str()
            .unwrap_or_default()
            .trim_matches(['[', ']']);
        host == "localhost"
            || host
                .parse::<std::net::IpAddr>()
                .is_ok_and(|address| address.is_loopback())
    }
}

/// Replaces the placeholders of a template by the escaped values.
fn fill(template: &str, values: &BTreeMap<String, String>) -> Result<String, EndpointError> {
    let mut out = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((name, after)) = after.split_once('}') else {
            break;
        };
        out.push_str(before);
        match values
            .get(name)
            .map(|value| value.trim())
            .filter(|value| !value.is_empty())
        {
            _ if name == "model" => out.push_str("{model}"),
            Some(value) => out.push_str(&escape(value)),
            None => return Err(EndpointError::MissingValue(name.to_owned())),
        }
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

/// Escapes a text so that it is exactly one segment of a path.
fn escape(text: &str) -> String {
    let out = percent_escaped(text, b"@");
    // URL parsers also resolve `%2E` and `%2E%2E` as relative segments, so the percent sign is escaped as well.
    if matches!(out.as_str(), "." | "..") {
        out.replace('.', "%252E")
    } else {
        out
    }
}

/// Percent-escapes all bytes except the unreserved characters and those in `kept`.
pub(crate) fn percent_escaped(text: &str, kept: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || kept.contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[track_caller]
    fn check(protocol: Protocol, base: &str, expect: &str) {
        let url = match VendorEndpoint::new(base, protocol) {
            Ok(endpoint) => endpoint.url("m").to_string(),
            Err(err) => err.to_string(),
        };
        assert!(url.contains(expect), "{url}");
    }

    #[test]
    fn a_protocol_adds_its_path_once() {
        use Protocol::{AnthropicMessages as A, OpenAiChat as C};
        check(A, "https://a.invalid", "https://a.invalid/v1/messages");
        check(A, "https://a.invalid/v1/", "https://a.invalid/v1/messages");
        check(
            A,
            "https://a.invalid/proxy/v1/messages",
            "https://a.invalid/proxy/v1/messages",
        );
        check(
            C,
            "http://127.0.0.1:8080/v1",
            "http://127.0.0.1:8080/v1/chat/completions",
        );
        check(
            C,
            "https://a.invalid/v1?api-version=1#x",
            "https://a.invalid/v1/chat/completions?api-version=1",
        );
        check(C, "file:///etc/passwd", "not `file:`");
        check(C, "https://me:pw@a.invalid", "must not contain");
        check(C, "no address", "`no address` is not an address");
    }

    #[track_caller]
    fn check_path(base: &str, path: &str, model: &str, expect: &str) {
        let values = [
            ("region", "eu-1"),
            ("version", "2024-10-21"),
            ("blank", " "),
        ];
        let values = values
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let url = match VendorEndpoint::with_path(base, path, &values) {
            Ok(endpoint) => endpoint.url(model).to_string(),
            Err(err) => err.to_string(),
        };
        assert_eq!(url, expect);
    }

    #[test]
    fn values_and_the_model_are_filled_in_and_escaped() {
        let path = "/model/{model}/invoke";
        check_path(
            "https://b.{region}.a.invalid",
            path,
            "a.b:0",
            "https://b.eu-1.a.invalid/model/a.b%3A0/invoke",
        );
        check_path(
            "https://a.invalid",
            path,
            "../x?y#z",
            "https://a.invalid/model/..%2Fx%3Fy%23z/invoke",
        );
        check_path(
            "https://a.invalid",
            path,
            "..",
            "https://a.invalid/model/%252E%252E/invoke",
        );
        check_path(
            "https://a.invalid",
            path,
            ".",
            "https://a.invalid/model/%252E/invoke",
        );
        let path = "/deployments/{model}/chat?api-version={version}";
        check_path(
            "https://a.invalid/?k=v",
            path,
            "gpt",
            "https://a.invalid/deployments/gpt/chat?k=v&api-version=2024-10-21",
        );
        check_path(
            "https://{missing}.invalid",
            path,
            "m",
            "the address needs a value for `missing`",
        );
        check_path(
            "https://{blank}.invalid",
            path,
            "m",
            "the address needs a value for `blank`",
        );
        check_path("https://a.invalid", "/{", "m", "https://a.invalid/%7B");
    }

    #[test]
    fn own_paths_of_a_server_are_outside_the_version() {
        let endpoint =
            VendorEndpoint::new("http://localhost:8080/v1/", Protocol::OpenAiChat).unwrap();
        assert_eq!(
            endpoint.join("/props").as_str(),
            "http://localhost:8080/props"
        );
        assert_eq!(
            endpoint.join("/models").as_str(),
            "http://localhost:8080/v1/models"
        );
        assert_eq!(
            endpoint.join("/v1/models").as_str(),
            "http://localhost:8080/v1/models"
        );
        assert_eq!(
            endpoint.join("/api/tags").as_str(),
            "http://localhost:8080/api/tags"
        );
    }

    #[test]
    fn loopback_is_known_by_name_and_number() {
        for (base, local) in [
            ("http://localhost:1", true),
            ("http://127.0.0.9", true),
            ("http://[::1]:2", true),
            ("http://a.b", false),
        ] {
            assert_eq!(
                VendorEndpoint::new(base, Protocol::OpenAiChat)
                    .unwrap()
                    .is_loopback(),
                local,
                "{base}"
            );
        }
    }
}
