//! Which program is the sandbox's helper. Every program that links this crate can be: started with [`HELPER_ARG`], it
//! becomes the helper before its `main` begins, because the helper must be alone in its process and a program may start
//! threads at once (`#[tokio::main]` does, and so does a test runner).

use std::ffi::OsString;
use std::path::PathBuf;

/// The argument that makes a program the helper.
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
    /// Its path.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
}

impl Helper {
    /// A program that links this crate, such as the current one or the `windlass` binary.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: vec![HELPER_ARG.into()],
        }
    }
}

/// The loader calls this before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = become_helper;

/// Keeps [`BEFORE_MAIN`] in every program that opens a sandbox: a linker drops what nothing refers to.
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

/// Whether the first argument says so. Not every C library gives arguments to programs before `main`.
fn is_asked_to_help() -> bool {
    let mut args = std::env::args_os();
    if args.next().is_some() {
        return args.next().is_some_and(|arg| arg == HELPER_ARG);
    }
    let line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let mut args = line.split(|byte| *byte == 0).skip(1);
    args.next() == Some(HELPER_ARG.as_bytes())
}

/// Whether an engine is at the other end of standard input. Typed by a person, the argument is the program's own to judge.
fn has_engine() -> bool {
    rustix::net::sockopt::socket_domain(rustix::stdio::stdin())
        .is_ok_and(|family| family == rustix::net::AddressFamily::UNIX)
}
