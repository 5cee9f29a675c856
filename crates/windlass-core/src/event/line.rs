//! Reads a line of JSON as an event. The envelope is parsed first, and the data only if the caller wants that kind:
//! most readers of a log want few of its events.

use std::borrow::Cow;
use std::ops::Deref;

use serde::de::Error as _;
use serde::de::value::MapDeserializer;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{Event, EventKind, Order, UnknownEvent, VERSION};
use crate::clock::Timestamp;
use crate::id::{RunId, SessionId, TraceId};

/// One parsed line of a log.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "only one exists at a time; boxing every event costs more than the space"
)]
pub enum Line {
    /// A complete event with its data.
    Event(Event),
    /// A valid event of a kind that the caller did not want. Its data was not parsed.
    Skipped(Order),
    /// An event with another format version than [`VERSION`].
    OtherVersion(u64),
}

/// Parses one line. The data is parsed if `wanted` returns true for the name of the kind.
pub fn read_line(line: &str, wanted: impl Fn(&str) -> bool) -> Result<Line, serde_json::Error> {
    if let Some(event) = read_ordered(line, &wanted) {
        return Ok(Line::Event(event));
    }
    let version = |VersionField { v }| (v != u64::from(VERSION)).then_some(Line::OtherVersion(v));
    let envelope: Envelope<&RawValue> = match serde_json::from_str(line) {
        Ok(envelope) => envelope,
        // A line of another version may have other fields, so look at its version before reporting the error.
        Err(err) => return serde_json::from_str(line).ok().and_then(version).ok_or(err),
    };
    if let Some(other) = version(VersionField { v: envelope.v }) {
        return Ok(other);
    }
    if wanted(&envelope.kind_name()?) {
        envelope.read().map(Line::Event)
    } else {
        envelope.order().map(Line::Skipped)
    }
}

/// Reads a wanted event whose fields are in the order in which the engine writes them, in one pass over its data. Returns
/// nothing for other lines; the caller reads those in any order and reports their errors.
fn read_ordered(line: &str, wanted: impl Fn(&str) -> bool) -> Option<Event> {
    // A quote inside a string is escaped, so this is the field itself.
    let at = line.find(",\"kind\":\"")?;
    let (head, kind) = (&line[..at], &line[at + 1..]);
    let name = kind.split('"').nth(3)?;
    if !wanted(name) {
        return None;
    }
    let head: Head = serde_json::from_str(&[head, "}"].concat()).ok()?;
    let order = match head {
        Head { v, .. } if v != u64::from(VERSION) => return None,
        Head { seq: Some(seq), .. } => Order::Durable { seq },
        Head {
            after: Some(after),
            n: Some(n),
            ..
        } => Order::Live { after, n },
        _ => return None,
    };
    Some(Event {
        v: VERSION,
        order,
        kind: serde_json::from_str(&["{", kind].concat()).ok()?,
        at: head.at,
        session: head.session,
        run: head.run,
        trace: head.trace,
    })
}

/// The fields before the kind.
#[derive(Deserialize)]
struct Head {
    v: u64,
    seq: Option<u64>,
    after: Option<u64>,
    n: Option<u32>,
    at: Timestamp,
    session: SessionId,
    run: Option<RunId>,
    trace: TraceId,
}

// This is not `#[serde(try_from)]`, because then the schema of events would become that of the envelope.
impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let envelope = Envelope::<Box<RawValue>>::deserialize(deserializer)?;
        envelope.read().map_err(D::Error::custom)
    }
}

#[derive(Deserialize)]
struct VersionField {
    v: u64,
}

/// The fields of a line. Only the numbers are parsed; the rest is raw JSON.
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

/// A string that is copied only if it has escapes.
#[derive(Deserialize)]
struct BorrowedText<'a>(#[serde(borrow)] Cow<'a, str>);

impl<Raw: Deref<Target = RawValue>> Envelope<Raw> {
    fn kind_name(&self) -> Result<Cow<'_, str>, serde_json::Error> {
        serde_json::from_str(self.kind.get()).map(|BorrowedText(name)| name)
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

    /// Passes the two raw values to the deserializer that serde derived for the enum.
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
