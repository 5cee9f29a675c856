//! Paused runs: the safe points, the pause without one, and the resumption in another process.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use windlass_core::BoxFuture;
use windlass_core::ask::Answer;
use windlass_core::event::{Event, EventKind};
use windlass_core::gate::Mode;
use windlass_core::id::SessionId;
use windlass_core::message::Message;
use windlass_core::outcome::{FailReason, Outcome, Phase, RunSummary};
use windlass_core::pause::PauseReason;
use windlass_core::provider::{Chunk, ProviderError};
use windlass_core::runtime::RunMode;
use windlass_core::session_state::StateFold;
use windlass_core::terms::{Strategy, Terms};
use windlass_core::tool::{Effect, ToolOutput};
use windlass_core::validator::{CheckCtx, Judgement, Report, Validator, ValidatorError};
use windlass_engine::{Delivery, EngineError, OpenSession, Pauser, Session};
use windlass_testing::{FnTool, call, says};

use crate::fixture::{EngineFixture, RunEvents, SECOND, calls};

type ScriptedAnswer = Vec<Result<Chunk, ProviderError>>;

/// The value that pauses the run, for tools and checks that run before the test has the handle.
type SharedPauser = Arc<Mutex<Option<Pauser>>>;

/// An isolated run. Its tool `change` changes a file; its tool `pause` pauses the run while the call runs.
fn isolated(answers: Vec<ScriptedAnswer>) -> (EngineFixture, SharedPauser) {
    let mut fixture = EngineFixture::new(answers);
    fixture.workspaces.terms = Terms::unconfined(Strategy::Overlay);
    let tree = fixture.workspaces.clone();
    let change = FnTool::new("change", Effect::Write, move |args, _| {
        tree.tree()
            .change(args["path"].as_str().unwrap_or_default());
        Box::pin(async { Ok(ToolOutput::text("changed")) })
    });
    let shared = SharedPauser::default();
    let pauser = shared.clone();
    let pause = FnTool::new("pause", Effect::Read, move |_, _| {
        if let Some(pauser) = pauser.lock().as_ref() {
            pauser.pause(PauseReason::Requested);
        }
        Box::pin(async { Ok(ToolOutput::text("it pauses")) })
    });
    fixture.tools.extend([change.boxed(), pause.boxed()]);
    (fixture, shared)
}

fn change(id: &str, path: &str) -> ScriptedAnswer {
    call(id, "change", &json!({ "path": path }))
}

/// Runs a prompt until the run pauses or ends. `at` is called after each event and may pause the run.
async fn run_and(
    fixture: &EngineFixture,
    session: &Session,
    shared: &SharedPauser,
    mut at: impl FnMut(&EventKind, &Pauser),
) -> RunEvents {
    let handle = session
        .run(Message::user("go"), fixture.options.clone())
        .unwrap();
    let pauser = handle.pauser();
    *shared.lock() = Some(pauser.clone());
    fixture
        .watch_events(handle, |event| at(&event.kind, &pauser))
        .await
}

async fn reopen(fixture: &EngineFixture, id: &SessionId) -> Session {
    let engine = fixture.engine();
    let opened = engine.open(OpenSession::Resume(id.clone()), RunMode::Full);
    opened.await.unwrap()
}

async fn resume(fixture: &EngineFixture, session: &Session) -> RunEvents {
    let handle = session.resume_paused(fixture.options.clone()).unwrap();
    fixture.watch(handle).await
}

fn log(fixture: &EngineFixture, id: &SessionId) -> Vec<Event> {
    let lines = fixture.store.lines(id);
    let read = |line: &String| serde_json::from_str(line).unwrap();
    lines.iter().map(read).collect()
}

fn ends(fixture: &EngineFixture, id: &SessionId) -> Vec<Outcome> {
    let end = |event: Event| match event.kind {
        EventKind::RunFinished(RunSummary { outcome, .. }) => Some(outcome),
        _ => None,
    };
    log(fixture, id).into_iter().filter_map(end).collect()
}

fn state(fixture: &EngineFixture, id: &SessionId) -> String {
    let mut fold = StateFold::default();
    log(fixture, id).iter().for_each(|event| fold.add(event));
    fold.state().word().to_owned()
}

fn landed(fixture: &EngineFixture) -> usize {
    fixture.workspaces.tree().landed.len()
}

