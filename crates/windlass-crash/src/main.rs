//! The program that `cargo xtask crash` starts. It needs Linux for seccomp notifications; on other systems it fails
//! with a message. It may print.
#![allow(clippy::print_stdout, clippy::print_stderr)]

#[cfg(target_os = "linux")]
mod cli;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    cli::main()
}

#[cfg(not(target_os = "linux"))]
fn main() -> std::process::ExitCode {
    eprintln!("error: the crash harness needs Linux, because it uses seccomp notifications");
    std::process::ExitCode::FAILURE
}
