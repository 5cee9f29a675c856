//! The port to the place where an agent that is not ours runs: a sandbox around its whole process tree, a home made for
//! it, and one address it can reach its model at. `host` makes it; nothing here opens or starts anything.
//!
//! What is inside is never believed: its files, its exit code and its words are read as anybody's.
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

/// Bytes in and out, whatever carries them.
pub trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// A foreign agent's place in one run. It works on the run's own tree, so that what it changes is what the run changed.
pub trait Enclosure: Send + Sync {
    /// Where its home is, as it sees it. It is the session's own and stays, so that the agent can go on with what it
    /// remembers; nothing of the person's home is in it.
    fn home(&self) -> &Path;
    /// Puts a file into the home; a path is relative to it, and folders on the way are made.
    fn put(&self, path: &str, bytes: &[u8]) -> Result<(), FileError>;
    /// Up to `max` bytes of a file of the home, which the agent may have written. Longer ones are an error.
    fn read(&self, path: &str, max: u64) -> Result<Vec<u8>, FileError>;
    /// Removes a file or a folder of the home with all that is in it; what is not there is removed already. For what an
    /// agent may have left for itself to be steered by.
    fn clear(&self, path: &str) -> Result<(), FileError>;
    /// The port on its own loopback where somebody of ours listens; `None` where its network is the machine's, so that
    /// nothing of what it sends could be counted.
    fn endpoint(&self) -> Option<u16>;
    /// The next connection to that port. Never ends when there is no port.
    fn accept(&self) -> BoxFuture<'_, io::Result<Box<dyn Wire>>>;
    /// Starts a program in the run's tree, with a clean environment and these variables in it. All of it is gone when
    /// what is given back is dropped, or the run ends.
    fn start(&self, launch: Launch) -> BoxFuture<'_, Result<Inmate, ProcessError>>;
    /// Hosts that it was not allowed to reach since somebody last asked.
    fn take_refused(&self) -> Vec<String>;
    /// Lets programs run again that were stopped for the checks. Whether any is left: where the copy was closed or
    /// mounted anew meanwhile, or the programs ended, the agent has to be started again.
    fn resume(&self) -> bool {
        false
    }
}

/// What to start.
#[derive(Debug, Clone, Default)]
pub struct Launch {
    /// The program, by its path or its name, and its words.
    pub argv: Vec<String>,
    /// Variables beside the clean ones; they win.
    pub env: Vec<(String, String)>,
    /// Directory inside the workspace; empty is the root.
    pub workdir: String,
}

impl Launch {
    /// A program with its words and variables, in the root of the workspace.
    #[must_use]
    pub fn new(argv: Vec<String>, env: Vec<(String, String)>) -> Self {
        let workdir = String::new();
        Self { argv, env, workdir }
    }
}

/// A program that runs there.
pub struct Inmate {
    /// What it reads. Dropped, it reads the end.
    pub stdin: Box<dyn AsyncWrite + Send + Unpin>,
    /// What it says.
    pub stdout: Box<dyn AsyncRead + Send + Unpin>,
    /// What it complains about.
    pub stderr: Box<dyn AsyncRead + Send + Unpin>,
    /// Its life.
    pub life: Box<dyn Life>,
}

/// The life of a process tree. Dropped, all of it is killed.
pub trait Life: Send {
    /// Waits until it is over, and everything it started is gone.
    fn wait(&mut self) -> BoxFuture<'_, Result<ProcessEnd, ProcessError>>;
    /// Asks everything in it to end.
    fn terminate(&self);
    /// Ends everything in it.
    fn kill(&self);
}
