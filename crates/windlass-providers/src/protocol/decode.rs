//! What all decoders share: an event is read as JSON, the answer ends once, and what is not known is said once.

use std::borrow::Cow;
use std::fmt::Debug;

use serde::Deserialize;
use windlass_core::provider::{Chunk, EndReason, ProviderError};

use super::Batch;
use super::wire::mend_surrogates;
use crate::errors;
use crate::framing::Event;

/// Reads one answer, whatever its protocol.
#[derive(Debug)]
pub struct Decoder(pub(super) Box<dyn Decode>);

impl Decoder {
    /// Reads one event. An error is the upstream's own, or says that this is not its protocol.
    pub fn event(&mut self, event: &Event<'_>, out: &mut Batch) -> Result<(), ProviderError> {
        if self.ended() {
            return Ok(());
        }
        self.0.event(event, out)
    }

    /// The stream is over, cleanly or not. Ends the answer if everything needed for that has arrived; `false` says
    /// that it was cut.
    pub fn finish(&mut self, out: &mut Batch) -> bool {
        if !self.ended() {
            self.0.finish(out);
        }
        self.ended()
    }

    /// The answer is over: whatever follows is ignored.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.0.ending().ended
    }
}

/// Whether an event could be read. An error is the upstream's own, or says that this is not its protocol.
pub(super) type ReadResult = Result<(), ProviderError>;

/// Reads one answer in one protocol. Nothing is asked of it once the answer ended.
pub(super) trait Decode: Debug + Send {
    fn event(&mut self, event: &Event<'_>, out: &mut Batch) -> ReadResult;
    /// The stream is over: ends the answer if everything needed for that has arrived.
    fn finish(&mut self, out: &mut Batch);
    fn ending(&self) -> &Ending;
}

/// Reads the events of a protocol that are JSON of one shape.
pub(super) trait ReadJson: Debug + Send {
    type Wire<'a>: Deserialize<'a>;

    fn read(&mut self, wire: &Self::Wire<'_>, event: &Event<'_>, out: &mut Batch) -> ReadResult;

    /// As for [`Decode`].
    fn finish(&mut self, _out: &mut Batch) {}

    fn ending(&self) -> &Ending;

    /// Takes an event without reading its JSON; `false` when it has to be read.
    fn shortcut(&mut self, _event: &Event<'_>, _out: &mut Batch) -> bool {
        false
    }

    /// Takes an event that is no JSON but a mark of servers, such as `[DONE]`; `false` when it is none.
    fn mark(&mut self, _mark: &str, _out: &mut Batch) -> bool {
        false
    }

    /// The error for an event that cannot be read.
    fn unreadable(&self, data: &str, err: &serde_json::Error) -> ProviderError {
        errors::not_an_event(data, err)
    }
}

impl<R: ReadJson> Decode for R {
    fn event(&mut self, event: &Event<'_>, out: &mut Batch) -> ReadResult {
        if self.shortcut(event, out) {
            return Ok(());
        }
        let err = match serde_json::from_str::<R::Wire<'_>>(&event.data) {
            Ok(wire) => return self.read(&wire, event, out),
            Err(err) => err,
        };
        if self.mark(event.data.trim(), out) {
            return Ok(());
        }
        let Some(mended) = mend_surrogates(&event.data) else {
            return Err(self.unreadable(&event.data, &err));
        };
        let mended = Event {
            name: Cow::Borrowed(event.name.as_ref()),
            data: Cow::Owned(mended),
        };
        match serde_json::from_str::<R::Wire<'_>>(&mended.data) {
            Ok(wire) => self.read(&wire, &mended, out),
            Err(err) => Err(errors::not_an_event(&event.data, &err)),
        }
    }

    fn finish(&mut self, out: &mut Batch) {
        ReadJson::finish(self, out);
    }

    fn ending(&self) -> &Ending {
        ReadJson::ending(self)
    }
}

/// How an answer ends, and what of it was not known.
#[derive(Debug, Default)]
pub(super) struct Ending {
    /// Why it ends, once the server said so.
    pub(super) stop: Option<EndReason>,
    pub(super) ended: bool,
    unknowns: Vec<String>,
}

impl Ending {
    /// The most unknown things that are said.
    const MOST: usize = 16;

    /// Ends the answer, if a reason came. Several servers say that they are done although they ask for calls.
    pub(super) fn end(&mut self, calls: bool, out: &mut Batch) {
        let Some(stop) = self.stop.take() else { return };
        self.ended = true;
        out.push(Chunk::End(match stop {
            EndReason::Done if calls => EndReason::ToolCalls,
            other => other,
        }));
    }

    /// Says each unknown thing once, and not without end.
    pub(super) fn note(&mut self, what: &str, name: &str, out: &mut Batch) {
        let name: String = name.chars().filter(|c| !c.is_control()).take(60).collect();
        let text = format!("unknown {what} `{name}`");
        if self.unknowns.len() < Self::MOST && !self.unknowns.contains(&text) {
            out.push(Chunk::Unknown(text.clone()));
            self.unknowns.push(text);
        }
    }
}
