//! One file for each command.

mod answer;
mod config;
mod context;
mod debug;
mod demo;
mod diagram;
mod doctor;
mod edit;
mod fork;
mod kept;
mod models;
mod otel;
mod policy;
mod prompt;
#[cfg(test)]
mod reference_tests;
mod replay;
mod runtimes;
mod sandbox;
mod sessions;
mod stats;
mod tools;
pub(crate) mod trust;
mod undo;
mod validate;
mod work;

use std::process::ExitCode;

use crate::args::{self, Cli, Command, DebugCommand};
use crate::exit;
use crate::failure::Failure;

/// The screen of `windlass` without a command.
const FIRST_STEPS: &str = concat!(
    "windlass ",
    env!("CARGO_PKG_VERSION"),
    r#": run any coding agent under one contract that is enforced

  windlass demo                    watch it work: no key, no network
  windlass doctor                  check this machine's setup
  windlass run "fix the test"      do one task on a copy, and land it when the checks pass
  windlass chat                    work with the agent in your tree, prompt by prompt
  windlass resume                  continue the newest session

`windlass --help` lists all commands
"#
);

pub(crate) fn dispatch(cli: Cli) -> Result<ExitCode, Failure> {
    let Some(command) = cli.command else {
        return Ok(exit::printed(FIRST_STEPS));
    };
    kept::recover();
    match command {
        Command::Run(args) => work::run(&args),
        Command::Chat(args) => work::chat(&args),
        Command::Resume(args) => work::resume(&args),
        Command::Answer(args) => answer::run(&args),
        Command::Fork(args) => fork::run(&args),
        Command::Status(args) => kept::status(&args),
        Command::Diff(args) => kept::diff(&args),
        Command::Land(args) => work::land(&args),
        Command::Discard(args) => kept::discard(&args),
        Command::Undo(args) => undo::undo(&args),
        Command::Redo(args) => undo::redo(&args.how),
        Command::Replay(args) => replay::run(&args),
        Command::Sessions(command) => sessions::run(command),
        Command::Prompt(args) => prompt::run(&args),
        Command::Context(args) => context::run(&args),
        Command::Stats(args) => stats::run(&args),
        Command::Diagram(args) => diagram::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Sandbox(args) => sandbox::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Tools(args) => tools::run(&args),
        Command::Config(args) => config::run(&args),
        Command::Trust { command } => trust::run(command),
        Command::Models(args) => models::run(&args),
        Command::Runtimes(args) => runtimes::run(&args),
        Command::Policy(command) => policy::run(&command),
        Command::Debug(DebugCommand::Decode(args)) => debug::decode(&args),
        Command::Debug(DebugCommand::Validate(args)) => validate::run(&args),
        Command::Debug(DebugCommand::Edit(args)) => edit::run(&args),
        Command::Debug(DebugCommand::Otel(args)) => otel::run(&args),
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut args::command(), "windlass", &mut script);
            Ok(exit::printed(&String::from_utf8_lossy(&script)))
        }
    }
}

/// Runs a command's work to its end. One thread: a run and its view hand events to each other for nothing there, and
/// what blocks goes to threads of its own.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(work);
    // A call that does not end must not keep the process.
    runtime.shutdown_background();
    result
}
