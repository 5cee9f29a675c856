//! The queue of prompts: the client that sent a prompt, changes of the order, and their races with a run.

use serde_json::json;
use windlass_core::ask::{Answer, AnsweredBy};
use windlass_core::event::EventKind;
use windlass_core::flags::SavedFlags;
use windlass_core::gate::Mode;
use windlass_core::id::SessionId;
use windlass_core::message::Message;
use windlass_core::outcome::Outcome;
use windlass_core::runtime::RunMode;
use windlass_engine::{Delivery, EngineError, OnAsk, OpenSession, QueueRequest, Session};
use windlass_testing::{call, says};

use crate::fixture::EngineFixture;

/// Queues these prompts and returns their numbers.
async fn queue(session: &Session, prompts: &[&str]) -> Vec<u64> {
    let mut all = Vec::new();
    for text in prompts {
        let prompt = Message::user(*text);
        all.push(session.queue(prompt, Delivery::FollowUp).await.unwrap());
    }
    all
}

fn waiting(session: &Session) -> Vec<String> {
    session.with_history(|history| {
        let all = history.queue().all().iter();
        all.map(|waiting| waiting.prompt.text()).collect()
    })
}

fn kinds(fixture: &EngineFixture, id: &SessionId) -> Vec<EventKind> {
    let event = |line: &String| serde_json::from_str::<windlass_core::event::Event>(line).unwrap();
    let lines = fixture.store.lines(id);
    lines.iter().map(|line| event(line).kind).collect()
}

#[tokio::test]
async fn a_queued_prompt_keeps_its_flags_its_client_and_its_key() {
    let fixture = EngineFixture::new(vec![says("done")]);
    let session = fixture.open().await;
    let mut flags = SavedFlags::default();
    flags.set("model", "m".into());
    let request = QueueRequest {
        flags: flags.clone(),
        by: Some("ci".to_owned()),
        key: Some("k-1".to_owned()),
        ..QueueRequest::new(Message::user("go"), Delivery::FollowUp)
    };
    let seq = session.queue_request(request).await.unwrap();
    let id = session.id().clone();
    drop(session);
    let session = fixture
        .engine()
        .open(OpenSession::Resume(id.clone()), RunMode::Full)
        .await
        .unwrap();
    let waiting = session.with_history(|history| history.queue().first().cloned());
    let waiting = waiting.unwrap();
    assert_eq!((waiting.seq, &waiting.flags), (seq, &flags));
    assert_eq!(waiting.by.as_deref(), Some("ci"));
    assert_eq!(waiting.key.as_deref(), Some("k-1"));
    let mut options = fixture.options.clone();
    options.flags = waiting.flags;
    let other = session.run_queued_prompt(seq + 1, options.clone()).unwrap();
    assert!(other.is_none());
    let run = session.run_queued_prompt(seq, options).unwrap().unwrap();
    assert_eq!(*fixture.watch(run).await.outcome(), Outcome::Completed);
    let started = kinds(&fixture, &id)
        .into_iter()
        .find_map(|kind| match kind {
            EventKind::RunStarted { queued, flags, .. } => Some((queued, flags)),
            _ => None,
        });
    assert_eq!(started, Some((Some(seq), flags)));
}

#[tokio::test]
async fn the_queue_is_reordered_and_cleared_and_both_survive_the_process() {
    let fixture = EngineFixture::new(vec![says("done")]);
    let session = fixture.open().await;
    let all = queue(&session, &["a", "b", "c"]).await;
    session.reorder_queue(vec![all[2], all[0]]).await.unwrap();
    assert_eq!(waiting(&session), ["c", "a"]);
    for (order, says) in [
        (vec![all[2], all[1]], "is not queued"),
        (vec![all[2], all[2]], "is listed twice"),
        (vec![999], "read the queue again"),
    ] {
        let refused = session.reorder_queue(order).await.unwrap_err();
        assert!(refused.to_string().contains(says), "{refused}");
    }
    let id = session.id().clone();
    drop(session);
    let session = fixture
        .engine()
        .open(OpenSession::Resume(id), RunMode::Full)
        .await
        .unwrap();
    assert_eq!(waiting(&session), ["c", "a"]);
    session.reorder_queue(vec![]).await.unwrap();
    assert!(waiting(&session).is_empty());
    assert!(
        session
            .run_queued(fixture.options.clone())
            .unwrap()
            .is_none()
    );
}

