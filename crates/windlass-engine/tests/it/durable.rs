//! Durability: asks that another process answers, calls that started, queued prompts, forks.

use std::sync::Arc;

use serde_json::{Value, json};
use windlass_core::ask::{About, Answer, Ask};
use windlass_core::event::{Event, EventKind};
use windlass_core::gate::Mode;
use windlass_core::history::unpaired;
use windlass_core::id::{AskId, SessionId};
use windlass_core::message::Message;
use windlass_core::outcome::{FailReason, Outcome, RunSummary};
use windlass_core::runtime::RunMode;
use windlass_engine::{Delivery, EngineError, OnAsk, OpenSession, Session};
use windlass_testing::{call, says};

use crate::fixture::{CallTrace, EngineFixture, RunEvents, calls, standard_tools};

/// A fixture in which every write pauses the run on an ask, with a trace of the executed calls.
fn pausing(
    answers: Vec<
        Vec<Result<windlass_core::provider::Chunk, windlass_core::provider::ProviderError>>,
    >,
) -> (EngineFixture, CallTrace) {
    let trace = CallTrace::default();
    let mut fixture = EngineFixture::new(answers);
    fixture.tools = standard_tools(&trace);
    fixture.gate.mode = Mode::Ask;
    fixture.options.yes = false;
    fixture.options.on_ask = OnAsk::Pause;
    (fixture, trace)
}

async fn reopen(fixture: &EngineFixture, id: &SessionId) -> Session {
    fixture
        .engine()
        .open(OpenSession::Resume(id.clone()), RunMode::Full)
        .await
        .unwrap()
}

/// Answers the only open ask in a new process.
async fn answer(fixture: &EngineFixture, id: &SessionId, answer: Answer) -> RunEvents {
    let session = reopen(fixture, id).await;
    let pending = session.pending();
    assert_eq!(pending.len(), 1, "{pending:?}");
    let handle = session
        .answer(&pending[0].id, answer, fixture.options.clone())
        .unwrap();
    fixture.watch(handle).await
}

