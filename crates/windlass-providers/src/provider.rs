//! Implements the core's provider trait for a vendor: encodes the request, sends it, and decodes the answer.
//! Consecutive pieces of a text that arrive together become one chunk. It never retries, and it passes on every chunk
//! as soon as it arrives.

mod model_info;
mod relay;

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::Stream;
use reqwest::Url;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use tokio::time::Sleep;
use windlass_core::budget::Price;
use windlass_core::message::Part;
use windlass_core::provider::{Chunk, ModelFacts, Provider, ProviderError, Request};
use windlass_core::{BoxFuture, BoxStream};

use self::model_info::ProbedModel;
pub use self::relay::RelayedRequest;
use crate::auth::{Auth, BadKey};
use crate::cassette::{self, ExchangeLabel};
use crate::endpoint::{EndpointError, VendorEndpoint};
use crate::errors;
use crate::framing::{Framer, Framing};
use crate::http::{Http, HttpBody, HttpError, HttpResponse};
use crate::models;
use crate::protocol::{Batch, Decoder, Protocol};
use crate::sigv4::{self, AwsKeys, SignedParts};
use crate::vendors::Vendor;

/// The settings of a provider, in addition to its vendor.
#[derive(Debug, Clone)]
pub struct ProviderOptions {
    /// Replaces the vendor's own address.
    pub base_url: Option<String>,
    /// A local server may need none.
    pub key: Option<SecretString>,
    /// Keys for signing requests, for a vendor that accepts signatures instead of a key.
    pub aws: Option<AwsKeys>,
    /// The context window in tokens, for servers with a configurable window.
    pub context_window: Option<u64>,
    /// Values for the placeholders in the vendor's address ([`Vendor::settings`]), by name.
    pub settings: BTreeMap<String, String>,
    /// The clock, for dates in answers and for signatures.
    pub now: fn() -> SystemTime,
    /// The HTTP client, shared between providers.
    pub http: Http,
}

impl ProviderOptions {
    /// Creates options with the vendor's own address and no key.
    #[must_use]
    pub fn new(http: Http) -> Self {
        Self {
            base_url: None,
            key: None,
            aws: None,
            context_window: None,
            settings: BTreeMap::new(),
            now: SystemTime::now,
            http,
        }
    }
}

