//! Reads server-sent events as a client of the server does: the number and the JSON of each event.

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use serde_json::Value;

/// Maximum size of one event in bytes.
const MAX_EVENT: usize = 16 << 20;

/// One event.
#[derive(Debug, PartialEq)]
pub struct SentEvent {
    /// The number of a durable event.
    pub id: Option<u64>,
    /// Null for events without data.
    pub data: Value,
}

/// Splits a stream of bytes into events.
pub struct EventStreamParser {
    from: BoxStream<'static, reqwest::Result<Bytes>>,
    rest: Vec<u8>,
    /// The part of `rest` that was searched already.
    searched: usize,
}

impl EventStreamParser {
    /// Reads events from the body of a reply.
    #[must_use]
    pub fn new(from: BoxStream<'static, reqwest::Result<Bytes>>) -> Self {
        Self {
            from,
            rest: Vec::new(),
            searched: 0,
        }
    }

    /// The next event; `None` at the end of the stream.
    pub async fn next(&mut self) -> Result<Option<SentEvent>> {
        loop {
            let begin = self.searched.saturating_sub(1);
            if let Some(end) = self.rest[begin..]
                .windows(2)
                .position(|pair| pair == b"\n\n")
            {
                let rest = self.rest.split_off(begin + end + 2);
                let block = std::mem::replace(&mut self.rest, rest);
                self.searched = 0;
                return parse(&block).map(Some);
            }
            self.searched = self.rest.len();
            ensure!(self.rest.len() < MAX_EVENT, "an event is too long");
            let Some(bytes) = self.from.next().await else {
                return Ok(None);
            };
            self.rest.extend_from_slice(&bytes?);
        }
    }
}

fn parse(block: &[u8]) -> Result<SentEvent> {
    let mut event = SentEvent {
        id: None,
        data: Value::Null,
    };
    for line in std::str::from_utf8(block)?.lines() {
        match line.split_once(": ") {
            Some(("id", id)) => event.id = Some(id.parse()?),
            Some(("data", data)) => {
                event.data = serde_json::from_str(data).context("an event is not JSON")?;
            }
            _ => {}
        }
    }
    Ok(event)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_across_pieces() {
        let text = b"retry: 2000\n\nid: 7\ndata: {\"a\":1}\n\n: still here\n\ndata: 2\n\n";
        let pieces: Vec<_> = text
            .chunks(3)
            .map(|piece| Ok(Bytes::copy_from_slice(piece)))
            .collect();
        let mut parser = EventStreamParser::new(futures_util::stream::iter(pieces).boxed());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let mut read = Vec::new();
        while let Some(event) = runtime.block_on(parser.next()).unwrap() {
            read.push((event.id, event.data));
        }
        let expect = [
            (None, Value::Null),
            (Some(7), serde_json::json!({"a": 1})),
            (None, Value::Null),
            (None, serde_json::json!(2)),
        ];
        assert_eq!(read, expect);
    }
}
