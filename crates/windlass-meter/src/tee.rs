//! The answer on its way to the agent: every piece goes on as it came, and the decoder of the protocol looks at it in
//! passing. It is read to its end also when the agent does not listen any more, because the vendor bills all of it, and
//! cut where it gets longer than was reserved. Nothing is held back, except for what may be the beginning of a key.
//! Binary messages of one host go on as the events inside them.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;
use windlass_core::provider::{Chunk, EndReason, ProviderError, ProviderErrorKind};
use windlass_core::settlement::CallEnd;
use windlass_providers::WireProvider;
use windlass_providers::framing::{Event, Framer, Framing};
use windlass_providers::http::HttpBody;
use windlass_providers::protocol::{Batch, Decoder, Protocol, Quirks, bedrock};

use super::desk::Call;
use super::dialect::Dialect;

/// The body of an answer to the agent.
pub(super) enum Reply {
    /// All of it is here.
    Whole(Option<Bytes>),
    /// It comes from the vendor.
    Stream(mpsc::Receiver<Piece>),
}

/// A piece of an answer, or how it broke off.
pub(super) type Piece = Result<Bytes, ProviderError>;

impl Reply {
    /// Bytes that are all here.
    pub(super) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self::Whole(Some(bytes.into()))
    }
}

impl Body for Reply {
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

/// An answer that is passed on and read.
pub(super) struct Tee<'a> {
    body: HttpBody,
    reader: Reader,
    mask: KeyMask<'a>,
    call: Call,
}

impl<'a> Tee<'a> {
    pub(super) fn new(
        body: HttpBody,
        protocol: Protocol,
        upstream: &'a WireProvider,
        call: Call,
    ) -> Self {
        Self {
            body,
            reader: Reader::new(protocol, &upstream.vendor().quirks),
            mask: KeyMask::new(upstream),
            call,
        }
    }

    /// Reads to the end, and passes on as long as the agent listens.
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
            "the model's server sent more than the {output} tokens that were asked for; the answer was cut"
        ),
        status: None,
    }
}

/// Hides the vendor's keys in an answer, also where one lies in two pieces.
pub(super) struct KeyMask<'a> {
    upstream: &'a WireProvider,
    /// May be the beginning of a key.
    held: Vec<u8>,
}

impl<'a> KeyMask<'a> {
    pub(super) fn new(upstream: &'a WireProvider) -> Self {
        let held = Vec::new();
        Self { upstream, held }
    }

    /// The part of the answer that can go on.
    pub(super) fn push(&mut self, piece: &[u8]) -> Bytes {
        let mut all = std::mem::take(&mut self.held);
        all.extend_from_slice(piece);
        let held = self.upstream.mask_keys(&mut all);
        self.held = all.split_off(all.len() - held);
        all.into()
    }

    /// The bytes that were held back, when the answer ends.
    pub(super) fn rest(&mut self) -> Bytes {
        std::mem::take(&mut self.held).into()
    }
}

/// Reads an answer in passing.
struct Reader {
    framer: Framer,
    decoder: Decoder,
    batch: Batch,
    /// What goes on instead of the pieces, where they are binary messages.
    events: Option<Events>,
    /// The rest is passed on and not read.
    done: bool,
}

#[derive(Default)]
struct Events {
    out: Vec<u8>,
    event: Vec<u8>,
}

impl Reader {
    fn new(protocol: Protocol, quirks: &Quirks) -> Self {
        let events = (protocol.framing() == Framing::AwsEventStream).then(Events::default);
        // Behind the frames it is the protocol that the agent speaks.
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

    /// The end that a call is settled with whose answer breaks off here.
    fn broken(&self, call: &Call) -> CallEnd {
        match call.record.received.bytes() {
            0 => CallEnd::Unknown,
            _ => CallEnd::Cut,
        }
    }

    /// Reads a piece and gives back what goes on.
    fn read(&mut self, piece: Bytes, call: &mut Call) -> Bytes {
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
                // The vendor itself says that nothing more comes.
                call.end(CallEnd::Cut, Some(err));
            }
            // The agent may ask again as soon as it has read this, so it is booked before it goes on.
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

    /// The body is over.
    fn finish(&mut self, call: &mut Call) {
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
        // Half an event at the end is a cut, and nothing else.
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

    fn note(&mut self, call: &mut Call) {
        while let Some(chunk) = self.batch.pop() {
            note(chunk, call);
        }
    }
}

fn note(chunk: Chunk, call: &mut Call) {
    match chunk {
        Chunk::Text(text) | Chunk::Reasoning(text) | Chunk::CallArgs { json: text, .. } => {
            call.record.received.push(&text);
        }
        Chunk::Usage(usage) => call.record.reported = Some(usage),
        Chunk::End(reason) => call.declined = reason == EndReason::Refused,
        Chunk::ReasoningState(_) | Chunk::CallStart { .. } | Chunk::Unknown(_) => {}
    }
}

impl Events {
    /// Takes the event out of its message, reads it and writes it as the agent expects it.
    fn take(
        &mut self,
        event: &Event<'_>,
        decoder: &mut Decoder,
        batch: &mut Batch,
    ) -> Result<(), ProviderError> {
        #[derive(serde::Deserialize)]
        struct Kind<'a> {
            #[serde(borrow, rename = "type")]
            kind: std::borrow::Cow<'a, str>,
        }
        if !bedrock::unwrap(&event.data, &mut self.event)? {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&self.event);
        let kind =
            serde_json::from_str::<Kind<'_>>(&text).map_or("message".into(), |kind| kind.kind);
        let inner = Event {
            name: "message".into(),
            data: text.as_ref().into(),
        };
        let read = decoder.event(&inner, batch);
        write(&mut self.out, &kind, &text);
        read
    }

    /// Says a failure that came in the place of an event.
    fn fail(&mut self, err: &ProviderError) {
        let (_, body) = Dialect::Anthropic.fault(super::dialect::Fault::Upstream, &err.message);
        write(&mut self.out, "error", &String::from_utf8_lossy(&body));
    }
}

/// One server-sent event. Line ends inside it begin a further line of data.
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

/// Reads an answer that is no stream, and settles its call.
pub(super) fn read_whole(dialect: Dialect, quirks: &Quirks, body: &[u8], mut call: Call) {
    let Ok(answer) = serde_json::from_slice::<serde_json::Value>(body) else {
        return; // cut, or no answer of a model: the rest may be billed
    };
    let protocol = match dialect {
        Dialect::Anthropic => Protocol::AnthropicMessages,
        Dialect::Responses => Protocol::OpenAiResponses,
        Dialect::Chat => Protocol::OpenAiChat,
        Dialect::Gemini => Protocol::Gemini,
    };
    let (mut decoder, mut batch) = (protocol.decoder(quirks), Batch::default());
    // One vendor answers in a list that grows.
    let parts = match &answer {
        serde_json::Value::Array(parts) => parts.as_slice(),
        one => std::slice::from_ref(one),
    };
    for part in parts {
        let event = Event {
            name: "message".into(),
            data: dialect.as_event(&part.to_string()).into(),
        };
        // An event that cannot be read reports nothing, and is counted by its size.
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
