//! A vendor behind the core's port: encodes the request, sends it, and pumps the answer through the decoders.
//! Neighbouring pieces that arrived together become one chunk. It never retries and holds nothing back longer than
//! the network does.

mod ask;
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

use self::ask::Known;
pub use self::relay::Parcel;
use crate::auth::{Auth, BadKey};
use crate::cassette::{self, Label};
use crate::endpoint::{Endpoint, EndpointError};
use crate::errors;
use crate::framing::{Framer, Framing};
use crate::http::{Http, HttpBody, HttpError, HttpResponse};
use crate::models;
use crate::protocol::{Batch, Decoder, Protocol};
use crate::sigv4::{self, AwsKeys, ToSign};
use crate::vendors::Vendor;

/// What a provider needs beside its vendor.
#[derive(Debug, Clone)]
pub struct ProviderOptions {
    /// Instead of the vendor's own address.
    pub base_url: Option<String>,
    /// The key; a local server may need none.
    pub key: Option<SecretString>,
    /// Keys that sign requests, for a vendor that wants signatures and no key.
    pub aws: Option<AwsKeys>,
    /// The window to use with a server that can be told.
    pub context_window: Option<u64>,
    /// Values for the vendor's address ([`Vendor::settings`]), by name.
    pub settings: BTreeMap<String, String>,
    /// The time, for dates in answers and for signatures.
    pub now: fn() -> SystemTime,
    /// The network, shared between providers.
    pub http: Http,
}

