//! The events of all sessions that a caller can see, for dashboards. It shows what happens from now on; a client reads the
//! list of sessions first, and again after a gap.

use std::collections::HashMap;
use std::sync::Arc;

use windlass::core::id::SessionId;

use crate::access::Caller;
use crate::live::{Follower, SessionEvents};
use crate::reader::FeedItem;
use crate::ring::{RingPosition, RingRead};
use crate::service::Service;

/// Maximum number of sessions whose visibility is remembered.
const MAX_REMEMBERED: usize = 10_000;

/// Follows the events of all sessions.
pub struct SessionFeed {
    service: Service,
    caller: Caller,
    events: Arc<SessionEvents>,
    at: RingPosition,
    visible: HashMap<SessionId, bool>,
    _follower: Follower,
}

impl Service {
    /// Follows the events of all sessions that the caller can see, from now on.
    #[must_use]
    pub fn feed(&self, caller: &Caller) -> SessionFeed {
        let events = self.0.feed.clone();
        let follower = events.follow();
        SessionFeed {
            service: self.clone(),
            caller: caller.clone(),
            at: events.ring.end(),
            events,
            visible: HashMap::new(),
            _follower: follower,
        }
    }
}

impl SessionFeed {
    /// Waits for the next item. Dropping the future loses nothing.
    pub async fn next(&mut self) -> FeedItem {
        loop {
            match self.events.ring.read(&mut self.at) {
                RingRead::Line(line) => {
                    if self.shows(line.session()).await {
                        return FeedItem::Event(line);
                    }
                }
                RingRead::Behind { live_lost } => return FeedItem::Gap { live_lost },
                RingRead::Empty => self.events.ring.changed(&mut self.at).await,
            }
        }
    }

    async fn shows(&mut self, session: &SessionId) -> bool {
        if let Some(visible) = self.visible.get(session) {
            return *visible;
        }
        let visible = self.service.host(&self.caller, session).await.is_ok();
        if self.visible.len() >= MAX_REMEMBERED {
            self.visible.clear();
        }
        self.visible.insert(session.clone(), visible);
        visible
    }
}