/// The reason why a provider cannot be created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    #[error("no key for `{vendor}`: set {env}")]
    MissingKey {
        vendor: &'static str,
        /// The environment variable for the key.
        env: &'static str,
    },
    #[error("`{vendor}` needs a base URL")]
    MissingUrl { vendor: &'static str },
    #[error("`{vendor}` needs a {name}: set {env}")]
    MissingSetting {
        vendor: &'static str,
        name: &'static str,
        /// The environment variable for the value.
        env: &'static str,
    },
    #[error(transparent)]
    Url(#[from] EndpointError),
    #[error(transparent)]
    Key(#[from] BadKey),
    #[error(transparent)]
    Http(#[from] HttpError),
}

/// A provider that sends requests to a model server over HTTP.
pub struct WireProvider {
    vendor: Vendor,
    endpoint: VendorEndpoint,
    headers: HeaderMap,
    key: Option<SecretString>,
    /// The signing keys, the region and the service.
    signer: Option<(AwsKeys, String, &'static str)>,
    /// The window from the user's settings.
    context_window: Option<u64>,
    /// The facts that the server reported, by model.
    probed: Mutex<BTreeMap<String, ProbedModel>>,
    now: fn() -> SystemTime,
    http: Http,
}

impl std::fmt::Debug for WireProvider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WireProvider")
            .field("vendor", &self.vendor.id)
            .field("url", &self.endpoint.base().as_str())
            .finish_non_exhaustive()
    }
}

impl WireProvider {
    /// Creates a provider. Opens no connection.
    pub fn new(vendor: Vendor, options: ProviderOptions) -> Result<Self, SetupError> {
        let base = options.base_url.as_deref().or(vendor.base_url);
        let base = base.ok_or(SetupError::MissingUrl { vendor: vendor.id })?;
        let mut values = options.settings;
        for setting in vendor.settings {
            if let (None, Some(default)) = (values.get(setting.name), setting.default) {
                values.insert(setting.name.to_owned(), default.to_owned());
            }
        }
        let path = vendor.path.unwrap_or_else(|| vendor.protocol.path());
        let endpoint = VendorEndpoint::with_path(base, path, &values)
            .map_err(|err| missing_value(&vendor, err))?;
        let key = options
            .key
            .filter(|key| !key.expose_secret().trim().is_empty());
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(
            ACCEPT,
            HeaderValue::from_static(vendor.protocol.framing().media_type()),
        );
        if vendor.protocol == Protocol::AnthropicMessages {
            headers.insert(
                HeaderName::from_static("anthropic-version"),
                HeaderValue::from_static("2023-06-01"),
            );
        }
        let signer = match (vendor.auth, options.aws) {
            (Auth::SigV4(service), Some(keys)) if key.is_none() => Some((
                keys,
                values.get("region").cloned().unwrap_or_default(),
                service,
            )),
            _ => None,
        };
        match (&key, vendor.key_env) {
            (Some(key), _) => vendor.auth.apply(&mut headers, key)?,
            (None, _) if signer.is_some() => {}
            // A server on this machine may be the user's gateway, which needs no key. If it needs one, it answers with
            // an error.
            (None, Some(env)) if !endpoint.is_loopback() => {
                return Err(SetupError::MissingKey {
                    vendor: vendor.id,
                    env,
                });
            }
            (None, _) => {}
        }
        let http = options.http.labelled(ExchangeLabel {
            provider: vendor.id,
            protocol: cassette::protocol_name(vendor.protocol),
            framing: cassette::framing_name(vendor.protocol.framing()),
            key: key.clone(),
        });
        let (context_window, probed) = (options.context_window, Mutex::default());
        Ok(Self {
            vendor,
            endpoint,
            headers,
            key,
            signer,
            context_window,
            probed,
            now: options.now,
            http,
        })
    }

    /// Returns the address of requests.
    #[must_use]
    pub fn endpoint(&self) -> &VendorEndpoint {
        &self.endpoint
    }

    /// Sends a request. Returns the body of the answer and the number of bytes of text that were sent.
    async fn open(&self, request: Request<'_>) -> Result<(HttpBody, usize), ProviderError> {
        let mut quirks = self.vendor.quirks;
        let probed = if self.vendor.probe.truncates() {
            Some(self.probe_once(request.model).await?)
        } else {
            None
        };
        quirks.window = probed
            .as_ref()
            .and_then(|probed| probed.facts.context_window);
        let body = Bytes::from(self.vendor.protocol.encode(&request, &quirks));
        let text = text_bytes(&request, body.len());
        if let (Some(probed), Some(window)) = (probed, quirks.window) {
            let (needed, least) = (
                probed.estimator.tokens(text),
                request.max_output.min(MIN_ANSWER),
            );
            if needed.saturating_add(least) > window {
                return Err(errors::does_not_fit(
                    self.vendor.id,
                    request.model,
                    needed,
                    window,
                ));
            }
        }
        let url = self.endpoint.url(request.model);
        let headers = self.signed("POST", &url, &body)?;
        let response = self.http.send(&url, headers, Some(body)).await?;
        Ok((
            check_response(response, self.vendor.protocol.framing(), (self.now)()).await?,
            text,
        ))
    }

    /// Returns the headers of a request, with a signature if the vendor needs one.
    fn signed(&self, method: &str, url: &Url, body: &[u8]) -> Result<HeaderMap, ProviderError> {
        let mut headers = self.headers.clone();
        if let Some((keys, region, service)) = &self.signer {
            let request = SignedParts {
                method,
                url,
                headers: &[("content-type", "application/json")],
                body,
            };
            for (name, value) in sigv4::sign(request, keys, region, service, (self.now)()) {
                let mut value =
                    HeaderValue::from_str(&value).map_err(|_| errors::unusable_key(&BadKey))?;
                value.set_sensitive(true);
                headers.insert(HeaderName::from_static(name), value);
            }
        }
        Ok(headers)
    }

    /// Iterates over all secrets that authenticate requests.
    fn secrets(&self) -> impl Iterator<Item = &str> {
        let signer = self.signer.as_ref();
        let secret = signer.map(|(keys, ..)| &keys.secret_key);
        let token = signer.and_then(|(keys, ..)| keys.session_token.as_ref());
        [self.key.as_ref(), secret, token]
            .into_iter()
            .flatten()
            .map(|secret| secret.expose_secret().trim())
    }

    fn hide_key(&self, err: ProviderError) -> ProviderError {
        self.secrets().fold(err, errors::hide)
    }
}

/// Maps a missing value to an error that names the environment variable, if the vendor has one for it.
fn missing_value(vendor: &Vendor, err: EndpointError) -> SetupError {
    let setting = vendor
        .settings
        .iter()
        .find(|setting| err == EndpointError::MissingValue(setting.name.to_owned()));
    match setting {
        Some(setting) => SetupError::MissingSetting {
            vendor: vendor.id,
            name: setting.name,
            env: setting.env,
        },
        None => SetupError::Url(err),
    }
}

impl Provider for WireProvider {
    fn name(&self) -> &str {
        self.vendor.id
    }

    fn facts(&self, model: &str) -> ModelFacts {
        if let Some(probed) = self.probed.lock().get(model) {
            return probed.facts.clone();
        }
        let compatible = self.vendor.base_url.is_none();
        if self.vendor.local || (compatible && self.endpoint.is_loopback()) {
            return ModelFacts {
                price: Some(Price::FREE),
                ..ModelFacts::default()
            };
        }
        models::lookup(self.vendor.id, model).unwrap_or_default()
    }

    fn probe<'a>(&'a self, model: &'a str) -> BoxFuture<'a, Result<ModelFacts, ProviderError>> {
        Box::pin(async move { Ok(self.probe_once(model).await?.facts) })
    }

    fn stream<'a>(&'a self, request: Request<'a>) -> BoxStream<'a, Result<Chunk, ProviderError>> {
        let mut batch = Batch::default();
        for warning in self.vendor.protocol.unsupported(&request) {
            batch.push(Chunk::Unknown(warning));
        }
        Box::pin(AnswerStream {
            provider: self,
            model: request.model,
            sent: 0,
            state: AnswerState::Opening(Box::pin(self.open(request))),
            decoder: self.vendor.protocol.decoder(&self.vendor.quirks),
            batch,
            failed: None,
        })
    }
}

/// The tokens that a request must leave for the answer.
const MIN_ANSWER: u64 = 256;

/// Returns the size of a body for the token estimate. Vendors count images by their dimensions; an eighth of the
/// encoded size is a safe upper bound.
fn text_bytes(request: &Request<'_>, body: usize) -> usize {
    let images: usize = request
        .history
        .iter()
        .flat_map(|entry| &entry.parts)
        .map(|part| match part {
            Part::Image { data, .. } => data.len(),
            _ => 0,
        })
        .sum();
    body.saturating_sub(images) + images / 8
}

/// The maximum size of an error response, in bytes.
const MAX_ERROR_BODY: usize = 64 << 10;

/// Returns the body of an event stream, or an error for an error status or another kind of document.
async fn check_response(
    response: HttpResponse,
    framing: Framing,
    now: SystemTime,
) -> Result<HttpBody, ProviderError> {
    let HttpResponse {
        status,
        headers,
        body,
    } = response;
    if !(200..300).contains(&status) {
        let text = body.read_up_to(MAX_ERROR_BODY).await;
        return Err(errors::from_status(status, &headers, &text, now));
    }
    let content_type = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let lower = content_type.to_ascii_lowercase();
    let is_json = lower.contains("json") && framing != Framing::JsonLines;
    if !lower.contains("html") && !is_json {
        return Ok(body); // some servers send a wrong type; the decoder detects other content
    }
    let text = body.read_up_to(MAX_ERROR_BODY).await;
    Err(errors::in_body(&text).unwrap_or_else(|| errors::not_a_stream(status, content_type, &text)))
}

/// Queued text is passed on when it reaches this size, in bytes.
const MAX_QUEUED: usize = 32 << 10;
/// Pieces of the body per poll, so that other tasks can run.
const PIECES_PER_POLL: usize = 512;
/// The wait for the end of the body after the end of the answer. Only a connection that was read to its end is reused.
const LINGER: Duration = Duration::from_millis(250);

/// The stream of chunks of one answer.
struct AnswerStream<'a> {
    provider: &'a WireProvider,
    model: &'a str,
    /// The bytes of text that were sent.
    sent: usize,
    state: AnswerState<'a>,
    decoder: Decoder,
    batch: Batch,
    /// The error that ends the stream after the queued chunks.
    failed: Option<ProviderError>,
}

enum AnswerState<'a> {
    Opening(BoxFuture<'a, Result<(HttpBody, usize), ProviderError>>),
    Reading(Box<BodyReader>),
    Over,
}

struct BodyReader {
    body: HttpBody,
    framer: Framer,
    /// The first bytes, kept until the first event. If there is no event, the error message quotes them.
    start: Vec<u8>,
    has_event: bool,
    linger: Option<Pin<Box<Sleep>>>,
}

impl Stream for AnswerStream<'_> {
    type Item = Result<Chunk, ProviderError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            // The end chunk waits for the end of the body, so that the next request can reuse the connection.
            let hold = this.batch.len() == 1
                && this.decoder.ended()
                && matches!(this.state, AnswerState::Reading(_));
            if !hold && let Some(chunk) = this.batch.pop() {
                if let Chunk::Usage(usage) = &chunk {
                    this.provider
                        .learn(this.model, this.sent, usage.total_input());
                }
                return Poll::Ready(Some(Ok(chunk)));
            }
            match &mut this.state {
                AnswerState::Opening(opening) => match ready!(opening.as_mut().poll(cx)) {
                    Ok((body, sent)) => {
                        this.sent = sent;
                        let framing = this.provider.vendor.protocol.framing();
                        this.state = AnswerState::Reading(Box::new(BodyReader::new(body, framing)));
                    }
                    Err(err) => this.end(Some(err)),
                },
                AnswerState::Reading(reading) => {
                    match reading.read(cx, &mut this.decoder, &mut this.batch) {
                        Poll::Ready(Ok(true)) => {}
                        Poll::Ready(Ok(false)) => this.end(None),
                        Poll::Ready(Err(err)) => this.end(Some(err)),
                        Poll::Pending if this.batch.len() > usize::from(this.decoder.ended()) => {}
                        Poll::Pending => return Poll::Pending,
                    }
                }
                AnswerState::Over => return Poll::Ready(this.failed.take().map(Err)),
            }
        }
    }
}

