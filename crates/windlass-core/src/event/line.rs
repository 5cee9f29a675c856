//! Reads a line of JSON as an event. The envelope is parsed first, and the data only if the caller wants that kind:
//! most readers of a log want few of its events.

use std::borrow::Cow;
use std::ops::Deref;

use serde::de::value::{BorrowedStrDeserializer, MapAccessDeserializer, MapDeserializer};
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{Event, EventKind, Order, UnknownEvent, VERSION};

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
    if let Some(read) = read_ordered(line, &wanted) {
        return Ok(read);
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

/// Reads a line whose fields are in the order in which the engine writes them, without blanks: almost every line of a
/// log. The envelope needs no JSON parser then, and the data is parsed where it is. Returns `None` for other lines; the
/// caller reads those in any order and reports their errors.
fn read_ordered(line: &str, wanted: impl Fn(&str) -> bool) -> Option<Line> {
    let mut fields = OrderedFields(line.strip_prefix('{')?.strip_suffix('}')?);
    if fields.number("\"v\":")? != u64::from(VERSION) {
        return None;
    }
    let order = match fields.number(",\"seq\":") {
        Some(seq) => Order::Durable { seq },
        None => Order::Live {
            after: fields.number(",\"after\":")?,
            n: fields.number(",\"n\":")?.try_into().ok()?,
        },
    };
    let at = fields.text(",\"at\":\"")?;
    let session = fields.text(",\"session\":\"")?;
    let run = fields.text(",\"run\":\"");
    let trace = fields.text(",\"trace\":\"")?;
    let kind = fields.text(",\"kind\":\"")?;
    let mut data = serde_json::Deserializer::from_str(fields.0.strip_prefix(",\"data\":")?);
    let read = if wanted(kind) {
        let kind_and_data = KindAndData {
            kind: Some(kind),
            data: Some(&mut data),
        };
        Line::Event(Event {
            v: VERSION,
            order,
            at: at.parse().ok()?,
            session: session.parse().ok()?,
            run: run.map(str::parse).transpose().ok()?,
            trace: trace.parse().ok()?,
            kind: EventKind::deserialize(MapAccessDeserializer::new(kind_and_data)).ok()?,
        })
    } else {
        // The text of the ids is checked only if the event is read.
        IgnoredAny::deserialize(&mut data).ok()?;
        Line::Skipped(order)
    };
    data.end().ok()?;
    Some(read)
}

/// The rest of a line, from which fields are removed in order.
struct OrderedFields<'a>(&'a str);

impl<'a> OrderedFields<'a> {
    /// Removes a number that follows `name`.
    fn number(&mut self, name: &str) -> Option<u64> {
        let rest = self.0.strip_prefix(name)?;
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = rest.split_at(digits);
        // JSON allows no leading zeros.
        if number.len() > 1 && number.starts_with('0') {
            return None;
        }
        self.0 = rest;
        number.parse().ok()
    }

    /// Removes a text without escapes that follows `name`, which ends with its opening quote.
    fn text(&mut self, name: &str) -> Option<&'a str> {
        let (text, rest) = self.0.strip_prefix(name)?.split_once('"')?;
        if !text.bytes().all(|byte| byte >= b' ' && byte != b'\\') {
            return None;
        }
        self.0 = rest;
        Some(text)
    }
}

/// The kind of an event and its data, for the deserializer that serde derived for the kinds.
struct KindAndData<'a, D> {
    kind: Option<&'a str>,
    data: Option<D>,
}

impl<'de, D: Deserializer<'de>> MapAccess<'de> for KindAndData<'de, D> {
    type Error = D::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, D::Error> {
        let name = match (self.kind, &self.data) {
            (Some(_), _) => "kind",
            (None, Some(_)) => "data",
            (None, None) => return Ok(None),
        };
        seed.deserialize(BorrowedStrDeserializer::new(name))
            .map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, D::Error> {
        match self.kind.take() {
            Some(kind) => seed.deserialize(BorrowedStrDeserializer::new(kind)),
            None => {
                let data = self.data.take();
                seed.deserialize(data.ok_or_else(|| D::Error::missing_field("data"))?)
            }
        }
    }
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
