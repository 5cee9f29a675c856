//! The port to the enclosure of a foreign agent: a sandbox around its whole process tree, a home directory made for it,
//! and one loopback port where it reaches its model. The `host` crate implements it; nothing here opens or starts
//! anything.
//!
//! Nothing that comes from inside the enclosure is trusted: its files, its exit status and its output are untrusted
//! input.
//!
//! ```
//! use windlass_core::enclosure::Launch;
//!
//! let launch = Launch {
//!     argv: vec!["agent".into(), "--acp".into()],
//!     ..Launch::default()
//! };
//! assert_eq!(launch.argv[0], "agent");
//! ```

use std::io;
use std::path::Path;

use tokio::io::{AsyncRead, AsyncWrite};

use crate::BoxFuture;
use crate::workspace::{FileError, ProcessEnd, ProcessError};

/// A two-way byte stream of any kind, such as a socket.
pub trait AgentConnection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> AgentConnection for T {}

/// The enclosure of a foreign agent in one run. The agent works on the run's own tree, so its file changes are the
/// run's changes.
pub trait Enclosure: Send + Sync {
    /// The agent's home directory, by the path that the agent sees. It belongs to the session and stays, so that the
    /// agent can resume its conversation. It has nothing of the user's home in it.
    fn home(&self) -> &Path;
    /// Writes a file into the home. The path is relative to the home; missing directories are created.
    fn put(&self, path: &str, bytes: &[u8]) -> Result<(), FileError>;
    /// Reads a file of the home, which the agent may have written. A file longer than `max` bytes is an error.
    fn read(&self, path: &str, max: u64) -> Result<Vec<u8>, FileError>;
    /// Removes a file or directory tree of the home, such as a settings file that the agent may have left to change its
    /// own later behaviour. A missing path is no error.
    fn clear(&self, path: &str) -> Result<(), FileError>;
    /// The port on the enclosure's loopback where the model endpoint listens. `None` if the enclosure shares the
    /// machine's network: then the agent's model calls cannot be counted.
    fn endpoint(&self) -> Option<u16>;
    /// Waits for the next connection to that port. Never completes if there is no port.
    fn accept(&self) -> BoxFuture<'_, io::Result<Box<dyn AgentConnection>>>;
    /// Starts a program in the run's tree, with a clean environment plus these variables. The whole process tree is
    /// killed when the returned handle is dropped or the run ends.
    fn start(&self, launch: Launch) -> BoxFuture<'_, Result<AgentProcess, ProcessError>>;
    /// Hosts that the enclosure refused to connect to since the previous call.
    fn take_refused(&self) -> Vec<String>;
    /// Continues the processes that were stopped while validators ran. Returns whether any are left. If not (the copy
    /// was closed or mounted again meanwhile, or the processes ended), the agent has to be started again.
    fn resume(&self) -> bool {
        false
    }
}

/// A program to start in an enclosure.
#[derive(Debug, Clone, Default)]
pub struct Launch {
    /// The program, by path or name, and its arguments.
    pub argv: Vec<String>,
    /// Additional environment variables. They override the defaults.
    pub env: Vec<(String, String)>,
    /// Working directory relative to the workspace; empty means its root.
    pub workdir: String,
}

impl Launch {
    /// A program with its arguments and environment variables, started in the root of the workspace.
    #[must_use]
    pub fn new(argv: Vec<String>, env: Vec<(String, String)>) -> Self {
        let workdir = String::new();
        Self { argv, env, workdir }
    }
}

/// A process that runs in an enclosure.
pub struct AgentProcess {
    /// Its standard input. Dropping it closes the pipe.
    pub stdin: Box<dyn AsyncWrite + Send + Unpin>,
    /// The standard output of the process.
    pub stdout: Box<dyn AsyncRead + Send + Unpin>,
    /// The standard error of the process.
    pub stderr: Box<dyn AsyncRead + Send + Unpin>,
    /// The handle to wait for the process tree or to end it.
    pub handle: Box<dyn ProcessHandle>,
}

/// A handle to a process tree. Dropping it kills the whole tree.
pub trait ProcessHandle: Send {
    /// Waits until the process and everything it started has exited.
    fn wait(&mut self) -> BoxFuture<'_, Result<ProcessEnd, ProcessError>>;
    /// Asks all processes of the tree to exit.
    fn terminate(&self);
    /// Kills all processes of the tree.
    fn kill(&self);
}