#[tokio::test]
async fn a_pause_during_a_model_call_waits_for_the_answer_and_its_calls() {
    let (mut fixture, shared) =
        isolated(vec![change("1", "a.rs"), change("2", "b.rs"), says("done")]);
    let pauser = shared.clone();
    fixture.provider = fixture.provider.with_on_request(move |count| {
        if let (1, Some(pauser)) = (count, pauser.lock().as_ref()) {
            pauser.pause(PauseReason::Shutdown);
        }
    });
    let session = fixture.open().await;
    let id = session.id().clone();
    let ran = run_and(&fixture, &session, &shared, |_, _| {}).await;
    let kinds = ran.kinds();
    assert_eq!(kinds[kinds.len() - 2..], ["paused", "kept"]);
    assert_eq!(ran.results(), [("changed".to_owned(), None)]);
    assert_eq!((ran.count("run_finished"), landed(&fixture)), (0, 0));
    assert_eq!(state(&fixture, &id), "paused");
    session.with_history(|history| {
        assert!(history.is_paused() && !history.waits());
        assert_eq!(history.phase(), Phase::Paused);
    });
    drop(session);
    let session = reopen(&fixture, &id).await;
    let resumed = resume(&fixture, &session).await;
    assert_eq!(*resumed.outcome(), Outcome::Completed);
    assert_eq!(
        resumed.count("iteration_started"),
        0,
        "the iteration continues"
    );
    assert_eq!(fixture.workspaces.tree().kept.as_deref(), Some("kept"));
    assert_eq!(ends(&fixture, &id), [Outcome::Completed]);
    let runs: std::collections::BTreeSet<_> = log(&fixture, &id)
        .into_iter()
        .filter_map(|event| event.run)
        .collect();
    assert_eq!(runs.len(), 1, "it is the same run");
    assert_eq!(
        (landed(&fixture), state(&fixture, &id)),
        (1, "completed".to_owned())
    );
    assert_eq!(
        fixture.provider.asked().len(),
        3,
        "no model call was repeated"
    );
}

#[tokio::test]
async fn a_pause_before_the_first_step_and_a_second_pause_resume_too() {
    let (fixture, _) = isolated(vec![change("1", "a.rs"), says("done")]);
    let session = fixture.open().await;
    let id = session.id().clone();
    let options = fixture.options.clone();
    // On this single thread, the run starts only when the test waits for its events.
    let handle = session.run(Message::user("go"), options).unwrap();
    handle.pause(PauseReason::Shutdown);
    let ran = fixture.watch(handle).await;
    assert_eq!(ran.kinds(), ["run_started", "paused"]);
    // The process that resumes the run dies before it has done anything, so the run is still paused.
    drop(session);
    let session = reopen(&fixture, &id).await;
    let handle = session.resume_paused(fixture.options.clone()).unwrap();
    session.pause(PauseReason::Requested);
    let again = fixture.watch(handle).await;
    assert_eq!(again.kinds(), ["paused"]);
    let resumed = resume(&fixture, &session).await;
    assert_eq!(*resumed.outcome(), Outcome::Completed);
    assert_eq!(ends(&fixture, &id).len(), 1);
}

