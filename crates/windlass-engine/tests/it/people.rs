//! People: expiry, answers that do not fit, and that thinking costs no time.

use serde_json::json;
use windlass_core::ask::Answer;
use windlass_core::event::EventKind;
use windlass_core::gate::Mode;
use windlass_core::id::AskId;
use windlass_core::message::Message;
use windlass_core::outcome::Outcome;
use windlass_engine::testing::{call, says};

use crate::lab::{Lab, SECOND};

fn asking() -> Lab {
    let mut lab = Lab::new(vec![call("1", "write", &json!({"path": "a"})), says("ok")]);
    lab.gate.mode = Mode::Ask;
    lab.options.yes = false;
    lab
}

#[tokio::test]
async fn an_ask_that_nobody_answers_expires_and_costs_no_run_time() {
    let mut lab = asking();
    lab.options.ask_timeout = 300 * SECOND;
    lab.options.budget.seconds = Some(10);
    let ran = lab.run().await;
    assert_eq!(*ran.outcome(), Outcome::Completed);
    assert!(ran.results()[0].0.contains("nobody answered in time"));
}

#[tokio::test]
async fn an_answer_is_used_once_and_must_name_an_open_ask() {
    let lab = asking();
    let session = lab.open().await;
    let mut handle = session.run(Message::user("go"), lab.options.clone()).unwrap();
    let ask = loop {
        if let EventKind::Asked { ask } = handle.next().await.unwrap().kind {
            break ask;
        }
    };
    let other: AskId = "a9-ffffffff".parse().unwrap();
    assert!(handle.answer(&other, Answer::Once).is_err());
    assert!(handle.answer(&ask.id, Answer::Once).is_ok());
    assert!(handle.answer(&ask.id, Answer::Once).is_err());
    assert_eq!(handle.finish().await, Some(Outcome::Completed));
}
