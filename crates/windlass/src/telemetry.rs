//! Sends traces and metrics of runs to an OpenTelemetry collector, if the settings enable it. By default, no client is
//! made and no connection is opened. Telemetry never fails or delays a run; an error becomes one warning.
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
//!     telemetry.flush().await;
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

/// The standard address of a collector.
const DEFAULT_ENDPOINT: &str = "http://localhost:4318";
/// Longest wait for the collector at the end of a run.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes that are read of a response.
const MAX_RESPONSE: usize = 4 << 10;

/// Turns events into spans and metrics and sends them to a collector. Does nothing if telemetry is disabled.
pub struct Telemetry(Option<Box<ActiveTelemetry>>);

struct ActiveTelemetry {
    spans: Spans,
    exporter: Exporter,
    notices: Notices,
}

impl Telemetry {
    /// Starts telemetry if the settings enable it. Earlier events of the session are folded and not sent again, so that a
    /// resumed run appears as one run.
    pub async fn open(
        settings: &Settings,
        provider: Option<&str>,
        session: &Session,
        store: &dyn SessionStore,
    ) -> Self {
        let variable = |name: &str| settings.environment.text(name);
        let post = match CollectorTarget::of(&settings.layers, variable) {
            Ok(None) => return Self(None),
            Ok(Some(target)) => Collector::new(settings, target),
            Err(why) => Err(why),
        };
        let post = match post {
            Ok(post) => post,
            Err(why) => {
                settings
                    .notices
                    .warn(&format!("telemetry is disabled: {why}"));
                return Self(None);
            }
        };
        let options = Options {
            content: settings.layers.boolean("otel.content").unwrap_or(false),
            provider: provider.map(str::to_owned),
        };
        let exporter = Exporter::start(Arc::new(post), resource(settings, session.id().as_str()));
        let mut on = Box::new(ActiveTelemetry {
            spans: Spans::new(options),
            exporter,
            notices: settings.notices.clone(),
        });
        let mut events = store.read(session.id(), 1);
        // The engine reports an unreadable log, so an error here is ignored.
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

    /// Adds the next event of the session.
    pub fn event(&mut self, event: &Event) {
        if let Some(on) = &mut self.0 {
            on.exporter.give(on.spans.apply(event));
        }
    }

    /// Sends the pending spans and metrics. Call it when a run has ended.
    pub async fn flush(&self) {
        if let Some(on) = &self.0
            && let Some(why) = on.exporter.flush(FLUSH_TIMEOUT).await
        {
            on.notices
                .warn(&format!("telemetry: {why}; the run is not affected"));
        }
    }
}

/// The OpenTelemetry resource: service, version and instance.
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

/// The address and headers of a collector.
#[derive(Debug)]
struct CollectorTarget {
    endpoint: Url,
    headers: HeaderMap,
}

impl CollectorTarget {
    /// The collector from the settings; `None` if telemetry is disabled. Both `otel.endpoint` and `otel.enabled` enable
    /// it, and `otel.enabled` without an endpoint uses the standard variables. The variables alone do not enable it,
    /// because they are often set for other programs.
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
            (None, None) => ("otel.endpoint", DEFAULT_ENDPOINT),
        };
        // The address may contain a password, so the message does not repeat it.
        let bad = || format!("`{name}` is not an address like {DEFAULT_ENDPOINT}");
        let endpoint = Url::parse(address.trim()).map_err(|_| bad())?;
        if !matches!(endpoint.scheme(), "http" | "https") || endpoint.host_str().is_none() {
            return Err(bad());
        }
        // Headers from the environment may contain a token for the endpoint from the environment, so they are not sent to
        // any other endpoint.
        if usual.is_some()
            && let Some(list) = filled("OTEL_EXPORTER_OTLP_HEADERS")
        {
            for pair in list.split(',').filter(|pair| !pair.trim().is_empty()) {
                let (name, value) = pair
                    .split_once('=')
                    .ok_or("OTEL_EXPORTER_OTLP_HEADERS is not `name=value,…`")?;
                add_header(
                    &mut headers,
                    name,
                    &decoded(value),
                    "OTEL_EXPORTER_OTLP_HEADERS",
                )?;
            }
        }
        for pair in layers.texts("otel.headers").unwrap_or_default() {
            let (name, source) = pair.split_once('=').ok_or(
                "`otel.headers` must be a list of `header=VARIABLE`; the value is read from the variable",
            )?;
            let value = filled(source.trim());
            let value = value.ok_or_else(|| {
                format!("`otel.headers`: the variable {} is not set", source.trim())
            })?;
            add_header(&mut headers, name, &value, "otel.headers")?;
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

/// Adds a header. The value is a secret, so errors contain only the name of the header.
fn add_header(headers: &mut HeaderMap, name: &str, value: &str, place: &str) -> Result<(), String> {
    let bad = |what: &str| format!("`{place}`: {what}");
    let name = HeaderName::from_bytes(name.trim().as_bytes())
        .map_err(|_| bad("it contains an invalid header name"))?;
    let value = HeaderValue::from_str(value.trim());
    let mut value =
        value.map_err(|_| bad(&format!("the value for {name} is not valid in a header")))?;
    value.set_sensitive(true);
    headers.insert(name, value);
    Ok(())
}

/// Decodes percent escapes such as `%20`, which the standard variable may contain.
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

/// A collector that receives data over HTTP.
struct Collector {
    http: Http,
    target: CollectorTarget,
}

impl Collector {
    fn new(settings: &Settings, target: CollectorTarget) -> Result<Self, String> {
        let options = HttpOptions {
            connect_timeout: REQUEST_TIMEOUT,
            idle_timeout: REQUEST_TIMEOUT,
            total_timeout: REQUEST_TIMEOUT,
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
            let response = self
                .http
                .send(&url, headers, Some(body.into()))
                .await
                .map_err(|err| err.to_string())?;
            let (status, host) = (response.status, response.body.host().to_owned());
            let body = response.body.read_up_to(MAX_RESPONSE).await;
            match status {
                200..=299 => match otlp::rejected(&body) {
                    Some(why) => Err(format!("`{host}` rejected a part of the data: {why}")),
                    None => Ok(()),
                },
                // Some collectors accept only traces.
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
