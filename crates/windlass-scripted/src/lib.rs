//! A model server on loopback that plays a script. It supports the wire formats of four vendors, derives from each
//! request how far the script has got, and calls the tools that the agent offers. It never makes connections itself.
//!
//! The server does not store its position in the script: the position follows from the history in every request. So a
//! retry gets the same answer again, and a side question (a title, a topic) does not advance the script.
//!
//! [`http`] is the HTTP/1.1 implementation of all test servers; [`ByteServer`] sends exactly the bytes that a test
//! wants.

mod answers;
mod byte_server;
pub mod http;
mod recorded_request;
mod request;
mod script;
mod server;
mod text_edits;
mod tools;
mod wire;

pub use byte_server::{Act, ByteServer, Received};
pub use recorded_request::RecordedRequest;
pub use script::{Move, ReportedUsage, Script};
pub use server::Server;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex. A panic of another thread cannot leave the data in a bad state, so poisoning is ignored.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
