#![allow(clippy::unwrap_used)]

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

use windlass_core::ask::{Answer, Ask};
use windlass_core::budget::{Limit, Price, Spent, Usage};
use windlass_core::clock::Timestamp;
use windlass_core::context::Cause;
use windlass_core::event::{Event, Order, VERSION};
use windlass_core::flags::SavedFlags;
use windlass_core::history::History;
use windlass_core::id::TraceId;
use windlass_core::message::Role;
use windlass_core::provider::{Chunk, ProviderError};
use windlass_core::runtime::{Capabilities, Hold, Job, MakeRoom, Runtime, RuntimeError, Stop};
use windlass_core::{BoxFuture, BoxStream};

use super::*;
use crate::{NativeOptions, NativeRuntime};
use windlass_testing::{ManualClock, ScriptedProvider, says};

/// A log that is only folded, and an account without a limit.
#[derive(Default)]
struct Desk {
    history: Mutex<History>,
    kinds: Mutex<Vec<EventKind>>,
}

impl Desk {
    fn with_steps(steps: usize) -> Self {
        let desk = Self::default();
        desk.push(EventKind::RunStarted {
            prompt: Message::user("the task"),
            queued: None,
            flags: SavedFlags::default(),
        });
        for n in 0..steps {
            desk.push(EventKind::said(Message::assistant(format!(
                "step {n} {}",
                "x".repeat(500)
            ))));
        }
        desk
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

impl Outlet for Desk {
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
    fn facts(&self) -> Facts {
        self.history.lock().facts().clone()
    }
}

impl Account for Desk {
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
struct Idle;

impl Runtime for Idle {
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

async fn make_room(runtime: &dyn Runtime, desk: &Desk, how: How) -> bool {
    let (tools, cancel) = (ToolSet::default(), CancellationToken::new());
    runtime
        .compact(MakeRoom {
            how,
            outlet: desk,
            account: desk,
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
async fn a_person_has_room_made_between_runs_by_any_runtime() {
    for (runtime, words) in [
        (&Idle as &dyn Runtime, "As in the user's messages"),
        (&native(), "the model's own words"),
    ] {
        let desk = Desk::with_steps(10);
        assert!(make_room(runtime, &desk, How::Last(2)).await);
        assert_eq!(
            desk.roles(),
            [Role::User, Role::User, Role::Assistant, Role::Assistant]
        );
        let EventKind::Compacted { compaction } = desk.last() else {
            panic!("{:?}", desk.last())
        };
        assert!(compaction.summary.contains(words), "{}", compaction.summary);
        assert_eq!(compaction.by, Some(Cause::Person));
        assert!(make_room(runtime, &desk, How::Summary).await);
        assert_eq!(desk.roles(), [Role::User, Role::User]);
        assert!(
            !make_room(runtime, &desk, How::Summary).await,
            "there is nothing left to leave out"
        );
    }
}

/// A model that never answers.
struct Silent;

impl Provider for Silent {
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
async fn a_cancel_while_a_summary_is_written_changes_nothing() {
    let (desk, cancel, facts) = (
        Desk::with_steps(10),
        CancellationToken::new(),
        ModelFacts::default(),
    );
    let before = desk.roles().len();
    let estimator = Estimator::default();
    let writer = Writer {
        provider: &Silent,
        model: "m",
        facts: &facts,
        estimator,
        account: &desk,
        cancel: &cancel,
    };
    let made = compact(&desk, Some(&writer), How::Summary, 10_000);
    let (made, ()) = tokio::join!(made, async { cancel.cancel() });
    assert!(!made.unwrap());
    assert_eq!(desk.roles().len(), before);
    assert!(
        matches!(desk.last(), EventKind::Said { .. }),
        "{:?}",
        desk.last()
    );
}
