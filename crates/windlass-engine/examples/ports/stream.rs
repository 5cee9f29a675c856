//! The stream: every event of a run as it happens. Durable events are numbered without gaps.
//! A fold of the same events is the result that `execute` returns, so a view and a result cannot differ.
//! A run can be cancelled at any point; it still ends with exactly one terminal event.

use std::sync::Arc;

use serde_json::json;
use windlass_core::event::{DeltaOf, EventKind};
use windlass_core::outcome::{Outcome, RunSummary};
use windlass_core::tool::{Effect, ToolFailure};
use windlass_engine::{Request, ResultFold};
use windlass_testing::{FnTool, call, says};

use super::ExampleResult;
use super::fakes::Fakes;

pub(crate) async fn run_example() -> ExampleResult {
    let engine = Fakes::new([says("Hello there.")]).builder().build()?;
    let mut run = engine.stream(Request::new("greet me")).await?;
    let (mut shown, mut last_seq, mut fold) = (String::new(), None, None);
    while let Some(event) = run.next().await {
        let fold =
            fold.get_or_insert_with(|| ResultFold::new(event.session.clone(), run.id().clone()));
        fold.apply(&event);
        last_seq = event.order.seq().or(last_seq);
        if let EventKind::Delta {
            of: DeltaOf::Text,
            text,
        } = &event.kind
        {
            shown.push_str(text);
        }
    }
    let result = fold.ok_or("a run has events")?.finish();
    assert_eq!(
        (shown.as_str(), result.text.as_str()),
        ("Hello there.", "Hello there.")
    );
    assert_eq!(result.outcome(), Some(&Outcome::Completed));
    assert!(last_seq > Some(1));

    let slow = FnTool::new("slow", Effect::Read, |_, ctx| {
        Box::pin(async move {
            ctx.cancel.cancelled().await;
            Err(ToolFailure::new(
                windlass_core::message::ErrorCategory::Interrupted,
                "told to end",
            ))
        })
    });
    let engine = Fakes::new([call("1", "slow", &json!({}))])
        .builder()
        .tools([slow.boxed()])
        .build()?;
    let mut run = engine.stream(Request::new("take your time")).await?;
    let canceller = Arc::new(run.canceller());
    let mut ends = Vec::new();
    while let Some(event) = run.next().await {
        match event.kind {
            // In a program, a signal handler or a timer does this.
            EventKind::CallStarted { .. } => canceller.cancel(),
            EventKind::RunFinished(RunSummary { outcome, .. }) => ends.push(outcome),
            _ => {}
        }
    }
    assert_eq!(ends, [Outcome::Cancelled]);
    Ok(())
}
