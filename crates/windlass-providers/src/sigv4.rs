//! AWS request signatures (version 4). They cover method, address, headers and body, with a key derived from the secret
//! key, the date, the region and the service. Pure: keys and time are arguments.

use std::fmt::Write;
use std::time::SystemTime;

use reqwest::Url;
use ring::{digest, hmac};
use secrecy::{ExposeSecret, SecretString};

use crate::endpoint::percent_escaped;

/// Long-term or temporary keys of an AWS account.
#[derive(Debug, Clone)]
pub struct AwsKeys {
    /// The public key id.
    pub access_key: String,
    pub secret_key: SecretString,
    /// Present with temporary keys.
    pub session_token: Option<SecretString>,
}

/// The parts of a request that a signature covers.
#[derive(Debug, Clone, Copy)]
pub struct SignedParts<'a> {
    /// `POST` or `GET`, in upper case.
    pub method: &'a str,
    pub url: &'a Url,
    /// Further headers, with lower-case names.
    pub headers: &'a [(&'a str, &'a str)],
    pub body: &'a [u8],
}

/// Signs a request. Returns the names and values of the headers to add to it.
pub fn sign(
    request: SignedParts<'_>,
    keys: &AwsKeys,
    region: &str,
    service: &str,
    now: SystemTime,
) -> Vec<(&'static str, String)> {
    let stamp = stamp(now);
    let day = &stamp[..8];
    let token = keys
        .session_token
        .as_ref()
        .map(|token| token.expose_secret().trim().to_owned());

    let host = match request.url.port() {
        Some(port) => format!("{}:{port}", request.url.host_str().unwrap_or_default()),
        None => request.url.host_str().unwrap_or_default().to_owned(),
    };
    let mut headers = request.headers.to_vec();
    headers.extend([("host", host.as_str()), ("x-amz-date", stamp.as_str())]);
    headers.extend(
        token
            .as_deref()
            .map(|token| ("x-amz-security-token", token)),
    );
    headers.sort_unstable();
    let names = headers
        .iter()
        .map(|(name, _)| *name)
        .collect::<Vec<_>>()
        .join(";");

    let mut canonical = format!(
        "{}\n{}\n{}\n",
        request.method,
        // The path is escaped a second time, as AWS requires for all services except S3.
        percent_escaped(request.url.path(), b"/"),
        canonical_query(request.url)
    );
    for (name, value) in &headers {
        // Writing to a `String` cannot fail.
        let _ = writeln!(
            canonical,
            "{name}:{}",
            value.split_whitespace().collect::<Vec<_>>().join(" ")
        );
    }
    let _ = write!(
        canonical,
        "\n{names}\n{}",
        hex(digest::digest(&digest::SHA256, request.body).as_ref())
    );

    let scope = format!("{day}/{region}/{service}/aws4_request");
    let hashed = hex(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref());
    let text = format!("AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashed}");
    let seed = format!("AWS4{}", keys.secret_key.expose_secret().trim());
    let key = [day, region, service, "aws4_request"]
        .iter()
        .fold(seed.into_bytes(), |key, part| mac(&key, part.as_bytes()));
    let signature = hex(&mac(&key, text.as_bytes()));
    let authorization = format!(
        "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={signature}",
        keys.access_key.trim()
    );
    let mut all = vec![("authorization", authorization), ("x-amz-date", stamp)];
    all.extend(token.map(|token| ("x-amz-security-token", token)));
    all
}

/// Formats a time like `20150830T123600Z`.
fn stamp(now: SystemTime) -> String {
    let time = jiff::Timestamp::try_from(now).unwrap_or_default();
    time.strftime("%Y%m%dT%H%M%SZ").to_string()
}

fn mac(key: &[u8], text: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text)
        .as_ref()
        .to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
            let _ = write!(out, "{byte:02x}");
            out
        })
}

/// Returns the query parameters, escaped and sorted by name and value.
fn canonical_query(url: &Url) -> String {
    let mut pairs: Vec<_> = url
        .query_pairs()
        .map(|(name, value)| {
            [name, value]
                .map(|text| percent_escaped(&text, b""))
                .join("=")
        })
        .collect();
    pairs.sort_unstable();
    pairs.join("&")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Duration;

    /// Signs with the keys, time, region and service of AWS's published test suite.
    fn signature(
        method: &str,
        url: &str,
        headers: &[(&str, &str)],
        body: &str,
        token: Option<&str>,
    ) -> String {
        let keys = AwsKeys {
            access_key: "AKIDEXAMPLE".into(),
            secret_key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned().into(),
            session_token: token.map(|token| token.to_owned().into()),
        };
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_440_938_160);
        let url = Url::parse(url).unwrap();
        let request = SignedParts {
            method,
            url: &url,
            headers,
            body: body.as_bytes(),
        };
        let all = sign(request, &keys, "us-east-1", "service", now);
        assert_eq!(all[1], ("x-amz-date", "20150830T123600Z".to_owned()));
        assert!(!format!("{keys:?} {all:?}").contains("wJalr"));
        all[0].1.clone()
    }

    #[track_caller]
    fn check(method: &str, url: &str, headers: &[(&str, &str)], body: &str, expect: &str) {
        let signed = signature(method, url, headers, body, None);
        assert!(signed.ends_with(&format!("Signature={expect}")), "{signed}");
    }

    #[test]
    fn the_published_examples_are_signed_as_published() {
        let get = "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31";
        check("GET", "https://example.amazonaws.com/", &[], "", get);
        let query = "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500";
        check(
            "GET",
            "https://example.amazonaws.com/?Param2=value2&Param1=value1",
            &[],
            "",
            query,
        );
        let post = "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b";
        check("POST", "https://example.amazonaws.com/", &[], "", post);
        let form = "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a";
        let headers = [("content-type", "application/x-www-form-urlencoded")];
        check(
            "POST",
            "https://example.amazonaws.com/",
            &headers,
            "Param1=value1",
            form,
        );
    }

    #[test]
    fn the_signature_covers_the_scope_the_token_and_the_port() {
        let signed = signature(
            "POST",
            "http://127.0.0.1:8080/model/a%3A0/x",
            &[],
            "{}",
            Some("session"),
        );
        assert!(
            signed.contains("Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request"),
            "{signed}"
        );
        assert!(
            signed.contains("SignedHeaders=host;x-amz-date;x-amz-security-token,"),
            "{signed}"
        );
        assert_ne!(
            signed,
            signature(
                "POST",
                "http://127.0.0.1:8081/model/a%3A0/x",
                &[],
                "{}",
                Some("session")
            )
        );
        assert_eq!(percent_escaped("/model/a%3A0/x", b"/"), "/model/a%253A0/x");
    }
}
