//! The `windlass` binary: arguments, commands, views and exit codes. It is the only crate that prints, and it hands its
//! environment to the library.

mod args;
mod command_error;
mod commands;
mod developer_log;
#[cfg(test)]
mod docs_tests;
mod exit;
mod out;
mod process;
mod prompt_text;
mod remote_run;
mod sanitize;
mod secret_input;
mod session_run;
mod view;

use std::process::ExitCode;

fn main() -> ExitCode {
    // Scripts ask for the version often: answer before any setup.
    let mut words = std::env::args_os().skip(1);
    if let (Some(word), None) = (words.next(), words.next())
        && (word == "--version" || word == "-V")
    {
        return exit::print(&format!("windlass {}\n", env!("CARGO_PKG_VERSION")));
    }
    command_error::install_panic_hook();
    // If the handler cannot be installed, a write past the file size limit kills the process: the default of the kernel.
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
