//! A line of JSON as an event, or only as far as somebody wants it: the envelope first, then what the kind needs.
//! Fields may come in any order; in the order we write them nothing is read twice.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use super::{Event, EventKind, Order, VERSION};
use crate::id::IdError;
use crate::tagged::{self, Early, Rest, Tagged, Word};

/// One line of a log.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "one lives at a time; a box for each event costs more than the room")]
pub enum Line {
    /// The event.
    Event(Event),
    /// An event of a kind that nobody wants: whole, but not built.
    Passed(Order),
    /// It is of a newer version, whatever else it is.
    Newer(u64),
}

/// Reads one line as far as its kind, by its name in the log, is wanted.
pub fn read_line(line: &str, wanted: impl Fn(&str) -> bool) -> Result<Line, serde_json::Error> {
    let mut json = serde_json::Deserializer::from_str(line);
    let line = json.deserialize_map(Reading { wanted, newest: u64::from(VERSION) })?;
    json.end()?;
    Ok(line)
}

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        match de.deserialize_map(Reading { wanted: |_: &str| true, newest: u64::MAX })? {
            Line::Event(event) => Ok(event),
            Line::Passed(_) | Line::Newer(_) => Err(D::Error::custom("this is not an event")),
        }
    }
}

impl Tagged for EventKind {
    const TAG: &'static str = "kind";
    fn read_variant<'de, D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        Self::deserialize(de)
    }
    fn write_variant<S: Serializer>(&self, ser: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, ser)
    }
}

impl Serialize for EventKind {
    fn serialize<S: Serializer>(&self, ser: S) -> Result<S::Ok, S::Error> {
        tagged::write(self, ser)
    }
}

struct Reading<W> {
    wanted: W,
    newest: u64,
}

impl<'de, W: Fn(&str) -> bool> Visitor<'de> for Reading<W> {
    type Value = Line;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Line, M::Error> {
        let (mut head, mut early) = (Head::default(), Early::new());
        let name = loop {
            match map.next_key_seed(Word)? {
                Some(key) if key == EventKind::TAG => break Some(map.next_value_seed(Word)?),
                Some(key) => {
                    if !head.take(&key, &mut map)? {
                        early.push((key, map.next_value()?));
                    }
                }
                None => break None,
            }
        };
        let newer = head.v.filter(|v| *v > self.newest);
        let kind = match name {
            Some(name) if newer.is_none() && (self.wanted)(&name) => {
                let other = |key: &str, map: &mut M| head.take(key, map);
                Some(tagged::read_named::<EventKind, _>(name, Rest::new(early, map, other))?)
            }
            Some(_) => {
                while let Some(key) = map.next_key_seed(Word)? {
                    if !head.take(&key, &mut map)? {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                None
            }
            None if newer.is_none() => return Err(M::Error::missing_field(EventKind::TAG)),
            None => None,
        };
        // A version that comes last is looked at again.
        if let Some(v) = head.v.filter(|v| *v > self.newest) {
            return Ok(Line::Newer(v));
        }
        match kind {
            Some(kind) => head.event(kind).map(Line::Event),
            None => head.version().and_then(|_| head.order()).map(Line::Passed),
        }
    }
}

/// The envelope as it stands in the line. The texts are looked at when somebody wants the event.
#[derive(Default)]
struct Head<'de> {
    v: Option<u64>,
    seq: Option<u64>,
    after: Option<u64>,
    n: Option<u32>,
    at: Option<Cow<'de, str>>,
    session: Option<Cow<'de, str>>,
    run: Option<Option<Cow<'de, str>>>,
    trace: Option<Cow<'de, str>>,
}

impl<'de> Head<'de> {
    /// Takes a field that is of the envelope; false for any other.
    fn take<M: MapAccess<'de>>(&mut self, key: &str, map: &mut M) -> Result<bool, M::Error> {
        match key {
            "v" => put(&mut self.v, "v", map.next_value()?)?,
            "seq" => put(&mut self.seq, "seq", map.next_value()?)?,
            "after" => put(&mut self.after, "after", map.next_value()?)?,
            "n" => put(&mut self.n, "n", map.next_value()?)?,
            "at" => put(&mut self.at, "at", map.next_value_seed(Word)?)?,
            "session" => put(&mut self.session, "session", map.next_value_seed(Word)?)?,
            "run" => put(&mut self.run, "run", map.next_value_seed(PerhapsWord)?)?,
            "trace" => put(&mut self.trace, "trace", map.next_value_seed(Word)?)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn order<E: serde::de::Error>(&self) -> Result<Order, E> {
        match (self.seq, self.after, self.n) {
            (Some(seq), ..) => Ok(Order::Durable { seq }),
            (None, Some(after), Some(n)) => Ok(Order::Live { after, n }),
            _ => Err(E::missing_field("seq")),
        }
    }

    fn version<E: serde::de::Error>(&self) -> Result<u16, E> {
        let v = self.v.ok_or_else(|| E::missing_field("v"))?;
        u16::try_from(v).map_err(|_| E::custom(format!("there is no version {v}")))
    }

    fn event<E: serde::de::Error>(self, kind: EventKind) -> Result<Event, E> {
        let at = self.at.as_deref().ok_or_else(|| E::missing_field("at"))?;
        Ok(Event {
            v: self.version()?,
            order: self.order()?,
            at: at.parse().map_err(E::custom)?,
            session: id(self.session.as_deref(), "session")?,
            run: self.run.flatten().map(|run| run.parse().map_err(E::custom)).transpose()?,
            trace: id(self.trace.as_deref(), "trace")?,
            kind,
        })
    }
}

fn id<T: std::str::FromStr<Err = IdError>, E: serde::de::Error>(
    text: Option<&str>,
    field: &'static str,
) -> Result<T, E> {
    text.ok_or_else(|| E::missing_field(field))?.parse().map_err(E::custom)
}

fn put<T, E: serde::de::Error>(slot: &mut Option<T>, field: &'static str, value: T) -> Result<(), E> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(E::duplicate_field(field)),
    }
}

/// Text, or nothing.
struct PerhapsWord;

impl<'de> DeserializeSeed<'de> for PerhapsWord {
    type Value = Option<Cow<'de, str>>;
    fn deserialize<D: Deserializer<'de>>(self, de: D) -> Result<Self::Value, D::Error> {
        de.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for PerhapsWord {
    type Value = Option<Cow<'de, str>>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or null")
    }
    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_some<D: Deserializer<'de>>(self, de: D) -> Result<Self::Value, D::Error> {
        Word.deserialize(de).map(Some)
    }
}
