//! Answers of a person: expiry, answers that do not fit, and the timer that stops meanwhile.

use serde_json::json;
use windlass_core::ask::Answer;
use windlass_core::event::EventKind;
use windlass_core::gate::Mode;
use windlass_core::id::AskId;
use windlass_core::message::Message;
use windlass_core::outcome::Outcome;
use windlass_testing::{call, says};

use crate::fixture::{EngineFixture, SECOND};

fn asking() -> EngineFixture {
    let mut fixture =
        EngineFixture::new(vec![call("1", "write", &json!({"path": "a"})), says("ok")]);
    fixture.gate.mode = Mode::Ask;
    fixture.options.yes = false;
    fixture
}

#[tokio::test]
async fn an_unanswered_ask_expires_and_uses_no_run_time() {
    let mut fixture = asking();
    fixture.options.ask_timeout = Some(300 * SECOND);
    fixture.options.budget.seconds = Some(10);
    let ran = fixture.run().await;
    assert_eq!(*ran.outcome(), Outcome::Completed);
    assert!(ran.results()[0].0.contains("not answered in time"));
}

#[tokio::test]
async fn an_answer_is_used_once_and_must_name_an_open_ask() {
    let fixture = asking();
    let session = fixture.open().await;
    let mut handle = session
        .run(Message::user("go"), fixture.options.clone())
        .unwrap();
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

#[tokio::test]
async fn a_call_whose_target_changed_during_approval_is_not_run() {
    use windlass_core::tool::{Tool, ToolCtx, ToolFailure, ToolOutput, ToolSpec, Touch};
    /// A write whose path has another target at the second query, like a symlink that was replaced.
    struct ReplacedSymlink(ToolSpec, std::sync::atomic::AtomicU32);
    impl Tool for ReplacedSymlink {
        fn spec(&self) -> &ToolSpec {
            &self.0
        }
        fn touches(
            &self,
            _: &serde_json::Value,
            _: &ToolCtx<'_>,
        ) -> Result<Vec<Touch>, ToolFailure> {
            let n = self.1.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            Ok(vec![Touch::Write {
                path: if n == 0 { "a".into() } else { "other".into() },
                inside: true,
                new: false,
            }])
        }
        fn run<'a>(
            &'a self,
            _: serde_json::Value,
            _: ToolCtx<'a>,
        ) -> windlass_core::BoxFuture<'a, Result<ToolOutput, ToolFailure>> {
            Box::pin(async { panic!("it ran") })
        }
    }
    let mut fixture = asking();
    let spec = ToolSpec::new("write", "", json!({}), windlass_core::tool::Effect::Write);
    fixture.tools = vec![std::sync::Arc::new(ReplacedSymlink(spec, 0.into()))];
    fixture.person = vec![Answer::Once];
    let ran = fixture.run().await;
    assert!(
        ran.results()[0].0.starts_with("Error [stale]"),
        "{:?}",
        ran.results()
    );
    assert_eq!(ran.count("call_started"), 0);
}
