//! Handles one request of the agent: checks it, reserves the call, passes it on with the real key, and returns the
//! answer. The real key never reaches the agent, and keys that the agent sends never reach the vendor.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Incoming};
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap,
    HeaderValue,
};
use hyper::{Method, Request, Response};
use tokio::sync::{SemaphorePermit, mpsc, oneshot};
use windlass_core::BoxFuture;
use windlass_core::budget::{Estimator, Limit, Price};
use windlass_core::provider::{ModelFacts, Provider, ProviderError, ProviderErrorKind};
use windlass_core::settlement::CallRecord;
use windlass_providers::http::HttpResponse;
use windlass_providers::models::model_rows;
use windlass_providers::protocol::Protocol;
use windlass_providers::{RelayedRequest, WireProvider};

use super::Meter;
use super::billing::MeteredCall;
use super::dialect::{AgentDialect, RequestFault};
use super::forwarded_call::ForwardedCall;
use super::model_request::{AgentRequest, text_bytes};
use super::route::{CallTarget, Route, Verb, route};
use super::tee::AnswerBody;
use crate::endpoint::{Ledger, Trip};

/// The largest request body, in bytes.
const MAX_REQUEST: usize = 64 << 20;
/// The number of permits for the memory of all request bodies; one permit is `PERMIT_BYTES` bytes.
pub(super) const BODY_PERMITS: usize = 4 * MAX_REQUEST / PERMIT_BYTES;
const PERMIT_BYTES: usize = 64 << 10;
/// The time that a request body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(120);
/// The most bytes of an answer that is not a stream.
pub(super) const MAX_WHOLE: usize = 16 << 20;

/// Headers that choose who pays. The agent must not send them.
const PAYER_HEADERS: &[&str] = &["openai-organization", "openai-project"];
/// Headers that the agent may send to the vendor; a name that ends in a dash is a prefix.
const REQUEST_HEADERS: &[&str] = &[
    "accept",
    "content-type",
    "user-agent",
    "anthropic-",
    "openai-",
    "idempotency-key",
    "originator",
    "session-id",
    "thread-id",
    "x-app",
    "x-claude-code-",
    "x-client-request-id",
    "x-codex-",
    "x-goog-api-client",
    "x-stainless-",
];
/// Headers that the vendor may send to the agent; a name that ends in a dash is a prefix.
const ANSWER_HEADERS: &[&str] = &[
    "content-type",
    "content-encoding",
    "cache-control",
    "request-id",
    "retry-after",
    "retry-after-ms",
    "anthropic-",
    "openai-",
    "x-codex-",
    "x-ratelimit-",
    "x-request-id",
    "x-should-retry",
];

/// The meter and its ledger during one iteration of a run.
pub(super) struct RequestHandler<'a> {
    pub(super) meter: &'a Meter,
    pub(super) ledger: Ledger<'a>,
    /// Admitted calls. They continue if the agent closes its connection.
    pub(super) forwarded: mpsc::UnboundedSender<BoxFuture<'a, ()>>,
}

pub(super) type VendorAnswer = Response<AnswerBody>;

