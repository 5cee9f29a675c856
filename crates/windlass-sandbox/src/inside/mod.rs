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
mod supervise;
pub(crate) mod sys;
mod view;

pub use private::shares_memory;
pub(crate) use supervise::supervise;

use crate::wire::Report;

/// Why a sandbox cannot be had.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The kernel or its settings refuse a part of it; another tier may do.
    Unavailable(String),
    /// Something that was asked for is not there or cannot be: no tier would do.
    Invalid(String),
    /// A private layer over a directory cannot be had here.
    NoLayers(String),
}

impl Refusal {
    /// The same, with what it is about.
    fn about(self, what: &str) -> Self {
        match self {
            Self::Unavailable(why) => Self::Unavailable(format!("{what}: {why}")),
            Self::Invalid(why) => Self::Invalid(format!("{what}: {why}")),
            Self::NoLayers(why) => Self::NoLayers(format!("{what}: {why}")),
        }
    }

    /// As the engine hears it.
    fn report(self) -> Report {
        match self {
            Self::Unavailable(why) => Report::Unavailable { why },
            Self::Invalid(why) => Report::Invalid { why },
            Self::NoLayers(why) => Report::NoLayers { why },
        }
    }
}

impl From<std::io::Error> for Refusal {
    fn from(err: std::io::Error) -> Self {
        Self::Unavailable(err.to_string())
    }
}

impl From<rustix::io::Errno> for Refusal {
    fn from(err: rustix::io::Errno) -> Self {
        Self::Unavailable(err.to_string())
    }
}

impl From<String> for Refusal {
    fn from(why: String) -> Self {
        Self::Unavailable(why)
    }
}