fn log(fixture: &EngineFixture, id: &SessionId) -> Vec<Event> {
    fixture
        .store
        .lines(id)
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn count(fixture: &EngineFixture, id: &SessionId, kind: &str) -> usize {
    log(fixture, id)
        .iter()
        .filter(|event| serde_json::to_value(event).unwrap()["kind"] == kind)
        .count()
}

#[tokio::test]
async fn each_call_runs_once_although_a_new_process_gives_each_answer() {
    let step = calls(&[
        ("1", "look", json!({"path": "a"})),
        ("2", "write", json!({"path": "b"})),
        ("3", "ask", json!({"text": "red or blue?"})),
    ]);
    let (fixture, trace) = pausing(vec![step, says("done")]);
    let session = fixture.open().await;
    let id = session.id().clone();
    let ran = fixture.run_in(&session).await;
    assert_eq!(ran.kinds().last().map(String::as_str), Some("asked"));
    drop(session);
    let ran = answer(&fixture, &id, Answer::Once).await;
    assert_eq!(
        ran.kinds().last().map(String::as_str),
        Some("asked"),
        "the model's own question comes next"
    );
    let ran = answer(
        &fixture,
        &id,
        Answer::Text {
            text: "blue".into(),
        },
    )
    .await;
    assert_eq!(*ran.outcome(), Outcome::Completed);
    assert_eq!(
        *trace.lock(),
        ["+look a", "-look a", "+write b", "-write b"]
    );
    for (kind, times) in [
        ("call_started", 3),
        ("call_finished", 3),
        ("run_started", 1),
        ("run_finished", 1),
        ("asked", 2),
    ] {
        assert_eq!(count(&fixture, &id, kind), times, "{kind}");
    }
    let asked = format!("{:?}", fixture.provider.asked().last());
    assert!(
        asked.contains("blue") && asked.contains("written"),
        "{asked}"
    );
    let session = reopen(&fixture, &id).await;
    assert_eq!(
        session.with_history(|history| (unpaired(&history.entries()), history.total().steps)),
        (None, 2)
    );
}

#[tokio::test]
async fn an_answer_is_used_once_and_needs_an_open_ask() {
    let (fixture, _) = pausing(vec![
        calls(&[("1", "write", json!({"path": "b"}))]),
        says("done"),
    ]);
    let session = fixture.open().await;
    fixture.run_in(&session).await;
    let ask = session.pending().remove(0);
    let other: AskId = "a9-ffffffff".parse().unwrap();
    let wrong = session
        .answer(&other, Answer::Once, fixture.options.clone())
        .err();
    assert!(
        matches!(wrong, Some(EngineError::NoSuchAsk(_))),
        "{wrong:?}"
    );
    let wrong = session
        .answer(
            &ask.id,
            Answer::Text {
                text: "sure".into(),
            },
            fixture.options.clone(),
        )
        .err();
    assert!(
        matches!(wrong, Some(EngineError::Unfitting { .. })),
        "{wrong:?}"
    );
    let ran = fixture
        .watch(
            session
                .answer(&ask.id, Answer::No { note: None }, fixture.options.clone())
                .unwrap(),
        )
        .await;
    assert_eq!(*ran.outcome(), Outcome::Completed);
    assert!(
        ran.results()[0].0.contains("the user said no"),
        "{:?}",
        ran.results()
    );
    let wrong = session
        .answer(&ask.id, Answer::Once, fixture.options.clone())
        .err();
    assert!(
        matches!(wrong, Some(EngineError::NoSuchAsk(_))),
        "{wrong:?}"
    );
}

#[tokio::test]
async fn a_late_answer_is_ignored() {
    let (mut fixture, trace) = pausing(vec![
        calls(&[("1", "write", json!({"path": "b"}))]),
        says("done"),
    ]);
    fixture.options.ask_expiry = Some(std::time::Duration::from_secs(60));
    let session = fixture.open().await;
    fixture.run_in(&session).await;
    let ask = session.pending().remove(0);
    fixture.clock.advance(std::time::Duration::from_secs(61));
    let ran = fixture
        .watch(
            session
                .answer(&ask.id, Answer::Once, fixture.options.clone())
                .unwrap(),
        )
        .await;
    assert!(
        ran.results()[0].0.contains("not answered in time"),
        "{:?}",
        ran.results()
    );
    assert!(trace.lock().is_empty());
}

#[tokio::test]
async fn a_new_prompt_abandons_open_asks_and_every_call_has_a_result() {
    let step = calls(&[
        ("1", "write", json!({"path": "b"})),
        ("2", "write", json!({"path": "c"})),
    ]);
    let (fixture, trace) = pausing(vec![step, says("then this")]);
    let session = fixture.open().await;
    let id = session.id().clone();
    fixture.run_in(&session).await;
    let ask = session.pending().remove(0);
    drop(session);
    let session = reopen(&fixture, &id).await;
    let ran = fixture.run_in(&session).await;
    assert_eq!(*ran.outcome(), Outcome::Completed);
    assert_eq!(
        session.with_history(|history| unpaired(&history.entries())),
        None
    );
    assert!(trace.lock().is_empty());
    let abandoned = log(&fixture, &id).into_iter().any(
        |event| matches!(event.kind, EventKind::Answered { ask: id, answer: Answer::Abandoned, .. } if id == ask.id),
    );
    assert!(abandoned);
    assert!(
        session
            .answer(&ask.id, Answer::Once, fixture.options.clone())
            .is_err()
    );
}

#[tokio::test]
async fn limits_of_a_resumed_run_include_earlier_amounts() {
    let (mut fixture, _) = pausing(vec![
        calls(&[("1", "write", json!({"path": "b"}))]),
        says("never asked for"),
    ]);
    fixture.options.budget.steps = Some(1);
    let session = fixture.open().await;
    fixture.run_in(&session).await;
    let ask = session.pending().remove(0);
    let ran = fixture
        .watch(
            session
                .answer(&ask.id, Answer::Once, fixture.options.clone())
                .unwrap(),
        )
        .await;
    assert_eq!(*ran.outcome(), Outcome::MaxSteps);
    // The next run has its own limits, and the totals of the session remain.
    let ran = fixture.run_in(&session).await;
    assert_eq!(*ran.outcome(), Outcome::Completed);
    assert_eq!(session.with_history(|history| history.total().steps), 2);
}

/// Cuts the log after the first event of a kind, as if the process had died there.
fn cut_after(fixture: &EngineFixture, id: &SessionId, kind: &str) {
    let mut lines = fixture.store.lines(id);
    let at = lines
        .iter()
        .position(|line| line.contains(&format!("\"kind\":\"{kind}\"")))
        .unwrap();
    lines.truncate(at + 1);
    fixture.store.put(id, lines);
}

#[track_caller]
fn last_request(fixture: &EngineFixture) -> String {
    format!("{:?}", fixture.provider.asked().last().unwrap())
}

#[tokio::test]
async fn a_started_call_is_never_repeated() {
    let step = calls(&[
        ("1", "write", json!({"path": "b"})),
        ("2", "write", json!({"path": "c"})),
    ]);
    let fixture = EngineFixture::new(vec![step, says("done"), says("I will look")]);
    let session = fixture.open().await;
    let id = session.id().clone();
    fixture.run_in(&session).await;
    drop(session);
    cut_after(&fixture, &id, "call_started");
    let session = reopen(&fixture, &id).await;
    let ran = fixture.run_in(&session).await;
    assert_eq!(*ran.outcome(), Outcome::Completed);
    assert_eq!(count(&fixture, &id, "call_started"), 1);
    let asked = last_request(&fixture);
    assert!(
        asked.contains("it may have happened") && asked.contains("not run, because"),
        "{asked}"
    );
    assert_eq!(
        session.with_history(|history| unpaired(&history.entries())),
        None
    );
    let ends: Vec<Outcome> = log(&fixture, &id)
        .into_iter()
        .filter_map(|event| match event.kind {
            EventKind::RunFinished(RunSummary { outcome, .. }) => Some(outcome),
            _ => None,
        })
        .collect();
    assert!(
        matches!(
            ends[0],
            Outcome::Failed {
                reason: FailReason::Interrupted,
                ..
            }
        ),
        "{ends:?}"
    );
    assert_eq!(ends.len(), 2);
}

#[tokio::test]
async fn the_model_gets_the_logged_facts_about_an_interrupted_call() {
    let fixture = EngineFixture::new(vec![
        call("1", "bash", &json!({"command": "make"})),
        says("done"),
        says("ok"),
    ]);
    let session = fixture.open().await;
    let id = session.id().clone();
    fixture.run_in(&session).await;
    drop(session);
    cut_after(&fixture, &id, "call_started");
    let mut lines = fixture.store.lines(&id);
    let mut event: Event = serde_json::from_str(lines.last().unwrap()).unwrap();
    event.order = windlass_core::event::Order::Durable {
        seq: lines.len() as u64 + 1,
    };
    let end = windlass_core::workspace::ProcessEnd::Exited { code: 2 };
    event.kind = EventKind::CommandFinished {
        call: "1".into(),
        end,
        bytes: 0,
        ms: 1,
    };
    lines.push(serde_json::to_string(&event).unwrap());
    fixture.store.put(&id, lines);
    let session = reopen(&fixture, &id).await;
    fixture.run_in(&session).await;
    assert!(
        last_request(&fixture).contains("the command ended (exit code 2)"),
        "{}",
        last_request(&fixture)
    );
}

#[tokio::test]
async fn steering_is_delivered_between_steps_and_follow_ups_in_order_after_the_run() {
    let fixture = EngineFixture::new(vec![
        call("1", "look", &json!({"path": "a"})),
        says("turned"),
        says("first"),
        says("second"),
    ]);
    let session = fixture.open().await;
    session
        .queue(Message::user("then the first"), Delivery::FollowUp)
        .await
        .unwrap();
    session
        .queue(Message::user("then the second"), Delivery::FollowUp)
        .await
        .unwrap();
    session
        .queue(Message::user("turn left"), Delivery::Steer)
        .await
        .unwrap();
    let id = session.id().clone();
    let ran = fixture.run_in(&session).await;
    assert_eq!(*ran.outcome(), Outcome::Completed);
    assert!(format!("{:?}", fixture.provider.asked()[0]).contains("turn left"));
    drop(session);
    // The follow-ups survive the end of the process.
    let session = reopen(&fixture, &id).await;
    for (prompt, answer) in [("then the first", "first"), ("then the second", "second")] {
        let handle = session
            .run_queued(fixture.options.clone())
            .unwrap()
            .unwrap();
        let ran = fixture.watch(handle).await;
        assert_eq!(
            (ran.outcome(), ran.deltas().as_str()),
            (&Outcome::Completed, answer)
        );
        assert!(last_request(&fixture).contains(prompt));
    }
    assert!(
        session
            .run_queued(fixture.options.clone())
            .unwrap()
            .is_none()
    );
    assert_eq!(
        session.with_history(|history| unpaired(&history.entries())),
        None
    );
}

/// A provider during whose first answer the user sends a message.
struct ProviderWithMessage(
    windlass_testing::ScriptedProvider,
    Arc<std::sync::OnceLock<Session>>,
);

impl windlass_core::provider::Provider for ProviderWithMessage {
    fn name(&self) -> &str {
        "interrupted"
    }
    fn facts(&self, model: &str) -> windlass_core::provider::ModelFacts {
        self.0.facts(model)
    }
    fn stream<'a>(
        &'a self,
        request: windlass_core::provider::Request<'a>,
    ) -> windlass_core::BoxStream<
        'a,
        Result<windlass_core::provider::Chunk, windlass_core::provider::ProviderError>,
    > {
        use futures_util::StreamExt;
        let first = self.0.asked().is_empty();
        let answer = self.0.stream(request);
        let says = futures_util::stream::once(async move {
            if first {
                self.1
                    .get()
                    .unwrap()
                    .queue(Message::user("that, too"), Delivery::Steer)
                    .await
                    .unwrap();
            }
        });
        says.filter_map(|()| async { None }).chain(answer).boxed()
    }
}

