//! The events of a session over server-sent events, across lost connections.

use std::future::poll_fn;
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use windlass_core::event::Event;
use windlass_core::id::SessionId;
use windlass_providers::framing::{FramedEvent, FramingError};
use windlass_providers::http::HttpBody;
use windlass_providers::sse::SseDecoder;

use crate::{Client, ClientError};

/// Maximum number of events that wait for the reader.
const WAITING: usize = 256;
/// Failed connections in a row before the stream ends with an error.
const MAX_FAILURES: u32 = 20;
/// The pause before the first reconnection; each further pause is twice as long, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// An item of the stream.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamItem {
    Event(Box<Event>),
    /// The reader was too slow for this number of live events. No durable event was lost.
    Gap {
        live_lost: u64,
    },
}

/// The events of a session. Dropping it closes the connection.
pub struct RemoteEvents {
    items: mpsc::Receiver<Result<StreamItem, ClientError>>,
    task: JoinHandle<()>,
}

impl RemoteEvents {
    pub(crate) fn start(client: Client, session: SessionId, after: u64) -> Self {
        let (to, items) = mpsc::channel(WAITING);
        let task = tokio::spawn(async move {
            let mut reader = StreamReader {
                client,
                session,
                after,
                to,
            };
            if let Err(err) = reader.run().await {
                let _ = reader.to.send(Err(err)).await;
            }
        });
        Self { items, task }
    }

    /// The next item. After an error, there is none. Cancel safe.
    pub async fn next(&mut self) -> Option<Result<StreamItem, ClientError>> {
        self.items.recv().await
    }
}

