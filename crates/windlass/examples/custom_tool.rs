//! A tool of your own: a description, a schema, what a call touches, and what it does.
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "an example is a program of its own"
)]

mod scratch;

use std::sync::Arc;

use scratch::Scratch;
use serde_json::{Value, json};
use windlass::core::BoxFuture;
use windlass::core::tool::{Effect, Tool, ToolCtx, ToolFailure, ToolOutput, ToolSpec, Touch};
use windlass_testing::{call, says};

/// Reads a ticket of the tracker.
struct Ticket(ToolSpec);

impl Ticket {
    fn new() -> Self {
        let schema = json!({
            "type": "object", "required": ["number"], "additionalProperties": false,
            "properties": { "number": { "type": "integer", "description": "The ticket's number." } }
        });
        let about = "Reads a ticket of the tracker.";
        Self(ToolSpec::new("ticket", about, schema, Effect::Read))
    }
}

impl Tool for Ticket {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn touches(&self, _args: &Value, _ctx: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure> {
        Ok(Vec::new())
    }

    fn run<'a>(
        &'a self,
        args: Value,
        _ctx: ToolCtx<'a>,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolFailure>> {
        Box::pin(async move {
            let text = format!("Ticket {}: sum.sh subtracts.", args["number"]);
            Ok(ToolOutput::text(text))
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scratch = Scratch::new()?;
    let model = scratch::model([
        call("1", "ticket", &json!({ "number": 7 })),
        says("Ticket 7 says that the script subtracts."),
    ]);
    let result = scratch
        .windlass()?
        .provider(model.clone(), "scripted")
        .tool(Arc::new(Ticket::new()))
        .allow_no_changes()
        .run("what does ticket 7 say?")
        .await?;
    println!("{:?}: {}", result.outcome(), result.text);
    let heard = format!("{:?}", model.asked());
    println!(
        "the model read the ticket: {}",
        heard.contains("sum.sh subtracts")
    );
    Ok(())
}
