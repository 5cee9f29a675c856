//! Telemetry as the settings want it: whether anything is sent, where to, with which headers. Without a word about it no
//! client is made and no connection opened. Nothing in here fails or holds up a run; what goes wrong is one warning.
//!
//! ```
//! use windlass::core::event::Event;
//! use windlass::engine::Session;
//! use windlass::machine::SessionLog;
//! use windlass::settings::Settings;
//! use windlass::telemetry::{Telemetry, resource};
//!
//! async fn send(settings: &Settings, session: &Session, store: &SessionLog, event: &Event) {
//!     let mut telemetry = Telemetry::open(settings, Some("anthropic"), session, store).await;
//!     telemetry.event(event);
//!     telemetry.rest().await;
//! }
//! let dir = tempfile::tempdir()?;
//! assert_eq!(resource(&Settings::none(dir.path()), "s1").service, "windlass");
//! # Ok::<(), std::io::Error>(())
//! ```

pub use windlass_telemetry::{Finished, Meter, Options, Resource, Span, Spans, otlp};

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use windlass_core::BoxFuture;
use windlass_core::event::Event;
use windlass_core::store::SessionStore;
use windlass_engine::Session;
use windlass_host::config::Layers;
use windlass_providers::http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use windlass_providers::http::{Http, HttpOptions, Url};
use windlass_telemetry::{Exporter, Post, Signal};

use crate::notices::Notices;
use crate::settings::Settings;
use crate::wire;

/// Where a collector listens when nobody says otherwise.
const USUAL: &str = "http://localhost:4318";
/// The longest that the end of a run waits for a collector.
const AT_THE_END: Duration = Duration::from_secs(2);
/// The longest that one request takes.
const REQUEST: Duration = Duration::from_secs(10);
/// What is read of an answer.
const MAX_ANSWER: usize = 4 << 10;

/// What watches runs and tells a collector of them; nothing by default.
pub struct Telemetry(Option<Box<On>>);

struct On {
    spans: Spans,
    exporter: Exporter,
    notices: Notices,
}

impl Telemetry {
    /// As the settings say. What the session did before is folded and not sent again, so that a run that goes on is
    /// told as one.
    pub async fn open(
        settings: &Settings,
        provider: Option<&str>,
        session: &Session,
        store: &dyn SessionStore,
    ) -> Self {
        let variable = |name: &str| settings.environment.text(name);
        let post = match Target::of(&settings.layers, variable) {
            Ok(None) => return Self(None),
            Ok(Some(target)) => Collector::new(settings, target),
            Err(why) => Err(why),
        };
        let post = match post {
            Ok(post) => post,
            Err(why) => {
                settings
                    .notices
                    .warn(&format!("no telemetry is sent: {why}"));
                return Self(None);
            }
        };
        let options = Options {
            content: settings.layers.boolean("otel.content").unwrap_or(false),
            provider: provider.map(str::to_owned),
        };
        let exporter = Exporter::start(Arc::new(post), resource(settings, session.id().as_str()));
        let mut on = Box::new(On {
            spans: Spans::new(options),
            exporter,
            notices: settings.notices.clone(),
        });
        let mut events = store.read(session.id(), 1);
        // A log that cannot be read is somebody else's to report.
        while let Some(Ok(event)) = events.next().await {
            let finished = on.spans.apply(&event);
            if event
                .order
                .seq()
                .is_some_and(|seq| seq >= session.first_seq())
            {
                on.exporter.give(finished);
            }
        }
        Self(Some(on))
    }

    /// Folds one more event.
    pub fn event(&mut self, event: &Event) {
        if let Some(on) = &mut self.0 {
            on.exporter.give(on.spans.apply(event));
        }
    }

    /// A run is over: what there is of it is sent.
    pub async fn rest(&self) {
        if let Some(on) = &self.0
            && let Some(why) = on.exporter.flush(AT_THE_END).await
        {
            on.notices
                .warn(&format!("telemetry: {why}; the run is not touched by it"));
        }
    }
}

/// Who tells.
pub fn resource(settings: &Settings, session: &str) -> Resource {
    Resource {
        service: settings
            .layers
            .text("otel.service_name")
            .unwrap_or("windlass")
            .to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        instance: session.to_owned(),
    }
}

/// Where to, and with what.
#[derive(Debug)]
struct Target {
    endpoint: Url,
    headers: HeaderMap,
}

