//! The latest events of one session or of all sessions, for readers that follow them. The ring is bounded: a reader that is
//! too slow falls out of it, reads the durable events from the log instead, and learns how many live events it lost. No
//! reader slows the writer.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::Notify;
use windlass::core::event::{Event, EventKind, Order};
use windlass::core::id::SessionId;

/// Maximum number of events in a ring.
const MAX_EVENTS: usize = 2_048;
/// Maximum size of the events in a ring, in bytes.
const MAX_BYTES: usize = 2 << 20;

/// An event for readers. Cloning is cheap. Its JSON is encoded once for all readers that need it; readers in the same process
/// take the event itself.
#[derive(Debug, Clone)]
pub struct EventLine {
    pub order: Order,
    content: Arc<LineContent>,
}

#[derive(Debug)]
struct LineContent {
    event: Event,
    json: OnceLock<String>,
    /// About the size of the JSON in bytes.
    size: usize,
}

/// The size of a live event without its text, in bytes.
const LIVE_BYTES: usize = 256;

impl EventLine {
    /// A line of an event.
    #[must_use]
    pub fn of(event: &Event) -> Self {
        let json = OnceLock::new();
        let size = match &event.kind {
            EventKind::Delta { text, .. } | EventKind::CallProgress { text, .. } => {
                LIVE_BYTES + text.len()
            }
            // The events of the log are few, and most of them have readers.
            _ => json.get_or_init(|| encode(event)).len(),
        };
        Self {
            order: event.order,
            content: Arc::new(LineContent {
                event: event.clone(),
                json,
                size,
            }),
        }
    }

    /// The event itself, for readers in this process.
    #[must_use]
    pub fn event(&self) -> &Event {
        &self.content.event
    }

    /// The session of the event.
    #[must_use]
    pub fn session(&self) -> &SessionId {
        &self.content.event.session
    }

    /// The event as JSON without a line end.
    #[must_use]
    pub fn json(&self) -> &str {
        let content = &self.content;
        content.json.get_or_init(|| encode(&content.event))
    }

    fn is_live(&self) -> bool {
        self.order.seq().is_none()
    }
}

/// Encoding cannot fail: every key of an event is a string.
fn encode(event: &Event) -> String {
    serde_json::to_string(event).unwrap_or_default()
}

/// A bounded queue of the latest events, which any number of readers follow.
#[derive(Default)]
pub(crate) struct EventRing {
    state: Mutex<RingState>,
    changed: Notify,
}

#[derive(Default)]
struct RingState {
    lines: VecDeque<EventLine>,
    bytes: usize,
    /// The position of the first line.
    first: u64,
    /// The number of live lines that were dropped from the front.
    live_dropped: u64,
    /// The number of live lines that were pushed.
    live_pushed: u64,
    /// Incremented on every change that is not a line, so that readers look again.
    touched: u64,
}

impl RingState {
    fn end(&self) -> u64 {
        self.first + self.lines.len() as u64
    }
}

/// A position in a ring.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RingPosition {
    /// The position of the next line.
    next: u64,
    /// The number of live lines before it.
    live: u64,
    touched: u64,
}

/// The result of reading a ring.
#[derive(Debug)]
pub(crate) enum RingRead {
    Line(EventLine),
    /// There is no further line yet.
    Empty,
    /// The reader was too slow: lines before the ring are gone, among them this number of live ones.
    Behind {
        live_lost: u64,
    },
}

