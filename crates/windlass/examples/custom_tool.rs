//! Defines a tool of your own, with arguments, an effect and a body.
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "an example is a program of its own"
)]

mod scratch;

use schemars::JsonSchema;
use scratch::Scratch;
use serde::Deserialize;
use serde_json::json;
use windlass::core::tool::{Effect, ToolCtx, ToolFailure, ToolOutput, Touch};
use windlass::core::typed_tool::{TypedTool, typed};
use windlass_testing::{call, says};

/// The arguments of the tool. The model reads the comment of each field.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Args {
    /// The number of the ticket.
    number: u64,
}

/// A tool that reads a ticket from an issue tracker.
struct TicketTool;

impl TypedTool for TicketTool {
    type Args = Args;
    const NAME: &str = "ticket";
    const DESCRIPTION: &str = "Reads a ticket of the tracker.";
    const EFFECT: Effect = Effect::Read;

    fn touches(&self, _args: Args, _ctx: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure> {
        Ok(Vec::new())
    }

    async fn run(&self, args: Args, _ctx: ToolCtx<'_>) -> Result<ToolOutput, ToolFailure> {
        let text = format!("Ticket {}: sum.sh subtracts.", args.number);
        Ok(ToolOutput::text(text))
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
        .tool(typed(TicketTool))
        .run("what does ticket 7 say?")
        .await?;
    println!("{:?}: {}", result.outcome(), result.text);
    let requests = format!("{:?}", model.asked());
    println!(
        "the model read the ticket: {}",
        requests.contains("sum.sh subtracts")
    );
    Ok(())
}
