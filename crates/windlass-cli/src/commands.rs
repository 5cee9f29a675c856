//! The commands of the binary, one file for each.

mod answer;
pub(crate) mod attach;
mod auth;
mod config;
mod context;
mod debug;
mod demo;
mod diagram;
mod doctor;
mod edit;
mod fork;
mod init;
mod interface;
mod kept_runs;
mod models;
mod otel;
mod policy;
mod prompt;
#[cfg(test)]
mod reference_tests;
mod replay;
mod run;
mod runtimes;
mod sandbox;
mod serve;
mod sessions;
mod stats;
mod tools;
pub(crate) mod trust;
mod undo;
mod validate;

use std::process::ExitCode;

use windlass::core::terms::Isolation;
use windlass::flags::RunFlags;
use windlass_tui::SessionChoice;

use crate::args::{self, Cli, CliCommand, DebugCommand};
use crate::command_error::CommandError;
use crate::exit;

/// The output of `windlass` without a command.
const FIRST_STEPS: &str = concat!(
    "windlass ",
    env!("CARGO_PKG_VERSION"),
    r#": run any coding agent under one enforced contract

  windlass demo                    watch a task with a scripted model: no key, no network
  windlass doctor                  check the setup of this machine
  windlass auth login anthropic    store the key of a vendor
  windlass init                    write settings and instructions for this project
  windlass run "fix the test"      run a task on a copy that lands when the checks pass
  windlass chat                    start an interactive chat in your working tree
  windlass resume                  continue the newest session

`windlass --help` lists all commands
"#
);

pub(crate) fn dispatch(cli: Cli) -> Result<ExitCode, CommandError> {
    let Some(command) = cli.command else {
        if !interface::is_available(&args::OutputArgs::default()) {
            return Ok(exit::print(FIRST_STEPS));
        }
        kept_runs::recover();
        return interface::run(interface::InterfaceRequest {
            flags: RunFlags::default(),
            session: SessionChoice::New,
            isolation: Some(Isolation::InPlace),
            first_prompt: None,
        });
    };
    kept_runs::recover();
    match command {
        CliCommand::Run(args) => run::run(&args),
        CliCommand::Chat(args) => run::chat(&args),
        CliCommand::Resume(args) => run::resume(&args),
        CliCommand::Answer(args) => answer::run(&args),
        CliCommand::Fork(args) => fork::run(&args),
        CliCommand::Status(args) => kept_runs::status(&args),
        CliCommand::Diff(args) => kept_runs::diff(&args),
        CliCommand::Land(args) => run::land(&args),
        CliCommand::Discard(args) => kept_runs::discard(&args),
        CliCommand::Undo(args) => undo::undo(&args),
        CliCommand::Redo(args) => undo::redo(&args.common),
        CliCommand::Replay(args) => replay::run(&args),
        CliCommand::Sessions(command) => sessions::run(command),
        CliCommand::Serve(args) => serve::run(&args),
        CliCommand::Attach(args) => attach::run(&args),
        CliCommand::Prompt(args) => prompt::run(&args),
        CliCommand::Context(args) => context::run(&args),
        CliCommand::Stats(args) => stats::run(&args),
        CliCommand::Diagram(args) => diagram::run(&args),
        CliCommand::Demo(args) => demo::run(&args),
        CliCommand::Sandbox(args) => sandbox::run(&args),
        CliCommand::Doctor(args) => doctor::run(&args),
        CliCommand::Tools(args) => tools::run(&args),
        CliCommand::Config(args) => config::run(&args),
        CliCommand::Init(args) => init::run(&args),
        CliCommand::Auth(command) => auth::run(command),
        CliCommand::Trust { command } => trust::run(command),
        CliCommand::Models(args) => models::run(&args),
        CliCommand::Runtimes(args) => runtimes::run(&args),
        CliCommand::Policy(command) => policy::run(&command),
        CliCommand::Debug(DebugCommand::Decode(args)) => debug::decode(&args),
        CliCommand::Debug(DebugCommand::Validate(args)) => validate::run(&args),
        CliCommand::Debug(DebugCommand::Edit(args)) => edit::run(&args),
        CliCommand::Debug(DebugCommand::Otel(args)) => otel::run(&args),
        CliCommand::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut args::command(), "windlass", &mut script);
            Ok(exit::print(&String::from_utf8_lossy(&script)))
        }
    }
}

/// Runs the future of a command to completion on one thread. The run and its view exchange events there without
/// synchronization; blocking work has threads of its own.
pub(crate) fn block_on<T>(
    work: impl Future<Output = Result<T, CommandError>>,
) -> Result<T, CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(work);
    // A blocking call that never returns must not keep the process alive.
    runtime.shutdown_background();
    result
}