#[tokio::test]
async fn a_message_just_before_the_end_is_not_lost() {
    let fixture = EngineFixture::new(vec![says("done"), says("and that, too")]);
    let place = Arc::new(std::sync::OnceLock::new());
    let provider = Arc::new(ProviderWithMessage(fixture.provider.clone(), place.clone()));
    let options = windlass_engine::NativeOptions {
        model: "m".into(),
        ..Default::default()
    };
    let native =
        windlass_engine::NativeRuntime::new(provider, Arc::new(fixture.clock.clone()), options);
    let engine = fixture.builder().runtime(Arc::new(native)).build().unwrap();
    assert!(
        place
            .set(engine.open(OpenSession::New, RunMode::Full).await.unwrap())
            .is_ok()
    );
    let session = place.get().unwrap();
    let ran = fixture.run_in(session).await;
    assert_eq!(*ran.outcome(), Outcome::Completed);
    assert_eq!(ran.count("queued"), 1, "the reader of the run sees it");
    assert!(last_request(&fixture).contains("that, too"));
    assert!(session.with_history(|history| history.queue().all().is_empty()));
}

#[tokio::test]
async fn cancelling_empties_the_queue() {
    let fixture = EngineFixture::new(vec![call("1", "slow", &json!({}))]);
    let session = fixture.open().await;
    let handle = session
        .run(Message::user("go"), fixture.options.clone())
        .unwrap();
    session
        .queue(Message::user("later"), Delivery::FollowUp)
        .await
        .unwrap();
    while session.with_history(|history| history.phase())
        != windlass_core::outcome::Phase::WaitingForTool
    {
        tokio::task::yield_now().await;
    }
    session.cancel();
    let ran = fixture.watch(handle).await;
    assert_eq!(*ran.outcome(), Outcome::Cancelled);
    assert!(
        session
            .run_queued(fixture.options.clone())
            .unwrap()
            .is_none()
    );
}

