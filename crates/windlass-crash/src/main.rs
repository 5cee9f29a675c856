//! The program that `cargo xtask crash` starts. It needs Linux, whose kernel asks before system calls; elsewhere it says
//! so. Printing is its job.
#![allow(clippy::print_stdout, clippy::print_stderr)]

#[cfg(target_os = "linux")]
mod typed;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    typed::main()
}

#[cfg(not(target_os = "linux"))]
fn main() -> std::process::ExitCode {
    eprintln!(
        "error: the crash harness needs Linux: no other kernel asks a supervisor before system calls"
    );
    std::process::ExitCode::FAILURE
}