impl<'a> RequestHandler<'a> {
    /// Answers a request. Sets `last` if no further call is served.
    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        last: &AtomicBool,
    ) -> VendorAnswer {
        let (head, body) = request.into_parts();
        let goes = match route(&head.method, &head.uri, &head.headers, &self.meter.key) {
            Ok(goes) => goes,
            Err((dialect, fault, words)) => {
                self.warn_rejected(&head.method, head.uri.path(), fault);
                return reject(dialect, fault, words);
            }
        };
        match goes {
            Route::Models { dialect, ref of } => {
                self.models(dialect, of.as_deref(), &head.headers).await
            }
            Route::Call(ref target) | Route::Count(ref target) if is_compressed(&head.headers) => {
                reject(
                    target.dialect,
                    RequestFault::Invalid,
                    "this endpoint does not read compressed requests; send it uncompressed",
                )
            }
            Route::Call(ref target) | Route::Count(ref target) => {
                let _room = self.reserve_memory(&head.headers).await;
                match read_body(body, &head.headers).await {
                    Ok(body) if matches!(goes, Route::Count(_)) => {
                        self.count(target, &head.headers, body).await
                    }
                    Ok(body) => self.call(target, &head.headers, body, last).await,
                    Err((fault, words)) => closing(reject(target.dialect, fault, words)),
                }
            }
        }
    }

    /// Waits for memory for a request body of the announced size.
    async fn reserve_memory(&self, headers: &HeaderMap) -> Option<SemaphorePermit<'a>> {
        let said = length(headers).unwrap_or(MAX_REQUEST).min(MAX_REQUEST);
        let pieces = u32::try_from(said.div_ceil(PERMIT_BYTES)).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        self.meter.body_memory.acquire_many(pieces).await.ok()
    }

    async fn call(
        &self,
        target: &CallTarget,
        headers: &HeaderMap,
        body: Bytes,
        last: &AtomicBool,
    ) -> VendorAnswer {
        let dialect = target.dialect;
        if let Some(trip) = self.meter.billing.trip() {
            return self.over(dialect, trip, last);
        }
        let Some((upstream, protocol)) = self.upstream(dialect) else {
            return no_upstream(dialect);
        };
        let mut ask = match read(target, &body) {
            Ok(ask) => ask,
            Err(why) => return reject(dialect, RequestFault::Invalid, &why),
        };
        self.warn_left_out(&ask.left_out);
        let facts = self.meter.facts(upstream, &ask.model);
        if facts.price.is_none()
            && let Some(trip) = self.unpriced(&ask.model)
        {
            return self.over(dialect, trip, last);
        }
        let call = match self.reserve(&mut ask, &body, &facts, upstream).await {
            Ok(call) => call,
            Err(trip) => return self.over(dialect, trip, last),
        };
        tracing::debug!(
            ?dialect,
            bytes = body.len(),
            output = call.output(),
            "model call: admitted"
        );
        let parcel = parcel(upstream, protocol, target, &mut ask, headers, &body);
        let forwarded_call = ForwardedCall {
            billing: &self.meter.billing,
            upstream,
            dialect,
            protocol,
            stream: ask.stream,
            call,
        };
        drop(ask);
        let (answer_tx, answer_rx) = oneshot::channel();
        // If the receiver is gone, `answer_tx` is dropped with the call.
        let _ = self
            .forwarded
            .send(Box::pin(forwarded_call.run(parcel, answer_tx)));
        match answer_rx.await {
            Ok((answer, is_last)) => {
                last.fetch_or(is_last, Ordering::Relaxed);
                answer
            }
            Err(_) => {
                let words = "windlass: no further model call is served";
                reject(dialect, RequestFault::Upstream, words)
            }
        }
    }

    /// Reserves a call. First waits until ended calls are booked. If the budget is not enough, it waits for pending
    /// calls, which may return some of their reservation.
    async fn reserve(
        &self,
        ask: &mut AgentRequest<'_>,
        body: &Bytes,
        facts: &ModelFacts,
        upstream: &WireProvider,
    ) -> Result<MeteredCall, Trip> {
        let billing = &self.meter.billing;
        let text = text_bytes(body);
        let window = facts.context_window.unwrap_or(u64::MAX);
        let mut bound = billing.tokens(&ask.model, text);
        if ask.continues_conversation {
            let kept = billing.context(&ask.model).or(facts.context_window);
            bound = bound.saturating_add(kept.unwrap_or(0));
        }
        let max = ask.max.unwrap_or(facts.max_output).max(ask.thinking);
        let want = max.saturating_mul(ask.answers);
        let hold = loop {
            let mut booked = std::pin::pin!(billing.booked.notified());
            booked.as_mut().enable();
            if !billing.is_up_to_date() {
                booked.await;
                continue;
            }
            // Another call may have been refused meanwhile.
            if let Some(trip) = billing.trip() {
                return Err(trip);
            }
            // An estimate that is too low is acceptable for one call at a time. If other calls are pending, use the
            // safe bound of one token per byte.
            let bound = if billing.has_pending() {
                bound.max(body.len() as u64)
            } else {
                bound
            };
            match self
                .ledger
                .account
                .hold(bound.min(window), want, facts.price)
            {
                Ok(hold) => break hold,
                Err(Limit::Tokens | Limit::Cost) if billing.has_pending() => booked.await,
                Err(limit) => return Err(Trip::OverBudget(limit)),
            }
        };
        // If the vendor reports no usage, the call is booked with at least the default estimate, even if earlier
        // reports made this agent's text look cheaper.
        let input = bound.max(Estimator::default().tokens(text)).min(window);
        let record = CallRecord {
            sent: text,
            input,
            output: hold.output,
            ..CallRecord::default()
        };
        let mut call = billing.begin(hold, &ask.model, facts.price, record);
        call.learns = !ask.continues_conversation;
        call.tools = ask.offers_tools();
        // The maximum output of an unknown model is unknown, so set one.
        let unsaid = ask.max.is_none() && facts.context_window.is_none();
        if call.output() < want || unsaid {
            ask.limit(
                (call.output() / ask.answers).max(1),
                &upstream.vendor().quirks,
            );
        }
        Ok(call)
    }

    /// Rejects a call because no further call is served.
    fn over(&self, dialect: AgentDialect, trip: Trip, last: &AtomicBool) -> VendorAnswer {
        let words = match self.meter.billing.stop(trip) {
            Trip::OverBudget(limit) => format!(
                "windlass: this call would cross the limit of this run ({limit}), so it was not sent; no further model \
                 call is served. Stop here"
            ),
            Trip::Provider(err) => format!("windlass: no further model call is served: {err}"),
            Trip::Declined => {
                "windlass: the model refused again and again; no further model call is served"
                    .to_owned()
            }
        };
        last.store(true, Ordering::Relaxed);
        closing(reject(dialect, RequestFault::OverLimit, &words))
    }

    /// Warns about a rejected request, once per path and only for the first few. HEAD requests are only probes.
    fn warn_rejected(&self, method: &Method, path: &str, fault: RequestFault) {
        let said = matches!(fault, RequestFault::NotFound | RequestFault::BadKey)
            && method != Method::HEAD;
        let path: String = path.chars().filter(|c| !c.is_control()).take(100).collect();
        if !said || !self.meter.billing.is_new_rejected_path(&path) {
            return;
        }
        let why = if fault == RequestFault::BadKey {
            "with another key"
        } else {
            "which is not a model call"
        };
        let text = format!(
            "the agent asked its model endpoint for `{method} {path}`, {why}; it was not passed on"
        );
        self.meter.billing.warn("not_passed_on", text);
    }

    /// Warns about vendor actions that were removed, once for each.
    fn warn_left_out(&self, all: &[String]) {
        for what in all.iter().filter(|what| {
            self.meter
                .billing
                .is_first_warning(&format!("left out: {what}"))
        }) {
            let text = format!(
                "the agent wanted `{what}` of the vendor of its model, which is done outside of the sandbox or costs more \
                 than the price that is reserved; it was left out"
            );
            self.meter.billing.warn("not_passed_on", text);
        }
    }

    /// Handles a model without a known price: warns once, or refuses it if the user set a cost limit.
    fn unpriced(&self, model: &str) -> Option<Trip> {
        if self.meter.cost_is_explicit {
            let message = format!(
                "the price of `{model}`, which the agent asked for, is not known, so the cost limit cannot be kept; set \
                 one under `prices` in the configuration, or limit tokens instead"
            );
            return Some(Trip::Provider(ProviderError {
                kind: ProviderErrorKind::InvalidRequest,
                message,
                status: None,
            }));
        }
        if self.meter.billing.is_first_warning(model) {
            let text = format!(
                "the price of `{model}` is unknown, so the cost limit has no effect and only the token limit applies; set a \
                 price with `prices` in the configuration"
            );
            self.meter.billing.warn("unknown_price", text);
        }
        None
    }

    /// Returns a vendor that speaks a dialect, preferring one whose main protocol it is.
    fn upstream(&self, dialect: AgentDialect) -> Option<(&'a WireProvider, Protocol)> {
        let found = |own: bool| {
            self.meter.upstreams.iter().find_map(|upstream| {
                let (protocol, its_own) = dialect.at(upstream.vendor())?;
                (its_own == own).then_some((upstream.as_ref(), protocol))
            })
        };
        found(true).or_else(|| found(false))
    }

    /// Answers how many tokens a request has; estimates if the vendor does not offer it.
    async fn count(&self, target: &CallTarget, headers: &HeaderMap, body: Bytes) -> VendorAnswer {
        let dialect = target.dialect;
        let Some((upstream, protocol)) = self.upstream(dialect) else {
            return no_upstream(dialect);
        };
        let ask = match read(target, &body) {
            Ok(ask) => ask,
            Err(why) => return reject(dialect, RequestFault::Invalid, &why),
        };
        let url = match (&target.named, protocol) {
            (Some((model, verb)), _) => upstream.url_for(model, verb.word()),
            (None, Protocol::AnthropicMessages) => {
                let mut url = upstream.endpoint().join("/v1/messages/count_tokens");
                url.set_query(target.query);
                url
            }
            (None, _) => {
                let tokens = self.meter.billing.tokens(&ask.model, text_bytes(&body));
                return json(format!(r#"{{"input_tokens":{tokens}}}"#).into_bytes());
            }
        };
        let parcel = RelayedRequest {
            url,
            headers: vendor_headers(headers),
            body: Some(body.clone()),
        };
        self.free(upstream, dialect, parcel).await
    }

    async fn models(
        &self,
        dialect: AgentDialect,
        of: Option<&str>,
        headers: &HeaderMap,
    ) -> VendorAnswer {
        let Some((upstream, _)) = self.upstream(dialect).or_else(|| {
            let first = self.meter.upstreams.first()?;
            Some((first.as_ref(), first.vendor().protocol))
        }) else {
            return no_upstream(dialect);
        };
        let vendor = upstream.vendor();
        let same = dialect.at(vendor).is_some();
        if let Some(list) = vendor
            .list
            .filter(|_| same && vendor.protocol != Protocol::OllamaChat)
        {
            let tail = of.map_or_else(|| list.to_owned(), |model| format!("{list}/{model}"));
            let parcel = RelayedRequest {
                url: upstream.endpoint().join(&tail),
                headers: vendor_headers(headers),
                body: None,
            };
            return self.free(upstream, dialect, parcel).await;
        }
        let rows = model_rows().filter(|row| row.vendor == vendor.id);
        let names: Vec<_> = rows
            .map(|row| row.name)
            .filter(|name| of.is_none_or(|model| model == *name))
            .collect();
        json(dialect.model_list(&names))
    }

    /// Passes on a request that costs nothing.
    async fn free(
        &self,
        upstream: &WireProvider,
        dialect: AgentDialect,
        parcel: RelayedRequest,
    ) -> VendorAnswer {
        match upstream.relay(parcel).await {
            Ok(HttpResponse {
                status,
                headers,
                body,
            }) => {
                let text = body.read_up_to(MAX_WHOLE).await;
                answer(
                    status,
                    &headers,
                    AnswerBody::whole(upstream.without_keys(text)),
                )
            }
            Err(err) => reject(dialect, RequestFault::Upstream, &err.to_string()),
        }
    }
}

/// Parses the body of a model call.
fn read<'b>(target: &CallTarget, body: &'b Bytes) -> Result<AgentRequest<'b>, String> {
    let named = target.named.as_ref();
    let named = named.map(|(model, verb)| (model.as_str(), *verb == Verb::Stream));
    AgentRequest::read(target.dialect, named, body)
}

