//! Passes an answer on to the agent while the decoder of the protocol reads its usage. The answer is read to its end
//! even if the agent hangs up, because the vendor bills all of it; it is cut if it gets longer than was reserved.
//! Nothing is held back except for bytes that may be the beginning of a key. The binary frames of Bedrock are passed on
//! as server-sent events.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;
use windlass_core::provider::{Chunk, EndReason, ProviderError, ProviderErrorKind};
use windlass_core::settlement::CallEnd;
use windlass_providers::WireProvider;
use windlass_providers::framing::{FramedEvent, Framer, Framing};
use windlass_providers::http::HttpBody;
use windlass_providers::protocol::{Batch, Decoder, Protocol, Quirks, bedrock};

use super::billing::MeteredCall;
use super::dialect::AgentDialect;

/// The body of an answer to the agent.
pub(super) enum AnswerBody {
    /// The complete body; `None` once it was sent.
    Whole(Option<Bytes>),
    /// Chunks that arrive from the vendor.
    Stream(mpsc::Receiver<Piece>),
}

/// A chunk of an answer, or the error that ended it.
pub(super) type Piece = Result<Bytes, ProviderError>;

impl AnswerBody {
    /// Returns a complete body.
    pub(super) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self::Whole(Some(bytes.into()))
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = ProviderError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ProviderError>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Stream(pieces) => pieces
                .poll_recv(cx)
                .map(|piece| Some(piece?.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

/// An answer that is passed on and read at the same time.
pub(super) struct Tee<'a> {
    body: HttpBody,
    reader: UsageReader,
    mask: KeyMask<'a>,
    call: MeteredCall,
}

impl<'a> Tee<'a> {
    pub(super) fn new(
        body: HttpBody,
        protocol: Protocol,
        upstream: &'a WireProvider,
        call: MeteredCall,
    ) -> Self {
        Self {
            body,
            reader: UsageReader::new(protocol, &upstream.vendor().quirks),
            mask: KeyMask::new(upstream),
            call,
        }
    }

    /// Reads the answer to its end, and passes it on as long as the agent listens.
    pub(super) async fn run(mut self, onward: mpsc::Sender<Piece>) {
        while let Some(piece) = poll_fn(|cx| self.body.poll_piece(cx)).await {
            let piece = match piece {
                Ok(piece) => self.reader.read(piece, &mut self.call),
                Err(err) => {
                    let err = ProviderError::from(err);
                    self.call
                        .end(self.reader.broken(&self.call), Some(err.clone()));
                    let _ = onward.send(Err(err)).await;
                    return;
                }
            };
            if self.call.is_too_long() {
                let err = too_long(self.call.output());
                self.call.end(CallEnd::Unknown, Some(err.clone()));
                let _ = onward.send(Err(err)).await;
                return;
            }
            let piece = self.mask.push(&piece);
            let listens = piece.is_empty() || onward.send(Ok(piece)).await.is_ok();
            if !listens && self.reader.done {
                return;
            }
        }
        self.reader.finish(&mut self.call);
        let rest = self.mask.rest();
        if !rest.is_empty() {
            let _ = onward.send(Ok(rest)).await;
        }
    }
}

fn too_long(output: u64) -> ProviderError {
    ProviderError {
        kind: ProviderErrorKind::InvalidResponse,
        message: format!(
            "the model's server sent more than the requested {output} tokens; the rest was cut off"
        ),
        status: None,
    }
}

/// Masks the vendor's keys in an answer, also if a key is split between two chunks.
pub(super) struct KeyMask<'a> {
    upstream: &'a WireProvider,
    /// Bytes that may be the beginning of a key.
    held: Vec<u8>,
}

impl<'a> KeyMask<'a> {
    pub(super) fn new(upstream: &'a WireProvider) -> Self {
        let held = Vec::new();
        Self { upstream, held }
    }

    /// Adds a chunk; returns the part that can be passed on.
    pub(super) fn push(&mut self, piece: &[u8]) -> Bytes {
        let mut all = std::mem::take(&mut self.held);
        all.extend_from_slice(piece);
        let held = self.upstream.mask_keys(&mut all);
        self.held = all.split_off(all.len() - held);
        all.into()
    }

    /// Returns the bytes that were held back, at the end of the answer.
    pub(super) fn rest(&mut self) -> Bytes {
        std::mem::take(&mut self.held).into()
    }
}

/// Reads the usage from an answer.
struct UsageReader {
    framer: Framer,
    decoder: Decoder,
    batch: Batch,
    /// Set for binary frames: the events that are passed on instead.
    events: Option<SseWriter>,
    /// The rest is passed on without being read.
    done: bool,
}

#[derive(Default)]
struct SseWriter {
    out: Vec<u8>,
    event: Vec<u8>,
}

impl UsageReader {
    fn new(protocol: Protocol, quirks: &Quirks) -> Self {
        let events = (protocol.framing() == Framing::AwsEventStream).then(SseWriter::default);
        // Inside the frames it is the protocol that the agent speaks.
        let inner = if events.is_some() {
            Protocol::AnthropicMessages
        } else {
            protocol
        };
        Self {
            framer: Framer::new(protocol.framing()),
            decoder: inner.decoder(quirks),
            batch: Batch::default(),
            events,
            done: false,
        }
    }

    /// Returns how a call is settled if its answer breaks off here.
    fn broken(&self, call: &MeteredCall) -> CallEnd {
        match call.record.received.bytes() {
            0 => CallEnd::Unknown,
            _ => CallEnd::Cut,
        }
    }

