#![allow(clippy::unwrap_used)]

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

use windlass_core::ask::{Answer, Ask};
use windlass_core::budget::{Limit, Price, Spent, Usage};
use windlass_core::clock::Timestamp;
use windlass_core::context::CompactionCause;
use windlass_core::event::{Event, Order, VERSION};
use windlass_core::flags::SavedFlags;
use windlass_core::history::History;
use windlass_core::id::TraceId;
use windlass_core::message::Role;
use windlass_core::provider::{Chunk, ProviderError};
use windlass_core::runtime::{
    Capabilities, CompactionRequest, Hold, Job, Runtime, RuntimeError, Stop,
};
use windlass_core::{BoxFuture, BoxStream};

use super::*;
use crate::{NativeOptions, NativeRuntime};
use windlass_testing::{ManualClock, ScriptedProvider, says};

/// A log in memory that is only folded, and an account without limits.
#[derive(Default)]
struct FoldedLog {
    history: Mutex<History>,
    kinds: Mutex<Vec<EventKind>>,
}

impl FoldedLog {
    fn with_steps(steps: usize) -> Self {
        let log = Self::default();
        log.push(EventKind::RunStarted {
            prompt: Message::user("the task"),
            queued: None,
            flags: SavedFlags::default(),
        });
        for n in 0..steps {
            log.push(EventKind::said(Message::assistant(format!(
                "step {n} {}",
                "x".repeat(500)
            ))));
        }
        log
    }

    fn push(&self, kind: EventKind) -> u64 {
        let mut history = self.history.lock();
        let seq = history.last_seq() + 1;
        let (order, trace) = (Order::Durable { seq }, TraceId::fresh(1, 2));
        let at = Timestamp::from_millis(0);
        history.apply(&Event {
            v: VERSION,
            order,
            at,
            session: "s".parse().unwrap(),
            run: None,
            trace,
            kind: kind.clone(),
        });
        self.kinds.lock().push(kind);
        seq
    }

    fn roles(&self) -> Vec<Role> {
        self.history
            .lock()
            .entries()
            .iter()
            .map(|entry| entry.role)
            .collect()
    }

    fn last(&self) -> EventKind {
        self.kinds.lock().last().cloned().unwrap()
    }
}

impl EventSink for FoldedLog {
    fn emit(&self, kind: EventKind) -> BoxFuture<'_, Result<u64, StoreError>> {
        Box::pin(async move { Ok(self.push(kind)) })
    }
    fn show(&self, _: EventKind) {}
    fn watched(&self) -> bool {
        false
    }
    fn ask(&self, _: Ask) -> BoxFuture<'_, Result<Answer, StoreError>> {
        Box::pin(async { Ok(Answer::Unanswered) })
    }
    fn history(&self) -> Arc<Vec<Entry>> {
        self.history.lock().entries()
    }
    fn facts(&self) -> WorkRecord {
        self.history.lock().facts().clone()
    }
}

impl BudgetAccount for FoldedLog {
    fn elapsed(&self) -> Duration {
        Duration::ZERO
    }
    fn spent(&self) -> Spent {
        Spent::default()
    }
    fn exceeded(&self) -> Option<Limit> {
        None
    }
    fn admit(&self, _: u64, want: u64, _: Option<Price>) -> Result<u64, Limit> {
        Ok(want)
    }
    fn hold(&self, _: u64, want: u64, _: Option<Price>) -> Result<Hold, Limit> {
        Ok(Hold {
            id: 0,
            output: want,
        })
    }
    fn release(&self, _: Hold) {}
    fn settle<'a>(
        &'a self,
        _: Usage,
        _: Option<Price>,
        _: bool,
        _: &'a str,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async { Ok(()) })
    }
}

/// A runtime that does nothing.
struct IdleRuntime;

impl Runtime for IdleRuntime {
    fn name(&self) -> &str {
        "idle"
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities::NONE
    }
    fn run<'a>(&'a self, _: Job<'a>) -> BoxFuture<'a, Result<Stop, RuntimeError>> {
        Box::pin(async { Ok(Stop::Done) })
    }
}

async fn compact_session(runtime: &dyn Runtime, log: &FoldedLog, how: CompactionMode) -> bool {
    let (tools, cancel) = (ToolSet::default(), CancellationToken::new());
    runtime
        .compact(CompactionRequest {
            how,
            sink: log,
            account: log,
            tools: &tools,
            cancel,
        })
        .await
        .unwrap()
}

fn native() -> NativeRuntime {
    let provider = ScriptedProvider::new([]).with_summary(says("## Next\nthe model's own words"));
    NativeRuntime::new(
        Arc::new(provider),
        Arc::new(ManualClock::default()),
        NativeOptions::default(),
    )
}

#[tokio::test]
async fn every_runtime_compacts_between_runs() {
    for (runtime, words) in [
        (&IdleRuntime as &dyn Runtime, "As in the user's messages"),
        (&native(), "the model's own words"),
    ] {
        let log = FoldedLog::with_steps(10);
        assert!(compact_session(runtime, &log, CompactionMode::Last(2)).await);
        assert_eq!(
            log.roles(),
            [Role::User, Role::User, Role::Assistant, Role::Assistant]
        );
        let EventKind::Compacted { compaction } = log.last() else {
            panic!("{:?}", log.last())
        };
        assert!(compaction.summary.contains(words), "{}", compaction.summary);
        assert_eq!(compaction.by, Some(CompactionCause::Person));
        assert!(compact_session(runtime, &log, CompactionMode::Summary).await);
        assert_eq!(log.roles(), [Role::User, Role::User]);
        assert!(
            !compact_session(runtime, &log, CompactionMode::Summary).await,
            "there is nothing left to drop"
        );
    }
}

/// A model that never answers.
struct SilentModel;

impl Provider for SilentModel {
    fn name(&self) -> &str {
        "silent"
    }
    fn facts(&self, _: &str) -> ModelFacts {
        ModelFacts::default()
    }
    fn stream<'a>(&'a self, _: Request<'a>) -> BoxStream<'a, Result<Chunk, ProviderError>> {
        futures_util::stream::pending().boxed()
    }
}

#[tokio::test]
async fn cancelling_the_summary_changes_nothing() {
    let (log, cancel, facts) = (
        FoldedLog::with_steps(10),
        CancellationToken::new(),
        ModelFacts::default(),
    );
    let before = log.roles().len();
    let estimator = Estimator::default();
    let writer = SummaryWriter {
        provider: &SilentModel,
        model: "m",
        facts: &facts,
        estimator,
        account: &log,
        cancel: &cancel,
    };
    let compacted = compact(&log, Some(&writer), CompactionMode::Summary, 10_000);
    let (compacted, ()) = tokio::join!(compacted, async { cancel.cancel() });
    assert!(!compacted.unwrap());
    assert_eq!(log.roles().len(), before);
    assert!(
        matches!(log.last(), EventKind::Said { .. }),
        "{:?}",
        log.last()
    );
}