#[tokio::test]
async fn a_fork_starts_at_any_event_and_does_not_change_the_original() {
    let (fixture, _) = pausing(vec![
        calls(&[("1", "write", json!({"path": "b"}))]),
        says("in the fork"),
        says("and here"),
    ]);
    let session = fixture.open().await;
    let id = session.id().clone();
    fixture.run_in(&session).await;
    let ask = session.pending().remove(0);
    let before = fixture.store.lines(&id);
    drop(session);
    for at in 1..=before.len() as u64 {
        let fork = fixture
            .engine()
            .fork(&id, Some(at), RunMode::Full)
            .await
            .unwrap();
        let copied = log(&fixture, fork.id());
        assert!(
            copied.iter().all(|event| event.session == *fork.id()),
            "{at}"
        );
        assert_eq!(copied.len() as u64, at + 1, "{at}");
        assert!(
            fork.pending().is_empty(),
            "{at}: what was asked there is answered there"
        );
        assert!(
            fork.answer(&ask.id, Answer::Once, fixture.options.clone())
                .is_err(),
            "{at}"
        );
    }
    let fork = fixture
        .engine()
        .fork(&id, None, RunMode::Full)
        .await
        .unwrap();
    let ran = fixture.run_in(&fork).await;
    assert_eq!(*ran.outcome(), Outcome::Completed);
    assert_eq!(
        fork.with_history(|history| unpaired(&history.entries())),
        None
    );
    assert_eq!(fixture.store.lines(&id), before);
    let ran = answer(&fixture, &id, Answer::Once).await;
    assert_eq!(*ran.outcome(), Outcome::Completed);
    let none = fixture
        .engine()
        .fork(&id, Some(10_000), RunMode::Full)
        .await
        .err();
    assert!(
        matches!(none, Some(EngineError::NoSuchEvent { .. })),
        "{none:?}"
    );
    let none = fixture
        .engine()
        .fork(&id, Some(0), RunMode::Full)
        .await
        .err();
    assert!(
        matches!(none, Some(EngineError::NoSuchEvent { .. })),
        "{none:?}"
    );
}