impl EventRing {
    /// Adds a line and wakes the readers.
    pub(crate) fn push(&self, line: EventLine) {
        let mut state = self.state.lock();
        state.bytes += line.content.size;
        state.live_pushed += u64::from(line.is_live());
        state.lines.push_back(line);
        while state.lines.len() > MAX_EVENTS || (state.bytes > MAX_BYTES && state.lines.len() > 1) {
            let Some(dropped) = state.lines.pop_front() else {
                break;
            };
            state.bytes -= dropped.content.size;
            state.live_dropped += u64::from(dropped.is_live());
            state.first += 1;
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Wakes the readers without a line: the log or the state of the session changed.
    pub(crate) fn touch(&self) {
        self.state.lock().touched += 1;
        self.changed.notify_waiters();
    }

    /// Drops all lines, for a session without readers.
    pub(crate) fn clear(&self) {
        let mut state = self.state.lock();
        let (live, end) = (state.live_pushed, state.end());
        (state.live_dropped, state.first) = (live, end);
        state.lines = VecDeque::new();
        state.bytes = 0;
    }

    /// The position after the last line.
    pub(crate) fn end(&self) -> RingPosition {
        let state = self.state.lock();
        RingPosition {
            next: state.end(),
            live: state.live_pushed,
            touched: state.touched,
        }
    }

    /// The position of the first line.
    pub(crate) fn start(&self) -> RingPosition {
        let state = self.state.lock();
        RingPosition {
            next: state.first,
            live: state.live_dropped,
            touched: state.touched,
        }
    }

    /// Reads the line at a position and advances it. After [`RingRead::Behind`], the position is the start of the ring.
    pub(crate) fn read(&self, at: &mut RingPosition) -> RingRead {
        let state = self.state.lock();
        if at.next < state.first {
            let live_lost = state.live_dropped.saturating_sub(at.live);
            (at.next, at.live) = (state.first, state.live_dropped);
            return RingRead::Behind { live_lost };
        }
        let index = usize::try_from(at.next - state.first).unwrap_or(usize::MAX);
        match state.lines.get(index) {
            Some(line) => {
                at.next += 1;
                at.live += u64::from(line.is_live());
                RingRead::Line(line.clone())
            }
            None => RingRead::Empty,
        }
    }

    /// Returns when there is a line at the position, or the ring was touched since the last call.
    pub(crate) async fn changed(&self, at: &mut RingPosition) {
        loop {
            let mut notified = std::pin::pin!(self.changed.notified());
            // Register before the check, so that no change between the two is missed.
            notified.as_mut().enable();
            {
                let state = self.state.lock();
                if state.touched != at.touched {
                    at.touched = state.touched;
                    return;
                }
                if at.next < state.end() {
                    return;
                }
            }
            notified.await;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use windlass::core::clock::Timestamp;
    use windlass::core::event::{DeltaOf, VERSION};
    use windlass::core::id::TraceId;

    use super::*;

    fn line(seq: Option<u64>, n: u32) -> EventLine {
        line_with("x", seq, n)
    }

    fn line_with(text: &str, seq: Option<u64>, n: u32) -> EventLine {
        EventLine::of(&Event {
            v: VERSION,
            order: match seq {
                Some(seq) => Order::Durable { seq },
                None => Order::Live { after: 0, n },
            },
            at: Timestamp::from_millis(0),
            session: "s1".parse().unwrap(),
            run: None,
            trace: TraceId::fresh(0, 1),
            kind: EventKind::Delta {
                of: DeltaOf::Text,
                text: text.into(),
            },
        })
    }

    #[test]
    fn the_json_of_a_line_is_the_event() {
        let line = line(None, 3);
        let read: Event = serde_json::from_str(line.json()).unwrap();
        assert_eq!(&read, line.event());
    }

    #[test]
    fn a_slow_reader_learns_the_number_of_lost_live_events() {
        let ring = EventRing::default();
        let mut at = ring.end();
        ring.push(line(None, 1));
        assert!(matches!(ring.read(&mut at), RingRead::Line(_)));
        assert!(matches!(ring.read(&mut at), RingRead::Empty));
        for n in 0..MAX_EVENTS as u32 {
            ring.push(line(None, n));
        }
        for seq in 0..10 {
            ring.push(line(Some(seq), 0));
        }
        // Ten live lines were pushed out.
        let RingRead::Behind { live_lost } = ring.read(&mut at) else {
            panic!("the reader is behind")
        };
        assert_eq!(live_lost, 10);
        let mut read = 0;
        while let RingRead::Line(_) = ring.read(&mut at) {
            read += 1;
        }
        assert_eq!(read, MAX_EVENTS);
    }

    #[test]
    fn a_ring_is_bounded_in_bytes() {
        let ring = EventRing::default();
        let big = "x".repeat(MAX_BYTES / 2);
        for _ in 0..5 {
            ring.push(line_with(&big, None, 1));
        }
        assert!(ring.state.lock().bytes <= MAX_BYTES);
    }
}