#[tokio::test]
async fn a_prompt_that_is_removed_before_its_run_starts_does_not_run() {
    let fixture = EngineFixture::new(vec![says("b")]);
    let session = fixture.open().await;
    let all = queue(&session, &["a", "b"]).await;
    // On this single thread, the run starts only at the next wait, after the queue has changed.
    let handle = session
        .run_queued(fixture.options.clone())
        .unwrap()
        .unwrap();
    session.reorder_queue(vec![all[1]]).await.unwrap();
    let ran = fixture.watch(handle).await;
    assert_eq!(ran.kinds(), ["queue_changed"], "no run was logged");
    let handle = session
        .run_queued(fixture.options.clone())
        .unwrap()
        .unwrap();
    assert_eq!(*fixture.watch(handle).await.outcome(), Outcome::Completed);
    let id = session.id();
    let prompts = kinds(&fixture, id)
        .into_iter()
        .filter_map(|kind| match kind {
            EventKind::RunStarted { prompt, .. } => Some(prompt.text()),
            _ => None,
        });
    assert_eq!(prompts.collect::<Vec<_>>(), ["b"]);
}

#[tokio::test]
async fn a_prompt_whose_run_started_is_refused_and_never_comes_back() {
    let fixture = EngineFixture::new(vec![call("1", "look", &json!({"path": "a"})), says("done")]);
    let session = fixture.open().await;
    let all = queue(&session, &["a", "b", "c"]).await;
    let mut handle = session
        .run_queued(fixture.options.clone())
        .unwrap()
        .unwrap();
    while !matches!(
        handle.next().await.unwrap().kind,
        EventKind::RunStarted { .. }
    ) {}
    let refused = session.reorder_queue(vec![all[1], all[0]]).await;
    assert!(
        matches!(refused, Err(EngineError::InvalidQueueOrder { seq, .. }) if seq == all[0]),
        "{refused:?}"
    );
    session.reorder_queue(vec![all[2], all[1]]).await.unwrap();
    let ran = fixture.watch(handle).await;
    assert_eq!(
        ran.count("queue_changed"),
        1,
        "the reader of the run sees it"
    );
    assert_eq!(*ran.outcome(), Outcome::Completed);
    assert_eq!(waiting(&session), ["c", "b"]);
}

#[tokio::test]
async fn a_removed_steering_prompt_is_not_delivered() {
    let fixture = EngineFixture::new(vec![says("done")]);
    let session = fixture.open().await;
    let mut all = Vec::new();
    for text in ["left", "right"] {
        let steered = session.queue(Message::user(text), Delivery::Steer).await;
        all.push(steered.unwrap());
    }
    session.reorder_queue(vec![all[1]]).await.unwrap();
    fixture.run_in(&session).await;
    let asked = format!("{:?}", fixture.provider.asked());
    assert!(
        asked.contains("right") && !asked.contains("left"),
        "{asked}"
    );
}

#[tokio::test]
async fn the_log_names_the_client_that_answered() {
    for on_ask in [OnAsk::Wait, OnAsk::Pause] {
        let mut fixture =
            EngineFixture::new(vec![call("1", "write", &json!({"path": "a"})), says("ok")]);
        fixture.gate.mode = Mode::Ask;
        fixture.options.yes = false;
        fixture.options.on_ask = on_ask;
        fixture.options.ask_timeout = None;
        let session = fixture.open().await;
        let mut handle = session
            .run(Message::user("go"), fixture.options.clone())
            .unwrap();
        let who = || Some("phone".to_owned());
        let ask = loop {
            if let EventKind::Asked { ask } = handle.next().await.unwrap().kind {
                break ask;
            }
        };
        assert_eq!(ask.waits_ms, None);
        let handle = match on_ask {
            OnAsk::Pause => {
                fixture.watch(handle).await;
                session
                    .answer_as(&ask.id, Answer::Once, who(), fixture.options.clone())
                    .unwrap()
            }
            _ => {
                // Without a limit, no time ends the wait.
                fixture.clock.advance(1_000_000 * crate::fixture::SECOND);
                handle.answer_as(&ask.id, Answer::Once, who()).unwrap();
                handle
            }
        };
        assert_eq!(*fixture.watch(handle).await.outcome(), Outcome::Completed);
        let answers = kinds(&fixture, session.id()).into_iter();
        let answers = answers.filter_map(|kind| match kind {
            EventKind::Answered { by, who, .. } => Some((by, who)),
            _ => None,
        });
        assert_eq!(answers.collect::<Vec<_>>(), [(AnsweredBy::Person, who())]);
    }
}
