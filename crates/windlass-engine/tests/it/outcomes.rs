//! Every run has exactly one terminal event, also after errors, panics and cancellation.

use std::sync::Arc;

use serde_json::json;
use windlass_core::budget::Budget;
use windlass_core::event::EventKind;
use windlass_core::message::{ErrorCategory, Message};
use windlass_core::outcome::{FailReason, Outcome, RunSummary};
use windlass_core::provider::{Chunk, EndReason, ProviderError, ProviderErrorKind};
use windlass_core::runtime::RunMode;
use windlass_core::validator::{CheckCtx, Finding, Judgement, Report, Validator, ValidatorError};
use windlass_core::{BoxFuture, clock::Clock};
use windlass_engine::{OnAsk, OpenSession};
use windlass_testing::{StoreFault, call, says};

use crate::fixture::{EngineFixture, SECOND, calls};

#[tokio::test]
async fn a_panicking_tool_is_a_failed_call() {
    let ran = EngineFixture::new(vec![call("1", "boom", &json!({})), says("ok")])
        .run()
        .await;
    assert_eq!(*ran.outcome(), Outcome::Completed);
    assert_eq!(
        ran.results()[0].0,
        "Error [exception]: it panicked: a tool fell over"
    );
}

#[tokio::test]
async fn cancel_reaches_a_running_tool_and_pairs_its_call() {
    for name in ["slow", "stuck"] {
        let fixture = EngineFixture::new(vec![calls(&[
            ("1", name, json!({})),
            ("2", "look", json!({"path": "a"})),
        ])]);
        let session = fixture.open().await;
        let handle = session
            .run(Message::user("go"), fixture.options.clone())
            .unwrap();
        let canceller = handle.canceller();
        while session.with_history(|history| history.phase())
            != windlass_core::outcome::Phase::WaitingForTool
        {
            tokio::task::yield_now().await;
        }
        canceller.cancel();
        let began = fixture.clock.monotonic();
        let ran = fixture.watch(handle).await;
        assert_eq!(*ran.outcome(), Outcome::Cancelled, "{name}");
        assert!(fixture.clock.monotonic() - began < SECOND, "{name}");
        let errors: Vec<_> = ran.results().into_iter().map(|(_, error)| error).collect();
        assert_eq!(errors, [Some(ErrorCategory::Interrupted); 2], "{name}");
        // The next prompt of the same session is valid.
        assert_eq!(
            session.with_history(|history| windlass_core::history::unpaired(&history.entries())),
            None
        );
    }
}

#[tokio::test]
async fn the_time_limit_ends_a_run_during_a_call() {
    let mut fixture = EngineFixture::new(vec![call("1", "stuck", &json!({}))]);
    fixture.options.budget = Budget {
        seconds: Some(5),
        ..Budget::default()
    };
    let ran = fixture.run().await;
    assert_eq!(*ran.outcome(), Outcome::TimedOut);
    assert!(fixture.clock.monotonic() < 7 * SECOND);
}

#[tokio::test]
async fn a_full_disk_at_any_event_ends_the_run_and_keeps_the_written_events() {
    for at in 2..12 {
        let fixture = EngineFixture::new(vec![
            call("1", "write", &json!({"path": "a"})),
            says("done"),
        ]);
        let session = fixture.open().await;
        fixture.store.fail(StoreFault::FullAt(at));
        let ran = fixture.run_in(&session).await;
        let Outcome::Failed {
            reason: FailReason::Store,
            detail,
            ..
        } = ran.outcome()
        else {
            assert!(at > 10, "{at}: {:?}", ran.outcome());
            continue;
        };
        assert!(detail.contains("free some space"), "{detail}");
        assert_eq!(fixture.store.lines(session.id()).len() as u64, at - 1);
    }
}

#[tokio::test]
async fn a_failed_sync_stops_the_run_before_the_effect() {
    let fixture = EngineFixture::new(vec![
        call("1", "write", &json!({"path": "a"})),
        says("done"),
    ]);
    let session = fixture.open().await;
    fixture.store.fail(StoreFault::Sync);
    let ran = fixture.run_in(&session).await;
    assert!(matches!(
        ran.outcome(),
        Outcome::Failed {
            reason: FailReason::Store,
            ..
        }
    ));
    assert!(ran.results().is_empty(), "{:?}", ran.results());
}

#[tokio::test]
async fn a_stream_that_is_cut_anywhere_gives_one_terminal_event() {
    let text = "x".repeat(60);
    for cut in 0..text.len() {
        let mut answers = Vec::new();
        for _ in 0..4 {
            let mut chunks: Vec<_> = text[..cut]
                .chars()
                .map(|c| Ok(Chunk::Text(c.to_string())))
                .collect();
            if cut % 2 == 0 {
                let kind = ProviderErrorKind::Network {
                    transient: true,
                    sent: false,
                };
                chunks.push(Err(ProviderError {
                    kind,
                    message: "cut".into(),
                    status: None,
                }));
            }
            answers.push(chunks);
        }
        let ran = EngineFixture::new(answers).run().await;
        assert!(
            matches!(
                ran.outcome(),
                Outcome::Failed {
                    reason: FailReason::Provider,
                    ..
                }
            ),
            "{cut}"
        );
        assert_eq!(ran.deltas().len(), cut, "no text is shown twice");
    }
}

