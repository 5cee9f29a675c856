//! One webhook: its settings, the signature of its requests, and one attempt to send a request.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use windlass_core::clock::Clock;
use windlass_core::gate::keeps_secret;
use windlass_host::clock::SystemClock;
use windlass_providers::http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use windlass_providers::http::{Http, HttpOptions, Url};
use windlass_providers::public_address;

use super::NotificationKind;
use crate::settings::Settings;
use crate::wire;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Secrets in the form of Standard Webhooks have this prefix before the key in base64.
const SECRET_PREFIX: &str = "whsec_";

/// A webhook of the settings.
#[derive(Debug)]
pub(super) struct Webhook {
    pub(super) name: String,
    url: Url,
    events: Vec<NotificationKind>,
    key: Option<hmac::Key>,
    allow_private: bool,
    http: HttpOptions,
}

/// The reason why a request was not delivered.
#[derive(Debug)]
pub(super) struct SendError {
    pub(super) message: String,
    /// Whether another attempt may succeed.
    pub(super) retry: bool,
}

impl Webhook {
    /// Reads a webhook from the settings. The error contains neither the address nor the secret.
    pub(super) fn of(settings: &Settings, name: &str) -> Result<Self, String> {
        let key = |what: &str| Settings::named("webhooks", name, what);
        let layers = &settings.layers;
        let url = layers.text(&key("url")).ok_or("its `url` is missing")?;
        let url = Url::parse(url.trim()).ok();
        let url =
            url.filter(|url| matches!(url.scheme(), "http" | "https") && url.host_str().is_some());
        let url = url.ok_or("its `url` is not an address like https://example.com/hook")?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(
                "its `url` contains a password; use `secret_env` to sign requests".to_owned(),
            );
        }
        let mut events = Vec::new();
        for event in layers.texts(&key("events")).unwrap_or_default() {
            let known = event.parse().map_err(|_| {
                format!("`{event}` is not a notification; `events` may contain asked, run_finished and landed")
            })?;
            events.push(known);
        }
        if events.is_empty() {
            events = vec![
                NotificationKind::Asked,
                NotificationKind::RunFinished,
                NotificationKind::Landed,
            ];
        }
        let signer = match layers.text(&key("secret_env")) {
            None => None,
            // Commands of agents get all variables except those.
            Some(variable) if !keeps_secret(variable) => {
                return Err(format!(
                    "the name {variable} of the variable with its secret must end in _SECRET or _KEY, so that no command of \
                     an agent gets it"
                ));
            }
            Some(variable) => {
                let secret = settings.environment.text(variable);
                let secret = secret.filter(|secret| !secret.trim().is_empty());
                let secret = secret.ok_or_else(|| format!("the variable {variable} is not set"))?;
                Some(signing_key(secret.trim(), variable)?)
            }
        };
        let http = wire::http_options(settings).map_err(|err| err.message().to_owned())?;
        Ok(Self {
            name: name.to_owned(),
            url,
            events,
            key: signer,
            allow_private: layers.boolean(&key("allow_private")).unwrap_or(false),
            http: HttpOptions {
                connect_timeout: REQUEST_TIMEOUT,
                idle_timeout: REQUEST_TIMEOUT,
                total_timeout: REQUEST_TIMEOUT,
                ..http
            },
        })
    }

    pub(super) fn wants(&self, kind: NotificationKind) -> bool {
        self.events.contains(&kind)
    }

    /// Sends a request once, to an address that is resolved for this attempt and checked.
    pub(super) async fn send(&self, id: &str, body: &[u8]) -> Result<(), SendError> {
        let error = |message: String, retry: bool| SendError { message, retry };
        let address = public_address::resolve(&self.url, self.allow_private)
            .await
            .map_err(|why| {
                let refused = why.contains("private address");
                match refused {
                    true => error(
                        format!(
                            "{why}; set `webhooks.{}.allow_private` to allow it",
                            self.name
                        ),
                        false,
                    ),
                    false => error(why, true),
                }
            })?;
        let host = self.url.host_str().unwrap_or_default().to_owned();
        let options = HttpOptions {
            pinned: Some((host, address)),
            ..self.http.clone()
        };
        let http = Http::new(&options).map_err(|err| error(err.message, false))?;
        let seconds = SystemClock::new().now().as_millis() / 1_000;
        let headers = self
            .headers(id, seconds, body)
            .ok_or_else(|| error("the id is not valid in a header".to_owned(), false))?;
        let response = http
            .send_once(&self.url, headers, Some(body.to_vec().into()))
            .await
            .map_err(|err| error(err.message, true))?;
        let host = response.body.host().to_owned();
        match response.status {
            200..=299 => Ok(()),
            status => Err(error(
                format!("`{host}` answered with HTTP {status}"),
                status >= 500 || matches!(status, 408 | 409 | 425 | 429),
            )),
        }
    }

    fn headers(&self, id: &str, seconds: i64, body: &[u8]) -> Option<HeaderMap> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let mut add = |name: &'static str, value: &str| {
            let value = HeaderValue::from_str(value).ok()?;
            headers.insert(HeaderName::from_static(name), value);
            Some(())
        };
        add("webhook-id", id)?;
        add("webhook-timestamp", &seconds.to_string())?;
        if let Some(key) = &self.key {
            add("webhook-signature", &signature(key, id, seconds, body))?;
        }
        Some(headers)
    }
}

/// The key of a secret: the bytes after `whsec_` in base64, or else the secret itself.
fn signing_key(secret: &str, variable: &str) -> Result<hmac::Key, String> {
    let bytes = match secret.strip_prefix(SECRET_PREFIX) {
        Some(text) => STANDARD.decode(text).map_err(|_| {
            format!("the value of {variable} is not base64 after `{SECRET_PREFIX}`")
        })?,
        None => secret.as_bytes().to_vec(),
    };
    Ok(hmac::Key::new(hmac::HMAC_SHA256, &bytes))
}

/// The signature in the form of Standard Webhooks.
fn signature(key: &hmac::Key, id: &str, seconds: i64, body: &[u8]) -> String {
    let mut context = hmac::Context::with_key(key);
    context.update(format!("{id}.{seconds}.").as_bytes());
    context.update(body);
    format!("v1,{}", STANDARD.encode(context.sign()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_those_of_standard_webhooks() {
        // The example of the specification.
        let key = signing_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "X").unwrap();
        let body = br#"{"test": 2432232314}"#;
        let found = signature(&key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(found, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert!(
            signing_key("whsec_!", "HOOK_SECRET")
                .unwrap_err()
                .contains("HOOK_SECRET")
        );
        assert!(signing_key("plain words", "X").is_ok());
    }
}
