//! Reads a line of JSON as an event. The envelope is read first, and the data only if the caller wants that kind: most
//! readers of a log want few of its events.

use std::borrow::Cow;
use std::ops::Deref;

use serde::de::Error as _;
use serde::de::value::MapDeserializer;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{Event, EventKind, Order, UnknownEvent, VERSION};

/// One line of a log.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "one lives at a time; a box for each event costs more than the room"
)]
pub enum Line {
    /// The event.
    Event(Event),
    /// A complete event of a kind that the caller does not want. Its data was not read.
    Skipped(Order),
    /// It has another format version than [`VERSION`].
    OtherVersion(u64),
}

/// Reads one line. The data is read if `wanted` says so for the name of the kind.
pub fn read_line(line: &str, wanted: impl Fn(&str) -> bool) -> Result<Line, serde_json::Error> {
    let version = |Version { v }| (v != u64::from(VERSION)).then_some(Line::OtherVersion(v));
    let envelope: Envelope<&RawValue> = match serde_json::from_str(line) {
        Ok(envelope) => envelope,
        // An event of another version may have other fields.
        Err(err) => return serde_json::from_str(line).ok().and_then(version).ok_or(err),
    };
    if let Some(other) = version(Version { v: envelope.v }) {
        return Ok(other);
    }
    if wanted(&envelope.kind_name()?) {
        envelope.read().map(Line::Event)
    } else {
        envelope.order().map(Line::Skipped)
    }
}

// Not `#[serde(try_from)]`: the schema of events would become the envelope's.
impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let envelope = Envelope::<Box<RawValue>>::deserialize(deserializer)?;
        envelope.read().map_err(D::Error::custom)
    }
}

#[derive(Deserialize)]
struct Version {
    v: u64,
}

/// The fields of a line, unread but for the numbers.
#[derive(Deserialize)]
#[serde(expecting = "an event")]
struct Envelope<Raw> {
    v: u64,
    seq: Option<u64>,
    after: Option<u64>,
    n: Option<u32>,
    at: Raw,
    session: Raw,
    run: Option<Raw>,
    trace: Raw,
    kind: Raw,
    data: Raw,
}

/// A text that is copied only if it has escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<Raw: Deref<Target = RawValue>> Envelope<Raw> {
    fn kind_name(&self) -> Result<Cow<'_, str>, serde_json::Error> {
        serde_json::from_str(self.kind.get()).map(|Name(name)| name)
    }

    fn order(&self) -> Result<Order, serde_json::Error> {
        match (self.seq, self.after, self.n) {
            (Some(seq), ..) => Ok(Order::Durable { seq }),
            (None, Some(after), Some(n)) => Ok(Order::Live { after, n }),
            _ => Err(serde_json::Error::missing_field("seq")),
        }
    }

    fn read(&self) -> Result<Event, serde_json::Error> {
        if self.v != u64::from(VERSION) {
            let text = format!("this event has format version {}, not {VERSION}", self.v);
            return Err(serde_json::Error::custom(text));
        }
        let run = self.run.as_ref();
        let run = run.map(|run| serde_json::from_str(run.get()));
        Ok(Event {
            v: VERSION,
            order: self.order()?,
            kind: self.read_kind()?,
            at: serde_json::from_str(self.at.get())?,
            session: serde_json::from_str(self.session.get())?,
            run: run.transpose()?,
            trace: serde_json::from_str(self.trace.get())?,
        })
    }

    /// Hands the two raw values to the reader that serde derived for the enum.
    fn read_kind(&self) -> Result<EventKind, serde_json::Error> {
        let fields = [("kind", &*self.kind), ("data", &*self.data)];
        let read = EventKind::deserialize(MapDeserializer::new(fields.into_iter()));
        if read.is_ok() || EventKind::is_known(&self.kind_name()?) {
            return read;
        }
        let kind = self.kind_name()?.into_owned();
        let data = serde_json::from_str(self.data.get())?;
        Ok(EventKind::Unknown(UnknownEvent { kind, data }))
    }
}