#[tokio::test]
async fn a_refusal_ends_after_one_model_call() {
    let refusal = vec![
        Ok(Chunk::Text("I will not".into())),
        Ok(Chunk::End(EndReason::Refused)),
    ];
    let fixture = EngineFixture::new(vec![refusal]);
    let ran = fixture.run().await;
    assert!(matches!(ran.outcome(), Outcome::Refused { detail, .. } if detail == "I will not"));
    assert_eq!(fixture.provider.asked().len(), 1);
}

#[tokio::test]
async fn a_pause_leaves_the_run_open_and_the_next_writer_closes_it() {
    let mut fixture = EngineFixture::new(vec![
        call("1", "write", &json!({"path": "a"})),
        says("then this"),
    ]);
    fixture.options.yes = false;
    fixture.gate.mode = windlass_core::gate::Mode::Ask;
    fixture.options.on_ask = OnAsk::Pause;
    let session = fixture.open().await;
    let ran = fixture.run_in(&session).await;
    assert_eq!(ran.kinds().last().map(String::as_str), Some("asked"));
    assert_eq!(session.with_history(|history| history.open_asks().len()), 1);
    let id = session.id().clone();
    drop(session);

    let session = fixture
        .engine()
        .open(OpenSession::Resume(id), RunMode::Full)
        .await
        .unwrap();
    assert!(
        session.with_history(|history| history.waits()),
        "it can still be answered"
    );
    let ran = fixture.run_in(&session).await;
    assert_eq!(*ran.outcome(), Outcome::Completed);
    let asked = fixture.provider.asked();
    assert!(
        format!("{:?}", asked.last()).contains("not run, because"),
        "the call waited for approval and never started"
    );
}

#[tokio::test]
async fn a_new_prompt_closes_a_paused_run_of_the_same_session() {
    let mut fixture = EngineFixture::new(vec![
        call("1", "write", &json!({"path": "a"})),
        says("then this"),
    ]);
    fixture.options.yes = false;
    fixture.gate.mode = windlass_core::gate::Mode::Ask;
    fixture.options.on_ask = OnAsk::Pause;
    let session = fixture.open().await;
    fixture.run_in(&session).await;
    let ran = fixture.run_in(&session).await;
    assert_eq!(*ran.outcome(), Outcome::Completed);
    let log = fixture.store.lines(session.id()).join("\n");
    let count = |kind: &str| log.matches(&format!("\"kind\":\"{kind}\"")).count();
    assert_eq!(
        (
            count("run_started"),
            count("run_finished"),
            count("call_finished")
        ),
        (2, 2, 1)
    );
    assert_eq!(
        session.with_history(|history| history.total().steps),
        2,
        "the paused run's spending is kept"
    );
}

#[tokio::test]
async fn a_slow_reader_gets_every_durable_event_and_the_end() {
    let mut flood: Vec<_> = (0..20_000)
        .map(|n| Ok(Chunk::Text(n.to_string())))
        .collect();
    flood.push(Ok(Chunk::End(EndReason::Done)));
    let fixture = EngineFixture::new(vec![flood]);
    let session = fixture.open().await;
    let handle = session
        .run(Message::user("go"), fixture.options.clone())
        .unwrap();
    while session.with_history(|history| history.runs()) == 0 {
        tokio::task::yield_now().await;
    }
    for _ in 0..2_000 {
        tokio::task::yield_now().await;
    }
    handle.cancel();
    for _ in 0..2_000 {
        tokio::task::yield_now().await;
    }
    let ran = fixture.watch(handle).await;
    ran.outcome();
    let durable = ran
        .events
        .iter()
        .filter(|event| event.order.seq().is_some())
        .count();
    assert_eq!(durable + 1, fixture.store.lines(session.id()).len());
}

