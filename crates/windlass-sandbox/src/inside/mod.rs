//! The code that runs in the helper, outside of the engine's process.
//!
//! One session has these processes, each the parent of the next:
//!
//! - The **engine** spawns the helper with a socket as its stdin.
//! - The **monitor** (`supervise.rs`) is the helper process itself. It stays outside of all namespaces, writes the user
//!   id maps, waits for the supervisor, and then cleans up, also when the supervisor was killed.
//! - The **supervisor** (`supervise.rs`) enters new namespaces, builds the view of the file system (`view.rs`), and
//!   serves the engine's requests until the engine closes the socket.
//! - The **first process** of a command (`command.rs`) is process 1 in a new process namespace, so that the kernel
//!   kills everything in the namespace when it exits. It watches limits, forwards signals, and answers suspended system
//!   calls (`notify.rs`).
//! - The **command** is the child of the first process. It gives up its privileges, installs the filters (`filter.rs`)
//!   and Landlock rules (`landlock_rules.rs`), and executes the program.
//!
//! In the tiers without namespaces the processes are the same, but the monitor, the supervisor and the first process
//! find and kill descendants through `/proc` (`processes.rs`), and in the broker tier the first process is also the
//! broker (`broker.rs`).
//!
//! Every process here has one thread when it forks (the broker starts threads later and then forks no more). Nothing
//! here writes to stdout or stderr; all messages go through the socket.

mod broker;
mod broker_setup;
mod cgroup;
mod command;
mod covers;
mod filter;
mod landlock_rules;
mod notify;
mod overlay;
mod placeholders;
mod private_dirs;
mod processes;
mod renames;
mod supervise;
pub(crate) mod sys;
mod view;

pub(crate) use cgroup::limits_memory;
pub(crate) use command::{PAUSE_ALL, RESUME_ALL};
pub use private_dirs::shares_memory;
pub(crate) use supervise::supervise;

use crate::wire::Refusal;

/// Moves this process into another network namespace.
fn enter_network(network: std::os::fd::BorrowedFd<'_>) -> std::io::Result<()> {
    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
    Ok(move_into_link_name_space(
        network,
        Some(LinkNameSpaceType::Network),
    )?)
}
