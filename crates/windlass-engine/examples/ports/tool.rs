//! A tool: its arguments, the touches of a call, and the call itself. This one reads a ticket.
//! The touches are judged before it runs; arguments that do not match the schema never reach it.
//! The `call_output` of its context displays progress, keeps notes that outlive the run, and can ask the user.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use windlass_core::gate::{Level, PermissionGate, Rule, Verdict};
use windlass_core::message::{ErrorCategory, Message};
use windlass_core::outcome::Outcome;
use windlass_core::runtime::RunMode;
use windlass_core::tool::{Effect, ToolCtx, ToolFailure, ToolOutput, Touch};
use windlass_core::typed_tool::{TypedTool, typed};
use windlass_engine::{OpenSession, RunOptions};
use windlass_testing::{call, says};

use super::ExampleResult;
use super::fakes::Fakes;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Args {
    /// The number of the ticket in the tracker.
    number: u64,
}

struct TicketTool;

impl TypedTool for TicketTool {
    type Args = Args;
    const NAME: &str = "ticket";
    const DESCRIPTION: &str = "Reads a ticket of the tracker.";
    const EFFECT: Effect = Effect::Network;

    fn touches(&self, _args: Args, _ctx: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure> {
        Ok(vec![Touch::Connect {
            host: "tracker.example".into(),
        }])
    }

    async fn run(&self, args: Args, ctx: ToolCtx<'_>) -> Result<ToolOutput, ToolFailure> {
        ctx.call_output.progress("asking the tracker");
        if args.number != 7 {
            return Err(ToolFailure::new(
                ErrorCategory::NotFound,
                "there is no such ticket; the open one is 7",
            ));
        }
        ctx.call_output
            .set_notes("ticket 7 was read".into())
            .await?;
        Ok(ToolOutput::text("The button is blue and should be green."))
    }
}

pub(crate) async fn run_example() -> ExampleResult {
    let wrong = call("1", "ticket", &json!({ "number": "seven" }));
    let missing = call("2", "ticket", &json!({ "number": 8 }));
    let right = call("3", "ticket", &json!({ "number": 7 }));
    let fakes = Fakes::new([wrong, missing, right, says("It is about a button.")]);
    // The default mode asks before a connection; this rule allows one host.
    let rule = Rule::parse("ticket(tracker.example)", Verdict::Allow, Level::User)?;
    let gate = PermissionGate {
        rules: vec![rule],
        ..PermissionGate::default()
    };
    let engine = fakes
        .builder()
        .tools([typed(TicketTool)])
        .gate(gate)
        .build()?;
    let session = engine.open(OpenSession::New, RunMode::Full).await?;
    let outcome = session
        .run(
            Message::user("what is ticket 7 about?"),
            RunOptions::default(),
        )?
        .finish()
        .await;
    assert_eq!(outcome, Some(Outcome::Completed));
    let told = format!("{:?}", fakes.provider.asked().last());
    for said in [
        "[invalid_arguments]",
        "the open one is 7",
        "should be green",
    ] {
        assert!(told.contains(said), "the model was not told {said}: {told}");
    }
    assert_eq!(
        session.with_history(|history| history.notes().to_owned()),
        "ticket 7 was read"
    );
    Ok(())
}