#[tokio::test]
async fn a_cancelled_run_waits_for_a_call_that_must_finish() {
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (mark, clock) = (done.clone(), windlass_testing::ManualClock::default());
    let mut fixture = EngineFixture::new(vec![call("1", "firm", &json!({})), says("never asked")]);
    fixture.clock = clock.clone();
    let firm =
        windlass_testing::FnTool::new("firm", windlass_core::tool::Effect::Write, move |_, _| {
            let (mark, clock) = (mark.clone(), clock.clone());
            Box::pin(async move {
                clock.sleep(3 * SECOND).await;
                mark.store(true, std::sync::atomic::Ordering::SeqCst);
                Ok(windlass_core::tool::ToolOutput::text("whole"))
            })
        });
    fixture.tools.push(
        firm.with(|spec| spec.interrupt = windlass_core::tool::Interrupt::Finish)
            .boxed(),
    );
    let session = fixture.open().await;
    let handle = session
        .run(Message::user("go"), fixture.options.clone())
        .unwrap();
    while session.with_history(|history| history.phase())
        != windlass_core::outcome::Phase::WaitingForTool
    {
        tokio::task::yield_now().await;
    }
    handle.cancel();
    let ran = fixture.watch(handle).await;
    assert_eq!(*ran.outcome(), Outcome::Cancelled);
    assert!(
        done.load(std::sync::atomic::Ordering::SeqCst),
        "the call was interrupted"
    );
    assert_eq!(ran.results()[0].0, "whole");
}

#[tokio::test]
async fn a_session_killed_at_any_event_resumes_with_a_valid_history() {
    let script = || {
        vec![
            calls(&[
                ("1", "write", json!({"path": "a"})),
                ("2", "look", json!({"path": "b"})),
            ]),
            says("done"),
        ]
    };
    let fixture = EngineFixture::new(script());
    let session = fixture.open().await;
    fixture.run_in(&session).await;
    let lines = fixture.store.lines(session.id());
    for keep in 1..=lines.len() {
        let fixture = EngineFixture::new(script());
        fixture.store.put(session.id(), lines[..keep].to_vec());
        let resumed = fixture
            .engine()
            .open(OpenSession::Resume(session.id().clone()), RunMode::Full)
            .await
            .unwrap();
        let ran = fixture.run_in(&resumed).await;
        assert_eq!(*ran.outcome(), Outcome::Completed, "killed after {keep}");
        let ends = fixture
            .store
            .lines(session.id())
            .iter()
            .filter(|l| l.contains("\"kind\":\"run_finished\""))
            .count();
        assert_eq!(ends, if keep == 1 { 1 } else { 2 }, "killed after {keep}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_run_may_start_right_after_the_last_event() {
    let fixture = EngineFixture::new((0..200).map(|n| says(&n.to_string())).collect());
    let session = fixture.open().await;
    for _ in 0..200 {
        let mut handle = session
            .run(Message::user("go"), fixture.options.clone())
            .unwrap();
        while handle.next().await.is_some() {}
    }
}

#[tokio::test]
async fn a_session_has_one_run_at_a_time() {
    let fixture = EngineFixture::new(vec![call("1", "stuck", &json!({})), says("x")]);
    let session = fixture.open().await;
    let first = session
        .run(Message::user("go"), fixture.options.clone())
        .unwrap();
    assert!(
        session
            .run(Message::user("go"), fixture.options.clone())
            .is_err()
    );
    drop(first);
}

struct ScriptedJudgements(parking_lot::Mutex<Vec<Judgement>>);

impl Validator for ScriptedJudgements {
    fn name(&self) -> &str {
        "check"
    }
    fn check<'a>(&'a self, _: &'a CheckCtx<'a>) -> BoxFuture<'a, Result<Report, ValidatorError>> {
        let judgement = self.0.lock().remove(0);
        let finding = Finding {
            path: "a.rs".into(),
            line: 3,
            column: 0,
            ..Finding::whole("expected `;`")
        };
        Box::pin(async move { Ok(Report::new(judgement, vec![finding])) })
    }
}

#[tokio::test]
async fn findings_go_back_to_the_model_until_the_checks_pass() {
    let mut fixture = EngineFixture::new(vec![says("done"), says("now done")]);
    fixture.validators = vec![Arc::new(ScriptedJudgements(
        vec![Judgement::Fail, Judgement::Pass].into(),
    ))];
    fixture.workspaces.tree().change("a.rs");
    let ran = fixture.run().await;
    assert_eq!(*ran.outcome(), Outcome::Completed);
    assert_eq!(ran.count("iteration_started"), 2);
    assert!(format!("{:?}", fixture.provider.asked()[1]).contains("a.rs:3: expected `;`"));

    let mut fixture = EngineFixture::new(vec![says("done")]);
    fixture.validators = vec![Arc::new(ScriptedJudgements(
        vec![Judgement::Unverifiable].into(),
    ))];
    fixture.workspaces.tree().change("a.rs");
    fixture.options.budget = Budget {
        iterations: Some(1),
        ..Budget::default()
    };
    let ran = fixture.run().await;
    assert!(
        matches!(
            ran.outcome(),
            Outcome::Failed {
                reason: FailReason::Validation,
                ..
            }
        ),
        "never counted as a pass"
    );
    let evidence = ran.events.iter().any(|event| match &event.kind {
        EventKind::RunFinished(RunSummary { evidence, .. }) => evidence.len() == 1,
        _ => false,
    });
    assert!(evidence);
}
