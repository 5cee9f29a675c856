//! Books the calls of one meter: a queue of ended calls, the number of pending ones, consecutive failures of the model,
//! and the reason why no further call is served.
//!
//! A connection can be dropped at any await point, and a log entry must never be left half written. So connections only
//! add entries to the queue, and one task that is not dropped ([`BillingQueue::run`]) books them in order. Every call
//! adds exactly one entry, also when its connection is dropped.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use tokio::sync::Notify;
use windlass_core::budget::{Estimator, Price, Usage};
use windlass_core::event::EventKind;
use windlass_core::provider::{ProviderError, ProviderErrorKind};
use windlass_core::runtime::Hold;
use windlass_core::settlement::{CallEnd, CallRecord};
use windlass_core::store::StoreError;

use crate::endpoint::{Ledger, Trip};

/// Consecutive refusals by the model before it is not asked any more: agents repeat the same request.
const MAX_DECLINED: u32 = 3;
/// The most models whose token estimates are kept.
const MAX_MODELS: usize = 64;
/// The most rejected paths that are logged.
const MAX_REJECTED_PATHS: usize = 8;
/// Consecutive invalid-request errors before giving up.
const MAX_INVALID_REQUESTS: u32 = 32;

/// The queue and the state that connections share with the booking task.
#[derive(Debug, Default)]
pub(super) struct BillingQueue {
    state: Mutex<BillingState>,
    /// Wakes the booking task: there is an entry.
    added: Notify,
    /// An entry was booked and its reservation released.
    pub(super) booked: Notify,
    /// No further call is served.
    pub(super) stopped: Notify,
}

#[derive(Debug, Default)]
struct BillingState {
    entries: VecDeque<BillingEntry>,
    /// The booking task is working on an entry that it has removed from the queue.
    booking: bool,
    /// No further entries will follow.
    closed: bool,
    open: usize,
    usage: Usage,
    estimators: BTreeMap<String, Estimator>,
    /// The largest input plus output of one call, by model. A conversation that is stored at the vendor is no larger.
    contexts: BTreeMap<String, u64>,
    warned: BTreeSet<String>,
    rejected_paths: BTreeSet<String>,
    failures: u32,
    /// One of the failures was a call with tools.
    work_failed: bool,
    /// The error of the last failure.
    last_failure: Option<ProviderError>,
    answered: bool,
    /// A call with tools was made.
    with_tools: bool,
    /// Consecutive calls that the model refused.
    declined: u32,
    trip: Option<Trip>,
}

/// An entry of the queue.
#[derive(Debug)]
enum BillingEntry {
    /// A call that ended and has to be booked.
    Call(EndedCall),
    /// An event that has to be logged.
    Log(EventKind),
}

/// A call that ended.
#[derive(Debug)]
struct EndedCall {
    hold: Hold,
    model: String,
    price: Option<Price>,
    /// Its usage, and whether that is an estimate; `None` if it was not sent or the vendor did not answer.
    took: Option<(Usage, bool)>,
    /// The error, if the vendor broke off the answer.
    failed: Option<ProviderError>,
    /// The request had tools.
    tools: bool,
}

impl BillingQueue {
    /// Returns an upper bound of the tokens in this number of bytes.
    pub(super) fn tokens(&self, model: &str, bytes: usize) -> u64 {
        self.state
            .lock()
            .estimators
            .get(model)
            .copied()
            .unwrap_or_default()
            .tokens(bytes)
    }

    /// Returns the size of the largest conversation with a model so far, in tokens.
    pub(super) fn context(&self, model: &str) -> Option<u64> {
        self.state.lock().contexts.get(model).copied()
    }

    /// Registers a call with its reservation.
    pub(super) fn begin(
        self: &Arc<Self>,
        hold: Hold,
        model: &str,
        price: Option<Price>,
        record: CallRecord,
    ) -> MeteredCall {
        self.state.lock().open += 1;
        MeteredCall {
            billing: self.clone(),
            hold,
            model: model.to_owned(),
            price,
            record,
            learns: true,
            billed: false,
            tools: false,
            declined: false,
            over: false,
        }
    }

    /// Returns whether other calls hold a reservation.
    pub(super) fn has_pending(&self) -> bool {
        self.state.lock().open > 0
    }