impl ProviderOptions {
    /// Nothing but the network: the vendor's own address and no key.
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

/// Why a provider cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// There is no key.
    #[error("no key for `{vendor}`: set {env}")]
    MissingKey {
        /// The vendor's id.
        vendor: &'static str,
        /// The variable that usually holds it.
        env: &'static str,
    },
    /// There is no address.
    #[error("`{vendor}` needs a base URL")]
    MissingUrl {
        /// The vendor's id.
        vendor: &'static str,
    },
    /// The address needs a value.
    #[error("`{vendor}` needs a {name}: set {env}")]
    MissingSetting {
        /// The vendor's id.
        vendor: &'static str,
        /// What it needs.
        name: &'static str,
        /// The variable that usually holds it.
        env: &'static str,
    },
    /// The address is wrong.
    #[error(transparent)]
    Url(#[from] EndpointError),
    /// The key is wrong.
    #[error(transparent)]
    Key(#[from] BadKey),
    /// The network cannot be set up.
    #[error(transparent)]
    Http(#[from] HttpError),
}

/// A model server, spoken to over HTTP.
pub struct WireProvider {
    vendor: Vendor,
    endpoint: Endpoint,
    headers: HeaderMap,
    key: Option<SecretString>,
    /// Who signs, and for which region and service.
    signer: Option<(AwsKeys, String, &'static str)>,
    /// The window the person chose.
    context_window: Option<u64>,
    /// What servers said about their models.
    known: Mutex<BTreeMap<String, Known>>,
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
    /// A provider that is ready to be asked. Connects to nothing yet.
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
        let endpoint =
            Endpoint::with_path(base, path, &values).map_err(|err| missing_value(&vendor, err))?;
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
            // A server on this machine is somebody's own gateway or a test; it says itself whether it wants a key.
            (None, Some(env)) if !endpoint.is_loopback() => {
                return Err(SetupError::MissingKey {
                    vendor: vendor.id,
                    env,
                });
            }
            (None, _) => {}
        }
        let http = options.http.labelled(Label {
            provider: vendor.id,
            protocol: cassette::protocol_word(vendor.protocol),
            framing: cassette::framing_word(vendor.protocol.framing()),
            key: key.clone(),
        });
        let (context_window, known) = (options.context_window, Mutex::default());
        Ok(Self {
            vendor,
            endpoint,
            headers,
            key,
            signer,
            context_window,
            known,
            now: options.now,
            http,
        })
    }

    /// Where requests go.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Sends a request; gives the body of the answer and how much text was sent.
    async fn open(&self, request: Request<'_>) -> Result<(HttpBody, usize), ProviderError> {
        let mut quirks = self.vendor.quirks;
        let known = if self.vendor.probe.truncates() {
            Some(self.ask_once(request.model).await?)
        } else {
            None
        };
        quirks.window = known.as_ref().and_then(|known| known.facts.context_window);
        let body = Bytes::from(self.vendor.protocol.encode(&request, &quirks));
        let text = text_bytes(&request, body.len());
        if let (Some(known), Some(window)) = (known, quirks.window) {
            let (needed, least) = (
                known.estimator.tokens(text),
                request.max_output.min(LEAST_ANSWER),
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
            check_head(response, self.vendor.protocol.framing(), (self.now)()).await?,
            text,
        ))
    }

    /// The headers of a request, with its signature where one is wanted.
    fn signed(&self, method: &str, url: &Url, body: &[u8]) -> Result<HeaderMap, ProviderError> {
        let mut headers = self.headers.clone();
        if let Some((keys, region, service)) = &self.signer {
            let request = ToSign {
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

    /// Everything that proves to the vendor who asks.
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

/// Names the variable, where the vendor has one for the value.
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
        if let Some(known) = self.known.lock().get(model) {
            return known.facts.clone();
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
        Box::pin(async move { Ok(self.ask_once(model).await?.facts) })
    }

    fn stream<'a>(&'a self, request: Request<'a>) -> BoxStream<'a, Result<Chunk, ProviderError>> {
        let mut batch = Batch::default();
        for wish in self.vendor.protocol.unmet(&request) {
            batch.push(Chunk::Unknown(wish));
        }
        Box::pin(Answer {
            provider: self,
            model: request.model,
            sent: 0,
            state: State::Opening(Box::pin(self.open(request))),
            decoder: self.vendor.protocol.decoder(&self.vendor.quirks),
            batch,
            failed: None,
        })
    }
}

/// Room that a request has to leave for the answer.
const LEAST_ANSWER: u64 = 256;
/// How much of a body is text. Pictures are counted by their size on screen, of which an eighth is a generous bound.
fn text_bytes(request: &Request<'_>, body: usize) -> usize {
    let pictures: usize = request
        .history
        .iter()
        .flat_map(|entry| &entry.parts)
        .map(|part| match part {
            Part::Image { data, .. } => data.len(),
            _ => 0,
        })
        .sum();
    body.saturating_sub(pictures) + pictures / 8
}

/// How much of an answer that is not a stream is read.
const MOST_OF_AN_ERROR: usize = 64 << 10;

/// Turns an error status or a page that is no event stream into an error; leaves a stream's body to be read.
async fn check_head(
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
        let text = body.read_up_to(MOST_OF_AN_ERROR).await;
        return Err(errors::from_status(status, &headers, &text, now));
    }
    let content_type = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let lower = content_type.to_ascii_lowercase();
    let is_json = lower.contains("json") && framing != Framing::JsonLines;
    if !lower.contains("html") && !is_json {
        return Ok(body); // some servers forget the right type; the decoder will tell
    }
    let text = body.read_up_to(MOST_OF_AN_ERROR).await;
    Err(errors::in_body(&text).unwrap_or_else(|| errors::not_a_stream(status, content_type, &text)))
}

/// Text is handed on at the latest when this much is waiting.
const ENOUGH: usize = 32 << 10;
/// And after this many pieces of the body, so that other tasks get their turn.
const PIECES_PER_TURN: usize = 512;
/// How long to wait for the end of the body after the end of the answer; a connection read to its end is used again.
const LINGER: Duration = Duration::from_millis(250);

/// The answer as a stream.
struct Answer<'a> {
    provider: &'a WireProvider,
    model: &'a str,
    /// How much text was sent.
    sent: usize,
    state: State<'a>,
    decoder: Decoder,
    batch: Batch,
    /// What ends the stream once the chunks before it are out.
    failed: Option<ProviderError>,
}

enum State<'a> {
    Opening(BoxFuture<'a, Result<(HttpBody, usize), ProviderError>>),
    Reading(Box<Reading>),
    Over,
}

struct Reading {
    body: HttpBody,
    framer: Framer,
    /// The first bytes, kept until an event has been seen: without any, this is what the error quotes.
    start: Vec<u8>,
    seen_event: bool,
    linger: Option<Pin<Box<Sleep>>>,
}

impl Stream for Answer<'_> {
    type Item = Result<Chunk, ProviderError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            // The end is held until the body is over, so that the connection is free for the next request by then.
            let hold = this.batch.len() == 1
                && this.decoder.ended()
                && matches!(this.state, State::Reading(_));
            if !hold && let Some(chunk) = this.batch.pop() {
                if let Chunk::Usage(usage) = &chunk {
                    this.provider
                        .learn(this.model, this.sent, usage.total_input());
                }
                return Poll::Ready(Some(Ok(chunk)));
            }
            match &mut this.state {
                State::Opening(opening) => match ready!(opening.as_mut().poll(cx)) {
                    Ok((body, sent)) => {
                        this.sent = sent;
                        let framing = this.provider.vendor.protocol.framing();
                        this.state = State::Reading(Box::new(Reading::new(body, framing)));
                    }
                    Err(err) => this.end(Some(err)),
                },
                State::Reading(reading) => {
                    match reading.read(cx, &mut this.decoder, &mut this.batch) {
                        Poll::Ready(Ok(true)) => {}
                        Poll::Ready(Ok(false)) => this.end(None),
                        Poll::Ready(Err(err)) => this.end(Some(err)),
                        Poll::Pending if this.batch.len() > usize::from(this.decoder.ended()) => {}
                        Poll::Pending => return Poll::Pending,
                    }
                }
                State::Over => return Poll::Ready(this.failed.take().map(Err)),
            }
        }
    }
}

