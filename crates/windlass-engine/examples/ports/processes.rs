//! Processes: starts, watches and ends the commands of a run. Tools start programs only through their context.
//! This one starts no program: it knows a single command. A real one runs commands in a sandbox and ends their children.
//! A command that fails is a result; an error means that a command could not be executed at all.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use windlass_core::BoxFuture;
use windlass_core::message::ErrorCategory;
use windlass_core::tool::{Effect, RanCommand, Tool, ToolFailure, ToolOutput};
use windlass_core::workspace::*;
use windlass_engine::{Request, RunOptions};
use windlass_testing::{FnTool, call, says};

use super::ExampleResult;
use super::fakes::Fakes;
use super::files::MapTree;
use super::workspaces::Copies;

/// An implementation that runs no command.
pub(crate) struct NoProcesses;
/// An implementation that knows only `make`, which fails.
struct OnlyMake;

pub(crate) fn unavailable<T>() -> Result<T, ProcessError> {
    Err(ProcessError(
        "this workspace does not run that; it knows `make`".into(),
    ))
}

/// The methods for background jobs, which both implementations refuse.
macro_rules! no_jobs {
    () => {
        fn start(&self, _: Command) -> Result<JobId, ProcessError> {
            unavailable()
        }
        fn poll(&self, _: &JobId, _: u64, _: usize) -> Result<JobOutput, ProcessError> {
            unavailable()
        }
        fn stop<'a>(&'a self, _: &'a JobId) -> BoxFuture<'a, Result<(), ProcessError>> {
            Box::pin(async { unavailable() })
        }
        fn stop_all(&self) -> BoxFuture<'_, ()> {
            Box::pin(async {})
        }
    };
}

pub(crate) use no_jobs;

impl Processes for NoProcesses {
    fn run<'a>(
        &'a self,
        _: Command,
        _: Watch<'a>,
    ) -> BoxFuture<'a, Result<Finished, ProcessError>> {
        Box::pin(async { unavailable() })
    }
    no_jobs!();
}

impl Processes for OnlyMake {
    fn run<'a>(
        &'a self,
        command: Command,
        watch: Watch<'a>,
    ) -> BoxFuture<'a, Result<Finished, ProcessError>> {
        Box::pin(async move {
            if command.line != "make" {
                return unavailable();
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
            let progress = |text: &str| ctx.call_output.progress(text);
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

pub(crate) async fn run_example() -> ExampleResult {
    let run = |id: &str, line: &str| call(id, "bash", &json!({ "command": line }));
    let fakes = Fakes::new([run("1", "make"), run("2", "ninja"), says("neither works")]);
    let copies = Copies {
        processes: Arc::new(OnlyMake),
        ..Copies::of(&MapTree::of(&[]))
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