impl Drop for RemoteEvents {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct StreamReader {
    client: Client,
    session: SessionId,
    /// The number of the last durable event.
    after: u64,
    to: mpsc::Sender<Result<StreamItem, ClientError>>,
}

#[derive(Deserialize)]
struct GapData {
    live_lost: u64,
}

impl From<FramingError> for ClientError {
    fn from(err: FramingError) -> Self {
        Self::Invalid(err.to_string())
    }
}

impl StreamReader {
    async fn run(&mut self) -> Result<(), ClientError> {
        let (mut failures, mut pause) = (0, FIRST_PAUSE);
        loop {
            let before = self.after;
            let lost = match self.client.open_events(&self.session, before).await {
                Ok(response) => self.read(response.body).await?,
                Err(err) if is_temporary(&err) => err,
                Err(err) => return Err(err),
            };
            if self.to.is_closed() {
                return Ok(());
            }
            (failures, pause) = match self.after > before {
                true => (0, FIRST_PAUSE),
                false => (failures + 1, (pause * 2).min(LONGEST_PAUSE)),
            };
            if failures >= MAX_FAILURES {
                return Err(lost);
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Reads one connection to its end. Returns the reason of its end if another connection can continue.
    async fn read(&mut self, mut body: HttpBody) -> Result<ClientError, ClientError> {
        let mut decoder = SseDecoder::default();
        loop {
            let piece = match poll_fn(|cx| body.poll_piece(cx)).await {
                Some(Ok(piece)) => piece,
                Some(Err(err)) => return Ok(err.into()),
                None => {
                    return Ok(ClientError::Unreachable(
                        "the server closed the connection".to_owned(),
                    ));
                }
            };
            let mut items = Vec::new();
            let decoded = decoder.push(&piece, |framed| self.decode(&framed, &mut items));
            // Events before an error are valid.
            for item in items {
                if self.to.send(Ok(item)).await.is_err() {
                    return Ok(ClientError::Unreachable("the reader has gone".to_owned()));
                }
            }
            decoded?;
        }
    }

    fn decode(
        &mut self,
        framed: &FramedEvent<'_>,
        items: &mut Vec<StreamItem>,
    ) -> Result<(), ClientError> {
        let invalid = |err: serde_json::Error| ClientError::Invalid(err.to_string());
        match &*framed.name {
            "message" => {
                let event: Event = serde_json::from_str(&framed.data).map_err(invalid)?;
                match event.order.seq() {
                    // Already received over an earlier connection.
                    Some(seq) if seq <= self.after => return Ok(()),
                    Some(seq) => self.after = seq,
                    None => {}
                }
                items.push(StreamItem::Event(Box::new(event)));
            }
            "gap" => {
                let gap: GapData = serde_json::from_str(&framed.data).map_err(invalid)?;
                items.push(StreamItem::Gap {
                    live_lost: gap.live_lost,
                });
            }
            // The session was deleted, or its log cannot be read any more.
            "end" => return Err(ClientError::refused(410, framed.data.as_bytes())),
            // Other events of the stream, such as `closing`, only concern the connection.
            _ => {}
        }
        Ok(())
    }
}

/// Whether another attempt may succeed.
fn is_temporary(err: &ClientError) -> bool {
    match err {
        ClientError::Unreachable(_) => true,
        ClientError::Refused { status, .. } => *status == 429 || *status >= 500,
        ClientError::Invalid(_) | ClientError::Usage(_) => false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use windlass_providers::HttpOptions;
    use windlass_scripted::{Act, ByteServer, http};

    use super::*;

    fn line(order: &str) -> String {
        format!(
            "{{{order},\"v\":2,\"at\":\"2026-11-15T00:00:00.000Z\",\"session\":\"s1\",\"trace\":\"t\",\"kind\":\"noted\",\"data\":{{\"text\":\"x\"}}}}"
        )
    }

    fn durable(seq: u64) -> String {
        format!("id: {seq}\ndata: {}\n\n", line(&format!("\"seq\":{seq}")))
    }

    fn client(server: &ByteServer) -> Client {
        Client::new(
            HttpOptions::default(),
            &server.url,
            "secret".to_owned().into(),
        )
        .unwrap()
    }

    async fn seqs(stream: &mut RemoteEvents, count: usize) -> Vec<Option<u64>> {
        let mut seqs = Vec::new();
        while seqs.len() < count {
            if let StreamItem::Event(event) = stream.next().await.unwrap().unwrap() {
                seqs.push(event.order.seq());
            }
        }
        seqs
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_stream_that_is_cut_at_any_byte_loses_and_repeats_nothing() {
        let whole = format!(
            "retry: 2000\n\n{}: still here\n\ndata: {}\n\n{}",
            durable(1),
            line("\"after\":1,\"n\":1"),
            durable(2)
        );
        for cut in (0..whole.len()).step_by(17) {
            let first = whole[..cut].to_owned();
            let server = ByteServer::start(move |number, request| {
                let after = request.to_lowercase();
                let after = after
                    .split("last-event-id: ")
                    .nth(1)
                    .and_then(|rest| rest.lines().next());
                let after: u64 = after.and_then(|after| after.parse().ok()).unwrap_or(0);
                let head = Act::Say(http::stream_head(200, http::EVENT_STREAM));
                let text = match number {
                    0 => first.clone(),
                    _ => (after + 1..=3).map(durable).collect(),
                };
                let end = if number == 0 { Act::Close } else { Act::Hang };
                vec![head, Act::Say(http::chunk(text)), end]
            })
            .unwrap();
            let mut stream = client(&server).events(&"s1".parse().unwrap(), 0);
            let mut found = seqs(&mut stream, 3).await;
            if found.contains(&None) {
                found.retain(Option::is_some);
                found.extend(seqs(&mut stream, 1).await);
            }
            assert_eq!(found, [Some(1), Some(2), Some(3)], "cut at {cut}");
            assert!(server.requests()[0].contains("Bearer secret"));
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_refusal_and_the_end_of_a_session_end_the_stream() {
        let refused = http::whole(
            404,
            "",
            "{\"detail\":\"there is no session\",\"hint\":\"list them\"}",
        );
        let server = ByteServer::saying(vec![Act::Say(refused)]).unwrap();
        let mut stream = client(&server).events(&"s1".parse().unwrap(), 0);
        let err = stream.next().await.unwrap().unwrap_err();
        assert!(
            matches!(
                &err,
                ClientError::Refused {
                    status: 404,
                    hint: Some(_),
                    ..
                }
            ),
            "{err:?}"
        );
        assert!(stream.next().await.is_none());
        let ends = "event: gap\ndata: {\"live_lost\":4}\n\nevent: end\ndata: {\"detail\":\"it was deleted\"}\n\n";
        let server = ByteServer::saying(vec![
            Act::Say(http::stream_head(200, http::EVENT_STREAM)),
            Act::Say(http::chunk(ends)),
            Act::Hang,
        ])
        .unwrap();
        let mut stream = client(&server).events(&"s1".parse().unwrap(), 0);
        assert_eq!(
            stream.next().await.unwrap().unwrap(),
            StreamItem::Gap { live_lost: 4 }
        );
        assert_eq!(
            stream.next().await.unwrap().unwrap_err().to_string(),
            "it was deleted"
        );
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_request_whose_reply_was_lost_is_repeated_with_its_key() {
        let server = ByteServer::start(|number, _| match number {
            0 => vec![Act::Close],
            _ => vec![Act::Say(http::whole(202, "", "{\"queued\":7}"))],
        })
        .unwrap();
        let queued = client(&server)
            .queue(&"s1".parse().unwrap(), &crate::PromptRequest::default())
            .await
            .unwrap();
        assert_eq!(queued.queued, 7);
        let requests = server.requests();
        let key = |at: usize| {
            let head = requests[at]
                .lines()
                .find(|line| line.starts_with("idempotency-key: "));
            head.unwrap().to_owned()
        };
        assert_eq!((requests.len(), key(0)), (2, key(1)));
    }
}
