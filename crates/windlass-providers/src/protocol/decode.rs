//! The common part of all decoders: parses events as JSON, ends the answer once, and reports unknown elements once.

use std::borrow::Cow;
use std::fmt::Debug;

use serde::Deserialize;
use windlass_core::provider::{Chunk, EndReason, ProviderError};

use super::Batch;
use super::wire::replace_lone_surrogates;
use crate::errors;
use crate::framing::FramedEvent;

/// Decodes one answer in any protocol.
#[derive(Debug)]
pub struct Decoder(pub(super) Box<dyn Decode>);

impl Decoder {
    /// Decodes one event. The error is one that the upstream reports, or the event does not belong to the protocol.
    pub fn event(&mut self, event: &FramedEvent<'_>, out: &mut Batch) -> Result<(), ProviderError> {
        if self.ended() {
            return Ok(());
        }
        self.0.event(event, out)
    }

    /// Handles the end of the stream, clean or not. Ends the answer if all necessary events have arrived; returns
    /// `false` if the answer was cut off.
    pub fn finish(&mut self, out: &mut Batch) -> bool {
        if !self.ended() {
            self.0.finish(out);
        }
        self.ended()
    }

    /// Returns whether the answer has ended; later events are ignored.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.0.ending().ended
    }
}

/// The error is one that the upstream reports, or the event does not belong to the protocol.
pub(super) type ReadResult = Result<(), ProviderError>;

/// Decodes one answer in one protocol. No method is called after the answer has ended.
pub(super) trait Decode: Debug + Send {
    fn event(&mut self, event: &FramedEvent<'_>, out: &mut Batch) -> ReadResult;
    /// Handles the end of the stream: ends the answer if all necessary events have arrived.
    fn finish(&mut self, out: &mut Batch);
    fn ending(&self) -> &Ending;
}

/// Decodes the events of a protocol that are JSON of one type.
pub(super) trait ReadJson: Debug + Send {
    type WireEvent<'a>: Deserialize<'a>;

    fn read(
        &mut self,
        wire: &Self::WireEvent<'_>,
        event: &FramedEvent<'_>,
        out: &mut Batch,
    ) -> ReadResult;

    /// Handles the end of the stream, as in [`Decode::finish`].
    fn finish(&mut self, _out: &mut Batch) {}

    fn ending(&self) -> &Ending;

    /// Handles an event without parsing its JSON; returns `false` if it must be parsed.
    fn shortcut(&mut self, _event: &FramedEvent<'_>, _out: &mut Batch) -> bool {
        false
    }

    /// Handles an event that is not JSON but a marker such as `[DONE]`; returns `false` if it is no marker.
    fn mark(&mut self, _mark: &str, _out: &mut Batch) -> bool {
        false
    }

    /// Returns the error for an event that cannot be parsed.
    fn unreadable(&self, data: &str, err: &serde_json::Error) -> ProviderError {
        errors::not_an_event(data, err)
    }
}

impl<R: ReadJson> Decode for R {
    fn event(&mut self, event: &FramedEvent<'_>, out: &mut Batch) -> ReadResult {
        if self.shortcut(event, out) {
            return Ok(());
        }
        let err = match serde_json::from_str::<R::WireEvent<'_>>(&event.data) {
            Ok(wire) => return self.read(&wire, event, out),
            Err(err) => err,
        };
        if self.mark(event.data.trim(), out) {
            return Ok(());
        }
        let Some(repaired) = replace_lone_surrogates(&event.data) else {
            return Err(self.unreadable(&event.data, &err));
        };
        let repaired = FramedEvent {
            name: Cow::Borrowed(event.name.as_ref()),
            data: Cow::Owned(repaired),
        };
        match serde_json::from_str::<R::WireEvent<'_>>(&repaired.data) {
            Ok(wire) => self.read(&wire, &repaired, out),
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

/// The end of an answer, and its unknown elements.
#[derive(Debug, Default)]
pub(super) struct Ending {
    /// The end reason, once the server has sent it.
    pub(super) stop: Option<EndReason>,
    pub(super) ended: bool,
    unknowns: Vec<String>,
}

impl Ending {
    /// The maximum number of reported unknown elements.
    const MAX_UNKNOWN: usize = 16;

    /// Ends the answer, if the server has sent a reason. Several servers report `Done` although the answer has calls.
    pub(super) fn end(&mut self, calls: bool, out: &mut Batch) {
        let Some(stop) = self.stop.take() else { return };
        self.ended = true;
        out.push(Chunk::End(match stop {
            EndReason::Done if calls => EndReason::ToolCalls,
            other => other,
        }));
    }

    /// Reports an unknown element, each once and at most [`Self::MAX_UNKNOWN`] in total.
    pub(super) fn note(&mut self, what: &str, name: &str, out: &mut Batch) {
        let name: String = name.chars().filter(|c| !c.is_control()).take(60).collect();
        let text = format!("unknown {what} `{name}`");
        if self.unknowns.len() < Self::MAX_UNKNOWN && !self.unknowns.contains(&text) {
            out.push(Chunk::Unknown(text.clone()));
            self.unknowns.push(text);
        }
    }
}
