//! The conversation is cleared between two runs.

use serde_json::json;
use windlass_core::event::EventKind;
use windlass_core::message::Message;
use windlass_core::pause::PauseReason;
use windlass_core::runtime::RunMode;
use windlass_engine::{Delivery, EngineError, OpenSession};
use windlass_testing::{call, says};

use crate::fixture::EngineFixture;

#[tokio::test]
async fn after_a_clear_the_model_starts_anew_also_in_another_process() {
    let fixture = EngineFixture::new(vec![
        call("1", "look", &json!({ "path": "secret-plan" })),
        says("the first answer"),
        says("the second answer"),
        says("the third answer"),
    ]);
    let session = fixture.open().await;
    let id = session.id().clone();
    fixture.run_in(&session).await;
    let queued = session.queue(Message::user("queued"), Delivery::FollowUp);
    queued.await.unwrap();
    let steps = session.with_history(|history| history.total().steps);
    let seq = session.clear().await.unwrap();
    let handle = session.run(Message::user("anew"), fixture.options.clone());
    fixture.watch(handle.unwrap()).await;
    drop(session);
    let engine = fixture.engine();
    let opened = engine.open(OpenSession::Resume(id.clone()), RunMode::Full);
    let session = opened.await.unwrap();
    let handle = session.run_queued(fixture.options.clone()).unwrap();
    fixture.watch(handle.unwrap()).await;
    let texts = |at: usize| {
        let asked = &fixture.provider.asked()[at];
        asked.iter().map(Message::text).collect::<Vec<_>>()
    };
    assert_eq!(texts(2), ["anew"]);
    assert_eq!(texts(3), ["anew", "the second answer", "queued"]);
    assert!(session.with_history(|history| history.total().steps) > steps);
    let line = &fixture.store.lines(&id)[usize::try_from(seq).unwrap() - 1];
    assert!(line.contains(r#""kind":"cleared""#), "{line}");
    assert!(
        fixture
            .store
            .lines(&id)
            .concat()
            .contains("the first answer")
    );
}

#[tokio::test]
async fn a_conversation_with_an_open_run_is_not_cleared() {
    let fixture = EngineFixture::new(vec![call("1", "slow", &json!({})), says("done")]);
    let session = fixture.open().await;
    let options = || fixture.options.clone();
    let mut handle = session.run(Message::user("go"), options()).unwrap();
    while !matches!(
        handle.next().await.unwrap().kind,
        EventKind::CallStarted { .. }
    ) {}
    assert!(matches!(session.clear().await, Err(EngineError::Busy)));
    handle.pauser().pause_now(PauseReason::Requested);
    fixture.watch(handle).await;
    assert!(matches!(session.clear().await, Err(EngineError::RunOpen)));
    session.close_paused().await.unwrap();
    session.clear().await.unwrap();
    assert!(session.with_history(|history| history.entries().is_empty()));
}
