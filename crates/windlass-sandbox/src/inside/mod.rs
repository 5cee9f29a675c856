//! The helper's side: what runs in the program that the engine starts, outside of the engine. One thread, no
//! allocation games, no output; everything it has to say goes through the socket that is its standard input.

mod broker;
mod broker_setup;
mod command;
mod covers;
mod fence;
mod filter;
mod group;
mod journal;
mod layer;
mod notify;
mod private;
mod processes;
mod renames;
mod supervise;
pub(crate) mod sys;
mod view;

pub(crate) use command::{PAUSE_ALL, RESUME_ALL};
pub(crate) use group::limits_memory;
pub use private::shares_memory;
pub(crate) use supervise::supervise;

use crate::wire::Refusal;

/// Goes into another network namespace.
fn enter_network(network: std::os::fd::BorrowedFd<'_>) -> std::io::Result<()> {
    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
    Ok(move_into_link_name_space(
        network,
        Some(LinkNameSpaceType::Network),
    )?)
}
