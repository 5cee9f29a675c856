//! A tool: its description, what a call would touch, and the call itself. Here it looks a ticket up.
//! What it touches is judged before it runs; arguments that do not fit the schema never reach it.
//! The context's voice shows progress, keeps notes that outlive the run, and could ask the person.

use std::sync::Arc;

use serde_json::{Value, json};
use windlass_core::BoxFuture;
use windlass_core::gate::{Level, PermissionGate, Rule, Verdict};
use windlass_core::message::{ErrorCategory, Message};
use windlass_core::outcome::Outcome;
use windlass_core::runtime::RunMode;
use windlass_core::tool::{Effect, Tool, ToolCtx, ToolFailure, ToolOutput, ToolSpec, Touch};
use windlass_engine::{Open, RunOptions};
use windlass_testing::{call, says};

use super::Shown;
use super::fakes::Fakes;

struct Ticket(ToolSpec);

impl Ticket {
    fn new() -> Self {
        let schema = json!({
            "type": "object", "required": ["number"], "additionalProperties": false,
            "properties": { "number": { "type": "integer", "description": "The ticket's number." } }
        });
        Self(ToolSpec::new(
            "ticket",
            "Reads a ticket of the tracker.",
            schema,
            Effect::Network,
        ))
    }
}

impl Tool for Ticket {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn touches(&self, _args: &Value, _ctx: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure> {
        Ok(vec![Touch::Connect {
            host: "tracker.example".into(),
        }])
    }

    fn run<'a>(
        &'a self,
        args: Value,
        ctx: ToolCtx<'a>,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolFailure>> {
        Box::pin(async move {
            ctx.voice.progress("asking the tracker");
            if args["number"] != 7 {
                return Err(ToolFailure::new(
                    ErrorCategory::NotFound,
                    "there is no such ticket; the open one is 7",
                ));
            }
            ctx.voice.set_notes("ticket 7 was read".into()).await?;
            Ok(ToolOutput::text("The button is blue and should be green."))
        })
    }
}

pub(crate) async fn show() -> Shown {
    let wrong = call("1", "ticket", &json!({ "number": "seven" }));
    let missing = call("2", "ticket", &json!({ "number": 8 }));
    let right = call("3", "ticket", &json!({ "number": 7 }));
    let fakes = Fakes::new([wrong, missing, right, says("It is about a button.")]);
    // Connecting is asked about in the usual mode; this rule answers for one host.
    let rule = Rule::parse("ticket(tracker.example)", Verdict::Allow, Level::User)?;
    let gate = PermissionGate {
        rules: vec![rule],
        ..PermissionGate::default()
    };
    let engine = fakes
        .builder()
        .tools([Arc::new(Ticket::new()) as Arc<dyn Tool>])
        .gate(gate)
        .build()?;
    let session = engine.open(Open::New, RunMode::Full).await?;
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
        session.look(|history| history.notes().to_owned()),
        "ticket 7 was read"
    );
    Ok(())
}
