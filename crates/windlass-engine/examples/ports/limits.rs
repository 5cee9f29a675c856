//! Limits: what one run may spend. A call to the model that would cross a limit is not made.
//! A limit that is reached is an outcome, or an error for whoever asked for one; the result is in both.
//! Limits are per run; what a session spent in all stays in its log.

use serde_json::json;
use windlass_core::budget::{Budget, Limit};
use windlass_core::outcome::Outcome;
use windlass_core::tool::{Effect, ToolOutput};
use windlass_engine::{EngineError, Request, RunOptions};
use windlass_testing::{FnTool, call};

use super::Shown;
use super::fakes::Fakes;

pub(crate) async fn show() -> Shown {
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
