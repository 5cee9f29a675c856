//! The answer on its way to the agent: every piece goes on as it came, and the decoder of the protocol looks at it in
//! passing. Nothing is held back. Binary messages of one host are the exception: they go on as the events inside them.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use windlass_core::provider::{Chunk, EndReason, ProviderError};
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
    Stream(Box<Tee>),
}

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
            Self::Stream(tee) => tee.poll(cx),
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
pub(super) struct Tee {
    body: HttpBody,
    reader: Reader,
    call: Call,
}

impl Tee {
    /// Begins to pass on.
    pub(super) fn new(body: HttpBody, protocol: Protocol, quirks: &Quirks, call: Call) -> Self {
        Self {
            body,
            reader: Reader::new(protocol, quirks),
            call,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ProviderError>>> {
        loop {
            match ready!(self.body.poll_piece(cx)) {
                Some(Ok(piece)) => {
                    let onward = self.reader.read(piece, &mut self.call);
                    if !onward.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(onward))));
                    }
                }
                Some(Err(err)) => {
                    let err = ProviderError::from(err);
                    self.call.broken(Some(err.clone()));
                    return Poll::Ready(Some(Err(err)));
                }
                None => {
                    self.reader.finish(&mut self.call);
                    return Poll::Ready(None);
                }
            }
        }
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
                call.broken(Some(err));
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
            call.broken(None)
        }
    }

    fn note(&mut self, call: &mut Call) {
        while let Some(chunk) = self.batch.pop() {
            match chunk {
                Chunk::Text(text) | Chunk::Reasoning(text) | Chunk::CallArgs { json: text, .. } => {
                    call.said = call.said.saturating_add(text.len());
                }
                Chunk::Usage(usage) => call.usage = Some(usage),
                Chunk::End(reason) => call.declined = reason == EndReason::Refused,
                Chunk::ReasoningState(_) | Chunk::CallStart { .. } | Chunk::Unknown(_) => {}
            }
        }
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

/// What a whole answer says it took, and how many bytes it has.
pub(super) fn read_whole(dialect: Dialect, quirks: &Quirks, body: &[u8], call: &mut Call) {
    call.said = body.len();
    let Ok(text) = std::str::from_utf8(body) else {
        return;
    };
    let protocol = match dialect {
        Dialect::Anthropic => Protocol::AnthropicMessages,
        Dialect::Responses => Protocol::OpenAiResponses,
        Dialect::Chat => Protocol::OpenAiChat,
        Dialect::Gemini => Protocol::Gemini,
    };
    let (mut decoder, mut batch) = (protocol.decoder(quirks), Batch::default());
    let mut read = |text: &str| {
        let event = Event {
            name: "message".into(),
            data: dialect.as_event(text).into(),
        };
        // What cannot be read reports nothing, and is counted by its size.
        let _ = decoder.event(&event, &mut batch);
        while let Some(chunk) = batch.pop() {
            match chunk {
                Chunk::Usage(usage) => call.usage = Some(usage),
                Chunk::End(reason) => call.declined = reason == EndReason::Refused,
                _ => {}
            }
        }
    };
    // One vendor answers in a list that grows.
    match serde_json::from_str::<Vec<&serde_json::value::RawValue>>(text) {
        Ok(list) => list.iter().for_each(|part| read(part.get())),
        Err(_) => read(text),
    }
    call.declined |= serde_json::from_str(text).is_ok_and(|answer| dialect.declines(&answer));
}