    /// Returns whether every ended call is booked.
    pub(super) fn is_up_to_date(&self) -> bool {
        let state = self.state.lock();
        state.entries.is_empty() && !state.booking
    }

    /// Books entries until the queue is closed and empty.
    pub(super) async fn run(&self, ledger: Ledger<'_>) -> Result<(), StoreError> {
        loop {
            let entry = {
                let mut state = self.state.lock();
                let entry = state.entries.pop_front();
                state.booking = entry.is_some();
                if entry.is_none() && state.closed {
                    return Ok(());
                }
                entry
            };
            match entry {
                Some(BillingEntry::Call(ended)) => self.book(ledger, ended).await?,
                Some(BillingEntry::Log(kind)) => {
                    ledger.sink.emit(kind).await?;
                }
                None => {
                    self.booked.notify_waiters();
                    self.added.notified().await;
                }
            }
        }
    }

    /// Lets the booking task exit once the queue is drained.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.added.notify_one();
    }

    async fn book(&self, ledger: Ledger<'_>, ended: EndedCall) -> Result<(), StoreError> {
        let booked = match ended.took {
            Some((usage, estimated)) => {
                tracing::debug!(?usage, estimated, "model call: booked");
                self.state.lock().usage.add(usage);
                let account = ledger.account;
                account
                    .settle(usage, ended.price, estimated, &ended.model)
                    .await
            }
            None => Ok(()),
        };
        self.free(ledger, ended.hold);
        if let Some(err) = ended.failed {
            self.failed(&err, ended.tools);
        }
        booked
    }

    fn free(&self, ledger: Ledger<'_>, hold: Hold) {
        ledger.account.release(hold);
        let mut state = self.state.lock();
        state.open = state.open.saturating_sub(1);
        drop(state);
        self.booked.notify_waiters();
    }

    /// Counts a call that the vendor did not answer, or not completely. Returns whether it was one failure too many.
    pub(super) fn failed(&self, err: &ProviderError, tools: bool) -> bool {
        let mut state = self.state.lock();
        state.failures = state.failures.saturating_add(1);
        state.work_failed |= tools;
        state.last_failure = Some(err.clone());
        let (retries, wait) = err.kind.retry();
        let most = match &err.kind {
            // After such an error, agents send a different or a smaller request.
            ProviderErrorKind::InvalidRequest
            | ProviderErrorKind::ContextLength
            | ProviderErrorKind::Refused => MAX_INVALID_REQUESTS,
            // The agent also asked for a model that does not exist; another one works.
            ProviderErrorKind::ModelNotFound if state.answered => MAX_INVALID_REQUESTS,
            _ => retries,
        };
        if state.failures > most {
            state
                .trip
                .get_or_insert_with(|| Trip::Provider(err.clone()));
            self.stopped.notify_one();
            return true;
        }
        let attempt = state.failures.saturating_add(1);
        drop(state);
        if retries > 0 {
            let ms = wait.map_or(0, |wait| {
                u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)
            });
            let (reason, error) = (err.to_string(), err.kind.clone());
            self.log(EventKind::Waited {
                reason,
                error,
                ms,
                attempt,
            });
        }
        false
    }

    /// Returns the error of the vendor's last answer, if it failed.
    pub(super) fn failing(&self) -> Option<ProviderError> {
        self.state.lock().last_failure.clone()
    }

    /// Returns whether the model refused the last request for work.
    pub(super) fn declined(&self) -> bool {
        self.state.lock().declined > 0
    }

    /// Returns why no further call is served.
    pub(super) fn trip(&self) -> Option<Trip> {
        self.state.lock().trip.clone()
    }

    /// Stops serving calls. The first reason stays; returns it.
    pub(super) fn stop(&self, trip: Trip) -> Trip {
        tracing::info!("model calls: no more are served");
        self.stopped.notify_one();
        self.state.lock().trip.get_or_insert(trip).clone()
    }

    /// Resets the failures, so that a new iteration may make calls again.
    pub(super) fn reopen(&self) {
        let mut state = self.state.lock();
        (state.trip, state.failures, state.closed) = (None, 0, false);
        (state.with_tools, state.declined) = (false, 0);
        (state.work_failed, state.last_failure) = (false, None);
    }

    /// Queues an event for the log.
    pub(super) fn log(&self, kind: EventKind) {
        self.add(BillingEntry::Log(kind));
    }

    /// Queues a warning for the log.
    pub(super) fn warn(&self, code: &str, text: String) {
        let code = code.to_owned();
        self.log(EventKind::Warned { code, text });
    }

    /// Returns true once per name.
    pub(super) fn is_first_warning(&self, model: &str) -> bool {
        let mut state = self.state.lock();
        state.warned.len() < MAX_MODELS && state.warned.insert(model.to_owned())
    }

    /// Returns true once per path, and only for the first few paths.
    pub(super) fn is_new_rejected_path(&self, path: &str) -> bool {
        let mut state = self.state.lock();
        state.rejected_paths.len() < MAX_REJECTED_PATHS
            && state.rejected_paths.insert(path.to_owned())
    }

    /// Returns the usage since the last time this was called.
    pub(super) fn take_usage(&self) -> Usage {
        std::mem::take(&mut self.state.lock().usage)
    }

    fn add(&self, entry: BillingEntry) {
        self.state.lock().entries.push_back(entry);
        self.added.notify_one();
    }

    fn learn(&self, call: &MeteredCall, usage: Usage) {
        let mut state = self.state.lock();
        let model = &call.model;
        if state.contexts.len() >= MAX_MODELS && !state.contexts.contains_key(model) {
            return;
        }
        let size = usage.total_input().saturating_add(usage.output);
        let context = state.contexts.entry(model.clone()).or_default();
        *context = size.max(*context);
        if let Some(reported) = call.record.reported_input().filter(|_| call.learns) {
            let estimator = state.estimators.entry(model.clone()).or_default();
            estimator.correct(call.record.sent, reported);
        }
    }
}

