//! How a key travels: which header, and in what form. The key itself arrives as a value and leaves only as a header
//! that is marked sensitive.

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};

/// Where a vendor wants its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Auth {
    /// `Authorization: Bearer …`.
    Bearer,
    /// A header of the vendor's own.
    Header(&'static str),
    /// A signature of each request for this service of AWS; a key that is given travels as a bearer token instead.
    SigV4(&'static str),
}

/// A key that cannot be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the key holds characters that cannot be sent in a header; copy it again, without line ends or quotes"
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
        let shown = format!("{headers:?}");
        assert!(
            !shown.contains("sk-1") && !shown.contains("sk-2"),
            "{shown}"
        );
        assert_eq!(
            Auth::Bearer.apply(&mut headers, &"a\nb".to_owned().into()),
            Err(BadKey)
        );
    }
}