impl Answer<'_> {
    fn end(&mut self, failed: Option<ProviderError>) {
        self.state = State::Over;
        self.failed = failed.map(|err| self.provider.hide_key(err));
    }
}

impl Reading {
    fn new(body: HttpBody, framing: Framing) -> Self {
        Self {
            body,
            framer: Framer::new(framing),
            start: Vec::new(),
            seen_event: false,
            linger: None,
        }
    }

    /// Reads what is there. `true`: there is more to come; `false`: the answer is complete and the body is done with.
    fn read(
        &mut self,
        cx: &mut Context<'_>,
        decoder: &mut Decoder,
        batch: &mut Batch,
    ) -> Poll<Result<bool, ProviderError>> {
        for _ in 0..PIECES_PER_TURN {
            if batch.bytes() >= ENOUGH && !decoder.ended() {
                return Poll::Ready(Ok(true));
            }
            match self.body.poll_piece(cx) {
                Poll::Ready(Some(Ok(piece))) => self.take(&piece, decoder, batch)?,
                Poll::Ready(None) => {
                    return Poll::Ready(self.finish(decoder, batch).map(|()| false));
                }
                Poll::Ready(Some(Err(err))) => {
                    // What broke after the whole answer was there does not matter any more.
                    let whole = decoder.finish(batch);
                    return Poll::Ready(if whole { Ok(false) } else { Err(err.into()) });
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
            return Poll::Ready(Ok(false)); // a body that goes on and on after its end
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn take(
        &mut self,
        piece: &[u8],
        decoder: &mut Decoder,
        batch: &mut Batch,
    ) -> Result<(), ProviderError> {
        if !self.seen_event {
            let room = 4_096_usize.saturating_sub(self.start.len());
            self.start
                .extend_from_slice(&piece[..piece.len().min(room)]);
        }
        let seen = &mut self.seen_event;
        self.framer.push(piece, |event| {
            *seen = true;
            decoder.event(&event, batch)
        })
    }

    /// A clean end of the body: fine if the answer is complete, a cut otherwise.
    fn finish(&mut self, decoder: &mut Decoder, batch: &mut Batch) -> Result<(), ProviderError> {
        // What stands behind the last blank line may be half an event; if so the answer was cut, and nothing else.
        let seen = &mut self.seen_event;
        let last = self.framer.finish(|event| {
            *seen = true;
            decoder.event(&event, batch)
        });
        if decoder.finish(batch) {
            return Ok(());
        }
        match last {
            Err(err) if err.kind != windlass_core::provider::ProviderErrorKind::InvalidResponse => {
                Err(err)
            }
            _ if self.seen_event => Err(errors::cut(self.body.host())),
            _ => Err(errors::no_event(self.body.host(), &self.start)),
        }
    }
}

#[cfg(test)]
#[path = "provider_tests.rs"]
mod tests;
