//! A call that was admitted, from the request to the end of its answer. It runs independently of the agent's
//! connection: the vendor bills an answer even if the agent hangs up, so the answer is read and booked in any case.

use std::sync::Arc;

use hyper::header::{CONTENT_TYPE, HeaderValue};
use tokio::sync::{mpsc, oneshot};
use windlass_core::provider::{ProviderError, ProviderErrorKind};
use windlass_core::settlement::CallEnd;
use windlass_providers::http::HttpResponse;
use windlass_providers::protocol::Protocol;
use windlass_providers::{RelayedRequest, WireProvider};

use super::billing::{BillingQueue, MeteredCall};
use super::dialect::{AgentDialect, RequestFault};
use super::handler::{MAX_WHOLE, VendorAnswer, answer, closing, reject};
use super::tee::{AnswerBody, KeyMask, Tee, read_whole};
use crate::endpoint::Trip;

/// The most bytes of an error body that are read.
const MAX_ERROR: usize = 64 << 10;
/// The most chunks of an answer that are buffered for the agent.
const MAX_PIECES: usize = 16;

/// A call, and how to pass on its answer.
pub(super) struct ForwardedCall<'a> {
    pub(super) billing: &'a Arc<BillingQueue>,
    pub(super) upstream: &'a WireProvider,
    pub(super) dialect: AgentDialect,
    pub(super) protocol: Protocol,
    /// The agent asked for a stream.
    pub(super) stream: bool,
    pub(super) call: MeteredCall,
}

/// Sends the answer to the connection, with whether no further call is served.
type AnswerSender = oneshot::Sender<(VendorAnswer, bool)>;

impl<'a> ForwardedCall<'a> {
    /// Sends the request, passes the answer on to the agent, and reads it to its end.
    pub(super) async fn run(mut self, parcel: RelayedRequest, answer_tx: AnswerSender) {
        // From here on the call may cost something, even if the agent hangs up.
        self.call.billed = true;
        match self.upstream.relay(parcel).await {
            Ok(response) => self.pass_back(response, answer_tx).await,
            Err(err) => {
                let dialect = self.dialect;
                tracing::warn!(?dialect, kind = ?err.kind, "model call: failed");
                let sent = matches!(err.kind, ProviderErrorKind::Network { sent: true, .. });
                if err.kind == ProviderErrorKind::InvalidRequest {
                    // The request was not sent and never will be: a redirect, or an exchange that is not in the
                    // cassette.
                    self.billing.stop(Trip::Provider(err.clone()));
                }
                let answer = reject(dialect, RequestFault::Upstream, &err.to_string());
                let _ = answer_tx.send(self.fail(answer, &err, sent));
            }
        }
    }

    async fn pass_back(self, response: HttpResponse, answer_tx: AnswerSender) {
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
            let answer = answer(
                status,
                &headers,
                AnswerBody::whole(upstream.without_keys(text)),
            );
            let _ = answer_tx.send(self.fail(answer, &err, false));
            return;
        }
        let kind = headers
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        // Some servers do not set the content type of a stream.
        let document = kind.contains("json") || kind.contains("html") || !self.stream;
        if kind.contains("event-stream") || kind.contains("eventstream") || !document {
            let (onward, pieces) = mpsc::channel(MAX_PIECES);
            let mut answer = answer(status, &headers, AnswerBody::Stream(pieces));
            if kind.contains("amazon") {
                answer
                    .headers_mut()
                    .insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
            }
            let _ = answer_tx.send((answer, false));
            Tee::new(body, self.protocol, upstream, self.call)
                .run(onward)
                .await;
            return;
        }
        let whole = body.read_up_to(MAX_WHOLE).await;
        read_whole(dialect, &upstream.vendor().quirks, &whole, self.call);
        let mut mask = KeyMask::new(upstream);
        let shown = [mask.push(&whole), mask.rest()].concat();
        let _ = answer_tx.send((answer(status, &headers, AnswerBody::whole(shown)), false));
    }

    /// Passes an error on and counts it. The agent may try again, but not forever.
    fn fail(
        mut self,
        answer: VendorAnswer,
        err: &ProviderError,
        billed: bool,
    ) -> (VendorAnswer, bool) {
        self.call.billed = billed;
        self.call.end(CallEnd::Unknown, None);
        if !self.billing.failed(err, self.call.tools) && self.billing.trip().is_none() {
            return (answer, false);
        }
        (closing(answer), true)
    }
}
