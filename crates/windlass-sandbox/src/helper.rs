//! The program that runs as the sandbox's helper. Every program that links this crate can be the helper: started with
//! [`HELPER_ARG`], it becomes the helper before its `main` begins. It cannot wait for `main`, because the helper forks
//! and therefore needs a process with one thread, and many programs start threads at once (`#[tokio::main]` does, and
//! so does a test runner).

use std::ffi::OsString;
use std::path::PathBuf;

/// The first command line argument that makes a program run as the helper.
pub const HELPER_ARG: &str = "__sandbox-helper";

/// The program that acts as the helper, and its arguments.
///
/// ```
/// let helper = windlass_sandbox::Helper::new(std::env::current_exe()?);
/// assert_eq!(helper.args, ["__sandbox-helper"]);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Helper {
    /// The program file that the engine spawns.
    pub program: PathBuf,
    /// The command line arguments after the program name; [`HELPER_ARG`] comes first.
    pub args: Vec<OsString>,
}

impl Helper {
    /// Uses a program that links this crate, such as the current one or the `windlass` binary.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: vec![HELPER_ARG.into()],
        }
    }
}

/// The dynamic loader calls every function pointer in `.init_array` before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = become_helper;

/// Keeps [`BEFORE_MAIN`] in every program that opens a sandbox: the linker drops a static that no code refers to.
pub(crate) fn is_linked() {
    std::hint::black_box(&BEFORE_MAIN);
}

extern "C" fn become_helper() {
    if !is_asked_to_help() || !has_engine() {
        return;
    }
    crate::inside::sys::ignore_broken_pipes();
    std::process::exit(i32::from(crate::inside::supervise()));
}

/// Returns whether the first argument is [`HELPER_ARG`]. Not every C library passes the arguments to Rust before
/// `main`, so `/proc` is the fallback.
fn is_asked_to_help() -> bool {
    let mut args = std::env::args_os();
    if args.next().is_some() {
        return args.next().is_some_and(|arg| arg == HELPER_ARG);
    }
    let line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let mut args = line.split(|byte| *byte == 0).skip(1);
    args.next() == Some(HELPER_ARG.as_bytes())
}

/// Returns whether standard input is a Unix socket, as it is when an engine started this program. If a user types the
/// argument in a terminal, `main` runs and handles the argument itself.
fn has_engine() -> bool {
    rustix::net::sockopt::socket_domain(rustix::stdio::stdin())
        .is_ok_and(|family| family == rustix::net::AddressFamily::UNIX)
}
