//! Asks: a call that a person has to approve. No user is connected, so the run pauses; the ask is in the log.
//! Hours later another process answers the ask by its id, and the run resumes: the call is executed once.
//! An id that is not open, an answer of the wrong kind and a second answer are errors that change nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::json;
use windlass_core::ask::{About, Answer};
use windlass_core::id::AskId;
use windlass_core::outcome::Outcome;
use windlass_core::tool::{Effect, Tool, ToolOutput};
use windlass_engine::{AnswerRequest, Engine, EngineError, Request};
use windlass_testing::{FnTool, call, says};

use super::ExampleResult;
use super::fakes::Fakes;

/// A tool with an effect, which counts its executions.
fn deploy(done: &Arc<AtomicU32>) -> Arc<dyn Tool> {
    let done = done.clone();
    let deploy = FnTool::new("deploy", Effect::External, move |_, _| {
        done.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { Ok(ToolOutput::text("deployed")) })
    });
    deploy.boxed()
}

pub(crate) async fn run_example() -> ExampleResult {
    let fakes = Fakes::new([
        call("1", "deploy", &json!({ "to": "production" })),
        says("It is live."),
    ]);
    let done = Arc::new(AtomicU32::new(0));
    let process =
        || -> Result<Engine, EngineError> { fakes.builder().tools([deploy(&done)]).build() };

    // The first process.
    let paused = process()?.execute(Request::new("ship it")).await?;
    let ask = paused.asks.first().ok_or("it did not ask")?;
    let About::Approval(approval) = &ask.about else {
        return Err("it asked something else".into());
    };
    assert_eq!(
        (paused.outcome(), approval.call.args["to"].as_str()),
        (None, Some("production"))
    );
    assert_eq!(done.load(Ordering::SeqCst), 0);

    // Another process, hours later: it needs only the id of the session and the id of the ask.
    fakes.clock.advance(Duration::from_secs(6 * 3_600));
    let engine = process()?;
    let text = Answer::Text {
        text: "sure".into(),
    };
    let unfitting = engine
        .answer(&paused.session, &ask.id, text, AnswerRequest::default())
        .await
        .err();
    assert!(
        matches!(unfitting, Some(EngineError::Unfitting { .. })),
        "an approval takes a yes or a no: {unfitting:?}"
    );
    let result = engine
        .answer(
            &paused.session,
            &ask.id,
            Answer::Once,
            AnswerRequest::default(),
        )
        .await?;
    assert_eq!(
        (result.outcome(), &result.run),
        (Some(&Outcome::Completed), &paused.run)
    );
    assert_eq!(
        (result.text.as_str(), done.load(Ordering::SeqCst)),
        ("It is live.", 1)
    );
    assert!(
        result.summary.is_some_and(|summary| summary.ms < 1_000),
        "waiting for a person costs the run no time"
    );

    let other: AskId = "a9-00000000".parse()?;
    for wrong in [&ask.id, &other] {
        let refused = engine
            .answer(
                &paused.session,
                wrong,
                Answer::Once,
                AnswerRequest::default(),
            )
            .await
            .err();
        assert!(
            matches!(refused, Some(EngineError::NoSuchAsk(_))),
            "{refused:?}"
        );
    }
    assert_eq!(done.load(Ordering::SeqCst), 1);
    Ok(())
}
