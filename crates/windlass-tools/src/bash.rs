//! bash: runs a command until it exits, or starts, polls and stops one in the background. A non-zero exit status is an
//! error for the model, with the whole output. This tool never decides whether a command may run.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use windlass_core::message::ErrorCategory;
use windlass_core::shell::ShellScript;
use windlass_core::tool::{Effect, ToolCtx, ToolFailure, ToolOutput, Touch};
use windlass_core::typed_tool::TypedTool;
use windlass_core::workspace::{Command, JobId, ProcessEnd, ProcessError};

use crate::command_touches;
use crate::process::command;
use crate::run_command;

/// The default and the maximum timeout of a command, in seconds.
const DEFAULT_TIMEOUT: u64 = 120;
const MAX_TIMEOUT: u64 = 600;
/// Maximum bytes of a background job's output per poll.
const POLL: usize = 20_000;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {
    command: Option<String>,
    /// Default 120.
    timeout_s: Option<u64>,
    workdir: Option<String>,
    /// Start a job and return its id.
    #[serde(default)]
    background: bool,
    /// Id of a job: show its output.
    poll: Option<String>,
    /// Where to continue, as the last poll said.
    offset: Option<u64>,
    /// Id of a job: end it.
    stop: Option<String>,
}

enum BashAction {
    Run(Command),
    Start(Command),
    Poll(JobId, u64),
    Stop(JobId),
}

impl Args {
    fn action(self) -> Result<BashAction, ToolFailure> {
        match (self.command, self.poll, self.stop) {
            (Some(line), None, None) if line.trim().is_empty() => {
                Err(ToolFailure::invalid("`command` is empty"))
            }
            (Some(line), None, None) => {
                let seconds = self.timeout_s.unwrap_or(DEFAULT_TIMEOUT);
                if !(1..=MAX_TIMEOUT).contains(&seconds) {
                    return Err(ToolFailure::invalid(format!(
                        "timeout_s must be from 1 to {MAX_TIMEOUT}; start longer work with `background`"
                    )));
                }
                let command = Command {
                    workdir: self.workdir.unwrap_or_default(),
                    ..command(line, Duration::from_secs(seconds))
                };
                Ok(if self.background {
                    BashAction::Start(command)
                } else {
                    BashAction::Run(command)
                })
            }
            (None, Some(job), None) => Ok(BashAction::Poll(JobId(job), self.offset.unwrap_or(0))),
            (None, None, Some(job)) => Ok(BashAction::Stop(JobId(job))),
            _ => Err(ToolFailure::invalid(
                "give exactly one of `command`, `poll` and `stop`",
            )),
        }
    }
}

pub(crate) struct Bash;

impl TypedTool for Bash {
    type Args = Args;
    const NAME: &str = "bash";
    const DESCRIPTION: &str = include_str!("descriptions/bash.md");
    const EFFECT: Effect = Effect::Execute;

    fn touches(&self, args: Args, ctx: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure> {
        match args.action()? {
            BashAction::Run(command) | BashAction::Start(command) => {
                if !command.workdir.is_empty() {
                    refuse_outside(ctx, &command.workdir)?;
                }
                // The working directory is not a touch of its own: a rule that allows a command allows it anywhere
                // inside the workspace.
                Ok(command_touches::touches(
                    ctx,
                    &command.line,
                    &command.workdir,
                ))
            }
            BashAction::Poll(..) | BashAction::Stop(_) => Ok(Vec::new()),
        }
    }

    async fn run(&self, args: Args, ctx: ToolCtx<'_>) -> Result<ToolOutput, ToolFailure> {
        match args.action()? {
            BashAction::Run(command) => {
                // The gate judged the command by the same parsed script.
                let touches = command_touches::touches(&ctx, &command.line, &command.workdir);
                let looks = touches
                    .iter()
                    .filter_map(Touch::script)
                    .all(ShellScript::only_looks);
                let late = format!("raise timeout_s (at most {MAX_TIMEOUT}) or use `background`");
                run_command::run(Command { looks, ..command }, &late, &ctx).await
            }
            BashAction::Start(command) => {
                let job = ctx.processes.start(command).map_err(failed)?;
                let text = format!(
                    "started job {0}; poll it with poll={0:?}, end it with stop={0:?}. It ends with the run.",
                    job.0
                );
                Ok(ToolOutput::text(text))
            }
            BashAction::Poll(job, offset) => poll(&job, offset, &ctx),
            BashAction::Stop(job) => {
                ctx.processes.stop(&job).await.map_err(no_job)?;
                Ok(ToolOutput::text(format!("job {} is stopped", job.0)))
            }
        }
    }
}

/// A command that starts outside the workspace does not belong to this run's work.
fn refuse_outside(ctx: &ToolCtx<'_>, workdir: &str) -> Result<(), ToolFailure> {
    let resolved = ctx.files.resolve(workdir)?;
    if resolved.inside {
        return Ok(());
    }
    let text = format!(
        "workdir {} is outside the workspace; use a directory inside it",
        resolved.path
    );
    Err(ToolFailure::new(ErrorCategory::Blocked, text))
}

fn poll(job: &JobId, offset: u64, ctx: &ToolCtx<'_>) -> Result<ToolOutput, ToolFailure> {
    let found = ctx.processes.poll(job, offset, POLL).map_err(no_job)?;
    let state = match found.end {
        None => "still running".to_owned(),
        Some(ProcessEnd::Exited { code }) => format!("ended with exit code {code}"),
        Some(ProcessEnd::Signalled { signal }) => format!("ended by signal {signal}"),
        Some(ProcessEnd::TimedOut) => "ended: its time was up".to_owned(),
        Some(ProcessEnd::Cancelled) => "stopped".to_owned(),
    };
    let said = if found.text.is_empty() {
        "[no new output]"
    } else {
        found.text.as_str()
    };
    Ok(ToolOutput::text(format!(
        "{said}\n[job {} {state}; next offset={}]",
        job.0, found.next_offset
    )))
}

fn failed(err: ProcessError) -> ToolFailure {
    ToolFailure::new(ErrorCategory::Exception, err.0)
}

fn no_job(err: ProcessError) -> ToolFailure {
    ToolFailure::new(ErrorCategory::NotFound, err.0)
}