/// A write that asks a question after its effect, which must not happen twice.
fn asking_write(trace: &CallTrace) -> Arc<dyn windlass_core::tool::Tool> {
    let trace = trace.clone();
    windlass_testing::FnTool::new(
        "asking_write",
        windlass_core::tool::Effect::Write,
        move |_: Value, ctx| {
            let trace = trace.clone();
            Box::pin(async move {
                trace.lock().push("effect".into());
                let question = windlass_core::ask::Question {
                    text: "go on?".into(),
                    options: vec![],
                };
                Ok(windlass_core::tool::ToolOutput::text(format!(
                    "{:?}",
                    ctx.call_output.ask(question).await
                )))
            })
        },
    )
    .boxed()
}

#[tokio::test]
async fn a_call_that_asks_in_the_middle_of_its_effect_is_not_repeated() {
    let (mut fixture, trace) = pausing(vec![call("1", "asking_write", &json!({})), says("I see")]);
    fixture.tools.push(asking_write(&trace));
    fixture.gate.mode = Mode::Auto;
    fixture.options.yes = true;
    let session = fixture.open().await;
    let id = session.id().clone();
    fixture.run_in(&session).await;
    drop(session);
    let ran = answer(
        &fixture,
        &id,
        Answer::Text {
            text: "certainly".into(),
        },
    )
    .await;
    assert_eq!(*ran.outcome(), Outcome::Completed);
    assert_eq!(*trace.lock(), ["effect"]);
    let asked = last_request(&fixture);
    assert!(
        asked.contains("certainly") && asked.contains("may have happened"),
        "{asked}"
    );
}

#[test]
fn an_ask_of_an_older_log_can_be_read() {
    let old =
        json!({"id": "a1-00000001", "about": {"is": "question", "text": "x?"}, "person": false});
    let ask: Ask = serde_json::from_value(old).unwrap();
    assert!(matches!(ask.about, About::Question(_)) && ask.run_ms == 0);
}

#[tokio::test]
async fn execute_returns_the_pending_ask_and_its_answer_resumes_the_run() {
    let (fixture, trace) = pausing(vec![
        calls(&[("1", "write", json!({"path": "b"}))]),
        says("done"),
    ]);
    let engine = fixture.engine();
    let mut request = windlass_engine::Request::new("go");
    request.options = fixture.options.clone();
    let result = engine.execute(request).await.unwrap();
    assert_eq!((result.outcome(), result.asks.len()), (None, 1));
    let again = || windlass_engine::AnswerRequest {
        options: fixture.options.clone(),
        ..Default::default()
    };
    let other: AskId = "a9-ffffffff".parse().unwrap();
    let wrong = engine
        .answer(&result.session, &other, Answer::Once, again())
        .await
        .err();
    assert!(
        matches!(wrong, Some(EngineError::NoSuchAsk(_))),
        "{wrong:?}"
    );
    let done = engine
        .answer(&result.session, &result.asks[0].id, Answer::Once, again())
        .await
        .unwrap();
    assert_eq!(
        (done.outcome(), done.asks.len(), &done.run),
        (Some(&Outcome::Completed), 0, &result.run)
    );
    assert_eq!(done.text, "done");
    assert_eq!(*trace.lock(), ["+write b", "-write b"]);
}

