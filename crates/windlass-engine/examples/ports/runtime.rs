//! A runtime: your own agent loop, or the connection to a foreign one. It gets a job and returns why it stopped.
//! It emits events through the sink, makes calls through the toolbox (judged and logged), and asks the account first.
//! Its claimed capabilities decide which work it gets: work that it cannot do fails before it starts.

use std::sync::Arc;

use serde_json::json;
use windlass_core::BoxFuture;
use windlass_core::budget::{Price, Usage};
use windlass_core::event::EventKind;
use windlass_core::message::{Message, Part, Role, ToolCall};
use windlass_core::outcome::Outcome;
use windlass_core::runtime::{Capabilities, Capability, Job, RunMode, Runtime, RuntimeError, Stop};
use windlass_core::tool::{Effect, ToolOutput};
use windlass_core::turn::Planned;
use windlass_engine::{EngineError, Request};
use windlass_testing::FnTool;

use super::ExampleResult;
use super::fakes::Fakes;

/// Makes one tool call and reports its result. It has no model, and records its own usage instead.
struct OneCallRuntime;

impl Runtime for OneCallRuntime {
    fn name(&self) -> &str {
        "lookout"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::of([Capability::TextCompletion, Capability::FunctionTools])
    }

    fn run<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Result<Stop, RuntimeError>> {
        Box::pin(async move {
            if let Err(limit) = job.account.admit(10, 10, Some(Price::FREE)) {
                return Ok(Stop::OverBudget { limit });
            }
            let args = json!({ "path": job.prompt.text() });
            let call = ToolCall {
                id: "1".into(),
                name: "look".into(),
                args,
                malformed: None,
            };
            // Log the message with the call first, so that every result has its call.
            let mut message = Message::assistant("I look.");
            message.parts.push(Part::Call(call.clone()));
            job.sink.emit(EventKind::said(message)).await?;
            let settled = job
                .toolbox
                .call(vec![Planned { call, refuse: None }])
                .await?;
            let usage = Usage {
                input: 10,
                output: 5,
                ..Usage::default()
            };
            job.account
                .settle(usage, Some(Price::FREE), true, "lookout")
                .await?;
            let saw: Vec<&str> = settled.iter().map(|one| one.result.text.as_str()).collect();
            job.sink
                .emit(EventKind::said(Message::assistant(saw.join("\n"))))
                .await?;
            Ok(Stop::Done)
        })
    }
}

pub(crate) async fn run_example() -> ExampleResult {
    let look = FnTool::new("look", Effect::Read, |args, _| {
        Box::pin(async move {
            Ok(ToolOutput::text(format!(
                "there is land at {}",
                args["path"]
            )))
        })
    });
    let engine = Fakes::new([])
        .builder()
        .runtime(Arc::new(OneCallRuntime))
        .tools([look.boxed()])
        .build()?;
    let refused = engine.execute(Request::new("change it")).await.err();
    assert!(
        matches!(refused, Some(EngineError::Unmet(_))),
        "it cannot edit, so it is not asked to: {refused:?}"
    );

    let result = engine
        .execute(Request {
            mode: RunMode::Analysis,
            ..Request::new("north")
        })
        .await?;
    assert_eq!(result.outcome(), Some(&Outcome::Completed));
    assert_eq!(result.text, "there is land at \"north\"");
    assert_eq!(
        (result.totals().steps, result.totals().usage.output),
        (1, 5)
    );

    let session = engine
        .open(
            windlass_engine::OpenSession::Resume(result.session),
            RunMode::Analysis,
        )
        .await?;
    let roles: Vec<Role> =
        session.with_history(|history| history.entries().iter().map(|entry| entry.role).collect());
    assert_eq!(
        roles,
        [Role::User, Role::Assistant, Role::Tool, Role::Assistant],
        "the result answers the call"
    );
    Ok(())
}
