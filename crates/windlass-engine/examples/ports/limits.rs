//! Limits: the maximum amounts of one run. A model call that would exceed a limit is not made.
//! A reached limit is an outcome, or an error if the request asks for one; both contain the result.
//! Limits are per run; the log contains the total of the session.

use serde_json::json;
use windlass_core::budget::{Budget, Limit};
use windlass_core::outcome::Outcome;
use windlass_core::tool::{Effect, ToolOutput};
use windlass_engine::{EngineError, Request, RunOptions};
use windlass_testing::{FnTool, call};

use super::ExampleResult;
use super::fakes::Fakes;

pub(crate) async fn run_example() -> ExampleResult {
    let look = || {
        FnTool::new("look", Effect::Read, |_, _| {
            Box::pin(async { Ok(ToolOutput::text("a wall")) })
        })
        .boxed()
    };
    let looks = |from: u32| {
        (from..from + 4).map(|n| call(&n.to_string(), "look", &json!({ "path": n.to_string() })))
    };
    let fakes = Fakes::new(looks(0));
    let engine = fakes.builder().tools([look()]).build()?;
    let budget = Budget {
        steps: Some(2),
        ..Budget::default()
    };
    let request = Request {
        options: RunOptions {
            budget,
            ..RunOptions::default()
        },
        ..Request::new("find the door")
    };
    let result = engine.execute(request.clone()).await?;
    assert_eq!(
        (
            result.outcome().cloned(),
            result.outcome().and_then(Outcome::exceeded)
        ),
        (Some(Outcome::MaxSteps), Some(Limit::Steps))
    );
    assert_eq!(
        (result.totals().steps, fakes.provider.asked().len()),
        (2, 2),
        "the third was not sent"
    );

    let raised = engine
        .execute(Request {
            raise_on_budget_exceeded: true,
            ..request
        })
        .await;
    let Err(EngineError::BudgetExceeded { limit, result }) = raised else {
        return Err("it was not raised".into());
    };
    assert_eq!((limit, result.totals().steps), (Limit::Steps, 2));
    Ok(())
}