#[tokio::test]
async fn a_process_that_dies_right_after_the_event_leaves_a_paused_run() {
    let (fixture, shared) = isolated(vec![
        change("1", "a.rs"),
        call("2", "pause", &json!({})),
        says("done"),
    ]);
    let session = fixture.open().await;
    let id = session.id().clone();
    run_and(&fixture, &session, &shared, |_, _| {}).await;
    drop(session);
    let lines = fixture.store.lines(&id);
    let is_pause = |line: &String| line.contains(r#""kind":"paused""#);
    let last = lines.iter().position(is_pause).unwrap();
    fixture.store.put(&id, lines[..=last].to_vec());
    let session = reopen(&fixture, &id).await;
    let resumed = resume(&fixture, &session).await;
    assert_eq!(*resumed.outcome(), Outcome::Completed);
    assert_eq!((ends(&fixture, &id).len(), landed(&fixture)), (1, 1));
    assert_eq!(
        fixture.workspaces.tree().kept.as_deref(),
        Some("kept"),
        "its copy"
    );
}

#[tokio::test]
async fn pause_now_interrupts_the_running_call_and_the_resumed_model_is_told() {
    let (fixture, shared) = isolated(vec![
        calls(&[
            ("1", "stuck", json!({})),
            ("2", "change", json!({ "path": "late.rs" })),
        ]),
        change("3", "a.rs"),
        says("done"),
    ]);
    let session = fixture.open().await;
    let ran = run_and(&fixture, &session, &shared, |kind, pauser| {
        if matches!(
            kind,
            EventKind::CommandStarted { .. } | EventKind::CallStarted { .. }
        ) {
            pauser.pause_now(PauseReason::Shutdown);
        }
    })
    .await;
    assert_eq!(ran.count("paused"), 1);
    let results = ran.results();
    assert!(
        results[0].0.contains("the run was paused while it ran"),
        "{results:?}"
    );
    assert!(
        results[1].0.contains("not run, because the run was paused"),
        "{results:?}"
    );
    let resumed = resume(&fixture, &session).await;
    assert_eq!(*resumed.outcome(), Outcome::Completed);
    let asked = format!("{:?}", fixture.provider.asked()[1]);
    assert!(asked.contains("the run was paused while it ran"), "{asked}");
    assert_eq!(ends(&fixture, session.id()).len(), 1);
}

/// A check that waits until it is cancelled in its first run, and passes later.
struct SlowCheck(Mutex<u32>);

impl Validator for SlowCheck {
    fn name(&self) -> &str {
        "tests"
    }
    fn deadline(&self) -> Duration {
        600 * SECOND
    }
    fn check<'a>(&'a self, _: &'a CheckCtx<'a>) -> BoxFuture<'a, Result<Report, ValidatorError>> {
        Box::pin(async move {
            let runs = {
                let mut runs = self.0.lock();
                *runs += 1;
                *runs
            };
            if runs == 1 {
                std::future::pending::<()>().await;
            }
            Ok(Report::new(Judgement::Pass, Vec::new()))
        })
    }
}

/// A check that passes, and pauses the run.
struct PausingCheck(SharedPauser);

impl Validator for PausingCheck {
    fn name(&self) -> &str {
        "tests"
    }
    fn check<'a>(&'a self, _: &'a CheckCtx<'a>) -> BoxFuture<'a, Result<Report, ValidatorError>> {
        if let Some(pauser) = self.0.lock().as_ref() {
            pauser.pause(PauseReason::Requested);
        }
        Box::pin(async { Ok(Report::new(Judgement::Pass, Vec::new())) })
    }
}

#[tokio::test]
async fn pause_now_stops_the_checks_which_run_again_later() {
    let (mut fixture, shared) = isolated(vec![change("1", "a.rs"), says("done")]);
    fixture.validators = vec![Arc::new(SlowCheck(Mutex::new(0)))];
    let session = fixture.open().await;
    let id = session.id().clone();
    let ran = run_and(&fixture, &session, &shared, |kind, pauser| {
        if matches!(kind, EventKind::ValidationStarted { .. }) {
            pauser.pause_now(PauseReason::Shutdown);
        }
    })
    .await;
    assert_eq!((ran.count("validated"), ran.count("paused")), (0, 1));
    drop(session);
    let session = reopen(&fixture, &id).await;
    let resumed = resume(&fixture, &session).await;
    assert_eq!(*resumed.outcome(), Outcome::Completed);
    assert_eq!((resumed.count("validated"), landed(&fixture)), (1, 1));
}

#[tokio::test]
async fn a_pause_during_an_ask_leaves_the_ask_open_and_needs_no_event() {
    for now in [false, true] {
        let (mut fixture, shared) = isolated(vec![change("1", "a.rs"), says("done")]);
        fixture.gate.mode = Mode::Ask;
        fixture.options.yes = false;
        fixture.options.ask_timeout = None;
        let session = fixture.open().await;
        let id = session.id().clone();
        let ran = run_and(&fixture, &session, &shared, |kind, pauser| {
            if matches!(kind, EventKind::Asked { .. }) {
                match now {
                    true => pauser.pause_now(PauseReason::Shutdown),
                    false => pauser.pause(PauseReason::Shutdown),
                }
            }
        })
        .await;
        assert_eq!(
            (ran.count("paused"), ran.count("answered")),
            (0, 0),
            "{:?}",
            ran.kinds()
        );
        assert_eq!(state(&fixture, &id), "waiting");
        drop(session);
        let session = reopen(&fixture, &id).await;
        let refused = session.resume_paused(fixture.options.clone()).err();
        assert!(
            matches!(&refused, Some(EngineError::NotPaused(why)) if why.contains("answer")),
            "{refused:?}"
        );
        let ask = session.pending().remove(0);
        let options = fixture.options.clone();
        let handle = session.answer(&ask.id, Answer::Once, options).unwrap();
        let resumed = fixture.watch(handle).await;
        assert_eq!(*resumed.outcome(), Outcome::Completed);
        assert_eq!(ends(&fixture, &id).len(), 1);
    }
}