impl Meter {
    /// Returns what is known about a model, with the price from the settings.
    fn facts(&self, upstream: &WireProvider, model: &str) -> ModelFacts {
        let facts = upstream.facts(model);
        let price: Option<Price> = (self.prices)(model).or(facts.price);
        ModelFacts { price, ..facts }
    }
}

/// Builds the request to the vendor: another URL and another key; everything else as the agent sent it.
fn parcel(
    upstream: &WireProvider,
    protocol: Protocol,
    target: &CallTarget,
    ask: &mut AgentRequest<'_>,
    headers: &HeaderMap,
    body: &Bytes,
) -> RelayedRequest {
    let mut told = vendor_headers(headers);
    let features: Vec<_> = headers
        .get_all("anthropic-beta")
        .iter()
        .filter_map(|value| value.to_str().ok())
        .collect();
    let features: Vec<_> = features
        .iter()
        .flat_map(|list| list.split(','))
        .map(str::trim)
        .collect();
    ask.report_usage(&upstream.vendor().quirks);
    ask.hosted(protocol, &features);
    let model = ask.model.as_str();
    let url = match (protocol, &target.named) {
        (Protocol::Gemini, Some((_, Verb::Stream))) => upstream.endpoint().url(model),
        (Protocol::Gemini, Some((_, verb))) => upstream.url_for(model, verb.word()),
        (Protocol::BedrockAnthropic, _) if !ask.stream => upstream.url_for(model, "invoke"),
        (Protocol::VertexAnthropic, _) if !ask.stream => upstream.url_for(model, "rawPredict"),
        (Protocol::AnthropicMessages, _) => {
            let mut url = upstream.endpoint().url(model);
            if let Some(pair) = target.query {
                let all = url
                    .query()
                    .map_or_else(|| pair.to_owned(), |given| format!("{given}&{pair}"));
                url.set_query(Some(&all));
            }
            url
        }
        _ if protocol != upstream.vendor().protocol => {
            upstream.endpoint().join("/v1/chat/completions")
        }
        _ => upstream.endpoint().url(model),
    };
    if protocol == Protocol::BedrockAnthropic {
        // For this vendor the URL determines the form of the answer.
        told.remove(ACCEPT);
        told.remove("anthropic-beta");
    }
    let body = ask.body().map_or_else(|| body.clone(), Bytes::from);
    RelayedRequest {
        url,
        headers: told,
        body: Some(body),
    }
}

