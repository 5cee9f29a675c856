//! Puts a vendor's key into the right header. The header is marked sensitive, so that debug output omits its value.

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};

/// The header in which a vendor expects its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Auth {
    /// Sends `Authorization: Bearer KEY`.
    Bearer,
    /// Sends the key as the value of this header.
    Header(&'static str),
    /// Signs each request for this AWS service. If a key is given, it is sent as a bearer token instead.
    SigV4(&'static str),
}

/// The key cannot be a header value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the key contains characters that cannot be sent in a header; copy it again, without line breaks or quotes"
)]
pub struct BadKey;

impl Auth {
    /// Adds the key to the headers.
    pub fn apply(self, headers: &mut HeaderMap, key: &SecretString) -> Result<(), BadKey> {
        let key = key.expose_secret().trim();
        let (name, value) = match self {
            Self::Bearer | Self::SigV4(_) => (AUTHORIZATION, format!("Bearer {key}")),
            Self::Header(name) => (HeaderName::from_static(name), key.to_owned()),
        };
        let mut value = HeaderValue::from_str(&value).map_err(|_| BadKey)?;
        value.set_sensitive(true);
        headers.insert(name, value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn keys_go_into_their_header_and_not_into_debug_output() {
        let mut headers = HeaderMap::new();
        Auth::Bearer
            .apply(&mut headers, &" sk-1 \n".to_owned().into())
            .unwrap();
        Auth::Header("x-api-key")
            .apply(&mut headers, &"sk-2".to_owned().into())
            .unwrap();
        assert_eq!(headers["authorization"], "Bearer sk-1");
        assert_eq!(headers["x-api-key"], "sk-2");
        let debug = format!("{headers:?}");
        assert!(
            !debug.contains("sk-1") && !debug.contains("sk-2"),
            "{debug}"
        );
        assert_eq!(
            Auth::Bearer.apply(&mut headers, &"a\nb".to_owned().into()),
            Err(BadKey)
        );
    }
}
