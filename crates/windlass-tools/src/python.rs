//! python: runs a snippet with python3, inside the sandbox of the run. The effect of a snippet is unknown beforehand,
//! so it is judged as a command, and "always" is not offered for it.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use windlass_core::message::ErrorCategory;
use windlass_core::shell::quoted;
use windlass_core::tool::{Effect, ToolCtx, ToolFailure, ToolOutput, Touch};
use windlass_core::typed_tool::TypedTool;
use windlass_core::workspace::ProcessEnd;

use crate::process::{command, execute};
use crate::run_command;

/// The default and the maximum timeout of a snippet, in seconds.
const DEFAULT_TIMEOUT: u64 = 60;
const MAX_TIMEOUT: u64 = 600;
/// Maximum bytes of the code, which is passed as a single program argument.
const MAX_CODE: usize = 96 << 10;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {
    code: String,
    /// Default 60.
    timeout_s: Option<u64>,
}

impl Args {
    /// The command line. `-I` removes the directories of the workspace and of the user from the module path, so that a
    /// file there cannot replace a module of the standard library.
    fn line(&self) -> Result<String, ToolFailure> {
        if self.code.trim().is_empty() {
            return Err(ToolFailure::invalid("`code` is empty"));
        }
        if self.code.len() > MAX_CODE || self.code.contains('\0') {
            let text = format!(
                "`code` is longer than {MAX_CODE} bytes or holds a NUL; write it to a file and run that"
            );
            return Err(ToolFailure::invalid(text));
        }
        Ok(format!("python3 -I -c {}", quoted(&self.code)))
    }
}

pub(crate) struct Python;

impl TypedTool for Python {
    type Args = Args;
    const NAME: &str = "python";
    const DESCRIPTION: &str = include_str!("descriptions/python.md");
    const EFFECT: Effect = Effect::Execute;

    fn touches(&self, args: Args, _ctx: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure> {
        Ok(vec![execute(args.line()?)])
    }

    fn preview(&self, args: Args, _ctx: &ToolCtx<'_>) -> Result<Option<String>, ToolFailure> {
        Ok(Some(args.code))
    }

    async fn run(&self, args: Args, ctx: ToolCtx<'_>) -> Result<ToolOutput, ToolFailure> {
        let seconds = args
            .timeout_s
            .unwrap_or(DEFAULT_TIMEOUT)
            .clamp(1, MAX_TIMEOUT);
        let late = format!("raise timeout_s (at most {MAX_TIMEOUT})");
        let output = run_command::run(
            command(args.line()?, Duration::from_secs(seconds)),
            &late,
            &ctx,
        )
        .await?;
        let ended = output.command.as_ref().map(|command| command.end);
        if ended == Some(ProcessEnd::Exited { code: 127 }) && output.text.contains("python3") {
            let text = "there is no python3 here; use bash or the calculator, or ask the person to install it";
            return Err(ToolFailure::new(ErrorCategory::NotFound, text));
        }
        Ok(output)
    }
}
