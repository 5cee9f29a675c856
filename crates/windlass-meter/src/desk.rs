//! The books of one meter between its calls: what ended and is not yet booked, what is still under way, how often the
//! model failed in a row, and why nothing more is served. Each call reports its end exactly once, also when its
//! connection is dropped. A connection may be dropped at any moment and an entry in the log must never be left half
//! way, so connections only write notes, and one clerk who is not dropped books them in their order.

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

/// How often a model may decline before it is not asked any more: agents try the same again.
const MAX_DECLINED: u32 = 3;
/// Models whose way of counting is remembered.
const MAX_KNOWN: usize = 64;
/// Paths that are said to be none of ours.
const MAX_TURNED_AWAY: usize = 8;
/// Requests in a row that the vendor calls wrong, before nobody believes any more that the next one is better.
const MAX_WRONG: u32 = 32;

/// See above.
#[derive(Debug, Default)]
pub(super) struct Desk {
    state: Mutex<State>,
    /// Something is to be booked.
    noted: Notify,
    /// Something was booked, and what it held is free.
    pub(super) booked: Notify,
    /// Nothing more is served.
    pub(super) stopped: Notify,
}

#[derive(Debug, Default)]
struct State {
    notes: VecDeque<Note>,
    /// The clerk has taken a note and is not done with it.
    booking: bool,
    /// No further notes follow.
    closed: bool,
    open: usize,
    usage: Usage,
    estimators: BTreeMap<String, Estimator>,
    /// The most input and output of one call of each model: what a vendor keeps of a conversation is not larger.
    contexts: BTreeMap<String, u64>,
    warned: BTreeSet<String>,
    turned_away: BTreeSet<String>,
    failures: u32,
    /// One of them was a call with tools.
    work_failed: bool,
    /// The last of them.
    last_failure: Option<ProviderError>,
    answered: bool,
    /// A model was given tools.
    with_tools: bool,
    /// How often in a row it declined when it was asked for work.
    declined: u32,
    trip: Option<Trip>,
}

/// What the clerk has to do.
#[derive(Debug)]
enum Note {
    /// Book a call.
    Ended(Ended),
    /// Say something in the log.
    Say(EventKind),
}

/// A call that is over.
#[derive(Debug)]
struct Ended {
    hold: Hold,
    model: String,
    price: Option<Price>,
    /// What it took, and whether that is an estimate; `None` where nothing was sent or the vendor did not answer.
    took: Option<(Usage, bool)>,
    /// How the answer broke off, where the vendor did it.
    failed: Option<ProviderError>,
    /// Its model got tools.
    tools: bool,
}

impl Desk {
    /// An upper bound of the tokens in so many bytes for a model.
    pub(super) fn tokens(&self, model: &str, bytes: usize) -> u64 {
        self.state
            .lock()
            .estimators
            .get(model)
            .copied()
            .unwrap_or_default()
            .tokens(bytes)
    }

    /// The largest conversation with a model so far, in tokens.
    pub(super) fn context(&self, model: &str) -> Option<u64> {
        self.state.lock().contexts.get(model).copied()
    }

