//! The program that `cargo xtask attacks` starts.

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (mut out, mut err) = (std::io::stdout(), std::io::stderr());
    ExitCode::from(windlass_corpus::command(&args, &mut out, &mut err))
}
