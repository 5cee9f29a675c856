//! ask_user: the model's own question to the person. Never used for approvals; those are the engine's.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use windlass_core::BoxFuture;
use windlass_core::ask::{Answer, Question};
use windlass_core::message::ErrorCategory;
use windlass_core::tool::{Effect, Tool, ToolCtx, ToolFailure, ToolOutput, ToolSpec, Touch};

use crate::args::{invalid, parse, spec};

/// Arguments.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Args {
    /// What you need to know.
    question: String,
    /// Answers to offer; any other answer is possible too.
    #[serde(default)]
    #[schemars(length(max = 10))]
    options: Vec<String>,
}

/// The tool.
pub(crate) struct AskUser {
    spec: ToolSpec,
}

impl AskUser {
    pub(crate) fn new() -> Self {
        Self {
            spec: spec::<Args>(
                "ask_user",
                include_str!("descriptions/ask_user.md"),
                Effect::Read,
            ),
        }
    }
}

impl Tool for AskUser {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn touches(&self, _args: &Value, _ctx: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure> {
        Ok(Vec::new())
    }

    fn run<'a>(
        &'a self,
        args: Value,
        ctx: ToolCtx<'a>,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolFailure>> {
        Box::pin(async move {
            let args: Args = parse(args)?;
            if args.question.trim().is_empty() {
                return Err(invalid("`question` is empty"));
            }
            told(
                ctx.voice
                    .ask(Question {
                        text: args.question,
                        options: args.options,
                    })
                    .await,
            )
        })
    }
}

fn told(answer: Answer) -> Result<ToolOutput, ToolFailure> {
    const GO_ON: &str = "go on with your best judgement and say what you assumed";
    match answer {
        Answer::Text { text } => Ok(ToolOutput::text(text)),
        Answer::Once | Answer::Always => Ok(ToolOutput::text("yes")),
        Answer::No { note } => Ok(ToolOutput::text(
            note.map_or_else(|| "no".to_owned(), |note| format!("no: {note}")),
        )),
        Answer::Expired => Err(ToolFailure::new(
            ErrorCategory::Timeout,
            format!("nobody answered in time; {GO_ON}"),
        )),
        Answer::Nobody => Err(ToolFailure::new(
            ErrorCategory::Exception,
            format!("there is nobody to ask in this run; {GO_ON}"),
        )),
        Answer::Abandoned => Err(ToolFailure::new(
            ErrorCategory::Interrupted,
            "the question was dropped before it was answered",
        )),
    }
}