#[tokio::test]
async fn after_a_power_cut_later_calls_may_have_happened_too() {
    let step = calls(&[
        ("1", "write", json!({"path": "b"})),
        ("2", "write", json!({"path": "c"})),
    ]);
    let fixture = EngineFixture::new(vec![step, says("done"), says("I will look")]);
    let session = fixture.open().await;
    let id = session.id().clone();
    fixture.run_in(&session).await;
    drop(session);
    cut_after(&fixture, &id, "call_started");
    fixture.store.cut_power();
    let session = reopen(&fixture, &id).await;
    fixture.run_in(&session).await;
    let asked = last_request(&fixture);
    assert_eq!(asked.matches("it may have happened").count(), 2, "{asked}");
}

#[tokio::test]
async fn a_user_can_compact_between_runs() {
    use windlass_core::budget::Budget;
    use windlass_core::context::CompactionMode;
    let answers = (0..6).map(|n| call(&n.to_string(), "look", &json!({"path": "x".repeat(2_000)})));
    let fixture = EngineFixture::new(
        answers
            .chain([says("done"), says("## Goal\nto look"), says("and on")])
            .collect(),
    );
    let session = fixture.open().await;
    let id = session.id().clone();
    fixture.run_in(&session).await;
    let before = session.with_history(|history| (history.held(), history.total().steps));
    assert!(
        session
            .compact(CompactionMode::Last(1), Budget::default())
            .await
            .unwrap()
    );
    assert!(session.with_history(|history| history.held()) < before.0 / 2);
    assert_eq!(count(&fixture, &id, "compacted"), 1);
    drop(session);
    let session = reopen(&fixture, &id).await;
    fixture.run_in(&session).await;
    assert!(
        last_request(&fixture).contains("go"),
        "the message of the user is kept"
    );
    assert_eq!(
        session.with_history(|history| unpaired(&history.entries())),
        None
    );
    assert!(
        session.with_history(|history| history.total().steps) > before.1,
        "what the summary cost is in the total"
    );
}

/// Appends events to the run that was left open, as its process or recovery would have written them.
fn append(fixture: &EngineFixture, id: &SessionId, kinds: impl IntoIterator<Item = EventKind>) {
    let mut lines = fixture.store.lines(id);
    let mut event: Event = serde_json::from_str(lines.last().unwrap()).unwrap();
    for kind in kinds {
        let seq = lines.len() as u64 + 1;
        event.order = windlass_core::event::Order::Durable { seq };
        event.kind = kind;
        lines.push(serde_json::to_string(&event).unwrap());
    }
    fixture.store.put(id, lines);
}

/// The summary of a run that was left open with these events, after the next prompt has closed it.
async fn left_with(kinds: impl IntoIterator<Item = EventKind>) -> RunSummary {
    let fixture = EngineFixture::new(vec![
        call("1", "write", &json!({"path": "b"})),
        says("done"),
        says("ok"),
    ]);
    let session = fixture.open().await;
    let id = session.id().clone();
    fixture.run_in(&session).await;
    drop(session);
    cut_after(&fixture, &id, "call_started");
    append(&fixture, &id, kinds);
    let session = reopen(&fixture, &id).await;
    fixture.run_in(&session).await;
    let summary = log(&fixture, &id)
        .into_iter()
        .find_map(|event| match event.kind {
            EventKind::RunFinished(summary) => Some(summary),
            _ => None,
        });
    summary.unwrap()
}

#[tokio::test]
async fn a_run_that_was_left_open_reports_its_changes() {
    let change = windlass_core::workspace::FileChange {
        path: "b".into(),
        change: windlass_core::workspace::Change::Modified,
        added: Some(3),
        removed: Some(1),
        diff: None,
    };
    let changed = EventKind::FileChanged {
        call: Some("1".into()),
        change: change.clone(),
        swap: None,
    };
    assert_eq!(left_with([changed]).await.files, [change]);
}

#[tokio::test]
async fn a_run_whose_landing_was_recovered_is_completed() {
    let landed = EventKind::Landed {
        landed: windlass_core::workspace::Landed::default(),
        tree_hash: None,
    };
    let summary = left_with([landed]).await;
    assert_eq!(
        (summary.outcome, summary.transaction),
        (Outcome::Completed, None)
    );
}