/// A call in progress. It is booked exactly once, however it ends.
#[derive(Debug)]
pub(super) struct MeteredCall {
    billing: Arc<BillingQueue>,
    hold: Hold,
    model: String,
    price: Option<Price>,
    /// The reservation, the count of the answer so far, and the vendor's last report.
    pub(super) record: CallRecord,
    /// The request contained the whole input, so the vendor's report tells how many tokens its bytes have.
    pub(super) learns: bool,
    /// The request was sent, so it may cost something.
    pub(super) billed: bool,
    /// The request has tools.
    pub(super) tools: bool,
    /// The model, or a filter of the vendor, refused.
    pub(super) declined: bool,
    over: bool,
}

impl MeteredCall {
    /// Returns how many output tokens are reserved.
    pub(super) fn output(&self) -> u64 {
        self.hold.output
    }

    /// Returns whether the answer is certainly longer than was reserved for it.
    pub(super) fn is_too_long(&self) -> bool {
        self.record.received.passes(self.hold.output)
    }

    /// Ends the call with a complete answer.
    pub(super) fn complete(&mut self) {
        if self.over {
            return;
        }
        {
            let mut state = self.billing.state.lock();
            state.answered = true;
            // A side request, such as one for a title, says nothing about the calls that do the work.
            if self.tools || !state.work_failed {
                (state.failures, state.work_failed, state.last_failure) = (0, false, None);
            }
            if self.tools || !state.with_tools {
                state.declined = if self.declined {
                    state.declined.saturating_add(1)
                } else {
                    0
                };
                if state.declined >= MAX_DECLINED {
                    state.trip.get_or_insert(Trip::Declined);
                    self.billing.stopped.notify_one();
                }
            }
            state.with_tools |= self.tools;
        }
        self.billing
            .learn(self, self.record.settle(CallEnd::Complete).0);
        self.end(CallEnd::Complete, None);
    }

    /// Ends the call; `failed` is the error if the vendor broke it off. Only the first end has an effect.
    pub(super) fn end(&mut self, end: CallEnd, failed: Option<ProviderError>) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        let took = self.record.settle(end);
        self.billing.add(BillingEntry::Call(EndedCall {
            hold: self.hold,
            model: std::mem::take(&mut self.model),
            price: self.price,
            took: Some(took).filter(|_| self.billed),
            failed,
            tools: self.tools,
        }));
    }
}

impl Drop for MeteredCall {
    fn drop(&mut self) {
        self.end(CallEnd::Unknown, None);
    }
}
