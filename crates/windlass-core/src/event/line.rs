//! Reads a line of JSON as an event. The envelope is read first, and the data only if the caller wants that kind: most
//! readers of a log want few of its events.

use serde::de::value::MapDeserializer;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{Event, EventKind, Order, UnknownEvent, VERSION};

/// One line of a log.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "one lives at a time; a box for each event costs more than the room")]
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
    let envelope: Envelope<&RawValue> = serde_json::from_str(line)?;
    envelope.read(wanted)
}

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let envelope = Envelope::<Box<RawValue>>::deserialize(deserializer)?;
        match envelope.borrow().read(|_| true).map_err(D::Error::custom)? {
            Line::Event(event) => Ok(event),
            Line::OtherVersion(v) => Err(D::Error::custom(format!("this event has format version {v}, not {VERSION}"))),
            Line::Skipped(_) => Err(D::Error::custom("this event was not read")),
        }
    }
}

/// The fields of a line, unread but for the numbers.
#[derive(Deserialize)]
#[serde(expecting = "an event")]
struct Envelope<R> {
    v: u64,
    seq: Option<u64>,
    after: Option<u64>,
    n: Option<u32>,
    at: Option<R>,
    session: Option<R>,
    run: Option<R>,
    trace: Option<R>,
    kind: Option<R>,
    data: Option<R>,
}

impl Envelope<Box<RawValue>> {
    fn borrow(&self) -> Envelope<&RawValue> {
        Envelope {
            v: self.v,
            seq: self.seq,
            after: self.after,
            n: self.n,
            at: self.at.as_deref(),
            session: self.session.as_deref(),
            run: self.run.as_deref(),
            trace: self.trace.as_deref(),
            kind: self.kind.as_deref(),
            data: self.data.as_deref(),
        }
    }
}

impl Envelope<&RawValue> {
    fn read(&self, wanted: impl Fn(&str) -> bool) -> Result<Line, serde_json::Error> {
        if self.v != u64::from(VERSION) {
            return Ok(Line::OtherVersion(self.v));
        }
        let order = match (self.seq, self.after, self.n) {
            (Some(seq), ..) => Order::Durable { seq },
            (None, Some(after), Some(n)) => Order::Live { after, n },
            _ => return Err(missing("seq")),
        };
        let (kind, data) = (self.kind.ok_or_else(|| missing("kind"))?, self.data.ok_or_else(|| missing("data"))?);
        // The name of a kind has no escapes, so that the text between the quotes is the name.
        let name = kind.get().trim_matches('"');
        if !wanted(name) {
            return Ok(Line::Skipped(order));
        }
        Ok(Line::Event(Event {
            v: VERSION,
            order,
            at: required(self.at, "at")?,
            session: required(self.session, "session")?,
            run: self.run.map(|run| serde_json::from_str(run.get())).transpose()?,
            trace: required(self.trace, "trace")?,
            kind: read_kind(name, kind, data)?,
        }))
    }
}

/// Hands the two raw values to the reader that serde derived for the enum.
fn read_kind(name: &str, kind: &RawValue, data: &RawValue) -> Result<EventKind, serde_json::Error> {
    let fields = [("kind", kind), ("data", data)];
    match EventKind::deserialize(MapDeserializer::new(fields.into_iter())) {
        Err(_) if !EventKind::is_known(name) => {
            let (kind, data) = (serde_json::from_str(kind.get())?, serde_json::from_str(data.get())?);
            Ok(EventKind::Unknown(UnknownEvent { kind, data }))
        }
        read => read,
    }
}

fn required<T: DeserializeOwned>(value: Option<&RawValue>, field: &'static str) -> Result<T, serde_json::Error> {
    serde_json::from_str(value.ok_or_else(|| missing(field))?.get())
}

fn missing(field: &'static str) -> serde_json::Error {
    serde_json::Error::missing_field(field)
}