impl AnswerStream<'_> {
    fn end(&mut self, failed: Option<ProviderError>) {
        self.state = AnswerState::Over;
        self.failed = failed.map(|err| self.provider.hide_key(err));
    }
}

impl BodyReader {
    fn new(body: HttpBody, framing: Framing) -> Self {
        Self {
            body,
            framer: Framer::new(framing),
            start: Vec::new(),
            has_event: false,
            linger: None,
        }
    }

    /// Reads the available bytes. Returns `true` if more may come, and `false` if the answer is complete.
    fn read(
        &mut self,
        cx: &mut Context<'_>,
        decoder: &mut Decoder,
        batch: &mut Batch,
    ) -> Poll<Result<bool, ProviderError>> {
        for _ in 0..PIECES_PER_POLL {
            if batch.bytes() >= MAX_QUEUED && !decoder.ended() {
                return Poll::Ready(Ok(true));
            }
            match self.body.poll_piece(cx) {
                Poll::Ready(Some(Ok(piece))) => self.decode(&piece, decoder, batch)?,
                Poll::Ready(None) => {
                    return Poll::Ready(self.finish(decoder, batch).map(|()| false));
                }
                Poll::Ready(Some(Err(err))) => {
                    // An error after the complete answer is ignored.
                    let complete = decoder.finish(batch);
                    return Poll::Ready(if complete { Ok(false) } else { Err(err.into()) });
                }
                Poll::Pending if decoder.ended() => {
                    let linger = self
                        .linger
                        .get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGER)));
                    ready!(linger.as_mut().poll(cx));
                    return Poll::Ready(Ok(false));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
        if decoder.ended() {
            return Poll::Ready(Ok(false)); // the body continues after the end of the answer; do not read all of it
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn decode(
        &mut self,
        piece: &[u8],
        decoder: &mut Decoder,
        batch: &mut Batch,
    ) -> Result<(), ProviderError> {
        if !self.has_event {
            let free = 4_096_usize.saturating_sub(self.start.len());
            self.start
                .extend_from_slice(&piece[..piece.len().min(free)]);
        }
        let has_event = &mut self.has_event;
        self.framer.push(piece, |event| {
            *has_event = true;
            decoder.event(&event, batch)
        })
    }

    /// Handles the clean end of a body. If the answer is not complete, it was cut off.
    fn finish(&mut self, decoder: &mut Decoder, batch: &mut Batch) -> Result<(), ProviderError> {
        // The bytes after the last blank line may be an incomplete event. A parse error there means that the answer was
        // cut off.
        let has_event = &mut self.has_event;
        let last = self.framer.finish(|event| {
            *has_event = true;
            decoder.event(&event, batch)
        });
        if decoder.finish(batch) {
            return Ok(());
        }
        match last {
            Err(err) if err.kind != windlass_core::provider::ProviderErrorKind::InvalidResponse => {
                Err(err)
            }
            _ if self.has_event => Err(errors::cut(self.body.host())),
            _ => Err(errors::no_event(self.body.host(), &self.start)),
        }
    }
}

#[cfg(test)]
#[path = "provider_tests.rs"]
mod tests;