/// Returns whether the list has the header; a name that ends in a dash is a prefix.
fn listed(list: &[&str], name: &str) -> bool {
    list.iter().any(|known| {
        if known.ends_with('-') {
            name.starts_with(known)
        } else {
            name == *known
        }
    })
}

/// Selects the headers for the vendor: no keys, nothing about the connection, and no compressed answer.
fn vendor_headers(headers: &HeaderMap) -> HeaderMap {
    let mut told: HeaderMap = headers
        .iter()
        .filter(|(name, _)| {
            listed(REQUEST_HEADERS, name.as_str()) && !PAYER_HEADERS.contains(&name.as_str())
        })
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    told.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    told
}

/// Builds the answer to the agent with the headers it may see.
pub(super) fn answer(status: u16, headers: &HeaderMap, body: AnswerBody) -> VendorAnswer {
    let mut answer = Response::new(body);
    *answer.status_mut() =
        hyper::StatusCode::from_u16(status).unwrap_or(hyper::StatusCode::BAD_GATEWAY);
    let seen = headers
        .iter()
        .filter(|(name, _)| listed(ANSWER_HEADERS, name.as_str()));
    seen.for_each(|(name, value)| {
        answer.headers_mut().append(name, value.clone());
    });
    answer
}

fn json(body: Vec<u8>) -> VendorAnswer {
    let mut answer = Response::new(AnswerBody::whole(body));
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

pub(super) fn reject(dialect: AgentDialect, fault: RequestFault, words: &str) -> VendorAnswer {
    let (status, body) = dialect.fault(fault, words);
    let mut answer = json(body);
    *answer.status_mut() =
        hyper::StatusCode::from_u16(status).unwrap_or(hyper::StatusCode::BAD_REQUEST);
    answer
}

fn no_upstream(dialect: AgentDialect) -> VendorAnswer {
    let words = format!(
        "windlass: the agent speaks {}, and no model of this run speaks it; choose {}",
        dialect.name(),
        dialect.models()
    );
    reject(dialect, RequestFault::NotFound, &words)
}

/// Closes the connection after this answer.
pub(super) fn closing(mut answer: VendorAnswer) -> VendorAnswer {
    answer
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}

fn is_compressed(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_ENCODING)
        .is_some_and(|coding| coding != "identity")
}

/// Returns the announced length of a request.
fn length(headers: &HeaderMap) -> Option<usize> {
    headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse().ok())
}

/// Reads the whole body of a request.
async fn read_body(
    mut body: Incoming,
    headers: &HeaderMap,
) -> Result<Bytes, (RequestFault, &'static str)> {
    const TOO_LARGE: (RequestFault, &str) = (
        RequestFault::TooLarge,
        "the request is larger than 64 MiB, which is the maximum",
    );
    let said = length(headers);
    if said.is_some_and(|bytes| bytes > MAX_REQUEST) {
        return Err(TOO_LARGE);
    }
    let all = async {
        let mut all = BytesMut::with_capacity(said.unwrap_or(0).min(1 << 20));
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            let frame = frame.map_err(|_| (RequestFault::Invalid, "the request broke off"))?;
            let Ok(piece) = frame.into_data() else {
                continue;
            };
            if all.len() + piece.len() > MAX_REQUEST {
                return Err(TOO_LARGE);
            }
            all.extend_from_slice(&piece);
        }
        Ok(all.freeze())
    };
    tokio::time::timeout(BODY_TIMEOUT, all)
        .await
        .unwrap_or(Err((
            RequestFault::Late,
            "the request did not arrive in time",
        )))
}
