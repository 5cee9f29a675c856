//! Delivers notifications in the background: a bounded queue, a few deliveries at a time, and retries with growing pauses.
//!
//! ```
//! use std::time::Duration;
//!
//! use windlass::Notices;
//! use windlass::notifications::Notifier;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let notifier: Notifier = Notifier::start(Notices::default());
//! assert!(notifier.flush(Duration::from_secs(1)).await, "nothing was sent");
//! # }
//! ```

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};
use windlass_host::clock::random_u64;
use windlass_host::user_command::run_user_command;

use super::UserCommand;
use super::webhook::Webhook;
use crate::notices::Notices;

/// Maximum number of notifications that wait.
const MAX_WAITING: usize = 1_000;
/// Maximum number of deliveries at the same time.
const MAX_CONCURRENT: usize = 8;
/// Attempts after the first one.
const RETRIES: u32 = 5;
/// The pause before the first retry; each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
/// Time limit of the command of the user.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);

/// One notification for one recipient.
pub(super) enum QueuedDelivery {
    Webhook {
        webhook: Arc<Webhook>,
        id: String,
        body: Arc<[u8]>,
    },
    Command {
        command: Arc<UserCommand>,
        body: Arc<[u8]>,
    },
}

/// Sends notifications in the background. Clones share the queue. Dropping the last one ends the deliveries.
#[derive(Clone)]
pub struct Notifier {
    state: Arc<NotifierState>,
    _task: Arc<DeliveryTask>,
}

struct NotifierState {
    queue: Mutex<DeliveryQueue>,
    wake: Notify,
    notices: Notices,
    first_pause: Duration,
}

#[derive(Default)]
struct DeliveryQueue {
    waiting: VecDeque<QueuedDelivery>,
    in_progress: usize,
    /// The queue was full, and this was reported.
    full: bool,
}

struct DeliveryTask(JoinHandle<()>);

impl Drop for DeliveryTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Notifier {
    /// Starts deliveries on the tokio runtime of the caller. Failed deliveries are reported to `notices`.
    #[must_use]
    pub fn start(notices: Notices) -> Self {
        Self::with_pause(notices, FIRST_PAUSE)
    }

    pub(super) fn with_pause(notices: Notices, first_pause: Duration) -> Self {
        let state = Arc::new(NotifierState {
            queue: Mutex::default(),
            wake: Notify::new(),
            notices,
            first_pause,
        });
        let task = tokio::spawn(deliver_all(state.clone()));
        Self {
            state,
            _task: Arc::new(DeliveryTask(task)),
        }
    }

    /// Adds a delivery to the queue. If the queue is full, the oldest one is dropped.
    pub(super) fn push(&self, delivery: QueuedDelivery) {
        let mut queue = self.state.queue.lock();
        let overflows = queue.waiting.len() >= MAX_WAITING;
        if overflows {
            queue.waiting.pop_front();
        }
        queue.waiting.push_back(delivery);
        let report = overflows && !std::mem::replace(&mut queue.full, overflows);
        queue.full = overflows;
        drop(queue);
        if report {
            self.state.notices.warn(&format!(
                "{MAX_WAITING} notifications wait for their delivery; the oldest ones are dropped"
            ));
        }
        self.state.wake.notify_one();
    }

    /// Waits until all notifications are delivered, for at most `limit`. Returns whether none is left.
    pub async fn flush(&self, limit: Duration) -> bool {
        let idle = async {
            while !self.state.queue.lock().is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(limit, idle).await.is_ok()
    }
}

impl DeliveryQueue {
    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.in_progress == 0
    }
}

async fn deliver_all(state: Arc<NotifierState>) {
    let mut running = JoinSet::new();
    loop {
        while running.len() < MAX_CONCURRENT
            && let Some(delivery) = state.take()
        {
            let state = state.clone();
            running.spawn(async move { state.deliver(&delivery).await });
        }
        tokio::select! {
            () = state.wake.notified() => {}
            Some(_) = running.join_next() => state.queue.lock().in_progress -= 1,
        }
    }
}

impl NotifierState {
    fn take(&self) -> Option<QueuedDelivery> {
        let mut queue = self.queue.lock();
        let next = queue.waiting.pop_front()?;
        queue.in_progress += 1;
        Some(next)
    }

    async fn deliver(&self, delivery: &QueuedDelivery) {
        match delivery {
            QueuedDelivery::Webhook { webhook, id, body } => self.send(webhook, id, body).await,
            QueuedDelivery::Command { command, body } => {
                let UserCommand { line, env, dir } = &**command;
                let ran = run_user_command(line, env.clone(), dir, body, COMMAND_TIMEOUT).await;
                if let Err(why) = ran {
                    self.notices
                        .warn(&format!("`notify.command` failed: {why}"));
                }
            }
        }
    }

    async fn send(&self, webhook: &Webhook, id: &str, body: &[u8]) {
        let mut retries = 0;
        loop {
            let error = match webhook.send(id, body).await {
                Ok(()) => return,
                Err(error) => error,
            };
            if !error.retry || retries == RETRIES {
                let (name, why) = (&webhook.name, error.message);
                self.notices.warn(&format!(
                    "the webhook `{name}` did not get the notification {id}: {why}"
                ));
                return;
            }
            tokio::time::sleep(pause(self.first_pause, retries, random_u64())).await;
            retries += 1;
        }
    }
}

/// The pause before a retry: twice as long each time, and up to half longer or shorter, so that many servers do not retry at
/// the same moment.
fn pause(first: Duration, retries: u32, random: u64) -> Duration {
    let share = 0.5 + (random % 1_000) as f64 / 1_000.0;
    first.saturating_mul(1 << retries).mul_f64(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_differ() {
        let at = |retries, random| pause(Duration::from_secs(2), retries, random).as_millis();
        assert_eq!([at(0, 0), at(0, 500), at(0, 999)], [1_000, 2_000, 2_998]);
        assert_eq!([at(1, 500), at(4, 500)], [4_000, 32_000]);
    }
}
