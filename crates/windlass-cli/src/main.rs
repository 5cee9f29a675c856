//! The `windlass` binary: arguments, settings, wiring, views and exit codes. The only crate that sees everything,
//! and the only one that looks at the environment or prints.

mod args;
mod commands;
mod developer_log;
#[cfg(test)]
mod docs_tests;
mod exit;
mod failure;
mod out;
mod process;
mod safe;
mod session_run;
mod typed;
mod view;

use std::process::ExitCode;

fn main() -> ExitCode {
    // The most frequent question of scripts is answered before anything is set up.
    let mut words = std::env::args_os().skip(1);
    if let (Some(word), None) = (words.next(), words.next())
        && (word == "--version" || word == "-V")
    {
        return exit::printed(&format!("windlass {}\n", env!("CARGO_PKG_VERSION")));
    }
    failure::tell_of_panics();
    // Without it, a write past the file size limit ends the process, as it always did.
    let _ = session_run::survive_file_size_limit();
    let parsed = match args::parse() {
        Ok(parsed) => parsed,
        Err(err) => return exit::usage(&err),
    };
    let started = process::check_address_space()
        .and_then(|()| developer_log::start(parsed.log_file.as_deref()));
    match started.and_then(|()| commands::dispatch(parsed)) {
        Ok(code) => code,
        Err(failure) => {
            failure.print();
            failure.code()
        }
    }
}
