//! One request of the agent: looked at, reserved, passed on with the real key, and its answer handed back. The real key
//! never leaves towards the agent, and what the agent says about keys never leaves towards the vendor.

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
use windlass_providers::{Parcel, WireProvider};

use super::Meter;
use super::ask::{Ask, words};
use super::desk::Call;
use super::dialect::{Dialect, Fault};
use super::passage::Passage;
use super::route::{Route, Target, Verb, route};
use super::tee::Reply;
use crate::endpoint::{Ledger, Trip};

/// The largest request.
const MAX_REQUEST: usize = 64 << 20;
/// All requests that are in memory at a time, in pieces of so many bytes.
pub(super) const ROOM: usize = 4 * MAX_REQUEST / PIECE;
const PIECE: usize = 64 << 10;
/// How long a request may take to arrive.
const ARRIVAL: Duration = Duration::from_secs(120);
/// How much of an answer that is no stream is read.
pub(super) const MAX_WHOLE: usize = 16 << 20;

/// Who pays, which is not the agent's to say.
const PAYS: &[&str] = &["openai-organization", "openai-project"];
/// What the agent may tell the vendor beside the body; the last part may be anything where it ends in a dash.
const TOLD: &[&str] = &[
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
/// What the vendor may tell the agent.
const ANSWERED: &[&str] = &[
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

/// The meter at work for one try of a run.
pub(super) struct Shop<'a> {
    pub(super) meter: &'a Meter,
    pub(super) ledger: Ledger<'a>,
    /// Calls that were let through. They go on when the connection of the agent does not.
    pub(super) passages: mpsc::UnboundedSender<BoxFuture<'a, ()>>,
}

pub(super) type Answered = Response<Reply>;

impl<'a> Shop<'a> {
    /// Answers a request. `last` is set when nothing more is served after it.
    pub(super) async fn answer(&self, request: Request<Incoming>, last: &AtomicBool) -> Answered {
        let (head, body) = request.into_parts();
        let goes = match route(&head.method, &head.uri, &head.headers, &self.meter.key) {
            Ok(goes) => goes,
            Err((dialect, fault, words)) => {
                self.turned_away(&head.method, head.uri.path(), fault);
                return no(dialect, fault, words);
            }
        };
        match goes {
            Route::Models { dialect, ref of } => {
                self.models(dialect, of.as_deref(), &head.headers).await
            }
            Route::Call(ref target) | Route::Count(ref target) if coded(&head.headers) => no(
                target.dialect,
                Fault::Invalid,
                "compressed requests are not read here; send it as it is",
            ),
            Route::Call(ref target) | Route::Count(ref target) => {
                let _room = self.room(&head.headers).await;
                match arrived(body, &head.headers).await {
                    Ok(body) if matches!(goes, Route::Count(_)) => {
                        self.count(target, &head.headers, body).await
                    }
                    Ok(body) => self.call(target, &head.headers, body, last).await,
                    Err((fault, words)) => closing(no(target.dialect, fault, words)),
                }
            }
        }
    }

    /// Room in memory for a request, by what it says of its size; it waits while too much of it is taken.
    async fn room(&self, headers: &HeaderMap) -> Option<SemaphorePermit<'a>> {
        let said = length(headers).unwrap_or(MAX_REQUEST).min(MAX_REQUEST);
        let pieces = u32::try_from(said.div_ceil(PIECE)).unwrap_or(u32::MAX);
        // Nobody closes it.
        self.meter.room.acquire_many(pieces).await.ok()
    }

    async fn call(
        &self,
        target: &Target,
        headers: &HeaderMap,
        body: Bytes,
        last: &AtomicBool,
    ) -> Answered {
        let dialect = target.dialect;
        if let Some(trip) = self.meter.desk.trip() {
            return self.over(dialect, trip, last);
        }
        let Some((upstream, protocol)) = self.upstream(dialect) else {
            return nobody(dialect);
        };
        let mut ask = match read(target, &body) {
            Ok(ask) => ask,
            Err(why) => return no(dialect, Fault::Invalid, &why),
        };
        self.left_out(&ask.left_out);
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
        let passage = Passage {
            desk: &self.meter.desk,
            upstream,
            dialect,
            protocol,
            stream: ask.stream,
            call,
        };
        drop(ask);
        let (tell, told) = oneshot::channel();
        // Where nobody takes it any more, `tell` is dropped with it.
        let _ = self.passages.send(Box::pin(passage.run(parcel, tell)));
        match told.await {
            Ok((answer, is_last)) => {
                last.fetch_or(is_last, Ordering::Relaxed);
                answer
            }
            Err(_) => {
                let words = "windlass: no further model call is served";
                no(dialect, Fault::Upstream, words)
            }
        }
    }

    /// Reserves a call. What ended before is booked first; and while others are under way that may give back some of
    /// what they hold, it waits for them.
    async fn reserve(
        &self,
        ask: &mut Ask<'_>,
        body: &Bytes,
        facts: &ModelFacts,
        upstream: &WireProvider,
    ) -> Result<Call, Trip> {
        let desk = &self.meter.desk;
        let text = words(body);
        let window = facts.context_window.unwrap_or(u64::MAX);
        let mut bound = desk.tokens(&ask.model, text);
        if ask.goes_on {
            let kept = desk.context(&ask.model).or(facts.context_window);
            bound = bound.saturating_add(kept.unwrap_or(0));
        }
        let max = ask.max.unwrap_or(facts.max_output).max(ask.thinking);
        let want = max.saturating_mul(ask.many);
        let hold = loop {
            let mut booked = std::pin::pin!(desk.booked.notified());
            booked.as_mut().enable();
            if !desk.is_up_to_date() {
                booked.await;
                continue;
            }
            // Another call may have been refused meanwhile.
            if let Some(trip) = desk.trip() {
                return Err(trip);
            }
            // An estimate may be wrong for one call at a time. Beside others, no token has less than one byte.
            let bound = if desk.busy() {
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
                Err(Limit::Tokens | Limit::Cost) if desk.busy() => booked.await,
                Err(limit) => return Err(Trip::OverBudget(limit)),
            }
        };
        // What nobody reports is counted by what is usual, however cheap the agent made its words look before.
        let input = bound.max(Estimator::default().tokens(text)).min(window);
        let record = CallRecord {
            sent: text,
            input,
            output: hold.output,
            ..CallRecord::default()
        };
        let mut call = desk.open(hold, &ask.model, facts.price, record);
        call.learns = !ask.goes_on;
        call.tools = ask.offers_tools();
        // Of a model that nobody knows, nobody knows where it would end.
        let unsaid = ask.max.is_none() && facts.context_window.is_none();
        if call.output() < want || unsaid {
            ask.limit((call.output() / ask.many).max(1), &upstream.vendor().quirks);
        }
        Ok(call)
    }

    /// Says that nothing more is served.
    fn over(&self, dialect: Dialect, trip: Trip, last: &AtomicBool) -> Answered {
        let words = match self.meter.desk.stop(trip) {
            Trip::OverBudget(limit) => format!(
                "windlass: this call would cross the limit of this run ({limit}), so it was not sent; no further model \
                 call is served. Stop here"
            ),
            Trip::Provider(err) => format!("windlass: no further model call is served: {err}"),
            Trip::Declined => {
                "windlass: the model declined again and again; it is not asked any more".to_owned()
            }
        };
        last.store(true, Ordering::Relaxed);
        closing(no(dialect, Fault::OverLimit, &words))
    }

    /// Says what an agent wanted that is not passed on: each once, and not without end. Probes are none of it.
    fn turned_away(&self, method: &Method, path: &str, fault: Fault) {
        let said = matches!(fault, Fault::NotFound | Fault::BadKey) && method != Method::HEAD;
        let path: String = path.chars().filter(|c| !c.is_control()).take(100).collect();
        if !said || !self.meter.desk.turned_away_first(&path) {
            return;
        }
        let why = if fault == Fault::BadKey {
            "with another key"
        } else {
            "which is no model call"
        };
        let text = format!(
            "the agent asked its model endpoint for `{method} {path}`, {why}; it was not passed on"
        );
        self.meter.desk.warn("not_passed_on", text);
    }

    /// Says what the vendor is not told that the agent wanted it to do: each once.
    fn left_out(&self, all: &[String]) {
        for what in all
            .iter()
            .filter(|what| self.meter.desk.warn_once(&format!("left out: {what}")))
        {
            let text = format!(
                "the agent wanted `{what}` of the vendor of its model, which is done outside of the sandbox or costs more \
                 than the price that is reserved; it was left out"
            );
            self.meter.desk.warn("not_passed_on", text);
        }
    }

    /// A model without a known price: said once, and refused where somebody limits the cost in so many words.
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
        if self.meter.desk.warn_once(model) {
            let text = format!(
                "the price of `{model}` is not known, so the cost limit does not bind; the token limit does (`prices` in \
                 the configuration sets one)"
            );
            self.meter.desk.warn("unknown_price", text);
        }
        None
    }

    /// Who understands a dialect: first those whose own it is.
    fn upstream(&self, dialect: Dialect) -> Option<(&'a WireProvider, Protocol)> {
        let found = |own: bool| {
            self.meter.upstreams.iter().find_map(|upstream| {
                let (protocol, its_own) = dialect.at(upstream.vendor())?;
                (its_own == own).then_some((upstream.as_ref(), protocol))
            })
        };
        found(true).or_else(|| found(false))
    }

    /// How many tokens a request takes: free, and a guess where the vendor does not say.
    async fn count(&self, target: &Target, headers: &HeaderMap, body: Bytes) -> Answered {
        let dialect = target.dialect;
        let Some((upstream, protocol)) = self.upstream(dialect) else {
            return nobody(dialect);
        };
        let ask = match read(target, &body) {
            Ok(ask) => ask,
            Err(why) => return no(dialect, Fault::Invalid, &why),
        };
        let url = match (&target.named, protocol) {
            (Some((model, verb)), _) => upstream.url_for(model, verb.word()),
            (None, Protocol::AnthropicMessages) => {
                let mut url = upstream.endpoint().join("/v1/messages/count_tokens");
                url.set_query(target.query);
                url
            }
            (None, _) => {
                let tokens = self.meter.desk.tokens(&ask.model, words(&body));
                return json(format!(r#"{{"input_tokens":{tokens}}}"#).into_bytes());
            }
        };
        let parcel = Parcel {
            url,
            headers: told(headers),
            body: Some(body.clone()),
        };
        self.free(upstream, dialect, parcel).await
    }

    async fn models(&self, dialect: Dialect, of: Option<&str>, headers: &HeaderMap) -> Answered {
        let Some((upstream, _)) = self.upstream(dialect).or_else(|| {
            let first = self.meter.upstreams.first()?;
            Some((first.as_ref(), first.vendor().protocol))
        }) else {
            return nobody(dialect);
        };
        let vendor = upstream.vendor();
        let same = dialect.at(vendor).is_some();
        if let Some(list) = vendor
            .list
            .filter(|_| same && vendor.protocol != Protocol::OllamaChat)
        {
            let tail = of.map_or_else(|| list.to_owned(), |model| format!("{list}/{model}"));
            let parcel = Parcel {
                url: upstream.endpoint().join(&tail),
                headers: told(headers),
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

    /// Passes on what costs nothing.
    async fn free(&self, upstream: &WireProvider, dialect: Dialect, parcel: Parcel) -> Answered {
        match upstream.relay(parcel).await {
            Ok(HttpResponse {
                status,
                headers,
                body,
            }) => {
                let text = body.read_up_to(MAX_WHOLE).await;
                answer(status, &headers, Reply::whole(upstream.without_keys(text)))
            }
            Err(err) => no(dialect, Fault::Upstream, &err.to_string()),
        }
    }
}

/// What is asked.
fn read<'b>(target: &Target, body: &'b Bytes) -> Result<Ask<'b>, String> {
    let named = target.named.as_ref();
    let named = named.map(|(model, verb)| (model.as_str(), *verb == Verb::Stream));
    Ask::read(target.dialect, named, body)
}

impl Meter {
    /// What is known of a model, with the prices that somebody set.
    fn facts(&self, upstream: &WireProvider, model: &str) -> ModelFacts {
        let facts = upstream.facts(model);
        let price: Option<Price> = (self.prices)(model).or(facts.price);
        ModelFacts { price, ..facts }
    }
}

/// The request as it leaves: another address, another key, and the rest as the agent said it.
fn parcel(
    upstream: &WireProvider,
    protocol: Protocol,
    target: &Target,
    ask: &mut Ask<'_>,
    headers: &HeaderMap,
    body: &Bytes,
) -> Parcel {
    let mut told = told(headers);
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
        // The host says by its address how it answers.
        told.remove(ACCEPT);
        told.remove("anthropic-beta");
    }
    let body = ask.body().map_or_else(|| body.clone(), Bytes::from);
    Parcel {
        url,
        headers: told,
        body: Some(body),
    }
}

/// Whether the list names it.
fn listed(list: &[&str], name: &str) -> bool {
    list.iter().any(|known| {
        if known.ends_with('-') {
            name.starts_with(known)
        } else {
            name == *known
        }
    })
}

/// What the agent tells the vendor: no key, nothing about the connection, and no wish for a compressed answer.
fn told(headers: &HeaderMap) -> HeaderMap {
    let mut told: HeaderMap = headers
        .iter()
        .filter(|(name, _)| listed(TOLD, name.as_str()) && !PAYS.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    told.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    told
}

/// The answer of the vendor, as far as the agent may see it.
pub(super) fn answer(status: u16, headers: &HeaderMap, body: Reply) -> Answered {
    let mut answer = Response::new(body);
    *answer.status_mut() =
        hyper::StatusCode::from_u16(status).unwrap_or(hyper::StatusCode::BAD_GATEWAY);
    let seen = headers
        .iter()
        .filter(|(name, _)| listed(ANSWERED, name.as_str()));
    seen.for_each(|(name, value)| {
        answer.headers_mut().append(name, value.clone());
    });
    answer
}

fn json(body: Vec<u8>) -> Answered {
    let mut answer = Response::new(Reply::whole(body));
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

pub(super) fn no(dialect: Dialect, fault: Fault, words: &str) -> Answered {
    let (status, body) = dialect.fault(fault, words);
    let mut answer = json(body);
    *answer.status_mut() =
        hyper::StatusCode::from_u16(status).unwrap_or(hyper::StatusCode::BAD_REQUEST);
    answer
}

fn nobody(dialect: Dialect) -> Answered {
    let words = format!(
        "windlass: the agent speaks {}, and no model of this run understands it; choose {}",
        dialect.name(),
        dialect.models()
    );
    no(dialect, Fault::NotFound, &words)
}

/// The connection ends behind this answer.
pub(super) fn closing(mut answer: Answered) -> Answered {
    answer
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}

fn coded(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_ENCODING)
        .is_some_and(|coding| coding != "identity")
}

/// How long a request says it is.
fn length(headers: &HeaderMap) -> Option<usize> {
    headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse().ok())
}

/// The whole body of a request.
async fn arrived(mut body: Incoming, headers: &HeaderMap) -> Result<Bytes, (Fault, &'static str)> {
    const TOO_LARGE: (Fault, &str) = (
        Fault::TooLarge,
        "the request is larger than 64 MiB, which is not passed on",
    );
    let said = length(headers);
    if said.is_some_and(|bytes| bytes > MAX_REQUEST) {
        return Err(TOO_LARGE);
    }
    let all = async {
        let mut all = BytesMut::with_capacity(said.unwrap_or(0).min(1 << 20));
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            let frame = frame.map_err(|_| (Fault::Invalid, "the request broke off"))?;
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
    tokio::time::timeout(ARRIVAL, all)
        .await
        .unwrap_or(Err((Fault::Late, "the request did not arrive in time")))
}
