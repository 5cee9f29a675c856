//! A reader of the events of one session: first those of the log, then those that happen. Every durable event arrives exactly
//! once and in order. Live events that a slow reader misses are counted and reported as a gap.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::StreamExt;
use windlass::core::event::Order;
use windlass::core::id::SessionId;
use windlass::core::store::SessionStore;
use windlass::machine::SessionLog;

use crate::host::SessionHost;
use crate::live::{Follower, SessionEvents};
use crate::problem::Problem;
use crate::ring::{EventLine, RingPosition, RingRead};

/// The number of events that are read from the log at once.
const BATCH: usize = 128;

/// An item of an event stream.
#[derive(Debug, Clone)]
pub enum FeedItem {
    Event(EventLine),
    /// This number of live events was lost, because the reader was too slow. Durable events are never lost.
    Gap {
        live_lost: u64,
    },
}

/// Reads the events of a session from a sequence number on.
pub struct EventReader {
    store: Arc<SessionLog>,
    session: SessionId,
    events: Arc<SessionEvents>,
    /// The number of the last durable event that was delivered.
    after: u64,
    /// The position in the ring. It never moves back, so that no live event is delivered twice.
    at: RingPosition,
    /// The log may have events after `after` that the ring does not have.
    catching_up: bool,
    batch: VecDeque<EventLine>,
    /// A live event that waits until the durable events before it are delivered.
    held: Option<EventLine>,
    live: bool,
    _follower: Follower,
    /// Keeps the session known to the service while there are readers.
    _host: Option<Arc<SessionHost>>,
}

impl EventReader {
    pub(crate) fn new(
        store: Arc<SessionLog>,
        session: SessionId,
        events: Arc<SessionEvents>,
        after: u64,
        live: bool,
    ) -> Self {
        let follower = events.follow();
        // Take the position before the log is read, so that nothing between the two is missed.
        let at = events.ring.start();
        Self {
            store,
            session,
            events,
            after,
            at,
            catching_up: true,
            batch: VecDeque::new(),
            held: None,
            live,
            _follower: follower,
            _host: None,
        }
    }

    pub(crate) fn keeping(mut self, host: Arc<SessionHost>) -> Self {
        self._host = Some(host);
        self
    }

    /// The number of the last durable event that was delivered.
    #[must_use]
    pub fn after(&self) -> u64 {
        self.after
    }

    /// Waits for the next item. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<FeedItem, Problem> {
        loop {
            if let Some(line) = self.batch.pop_front() {
                self.after = line.order.seq().unwrap_or(self.after);
                return Ok(FeedItem::Event(line));
            }
            if self.catching_up {
                self.catch_up().await?;
                continue;
            }
            if let Some(held) = self.held.take()
                && self.is_next(&held)
            {
                return Ok(FeedItem::Event(held));
            }
            match self.events.ring.read(&mut self.at) {
                RingRead::Line(line) => {
                    if let Some(line) = self.accept(line) {
                        return Ok(FeedItem::Event(line));
                    }
                }
                RingRead::Behind { live_lost } => {
                    self.catching_up = true;
                    if self.live && live_lost > 0 {
                        return Ok(FeedItem::Gap { live_lost });
                    }
                }
                RingRead::Empty => {
                    self.events.ring.changed(&mut self.at).await;
                    // A change without a line means that the log has events which no run of this process showed.
                    let mut peek = self.at;
                    self.catching_up = matches!(self.events.ring.read(&mut peek), RingRead::Empty);
                }
            }
        }
    }

    /// Reads the next events of the log, until there are none.
    async fn catch_up(&mut self) -> Result<(), Problem> {
        let mut events = self.store.read(&self.session, self.after + 1);
        while self.batch.len() < BATCH
            && let Some(event) = events.next().await
        {
            self.batch.push_back(EventLine::of(&event?));
        }
        self.catching_up = !self.batch.is_empty();
        Ok(())
    }

    fn is_next(&self, line: &EventLine) -> bool {
        match line.order {
            Order::Durable { seq } => seq == self.after + 1,
            Order::Live { after, .. } => after == self.after,
        }
    }

    /// The line, if it is the next one. Lines that were delivered from the log are skipped.
    fn accept(&mut self, line: EventLine) -> Option<EventLine> {
        match line.order {
            Order::Durable { seq } if seq <= self.after => None,
            Order::Durable { seq } if seq == self.after + 1 => {
                self.after = seq;
                Some(line)
            }
            Order::Durable { .. } => {
                // Events in between were written without the ring; the log has them.
                self.catching_up = true;
                None
            }
            Order::Live { .. } if !self.live => None,
            Order::Live { after, .. } if after < self.after => None,
            Order::Live { after, .. } if after == self.after => Some(line),
            Order::Live { .. } => {
                self.held = Some(line);
                self.catching_up = true;
                None
            }
        }
    }
}
