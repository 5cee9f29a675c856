//! ask_user: a question of the model to the user. Approvals do not use it; the engine asks for those.

use schemars::JsonSchema;
use serde::Deserialize;
use windlass_core::ask::{Answer, Question};
use windlass_core::message::ErrorCategory;
use windlass_core::tool::{Effect, ToolCtx, ToolFailure, ToolOutput, Touch};
use windlass_core::typed_tool::TypedTool;

use crate::paths::at_most;

const MAX_OPTIONS: usize = 10;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {
    question: String,
    #[serde(default)]
    options: Vec<String>,
}

pub(crate) struct AskUser;

impl TypedTool for AskUser {
    type Args = Args;
    const NAME: &str = "ask_user";
    const DESCRIPTION: &str = include_str!("descriptions/ask_user.md");
    const EFFECT: Effect = Effect::Read;

    fn touches(&self, _args: Args, _ctx: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure> {
        Ok(Vec::new())
    }

    async fn run(&self, args: Args, ctx: ToolCtx<'_>) -> Result<ToolOutput, ToolFailure> {
        if args.question.trim().is_empty() {
            return Err(ToolFailure::invalid("`question` is empty"));
        }
        at_most(&args.options, MAX_OPTIONS, "options")?;
        told(
            ctx.call_output
                .ask(Question {
                    text: args.question,
                    options: args.options,
                })
                .await,
        )
    }
}

fn told(answer: Answer) -> Result<ToolOutput, ToolFailure> {
    const GO_ON: &str = "go on with your best judgement and say what you assumed";
    match answer {
        Answer::Text { text } => Ok(ToolOutput::text(text)),
        Answer::Once | Answer::Always { .. } => Ok(ToolOutput::text("yes")),
        Answer::No { note } => Ok(ToolOutput::text(
            note.map_or_else(|| "no".to_owned(), |note| format!("no: {note}")),
        )),
        Answer::Expired => Err(ToolFailure::new(
            ErrorCategory::Timeout,
            format!("nobody answered in time; {GO_ON}"),
        )),
        Answer::Unanswered => Err(ToolFailure::new(
            ErrorCategory::Exception,
            format!("there is nobody to ask in this run; {GO_ON}"),
        )),
        Answer::Abandoned => Err(ToolFailure::new(
            ErrorCategory::Interrupted,
            "the question was dropped before it was answered",
        )),
    }
}
