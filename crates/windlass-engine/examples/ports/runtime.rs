//! A runtime: an agent loop of your own, or the way to a foreign one. It gets a job and says why it stopped.
//! Facts go out through the outlet, calls go through the toolbox (judged and logged), and the account is asked first.
//! What it claims to be able to do decides which work it is given: what it cannot do fails before it begins.

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

use super::Shown;
use super::fakes::Fakes;

/// Looks once and tells what it saw. It has no model, and counts itself as one.
struct Lookout;

impl Runtime for Lookout {
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
            // A call is said before it is made, so that every result has its call.
            let mut message = Message::assistant("I look.");
            message.parts.push(Part::Call(call.clone()));
            job.outlet.emit(EventKind::said(message)).await?;
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
            job.outlet
                .emit(EventKind::said(Message::assistant(saw.join("\n"))))
                .await?;
            Ok(Stop::Done)
        })
    }
}

pub(crate) async fn show() -> Shown {
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
        .runtime(Arc::new(Lookout))
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
            windlass_engine::Open::Resume(result.session),
            RunMode::Analysis,
        )
        .await?;
    let roles: Vec<Role> =
        session.look(|history| history.entries().iter().map(|entry| entry.role).collect());
    assert_eq!(
        roles,
        [Role::User, Role::Assistant, Role::Tool, Role::Assistant],
        "the result answers the call"
    );
    Ok(())
}