    /// Begins a call that holds its part of the account.
    pub(super) fn open(
        self: &Arc<Self>,
        hold: Hold,
        model: &str,
        price: Option<Price>,
        record: CallRecord,
    ) -> Call {
        self.state.lock().open += 1;
        Call {
            desk: self.clone(),
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

    /// Whether other calls hold a part of the account.
    pub(super) fn busy(&self) -> bool {
        self.state.lock().open > 0
    }

    /// Whether everything that ended is booked.
    pub(super) fn is_up_to_date(&self) -> bool {
        let state = self.state.lock();
        state.notes.is_empty() && !state.booking
    }

    /// Books what is noted, until it is closed and nothing is left.
    pub(super) async fn clerk(&self, ledger: Ledger<'_>) -> Result<(), StoreError> {
        loop {
            let note = {
                let mut state = self.state.lock();
                let note = state.notes.pop_front();
                state.booking = note.is_some();
                if note.is_none() && state.closed {
                    return Ok(());
                }
                note
            };
            match note {
                Some(Note::Ended(ended)) => self.book(ledger, ended).await?,
                Some(Note::Say(kind)) => {
                    ledger.outlet.emit(kind).await?;
                }
                None => {
                    self.booked.notify_waiters();
                    self.noted.notified().await;
                }
            }
        }
    }

    /// The clerk may go home when everything is booked.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.noted.notify_one();
    }

    async fn book(&self, ledger: Ledger<'_>, ended: Ended) -> Result<(), StoreError> {
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

    /// The vendor did not answer a call, with `tools` or without, or not to the end. Whether this was once too often.
    pub(super) fn failed(&self, err: &ProviderError, tools: bool) -> bool {
        let mut state = self.state.lock();
        state.failures = state.failures.saturating_add(1);
        state.work_failed |= tools;
        state.last_failure = Some(err.clone());
        let (retries, wait) = err.kind.retry();
        let most = match &err.kind {
            // Agents ask differently, or for less, after such an answer.
            ProviderErrorKind::InvalidRequest
            | ProviderErrorKind::ContextLength
            | ProviderErrorKind::Refused => MAX_WRONG,
            // A model beside the one that works.
            ProviderErrorKind::ModelNotFound if state.answered => MAX_WRONG,
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
            self.say(EventKind::Waited {
                reason,
                error,
                ms,
                attempt,
            });
        }
        false
    }

    /// What the last answer of the vendor failed with, if it did.
    pub(super) fn failing(&self) -> Option<ProviderError> {
        self.state.lock().last_failure.clone()
    }

    /// Whether the model declined the last time it was asked for work.
    pub(super) fn declined(&self) -> bool {
        self.state.lock().declined > 0
    }

    /// Why nothing more is served.
    pub(super) fn trip(&self) -> Option<Trip> {
        self.state.lock().trip.clone()
    }

    /// Nothing more is served. The first reason stands.
    pub(super) fn stop(&self, trip: Trip) -> Trip {
        tracing::info!("model calls: no more are served");
        self.stopped.notify_one();
        self.state.lock().trip.get_or_insert(trip).clone()
    }

    /// A new try may ask again.
    pub(super) fn reopen(&self) {
        let mut state = self.state.lock();
        (state.trip, state.failures, state.closed) = (None, 0, false);
        (state.with_tools, state.declined) = (false, 0);
        (state.work_failed, state.last_failure) = (false, None);
    }

    /// Says something in the log, soon.
    pub(super) fn say(&self, kind: EventKind) {
        self.note(Note::Say(kind));
    }

    /// Warns in the log.
    pub(super) fn warn(&self, code: &str, text: String) {
        let code = code.to_owned();
        self.say(EventKind::Warned { code, text });
    }

    /// True once for each model.
    pub(super) fn warn_once(&self, model: &str) -> bool {
        let mut state = self.state.lock();
        state.warned.len() < MAX_KNOWN && state.warned.insert(model.to_owned())
    }

    /// True once for each path, and for the first few only.
    pub(super) fn turned_away_first(&self, path: &str) -> bool {
        let mut state = self.state.lock();
        state.turned_away.len() < MAX_TURNED_AWAY && state.turned_away.insert(path.to_owned())
    }

    /// What went through since somebody last asked.
    pub(super) fn take_usage(&self) -> Usage {
        std::mem::take(&mut self.state.lock().usage)
    }

    fn note(&self, note: Note) {
        self.state.lock().notes.push_back(note);
        self.noted.notify_one();
    }

    fn learn(&self, call: &Call, usage: Usage) {
        let mut state = self.state.lock();
        let model = &call.model;
        if state.contexts.len() >= MAX_KNOWN && !state.contexts.contains_key(model) {
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

/// A call under way. However it ends, its end is written down once.
#[derive(Debug)]
pub(super) struct Call {
    desk: Arc<Desk>,
    hold: Hold,
    model: String,
    price: Option<Price>,
    /// The reservation, our count of the answer so far, and the vendor's last report.
    pub(super) record: CallRecord,
    /// All of its input was sent with it, so that its report says how many tokens our bytes have.
    pub(super) learns: bool,
    /// It is on its way or was answered, so it counts.
    pub(super) billed: bool,
    /// Its model got tools.
    pub(super) tools: bool,
    /// Its model, or a filter of the vendor, declined.
    pub(super) declined: bool,
    over: bool,
}

impl Call {
    /// How many tokens it may produce.
    pub(super) fn output(&self) -> u64 {
        self.hold.output
    }

    /// The answer is certainly longer than was reserved for it.
    pub(super) fn is_too_long(&self) -> bool {
        self.record.received.passes(self.hold.output)
    }

    /// The answer is whole.
    pub(super) fn complete(&mut self) {
        if self.over {
            return;
        }
        {
            let mut state = self.desk.state.lock();
            state.answered = true;
            // A call beside the work, such as one for a title, says nothing of the calls that do the work.
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
                    self.desk.stopped.notify_one();
                }
            }
            state.with_tools |= self.tools;
        }
        self.desk
            .learn(self, self.record.settle(CallEnd::Complete).0);
        self.end(CallEnd::Complete, None);
    }

    /// The call is over; `failed` says how the vendor broke it off. Only the first end counts.
    pub(super) fn end(&mut self, end: CallEnd, failed: Option<ProviderError>) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        let took = self.record.settle(end);
        self.desk.note(Note::Ended(Ended {
            hold: self.hold,
            model: std::mem::take(&mut self.model),
            price: self.price,
            took: Some(took).filter(|_| self.billed),
            failed,
            tools: self.tools,
        }));
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.end(CallEnd::Unknown, None);
    }
}
