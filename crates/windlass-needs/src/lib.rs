//! Lets tests check for kernel features that a machine may not have: namespaces, overlay mounts, Landlock, seccomp
//! notifications. Such a test starts with `if lacks(Need::Namespaces) { return; }`. If the feature is missing, the test
//! passes, and its name and the reason are appended to the file that `$WINDLASS_NOT_RUN` names; `cargo xtask test` sets
//! the variable and prints the count.
//!
//! The probes try the feature itself and share no code with the sandbox. So a sandbox that wrongly reports itself as
//! unavailable makes tests fail instead of being skipped.

#[cfg(target_os = "linux")]
mod kernel;
mod program;

use std::io::Write as _;
use std::panic::Location;
use std::sync::OnceLock;

/// The environment variable with the file that lists the skipped tests, one `test<TAB>reason` per line.
pub const NOT_RUN: &str = "WINDLASS_NOT_RUN";

/// A feature of the machine that a test may need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// User, mount, process and network namespaces in which file systems and a new `/proc` can be mounted.
    Namespaces,
    /// Namespaces, and an overlay mount whose layers are in the folder for temporary files.
    Overlay,
    /// A separate place for the writes of a command: an overlay mount or, if there are no namespaces at all, a copy.
    /// Namespaces without overlay mounts give neither.
    CommandLayers,
    /// The Landlock system calls.
    Landlock,
    /// Seccomp filters that report to a listener.
    Notifications,
    /// Taking a file descriptor out of another process.
    PidfdGetfd,
    /// Netlink sockets that answer questions about other sockets. qemu's user mode has none.
    SocketDiag,
}

impl Need {
    fn description(self) -> &'static str {
        match self {
            Self::Namespaces => "user namespaces",
            Self::Overlay => "overlay mounts in a user namespace",
            Self::CommandLayers => "layers for commands",
            Self::Landlock => "Landlock",
            Self::Notifications => "seccomp notifications",
            Self::PidfdGetfd => "pidfd_getfd",
            Self::SocketDiag => "netlink sockets of the kind NETLINK_SOCK_DIAG",
        }
    }

    /// Returns why the feature is missing, or `None` if it works. Each probe runs once per process.
    fn unmet(self) -> Option<&'static str> {
        static FOUND: [OnceLock<Option<String>>; 7] = [const { OnceLock::new() }; 7];
        FOUND[self as usize]
            .get_or_init(|| self.probe().err())
            .as_deref()
    }

    fn probe(self) -> Result<(), String> {
        match self {
            Self::Namespaces => program::namespaces(),
            Self::Overlay => program::overlay(),
            Self::CommandLayers => program::command_layers(),
            #[cfg(target_os = "linux")]
            Self::Landlock => kernel::landlock(),
            #[cfg(target_os = "linux")]
            Self::Notifications => kernel::notifications(),
            #[cfg(target_os = "linux")]
            Self::PidfdGetfd => kernel::pidfd_getfd(),
            #[cfg(target_os = "linux")]
            Self::SocketDiag => kernel::socket_diag(),
            #[cfg(not(target_os = "linux"))]
            Self::Landlock | Self::Notifications | Self::PidfdGetfd | Self::SocketDiag => {
                Err("this is not Linux".to_owned())
            }
        }
    }
}

/// Returns whether this machine lacks a feature that the calling test needs. Then the test is listed as skipped and
/// must return.
#[must_use]
#[track_caller]
pub fn lacks(need: Need) -> bool {
    let Some(why) = need.unmet() else {
        return false;
    };
    not_run(&format!("needs {} ({why})", need.description()));
    true
}

/// Like [`lacks`], for a program on the PATH.
#[must_use]
#[track_caller]
pub fn lacks_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
    if !found {
        not_run(&format!("needs the program `{name}`"));
    }
    !found
}

/// Lists the calling test as skipped. The reason starts with "needs".
#[track_caller]
pub fn not_run(reason: &str) {
    list(&test_name(Location::caller()), reason);
}

/// Returns the name of the calling test. The test runner names the thread after the test, unless it runs one test per
/// process on the main thread.
fn test_name(caller: &Location<'_>) -> String {
    // Test runners set the variable. Several packages have a test program of the same name.
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_else(|_| "test".to_owned());
    let program = std::env::current_exe().ok();
    let program = program
        .as_deref()
        .and_then(std::path::Path::file_stem)
        .map(|name| name.to_string_lossy());
    // Cargo adds a hash to the file name. The program of the unit tests is named after the package.
    let program = program
        .as_deref()
        .map(|name| name.rsplit_once('-').map_or(name, |(name, _)| name));
    let program = program.filter(|name| *name != package.replace('-', "_"));
    let exact = || {
        let mut args = std::env::args();
        args.find(|arg| arg == "--exact").and_then(|_| args.next())
    };
    let thread = std::thread::current()
        .name()
        .filter(|name| *name != "main")
        .map(str::to_owned);
    let test = thread
        .or_else(exact)
        .unwrap_or_else(|| format!("{}:{}", caller.file(), caller.line()));
    program.map_or_else(
        || format!("{package}::{test}"),
        |program| format!("{package}::{program}::{test}"),
    )
}

/// Panics if the list cannot be written, because a list without this test would be wrong.
#[allow(
    clippy::print_stderr,
    reason = "a runner shows it with the output of the test"
)]
fn list(test: &str, reason: &str) {
    eprintln!("not run: {test} {reason}");
    let Some(path) = std::env::var_os(NOT_RUN) else {
        return;
    };
    let file = std::fs::File::options()
        .create(true)
        .append(true)
        .open(&path);
    // Append each line with one write, because other processes append to the same file.
    let written =
        file.and_then(|mut file| file.write_all(format!("{test}\t{reason}\n").as_bytes()));
    assert!(
        written.is_ok(),
        "{} cannot be written: {written:?}",
        path.display()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_named_after_itself() {
        assert_eq!(
            test_name(Location::caller()),
            "windlass-needs::tests::a_test_is_named_after_itself"
        );
    }

    #[test]
    fn a_reason_is_one_line() {
        let kernel = [
            Need::Landlock,
            Need::Notifications,
            Need::PidfdGetfd,
            Need::SocketDiag,
        ];
        for need in [Need::Namespaces, Need::Overlay].into_iter().chain(kernel) {
            assert!(
                need.unmet()
                    .is_none_or(|why| !why.is_empty() && !why.contains(['\n', '\t'])),
                "{need:?}"
            );
        }
    }
}
