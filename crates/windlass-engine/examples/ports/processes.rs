//! Processes: how commands of a run are started, watched and ended. Tools reach programs through their context alone.
//! This one starts nothing: it knows a single command. A real one runs them in a sandbox, and ends what they started.
//! A command that fails is an answer, not an error; an error is a command that could not be run at all.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use windlass_core::BoxFuture;
use windlass_core::message::ErrorCategory;
use windlass_core::tool::{Effect, RanCommand, Tool, ToolFailure, ToolOutput};
use windlass_core::workspace::*;
use windlass_engine::{Request, RunOptions};
use windlass_testing::{FnTool, call, says};

use super::Shown;
use super::fakes::Fakes;
use super::files::Tree;
use super::workspaces::Copies;

/// Runs nothing.
pub(crate) struct Nothing;
/// Knows `make`, which fails.
struct Make;

pub(crate) fn no<T>() -> Result<T, ProcessError> {
    Err(ProcessError(
        "this workspace does not run that; it knows `make`".into(),
    ))
}

/// What both do not do.
macro_rules! no_jobs {
    () => {
        fn start(&self, _: Command) -> Result<JobId, ProcessError> {
            no()
        }
        fn poll(&self, _: &JobId, _: u64, _: usize) -> Result<JobOutput, ProcessError> {
            no()
        }
        fn stop<'a>(&'a self, _: &'a JobId) -> BoxFuture<'a, Result<(), ProcessError>> {
            Box::pin(async { no() })
        }
        fn stop_all(&self) -> BoxFuture<'_, ()> {
            Box::pin(async {})
        }
    };
}

pub(crate) use no_jobs;

impl Processes for Nothing {
    fn run<'a>(
        &'a self,
        _: Command,
        _: Watch<'a>,
    ) -> BoxFuture<'a, Result<Finished, ProcessError>> {
        Box::pin(async { no() })
    }
    no_jobs!();
}

impl Processes for Make {
    fn run<'a>(
        &'a self,
        command: Command,
        watch: Watch<'a>,
    ) -> BoxFuture<'a, Result<Finished, ProcessError>> {
        Box::pin(async move {
            if command.line != "make" {
                return no();
            }
            (watch.progress)("make: working");
            let output = "make: *** No rule to make target 'all'.".to_owned();
            let (total_bytes, took) = (output.len() as u64, Duration::from_millis(3));
            let end = ProcessEnd::Exited { code: 2 };
            Ok(Finished {
                not_landed: None,
                end,
                output,
                total_bytes,
                artifact: None,
                took,
                refused: Vec::new(),
            })
        })
    }
    no_jobs!();
}

fn bash() -> Arc<dyn Tool> {
    let bash = FnTool::new("bash", Effect::Execute, |args, ctx| {
        Box::pin(async move {
            let line = args["command"].as_str().unwrap_or_default().to_owned();
            let (workdir, timeout) = (String::new(), Duration::from_secs(60));
            let command = Command {
                line,
                workdir,
                timeout,
                keep: 10_000,
                input: None,
                looks: false,
            };
            let progress = |text: &str| ctx.voice.progress(text);
            let watch = Watch {
                progress: &progress,
                cancel: ctx.cancel.clone(),
                artifacts: None,
            };
            let ran = ctx.processes.run(command, watch).await;
            let ran = ran.map_err(|err| ToolFailure::new(ErrorCategory::NotFound, err.0))?;
            let failed =
                (ran.end != ProcessEnd::Exited { code: 0 }).then_some(ErrorCategory::Exception);
            let text = format!("{}\n{}", ran.output, ran.end.in_words());
            Ok(ToolOutput {
                failed,
                command: Some(RanCommand::from(&ran)),
                ..ToolOutput::text(text)
            })
        })
    });
    bash.boxed()
}

pub(crate) async fn show() -> Shown {
    let run = |id: &str, line: &str| call(id, "bash", &json!({ "command": line }));
    let fakes = Fakes::new([run("1", "make"), run("2", "ninja"), says("neither works")]);
    let copies = Copies {
        processes: Arc::new(Make),
        ..Copies::of(&Tree::of(&[]))
    };
    let engine = fakes
        .builder()
        .workspaces(Arc::new(copies))
        .tools([bash()])
        .build()?;
    let options = RunOptions {
        yes: true,
        ..RunOptions::default()
    };
    let result = engine
        .execute(Request {
            options,
            ..Request::new("build it")
        })
        .await?;
    assert_eq!(result.text, "neither works");
    let told = format!("{:?}", fakes.provider.asked().last());
    assert!(
        told.contains("Error [exception]: make: ***") && told.contains("exit code 2"),
        "{told}"
    );
    assert!(
        told.contains("Error [not_found]: this workspace does not run that"),
        "{told}"
    );
    Ok(())
}
