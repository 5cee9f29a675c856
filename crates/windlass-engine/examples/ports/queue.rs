//! Steering and the queue: messages that a user sends during a run. They are durable when `queue` returns.
//! The run itself receives a steering message between two steps; a follow-up waits for a separate run.
//! Follow-ups survive the process. Cancelling ends the run and drops the queue.

use std::sync::Arc;

use serde_json::json;
use tokio::sync::Notify;
use windlass_core::event::EventKind;
use windlass_core::message::{ErrorCategory, Message};
use windlass_core::outcome::{Outcome, RunSummary};
use windlass_core::runtime::RunMode;
use windlass_core::tool::{Effect, ToolFailure, ToolOutput};
use windlass_engine::{Delivery, OpenSession, RunOptions};
use windlass_testing::{FnTool, call, says};

use super::ExampleResult;
use super::fakes::Fakes;

pub(crate) async fn run_example() -> ExampleResult {
    let go_on = Arc::new(Notify::new());
    let told = go_on.clone();
    let wait = FnTool::new("wait", Effect::Read, move |_, ctx| {
        let told = told.clone();
        Box::pin(async move {
            tokio::select! {
                () = told.notified() => Ok(ToolOutput::text("waited")),
                () = ctx.cancel.cancelled() => Err(ToolFailure::new(ErrorCategory::Interrupted, "told to end")),
            }
        })
    });
    let waits = || call("1", "wait", &json!({}));
    let fakes = Fakes::new([waits(), says("left, then"), says("and tested"), waits()]);
    let engine = fakes.builder().tools([wait.boxed()]).build()?;
    let session = engine.open(OpenSession::New, RunMode::Full).await?;

    let mut run = session.run(Message::user("go right"), RunOptions::default())?;
    while let Some(event) = run.next().await {
        if let EventKind::CallStarted { .. } = event.kind {
            session
                .queue(Message::user("no, left"), Delivery::Steer)
                .await?;
            session
                .queue(Message::user("then test it"), Delivery::FollowUp)
                .await?;
            go_on.notify_one();
        }
    }
    let texts = |n: usize| -> Vec<String> {
        fakes.provider.asked()[n]
            .iter()
            .map(Message::text)
            .collect()
    };
    assert_eq!(
        texts(1).last().map(String::as_str),
        Some("no, left"),
        "taken up between two steps"
    );

    // The process ends here. Another one finds the queued prompts.
    let id = session.id().clone();
    drop(session);
    let session = engine.open(OpenSession::Resume(id), RunMode::Full).await?;
    let run = session
        .run_queued(RunOptions::default())?
        .ok_or("nothing waits")?;
    assert_eq!(run.finish().await, Some(Outcome::Completed));
    assert_eq!(texts(2).last().map(String::as_str), Some("then test it"));
    assert!(session.run_queued(RunOptions::default())?.is_none());

    session
        .queue(Message::user("never mind"), Delivery::FollowUp)
        .await?;
    let mut run = session.run(Message::user("wait again"), RunOptions::default())?;
    let mut outcome = None;
    while let Some(event) = run.next().await {
        match event.kind {
            EventKind::CallStarted { .. } => session.cancel(),
            EventKind::RunFinished(RunSummary { outcome: how, .. }) => outcome = Some(how),
            _ => {}
        }
    }
    assert_eq!(outcome, Some(Outcome::Cancelled));
    assert!(
        session.run_queued(RunOptions::default())?.is_none(),
        "what waited is dropped"
    );
    Ok(())
}
