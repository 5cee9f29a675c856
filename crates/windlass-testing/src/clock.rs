//! A clock that tests move by hand.

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use windlass_core::BoxFuture;
use windlass_core::clock::{Clock, Timestamp};

/// A clock whose time moves only by [`ManualClock::advance`]; its random numbers are a counter. Clones share the time.
#[derive(Clone, Default)]
pub struct ManualClock(Arc<Mutex<ManualClockState>>);

#[derive(Default)]
struct ManualClockState {
    now: Duration,
    drawn: u64,
    sleepers: Vec<(Duration, oneshot::Sender<()>)>,
}

impl ManualClock {
    /// Moves the time forward and wakes the tasks that slept until then.
    pub fn advance(&self, by: Duration) {
        let mut state = self.lock();
        state.now += by;
        let now = state.now;
        for at in (0..state.sleepers.len()).rev() {
            if state.sleepers[at].0 <= now {
                let _ = state.sleepers.swap_remove(at).1.send(());
            }
        }
    }

    /// Moves the time to the end of the next sleep; returns false if no task sleeps.
    pub fn advance_to_next(&self) -> bool {
        let next = {
            let mut state = self.lock();
            state.sleepers.retain(|(_, wake)| !wake.is_closed());
            let now = state.now;
            state
                .sleepers
                .iter()
                .map(|(at, _)| at.saturating_sub(now))
                .min()
        };
        match next {
            Some(by) => self.advance(by),
            None => return false,
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, ManualClockState> {
        self.0.lock()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        // 2026-11-15T00:00:00Z, plus the advanced time.
        let millis = i64::try_from(self.lock().now.as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millis(1_794_700_800_000_i64.saturating_add(millis))
    }

    fn monotonic(&self) -> Duration {
        self.lock().now
    }

    fn sleep(&self, how_long: Duration) -> BoxFuture<'_, ()> {
        let (wake, woken) = oneshot::channel();
        let mut state = self.lock();
        let at = state.now + how_long;
        state.sleepers.push((at, wake));
        Box::pin(async move {
            let _ = woken.await;
        })
    }

    fn entropy(&self) -> u64 {
        let mut state = self.lock();
        state.drawn += 1;
        state.drawn
    }
}
