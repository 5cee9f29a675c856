//! The `windlass` binary: arguments, settings, wiring, views and exit codes. The only crate that sees everything,
//! and the only one that looks at the environment or prints.

mod args;
mod commands;
mod contract;
mod exit;
mod failure;
mod layers;
mod out;
mod plan;
mod profile;
mod programs;
mod run_flags;
mod runtimes;
mod safe;
mod sandboxing;
mod saved_plan;
mod session_run;
mod settings;
mod tape;
mod telemetry;
mod view;
mod wire;

use std::process::ExitCode;

fn main() -> ExitCode {
    // The sandbox's helper is this program: it must be alone in its process, so it comes before everything else.
    if std::env::args_os()
        .nth(1)
        .is_some_and(|word| word == sandboxing::HELPER)
    {
        return windlass_sandbox::supervise();
    }
    // The most frequent question of scripts is answered before anything is set up.
    let mut words = std::env::args_os().skip(1);
    if let (Some(word), None) = (words.next(), words.next())
        && (word == "--version" || word == "-V")
    {
        return exit::printed(&format!("windlass {}\n", env!("CARGO_PKG_VERSION")));
    }
    failure::tell_of_panics();
    let parsed = match args::parse() {
        Ok(parsed) => parsed,
        Err(err) => return exit::usage(&err),
    };
    match commands::dispatch(parsed) {
        Ok(code) => code,
        Err(failure) => {
            failure.print();
            failure.code()
        }
    }
}