#[tokio::test]
async fn an_ask_after_the_request_to_pause_pauses_the_run_and_stays_open() {
    let (mut fixture, shared) = isolated(vec![
        calls(&[
            ("1", "pause", json!({})),
            ("2", "change", json!({ "path": "a.rs" })),
        ]),
        says("done"),
    ]);
    fixture.gate.mode = Mode::Ask;
    fixture.options.yes = false;
    let session = fixture.open().await;
    let ran = run_and(&fixture, &session, &shared, |_, _| {}).await;
    assert_eq!(
        ran.kinds().iter().rfind(|kind| *kind != "kept").unwrap(),
        "asked"
    );
    assert_eq!(session.pending().len(), 1);
}

#[tokio::test]
async fn a_pause_during_a_landing_waits_for_its_end() {
    for now in [false, true] {
        let (fixture, shared) = isolated(vec![change("1", "a.rs"), says("done")]);
        let session = fixture.open().await;
        let pauser = shared.clone();
        fixture.workspaces.tree().on_land = Some(Box::new(move || {
            let pauser = pauser.lock().clone().unwrap();
            match now {
                true => pauser.pause_now(PauseReason::Shutdown),
                false => pauser.pause(PauseReason::Shutdown),
            }
        }));
        let ran = run_and(&fixture, &session, &shared, |_, _| {}).await;
        assert_eq!(*ran.outcome(), Outcome::Completed);
        assert_eq!((ran.count("landed"), ran.count("paused")), (1, 0));
    }
}

#[tokio::test]
async fn a_pause_before_the_landing_compares_the_tree_when_the_run_lands_later() {
    let (mut fixture, shared) = isolated(vec![change("1", "a.rs"), says("done")]);
    fixture.validators = vec![Arc::new(PausingCheck(shared.clone()))];
    let session = fixture.open().await;
    let ran = run_and(&fixture, &session, &shared, |_, _| {}).await;
    *shared.lock() = None;
    assert_eq!((ran.count("landed"), ran.count("paused")), (0, 1));
    // The user changes a file of the tree meanwhile.
    fixture.workspaces.tree().moved = [vec!["theirs.rs".to_owned()]].into();
    let resumed = resume(&fixture, &session).await;
    assert_eq!(*resumed.outcome(), Outcome::Completed);
    assert_eq!(resumed.count("judged"), 2, "stale, then judged again");
    assert_eq!(landed(&fixture), 1);
}

#[tokio::test]
async fn resume_is_refused_twice_and_for_runs_that_are_not_paused() {
    let (fixture, shared) = isolated(vec![
        call("1", "pause", &json!({})),
        says("done"),
        call("3", "slow", &json!({})),
    ]);
    let session = fixture.open().await;
    let options = || fixture.options.clone();
    let refused = |session: &Session| session.resume_paused(options()).err().unwrap();
    assert!(refused(&session).to_string().contains("no open run"));
    run_and(&fixture, &session, &shared, |_, _| {}).await;
    let handle = session.resume_paused(options()).unwrap();
    assert!(matches!(refused(&session), EngineError::Busy));
    assert_eq!(*fixture.watch(handle).await.outcome(), Outcome::Completed);
    assert!(refused(&session).to_string().contains("no open run"));
    // A run whose process died is not paused.
    let mut handle = session.run(Message::user("again"), options()).unwrap();
    while !matches!(
        handle.next().await.unwrap().kind,
        EventKind::CallStarted { .. }
    ) {}
    let id = session.id().clone();
    let lines = fixture.store.lines(&id);
    drop((handle, session));
    let other = EngineFixture::new(vec![]);
    other.store.put(&id, lines);
    let session = reopen(&other, &id).await;
    assert!(
        refused(&session)
            .to_string()
            .contains("a process that died")
    );
    assert!(matches!(
        session.close_paused().await,
        Err(EngineError::NotPaused(_))
    ));
}