impl Target {
    /// `otel.endpoint` turns it on, and so does `otel.enabled`, which then also takes the usual variables; the variables
    /// alone do not, because they are often set for other programs.
    fn of(
        layers: &Layers<'_>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, String> {
        let own = layers.text("otel.endpoint");
        match layers.boolean("otel.enabled") {
            Some(false) => return Ok(None),
            None if own.is_none() => return Ok(None),
            _ => {}
        }
        let mut headers = HeaderMap::new();
        let filled = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let usual = filled("OTEL_EXPORTER_OTLP_ENDPOINT").filter(|_| own.is_none());
        let (name, address) = match (own, &usual) {
            (Some(own), _) => ("otel.endpoint", own),
            (None, Some(usual)) => ("OTEL_EXPORTER_OTLP_ENDPOINT", usual.as_str()),
            (None, None) => ("otel.endpoint", USUAL),
        };
        // The address may hold a password, so it is not echoed.
        let bad = || format!("`{name}` is not an address like {USUAL}");
        let endpoint = Url::parse(address.trim()).map_err(|_| bad())?;
        if !matches!(endpoint.scheme(), "http" | "https") || endpoint.host_str().is_none() {
            return Err(bad());
        }
        // Headers of the environment go where the environment says, and nowhere else.
        if usual.is_some()
            && let Some(list) = filled("OTEL_EXPORTER_OTLP_HEADERS")
        {
            for pair in list.split(',').filter(|pair| !pair.trim().is_empty()) {
                let (name, value) = pair
                    .split_once('=')
                    .ok_or("OTEL_EXPORTER_OTLP_HEADERS is not `name=value,…`")?;
                add(
                    &mut headers,
                    name,
                    &decoded(value),
                    "OTEL_EXPORTER_OTLP_HEADERS",
                )?;
            }
        }
        for pair in layers.texts("otel.headers").unwrap_or_default() {
            let (name, source) = pair.split_once('=').ok_or(
                "`otel.headers` is a list of `header=VARIABLE`: the value stands in the variable",
            )?;
            let value = filled(source.trim());
            let value = value.ok_or_else(|| {
                format!("`otel.headers`: the variable {} is not set", source.trim())
            })?;
            add(&mut headers, name, &value, "otel.headers")?;
        }
        Ok(Some(Self { endpoint, headers }))
    }

    fn address(&self, signal: Signal) -> Url {
        let mut url = self.endpoint.clone();
        let path = format!("{}/{}", url.path().trim_end_matches('/'), signal.path());
        url.set_path(&path);
        url
    }
}

/// The value is a secret: an error names the header alone.
fn add(headers: &mut HeaderMap, name: &str, value: &str, place: &str) -> Result<(), String> {
    let bad = |what: &str| format!("`{place}`: {what}");
    let name = HeaderName::from_bytes(name.trim().as_bytes())
        .map_err(|_| bad("a name is not one of a header"))?;
    let value = HeaderValue::from_str(value.trim());
    let mut value =
        value.map_err(|_| bad(&format!("the value for {name} cannot stand in a header")))?;
    value.set_sensitive(true);
    headers.insert(name, value);
    Ok(())
}

/// `%20` and the like, as they stand in the usual variable.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        let hex = more
            .get(..2)
            .filter(|_| *first == b'%')
            .and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &more[2..];
            }
            None => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A collector at an address.
struct Collector {
    http: Http,
    target: Target,
}

impl Collector {
    fn new(settings: &Settings, target: Target) -> Result<Self, String> {
        let options = HttpOptions {
            connect_timeout: REQUEST,
            idle_timeout: REQUEST,
            total_timeout: REQUEST,
            ..wire::http_options(settings).map_err(|error| error.message().to_owned())?
        };
        let http = Http::new(&options).map_err(|err| err.to_string())?;
        Ok(Self { http, target })
    }
}

impl Post for Collector {
    fn post<'a>(&'a self, signal: Signal, body: Vec<u8>) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let mut headers = self.target.headers.clone();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            let url = self.target.address(signal);
            let answer = self
                .http
                .send(&url, headers, Some(body.into()))
                .await
                .map_err(|err| err.to_string())?;
            let (status, host) = (answer.status, answer.body.host().to_owned());
            let said = answer.body.read_up_to(MAX_ANSWER).await;
            match status {
                200..=299 => match otlp::rejected(&said) {
                    Some(why) => Err(format!("`{host}` did not take all of it: {why}")),
                    None => Ok(()),
                },
                // Some take traces alone.
                404 if signal == Signal::Metrics => Ok(()),
                status => Err(format!(
                    "`{host}` answered with HTTP {status} on /{}",
                    signal.path()
                )),
            }
        })
    }
}

#[cfg(test)]
#[path = "telemetry_tests.rs"]
mod tests;
