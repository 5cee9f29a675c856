//! Tests of the decoders with recordings: synthetic ones in the repository, and real ones if they are available.
#![allow(clippy::unwrap_used, clippy::print_stderr, clippy::disallowed_methods)]

mod fixtures;
mod framed;
mod shared;

use windlass_core::id::CallId;
use windlass_core::provider::{Chunk, ProviderError};
use windlass_core::reply::{Reply, ReplyFold};
use windlass_providers::framing::{FramedEvent, Framer};
use windlass_providers::protocol::{Batch, Decoder, Protocol, Quirks};

/// A decoded answer: the reply, its unknown elements, and the error that ended it.
#[derive(Debug, PartialEq)]
pub(crate) struct DecodedStream {
    pub(crate) reply: Reply,
    /// Name and argument text of every call, complete or not.
    pub(crate) calls: Vec<(String, String)>,
    pub(crate) unknown: Vec<String>,
    pub(crate) error: Option<ProviderError>,
    /// The stream ended before the answer was complete.
    pub(crate) cut: bool,
}

/// Decodes a body in pieces.
pub(crate) fn read<'a>(
    protocol: Protocol,
    quirks: &Quirks,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> DecodedStream {
    let mut framer = Framer::new(protocol.framing());
    let mut decoder = protocol.decoder(quirks);
    let mut batch = Batch::default();
    let mut error = None;
    let event = |decoder: &mut Decoder, batch: &mut Batch, event: FramedEvent<'_>| {
        decoder.event(&event, batch)
    };
    for piece in pieces {
        if let Err(err) = framer.push(piece, |e| event(&mut decoder, &mut batch, e)) {
            error = Some(err);
            break;
        }
    }
    if error.is_none() {
        // An incomplete event at the end is a cut, not an error of the protocol.
        let _ = framer.finish(|e| event(&mut decoder, &mut batch, e));
    }
    let cut = !decoder.finish(&mut batch);
    let mut fold = ReplyFold::default();
    let (mut unknown, mut calls, mut numbers) =
        (Vec::new(), Vec::<(String, String)>::new(), Vec::new());
    while let Some(chunk) = batch.pop() {
        match &chunk {
            Chunk::Unknown(text) => unknown.push(text.clone()),
            Chunk::CallStart { index, name, .. } => {
                numbers.push(*index);
                calls.push((name.clone(), String::new()));
            }
            Chunk::CallArgs { index, json } => {
                let at = numbers
                    .iter()
                    .position(|number| number == index)
                    .expect("arguments follow the start");
                calls[at].1.push_str(json);
            }
            _ => {}
        }
        fold.push(chunk);
    }
    let mut fresh = 0;
    let reply = fold.finish(|| {
        fresh += 1;
        CallId(format!("fresh-{fresh}"))
    });
    DecodedStream {
        reply,
        calls,
        unknown,
        error,
        cut,
    }
}