#[tokio::test]
async fn the_budget_continues_after_a_pause() {
    let (mut fixture, shared) = isolated(vec![
        call("1", "work", &json!({})),
        call("2", "look", &json!({ "path": "a" })),
        says("never"),
    ]);
    let (clock, pauser) = (fixture.clock.clone(), shared.clone());
    let work = FnTool::new("work", Effect::Read, move |_, _| {
        clock.advance(40 * SECOND);
        if let Some(pauser) = pauser.lock().as_ref() {
            pauser.pause(PauseReason::Requested);
        }
        Box::pin(async { Ok(ToolOutput::text("done")) })
    });
    fixture.tools.push(work.boxed());
    fixture.options.budget.steps = Some(2);
    let session = fixture.open().await;
    let id = session.id().clone();
    let ran = run_and(&fixture, &session, &shared, |_, _| {}).await;
    let pause = ran.events.iter().find_map(|event| match event.kind {
        EventKind::Paused { run_ms, .. } => Some(run_ms),
        _ => None,
    });
    assert_eq!(pause, Some(40_000));
    // The time between pause and resumption is not time of the run.
    fixture.clock.advance(1_000 * SECOND);
    drop(session);
    let session = reopen(&fixture, &id).await;
    let resumed = resume(&fixture, &session).await;
    assert_eq!(*resumed.outcome(), Outcome::MaxSteps);
    let Some(EventKind::RunFinished(summary)) = resumed.events.last().map(|event| &event.kind)
    else {
        panic!("{:?}", resumed.kinds());
    };
    assert_eq!((summary.totals.steps, summary.ms), (2, 40_000));
}

#[tokio::test]
async fn a_new_prompt_closes_a_paused_run_as_any_run_that_was_left_open() {
    let (fixture, shared) = isolated(vec![call("1", "pause", &json!({})), says("done")]);
    let session = fixture.open().await;
    run_and(&fixture, &session, &shared, |_, _| {}).await;
    *shared.lock() = None;
    fixture.run_in(&session).await;
    let ends = ends(&fixture, session.id());
    let [Outcome::Failed { reason, detail, .. }, Outcome::Completed] = &ends[..] else {
        panic!("{ends:?}");
    };
    assert_eq!(*reason, FailReason::Interrupted);
    assert!(detail.contains("while it was paused"), "{detail}");
}

#[tokio::test]
async fn a_paused_or_waiting_run_is_closed_as_cancelled() {
    for asks in [false, true] {
        let first = match asks {
            true => change("1", "a.rs"),
            false => call("1", "pause", &json!({})),
        };
        let (mut fixture, shared) = isolated(vec![first, says("next")]);
        fixture.gate.mode = Mode::Ask;
        fixture.options.yes = false;
        let session = fixture.open().await;
        let id = session.id().clone();
        run_and(&fixture, &session, &shared, |kind, pauser| {
            if matches!(kind, EventKind::Asked { .. }) {
                pauser.pause(PauseReason::Shutdown);
            }
        })
        .await;
        session
            .queue(Message::user("later"), Delivery::FollowUp)
            .await
            .unwrap();
        drop(session);
        let session = reopen(&fixture, &id).await;
        session.close_paused().await.unwrap();
        assert_eq!(ends(&fixture, &id), [Outcome::Cancelled]);
        let events = log(&fixture, &id);
        let abandoned = events.iter().any(|event| {
            matches!(
                &event.kind,
                EventKind::Answered {
                    answer: Answer::Abandoned,
                    ..
                }
            )
        });
        assert_eq!(abandoned, asks);
        let Some(EventKind::RunFinished(summary)) = events.last().map(|event| &event.kind) else {
            panic!("{events:?}");
        };
        assert_eq!(summary.transaction.as_deref(), Some("kept"));
        assert!(session.with_history(|history| history.queue().all().is_empty()));
        assert!(session.close_paused().await.is_err());
        let ran = fixture.run_in(&session).await;
        assert_eq!(*ran.outcome(), Outcome::Completed);
    }
}

#[tokio::test]
async fn a_cancel_wins_over_an_earlier_request_to_pause() {
    let (fixture, shared) = isolated(vec![call("1", "slow", &json!({})), says("never")]);
    let session = fixture.open().await;
    let ran = run_and(&fixture, &session, &shared, |kind, pauser| {
        if matches!(kind, EventKind::CallStarted { .. }) {
            pauser.pause(PauseReason::Requested);
            session.cancel();
        }
    })
    .await;
    assert_eq!(*ran.outcome(), Outcome::Cancelled);
    assert_eq!(ran.count("paused"), 0);
}
