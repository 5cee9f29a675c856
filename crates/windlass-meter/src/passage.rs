//! A call that was let through, from the request to the end of its answer. It does not belong to the agent's connection:
//! a vendor bills an answer that nobody waits for, so it is read and settled all the same.

use std::sync::Arc;

use hyper::header::{CONTENT_TYPE, HeaderValue};
use tokio::sync::{mpsc, oneshot};
use windlass_core::provider::{ProviderError, ProviderErrorKind};
use windlass_core::settlement::CallEnd;
use windlass_providers::http::HttpResponse;
use windlass_providers::protocol::Protocol;
use windlass_providers::{Parcel, WireProvider};

use super::desk::{Call, Desk};
use super::dialect::{Dialect, Fault};
use super::forward::{Answered, MAX_WHOLE, answer, closing, no};
use super::tee::{KeyMask, Reply, Tee, read_whole};
use crate::endpoint::Trip;

/// Bytes of an error that are read.
const MAX_ERROR: usize = 64 << 10;
/// Pieces of an answer that wait for the agent.
const MAX_PIECES: usize = 16;

/// A call, and what to do with its answer.
pub(super) struct Passage<'a> {
    pub(super) desk: &'a Arc<Desk>,
    pub(super) upstream: &'a WireProvider,
    pub(super) dialect: Dialect,
    pub(super) protocol: Protocol,
    /// A stream was asked for.
    pub(super) stream: bool,
    pub(super) call: Call,
}

/// Where the answer goes, and whether nothing more is served after it.
type Tell = oneshot::Sender<(Answered, bool)>;

impl<'a> Passage<'a> {
    /// Sends the request, tells the agent the answer, and reads it to its end.
    pub(super) async fn run(mut self, parcel: Parcel, tell: Tell) {
        // From here on it may cost something, also when the agent does not wait for the answer.
        self.call.billed = true;
        match self.upstream.relay(parcel).await {
            Ok(response) => self.pass_back(response, tell).await,
            Err(err) => {
                let dialect = self.dialect;
                tracing::warn!(?dialect, kind = ?err.kind, "model call: failed");
                let sent = matches!(err.kind, ProviderErrorKind::Network { sent: true, .. });
                if err.kind == ProviderErrorKind::InvalidRequest {
                    // It was not even sent, and would not be next time: a redirect, or another exchange on the cassette.
                    self.desk.stop(Trip::Provider(err.clone()));
                }
                let answer = no(dialect, Fault::Upstream, &err.to_string());
                let _ = tell.send(self.fail(answer, &err, sent));
            }
        }
    }

    async fn pass_back(self, response: HttpResponse, tell: Tell) {
        let HttpResponse {
            status,
            headers,
            body,
        } = response;
        let (dialect, upstream) = (self.dialect, self.upstream);
        tracing::debug!(?dialect, status, self.stream, "model call: answered");
        if !(200..300).contains(&status) {
            let text = body.read_up_to(MAX_ERROR).await;
            let err = upstream.failure(status, &headers, &text);
            let answer = answer(status, &headers, Reply::whole(upstream.without_keys(text)));
            let _ = tell.send(self.fail(answer, &err, false));
            return;
        }
        let kind = headers
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        // Some servers forget the right type of a stream.
        let document = kind.contains("json") || kind.contains("html") || !self.stream;
        if kind.contains("event-stream") || kind.contains("eventstream") || !document {
            let (onward, pieces) = mpsc::channel(MAX_PIECES);
            let mut answer = answer(status, &headers, Reply::Stream(pieces));
            if kind.contains("amazon") {
                answer
                    .headers_mut()
                    .insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
            }
            let _ = tell.send((answer, false));
            Tee::new(body, self.protocol, upstream, self.call)
                .run(onward)
                .await;
            return;
        }
        let whole = body.read_up_to(MAX_WHOLE).await;
        read_whole(dialect, &upstream.vendor().quirks, &whole, self.call);
        let mut mask = KeyMask::new(upstream);
        let shown = [mask.push(&whole), mask.rest()].concat();
        let _ = tell.send((answer(status, &headers, Reply::whole(shown)), false));
    }

    /// Hands back a failure, and notes it. The agent may try again, but not for ever.
    fn fail(mut self, answer: Answered, err: &ProviderError, billed: bool) -> (Answered, bool) {
        self.call.billed = billed;
        self.call.end(CallEnd::Unknown, None);
        if !self.desk.failed(err, self.call.tools) && self.desk.trip().is_none() {
            return (answer, false);
        }
        (closing(answer), true)
    }
}