    /// Reads a chunk; returns what is passed on.
    fn read(&mut self, piece: Bytes, call: &mut MeteredCall) -> Bytes {
        if self.done && self.events.is_none() {
            return piece;
        }
        let Self {
            framer,
            decoder,
            batch,
            events,
            ..
        } = self;
        let result = framer.push(&piece, |event| match events {
            Some(events) => events.take(&event, decoder, batch),
            None => decoder.event(&event, batch),
        });
        self.note(call);
        match result {
            Err(err) => {
                self.done = true;
                if let Some(events) = &mut self.events {
                    events.fail(&err);
                }
                // The vendor itself says that nothing more follows.
                call.end(CallEnd::Cut, Some(err));
            }
            // The agent may send the next request as soon as it has read this, so the call must be booked before it is
            // passed on.
            Ok(()) if self.decoder.ended() => {
                self.done = true;
                call.complete();
            }
            Ok(()) => {}
        }
        match &mut self.events {
            Some(events) => Bytes::from(std::mem::take(&mut events.out)),
            None => piece,
        }
    }

    /// Handles the end of the body.
    fn finish(&mut self, call: &mut MeteredCall) {
        if self.done {
            return;
        }
        let Self {
            framer,
            decoder,
            batch,
            events,
            ..
        } = self;
        // An incomplete event at the end only means that the answer was cut.
        let _ = framer.finish(|event| match events {
            Some(events) => events.take(&event, decoder, batch),
            None => decoder.event(&event, batch),
        });
        let whole = self.decoder.finish(&mut self.batch);
        self.note(call);
        if whole {
            call.complete()
        } else {
            call.end(self.broken(call), None)
        }
    }

    fn note(&mut self, call: &mut MeteredCall) {
        while let Some(chunk) = self.batch.pop() {
            note(chunk, call);
        }
    }
}

fn note(chunk: Chunk, call: &mut MeteredCall) {
    match chunk {
        Chunk::Text(text) | Chunk::Reasoning(text) | Chunk::CallArgs { json: text, .. } => {
            call.record.received.push(&text);
        }
        Chunk::Usage(usage) => call.record.reported = Some(usage),
        Chunk::End(reason) => call.declined = reason == EndReason::Refused,
        Chunk::ReasoningState(_) | Chunk::CallStart { .. } | Chunk::Unknown(_) => {}
    }
}

impl SseWriter {
    /// Unwraps the event from its frame, reads it and writes it as a server-sent event.
    fn take(
        &mut self,
        event: &FramedEvent<'_>,
        decoder: &mut Decoder,
        batch: &mut Batch,
    ) -> Result<(), ProviderError> {
        #[derive(serde::Deserialize)]
        struct EventType<'a> {
            #[serde(borrow, rename = "type")]
            kind: std::borrow::Cow<'a, str>,
        }
        if !bedrock::unwrap(&event.data, &mut self.event)? {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&self.event);
        let kind =
            serde_json::from_str::<EventType<'_>>(&text).map_or("message".into(), |kind| kind.kind);
        let inner = FramedEvent {
            name: "message".into(),
            data: text.as_ref().into(),
        };
        let read = decoder.event(&inner, batch);
        write(&mut self.out, &kind, &text);
        read
    }

    /// Writes an error event.
    fn fail(&mut self, err: &ProviderError) {
        let (_, body) =
            AgentDialect::Anthropic.fault(super::dialect::RequestFault::Upstream, &err.message);
        write(&mut self.out, "error", &String::from_utf8_lossy(&body));
    }
}

/// Writes one server-sent event. A line break inside the data starts another `data:` line.
fn write(out: &mut Vec<u8>, name: &str, data: &str) {
    let name: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
    out.extend_from_slice(format!("event: {name}\n").as_bytes());
    for line in data.lines() {
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(line.as_bytes());
        out.push(b'\n');
    }
    out.push(b'\n');
}

/// Reads an answer that is not a stream, and settles its call.
pub(super) fn read_whole(
    dialect: AgentDialect,
    quirks: &Quirks,
    body: &[u8],
    mut call: MeteredCall,
) {
    let Ok(answer) = serde_json::from_slice::<serde_json::Value>(body) else {
        return; // a cut answer or no model answer: dropping the call books its reservation
    };
    let protocol = match dialect {
        AgentDialect::Anthropic => Protocol::AnthropicMessages,
        AgentDialect::Responses => Protocol::OpenAiResponses,
        AgentDialect::Chat => Protocol::OpenAiChat,
        AgentDialect::Gemini => Protocol::Gemini,
    };
    let (mut decoder, mut batch) = (protocol.decoder(quirks), Batch::default());
    // Gemini can answer with a JSON array that grows.
    let parts = match &answer {
        serde_json::Value::Array(parts) => parts.as_slice(),
        one => std::slice::from_ref(one),
    };
    for part in parts {
        let event = FramedEvent {
            name: "message".into(),
            data: dialect.as_event(&part.to_string()).into(),
        };
        // An event that cannot be parsed reports no usage and is counted by its size.
        let _ = decoder.event(&event, &mut batch);
    }
    while let Some(chunk) = batch.pop() {
        note(chunk, &mut call);
    }
    if call.record.reported.is_none() && call.record.received.bytes() == 0 {
        call.record.received.push(&String::from_utf8_lossy(body));
    }
    call.declined |= dialect.declines(&answer);
    call.complete();
}
