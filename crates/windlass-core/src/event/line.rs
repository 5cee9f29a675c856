//! Reads a line of JSON as an event. The envelope is read first, and the data only if the caller wants that kind: most
//! readers of a log want few of its events.

use serde::de::value::MapDeserializer;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{Event, EventKind, Order, UnknownEvent, VERSION};
use crate::clock::Timestamp;
use crate::id::{RunId, SessionId, TraceId};

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
    if let Some(halves) = Halves::of(line)
        && wanted(halves.kind)
        && let Some(event) = halves.read()
    {
        return Ok(Line::Event(event));
    }
    let envelope: Envelope<&RawValue> = serde_json::from_str(line)?;
    envelope.read(wanted)
}

/// A line in the order in which we write it, cut before its kind: the envelope, then the kind and its data. Read in two
/// halves, the data is gone through once; as one object, it would be gone through twice, once to find its end.
struct Halves<'a> {
    envelope: &'a str,
    kind: &'a str,
    rest: &'a str,
}

/// The envelope without the kind.
#[derive(Deserialize)]
struct Head {
    v: u16,
    seq: Option<u64>,
    after: Option<u64>,
    n: Option<u32>,
    at: Timestamp,
    session: SessionId,
    run: Option<RunId>,
    trace: TraceId,
}

impl<'a> Halves<'a> {
    const KIND: &'static str = ",\"kind\":\"";

    /// None for a line in another order. A cut at any other place leaves an envelope that cannot be read.
    fn of(line: &'a str) -> Option<Self> {
        // The search for a single byte is the fastest there is, and no other field of the envelope has this one.
        let starts = line
            .match_indices('k')
            .filter_map(|(at, _)| at.checked_sub(2));
        let at = starts.into_iter().find(|at| {
            line.get(*at..)
                .is_some_and(|rest| rest.starts_with(Self::KIND))
        })?;
        let (envelope, rest) = (&line[..at], &line[at + Self::KIND.len()..]);
        Some(Self {
            envelope,
            kind: &rest[..rest.find('"')?],
            rest,
        })
    }

    /// None where anything is not as expected: reading the line as one object says what is wrong with it.
    fn read(&self) -> Option<Event> {
        let head: Head = serde_json::from_str(&[self.envelope, "}"].concat()).ok()?;
        let kind = serde_json::from_str(&["{\"kind\":\"", self.rest].concat()).ok()?;
        let Head {
            v,
            seq,
            after,
            n,
            at,
            session,
            run,
            trace,
        } = head;
        let order = order(seq, after, n)?;
        (v == VERSION).then_some(Event {
            v,
            order,
            at,
            session,
            run,
            trace,
            kind,
        })
    }
}

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let envelope = Envelope::<Box<RawValue>>::deserialize(deserializer)?;
        match envelope.borrow().read(|_| true).map_err(D::Error::custom)? {
            Line::Event(event) => Ok(event),
            Line::OtherVersion(v) => Err(D::Error::custom(format!(
                "this event has format version {v}, not {VERSION}"
            ))),
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
        let order = order(self.seq, self.after, self.n).ok_or_else(|| missing("seq"))?;
        let (kind, data) = (
            self.kind.ok_or_else(|| missing("kind"))?,
            self.data.ok_or_else(|| missing("data"))?,
        );
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
            run: self
                .run
                .map(|run| serde_json::from_str(run.get()))
                .transpose()?,
            trace: required(self.trace, "trace")?,
            kind: read_kind(name, kind, data)?,
        }))
    }
}

fn order(seq: Option<u64>, after: Option<u64>, n: Option<u32>) -> Option<Order> {
    match (seq, after, n) {
        (Some(seq), ..) => Some(Order::Durable { seq }),
        (None, Some(after), Some(n)) => Some(Order::Live { after, n }),
        _ => None,
    }
}

/// Hands the two raw values to the reader that serde derived for the enum.
fn read_kind(name: &str, kind: &RawValue, data: &RawValue) -> Result<EventKind, serde_json::Error> {
    let fields = [("kind", kind), ("data", data)];
    match EventKind::deserialize(MapDeserializer::new(fields.into_iter())) {
        Err(_) if !EventKind::is_known(name) => {
            let (kind, data) = (
                serde_json::from_str(kind.get())?,
                serde_json::from_str(data.get())?,
            );
            Ok(EventKind::Unknown(UnknownEvent { kind, data }))
        }
        read => read,
    }
}

fn required<T: DeserializeOwned>(
    value: Option<&RawValue>,
    field: &'static str,
) -> Result<T, serde_json::Error> {
    serde_json::from_str(value.ok_or_else(|| missing(field))?.get())
}

fn missing(field: &'static str) -> serde_json::Error {
    serde_json::Error::missing_field(field)
}
